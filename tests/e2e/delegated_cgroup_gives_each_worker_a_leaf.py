"""In a cgroup v2 that was delegated to it the daemon moves to a leaf of its own and gives each worker one; they go with
their workers, and a daemon that comes after a killed one removes what that left."""

import os
import pathlib
from harness import AS_ROOT, DAEMON_UID, GROUP, Daemon, alive, check, eventually, skip

MOUNTS = [line.split() for line in open("/proc/self/mountinfo")]
top = next((pathlib.Path(fields[4]) for fields in MOUNTS if "cgroup2" in fields[fields.index("-"):]), None)
if top is None:
    skip("no-cgroup2", "no cgroup v2 is mounted")
if not AS_ROOT:
    skip("not-root", "groups are made by root")
if os.path.isdir("/run/systemd/system"):
    skip("cgroup2-is-systemds", "systemd alone makes groups here")

group = top / f"bulkhead-e2e-{os.getpid()}"


def group_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


def leaves():
    return sorted(path.name for path in group.iterdir() if path.is_dir())


def finding(daemon, what):
    return next(f for f in daemon.run("--json", "doctor").reply["findings"] if f["what"] == what)


group.mkdir()
try:
    # What systemd does for Delegate=yes.
    for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control"):
        os.chown(path, DAEMON_UID, GROUP)
    os.setxattr(group, "user.delegate", b"1")
    inside = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    with Daemon(wrap=inside) as daemon:
        check(group_of(daemon.pid).endswith(f"/{group.name}/daemon"), group_of(daemon.pid))
        delegation = finding(daemon, "cgroup delegation")
        check(delegation["status"] == "ok" and "a leaf per worker" in delegation["detail"], delegation)
        daemon.ok("load", "tale")
        daemon.ok("load", "slow")
        workers = daemon.workers()
        check(len(workers) == 2 and len(leaves()) == 3, workers, leaves())
        for model in ("tale", "slow"):
            resident = daemon.model(model)
            leaf = "worker-" + resident["allocation_id"].rpartition("#")[2]
            check(group_of(resident["pid"]).endswith(f"/{group.name}/{leaf}"), group_of(resident["pid"]))
        daemon.ok("release", "tale")
        check(len(leaves()) == 2, leaves())
        daemon.process.kill()
        daemon.process.wait()
        eventually(lambda: not any(alive(pid) for pid in workers), "the workers to end with their daemon")
        check(len(leaves()) == 2, "a killed daemon cannot have cleaned up", leaves())
        with Daemon(wrap=inside, directory=daemon.directory) as second:
            check(leaves() == ["daemon"], leaves())
            second.ok("load", "tale")
            check(second.stop() == 0, "exit")
        check(leaves() == ["daemon"], leaves())
finally:
    (group / "cgroup.kill").write_text("1")

    def removed():
        try:
            for path in [*(path for path in group.iterdir() if path.is_dir()), group]:
                path.rmdir()
            return True
        except OSError:
            return False

    eventually(removed, "the test's group to be empty")
