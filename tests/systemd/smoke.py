#!/usr/bin/python3
"""Boots a real systemd in a container and lets it run the installed units: see inside.py for what is checked.

usage: smoke.py BUILD_DIRECTORY
The container's root is an overlay: the host's root below, a tmpfs above it, so nothing of the host changes. What
`cmake --install` lays down goes into the upper layer. Needs root; skips with [no-systemd-nspawn] elsewhere.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SKIPPED = 77
BOOT_SECONDS = 180

SMOKE_SERVICE = """[Unit]
Description=The smoke test
DefaultDependencies=no
After=sysinit.target sockets.target dbus.socket
[Service]
Type=oneshot
TimeoutStartSec=150
ExecStart=/bin/sh -c '/usr/bin/python3 /smoke/inside.py > /smoke/log 2>&1; echo $? > /smoke/exit-code'
ExecStopPost=systemctl exit --force 0
"""
SMOKE_TARGET = """[Unit]
Description=Only what the smoke test needs
Requires=sysinit.target
Wants=bulkhead.socket dbus.socket systemd-logind.service smoke.service
After=sysinit.target
"""
# Minutes are for people; a test cannot wait for them.
TIMER_DROP_IN = "[Timer]\nOnActiveSec=\nOnActiveSec=2s\nOnUnitInactiveSec=2s\nAccuracySec=100ms\n"
# A wedged loop is noticed in seconds, and what does not end by itself is killed in seconds.
WATCHDOG_DROP_IN = "[Service]\nWatchdogSec=3\nTimeoutAbortSec=2\n"
# The deaths here are not what the breaker is for, and nobody waits half a minute for a stop.
CONFIGURATION = """[access]
admin_group = "bulkhead-admin"
[breaker]
deaths = 100
[deadlines]
drain = "2s"
"""
# Some milliseconds a token, so that a step can act in the middle of a stream.
SLOW = ("--arch qwen3 --type q8_0 --layers 8 --embedding 1024 --feed-forward 3072 --heads 16 --kv-heads 4 --head 64 "
        "--vocabulary 1024 --context 4096 --seed 7").split()
RELEASE_DROP_IN = "[Service]\nEnvironment=IDLE_FOR=0s\n"


def skip(why):
    print(f"SKIP: [no-systemd-nspawn] {why}")
    sys.exit(SKIPPED)


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def model():
    candidates = [ROOT / "models" / "demo.gguf", *sorted((ROOT / "tests" / "golden" / "data").rglob("*.gguf"))]
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        sys.exit("smoke: neither models/demo.gguf nor a model in tests/golden/data")
    return found


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def furnish(merged, build):
    environment = dict(os.environ, DESTDIR=str(merged))
    run("cmake", "--install", str(build), env=environment, stdout=subprocess.DEVNULL)
    run("systemd-sysusers", f"--root={merged}")
    write(merged / "etc/machine-id", "b01c4ead0b01c4ead0b01c4ead0b01c4\n")
    units = merged / "etc/systemd/system"
    write(units / "smoke.service", SMOKE_SERVICE)
    write(units / "smoke.target", SMOKE_TARGET)
    write(units / "bulkhead-release-idle.timer.d/fast.conf", TIMER_DROP_IN)
    write(units / "bulkhead-release-idle.service.d/fast.conf", RELEASE_DROP_IN)
    write(units / "bulkhead.service.d/fast.conf", WATCHDOG_DROP_IN)
    write(merged / "etc/bulkhead/bulkhead.toml", CONFIGURATION)
    models = merged / "var/lib/bulkhead/models"
    models.mkdir(parents=True, exist_ok=True)
    shutil.copy(model(), models / "demo.gguf")
    (models / "demo.gguf").chmod(0o644)
    run(build / "bin/make_model", *SLOW, models / "slow.gguf", stdout=subprocess.DEVNULL)
    (models / "slow.gguf").chmod(0o644)
    (merged / "smoke").mkdir()
    for script in HERE.glob("*.py"):
        shutil.copy(script, merged / "smoke")


def boot(merged):
    command = ["systemd-nspawn", "--quiet", f"--directory={merged}", "--boot", "--register=no", "--keep-unit",
               "--private-network", "--console=read-only",
               # The container's own filter knows no Landlock; the unit's must.
               "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self",
               "systemd.unit=smoke.target", "systemd.log_level=warning"]
    with open(merged / "smoke/console", "w") as console:
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
                           timeout=BOOT_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"smoke: the container did not end within {BOOT_SECONDS} s")


def report(merged):
    smoke = merged / "smoke"
    log = smoke / "log"
    print(log.read_text() if log.exists() else "smoke: the test did not start; console:\n"
          + (smoke / "console").read_text(errors="replace")[-4000:])
    code = smoke / "exit-code"
    return int(code.read_text()) if code.exists() else 1


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if os.geteuid() != 0:
        skip("not root")
    for tool in ("systemd-nspawn", "systemd-sysusers"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed")
    with tempfile.TemporaryDirectory(prefix="bulkhead-smoke-") as base:
        merged = pathlib.Path(base) / "tree/merged"
        tree = merged.parent
        tree.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(tree))
        try:
            for name in ("upper", "work", "merged"):
                (tree / name).mkdir()
            overlay = f"lowerdir=/,upperdir={tree}/upper,workdir={tree}/work"
            mounted = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", overlay, str(merged)],
                                     stderr=subprocess.PIPE, text=True)
            if mounted.returncode != 0:
                skip(f"no overlay of the root file system: {mounted.stderr.strip()}")
            furnish(merged, build)
            boot(merged)
            return report(merged)
        finally:
            subprocess.run(["umount", str(merged)], stderr=subprocess.DEVNULL)
            run("umount", "--lazy", str(tree))


if __name__ == "__main__":
    sys.exit(main())
