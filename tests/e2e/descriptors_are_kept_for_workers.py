"""With more clients than descriptors the surplus is refused with a reason, the daemon does not spin, and a client that was
there before still gets its worker."""

import contextlib
import time
from harness import Daemon, Wire, check

with Daemon(models=("tale",), descriptors=256) as daemon:
    early = Wire(daemon)
    check(early.receive().HasField("hello"), "no hello")
    held, refusals = [], []
    for _ in range(300):
        with contextlib.suppress(ConnectionError):
            wire = Wire(daemon)
            first = wire.receive()
            (held if first.HasField("hello") else refusals).append((wire, first))
    check(held and refusals, len(held), "accepted,", len(refusals), "refused")
    check(all("descriptors" in first.error.message and first.error.retryable for _, first in refusals), refusals[0][1])

    ticks, start = daemon.cpu_ticks(), time.monotonic()
    time.sleep(1)
    check(daemon.cpu_ticks() - ticks <= 5, "a full daemon spins:", daemon.cpu_ticks() - ticks, "ticks in a second")

    early.send(early.generate(1, "tale", "Once", 5))
    while not (frame := early.receive()).HasField("done"):
        check(not frame.HasField("error"), "no worker for want of descriptors:", frame)
    for wire, _ in held + refusals:
        wire.socket.close()
    check(daemon.ok("--json", "run", "tale", "Once", "--raw", "--max-tokens", "3").reply["event"] == "done", "afterwards")
