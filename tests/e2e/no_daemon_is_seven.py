"""Without a daemon every verb exits 7; a daemon that dies in mid-stream is 7 too, never a good end."""

from harness import Daemon, Stream, check

with Daemon() as daemon:
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "600", "--ignore-eos")
    stream.until("delta")
    daemon.process.kill()
    end = stream.finish()
    check(end.code == 7 and end.reply["reason"] == "CONNECTION_LOST", end.code, end.reply)
    result = daemon.run("--json", "ps")
    check(result.code == 7 and result.reply["reason"] == "DAEMON_UNREACHABLE", result.code, result.out)
