"""One user may neither terminate, cancel, attach to nor release what is another's; exit 8 or 4, and the stream goes on."""

from harness import ALICE, AS_ROOT, BOB, Daemon, Stream, check

if not AS_ROOT:
    print("SKIP: [not-root] changing users needs root")
else:
    with Daemon() as daemon:
        stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "300", "--ignore-eos", uid=ALICE)
        stream.until("delta")
        for verb in ("terminate", "cancel"):
            result = daemon.run("--json", verb, stream.inference_id, uid=BOB)
            check(result.code in (4, 8), verb, "exit", result.code, result.out, result.err)
        check(daemon.run("release", "slow", uid=BOB).code == 8, "bob released")
        stream.until("delta", 3)
        check(daemon.run("cancel", stream.inference_id, uid=ALICE).code == 0, "alice cannot cancel her own")
        stream.finish()
