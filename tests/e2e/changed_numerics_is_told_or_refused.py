"""A daemon with other numerics than the one before it goes on with a stream and says that it is not exact; where the
request demands exactness it refuses. The daemon's own records are changed as if an older one had written them."""

import mmap
import struct

from descriptor_store import StoredDaemon
from harness import Stream, Wire, check

HEAD, RECORD, BEGIN = 4096, struct.Struct("<IIQQ"), 1


def checksum(generation, kind, serial, payload):
    hash = 0xCBF29CE484222325
    for byte in struct.pack("<QIQ", generation, kind, serial) + payload:
        hash = (hash ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return hash


def change_numerics(descriptor):
    """In each request's first record; how many there were."""
    changed = 0
    with mmap.mmap(descriptor, 0) as log:
        _, half, generation = struct.unpack_from("<QQQ", log)
        at = HEAD + generation % 2 * half
        while (head := RECORD.unpack_from(log, at))[0]:
            length, kind, serial, _ = head
            start = at + RECORD.size
            if kind == BEGIN:
                uid, numerics = struct.unpack_from("<II", log, start)
                struct.pack_into("<II", log, start, uid, numerics + 1)
                RECORD.pack_into(log, at, length, kind, serial, checksum(generation, kind, serial, log[start:start + length]))
                changed += 1
            at = start + (length + 7) // 8 * 8
    return changed


with StoredDaemon() as daemon:
    stream = Stream(daemon, "slow", "Once upon a time", "--raw", "--max-tokens", "100", "--ignore-eos", "--seed", "3")
    stream.until("delta", 10)
    wire = Wire(daemon)
    exact = wire.generate(1, "slow", "Once", 100)
    exact.generate.require_exact = True
    exact.generate.on_worker_death = Wire.types().ON_WORKER_DEATH_RESUME
    wire.send(exact)
    inference, frame = "", wire.receive()
    while not frame.HasField("delta"):
        inference = frame.started.inference_id or inference
        frame = wire.receive()

    daemon.wait_until_kept()
    daemon.process.kill()
    daemon.process.wait()
    check(change_numerics(daemon.kept) == 2, "requests on record")
    daemon.process = daemon.launch(daemon.relaunch, {})

    again = Wire(daemon)
    attach = again.frame(1)
    attach.attach.inference_id = inference
    again.send(attach)
    frame = again.receive()
    while not frame.HasField("error"):
        check(not frame.HasField("done"), "it went on to its end")
        frame = again.receive()
    check(frame.error.reason == Wire.types().REASON_WORKER_BUILD_MISMATCH and "require_exact" in frame.error.message, frame)
    end = stream.finish()
    check(end.code == 0 and len(end.ids) == 100, end.code, end.out[-300:], end.err)
    check([event["exact"] for event in end.events if event["event"] == "resumed"] == [False], end.events[-3:])
