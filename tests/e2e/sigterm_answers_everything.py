"""SIGTERM with streams under way: no new work, everything answered, workers gone, exit 0."""

import signal
from harness import Daemon, Stream, alive, check

with Daemon('[deadlines]\ndrain = "300ms"\n') as daemon:
    streams = [Stream(daemon, "slow", f"Once {n}", "--raw", "--max-tokens", "3000", "--ignore-eos") for n in range(3)]
    for stream in streams:
        stream.until("delta")
    workers = daemon.workers()
    daemon.process.send_signal(signal.SIGTERM)
    ends = [stream.finish() for stream in streams]
    check(daemon.process.wait(15) == 0, "exit", daemon.process.returncode)
    for end in ends:
        check(end.reply["event"] in ("done", "error"), end.reply)
        check(end.code in (0, 6), "exit", end.code, end.reply)
    check(not any(alive(pid) for pid in workers), "a worker outlived the daemon")
