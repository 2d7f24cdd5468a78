"""The first SIGTERM lets streams finish for as long as `drain`; the second ends them at once, still with an answer."""

import signal
from harness import Daemon, Stream, alive, check

with Daemon('[deadlines]\ndrain = "10m"\n') as daemon:
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "3000", "--ignore-eos")
    stream.until("delta")
    workers = daemon.workers()
    daemon.process.send_signal(signal.SIGTERM)
    stream.until("delta", tokens=20)
    check(daemon.process.poll() is None and all(alive(pid) for pid in workers), "it did not wait for the stream")
    daemon.process.send_signal(signal.SIGTERM)
    end = stream.finish()
    check(daemon.process.wait(15) == 0, "exit", daemon.process.returncode)
    check(end.reply["event"] in ("done", "error"), end.reply)
    check(not any(alive(pid) for pid in workers), "a worker outlived the daemon")
    check("stopping at once" in daemon.log(), daemon.log())
