#!/usr/bin/python3
"""Counts the skipped tests of a ctest -V log by reason, and fails where a reason is unknown or does not hold here.

A test says why it skips by a code in brackets at the start of its message: "[no-avx512] ...".
"""

import collections
import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CPU_FLAGS = next((line for line in open("/proc/cpuinfo") if line.startswith("flags")), "").split()

MOUNTS = [line.split() for line in open("/proc/self/mountinfo")]


def cgroup2():
    """The controllers of the v2 hierarchy, None where it is not mounted."""
    point = next((fields[4] for fields in MOUNTS if "cgroup2" in fields[fields.index("-"):]), None)
    return None if point is None else (pathlib.Path(point) / "cgroup.controllers").read_text().split()


# code -> whether the reason really holds on this machine
HOLDS = {
    "no-avx2": lambda: "avx2" not in CPU_FLAGS,
    "no-avx512": lambda: "avx512_vnni" not in CPU_FLAGS,
    "no-shared-golden": lambda: not (ROOT.parent / "shared" / "golden").is_dir(),
    "no-systemd-nspawn": lambda: shutil.which("systemd-nspawn") is None or os.geteuid() != 0,
    "no-autogroup": lambda: not pathlib.Path("/proc/self/autogroup").exists(),
    "cgroup2-is-systemds": lambda: os.path.isdir("/run/systemd/system"),
    "no-cgroup2": lambda: not cgroup2(),
    "no-cgroup2-memory": lambda: "memory" not in (cgroup2() or []),
    "not-root": lambda: os.geteuid() != 0,
    "sanitizer-no-memory-fence": lambda: True,  # only sanitizer builds contain this skip
}

SKIP = re.compile(r"^\d+: (?:SKIP:? )?\[([a-z][a-z0-9-]+)\] (.*)$")
GTEST_SKIPPED = re.compile(r"^\d+: \[  SKIPPED \] \S+ \(\d+ ms\)")


def main():
    reasons, silent = collections.Counter(), 0
    for line in open(sys.argv[1], errors="replace"):
        if match := SKIP.match(line.rstrip("\n")):
            reasons[match.group(1)] += 1
        elif GTEST_SKIPPED.match(line):
            silent += 1
    print(f"skips: {sum(reasons.values())} in all")
    wrong = []
    for code, count in sorted(reasons.items()):
        print(f"skips: {count:4d} {code}")
        if code not in HOLDS:
            wrong.append(f"reason {code} is not known to scripts/skips.py")
        elif not HOLDS[code]():
            wrong.append(f"reason {code} does not hold on this machine")
    if silent > sum(reasons.values()):
        wrong.append(f"{silent} tests skipped, but only {sum(reasons.values())} said why")
    for line in wrong:
        print(f"skips: UNEXPECTED: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
