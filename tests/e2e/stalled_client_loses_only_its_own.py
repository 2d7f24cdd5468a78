"""A client that stops reading has its own sequences paused, and ended with CLIENT_STALLED past the deadline; a second
client on the same worker streams on meanwhile, and what the first had been sent is whole up to its error."""

from harness import Daemon, Wire, check, eventually

CONFIG = """
[model]
context = 40000
[deadlines]
client_stall = "2s"
"""


def requests(daemon):
    return {info["inference_id"]: info for info in daemon.json("ps", "--requests")["requests"]}


with Daemon(CONFIG, models=("tiny",)) as daemon:
    deaf = Wire(daemon)
    check(deaf.receive().HasField("hello"), "no hello")
    for request_id in (1, 2):
        deaf.send(deaf.generate(request_id, "tiny", "Once", 39000))
    eventually(lambda: len([info for info in requests(daemon).values() if info["state"] == "PAUSED"]) == 2,
               "both of the client's sequences to pause", seconds=60)

    def settled():
        # What was under way when they paused still comes.
        first, second = ({name: info["produced"] for name, info in requests(daemon).items()} for _ in range(2))
        return first if first == second else None
    produced = eventually(settled, "what was under way to have come")

    other = daemon.ok("--json", "run", "tiny", "Once", "--raw", "--ignore-eos", "--max-tokens", "3000")
    check(other.reply["usage"]["completion_tokens"] == 3000, other.reply)
    for name, info in requests(daemon).items():
        check(info["produced"] == produced[name], "a paused sequence went on:", info)

    eventually(lambda: not requests(daemon), "the stalled client's sequences to end")
    check(len(daemon.workers()) == 1, "its worker did not live on")
    tokens, ends = {1: 0, 2: 0}, {}
    while len(ends) < 2:
        frame = deaf.receive()
        check(frame is not None, "the connection was closed")
        if frame.HasField("delta"):
            check(frame.request_id not in ends, "something after the terminal")
            check(frame.delta.index == tokens[frame.request_id], "a gap before", frame.delta.index)
            tokens[frame.request_id] += len(frame.delta.tokens)
        elif frame.HasField("error"):
            ends[frame.request_id] = frame.error
    for end in ends.values():
        check(Wire.types().Reason.Name(end.reason) == "REASON_CLIENT_STALLED" and end.retryable, end)
    check(all(count > 1000 for count in tokens.values()), tokens)
    deaf.send(deaf.generate(3, "tiny", "Once", 5))
    while not (frame := deaf.receive()).HasField("done"):
        check(frame.request_id == 3 and not frame.HasField("error"), frame)
