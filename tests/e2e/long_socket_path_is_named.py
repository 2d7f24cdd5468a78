"""A socket path longer than an address holds is refused by both programs, naming the limit of 107 bytes."""

import pathlib
import subprocess
import tempfile
from harness import BIN, check, prepare

prepare()
with tempfile.TemporaryDirectory(dir="/tmp") as directory:
    deep = pathlib.Path(directory) / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    for command in ([BIN / "bulkhead", "--socket", deep / "s", "ps"],
                    [BIN / "bulkheadd", "--socket", deep / "s", "--state", deep / "state", "--models", deep]):
        done = subprocess.run([str(word) for word in command], capture_output=True, timeout=10, env={})
        check(done.returncode != 0 and b"107" in done.stderr, command[0], done.returncode, done.stderr)
