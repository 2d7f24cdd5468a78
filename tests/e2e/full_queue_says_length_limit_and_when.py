"""One request more than may wait is refused at once with QUEUE_FULL, the length, the limit and when to try again: per
model and in all, for a generation, a load and a tokenisation alike, and while the model's header is still unread."""

from harness import Daemon, Stream, Wire, check, eventually

LONG = ("--raw", "--ignore-eos", "--max-tokens", "3000")


def refused(daemon, limit, *words):
    result = daemon.run("--json", *words)
    check(result.code == 3, words, "exit", result.code, result.out, result.err)
    error = result.reply
    check(error["reason"] == "QUEUE_FULL" and error["retryable"], error)
    check(error["limit"] == limit and error["length"] >= limit and error["retry_after_ms"] > 0, error)
    check(str(limit) in error["message"], error)


with Daemon("[queue]\nper_model = 2\ntotal = 3\n[model]\nsequences = 1\n", models=("slow", "tale")) as daemon:
    # Of a model nobody knows yet: the first that comes has its header read, two wait with it.
    wire = Wire(daemon)
    wire.receive()
    for request_id in range(1, 7):
        wire.send(wire.generate(request_id, "slow", "Once", 3000))
    full = []
    while len(full) < 3:
        frame = wire.receive()
        if frame.HasField("error"):
            full.append(frame.error)
    for error in full:
        check(error.limit == 2 and error.length >= 2 and error.retry_after_ms > 0, error)
    wire.socket.close()
    eventually(lambda: not daemon.json("ps", "--requests")["requests"], "the first client's requests to end")

    running = Stream(daemon, "slow", "Once", *LONG)
    running.until("delta")
    waiting = [Stream(daemon, "slow", "Once", *LONG) for _ in range(2)]
    for stream in waiting:
        stream.until("queued")
    refused(daemon, 2, "run", "slow", "Once", *LONG)
    refused(daemon, 2, "tokenize", "slow", "Once")
    refused(daemon, 2, "load", "slow", "--context", "2000")

    other = Stream(daemon, "tale", "Once", "--raw", "--ignore-eos", "--max-tokens", "900")
    other.until("delta")
    check(daemon.json("ps")["budget"]["waiting"] == 2, "the other model's request waits too")
    daemon.ok("policy", "set", "queue.per_model=2", "queue.total=2")
    refused(daemon, 2, "run", "slow", "Once", *LONG)
    for stream in (running, *waiting, other):
        stream.process.kill()
        stream.process.wait()
