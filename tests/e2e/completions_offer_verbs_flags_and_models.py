"""Completion in bash offers verbs, the flags of the verb, models and policy values that the daemon knows, and files."""

import subprocess
from harness import BIN, ROOT, Daemon, check

SCRIPT = """
source "$1"
COMP_WORDS=("$2" --socket "$3" "${@:4}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_bulkhead
printf '%s\\n' "${COMPREPLY[@]}"
"""

with Daemon(models=("tale", "slow")) as daemon:
    def complete(*words):
        done = subprocess.run(["bash", "-c", SCRIPT, "bash", ROOT / "client/completions/bulkhead", BIN / "bulkhead",
                               daemon.socket, *words], capture_output=True, text=True, timeout=20, cwd=daemon.directory)
        check(done.stderr == "", done.stderr)
        return set(done.stdout.split())

    check({"run", "release", "release-idle"} <= complete("r") | complete("re"), complete("r"))
    check(complete("po") == {"policy"}, complete("po"))
    check(complete("run", "--te") == {"--temperature"}, complete("run", "--te"))
    check("--temperature" not in complete("ps", "--"), complete("ps", "--"))
    check(complete("run", "--priority", "in") == {"interactive"}, complete("run", "--priority", "in"))
    check({"tale", "slow"} <= complete("run", ""), complete("run", ""))
    check(complete("load", "ta") == {"tale"}, complete("load", "ta"))
    (daemon.directory / "mine.gguf").touch()
    check(complete("show", "min") == {"mine.gguf"}, complete("show", "min"))
    check(complete("policy", "") == {"get", "set"}, complete("policy", ""))
    check(complete("policy", "get", "queue.w") == {"queue.wait"}, complete("policy", "get", "queue.w"))
    check(complete("policy", "set", "queue.w") == {"queue.wait="}, complete("policy", "set", "queue.w"))
    check(complete("release", "") == set(), "a model that is not resident is offered")
    daemon.ok("load", "tale")
    check(complete("release", "") == {"tale"}, complete("release", ""))
