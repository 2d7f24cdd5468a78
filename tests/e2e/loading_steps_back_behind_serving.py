"""While a model is loaded its process's scheduling group steps back behind all others, and no longer once it serves."""

import pathlib
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
        loader = daemon.start("load", "wide")

        def stepped_back():
            seen.update(nice(pid) for pid in daemon.workers())
            return 10 in seen or loader.poll() is not None
        eventually(stepped_back, "the load to begin or end", seconds=30)
        check(10 in seen, "its group never stepped back:", seen)
        check(loader.wait(30) == 0, loader.stderr.read())
        pid = daemon.model("wide")["pid"]
        eventually(lambda: nice(pid) == 0, "the worker that serves to be as everybody")
        daemon.ok("run", "wide", "Once", "--raw", "--max-tokens", "3")
