#!/usr/bin/python3
"""Every wrapper of base/sys.cc that can fail has its row of errors in base/sys_errnos.h, and every row its wrapper."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUNCTION = re.compile(r"^(?:int|ssize_t) ([A-Z]\w+)\(", re.M)


def main():
    source = (ROOT / "base" / "sys.cc").read_text()
    starts = list(FUNCTION.finditer(source))
    wrappers = set()  # Injected itself is only their helper
    for match, following in zip(starts, starts[1:] + [None]):
        body = source[match.start() : following.start() if following else len(source)]
        if match.group(1) != "Injected" and ("BULKHEAD_CALL(" in body or "Injected(__func__)" in body):
            wrappers.add(match.group(1))
    rows = set(re.findall(r'^    \{"(\w+)", \{E', (ROOT / "base" / "sys_errnos.h").read_text(), re.M))
    for name in sorted(wrappers - rows):
        print(f"base/sys_errnos.h: no row for {name}")
    for name in sorted(rows - wrappers):
        print(f"base/sys_errnos.h: {name} is no wrapper of base/sys.cc that can fail")
    print(f"{len(wrappers)} wrappers")
    return 1 if wrappers != rows or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
