#!/usr/bin/python3
"""bulkheadd as a program: flags, exit codes, lock, socket, reload, stop, and what its log and state never hold.

usage: program_test.py DIRECTORY_OF_PROGRAMS MODEL
Started by root, the daemon runs as an unprivileged user without any capability: root would hide mistakes with rights.
"""

import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

IS_ROOT = os.geteuid() == 0
NOBODY = 65534
UNPRIVILEGED = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all",
                "--inh-caps=-all", "--no-new-privs"] if IS_ROOT else []
# Copies: the checkout may lie where that user may not look.
PROGRAMS = tempfile.TemporaryDirectory(prefix="bulkhead-programs-")
BIN = pathlib.Path(PROGRAMS.name)
BIN.chmod(0o755)
for program in ("bulkheadd", "bulkhead-worker", "bulkhead"):
    shutil.copy(pathlib.Path(sys.argv[1]) / program, BIN)
MODEL = BIN / "model.gguf"
shutil.copy(sys.argv[2], MODEL)
MODEL.chmod(0o644)
CANARY = "CANARY7f3a"


class Daemon:
    """One bulkheadd in a directory of its own; its log is collected."""

    def __init__(self, directory, *flags, config=""):
        self.directory = pathlib.Path(directory)
        self.socket = self.directory / "b.sock"
        self.config = self.directory / "bulkhead.toml"
        self.config.write_text(config)
        (self.directory / "models").mkdir(exist_ok=True)
        link = self.directory / "models/demo.gguf"
        if not link.is_symlink():
            link.symlink_to(MODEL)
        if IS_ROOT:
            for path in (self.directory, self.directory / "models"):
                os.chown(path, NOBODY, NOBODY)
        self.command = [*UNPRIVILEGED, BIN / "bulkheadd", "--config", self.config, "--socket", self.socket, "--state",
                        self.directory / "state", "--models", self.directory / "models", *flags]
        self.log = ""
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.collect)
        self.reader.start()

    def collect(self):
        for line in self.process.stderr:
            self.log += line

    def wait_log(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.log:
            if time.monotonic() > end or (self.process.poll() is not None and not self.reader.is_alive()):
                raise AssertionError(f"not in the log: {text!r}\n{self.log}")
            time.sleep(0.02)
        return self

    def client(self, *arguments, check=True):
        done = subprocess.run([BIN / "bulkhead", "--socket", self.socket, "--json", *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments} exited with {done.returncode}: {done.stdout}{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines() if line]

    def ticks(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().split()
        return int(fields[13]) + int(fields[14])

    def rss_kib(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1].split()[0])

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=40)
        self.reader.join()
        self.process.stderr.close()
        return code


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="bulkheadd-")
        self.addCleanup(self.temporary.cleanup)
        self.directory = self.temporary.name

    def daemon(self, *flags, config=""):
        daemon = Daemon(self.directory, *flags, config=config)
        self.addCleanup(daemon.stop, signal.SIGKILL)
        return daemon.wait_log("serving on")

    def run_daemon(self, *flags):
        return subprocess.run([BIN / "bulkheadd", *flags], text=True, capture_output=True, timeout=20)

    def connect(self, daemon, count):
        sockets = []
        for _ in range(count):
            sockets.append(socket.socket(socket.AF_UNIX))
            self.addCleanup(sockets[-1].close)
            sockets[-1].connect(str(daemon.socket))
        return sockets

    def test_wrong_flags_exit_2_and_help_exits_0(self):
        self.assertEqual(self.run_daemon("--nonsense").returncode, 2)
        self.assertEqual(self.run_daemon("--help").returncode, 0)
        self.assertIn("bulkheadd", self.run_daemon("--version").stdout)

    def test_a_wrong_configuration_exits_78_naming_file_and_line(self):
        path = pathlib.Path(self.directory) / "c.toml"
        path.write_text("[queue]\nlenght = 3\n")
        done = self.run_daemon("--config", path, "--check-config")
        self.assertEqual(done.returncode, 78)
        self.assertIn(f"{path}:2: unknown key queue.lenght", done.stderr)
        path.write_text("[queue]\ntotal = 300\n")
        self.assertEqual(self.run_daemon("--config", path, "--check-config").returncode, 0)
        printed = self.run_daemon("--config", path, "--socket", "/tmp/x", "--print-config").stdout
        self.assertIn(f"total = 300  # {path}:2", printed)
        self.assertIn('socket = "/tmp/x"  # --socket', printed)

    def test_a_second_daemon_exits_75_naming_the_owner(self):
        first = self.daemon()
        second = subprocess.run(first.command, text=True, capture_output=True, timeout=20)
        self.assertEqual(second.returncode, 75)
        self.assertIn(f"pid {first.process.pid}", second.stderr)
        self.assertTrue(first.client("ps"))
        self.assertEqual(first.stop(), 0)

    def test_a_socket_path_that_does_not_fit_is_refused_with_both_lengths(self):
        done = self.run_daemon("--state", f"{self.directory}/s", "--socket", f"{self.directory}/{'x' * 120}/b.sock")
        self.assertEqual(done.returncode, 1)
        self.assertIn("107", done.stderr)

    def test_a_stale_socket_is_replaced_and_the_mode_is_as_configured(self):
        first = self.daemon()
        first.stop(signal.SIGKILL)
        self.assertTrue(first.socket.exists())
        second = Daemon(self.directory, config='[access]\nsocket_mode = "0600"\n')
        self.addCleanup(second.stop, signal.SIGKILL)
        second.wait_log("serving on")
        self.assertTrue(second.client("ps"))
        self.assertEqual(stat.S_IMODE(second.socket.stat().st_mode), 0o600)
        self.assertEqual(second.stop(), 0)
        self.assertFalse(second.socket.exists())

    def test_a_reload_with_a_mistake_keeps_the_old_configuration_and_says_so(self):
        daemon = self.daemon(config="[queue]\ntotal = 300\n")
        daemon.config.write_text("[queue]\ntotal = 0\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_log("the old one is in force")
        self.assertIn("bulkhead.toml:2: queue.total: '0'", daemon.log)
        daemon.config.write_text("[queue]\ntotal = 400\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_log("configuration reloaded")
        values = json.dumps(daemon.client("policy"))
        self.assertIn("400", values)
        self.assertEqual(daemon.stop(), 0)

    def test_a_missing_worker_is_a_fatal_error(self):
        done = self.run_daemon("--state", f"{self.directory}/s", "--socket", f"{self.directory}/b.sock", "--worker",
                               f"{self.directory}/none")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.directory}/none", done.stderr)

    def test_sigterm_answers_every_request_and_leaves_no_process(self):
        daemon = self.daemon(config='[deadlines]\ndrain = "200ms"\ncancel = "300ms"\nterm = "100ms"\n')
        command = [BIN / "bulkhead", "--socket", daemon.socket, "--json", "run", "demo", "Once", "--raw",
                   "--ignore-eos", "--max-tokens", "1000"]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        firsts = [[client.stdout.readline() for _ in range(4)] for client in running]
        workers = [model["pid"] for model in daemon.client("ps")[0]["models"]]
        # Stopped in the middle, so that nothing but the daemon's own stop can end the requests.
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        self.assertEqual(daemon.stop(), 0)
        for client, first in zip(running, firsts):
            rest, _ = client.communicate(timeout=20)
            last = json.loads((first + rest.splitlines())[-1])
            self.assertIn(last["event"], ("done", "error"), last)
            self.assertNotIn("CONNECTION_LOST", json.dumps(last))
        for pid in workers:
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

    def test_no_prompt_output_stop_string_or_passed_name_is_in_log_state_or_death_records(self):
        daemon = self.daemon(config='[log]\nlevel = "debug"\n')
        mine = pathlib.Path(self.directory) / f"{CANARY}-file.gguf"
        mine.write_bytes(MODEL.read_bytes())
        for model in ("demo", mine):
            daemon.client("run", model, f"{CANARY} prompt", "--raw", "--stop", f"{CANARY}-stop", "--max-tokens", "4")
            daemon.client("tokenize", model, f"{CANARY} tokens")
            daemon.client("run", model, f"{CANARY} prompt", "--raw", "--temperature", "-1", check=False)
        for model in daemon.client("ps")[0]["models"]:
            os.kill(model["pid"], signal.SIGSEGV)
        end = time.monotonic() + 20
        while len(daemon.client("deaths")[0].get("deaths", [])) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        deaths = json.dumps(daemon.client("deaths"))
        self.assertEqual(daemon.stop(), 0)
        self.assertNotIn(CANARY, daemon.log)
        self.assertNotIn(CANARY, deaths)
        for path in (daemon.directory / "state").rglob("*"):
            self.assertNotIn(CANARY, path.name)
            if path.is_file():
                self.assertNotIn(CANARY.encode(), path.read_bytes())

    def test_a_user_with_too_many_connections_is_refused_with_a_reason(self):
        daemon = self.daemon(config="[limits]\nconnections_per_uid = 2\n")
        held = self.connect(daemon, 2)
        refused = daemon.client("ps", check=False)
        self.assertIn("LIMIT_EXCEEDED", json.dumps(refused))
        held.pop().close()
        end = time.monotonic() + 10
        while "models" not in json.dumps(daemon.client("ps", check=False)) and time.monotonic() < end:
            time.sleep(0.02)
        self.assertTrue(daemon.client("ps"))
        self.assertEqual(daemon.stop(), 0)

    def test_ten_thousand_idle_clients_cost_memory_but_no_time(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        count = min(10_000, hard - 200)
        daemon = self.daemon()
        held = self.connect(daemon, count)
        self.assertTrue(daemon.client("ps"))
        ticks = daemon.ticks()
        time.sleep(1)
        self.assertLessEqual(daemon.ticks() - ticks, 1)
        print(f"{count} idle clients: RSS {daemon.rss_kib() / 1024:.1f} MiB", file=sys.stderr)
        self.assertLessEqual(daemon.rss_kib(), 24 * 1024 + count * 2)
        for client in held:
            client.close()
        self.assertEqual(daemon.stop(), 0)

    def until(self, what, condition, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def test_a_preloaded_pinned_model_is_there_and_stays(self):
        daemon = self.daemon(config='[residency]\npreload = ["demo"]\npin = ["demo"]\n')
        resident = lambda: daemon.client("ps")[0]["models"]
        self.until("loaded and pinned", lambda: resident() and resident()[0]["state"] == "IDLE" and resident()[0]["pinned"])
        self.assertEqual(daemon.client("release-idle", "--idle-for", "0s")[0]["released"], [])
        self.assertEqual(len(resident()), 1)
        self.assertEqual(daemon.stop(), 0)

    def test_a_model_nobody_uses_is_released_after_idle_release(self):
        daemon = self.daemon(config='[residency]\nidle_release = "300ms"\n')
        daemon.client("run", "demo", "Once", "--raw", "--max-tokens", "2")
        self.until("released", lambda: not daemon.client("ps")[0]["models"])
        self.assertEqual(daemon.client("deaths")[0].get("deaths", []), [])
        self.assertEqual(daemon.stop(), 0)

    def test_an_idle_daemon_is_small_and_uses_no_cpu(self):
        daemon = self.daemon()
        daemon.client("ps")
        before = daemon.ticks()
        time.sleep(3)
        self.assertLessEqual(daemon.ticks() - before, 1)
        print(f"idle RSS {daemon.rss_kib() / 1024:.1f} MiB", file=sys.stderr)
        self.assertLessEqual(daemon.rss_kib(), 24 * 1024)
        self.assertEqual(daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
