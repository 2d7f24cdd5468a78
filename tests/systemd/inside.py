#!/usr/bin/python3
"""Runs inside the container, as root: the units' behaviour, one step after the other. Prints what it saw."""

import sys
import time

import steps_access
import steps_deaths
import steps_service
import steps_user
from common import sh

STEPS = (
    steps_service.step_activation,
    steps_service.step_generate,
    steps_service.step_own_user,
    steps_service.step_exposure,
    steps_service.step_reload,
    steps_access.step_users,
    steps_access.step_member_generates,
    steps_access.step_stranger_is_refused,
    steps_access.step_operator_needs_the_group,
    steps_deaths.step_worker_killed,
    steps_deaths.step_worker_crashes,
    steps_deaths.step_worker_breaks_its_sandbox,
    steps_deaths.step_worker_out_of_memory,
    steps_service.step_journal,
    steps_deaths.step_daemon_killed,
    steps_deaths.step_daemon_restarted,
    steps_deaths.step_loop_wedged,
    steps_service.step_timer,
    steps_user.step_user_units,
    steps_service.step_stop,
)


def main():
    failed = 0
    for step in STEPS:
        started = time.monotonic()
        name = step.__name__[5:]
        try:
            print(f"{name}: {step()} ({time.monotonic() - started:.1f} s)", flush=True)
        except Exception as error:  # whatever it is, the journal is what explains it
            print(f"{name} FAILED: {error!r}")
            print(sh("journalctl", "--no-pager", "-n", "40", "-u", "bulkhead.service", "-u", "bulkhead.socket",
                     "-u", "bulkhead-release-idle.service", "-u", "user@*", check=False), flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
