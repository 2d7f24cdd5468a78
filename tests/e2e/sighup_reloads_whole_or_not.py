"""SIGHUP takes a right configuration whole; a wrong one keeps the old values and the daemon, saying so."""

import signal
from harness import Daemon, check, eventually


def sequences(daemon):
    return {value["name"]: value["value"] for value in daemon.json("policy")["values"]}["model.sequences"]


with Daemon("[model]\nsequences = 3\n") as daemon:
    daemon.config.write_text("[model]\nsequences = 2\n")
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: sequences(daemon) == "2", "the new value")
    daemon.config.write_text("[model]\nsequences = 1\nbogus = 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: "bogus" in daemon.log(), "the error in the log")
    check(sequences(daemon) == "2", "half a configuration was taken")
    daemon.ok("run", "tale", "Once", "--raw", "--max-tokens", "3")
