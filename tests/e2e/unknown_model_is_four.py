"""An unknown model is MODEL_NOT_FOUND, exit 4, with the next command to try; with --json as an error event."""

from harness import Daemon, check

with Daemon() as daemon:
    for words in (("run", "nosuch", "x"), ("show", "nosuch"), ("preflight", "nosuch"), ("load", "nosuch"),
                  ("tokenize", "nosuch", "x")):
        result = daemon.run("--json", *words)
        check(result.code == 4, words, "exit", result.code, result.out, result.err)
        check(result.reply["event"] == "error" and result.reply["reason"] == "MODEL_NOT_FOUND", result.reply)
        check("bulkhead models" in result.err, result.err)
