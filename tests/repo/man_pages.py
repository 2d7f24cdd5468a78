#!/usr/bin/python3
"""Man pages: they render without a warning, every flag, verb and key that exists stands in them, and none that does not.

usage: man_pages.py DIRECTORY_OF_PROGRAMS WHERE_TO_INSTALL BUILD_DIRECTORY
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN, INSTALLED = map(pathlib.Path, sys.argv[1:3])
PAGES = ["bulkhead.1", "bulkheadd.8", "bulkhead-worker.8", "bulkhead-release-idle.8", "bulkhead.toml.5"]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
wrong = []


def rendered(page):
    path = next(iter(INSTALLED.rglob(page)), None)
    if path is None:
        wrong.append(f"{page}: not installed")
        return ""
    environment = {**os.environ, "MANWIDTH": "500", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["man", "-l", "--warnings", "-Tascii", "-Pcat", path], capture_output=True, text=True,
                          env=environment, timeout=30)
    if done.returncode != 0 or done.stderr.strip():
        wrong.append(f"{page}: man says: {done.stderr.strip()}")
    # Bold and underlined letters are written over themselves.
    return re.sub(".\b", "", done.stdout)


def help_of(*command):
    done = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        wrong.append(f"{' '.join(command)} --help exited with {done.returncode}")
    # What follows is the same for every verb, and speaks of flags in passing.
    return done.stdout.split("\nExit status:")[0].split("\nExit codes:")[0]


def compare(page, kind, exist, documented):
    for name in sorted(exist - documented):
        wrong.append(f"{page}: {kind} {name} is not in it")
    for name in sorted(documented - exist):
        wrong.append(f"{page}: {kind} {name} does not exist")


def verbs_of(text):
    listed = text.split("Subcommands:")[1] if "Subcommands:" in text else ""
    return re.findall(r"^  ([a-z][a-z-]*)  ", listed, re.M)


def options(text):
    """Flags a help text offers, not those it mentions."""
    return {flag for line in re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M) for flag in FLAG.findall(line)}


def check_client(text):
    top = help_of("bulkhead")
    flags, verbs = options(top), verbs_of(top)
    for verb in verbs:
        own = help_of("bulkhead", verb)
        flags |= options(own)
        for part in verbs_of(own):
            flags |= options(help_of("bulkhead", verb, part))
            if not re.search(rf"^ +{verb} {part} ", text, re.M):
                wrong.append(f"bulkhead.1: {verb} {part} is not in it")
        if not re.search(rf"^ +{verb}(?: |$)", text, re.M):
            wrong.append(f"bulkhead.1: verb {verb} is not in it")
    compare("bulkhead.1", "flag", flags, set(FLAG.findall(text)))
    return flags, verbs


def check_daemon(text):
    flags = options(help_of("bulkheadd"))
    compare("bulkheadd.8", "flag", flags, set(FLAG.findall(text)))
    return flags


def check_configuration(text):
    keys = {}
    section = None
    for line in (ROOT / "daemon/bulkhead.toml").read_text().splitlines():
        if match := re.match(r"\[(\w+)\]", line):
            section = match.group(1)
        elif match := re.match(r"#(\w+) = (.*)", line):
            keys[f"{section}.{match.group(1)}"] = match.group(2)
    printed = subprocess.run([BIN / "bulkheadd", "--config", "/dev/null", "--print-config"], capture_output=True, text=True,
                             timeout=30).stdout
    compare("bulkhead.toml.5", "key of the shipped file", set(keys), {
        f"{name}.{key}" for name, body in re.findall(r"^\[(\w+)\]\n((?:(?!\[).*\n)*)", printed, re.M)
        for key in re.findall(r"^(\w+) =", body, re.M)})
    documented = set(re.findall(r"^ +([a-z]+\.[a-z_]+)\b(?!\.)", text, re.M)) - {"bulkhead.toml"}
    compare("bulkhead.toml.5", "key", set(keys), {name for name in documented if name.split(".")[0] in
                                                  {key.split(".")[0] for key in keys}})
    for key, default in keys.items():
        # Paths depend on who runs it; the rest is said as the file has it.
        if not key.startswith("paths.") and default not in text:
            wrong.append(f"bulkhead.toml.5: the default of {key}, {default}, is not in it")


def check_completions(client_flags, verbs, daemon_flags):
    path = next(iter(INSTALLED.rglob("completions/bulkhead")), None)
    if path is None or not path.with_name("bulkheadd").exists():
        wrong.append("completions: not installed")
        return
    text = path.read_text()
    words = set(re.findall(r"[\w-]+", text))
    compare("completions", "flag", client_flags | daemon_flags, set(FLAG.findall(text)))
    for verb in verbs:
        if verb not in words:
            wrong.append(f"completions: verb {verb} is not in it")


def main():
    subprocess.run(["cmake", "--install", pathlib.Path(sys.argv[3]) / "docs", "--prefix", INSTALLED], check=True,
                   stdout=subprocess.DEVNULL, timeout=30)
    texts = {page: rendered(page) for page in PAGES}
    client_flags, verbs = check_client(texts["bulkhead.1"])
    daemon_flags = check_daemon(texts["bulkheadd.8"])
    check_configuration(texts["bulkhead.toml.5"])
    usage = subprocess.run([BIN / "bulkhead-worker", "--nonsense"], capture_output=True, text=True, timeout=30).stderr
    compare("bulkhead-worker.8", "flag", set(FLAG.findall(usage)), set(FLAG.findall(texts["bulkhead-worker.8"])))
    check_completions(client_flags, verbs, daemon_flags)
    print(f"{len(PAGES)} pages, {len(client_flags | daemon_flags)} flags, {len(verbs)} verbs")
    print("\n".join(wrong))
    return 1 if wrong or not verbs else 0


if __name__ == "__main__":
    sys.exit(main())
