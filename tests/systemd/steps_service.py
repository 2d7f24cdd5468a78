"""The service as an installed unit: activation, its own user, hardening, reload, timer, journal, stop."""

import json
import pathlib
import re

from common import (SOCKET, Stream, client, main_pid, owner, resident, sh, show, until, workers)

MAX_EXPOSURE = 1.0


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


def step_journal():
    """A line's priority is its severity, and no prefix is left in its text."""
    lines = [json.loads(line) for line in sh("journalctl", "--no-pager", "--output=json", "-u", "bulkhead.service",
                                             f"_PID={main_pid()}").splitlines()]
    priorities = {int(line["PRIORITY"]) for line in lines}
    assert 6 in priorities and priorities & {3, 4}, f"only the priorities {priorities} after workers died"
    assert not any(re.match(r"<\d>", line["MESSAGE"]) for line in lines)
    return f"{len(lines)} lines of the priorities {sorted(priorities)}"


def step_stop():
    """With streams running: each client is told, and nothing is left."""
    streams = [Stream(3500).until_streaming() for _ in range(3)]
    sh("systemctl", "stop", "bulkhead.socket", "bulkhead.service")
    assert show("bulkhead.service", "Result") == "success", show("bulkhead.service", "Result")
    assert show("bulkhead.service", "ExecMainStatus") == "0"
    assert not workers(), "a worker outlived the service"
    for stream in streams:
        code, _, events = stream.end(10)
        assert events[-1]["event"] in ("error", "done") and (code == 0) == (events[-1]["event"] == "done"), events[-1:]
    return f"exit code 0, no process left, 3 clients told: {events[-1].get('reason', events[-1]['event'])}"
