"""`cancel ID` by another connection ends the stream with CANCELLED, exit 6; its process lives and serves on."""

from harness import Daemon, Stream, alive, check

with Daemon() as daemon:
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "600", "--ignore-eos")
    stream.until("delta")
    pid = daemon.model("slow")["pid"]
    check(daemon.json("cancel", stream.inference_id) == {"found": True}, "not found")
    end = stream.finish()
    check(end.code == 6 and end.reply["reason"] == "CANCELLED", end.code, end.out[-500:])
    check(alive(pid), "cancel killed the process")
    daemon.ok("run", "slow", "Once", "--raw", "--max-tokens", "3")
    check(daemon.model("slow")["pid"] == pid, "another process serves")
    check(daemon.run("cancel", stream.inference_id).code == 4, "cancelled twice")
