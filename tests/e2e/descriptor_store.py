"""Stands in for systemd where a test kills the daemon: it owns the listening socket and keeps the descriptors that the
daemon gives it (FDSTORE=1), and passes both to the next one (LISTEN_FDS)."""

import array
import fcntl
import os
import signal
import socket
import subprocess
import threading

import harness

RECORDS = "bulkhead-records"
CMSG_CLOEXEC = 0x40000000


class StoredDaemon(harness.Daemon):
    """A daemon that can be killed and started again with what it had stored."""

    def __init__(self, config="", models=("tale", "slow")):
        self.kept = None
        self.listening = None
        self.changed = threading.Condition()
        super().__init__(config, models)

    def open_sockets(self):
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(self.socket))
        os.chmod(self.socket, 0o666)
        self.listening.listen(1024)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify_path = str(self.directory / "notify")
        self.notify.bind(self.notify_path)
        os.chmod(self.notify_path, 0o666)
        threading.Thread(target=self.keep, daemon=True).start()

    def keep(self):
        while True:
            message, ancillary, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(4 * 8), CMSG_CLOEXEC)
            fds = array.array("i")
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
            for fd in fds:
                with self.changed:
                    if b"FDSTORE=1" in message and RECORDS.encode() in message and self.kept is None:
                        self.kept = fd
                        self.changed.notify_all()
                    else:
                        os.close(fd)

    def launch(self, command, environment):
        if self.listening is None:
            self.open_sockets()
        self.relaunch = command
        passed = [self.listening.fileno()] + ([self.kept] if self.kept is not None else [])
        names = ["bulkhead.socket"] + ([RECORDS] if self.kept is not None else [])
        variables = {**environment, "NOTIFY_SOCKET": self.notify_path, "LISTEN_FDS": str(len(passed)),
                     "LISTEN_FDNAMES": ":".join(names), "PATH": os.environ["PATH"]}

        def place():
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in passed]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i, inheritable=True)

        return subprocess.Popen(["sh", "-c", 'export LISTEN_PID=$$; exec "$@"', "sh", *map(str, command)],
                                stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=self.log_file, env=variables,
                                cwd="/", close_fds=False, preexec_fn=place)

    def kill_and_restart(self):
        """SIGKILL, and a new daemon at once."""
        self.wait_until_kept()
        self.process.kill()
        self.process.wait()
        self.process = self.launch(self.relaunch, {})

    def restart(self):
        """As `systemctl restart` does; its exit status."""
        self.wait_until_kept()
        self.process.send_signal(signal.SIGUSR2)
        code = self.process.wait(60)
        self.process = self.launch(self.relaunch, {})
        return code

    def wait_until_kept(self):
        with self.changed:
            harness.check(self.changed.wait_for(lambda: self.kept is not None, 10), "the daemon stored nothing")
