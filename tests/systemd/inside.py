#!/usr/bin/python3
"""Runs inside the container, as root: the units' behaviour, one step after the other. Prints what it saw."""

import json
import os
import pathlib
import pwd
import re
import subprocess
import sys
import time

SOCKET = "/run/bulkhead/bulkhead.sock"
MAX_EXPOSURE = 1.5
CLIENT = next(str(path) for path in map(pathlib.Path, ("/usr/local/bin/bulkhead", "/usr/bin/bulkhead")) if path.exists())


def sh(*command, check=True, timeout=60):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout


def show(unit, name):
    return sh("systemctl", "show", "--property", name, "--value", unit).strip()


def client(*arguments):
    return [json.loads(line) for line in sh(CLIENT, "--socket", SOCKET, "--json", *arguments).splitlines() if line]


def until(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


def workers():
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and "bulkhead-worker" in pathlib.Path(f"/proc/{entry}/cmdline").read_text():
                found.append(int(entry))
        except OSError:
            pass
    return found


def resident():
    return client("ps")[0]["models"]


def owner(pid):
    uid = re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1)
    return pwd.getpwuid(int(uid)).pw_name


def step_activation():
    until("the socket listens", lambda: show("bulkhead.socket", "ActiveState") == "active")
    assert show("bulkhead.service", "ActiveState") == "inactive", "the service runs before anybody connected"
    client("models")
    assert show("bulkhead.service", "ActiveState") == "active"
    status = pathlib.Path(SOCKET).stat()
    assert status.st_mode & 0o777 == 0o660, oct(status.st_mode)
    return f"connecting started it; STATUS={show('bulkhead.service', 'StatusText')!r}"


def step_generate():
    events = client("run", "demo", "Once upon a time", "--raw", "--max-tokens", "16", "--temperature", "0")
    assert events[-1]["event"] == "done", events[-1]
    text = "".join(event.get("text", "") for event in events if event["event"] == "delta")
    assert len(resident()) == 1
    return f"{len(text)} characters from {events[-1].get('finish_reason')}"


def step_own_user():
    daemon = int(show("bulkhead.service", "MainPID"))
    pids = workers()
    assert pids, "no worker lives"
    owners = {owner(pid) for pid in [daemon, *pids]}
    assert owners == {"bulkhead"}, owners
    status = pathlib.Path(f"/proc/{daemon}/status").read_text()
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M) and re.search(r"^CapBnd:\s+0+$", status, re.M)
    rss = int(re.search(r"^VmRSS:\s+(\d+)", status, re.M).group(1))
    return f"daemon and {len(pids)} worker as bulkhead, no capabilities; daemon's RSS {rss / 1024:.1f} MiB"


def step_exposure():
    output = sh("systemd-analyze", "security", "--no-pager", "bulkhead.service", check=False)
    match = re.search(r"exposure level for \S+: ([0-9.]+)", output)
    assert match, output
    assert float(match.group(1)) <= MAX_EXPOSURE, output
    return f"exposure {match.group(1)}"


def step_reload():
    sh("systemctl", "reload", "bulkhead.service")
    until("reloaded", lambda: show("bulkhead.service", "ActiveState") == "active")
    return show("bulkhead.service", "StatusText")


def step_timer():
    assert resident(), "nothing to release"
    sh("systemctl", "start", "bulkhead-release-idle.timer")
    until("the timer released the model", lambda: not resident() and not workers())
    sh("systemctl", "stop", "bulkhead-release-idle.timer")
    return "the timer's service released the idle model; its process is gone"


def step_stop():
    client("load", "demo")
    assert workers()
    sh("systemctl", "stop", "bulkhead.socket", "bulkhead.service")
    assert show("bulkhead.service", "Result") == "success", show("bulkhead.service", "Result")
    assert show("bulkhead.service", "ExecMainStatus") == "0"
    assert not workers(), "a worker outlived the service"
    return "stopped with exit code 0 and no process left"


def main():
    for step in (step_activation, step_generate, step_own_user, step_exposure, step_reload, step_timer, step_stop):
        started = time.monotonic()
        try:
            print(f"{step.__name__[5:]}: {step()} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception as error:  # whatever it is, the journal is what explains it
            print(f"{step.__name__[5:]} FAILED: {error!r}")
            print(sh("journalctl", "--no-pager", "-n", "60", "-u", "bulkhead.service", "-u", "bulkhead.socket",
                     "-u", "bulkhead-release-idle.service", check=False))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
