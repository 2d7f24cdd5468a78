"""A conversation's second turn takes what the first one computed and computes only what is new: usage and `ps` say so, and
its answer is the one of a worker that has never seen the first turn. Another user's prompt is never taken."""

from harness import ALICE, AS_ROOT, BOB, Daemon, Wire, check


def turn(daemon, *said):
    """The answer's text and its done event, for (role, content) pairs."""
    wire = Wire(daemon)
    frame = wire.frame(1)
    frame.generate.model.name = "tale"
    for role, content in said:
        message = frame.generate.messages.messages.add()
        message.role, message.content = role, content
    frame.generate.sampling.temperature = 0
    frame.generate.limits.max_tokens = 40
    wire.send(frame)
    text = ""
    while True:
        got = wire.receive()
        check(got is not None, "the connection was closed")
        text += got.delta.text
        check(got.WhichOneof("kind") != "error", got)
        if got.WhichOneof("kind") == "done":
            return text, got.done


FIRST = ("user", "Tell me a story about a small ship. " * 3)
with Daemon() as daemon:
    text, first = turn(daemon, FIRST)
    check(first.usage.cached_tokens == 0, "something was cached before anything was asked:", first)
    talk = (FIRST, ("assistant", text), ("user", "And then?"))
    again, second = turn(daemon, *talk)
    # The last token of an answer that reached its limit is never computed.
    known = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    check(second.usage.cached_tokens >= known, "cached", second.usage, "of", first.usage)
    check(second.usage.cached_tokens < second.usage.prompt_tokens, second.usage)
    engine = daemon.model("tale")["engine"]
    check(engine["prefix_hits"] in (0, 1), "one turn of two can hit:", engine)

    daemon.ok("release", "tale")
    cold, fresh = turn(daemon, *talk)
    check(fresh.usage.cached_tokens == 0 and fresh.usage.prompt_tokens == second.usage.prompt_tokens, fresh.usage)
    check(cold == again, "with the first turn:", again, "without:", cold)

if not AS_ROOT:
    print("SKIP: [not-root] changing users needs root")
else:
    with Daemon() as daemon:
        def cached(uid):
            result = daemon.ok("--json", "run", "tale", "Once upon a time " * 20, "--raw", "--max-tokens", "4", uid=uid)
            return result.reply["usage"]["cached_tokens"]

        check(cached(ALICE) == 0, "nothing was there")
        check(cached(BOB) == 0, "bob was given what alice's prompt left")
        check(cached(ALICE) > 50, "alice was not")
