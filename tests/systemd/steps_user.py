"""The units of one user's own service manager."""

import json
import pwd
import subprocess

from common import CLIENT, sh, until


def as_alice(*command, check=True):
    runtime = f"/run/user/{pwd.getpwnam('alice').pw_uid}"
    done = subprocess.run(["runuser", "-u", "alice", "--", "env", f"XDG_RUNTIME_DIR={runtime}", *command],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}")
    return done.stdout.strip()


def step_user_units():
    uid = pwd.getpwnam("alice").pw_uid
    sh("systemctl", "start", f"user@{uid}.service")
    as_alice("sh", "-c", "mkdir -p ~/.local/share/bulkhead/models && cp /var/lib/bulkhead/models/demo.gguf "
                         "~/.local/share/bulkhead/models/")
    as_alice("systemctl", "--user", "start", "bulkhead.socket")
    out = as_alice(CLIENT, "--json", "run", "demo", "Tell me a story.", "--max-tokens", "8")
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["event"] == "done", events[-1:]
    assert as_alice("systemctl", "--user", "show", "--property=ActiveState", "--value", "bulkhead.service") == "active"
    as_alice("systemctl", "--user", "stop", "bulkhead.socket", "bulkhead.service")
    until("the user's service has ended", lambda: as_alice("systemctl", "--user", "is-active", "bulkhead.service",
                                                           check=False) == "inactive")
    sh("systemctl", "stop", f"user@{uid}.service")
    return "a user's own socket started that user's daemon, which generated and stopped"
