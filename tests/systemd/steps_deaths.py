"""Deaths of workers and of the daemon: the unit lives on, and so do the streams."""

import os
import signal
import time

from common import (CLIENT, SOCKET, Stream, client, main_pid, must_finish, sh, show, undisturbed, until, workers)


def worker():
    """The pid of the one worker that computes now."""
    busy = [model["pid"] for model in client("ps")[0]["models"] if model["in_flight"]]
    assert len(busy) == 1, client("ps")
    return busy[0]


def signalled(number):
    return lambda: os.kill(worker(), number)


def out_of_memory():
    """The worker gets no more memory, as one that has grown to its limit, and is made to want some. Its own user lowers
    the limit: the container's root may not."""
    sh("runuser", "-u", "bulkhead", "--", "prlimit", f"--pid={worker()}", "--data=4096")
    sh(CLIENT, "--socket", SOCKET, "run", "slow", "a " * 60000, "--raw", "--max-tokens", "1", check=False)


def survives(kill, reason, resumes=1):
    before, restarts = main_pid(), show("bulkhead.service", "NRestarts")
    ids = undisturbed()
    stream = Stream().until_streaming()
    kill()
    must_finish(stream, ids, resumes)
    assert show("bulkhead.service", "ActiveState") == "active" and main_pid() == before, "the service was restarted"
    assert show("bulkhead.service", "NRestarts") == restarts
    death = client("deaths")[0]["deaths"][-1]
    assert death["reason"] == reason, death
    return f"the unit is active with its PID, the stream whole; {death['detail']}"


def step_worker_killed():
    return survives(signalled(signal.SIGKILL), "WORKER_CRASHED")


def step_worker_crashes():
    return survives(signalled(signal.SIGSEGV), "WORKER_CRASHED")


def step_worker_breaks_its_sandbox():
    return survives(signalled(signal.SIGSYS), "WORKER_SANDBOX_VIOLATION")


def step_worker_out_of_memory():
    return survives(out_of_memory, "WORKER_OOM")


def daemon_dies(kill, limit):
    """A stream across the death of the daemon itself; systemd keeps its records and starts it again."""
    ids = undisturbed()
    before, old = main_pid(), set(workers())
    stream = Stream().until_streaming()
    kill(before)
    until("the service runs again",
          lambda: show("bulkhead.service", "ActiveState") == "active" and main_pid() not in (0, before), limit)
    must_finish(stream, ids, 1)
    assert not old & set(workers()), "a worker outlived its daemon"


def step_daemon_killed():
    started = time.monotonic()
    daemon_dies(lambda pid: os.kill(pid, signal.SIGKILL), 20)
    return f"SIGKILL of the daemon in mid-stream: the stream went on ({time.monotonic() - started:.1f} s in all)"


def step_daemon_restarted():
    daemon_dies(lambda _: sh("systemctl", "restart", "--no-block", "bulkhead.service"), 60)
    return "systemctl restart in mid-stream: the stream went on"


def step_loop_wedged():
    """A stopped process is a loop that does not come round; nothing but the watchdog ends it."""
    daemon_dies(lambda pid: os.kill(pid, signal.SIGSTOP), 40)
    assert show("bulkhead.service", "NRestarts") != "0"
    return "the watchdog ended a daemon that did not move, and its streams went on"
