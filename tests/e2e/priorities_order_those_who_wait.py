"""Of those who wait for a sequence the interactive ones come first, then the normal ones, then the batch; within one class
those who came first. Nobody who runs is interrupted for it."""

from harness import Daemon, Stream, check

with Daemon("[model]\nsequences = 1\n", models=("tale", "slow")) as daemon:
    running = Stream(daemon, "slow", "Once", "--raw", "--ignore-eos", "--max-tokens", "2000")
    running.until("delta")
    waiting = {}
    for name in ("batch-1", "normal-1", "interactive-1", "batch-2", "normal-2", "interactive-2"):
        waiting[name] = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "2", "--ignore-eos", "--priority",
                               name.split("-")[0])
        waiting[name].until("queued")
    running.process.kill()
    running.process.wait()
    results = {name: stream.finish() for name, stream in waiting.items()}
    check(all(result.code == 0 for result in results.values()), {name: result.err for name, result in results.items()})
    ids = {next(event for event in result.events if event["event"] == "started")["inference_id"]: name
           for name, result in results.items()}
    handed = [ids[word] for line in daemon.log().splitlines() if " PREFILL " in line for word in line.split() if word in ids]
    check(handed == ["interactive-1", "interactive-2", "normal-1", "normal-2", "batch-1", "batch-2"], handed)
