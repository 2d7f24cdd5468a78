#!/usr/bin/python3
"""Figures of the supervision, against the release build: how long a release of an idle model takes (p50 and p99 of 100),
what the socket path adds to a token, and the idle daemon's resident set.

Per token: the time of a long generation less that of a short one, through the daemon and by the engine library
in-process, alternating; the difference is the path's cost. The model is the demo model, whose tokens take so little that
the path cannot hide behind them."""

import argparse
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "e2e"))
from harness import Daemon, Wire, in_process  # noqa: E402

SHORT, LONG = 100, 900


def release_latencies(daemon, wire, count):
    out = []
    for number in range(count):
        seconds_of(wire, 8)
        frame = wire.frame(1000 + number)
        frame.release.models.append("tale")
        start = time.perf_counter()
        wire.send(frame)
        reply = wire.receive()
        out.append(time.perf_counter() - start)
        if list(reply.release.released) != ["tale"]:
            raise SystemExit(f"measure: release answered {reply}")
    return sorted(out)


def seconds_of(wire, tokens):
    """One generation through the socket, from request to terminal."""
    start = time.perf_counter()
    wire.send(wire.generate(1, "tale", "Once upon a time", tokens))
    while True:
        frame = wire.receive()
        kind = frame.WhichOneof("kind")
        if kind == "done":
            return time.perf_counter() - start
        if kind == "error":
            raise SystemExit(f"measure: {frame.error.message}")


def in_process_seconds(tokens):
    start = time.perf_counter()
    in_process("tale", "Once upon a time", str(tokens), "0", "1", "ignore-eos")
    return time.perf_counter() - start


def per_token(run):
    return (run(LONG) - run(SHORT)) / (LONG - SHORT)


def spread(samples, scale, unit):
    ordered = sorted(samples)
    return (f"median {statistics.median(ordered) * scale:.1f} {unit} "
            f"({ordered[0] * scale:.1f} to {ordered[-1] * scale:.1f}, {len(ordered)} runs)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--releases", type=int, default=100)
    options = parser.parse_args()
    with Daemon() as daemon:
        wire = Wire(daemon)
        wire.receive()
        status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
        idle = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        print(f"bulkheadd idle: {int(idle) / 1024:.1f} MiB resident")

        releases = release_latencies(daemon, wire, options.releases)
        p99 = releases[min(len(releases) - 1, len(releases) * 99 // 100)]
        print(f"release of an idle model: p50 {statistics.median(releases) * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, "
              f"{len(releases)} releases")

        seconds_of(wire, 8)
        socket, library = [], []
        for _ in range(options.runs):
            socket.append(per_token(lambda tokens: seconds_of(wire, tokens)))
            library.append(per_token(in_process_seconds))
        print(f"a token through the daemon: {spread(socket, 1e6, 'us')}")
        print(f"a token in-process:         {spread(library, 1e6, 'us')}")
        print(f"the path adds {(statistics.median(socket) - statistics.median(library)) * 1e6:.1f} us a token")


if __name__ == "__main__":
    main()
