"""What one real user may take of connections, open requests, unfinished frames and unread answers is bounded; another
user is served meanwhile as if nothing were."""

import contextlib
import struct
from harness import ALICE, AS_ROOT, BOB, Daemon, Wire, acting_as, check, eventually

CONFIG = """
[limits]
connections_per_uid = 6
in_flight_per_uid = 3
received_bytes_per_uid = "1 MiB"
queued_bytes_per_uid = "1 MiB"
"""


def connect(daemon, uid):
    with acting_as(uid):
        wire = Wire(daemon)
    first = wire.receive()
    return wire, first


def last_frame(wire):
    frame = None
    with contextlib.suppress(ConnectionError):
        while (got := wire.receive()) is not None:
            frame = got
    return frame


def reason(frame):
    return Wire.types().Reason.Name(frame.error.reason) if frame and frame.HasField("error") else None


def bob_is_served(daemon):
    result = daemon.run("--json", "run", "tale", "Once", "--raw", "--max-tokens", "3", "--ignore-eos", uid=BOB)
    check(result.code == 0, "bob was not served:", result.out, result.err)


if not AS_ROOT:
    print("SKIP: [not-root] changing users needs root")
else:
    with Daemon(CONFIG) as daemon:
        # Connections.
        held = [connect(daemon, ALICE) for _ in range(6)]
        check(all(first.HasField("hello") for _, first in held), "a connection within the limit was refused")
        _, refusal = connect(daemon, ALICE)
        check(reason(refusal) == "REASON_LIMIT_EXCEEDED" and "connections" in refusal.error.message, refusal)
        bob_is_served(daemon)
        for wire, _ in held[1:]:
            wire.socket.close()
        alice = held[0][0]

        # Open requests.
        for request_id in range(1, 5):
            alice.send(alice.generate(request_id, "slow", "Once", 2000))
        refused = None
        while refused is None:
            frame = alice.receive()
            refused = frame if frame.HasField("error") else None
        check(refused.request_id == 4 and reason(refused) == "REASON_LIMIT_EXCEEDED", refused)
        check("in flight" in refused.error.message and "limit of 3" in refused.error.message, refused.error.message)
        bob_is_served(daemon)
        alice.socket.close()
        eventually(lambda: daemon.model("slow")["in_flight"] == 0, "alice's requests to be cancelled with her connection")

        # Unfinished frames.
        greedy, _ = eventually(lambda: (pair := connect(daemon, ALICE)) and pair[1].HasField("hello") and pair, "a slot")
        with contextlib.suppress(ConnectionError):
            greedy.socket.sendall(struct.pack("<I", 8 << 20) + b"x" * (4 << 20))
        refusal = last_frame(greedy)
        check(reason(refusal) == "REASON_LIMIT_EXCEEDED" and "unfinished" in refusal.error.message, refusal)
        bob_is_served(daemon)

        # Unread answers.
        deaf, _ = connect(daemon, ALICE)
        ask = deaf.frame(1)
        ask.policy.SetInParent()
        with contextlib.suppress(ConnectionError):
            for request_id in range(1, 2000):
                ask.request_id = request_id
                deaf.send(ask)
        eventually(lambda: "bytes that wait to be read" in daemon.log(), "the connection that does not read to be ended")
        bob_is_served(daemon)
        after, first = connect(daemon, ALICE)
        check(first.HasField("hello"), "alice is locked out for good:", first)
