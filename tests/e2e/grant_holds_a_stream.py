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
    wire.send(wire.generate(3, "tale", "Other", 30))
    ids, ended = [], set()

    def listen(request_id):
        while request_id not in ended:
            got = wire.receive()
            if got.request_id == 1:
                ids.extend(token.id for token in got.delta.tokens)
            if got.HasField("done"):
                ended.add(got.request_id)

    listen(3)
    check(1 not in ended and len(ids) <= 10, "not held:", len(ids), "tokens came")
    grant = wire.frame(4)
    grant.grant.target_request_id = 1
    grant.grant.up_to_index = 1000
    wire.send(grant)
    listen(1)
    check(ids == want["ids"], ids, want["ids"])
