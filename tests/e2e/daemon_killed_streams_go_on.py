"""The daemon is killed in mid-stream, three times: the client attaches by itself and its stream is that of an
undisturbed run, usage once, one `resumed` a death. Another user, root even, cannot attach to it."""

from harness import ALICE, AS_ROOT, Stream, Wire, check, eventually
from descriptor_store import StoredDaemon

WORDS = ("slow", "Once upon a time", "--raw", "--max-tokens", "200", "--ignore-eos", "--seed", "11")

with StoredDaemon("[breaker]\ndeaths = 1000\n") as daemon:
    undisturbed = daemon.ok("--json", "run", *WORDS)
    stream = Stream(daemon, *WORDS, uid=ALICE)
    for _ in range(3):
        stream.until("delta", 25)
        daemon.kill_and_restart()
    stream.until("delta", 3)
    wire = Wire(daemon)  # of root, whose inference it is not
    attach = wire.frame(1)
    attach.attach.inference_id = stream.inference_id
    wire.send(attach)
    wire.receive()
    refused = wire.receive()
    check(not AS_ROOT or refused.error.message.startswith("attach: no inference"), refused)
    end = stream.finish()
    check(end.code == 0, "exit", end.code, end.out[-500:], end.err)
    check(end.ids == undisturbed.ids and end.text == undisturbed.text, end.ids, undisturbed.ids)
    check(end.reply["usage"]["completion_tokens"] == 200, end.reply)
    check(end.reply["usage"]["prompt_tokens"] == undisturbed.reply["usage"]["prompt_tokens"], end.reply)
    resumed = [event for event in end.events if event.get("event") == "resumed"]
    check([event["attempt"] for event in resumed] == [1, 2, 3] and all(event["exact"] for event in resumed), resumed)
    check([event["event"] for event in end.events].count("started") == 1, "started twice")
    daemon.ok("release", "slow")
    check(daemon.json("ps")["budget"]["charged_bytes"] == 0, "bytes left")
    eventually(lambda: not daemon.workers(), "no worker to be left")
