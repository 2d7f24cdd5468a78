"""Within a second of the daemon's SIGKILL no worker lives: spawning, loading, in prefill, idle, and stopped."""

import os
import signal
import time
from harness import Daemon, alive, check, eventually

LONG = "word " * 600


def spawning(daemon):
    daemon.start("run", "slow", "Once", "--raw")


def loading(daemon):
    daemon.start("--json", "load", "slow").stdout.readline()


def prefilling(daemon):
    daemon.start("run", "slow", LONG, "--raw")
    eventually(lambda: daemon.model("slow") and daemon.model("slow")["state"].lower() == "busy", "prefill")


def idle(daemon):
    daemon.ok("load", "slow")


def stopped(daemon):
    daemon.ok("load", "slow")
    os.kill(daemon.workers()[0], signal.SIGSTOP)


for situation in (spawning, loading, prefilling, idle, stopped):
    with Daemon() as daemon:
        situation(daemon)
        workers = eventually(daemon.workers, f"a worker ({situation.__name__})")
        daemon.process.kill()
        killed = time.monotonic()
        while any(alive(pid) for pid in workers):
            check(time.monotonic() - killed < 1, situation.__name__, "a worker lives a second after the daemon", workers)
            time.sleep(0.01)
