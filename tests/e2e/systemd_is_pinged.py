"""With NOTIFY_SOCKET and WATCHDOG_USEC, as systemd sets them: READY=1 once it serves, STATUS= with the fallback that
holds, WATCHDOG=1 as long as its loop comes round, and none while it stands still."""

import os
import signal
import socket
import tempfile
import time
from harness import Daemon, check

INTERVAL = 0.6  # seconds; it pings three times as often

with tempfile.TemporaryDirectory(prefix="bulkhead-notify-", dir="/tmp") as folder:
    os.chmod(folder, 0o777)
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(f"{folder}/notify")
    os.chmod(f"{folder}/notify", 0o777)

    def messages(seconds, enough=lambda lines: False):
        """Lines that come within so many seconds, or until there are enough."""
        lines, until = [], time.monotonic() + seconds
        while not enough(lines) and time.monotonic() < until:
            notify.settimeout(max(until - time.monotonic(), 0.001))
            try:
                lines += notify.recv(65536).decode().splitlines()
            except TimeoutError:
                break
        return lines

    environment = {"NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": str(int(INTERVAL * 1e6))}
    with Daemon(environment=environment) as daemon:
        lines = messages(10, lambda lines: "READY=1" in lines)
        check("READY=1" in lines, lines)
        status = next(line for line in lines if line.startswith("STATUS="))
        delegated = "cgroup leaves" in status
        check(delegated or "process groups with RLIMIT_DATA" in status, status)
        check(daemon.run("ps").code == 0, "READY before it serves")
        started = time.monotonic()
        pings = messages(10, lambda lines: lines.count("WATCHDOG=1") >= 4)
        check(pings.count("WATCHDOG=1") >= 4, pings)
        check(time.monotonic() - started < 4 * INTERVAL, "the pings come too rarely:", time.monotonic() - started)
        daemon.process.send_signal(signal.SIGSTOP)
        messages(0.2)
        check("WATCHDOG=1" not in messages(2 * INTERVAL), "a loop that stands still pings")
        daemon.process.send_signal(signal.SIGCONT)
        check("WATCHDOG=1" in messages(10, lambda lines: "WATCHDOG=1" in lines), "it does not ping again")
        check(daemon.stop() == 0, "exit")
        check("STOPPING=1" in messages(5, lambda lines: "STOPPING=1" in lines), "systemd was not told of the stop")
