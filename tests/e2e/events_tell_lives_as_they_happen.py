"""`bulkhead events --json` prints the life of a worker and of a request line by line while it happens; a user sees his own
requests and no other's; Ctrl-C ends it."""

import select
import signal
from harness import ALICE, AS_ROOT, BOB, Daemon, check, eventually, json


def until(process, what):
    lines = []
    while not lines or lines[-1]["what"] != what:
        line = process.stdout.readline()
        check(line, "the events ended before", what)
        lines.append(json.loads(line))
    return lines


def whats(lines, subject):
    return [line["what"] for line in lines if line["subject"].startswith(subject)]


with Daemon(models=("tale",)) as daemon:
    follower = daemon.start("--json", "events")

    def listens():
        daemon.ok("load", "tale")
        daemon.ok("release", "tale")
        return select.select([follower.stdout], [], [], 0)[0]
    eventually(listens, "the first line, which proves that it listens", seconds=30)
    until(follower, "FREED")
    daemon.ok("--json", "run", "tale", "Once", "--raw", "--max-tokens", "3", uid=ALICE)
    lines = until(follower, "DONE")
    check(whats(lines, "inf-") == ["QUEUED", "ADMITTED", "PREFILL", "DONE"], lines)
    worker = whats(lines, "tale#")
    check(worker[:5] == ["RESERVED", "STARTING", "LOADING", "IDLE", "BUSY"][-len(worker[:5]):] or
          worker[:4] == ["STARTING", "LOADING", "IDLE", "BUSY"], worker)
    check(all(line["at_unix_ns"] > 0 and line["model"] == "tale" for line in lines), lines)
    daemon.ok("release", "tale")
    check(whats(until(follower, "FREED"), "tale#")[-4:] == ["TEARDOWN", "REAPED", "SETTLED", "FREED"], "the end")

    if AS_ROOT:
        bob = daemon.start("--json", "events", uid=BOB)

        def bob_listens():
            daemon.ok("load", "tale")
            daemon.ok("release", "tale")
            return select.select([bob.stdout], [], [], 0)[0]
        eventually(bob_listens, "bob to see workers", seconds=30)
        daemon.ok("run", "tale", "Once", "--raw", "--max-tokens", "3", uid=ALICE)
        daemon.ok("run", "tale", "Once", "--raw", "--max-tokens", "3", uid=BOB)
        lines = until(bob, "DONE")
        check(whats(lines, "inf-").count("QUEUED") == 1, "bob sees alice's requests:", lines)
        bob.kill()
        bob.wait()
    follower.send_signal(signal.SIGINT)
    check(follower.wait(10) == -signal.SIGINT, "Ctrl-C gave", follower.returncode)
