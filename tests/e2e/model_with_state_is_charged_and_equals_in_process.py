"""A model whose layers carry a state: its text equals the engine's in-process, also beside a neighbour, and each sequence's
state stands in the reckoning, as the manifest says it."""

import threading

from harness import Daemon, check, in_process

# Two buffers and two checkpoints of three layers' floats, each the convolution's three inputs of 512 channels and 256 rows of 64.
STATE = (2 + 2) * 3 * (3 * 512 + 256 * 64) * 4
LOGITS = 2 * (1024 + 256) * 4

with Daemon(models=("hybrid",)) as daemon:
    manifest = daemon.json("show", "hybrid")["manifest"]
    check(manifest["architecture"] == "qwen35", manifest)
    check(manifest["recurrent_bytes_per_sequence"] == STATE + LOGITS, manifest)
    check(manifest["kv_bytes_per_token"] == 2 * 2 * 64 * 2, "one layer of four attends:", manifest)
    for sequences in (1, 3):
        verdict = daemon.json("preflight", "hybrid", "--context", "512", "--sequences", str(sequences))
        state = [line["bytes"] for line in verdict["lines"] if "recurrent" in str(line)]
        check(state == [sequences * (STATE + LOGITS)], verdict)

    def one(prompt, seed, into):
        into.append(daemon.ok("--json", "run", "hybrid", prompt, "--raw", "--max-tokens", "24", "--temperature", "0.9",
                              "--seed", str(seed)))

    prompts = [("Once upon a time", 1), ("The little engine went down to the sea. " * 6, 2)]
    got = [[], []]
    threads = [threading.Thread(target=one, args=(*prompt, answer)) for prompt, answer in zip(prompts, got)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for (prompt, seed), answer in zip(prompts, got):
        want = in_process("hybrid", prompt, "24", "0.9", str(seed))
        check(answer and answer[0].ids == want["ids"], "ids differ:", prompt, answer and answer[0].ids, want["ids"])
        check(answer[0].text == want["text"], "text differs:", answer[0].text, want["text"])
