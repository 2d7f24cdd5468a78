"""`bulkhead events --json` prints the life of a worker and of a request line by line while it happens; a user sees his own
requests and no other's; Ctrl-C ends it."""

import select
import signal
from harness import ALICE, AS_ROOT, BOB, DAEMON_UID, Daemon, check, eventually, json


class Follower:
    def __init__(self, daemon, uid=DAEMON_UID):
        self.daemon, self.lines = daemon, []
        self.process = daemon.start("--json", "events", uid=uid)
        eventually(self.listens, "the first line, which proves that it listens", seconds=30)

    def listens(self):
        self.daemon.ok("load", "tale")
        self.daemon.ok("release", "tale")
        return select.select([self.process.stdout], [], [], 0.1)[0]

    def until(self, subject, what):
        """Reads up to this event, and returns what has happened to its subject, in order."""
        while not self.lines or (self.lines[-1]["subject"], self.lines[-1]["what"]) != (subject, what):
            line = self.process.stdout.readline()
            check(line, "the events ended before", subject, what)
            self.lines.append(json.loads(line))
        return [line["what"] for line in self.lines if line["subject"] == subject]


def generate(daemon, uid):
    events = daemon.ok("--json", "run", "tale", "Once", "--raw", "--max-tokens", "3", uid=uid).events
    return next(event for event in events if event["event"] == "started")


with Daemon(models=("tale",)) as daemon:
    follower = Follower(daemon)
    started = generate(daemon, ALICE)
    request, worker = started["inference_id"], started["allocation_id"]
    check(follower.until(request, "DONE") == ["QUEUED", "ADMITTED", "PREFILL", "DONE"], follower.lines)
    daemon.ok("release", "tale")
    life = follower.until(worker, "FREED")
    check(life == ["STARTING", "LOADING", "IDLE", "BUSY", "IDLE", "TEARDOWN", "REAPED", "SETTLED", "FREED"], life)
    check(all(line["at_unix_ns"] > 0 and line["model"] == "tale" for line in follower.lines), follower.lines)

    if AS_ROOT:
        bob = Follower(daemon, BOB)
        alices, bobs = generate(daemon, ALICE), generate(daemon, BOB)
        bob.until(bobs["inference_id"], "DONE")
        subjects = {line["subject"] for line in bob.lines}
        check(alices["inference_id"] not in subjects, "bob sees alice's request:", bob.lines)
        check(alices["allocation_id"] in subjects, "bob does not see the worker:", bob.lines)
        bob.process.kill()
        bob.process.wait()
    follower.process.send_signal(signal.SIGINT)
    check(follower.process.wait(10) == -signal.SIGINT, "Ctrl-C gave", follower.process.returncode)
