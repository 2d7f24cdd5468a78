"""`tokenize` gives the ids the engine's tokenizer gives."""

from harness import Daemon, check, in_process

with Daemon() as daemon:
    for text in ("Once upon a time", "  two  spaces", "caf\u00e9 \U0001f40b", "<|im_start|>user"):
        want = in_process("tale", text, "0", "0", "1")["prompt_ids"]
        check(daemon.json("tokenize", "tale", text)["ids"] == want, text, want)
