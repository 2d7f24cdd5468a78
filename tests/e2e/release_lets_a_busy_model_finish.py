"""A worker that was idle is busy again with its next request: `release` lets that finish before the process ends."""

from harness import Daemon, Stream, alive, check

with Daemon() as daemon:
    daemon.ok("load", "slow")
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "40", "--ignore-eos")
    stream.until("delta")
    model = daemon.model("slow")
    check(model["state"] == "BUSY", "its state is", model["state"])
    check(daemon.json("release", "slow")["released"] == ["slow"], "not released")
    check(not alive(model["pid"]), "the process lives after its release")
    end = stream.finish()
    check(end.code == 0 and end.reply["usage"]["completion_tokens"] == 40, end.code, end.reply)
