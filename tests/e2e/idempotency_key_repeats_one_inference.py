"""A request repeated under its idempotency_key listens to the inference of the first, from its first token: while that
runs, after its connection was lost, and after its end. Another request under the key is refused."""

from harness import Daemon, Wire, check, in_process


def begin(daemon, prompt="Once", tokens=40):
    wire = Wire(daemon)
    frame = wire.generate(1, "tale", prompt, tokens)
    frame.generate.idempotency_key = "job-17"
    wire.send(frame)
    return wire


def read(wire, until=None):
    """Ids of the stream from its beginning, to its `until`-th or its terminal; the inference it was; the terminal."""
    ids, inference = [], None
    while True:
        frame = wire.receive()
        check(frame is not None, "the daemon closed the connection")
        if frame.HasField("started"):
            inference = frame.started.inference_id
        ids += [token.id for token in frame.delta.tokens]
        if frame.HasField("done") or frame.HasField("error") or (until and len(ids) >= until):
            return ids, inference, frame


with Daemon() as daemon:
    want = in_process("tale", "Once", "40", "0", "1", "ignore-eos")["ids"]
    first = begin(daemon)
    some, inference, _ = read(first, until=5)
    check(some == want[:len(some)], some)
    first.socket.close()

    again, same, end = read(begin(daemon))
    check(same == inference and again == want, "the repeat is another inference:", same, inference, again)
    check(end.done.finish_reason and end.done.usage.completion_tokens == 40, end)
    after, same, _ = read(begin(daemon))
    check(same == inference and after == want, "the repeat after the end:", same, inference)

    _, _, refused = read(begin(daemon, prompt="Other"))
    check("idempotency_key" in refused.error.message, refused)
    started = [line for line in daemon.log().splitlines() if " accepted: " in line]
    check(len(started) == 1, "begun", len(started), "times:", started)
