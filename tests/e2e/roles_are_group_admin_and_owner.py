"""Who is in the socket's group may generate and control what is his; nobody else may; an operator's verbs need the admin
group, root or the daemon's own user. Shown by real users."""

import os
from harness import ALICE, AS_ROOT, BOB, DAEMON_UID, GROUP, Daemon, Stream, check, eventually

ADMINS, STRANGER, OPERATOR = 54390, 54324, 54325

if not AS_ROOT:
    print("SKIP: [not-root] changing users needs root")
else:
    with Daemon(f'[access]\nadmin_group = "{ADMINS}"\n') as daemon:
        check(os.stat(daemon.socket).st_mode & 0o777 == 0o660 and os.stat(daemon.socket).st_gid == GROUP, "the socket")

        # A member of the group, by primary or supplementary group, generates; others cannot even connect.
        words = ("--json", "run", "tale", "Once", "--raw", "--max-tokens", "3")
        check(daemon.run(*words, uid=ALICE).code == 0, "a member could not generate")
        check(daemon.run(*words, uid=BOB, group=BOB, groups=(GROUP,)).code == 0, "a supplementary member could not")
        stranger = daemon.run(*words, uid=STRANGER, group=STRANGER)
        check(stranger.code == 8 and stranger.reply["reason"] == "PERMISSION_DENIED", stranger.out, stranger.err)

        # The operator's verbs.
        operator = {"uid": OPERATOR, "groups": (GROUP, ADMINS)}
        stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "2000", "--ignore-eos", uid=ALICE)
        stream.until("delta")
        verbs = [("policy", "set", "queue.wait=90s"), ("release", "tale"), ("release-idle", "--idle-for", "1h"),
                 ("unblock", "tale"), ("load", "tale", "--pin"), ("terminate", stream.inference_id)]
        for verb in verbs:
            denied = daemon.run("--json", *verb, uid=BOB)
            check(denied.code == 8 and denied.reply["reason"] == "PERMISSION_DENIED", verb, denied.out, denied.err)
            check(str(BOB) in denied.reply["message"], denied.reply)
        stream.until("delta", 2)
        for verb in verbs:
            allowed = daemon.run("--json", *verb, **operator)
            check(allowed.code == 0, "the operator's", verb, allowed.code, allowed.out, allowed.err)
        check(stream.finish().code != 0, "the operator's terminate ended nothing")
        check(daemon.run("policy", "set", "queue.wait=91s", uid=DAEMON_UID).code == 0, "the daemon's own user")
        check(daemon.run("policy", "set", "queue.wait=92s", uid=0).code == 0, "root")
        got = daemon.json("policy", "get", "queue.wait", uid=BOB)["values"]
        check(got == [{"name": "queue.wait", "value": "92s", "origin": "runtime uid 0", "source": "runtime"}], got)

        # The owner, from another connection.
        mine = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "2000", "--ignore-eos", uid=ALICE)
        mine.until("delta")
        listed = daemon.json("ps", "--requests", uid=BOB)["requests"]
        check(listed == [], "another's request is shown:", listed)
        check(daemon.run("cancel", mine.inference_id, uid=BOB).code == 8, "bob cancelled alice's")
        check(daemon.run("cancel", mine.inference_id, uid=ALICE).code == 0, "alice could not cancel her own")
        mine.finish()
        mine = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "2000", "--ignore-eos", uid=ALICE)
        mine.until("delta")
        check(daemon.run("terminate", mine.inference_id, uid=ALICE).code == 0, "alice could not terminate her own")
        mine.finish()
        eventually(lambda: daemon.model("slow") is None, "the terminated worker to be gone")
