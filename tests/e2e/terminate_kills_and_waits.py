"""`terminate ID` answers CONFIRMED once the exact process is gone; the stream ends with WORKER_TERMINATED, exit 6."""

from harness import Daemon, Stream, alive, check

with Daemon() as daemon:
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "600", "--ignore-eos")
    stream.until("delta")
    model = daemon.model("slow")
    reply = daemon.json("terminate", stream.inference_id)
    check(not alive(model["pid"]), "the process lives after CONFIRMED")
    check(reply["ack"] == "CONFIRMED" and reply["allocation_id"] == model["allocation_id"], reply)
    check(daemon.json("ps")["budget"]["charged_bytes"] == 0, "its charge stands")
    end = stream.finish()
    check(end.code == 6 and end.reply["reason"] == "WORKER_TERMINATED", end.code, end.out[-500:])
    again = daemon.json("terminate", stream.inference_id)["ack"]
    check(again in ("CONFIRMED", "ALREADY_TERMINAL"), "asked again, it said", again)
    check(daemon.run("terminate", "inf-0000000000000000").code == 4, "an unknown id")
