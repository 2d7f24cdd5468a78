"""No prompt, output, system text or stop string appears in logs, state or death records, also after a crash."""

import os
import pathlib
import signal
from harness import Daemon, Stream, check

CANARY = "xylophonecanary"

with Daemon('[log]\nlevel = "debug"\n') as daemon:
    daemon.ok("run", "tale", f"prompt {CANARY}", "--raw", "--max-tokens", "4", "--stop", f"stop{CANARY}")
    daemon.run("run", "tale", f"message {CANARY}", "--system", f"system {CANARY}", "--max-tokens", "4")
    daemon.ok("tokenize", "tale", f"text {CANARY}")
    daemon.run("run", "tale", CANARY * 3000, "--raw")
    stream = Stream(daemon, "slow", f"crash {CANARY}", "--raw", "--max-tokens", "600", "--ignore-eos",
                    "--on-worker-death", "fail")
    stream.until("delta")
    os.kill(daemon.model("slow")["pid"], signal.SIGABRT)
    end = stream.finish()
    check(end.code == 5 and CANARY not in end.out, end.code, end.out[-300:])
    deaths = daemon.ok("--json", "deaths").out
    check(daemon.stop() == 0, "exit", daemon.process.returncode)
    check(CANARY not in deaths, "a death record holds the prompt")
    files = [path for path in pathlib.Path(daemon.directory).rglob("*") if path.is_file() and not path.is_symlink()]
    for path in files:
        check(CANARY.encode() not in path.read_bytes(), path, "holds the prompt")
