#!/usr/bin/python3
"""The demo's steps: a daemon of its own in a temporary directory, on the model in this repository. Each step says what
it does, does it with the `bulkhead` command, and checks what came of it. Exit 0 only if all of them held."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "build" / "release" / "bin"
KILL_AT = 20


class StepFailed(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise StepFailed(message)


class Demo:
    def __init__(self, directory, model):
        self.directory, self.model_file, self.model = directory, model, model.stem
        self.socket = directory / "bulkhead.sock"
        self.daemon = None
        self.step = 0

    def say(self, text):
        self.step += 1
        print(f"\n\033[1m{self.step}. {text}\033[0m" if sys.stdout.isatty() else f"\n{self.step}. {text}", flush=True)

    def command(self, *words):
        return [str(PROGRAMS / "bulkhead"), "--socket", str(self.socket), *words]

    def show(self, *words):
        """Runs a command with its output on the terminal."""
        print(f"$ bulkhead {' '.join(words)}", flush=True)
        done = subprocess.run(self.command(*words), timeout=60)
        expect(done.returncode == 0, f"bulkhead {words[0]} exited with {done.returncode}")

    def ask(self, *words):
        done = subprocess.run(self.command("--json", *words), capture_output=True, timeout=60)
        expect(done.returncode == 0, f"bulkhead {' '.join(words)} exited with {done.returncode}: {done.stderr.decode()}")
        return json.loads(done.stdout.splitlines()[-1])

    def start(self):
        self.say("Start a daemon in a temporary directory")
        models = self.directory / "models"
        models.mkdir()
        (models / self.model_file.name).symlink_to(self.model_file)
        config = self.directory / "bulkhead.toml"
        config.write_text("")
        self.log = open(self.directory / "log", "wb")
        self.daemon = subprocess.Popen(
            [str(PROGRAMS / "bulkheadd"), "--config", str(config), "--socket", str(self.socket), "--models", str(models),
             "--state", str(self.directory / "state")], stdout=self.log, stderr=self.log)
        until = time.monotonic() + 10
        while subprocess.run(self.command("ps"), capture_output=True).returncode != 0:
            expect(self.daemon.poll() is None, f"the daemon ended with {self.daemon.returncode}")
            expect(time.monotonic() < until, "the daemon did not answer within 10 s")
            time.sleep(0.02)
        print(f"bulkheadd runs as pid {self.daemon.pid}")

    def stream_story(self):
        self.say("Stream a story")
        self.show("run", self.model, "Tell me a story.", "--seed", "7")

    def show_ps(self):
        self.say("What is resident, and what it is charged")
        self.show("ps")
        self.worker = self.resident()
        expect(self.worker is not None and self.worker["state"].lower() == "idle", "the worker is not idle")
        expect(alive(self.worker["pid"]), "ps names a process that does not live")

    def resident(self):
        return next((entry for entry in self.ask("ps")["models"] if entry["model"] == self.model), None)

    def stream(self, *words, kill=None):
        """(exit code, events, what it said on stderr) of a client whose worker, where `kill` names it, dies at a token."""
        client = subprocess.Popen(
            self.command("--json", "run", self.model, "Tell me a story.", "--seed", "8", "--ignore-eos", "--max-tokens",
                         "900", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        tokens, events = 0, []
        for line in client.stdout:
            events.append(json.loads(line))
            before = tokens
            tokens += len(events[-1].get("tokens", []))
            if kill is not None and before < KILL_AT <= tokens:
                os.kill(kill, signal.SIGKILL)
        errors = client.stderr.read().decode()
        return client.wait(30), events, errors

    def kill_worker(self):
        self.say(f"Kill the worker (pid {self.worker['pid']}) with SIGKILL at token {KILL_AT} of a stream")
        _, undisturbed, _ = self.stream()
        code, events, errors = self.stream(kill=self.worker["pid"])
        resumed = [event for event in events if event["event"] == "resumed"]
        print(f"{text_of(events)[:200]}...")
        print(f"the client saw {resumed} and {len(ids_of(events))} tokens; exit code {code}{errors}")
        expect(code == 0 and len(resumed) == 1, f"exit code {code}, {len(resumed)} resumptions")
        expect(ids_of(events) == ids_of(undisturbed), "the tokens are not those of a stream that nobody disturbed")
        print("token for token it is the stream that nobody disturbed")
        expect(not alive(self.worker["pid"]), "the worker lives")
        expect(self.daemon.poll() is None, "the daemon died with its worker")
        self.worker = self.resident()

    def kill_without_resuming(self):
        self.say("The same for a client that wants to be told instead")
        code, events, errors = self.stream("--on-worker-death", "fail", kill=self.worker["pid"])
        print(f"after {len(ids_of(events))} tokens the client saw:\n{errors}exit code {code}")
        expect(len(ids_of(events)) >= KILL_AT, "the stream ended before its worker died")
        expect(code == 5, f"the client's exit code is {code}, not 5 (worker died)")
        expect(events[-1]["event"] == "error" and events[-1]["reason"] == "WORKER_CRASHED", f"it saw {events[-1]}")
        print(f"bulkheadd (pid {self.daemon.pid}) lives on; its record of the death:")
        self.show("deaths", "--last", "1")

    def generate_again(self):
        self.say("Generate again: another process serves")
        self.show("run", self.model, "What is Bulkhead?", "--temperature", "0")
        again = self.resident()
        expect(again is not None and again["allocation_id"] != self.worker["allocation_id"], "no new allocation")
        self.worker = again

    def release(self):
        self.say("Release the model: its process is gone and its charge retired when the command returns")
        self.show("release", self.model)
        gone, budget = not alive(self.worker["pid"]), self.ask("ps")["budget"]
        print(f"pid {self.worker['pid']}: {'gone' if gone else 'alive'}; charged now: {budget['charged_bytes']} bytes")
        expect(gone, "the process lives after its release")
        expect(budget["charged_bytes"] == 0, "its charge stands after its release")

    def stop(self):
        self.say("Stop the daemon")
        self.daemon.send_signal(signal.SIGTERM)
        code = self.daemon.wait(20)
        print(f"bulkheadd exited with {code}")
        expect(code == 0, f"the daemon's exit code is {code}")

    def run(self):
        self.start()
        self.stream_story()
        self.show_ps()
        self.kill_worker()
        self.kill_without_resuming()
        self.generate_again()
        self.release()
        self.stop()

    def end(self, failed):
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        if failed and self.daemon is not None:
            print(f"--- the daemon's log\n{(self.directory / 'log').read_text(errors='replace')[-4000:]}", file=sys.stderr)


def text_of(events):
    return "".join(event["text"] for event in events if event["event"] == "delta")


def ids_of(events):
    return [token["id"] for event in events if event["event"] == "delta" for token in event["tokens"]]


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models" / "demo.gguf", help="a GGUF file")
    arguments = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="bulkhead-demo-", dir="/tmp"))
    demo, failed = Demo(directory, arguments.model.resolve()), True
    try:
        demo.run()
        failed = False
        print("\ndemo: every step did what it says")
    except (StepFailed, subprocess.TimeoutExpired, OSError) as error:
        print(f"\ndemo: FAILED: {error}", file=sys.stderr)
    finally:
        demo.end(failed)
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
