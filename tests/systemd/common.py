"""What the steps inside the container share: running commands, asking systemd and the daemon, bounded waiting."""

import functools
import json
import os
import pathlib
import pwd
import re
import subprocess
import time

SOCKET = "/run/bulkhead/bulkhead.sock"
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


def client_as(user, *arguments):
    """(exit status, events) of the client run by `user`, with the groups that user has."""
    done = subprocess.run(["runuser", "-u", user, "--", CLIENT, "--socket", SOCKET, "--json", *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line]


def main_pid():
    return int(show("bulkhead.service", "MainPID"))


class Stream:
    """A client in the middle of a stream of the slow model."""

    ARGUMENTS = ("run", "slow", "Once upon a time", "--raw", "--ignore-eos", "--seed", "11", "--max-tokens")

    def __init__(self, tokens=300):
        command = [CLIENT, "--socket", SOCKET, "--json", *self.ARGUMENTS, str(tokens)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.lines = []

    def until_streaming(self, tokens=10):
        while len(self.lines) < tokens:
            line = self.process.stdout.readline()
            assert line, f"the stream ended early: {self.lines[-1:]}"
            self.lines.append(json.loads(line))
        return self

    def end(self, seconds=60):
        """(exit status, ids, events) once the client has ended."""
        rest, _ = self.process.communicate(timeout=seconds)
        events = self.lines + [json.loads(line) for line in rest.splitlines() if line]
        ids = [token["id"] for event in events if event.get("event") == "delta" for token in event["tokens"]]
        return self.process.returncode, ids, events


@functools.cache
def undisturbed(tokens=300):
    code, ids, events = Stream(tokens).end()
    assert code == 0 and len(ids) == tokens, (code, len(ids), events[-1:])
    return ids


def must_finish(stream, ids, resumes):
    """The stream ends as if nothing had happened, told of `resumes` deaths."""
    code, seen, events = stream.end()
    assert code == 0, (code, events[-1:])
    assert seen == ids, f"{len(seen)} ids instead of {len(ids)}, first difference at " + str(
        next((i for i, (a, b) in enumerate(zip(seen, ids)) if a != b), min(len(seen), len(ids))))
    told = [event for event in events if event.get("event") == "resumed"]
    assert len(told) >= resumes, events[-3:]
