"""What the end-to-end tests share: a daemon run as an unprivileged user in a temporary directory, clients run as any
user, a bare protocol client, and bounded waiting. Each test is one file that states one behaviour.

Programs and models are copied once per build to a directory that other users may read. Environment: BULKHEAD_BUILD
(the build directory; by default build/release). Root is needed to change users; elsewhere all run as the caller.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BULKHEAD_BUILD", ROOT / "build" / "release"))
SHARED = pathlib.Path("/tmp") / ("bulkhead-e2e-" + hashlib.sha1(str(BUILD).encode()).hexdigest()[:10])
BIN, PYTHON = SHARED / "bin", SHARED / "python"
PROGRAMS = ("bulkheadd", "bulkhead-worker", "bulkhead", "e2e_in_process")
DAEMON_UID, ALICE, BOB, GROUP = 54321, 54322, 54323, 54321
AS_ROOT = os.geteuid() == 0

# A model that computes a token in some milliseconds, so that a test can act in the middle of a stream.
SLOW = ("--arch qwen3 --type q8_0 --layers 8 --embedding 1024 --feed-forward 3072 --heads 16 --kv-heads 4 --head 64 "
        "--vocabulary 1024 --context 4096 --seed 7").split()
# One whose tokens cost next to nothing, with room for many of them.
TINY = ("--arch qwen3 --type q8_0 --layers 1 --embedding 64 --feed-forward 64 --heads 2 --kv-heads 1 --head 32 "
        "--vocabulary 1024 --context 65536 --seed 5").split()
# Little to compute and much to load: a large vocabulary.
WIDE = ("--arch qwen3 --type q8_0 --layers 2 --embedding 256 --feed-forward 512 --heads 4 --kv-heads 2 --head 64 "
        "--vocabulary 150000 --context 512 --seed 9").split()
# Layers that carry a state, three of four, and types with scales of their own.
HYBRID = ("--arch qwen35 --type q4_k --layers 4 --embedding 256 --feed-forward 256 --heads 4 --kv-heads 2 --head 64 "
          "--inner 256 --state 64 --vocabulary 1024 --context 1024 --seed 11").split()
TALE = ("--arch qwen3 --type q8_0 --layers 2 --embedding 128 --feed-forward 256 --heads 4 --kv-heads 2 --head 32 "
        "--vocabulary 1024 --context 1024 --seed 3").split()


def prepare():
    """Copies programs and models to SHARED and generates the Python protocol, where that is not up to date."""
    for directory in (SHARED, BIN, PYTHON):
        directory.mkdir(mode=0o755, exist_ok=True)
    with open(SHARED / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in PROGRAMS:
            copy_newer(BUILD / "bin" / name, BIN / name)
        demo = ROOT / "models" / "demo.gguf"
        if demo.exists():
            copy_newer(demo, SHARED / "tale.gguf")
        else:
            make_model(TALE, SHARED / "tale.gguf")
        make_model(SLOW, SHARED / "slow.gguf")
        make_model(WIDE, SHARED / "wide.gguf")
        make_model(TINY, SHARED / "tiny.gguf")
        make_model(HYBRID, SHARED / "hybrid.gguf")
        for copy in ("tiny2", "tiny3", "tiny4"):
            make_model(TINY, SHARED / f"{copy}.gguf")
        protos = ["bulkhead/v1/types.proto", "bulkhead/v1/client.proto"]
        subprocess.run(["protoc", "-I", ROOT / "proto", f"--python_out={PYTHON}", *protos], check=True)


def copy_newer(source, target):
    if target.exists() and target.stat().st_mtime_ns == source.stat().st_mtime_ns:
        return
    temporary = target.with_suffix(".new")
    shutil.copy2(source, temporary)
    temporary.chmod(0o755)
    temporary.rename(target)


def make_model(options, target):
    if target.exists():
        return
    temporary = target.with_suffix(".new")
    subprocess.run([BUILD / "bin" / "make_model", *options, temporary], check=True, stdout=subprocess.DEVNULL)
    temporary.chmod(0o644)
    temporary.rename(target)


def as_user(uid, command, group=None, groups=()):
    """`command` run by this uid, in GROUP unless another group is named, and in the supplementary `groups`."""
    if not AS_ROOT or uid == 0:
        return [str(word) for word in command]
    more = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    return ["setpriv", f"--reuid={uid}", f"--regid={GROUP if group is None else group}", more, "--bounding-set=-all",
            "--inh-caps=-all", "--no-new-privs", *[str(word) for word in command]]


@contextlib.contextmanager
def acting_as(uid, group=None):
    """The kernel sees this process as another user meanwhile: for connections, whose peer is read when they are made."""
    if not AS_ROOT:
        yield
        return
    os.setegid(GROUP if group is None else group)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(part) for part in what))


def skip(code, why):
    """Ends the test: it cannot be shown here. The codes are those of scripts/skips.py."""
    print(f"SKIP: [{code}] {why}")
    sys.exit(77)


def eventually(condition, what, seconds=10):
    """Waits until `condition()` is true, and returns what it returned."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < until, "not within", seconds, "s:", what)
        time.sleep(0.005)


def alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def events(self):
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def reply(self):
        return self.events[-1]

    @property
    def text(self):
        return "".join(event["text"] for event in self.events if event.get("event") == "delta")

    @property
    def ids(self):
        return [token["id"] for event in self.events if event.get("event") == "delta" for token in event["tokens"]]


class Daemon:
    """A running bulkheadd. `config` is TOML; `directory` is given to the second daemon of one; `descriptors` is the most
    it may have open; `wrap` is put before its command, as root."""

    def __init__(self, config="", models=("tale", "slow"), directory=None, environment=None, descriptors=None, wrap=()):
        prepare()
        self.directory = pathlib.Path(directory or tempfile.mkdtemp(prefix="bulkhead-e2e-", dir="/tmp"))
        self.owns_directory = directory is None
        self.socket = self.directory / "s"
        self.log_path = self.directory / ("log" if self.owns_directory else "log2")
        (self.directory / "models").mkdir(exist_ok=True)
        for model in models:
            link = self.directory / "models" / f"{model}.gguf"
            if not link.exists():
                link.symlink_to(SHARED / f"{model}.gguf")
        self.config = self.directory / "bulkhead.toml"
        self.config.write_text(config)
        if AS_ROOT:
            os.chmod(self.directory, 0o755)
            for path in (self.directory, self.directory / "models"):
                os.chown(path, DAEMON_UID, GROUP)
        self.log_file = open(self.log_path, "wb")
        limited = ["prlimit", f"--nofile={descriptors}:{descriptors}"] if descriptors else []
        self.process = self.launch(
            [*wrap, *as_user(DAEMON_UID, [
                *limited, BIN / "bulkheadd", "--config", self.config, "--socket", self.socket, "--models",
                self.directory / "models", "--state", self.directory / "state"])], environment or {})

    def launch(self, command, environment):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log_file, stderr=self.log_file,
                                env=environment, cwd="/")

    @property
    def pid(self):
        return self.process.pid

    def status(self, name):
        """A number of /proc/PID/status, such as VmRSS in KiB."""
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(text.split(f"{name}:")[1].split()[0])

    def cpu_ticks(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def __enter__(self):
        try:
            eventually(self.answers, "the daemon to answer")
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, error, trace):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log_file.close()
        if kind is not None:
            sys.stderr.write(f"--- daemon's log\n{self.log()[-6000:]}\n---\n")
        if self.owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def answers(self):
        check(self.process.poll() is None, "the daemon ended with", self.process.returncode)
        return self.run("ps").code == 0

    def log(self):
        return self.log_path.read_text(errors="replace")

    def command(self, *words, uid=DAEMON_UID, group=None, groups=()):
        return as_user(uid, [BIN / "bulkhead", "--socket", self.socket, *words], group, groups)

    def run(self, *words, uid=DAEMON_UID, group=None, groups=(), timeout=30, **more):
        """Runs `bulkhead` to its end."""
        done = subprocess.run(self.command(*words, uid=uid, group=group, groups=groups), capture_output=True,
                              timeout=timeout, env={}, **more)
        return Result(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def ok(self, *words, **more):
        result = self.run(*words, **more)
        check(result.code == 0, "bulkhead", *words, "exited with", result.code, result.out, result.err)
        return result

    def json(self, *words, **more):
        return self.ok("--json", *words, **more).reply

    def start(self, *words, uid=DAEMON_UID, stdout=subprocess.PIPE, **more):
        return subprocess.Popen(self.command(*words, uid=uid), stdout=stdout, stderr=subprocess.PIPE, env={}, **more)

    def workers(self):
        """Pids of this daemon's live workers, found without asking it."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if int(parent) == self.pid and state not in "ZX" and b"worker" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def model(self, name):
        return next((model for model in self.json("ps")["models"] if model["model"] == name), None)

    def stop(self, timeout=15):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


class Stream:
    """`bulkhead --json run` under way; its events are read one by one."""

    def __init__(self, daemon, *words, uid=DAEMON_UID):
        self.process = daemon.start("--json", "run", *words, uid=uid)
        self.events = []

    def next(self):
        line = self.process.stdout.readline()
        if not line:
            return None
        self.events.append(json.loads(line))
        return self.events[-1]

    def until(self, kind, tokens=1):
        """Reads up to the `tokens`-th event of this kind."""
        while tokens > 0:
            event = self.next()
            if event is None:
                raise AssertionError(f"the stream ended before {kind}: {self.events[-1:]} {self.process.stderr.read()}")
            tokens -= event.get("event") == kind
        return event

    def finish(self):
        while self.next() is not None:
            pass
        err = self.process.stderr.read().decode(errors="replace")
        lines = "\n".join(json.dumps(event) for event in self.events)
        return Result(self.process.wait(30), lines, err)

    @property
    def inference_id(self):
        return next(event for event in self.events if event.get("event") == "started")["inference_id"]


def in_process(model, prompt, *options):
    """The same generation by the engine library, in a process of its own without any daemon."""
    done = subprocess.run([str(BIN / "e2e_in_process"), str(SHARED / f"{model}.gguf"), prompt, *options],
                          capture_output=True, timeout=60)
    check(done.returncode == 0, "e2e_in_process:", done.stderr.decode(errors="replace"))
    return json.loads(done.stdout)


class Wire:
    """The protocol without the command: frames as docs/protocol.md describes them."""

    def __init__(self, daemon):
        sys.path.insert(0, str(PYTHON))
        from bulkhead.v1 import client_pb2
        self.pb = client_pb2
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        eventually(lambda: self.connected(str(daemon.socket)), "a place in the daemon's backlog", seconds=20)
        hello = self.frame(0)
        hello.hello.protocol_min = hello.hello.protocol_max = 1
        with contextlib.suppress(BrokenPipeError):  # refused already: the reason can still be read
            self.send(hello)

    def connected(self, path):
        try:
            self.socket.connect(path)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def types():
        from bulkhead.v1 import types_pb2
        return types_pb2

    def frame(self, request_id):
        frame = self.pb.ClientFrame()
        frame.request_id = request_id
        return frame

    def send(self, *frames):
        """In one piece: the daemon reads the last one before anything comes of the first."""
        payloads = [frame.SerializeToString() for frame in frames]
        self.socket.sendall(b"".join(struct.pack("<I", len(payload)) + payload for payload in payloads))

    def read(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                return None
            data += piece
        return data

    def receive(self):
        """The next frame, or None where the daemon closed the connection."""
        header = self.read(4)
        payload = header and self.read(struct.unpack("<I", header)[0])
        return payload and self.pb.ServerFrame.FromString(payload)

    def generate(self, request_id, model, prompt, max_tokens):
        frame = self.frame(request_id)
        frame.generate.model.name = model
        frame.generate.prompt = prompt
        frame.generate.limits.max_tokens = max_tokens
        frame.generate.sampling.temperature = 0
        frame.generate.sampling.ignore_eos = True
        return frame
