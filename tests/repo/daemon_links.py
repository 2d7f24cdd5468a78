#!/usr/bin/python3
"""`bulkheadd` never reads a model byte: it links neither engine nor kernels. argv: the binaries' folder."""

import pathlib
import re
import subprocess
import sys


def namespaces(binary):
    out = subprocess.run(["nm", "--demangle", "--defined-only", binary], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"bulkhead::(engine|kernels|supervisor|worker)::", out))


def main():
    folder = pathlib.Path(sys.argv[1])
    daemon, worker = namespaces(folder / "bulkheadd"), namespaces(folder / "bulkhead-worker")
    print(f"bulkheadd: {sorted(daemon)}; bulkhead-worker: {sorted(worker)}")
    if "supervisor" not in daemon or not {"engine", "kernels"} <= worker:
        print("nm shows no symbols where they must be: stripped binaries cannot be tested")
        return 1
    return 1 if daemon & {"engine", "kernels", "worker"} else 0


if __name__ == "__main__":
    sys.exit(main())
