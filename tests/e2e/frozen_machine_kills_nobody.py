"""Daemon and worker are stopped for longer than any watchdog's limit, as with a frozen container or a paused virtual
machine: afterwards the stream goes on, and its text is that of an undisturbed run."""

import os
import signal
import time
from harness import Daemon, Stream, check

ASK = ("--max-tokens", "200", "--ignore-eos", "--seed", "5")
CONFIG = '[watchdog]\ntoken = "500ms"\nprefill = "500ms"\n'

with Daemon(CONFIG) as daemon:
    stream = Stream(daemon, "slow", "Once upon", "--raw", *ASK)
    stream.until("delta", tokens=5)
    (worker,) = daemon.workers()
    os.kill(worker, signal.SIGSTOP)
    daemon.process.send_signal(signal.SIGSTOP)
    time.sleep(2)  # the stimulus itself: time in which nobody runs
    daemon.process.send_signal(signal.SIGCONT)
    os.kill(worker, signal.SIGCONT)
    end = stream.finish()
    check(end.reply["event"] == "done", end.reply)
    check(daemon.workers() == [worker], "the worker was killed for a pause")
    check(daemon.json("deaths")["deaths"] == [], daemon.json("deaths"))
    undisturbed = daemon.ok("--json", "run", "slow", "Once upon", "--raw", *ASK)
    check(end.ids == undisturbed.ids and end.text == undisturbed.text, "another text:", end.text, undisturbed.text)
