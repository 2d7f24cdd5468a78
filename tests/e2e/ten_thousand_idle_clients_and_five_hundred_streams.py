"""Ten thousand idle connections and five hundred streams at once cost the daemon less than 150 MiB, and no request is lost:
each stream has all of its tokens, the same ones. Streams are held at their first token until every one has begun.

usage: NAME.py [IDLE STREAMS]   (what ctest runs is the whole of it)"""

import resource
import selectors
import struct
import sys
import time
from harness import Daemon, Wire, check

IDLE, STREAMS = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (10_000, 500)
TOKENS = 60
MODELS = ("tiny", "tiny2", "tiny3", "tiny4")
CONFIG = f"""
[limits]
in_flight_per_uid = {STREAMS + 10}
[queue]
per_model = {STREAMS}
total = {2 * STREAMS}
[model]
context = 128
sequences = {(STREAMS + 3) // 4}
"""


class Stream:
    """One connection whose one generation is held back by a grant; reads what there is without blocking."""

    def __init__(self, daemon, model):
        self.wire = Wire(daemon)
        check(self.wire.receive().HasField("hello"), "no hello")
        self.wire.send(self.wire.generate(1, model, "Once", TOKENS), self.granting(1))
        self.wire.socket.setblocking(False)
        self.data, self.ids, self.end = b"", [], None

    def granting(self, up_to):
        frame = self.wire.frame(2)
        frame.grant.target_request_id = 1
        frame.grant.up_to_index = up_to
        return frame

    def grant(self, up_to):
        self.wire.send(self.granting(up_to))

    def read(self):
        piece = self.wire.socket.recv(1 << 16)
        check(piece, "the daemon closed a stream's connection")
        self.data += piece
        while len(self.data) >= 4 and len(self.data) >= 4 + (size := struct.unpack_from("<I", self.data)[0]):
            frame = self.wire.pb.ServerFrame.FromString(self.data[4:4 + size])
            self.data = self.data[4 + size:]
            check(self.end is None, "something after the terminal:", frame)
            self.ids += [token.id for token in frame.delta.tokens]
            if frame.HasField("done") or frame.HasField("error"):
                self.end = frame


def run_until(streams, condition, what, seconds=90):
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.wire.socket, selectors.EVENT_READ, stream)
        until = time.monotonic() + seconds
        while not all(condition(stream) for stream in streams):
            check(time.monotonic() < until, "not within", seconds, "s:", what, ":",
                  sum(not condition(stream) for stream in streams), "are missing")
            for key, _ in selector.select(1):
                key.data.read()


_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
check(hard >= IDLE + STREAMS + 100, "a limit of", hard, "descriptors is too few")
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
began = time.monotonic()
with Daemon(CONFIG, models=MODELS) as daemon:
    small = daemon.status("VmRSS")
    idle = [Wire(daemon) for _ in range(IDLE)]
    check(idle[-1].receive().HasField("hello"), "no hello")
    with_idle = daemon.status("VmRSS")
    streams = [Stream(daemon, MODELS[number % 4]) for number in range(STREAMS)]
    run_until(streams, lambda stream: stream.ids or stream.end, "every stream to begin")
    check(all(stream.end is None for stream in streams), "a stream ended early:",
          next((stream.end for stream in streams if stream.end), None))
    # A worker may be done with one by the time it is told to hold it back; its client is not.
    running = len(daemon.json("ps", "--requests")["requests"])
    for stream in streams:
        stream.grant(TOKENS + 1)
    run_until(streams, lambda stream: stream.end, "every stream to end")
    peak = daemon.status("VmHWM")
    for stream in streams:
        check(stream.end.done.finish_reason == Wire.types().FINISH_REASON_LENGTH, "an end:", stream.end)
        check(stream.ids == streams[0].ids and len(stream.ids) == TOKENS, "tokens were lost:", len(stream.ids))
    check(idle[0].receive().HasField("hello"), "an idle client was lost")
    print(f"RSS of bulkheadd: {small / 1024:.1f} MiB alone, {with_idle / 1024:.1f} with {IDLE} idle clients, at most "
          f"{peak / 1024:.1f} with {STREAMS} streams beside them ({running} not finished in their worker); {time.monotonic() - began:.1f} s")
    check(peak < 150 * 1024, "the daemon took", peak, "KiB")
