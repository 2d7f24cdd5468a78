"""While a model is loaded its process's scheduling group steps back behind all others, and no longer once it serves."""

import pathlib
import time

from harness import Daemon, check, eventually

GROUP = pathlib.Path("/proc/self/autogroup")


def nice(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/autogroup").read_text().rpartition("nice")[2])
    except (OSError, ValueError):
        return None


if not GROUP.exists():
    print("SKIP: [no-autogroup] this kernel has no scheduling group per session")
else:
    with Daemon(models=("wide",)) as daemon:
        seen = set()
        for _ in range(5):  # a load that nobody looked at in time is done again
            loader = daemon.start("load", "wide")
            deadline = time.monotonic() + 30
            while loader.poll() is None and time.monotonic() < deadline:
                seen.update(nice(pid) for pid in daemon.workers())
            check(loader.wait(30) == 0, loader.stderr.read())
            if 10 in seen:
                break
            daemon.ok("release", "wide")
        check(10 in seen, "its group never stepped back:", seen)
        pid = daemon.model("wide")["pid"]
        eventually(lambda: nice(pid) == 0, "the worker that serves to be as everybody")
        daemon.ok("run", "wide", "Once", "--raw", "--max-tokens", "3")
