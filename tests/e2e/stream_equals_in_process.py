"""The boundary is transparent: text, ids and finish reason through the daemon equal the engine's own in-process."""

from harness import Daemon, check, in_process

CASES = [("Once upon a time", 40, 0.0, 1), ("Once upon a time", 60, 0.9, 7), ("The little", 33, 1.2, 123456789012345)]

with Daemon() as daemon:
    for prompt, tokens, temperature, seed in CASES:
        want = in_process("tale", prompt, str(tokens), str(temperature), str(seed))
        got = daemon.ok("--json", "run", "tale", prompt, "--raw", "--max-tokens", str(tokens), "--temperature",
                        str(temperature), "--seed", str(seed))
        check(got.ids == want["ids"], "ids differ:", got.ids, want["ids"])
        check(got.text == want["text"], "text differs:", got.text, want["text"])
        check(got.reply["finish_reason"] == want["finish_reason"], got.reply, want)
        check(got.reply["usage"]["prompt_tokens"] == want["prompt_tokens"], got.reply, want)
        check(got.reply["usage"]["completion_tokens"] == len(want["ids"]), got.reply, want)
        flags = ["--raw", "--max-tokens", str(tokens), "--temperature", str(temperature), "--seed", str(seed)]
        whole = daemon.ok("--json", "run", "tale", prompt, "--no-stream", *flags)
        check(whole.text == want["text"] and whole.ids == want["ids"], "--no-stream differs:", whole.text)
        plain = daemon.ok("run", "tale", prompt, *flags).out
        check(plain.rstrip("\n") == want["text"].rstrip("\n"), "plain text differs:", repr(plain))
        ids = daemon.ok("run", "tale", prompt, "--ids", *flags).out.split()
        check([int(word) for word in ids] == want["ids"], "--ids differs:", ids)
