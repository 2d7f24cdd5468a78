"""Ctrl-C cancels the generation, says so, and dies of SIGINT, which a shell shows as 130; the worker stays."""

import os
import signal
import subprocess
from harness import Daemon, Stream, check, eventually

with Daemon() as daemon:
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "600", "--ignore-eos")
    stream.until("delta")
    stream.process.send_signal(signal.SIGINT)
    end = stream.finish()
    check(end.code == -signal.SIGINT, "ended with", end.code)
    check(end.reply["event"] == "done" and end.reply["finish_reason"] == "CANCELLED", end.reply)
    check("cancelled" in end.err, end.err)
    eventually(lambda: daemon.model("slow")["in_flight"] == 0, "the request to be gone")
    inner = " ".join(daemon.command("run", "slow", "Once", "--raw", "--ignore-eos", "--max-tokens", "600"))
    shell = subprocess.Popen(["bash", "-c", f"trap : INT; {inner} >/dev/null; echo $?"], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    eventually(lambda: daemon.model("slow")["in_flight"] == 1, "the shell's request")
    os.killpg(shell.pid, signal.SIGINT)
    out, _ = shell.communicate(timeout=20)
    check(out.strip() == b"130", "the shell saw", out)
