"""A client that speaks rubbish loses its connection with a reason; a concurrent stream's text is unchanged."""

import os
import struct
from harness import Daemon, Stream, Wire, check, in_process

RUBBISH = [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", struct.pack("<I", 9) + b"\xff" * 9, b"GET / HTTP/1.1\r\n\r\n",
           struct.pack("<I", 1 << 30) + b"x", os.urandom(4096)]

with Daemon() as daemon:
    want = in_process("slow", "Once", "60", "0", "1")
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "60", "--temperature", "0", "--seed", "1")
    stream.until("delta", 3)
    for rubbish in RUBBISH:
        wire = Wire(daemon)
        check(wire.receive().HasField("hello"), "no hello")
        wire.socket.sendall(rubbish)
        answer = wire.receive()
        if rubbish[:3] != RUBBISH[-1][:3]:
            check(answer is not None and answer.HasField("error") and answer.request_id == 0, "no reason for", rubbish[:16])
        while answer is not None:
            answer = wire.receive()
    end = stream.finish()
    check(end.code == 0 and end.text == want["text"] and end.ids == want["ids"], end.code, end.text, want["text"])
