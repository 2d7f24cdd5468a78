"""A batch request that has waited for long enough goes before an interactive one that comes later: nobody waits for ever."""

from harness import Daemon, Stream, check, eventually

with Daemon('[model]\nsequences = 1\n[queue]\nageing = "300ms"\n', models=("slow",)) as daemon:
    running = Stream(daemon, "slow", "Once", "--raw", "--ignore-eos", "--max-tokens", "4000")
    running.until("delta")

    def wait(priority):
        stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "2", "--ignore-eos", "--priority", priority)
        stream.until("queued")
        return stream

    old = wait("batch")
    eventually(lambda: any(info["priority"].lower().endswith("batch") and info["age_ms"] > 700
                           for info in daemon.json("ps", "--requests")["requests"]), "the batch request to age twice")
    new = wait("interactive")
    running.process.kill()
    running.process.wait()
    ids = {}
    for name, stream in (("old", old), ("new", new)):
        result = stream.finish()
        check(result.code == 0, name, result.err)
        ids[stream.inference_id] = name
    order = [ids[word] for line in daemon.log().splitlines() if " PREFILL " in line for word in line.split() if word in ids]
    check(order == ["old", "new"], order)
