"""Writes the trained model as a GGUF file: matrices in Q8_0, norms in F32."""

import struct

import numpy as np

from model import CONTEXT, EPSILON, HEAD, HEADS, HIDDEN, KV_HEADS, LAYERS, THETA, WIDTH

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_Q8_0 = 0, 8
ALIGNMENT = 32
NORMAL, CONTROL = 1, 3

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, data):
    if kind == STRING:
        return string(data)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], data)


def entry(key, kind, data):
    return string(key) + struct.pack("<I", kind) + value(kind, data)


def array(key, kind, data):
    return (string(key) + struct.pack("<IIQ", ARRAY, kind, len(data)) + b"".join(value(kind, item) for item in data))


def quantise_q8_0(matrix):
    """Blocks of 32: a half-precision scale amax/127, then 32 signed bytes, rounded to nearest even."""
    blocks = matrix.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(1, keepdims=True) / 127
    quants = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0)).astype(np.int8)
    return b"".join(struct.pack("<e", float(s)) + q.tobytes() for s, q in zip(scale[:, 0], quants))


def tensors(model):
    for name, parameter in model.named_parameters():
        data = parameter.detach().numpy()
        dims = list(reversed(data.shape))
        if data.ndim == 1:
            yield name, dims, TYPE_F32, data.astype("<f4").tobytes()
        else:
            yield name, dims, TYPE_Q8_0, quantise_q8_0(data)


def metadata(tokenizer):
    ordinary = len(tokenizer.tokens) - len(tokenizer.specials)
    end = tokenizer.ids["<|im_end|>"]
    return [
        entry("general.architecture", STRING, "qwen3"),
        entry("general.name", STRING, "Bulkhead demo"),
        entry("general.license", STRING, "apache-2.0"),
        entry("general.file_type", U32, 7),
        entry("general.sampling.temp", F32, 0.8),
        entry("general.sampling.top_k", I32, 40),
        entry("general.sampling.top_p", F32, 0.95),
        entry("qwen3.block_count", U32, LAYERS),
        entry("qwen3.context_length", U32, CONTEXT),
        entry("qwen3.embedding_length", U32, WIDTH),
        entry("qwen3.feed_forward_length", U32, HIDDEN),
        entry("qwen3.attention.head_count", U32, HEADS),
        entry("qwen3.attention.head_count_kv", U32, KV_HEADS),
        entry("qwen3.attention.key_length", U32, HEAD),
        entry("qwen3.attention.value_length", U32, HEAD),
        entry("qwen3.attention.layer_norm_rms_epsilon", F32, EPSILON),
        entry("qwen3.rope.freq_base", F32, THETA),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "qwen2"),
        array("tokenizer.ggml.tokens", STRING, tokenizer.tokens),
        array("tokenizer.ggml.token_type", I32, [NORMAL] * ordinary + [CONTROL] * len(tokenizer.specials)),
        array("tokenizer.ggml.merges", STRING, [f"{a} {b}" for a, b in tokenizer.merges]),
        entry("tokenizer.ggml.eos_token_id", U32, end),
        entry("tokenizer.ggml.padding_token_id", U32, tokenizer.ids["<|endoftext|>"]),
        entry("tokenizer.ggml.add_bos_token", BOOL, False),
        entry("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
    ]


def write(path, model, tokenizer):
    keys, infos, data = metadata(tokenizer), b"", b""
    count = 0
    for name, dims, kind, payload in tensors(model):
        infos += string(name if name.endswith(".weight") else name + ".weight")
        infos += struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, len(data))
        data += payload + bytes(-len(payload) % ALIGNMENT)
        count += 1
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(keys)) + b"".join(keys) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    print(f"{path}: {path.stat().st_size} bytes", flush=True)
