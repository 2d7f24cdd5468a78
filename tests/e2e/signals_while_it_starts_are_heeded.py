"""SIGTERM and SIGHUP that come before the daemon can hear them are carried out once it can: neither ends it by default."""

import os
import signal
import subprocess
import tempfile
from harness import AS_ROOT, BIN, DAEMON_UID, GROUP, as_user, check, eventually, prepare

prepare()


def pending(number):
    """Runs in the child before exec: the signal is blocked and waits, as if it had come in the first microsecond."""
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        os.kill(os.getpid(), number)
    return block


with tempfile.TemporaryDirectory(prefix="bulkhead-e2e-", dir="/tmp") as directory:
    if AS_ROOT:
        os.chown(directory, DAEMON_UID, GROUP)
    command = as_user(DAEMON_UID, [BIN / "bulkheadd", "--config", "/dev/null", "--socket", f"{directory}/s", "--models",
                                   directory, "--state", f"{directory}/state"])
    term = subprocess.run(command, preexec_fn=pending(signal.SIGTERM), capture_output=True, text=True, timeout=20, env={})
    check(term.returncode == 0, "SIGTERM at start: exit", term.returncode, term.stderr)
    check("serving on" in term.stderr and "stopped" in term.stderr, term.stderr)
    log = open(f"{directory}/log", "w+")
    hangup = subprocess.Popen(command, preexec_fn=pending(signal.SIGHUP), stderr=log, env={})
    try:
        eventually(lambda: "configuration reloaded" in open(log.name).read(), "the reload asked for at start")
        check(hangup.poll() is None, "SIGHUP at start ended it")
        hangup.send_signal(signal.SIGTERM)
        check(hangup.wait(20) == 0, "exit", hangup.returncode)
    finally:
        hangup.kill()
        hangup.wait()
