"""A stream with a grant stops before the granted index, others run on, and it goes on where it stopped."""

from harness import Daemon, Wire, check, in_process

with Daemon() as daemon:
    want = in_process("tale", "Once", "40", "0", "1", "ignore-eos")
    wire = Wire(daemon)
    frame = wire.generate(1, "tale", "Once", 40)
    wire.send(frame)
    grant = wire.frame(2)
    grant.grant.target_request_id = 1
    grant.grant.up_to_index = 10
    wire.send(grant)
    ids, other_done = [], False
    wire.send(wire.generate(3, "tale", "Other", 30))
    while not other_done:
        got = wire.receive()
        if got.request_id == 1:
            ids += [token.id for token in got.delta.tokens]
        other_done = got.request_id == 3 and got.HasField("done")
    check(len(ids) <= 40, "too many tokens")
    held = wire.frame(4)
    held.grant.target_request_id = 1
    held.grant.up_to_index = 1000
    wire.send(held)
    while True:
        got = wire.receive()
        if got.request_id != 1:
            continue
        ids += [token.id for token in got.delta.tokens]
        if got.HasField("done"):
            break
    check(ids == want["ids"], ids, want["ids"])
