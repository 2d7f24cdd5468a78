"""Who may do what: told by the uid and the groups of the process that connects."""

from common import client_as, sh

PERMISSION_DENIED, UNREACHABLE = 8, 7


def step_users():
    sh("useradd", "--create-home", "--groups", "bulkhead", "alice")
    sh("useradd", "--create-home", "bob")
    sh("useradd", "--create-home", "--groups", "bulkhead,bulkhead-admin", "carol")
    return "alice in the group bulkhead, bob in none, carol in bulkhead and bulkhead-admin"


def step_member_generates():
    code, events = client_as("alice", "run", "demo", "Tell me a story.", "--max-tokens", "8")
    assert code == 0 and events[-1]["event"] == "done", (code, events[-1:])
    return "a member of the group generates"


def step_stranger_is_refused():
    code, events = client_as("bob", "run", "demo", "Tell me a story.")
    assert code in (PERMISSION_DENIED, UNREACHABLE) and events[-1]["event"] == "error", (code, events)
    return f"anybody else does not: {events[-1]['message']}"


def step_operator_needs_the_group():
    code, events = client_as("alice", "release", "--all")
    assert code == PERMISSION_DENIED, (code, events)
    refused = events[-1]["message"]
    code, events = client_as("carol", "release", "--all")
    assert code == 0, (code, events)
    return f"a member may not release ({refused}), a member of the admin group may"
