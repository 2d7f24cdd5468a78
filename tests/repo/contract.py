#!/usr/bin/python3
"""docs/contract.md names a symbol, its header and a test in each row: all of them must exist."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| [^|]+ \| `(\w+)` in `([\w/.]+)` \| `([\w.]+)` \|$")


def tests_of_the_tree():
    found = {path.stem for path in (ROOT / "tests" / "e2e").glob("*.py")}
    for path in (ROOT / "tests").rglob("*_test.cc"):
        for suite, name in re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", path.read_text(), re.M):
            found.add(f"{suite}.{name}")
    return found


def main():
    known, problems, rows, missing = tests_of_the_tree(), [], 0, 0
    for line in (ROOT / "docs" / "contract.md").read_text().splitlines():
        if not line.startswith("| ") or line.startswith("| theirs "):
            continue
        rows += 1
        if "*not yet*" in line:
            missing += 1
            continue
        match = ROW.match(line)
        if match is None:
            problems.append(f"not of the form `symbol` in `header` | `test`: {line}")
            continue
        symbol, header, test = match.groups()
        if not (ROOT / header).is_file() or not re.search(rf"\b{symbol}\b", (ROOT / header).read_text()):
            problems.append(f"{header} has no {symbol}")
        if test not in known:
            problems.append(f"no test is called {test}")
    print("\n".join(problems) or f"contract: {rows} rows, {missing} of them not yet")
    return 1 if problems or rows == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
