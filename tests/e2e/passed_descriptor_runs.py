"""A MODEL path ending in .gguf runs by its descriptor: the daemon's user needs no right to the file, and no name of it
is logged."""

import os
import pathlib
import shutil
import tempfile
from harness import ALICE, AS_ROOT, SHARED, Daemon, check, in_process

with Daemon(models=()) as daemon:
    private = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        path = private / "zebra-secret-name.gguf"
        shutil.copy(SHARED / "tale.gguf", path)
        if AS_ROOT:
            for entry in (private, path):
                os.chown(entry, ALICE, ALICE)
        path.chmod(0o400)
        private.chmod(0o500)
        want = in_process("tale", "Once", "12", "0", "1")
        flags = ("Once", "--raw", "--max-tokens", "12", "--temperature", "0", "--seed", "1")
        got = daemon.ok("--json", "run", str(path), *flags, uid=ALICE)
        check(got.ids == want["ids"] and got.text == want["text"], got.text, want["text"])
        check("zebra" not in daemon.log(), "the file's name was logged")
        missing = daemon.run("run", str(private / "none.gguf"), "x", uid=ALICE)
        check(missing.code == 4, "exit", missing.code, missing.err)
    finally:
        shutil.rmtree(private, ignore_errors=True)
