#!/usr/bin/python3
"""Whether others feel it: the gaps between one stream's tokens, alone and beside (1) a client on the same worker that has
stopped reading, (2) another model that is loaded and released over and over. Rounds of each kind alternate, so that a
machine that slows down slows both; what is compared is the 95th percentile over all gaps of a kind.

usage: gaps.py [--gaps N] [--rounds N] [--limit PERCENT] [stalled] [loading]     (default: both)
Exits with 1 where a percentile grew by more than the limit."""

import argparse
import multiprocessing
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from harness import Daemon, Wire, eventually  # noqa: E402

CONFIG = """
[deadlines]
client_stall = "1h"
[limits]
in_flight_per_uid = 10000
"""

def gaps(wire, count):
    """Seconds between the tokens of one generation; the first tokens, which wait for the prompt, are left out."""
    wire.send(wire.generate(1, "slow", "Once", count + 10))
    times = []
    while True:
        frame = wire.receive()
        if frame.HasField("error"):
            raise SystemExit(f"gaps: {frame.error.message}")
        if frame.HasField("done"):
            break
        if frame.HasField("delta"):
            times.append(time.perf_counter())
    return [later - earlier for earlier, later in zip(times[5:], times[6:])][:count]


class StalledClient:
    """Asks for much and reads nothing, so that its generation cannot be delivered and pauses."""

    def __init__(self, daemon):
        self.wire = Wire(daemon)
        ask = self.wire.frame(1)
        ask.policy.SetInParent()
        for request_id in range(10, 300):
            ask.request_id = request_id
            self.wire.send(ask)
        self.wire.send(self.wire.generate(1, "slow", "Once", 3000))
        eventually(lambda: any(info["state"] == "PAUSED" for info in daemon.json("ps", "--requests")["requests"]),
                   "the stalled client's sequence to pause", seconds=30)

    def stop(self):
        self.wire.socket.close()


class Loader:
    """Loads a model, and releases it, until stopped; in a process of its own, so that it shares no interpreter with the
    clock that measures."""

    def __init__(self, daemon):
        self.ending, self.count = multiprocessing.Event(), multiprocessing.Value("i", 0)
        self.process = multiprocessing.Process(target=self.run, args=(daemon,))
        self.process.start()

    @property
    def loads(self):
        return self.count.value

    def run(self, daemon):
        self.wire = Wire(daemon)
        self.wire.receive()
        while not self.ending.is_set():
            load = self.wire.frame(1)
            load.load.model.name = "wide"
            self.ask(load, "load")
            self.count.value += 1
            release = self.wire.frame(2)
            release.release.models.append("wide")
            self.ask(release, "release")

    def ask(self, frame, kind):
        self.wire.send(frame)
        while not (answer := self.wire.receive()).HasField(kind):
            if answer.HasField("error"):
                raise SystemExit(f"gaps: {answer.error.message}")

    def stop(self):
        self.ending.set()
        self.process.join(30)


def p95(samples):
    return statistics.quantiles(samples, n=20)[18]


def compare(name, daemon, disturb, options):
    wire = Wire(daemon)
    wire.receive()
    gaps(wire, 50)
    alone, beside, loads = [], [], 0
    each = options.gaps // options.rounds
    for _ in range(options.rounds):
        alone += gaps(wire, each)
        disturbance = disturb(daemon)
        try:
            beside += gaps(wire, each)
        finally:
            disturbance.stop()
            loads += getattr(disturbance, "loads", 0)
        eventually(lambda: len(daemon.json("ps", "--requests")["requests"]) == 0, "the disturbance to be over")
    growth = (p95(beside) / p95(alone) - 1) * 100
    print(f"{name}: p95 of {len(alone)} gaps alone {p95(alone) * 1e3:.2f} ms, of {len(beside)} beside it "
          f"{p95(beside) * 1e3:.2f} ms: {growth:+.1f} %; medians {statistics.median(alone) * 1e3:.2f} and "
          f"{statistics.median(beside) * 1e3:.2f} ms" + (f"; {loads} loads" if loads else ""))
    return growth <= options.limit


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["stalled", "loading"])
    parser.add_argument("--gaps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--limit", type=float, default=10)
    options = parser.parse_args()
    good = True
    with Daemon(CONFIG, models=("slow", "wide")) as daemon:
        if "stalled" in options.what:
            good &= compare("a client that does not read", daemon, StalledClient, options)
        if "loading" in options.what:
            good &= compare("another model loading", daemon, Loader, options)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
