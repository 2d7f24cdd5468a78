"""Deaths block a model with the time to wait; after the backoff one worker is tried; if that dies the backoff doubles, if
it serves for the healthy time the model is trusted again. `events` tells each step."""

import os
import signal
from harness import Daemon, check, eventually, json

CONFIG = """
[breaker]
deaths = 2
backoff = "2s"
healthy = "1s"
"""
RUN = ("--json", "run", "tale", "Once", "--raw", "--max-tokens", "3", "--ignore-eos")


def kill_worker(daemon):
    victim = daemon.model("tale")["pid"]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: daemon.model("tale") is None, "the killed worker to be gone")


with Daemon(CONFIG, models=("tale",)) as daemon:
    events = daemon.start("--json", "events", "--model", "tale")
    for _ in range(2):
        daemon.ok(*RUN)
        kill_worker(daemon)
    blocked = daemon.run(*RUN)
    check(blocked.code == 3 and blocked.reply["reason"] == "BREAKER_OPEN", blocked.out)
    check(0 < blocked.reply["retry_after_ms"] <= 2000 and "unblock tale" in blocked.reply["hint"], blocked.reply)
    check([model["blocked"] for model in daemon.json("models")["models"]] == [True], "models does not say so")

    eventually(lambda: daemon.run(*RUN).code == 0, "the trial")
    kill_worker(daemon)
    blocked = daemon.run(*RUN)
    check(blocked.reply["reason"] == "BREAKER_OPEN", "one death in a trial did not block it again:", blocked.out)
    check(2000 < blocked.reply["retry_after_ms"] <= 4000, "the backoff did not double:", blocked.reply)

    eventually(lambda: daemon.run(*RUN).code == 0, "the second trial")
    seen = []
    while "breaker-closed" not in seen:
        seen.append(json.loads(events.stdout.readline())["what"])
    kill_worker(daemon)
    check(daemon.run(*RUN).code == 0, "one death after it had closed blocked it")
    steps = [what for what in seen if what.startswith("breaker")]
    check(steps == ["breaker-open", "breaker-trial", "breaker-open", "breaker-trial", "breaker-closed"], steps)
    events.kill()
    events.wait()
