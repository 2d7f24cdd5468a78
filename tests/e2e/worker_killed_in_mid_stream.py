"""SIGKILL of a worker in mid-stream with --on-worker-death fail: exit 5 with the death named; the daemon lives and serves the next request."""

import os
import signal
from harness import Daemon, Stream, check, eventually

with Daemon() as daemon:
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "600", "--ignore-eos",
                    "--on-worker-death", "fail")
    stream.until("delta", 5)
    victim = daemon.model("slow")
    os.kill(victim["pid"], signal.SIGKILL)
    end = stream.finish()
    check(end.code == 5, "exit", end.code, end.out[-500:])
    check(end.reply["event"] == "error" and end.reply["reason"] == "WORKER_CRASHED", end.reply)
    check("signal 9" in end.reply["message"] or "SIGKILL" in end.reply["message"], end.reply)
    check(len([event for event in end.events if event["event"] in ("done", "error")]) == 1, "terminals")
    check(daemon.process.poll() is None, "the daemon died too")
    eventually(lambda: daemon.json("ps")["budget"]["charged_bytes"] == 0, "the charge to be retired")
    again = daemon.ok("--json", "run", "slow", "Once", "--raw", "--max-tokens", "5", "--ignore-eos")
    check(again.reply["usage"]["completion_tokens"] == 5, again.reply)
    death = daemon.json("deaths")["deaths"][-1]
    check(death["death_id"] == end.reply["death_id"] and death["allocation_id"] == victim["allocation_id"], death)
    check(death["signal"] == 9 and death["phase"] == "decode" and not death["planned"], death)
