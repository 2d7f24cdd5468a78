#!/usr/bin/python3
"""Writes the fuzzers' seeds to tests/fuzz/corpus/<target>: real messages in the shapes that each target takes.

Run it after a change of the protocol or the configuration and commit what it writes. Usage: make_corpus.py [directory]
"""

import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_protocol():
    out = tempfile.mkdtemp(prefix="fuzz-corpus-")
    protos = sorted(str(path) for path in (ROOT / "proto" / "bulkhead" / "v1").glob("*.proto"))
    subprocess.run(["protoc", "-I", ROOT / "proto", f"--python_out={out}", *protos], check=True)
    sys.path.insert(0, out)
    from bulkhead.v1 import client_pb2, worker_pb2

    return client_pb2, worker_pb2


client, worker = load_protocol()


def framed(payload):
    return struct.pack("<I", len(payload)) + payload


def move(control, payload=b""):
    return struct.pack("<BH", control, len(payload)) + payload


# --- client_frame_fuzz: who | how << 2 | turns << 5 (tests/fuzz/client/client_frame_fuzz.cc)

def said(who, frame, turns=2, how=2):
    return move(who | how << 2 | turns << 5, frame.SerializeToString())


def generate(request_id, prompt="hello", linger=0, **sampling):
    frame = client.ClientFrame(request_id=request_id)
    frame.generate.model.name = "m"
    frame.generate.prompt = prompt
    frame.generate.linger_ms = linger
    for key, value in sampling.items():
        setattr(frame.generate.sampling, key, value)
    return frame


def simple(request_id, kind, **fields):
    frame = client.ClientFrame(request_id=request_id)
    message = getattr(frame, kind)
    message.SetInParent()
    for key, value in fields.items():
        if isinstance(value, list):
            getattr(message, key).extend(value)
        elif isinstance(value, dict):
            getattr(message, key).update(value)
        else:
            setattr(message, key, value)
    return frame


def client_seeds():
    wait = move(7 << 2 | 7 << 5)
    load = simple(3, "load", pin=True, context=256)
    load.load.model.name = "m"
    show = simple(4, "show")
    show.show.model.name = "m"
    tokenize = simple(5, "tokenize", text="a b", add_special=True)
    tokenize.tokenize.model.name = "m"
    preflight = simple(6, "preflight")
    preflight.preflight.model.name = "m"
    chat = client.ClientFrame(request_id=7)
    chat.generate.model.name = "m"
    chat.generate.messages.messages.add(role="user", content="hi")
    chat.generate.limits.max_tokens = 3
    chat.generate.limits.deadline_ms = 1000
    chat.generate.idempotency_key = "k"
    grant = client.ClientFrame()
    grant.grant.target_request_id = 1
    grant.grant.up_to_index = 4
    yield "generate", said(0, generate(1, seed=3, temperature=0.5), 7) + wait + wait
    yield "cancel", said(0, generate(1), 5) + said(0, simple(2, "cancel", target_request_id=1), 3)
    yield "grant", said(0, generate(1), 1) + said(0, grant) + wait
    yield "chat", said(1, chat, 7) + wait
    yield "load_release", said(2, load, 7) + said(2, simple(8, "release", all=True, force=True), 7)
    yield "release_idle", said(0, generate(1), 7) + wait + said(0, simple(2, "release", models=["m"]), 7)
    yield "reads", b"".join(said(1, frame, 3) for frame in (show, tokenize, preflight))
    yield "asks", b"".join(said(0, simple(i, kind), 1) for i, kind in enumerate(
        ("ps", "models", "deaths", "policy", "events", "doctor", "metrics"), 1))
    yield "operator", (said(2, simple(1, "policy", set={"queue.per_model": "2", "budget.profile": "custom"}), 2) +
                       said(2, simple(2, "reload"), 4) + said(2, simple(3, "unblock", model="m")))
    yield "terminate", said(0, generate(1), 4) + said(1, simple(2, "terminate", inference_id="inf-0")) + wait
    yield "linger", said(0, generate(1, linger=5000), 6) + move(1 << 2 | 3 << 5) + said(
        1, simple(2, "attach", inference_id="inf-0", from_index=1), 3)
    yield "raw", move(0 << 2 | 2 << 5, framed(generate(1).SerializeToString())[:20])


# --- worker_frame_fuzz: how | others << 5 (tests/fuzz/worker/worker_frame_fuzz.cc)

def word(others=0, **kind):
    frame = worker.WorkerFrame()
    (name, value), = kind.items()
    getattr(frame, name).CopyFrom(value)
    return move(7 | others << 5, frame.SerializeToString())


def step(handle, index, ids=(), finish=0, error=0):
    message = worker.WorkerStep()
    sequence = message.sequences.add(handle=handle, index=index, finish_reason=finish, error_reason=error)
    for token in ids:
        sequence.tokens.add(id=token)
        sequence.text += f"{token} "
    return message


def worker_seeds():
    up = move(0) + move(5) + move(6)
    started = [word(started=worker.WorkerStarted(handle=h, prompt_ids=[1, 2], context=512)) for h in (1, 2, 3)]
    alive = word(heartbeat=worker.Heartbeat(progress=9, phase="decode"))
    yield "serves", up + b"".join(started) + word(step=step(1, 0, [5])) + word(step=step(1, 1, [6], finish=1)) + alive
    yield "dies", up + started[0] + word(step=step(1, 0, [5, 6])) + move(1)
    yield "exits", move(0) + move(5) + word(load_progress=worker.LoadProgress(phase="weights", done=1, total=2)) + move(2)
    yield "fails", move(0) + move(5) + word(
        load_failed=worker.LoadFailed(reason=51, message="no", wanted_bytes=9, in_use_bytes=1, limit_bytes=5))
    yield "cancelled", up + started[1] + word(others=1, step=step(2, 0, [1])) + word(step=step(2, 1, finish=4))
    yield "error", up + started[2] + word(step=step(3, 0, error=31)) + move(4, b"last words\n")
    yield "stalls", up + started[0] + move(6 << 5) + move(6 << 5)
    yield "torn", up + move(3, framed(b"\x3a\x04\x08\x01\x12\x00")[:7]) + move(2)
    yield "terminated", up + started[0] + word(others=3, heartbeat=worker.Heartbeat(progress=1, phase="prefill"))
    yield "resumed", up + started[0] + word(step=step(1, 0, [5])) + move(1) + up + word(
        started=worker.WorkerStarted(handle=4, prompt_ids=[1, 2], context=512)) + word(step=step(4, 1, [6], finish=2))


def frame_seeds():
    frames = [generate(1).SerializeToString(), simple(2, "ps", requests=True).SerializeToString()]
    frames += [worker.WorkerFrame(step=step(1, 0, [5, 6])).SerializeToString()]
    yield "three", b"\x07" + b"".join(framed(frame) for frame in frames)
    yield "one_by_one", b"\x00" + framed(frames[0])
    yield "too_large", b"\xff" + b"\xff\xff\xff\x7f"
    yield "empty", b"\x01" + b"\0\0\0\0"
    yield "cut", b"\x10" + framed(frames[1])[:-1]


def config_seeds():
    shipped = (ROOT / "daemon" / "bulkhead.toml").read_text()
    lines = [line[1:] if line.startswith("#") and " = " in line and not line.startswith("# ") else line
             for line in shipped.splitlines() if not line.startswith("# ")]
    yield "everything", "\n".join(lines).encode()
    yield "lists", b'[residency]\npin = ["a", "b"]\npreload = []\n[paths]\nmodels = ["/m", "/n"]\n'
    yield "numbers", b'[queue]\nper_model = 1\ntotal = 0x10\n[limits]\nrequest_bytes = "1.5 MiB"\nlinger = "1h"\n'
    yield "bounds", b'[breaker]\nbackoff = "1d"\nmax_backoff = "1ms"\n[access]\nsocket_mode = "0777"\n'
    yield "unknown", b'[no]\nsuch = 1\n[log]\nlevel = "loud"\n'
    yield "types", b'[queue]\nwait = 1979-05-27T07:32:00Z\ntotal = [1]\nper_model = {a = 1}\n'
    yield "syntax", b'[queue\nwait == "\\u12"\n'


def gguf_string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def gguf_seeds():
    def value(key, kind, data):
        return gguf_string(key) + struct.pack("<I", kind) + data

    def array(kind, items):
        return struct.pack("<IQ", kind, len(items)) + b"".join(items)

    tokens = ["<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "b", "ab", "\u2581a"]
    llama = [
        value("general.architecture", 8, gguf_string("llama")),
        value("llama.context_length", 4, struct.pack("<I", 64)),
        value("llama.embedding_length", 4, struct.pack("<I", 32)),
        value("llama.rope.freq_base", 6, struct.pack("<f", 10000.0)),
        value("tokenizer.ggml.model", 8, gguf_string("llama")),
        value("tokenizer.ggml.tokens", 9, array(8, [gguf_string(t) for t in tokens])),
        value("tokenizer.ggml.scores", 9, array(6, [struct.pack("<f", -i) for i in range(len(tokens))])),
        value("tokenizer.ggml.token_type", 9, array(5, [struct.pack("<i", t) for t in (2, 3, 3, 6, 1, 1, 1, 1, 1)])),
        value("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 1)),
        value("tokenizer.ggml.add_bos_token", 7, b"\x01"),
        value("tokenizer.chat_template", 8, gguf_string("{% for m in messages %}{{ m }}{% endfor %}")),
        value("general.sampling.temp", 6, struct.pack("<f", 0.5)),
    ]
    bpe = [
        value("general.architecture", 8, gguf_string("qwen2")),
        value("tokenizer.ggml.model", 8, gguf_string("gpt2")),
        value("tokenizer.ggml.pre", 8, gguf_string("qwen2")),
        value("tokenizer.ggml.tokens", 9, array(8, [gguf_string(t) for t in ("a", "b", "ab", "\u0120", "<|im_end|>")])),
        value("tokenizer.ggml.merges", 9, array(8, [gguf_string("a b")])),
        value("tokenizer.ggml.token_type", 9, array(5, [struct.pack("<i", t) for t in (1, 1, 1, 1, 3)])),
    ]

    def file(values, tensors):
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values)
        at, body = 0, b""
        for name, kind, shape, data in tensors:
            head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, at)
            body += data + b"\0" * (-len(data) % 32)
            at = len(body)
        return head + b"\0" * (-len(head) % 32) + body

    yield "spm", file(llama, [("token_embd.weight", 0, (4, 2), bytes(range(32))),
                              ("blk.0.q.weight", 8, (32, 1), bytes(34))])
    yield "bpe", file(bpe, [("output.weight", 1, (8,), bytes(16))])
    yield "empty", file([], [])
    yield "version2", b"GGUF" + struct.pack("<IQQ", 2, 0, 0)


# --- records_fuzz: how many moves, the moves, then triples of place and value (tests/fuzz/records/records_fuzz.cc)

def records_seeds():
    begin, started, delta, forget = 4, 1, 2, 3
    yield "one", bytes([5, begin, started, delta, delta, forget])
    yield "many", bytes([120] + [begin, started, delta] * 40)
    yield "full", bytes([252] + [252] * 252)
    yield "changed", bytes([4, begin, started, delta, delta]) + bytes([0, 16, 255, 40, 16, 1])
    yield "head", bytes([0]) + b"BKHRECS1" + struct.pack("<QQ", 16384, 1) + bytes(4096)


SEEDS = {
    "client_frame_fuzz": client_seeds,
    "worker_frame_fuzz": worker_seeds,
    "ipc_frame_fuzz": frame_seeds,
    "config_fuzz": config_seeds,
    "gguf_fuzz": gguf_seeds,
    "records_fuzz": records_seeds,
}


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "fuzz" / "corpus"
    for target, seeds in SEEDS.items():
        directory = root / target
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in seeds():
            (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
