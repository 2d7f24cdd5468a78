"""A stream whose worker is killed again and again has the ids, text, log-probabilities and usage of an undisturbed run."""

import os
import signal
from harness import Daemon, Stream, check, eventually

WORDS = ("slow", "Once upon a time", "--raw", "--max-tokens", "160", "--ignore-eos", "--seed", "7", "--repeat-penalty", "1.2",
         "--stop", "nothing says this")

with Daemon("[breaker]\ndeaths = 1000\n") as daemon:
    undisturbed = daemon.ok("--json", "run", *WORDS)
    stream = Stream(daemon, *WORDS)
    killed = []
    for _ in range(5):
        stream.until("delta", 20)
        victim = eventually(lambda: next((w for w in daemon.workers() if w not in killed), None), "a worker")
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)
    end = stream.finish()
    check(end.code == 0, "exit", end.code, end.out[-500:], end.err)
    check(end.ids == undisturbed.ids and end.text == undisturbed.text, end.ids, undisturbed.ids)
    check(end.reply["usage"]["completion_tokens"] == 160, end.reply)
    check(end.reply["usage"]["prompt_tokens"] == undisturbed.reply["usage"]["prompt_tokens"], end.reply)
    resumed = [event for event in end.events if event.get("event") == "resumed"]
    check([event["attempt"] for event in resumed] == [1, 2, 3, 4, 5], resumed)
    check(all(event["exact"] and event["reason"] == "WORKER_CRASHED" for event in resumed), resumed)
    check([event["event"] for event in end.events].count("started") == 1, "started twice")
    daemon.ok("release", "slow")
    check(daemon.json("ps")["budget"]["charged_bytes"] == 0, "bytes left")
