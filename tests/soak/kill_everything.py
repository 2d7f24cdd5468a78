"""Kills workers and daemons at random instants under eight seeded streams, and compares every token with an oracle that
another process, never killed, made first.

    kill_everything.py [--kills 300] [--daemon-kills 10] [--seed 1] [--streams 8]

Fails on a wrong token, a lost request, a missing or doubled `resumed`, bytes left in the ledger, a zombie, a descriptor
more than before, a daemon that grows, and where under 80 % of the kills hit a stream in the middle. Prints kills by
phase and resumes by attempt. Environment as tests/e2e/harness.py.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from descriptor_store import StoredDaemon  # noqa: E402
from harness import check, eventually, in_process  # noqa: E402

# Deaths are what this is about; the breaker is another test's.
CONFIG = """
[breaker]
deaths = 1000
window = "1s"
[queue]
wait = "60s"
[model]
sequences = 8
[log]
level = "warning"
"""
TOKENS = 400
PROMPTS = ("Once upon a time", "The dog", "Anna went to the", "In the morning", "There was a king", "It rained")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--daemon-kills", type=int, default=10)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def make_oracle():
    want = {}
    for number, prompt in enumerate(PROMPTS):
        for seed, temperature in ((number + 1, "0.9"), (number + 100, "0")):
            want[prompt, seed, temperature] = in_process("tale", prompt, str(TOKENS), temperature, str(seed), "ignore-eos")
    return want


class Streams(threading.Thread):
    """One client after another, each compared with the oracle."""

    def __init__(self, soak, number):
        super().__init__(daemon=True)
        self.soak, self.random, self.tokens = soak, random.Random(f"{soak.options.seed} {number}"), 0
        self.seen = 0  # deltas of all of its streams

    def run(self):
        while not self.soak.over.is_set():
            try:
                self.one()
            except Exception as error:  # a thread's exception must fail the run
                self.soak.fail(repr(error))

    def one(self):
        case = self.random.choice(sorted(self.soak.oracle))
        prompt, seed, temperature = case
        process = self.soak.daemon.start("--json", "run", "tale", prompt, "--raw", "--max-tokens", str(TOKENS), "--seed",
                                         str(seed), "--temperature", temperature, "--ignore-eos")
        self.tokens = 0
        lines = []
        for line in process.stdout:
            lines.append(line)
            if b'"delta"' in line:
                self.tokens, self.seen = self.tokens + 1, self.seen + 1
        self.tokens = 0
        code, said = process.wait(), process.stderr.read().decode(errors="replace")
        self.soak.judge(case, code, [json.loads(line) for line in lines], said)


class Soak:
    def __init__(self, options):
        self.options, self.over, self.lock = options, threading.Event(), threading.Lock()
        self.random = random.Random(options.seed)
        self.oracle = make_oracle()
        self.failures, self.resumes, self.phases = [], collections.Counter(), collections.Counter()
        self.finished = self.mid_stream = self.last_death = 0
        self.streams = []

    def fail(self, what):
        with self.lock:
            self.failures.append(what)
        self.over.set()

    def judge(self, case, code, events, said):
        want = self.oracle[case]
        ids = [token["id"] for event in events if event["event"] == "delta" for token in event["tokens"]]
        text = "".join(event["text"] for event in events if event["event"] == "delta")
        resumed = [event for event in events if event["event"] == "resumed"]
        if code != 0 or not events or events[-1]["event"] != "done":
            return self.fail(f"lost: {case} exit {code} {events[-1:]} {said[-500:]}")
        if ids != want["ids"] or text != want["text"]:
            at = next((i for i, pair in enumerate(zip(ids, want["ids"])) if pair[0] != pair[1]), min(len(ids), len(want["ids"])))
            return self.fail(f"wrong: {case} from token {at} of {len(ids)}; resumes {resumed}")
        usage = events[-1]["usage"]
        if usage["completion_tokens"] != len(want["ids"]):
            return self.fail(f"usage: {case} {usage}")
        attempts = [event["attempt"] for event in resumed]
        # One that came while nobody was connected is not seen; none is seen twice.
        if attempts != sorted(set(attempts)) or not all(event["exact"] for event in resumed):
            return self.fail(f"resumed: {case} {resumed}")
        with self.lock:
            self.finished += 1
            self.resumes[len(attempts)] += 1

    def in_the_middle(self):
        return any(0 < stream.tokens < TOKENS for stream in self.streams)

    def wait_for_prey(self):
        """Mostly until the streams have moved by some tokens; else the kill hits whatever it hits, a load perhaps."""
        if self.random.random() < 0.1:
            return time.sleep(self.random.uniform(0, 0.1))
        goal = sum(stream.seen for stream in self.streams) + self.random.randint(1, 800)
        end = time.monotonic() + 30
        while not self.over.is_set() and time.monotonic() < end:
            if sum(stream.seen for stream in self.streams) >= goal and self.in_the_middle():
                return None
            time.sleep(0.002)
        return None

    def kill_worker(self):
        victims = self.daemon.workers()
        if not victims:
            return False
        middle = self.in_the_middle()
        try:
            os.kill(self.random.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.mid_stream += middle
        return True

    def kill_daemon(self):
        self.mid_stream += self.in_the_middle()
        self.daemon.kill_and_restart()
        eventually(lambda: self.daemon.run("ps").code == 0, "the new daemon to answer", 30)

    def count_deaths(self):
        for death in self.daemon.json("deaths")["deaths"]:
            number = int(death["death_id"])
            if number > self.last_death:
                self.last_death = number
                self.phases[death["phase"]] += 1

    def facts(self):
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        resident = int(status.split("RssAnon:")[1].split()[0])
        descriptors = []
        for entry in pathlib.Path(f"/proc/{self.daemon.pid}/fd").iterdir():
            try:
                descriptors.append(re.sub(r"\d+", "N", os.readlink(entry)))
            except OSError:
                pass  # closed meanwhile
        return resident, sorted(descriptors)

    def settle(self):
        """Everything released; resident KiB of the daemon and its descriptors."""
        eventually(lambda: not self.daemon.json("ps", "--requests")["requests"], "no request to be left", 60)
        self.daemon.run("release", "tale")
        budget = self.daemon.json("ps")["budget"]
        check(budget["charged_bytes"] == 0, "bytes left in the ledger:", budget)
        eventually(lambda: not self.daemon.workers(), "no worker to be left")
        return self.facts()

    def zombies(self):
        found = 0
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else ()
            except OSError:
                continue
            found += bool(words) and words[0] == "Z" and int(words[1]) == self.daemon.pid
        return found

    def warm_up(self):
        self.daemon.ok("--json", "run", "tale", "Once", "--raw", "--max-tokens", "4")
        return self.settle()

    def go(self):
        plan = ["worker"] * self.options.kills + ["daemon"] * self.options.daemon_kills
        self.random.shuffle(plan)
        with StoredDaemon(CONFIG, models=("tale",)) as self.daemon:
            first = self.warm_up()
            self.streams = [Streams(self, number) for number in range(self.options.streams)]
            for stream in self.streams:
                stream.start()
            began = time.monotonic()
            for done, what in enumerate(plan):
                self.wait_for_prey()
                if self.over.is_set():
                    break
                if what == "daemon":
                    self.kill_daemon()
                else:
                    eventually(self.kill_worker, "a worker to kill", 30)
                if done % 50 == 49:
                    self.count_deaths()
                if done % 500 == 499:
                    print(f"{done + 1} kills, {self.finished} streams, {time.monotonic() - began:.0f} s", flush=True)
            self.over.set()
            for stream in self.streams:
                stream.join(120)
                check(not stream.is_alive(), "a stream never ended")
            self.count_deaths()
            last = self.settle()
            self.report(len(plan), first, last, time.monotonic() - began)

    def report(self, kills, first, last, seconds):
        print(f"kills: {self.options.kills} of workers, {self.options.daemon_kills} of the daemon, in {seconds:.0f} s; "
              f"in mid-stream {self.mid_stream} ({100 * self.mid_stream / max(kills, 1):.0f} %)")
        print("kills by phase:", dict(self.phases.most_common()))
        print("streams by resumes:", dict(sorted(self.resumes.items())), "finished", self.finished)
        print(f"daemon: RssAnon {first[0]} -> {last[0]} KiB, descriptors {len(first[1])} -> {len(last[1])}, zombies {self.zombies()}")
        check(not self.failures, "\n".join(self.failures[:5]))
        check(self.finished > 0, "no stream came to its end")
        check(self.mid_stream >= 0.8 * kills, "void: only", self.mid_stream, "of", kills, "kills hit a stream in the middle")
        check(len(last[1]) <= len(first[1]), "descriptors left open:", first[1], "->", last[1])
        check(self.zombies() == 0, "zombies")
        # What an earlier daemon had on record, at most 8 MiB, is kept as messages for a while.
        check(last[0] <= first[0] + 65536, "the daemon grew:", first[0], "->", last[0], "KiB")


if __name__ == "__main__":
    Soak(parse()).go()
