#!/usr/bin/python3
"""Holds the folders' include arrows (DESIGN section 2): a folder may include only itself and those listed for it."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

ALLOWED = {
    "base": set(),
    "proto": set(),
    "ipc": {"base", "proto"},
    "admission": {"base"},
    "supervisor": {"base", "proto", "ipc", "admission"},
    "daemon": {"base", "proto", "ipc", "admission", "supervisor"},
    "kernels": {"base"},
    "engine": {"base", "kernels"},
    "worker": {"base", "proto", "ipc", "kernels", "engine"},
    "client": {"base", "proto", "ipc"},
    "tools": {"base", "kernels", "engine"},
    "bench": None,  # benches and tests may look at everything
    "tests": None,
}
# Inside the engine: gguf <- model <- runtime; tokenizer, chat and sampling know no model.
ENGINE = {
    "gguf": set(),
    "tokenizer": {"gguf"},
    "chat": {"gguf", "tokenizer"},
    "sampling": {"gguf", "tokenizer"},
    "model": {"gguf"},
    "runtime": {"gguf", "model", "tokenizer", "chat", "sampling"},
    "pool": {"gguf", "model", "tokenizer", "chat", "sampling", "runtime"},
}
PROTO_HEADERS = re.compile(r'#include "(bulkhead/v1/[\w.]+)"')
LOCAL = re.compile(r'#include "([\w/.-]+)"')


def main():
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cc"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = listed.stdout.split()
    wrong, seen = [], 0
    for name in files:
        parts = name.split("/")
        allowed = ALLOWED.get(parts[0], set())
        if allowed is None:
            continue
        for include in LOCAL.findall((ROOT / name).read_text()):
            seen += 1
            target = include.split("/")
            folder = "proto" if include.startswith("bulkhead/v1/") else target[0]
            if folder != parts[0] and folder not in allowed:
                wrong.append(f"{name}: {parts[0]} may not include {folder} ({include})")
            if parts[0] == "engine" == folder and len(parts) > 2 and len(target) > 2 and parts[1] != target[1]:
                if target[1] not in ENGINE.get(parts[1], set()):
                    wrong.append(f"{name}: engine/{parts[1]} may not include engine/{target[1]} ({include})")
    print(f"{len(files)} files, {seen} includes of our own")
    if seen == 0:
        wrong.append("no include was seen: this test looks in the wrong place")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
