"""`bulkhead run ... | head` ends silently and its generation is cancelled."""

import subprocess
from harness import Daemon, check, eventually

with Daemon() as daemon:
    inner = " ".join(daemon.command("--json", "run", "slow", "Once", "--raw", "--ignore-eos", "--max-tokens", "2000"))
    shell = subprocess.run(["bash", "-c", f"{inner} | head -n 3"], capture_output=True, timeout=30)
    check(shell.stderr == b"", "not silent:", shell.stderr)
    check(len(shell.stdout.splitlines()) == 3 and shell.returncode == 0, shell)
    eventually(lambda: daemon.model("slow")["in_flight"] == 0, "the generation to be cancelled")
