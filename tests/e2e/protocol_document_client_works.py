"""The Python client in docs/protocol.md is shorter than 60 lines and generates against the real daemon."""

import os
import subprocess
from harness import PYTHON, ROOT, Daemon, check, in_process

source = (ROOT / "docs" / "protocol.md").read_text().split("```python\n")[1].split("```")[0]
check(len(source.splitlines()) < 60, "it has", len(source.splitlines()), "lines")

with Daemon() as daemon:
    program = daemon.directory / "client.py"
    program.write_text(source)
    environment = {"PYTHONPATH": str(PYTHON), "PATH": os.environ["PATH"]}
    command = ["/usr/bin/python3", str(program), str(daemon.socket), "tale", "Once upon a time"]
    done = subprocess.run(command, capture_output=True, timeout=30, env=environment)
    check(done.returncode == 0, done.stderr.decode())
    want = in_process("tale", "Once upon a time", "64", "0", "1")["text"]
    check(done.stdout.decode().rstrip("\n") == want.rstrip("\n"), done.stdout, want)
    done = subprocess.run(command[:3] + ["nosuch", "x"], capture_output=True, timeout=30, env=environment)
    check(done.returncode != 0 and b"MODEL_NOT_FOUND" in done.stderr, done.stderr)
