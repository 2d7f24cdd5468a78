"""A restart in mid-stream leaves the streams on record to the next daemon, whose tokens are those of an undisturbed run; a
request that wants no resumption is told of the stop instead."""

from descriptor_store import StoredDaemon
from harness import Stream, check, eventually

WORDS = ("slow", "Once upon a time", "--raw", "--max-tokens", "200", "--ignore-eos", "--seed", "11")

with StoredDaemon('[deadlines]\ndrain = "100ms"\n') as daemon:
    undisturbed = daemon.ok("--json", "run", *WORDS)
    streams = [Stream(daemon, *WORDS) for _ in range(2)]
    failing = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "3000", "--ignore-eos", "--on-worker-death", "fail")
    for stream in (*streams, failing):
        stream.until("delta", 10)
    check(daemon.restart() == 0, "the daemon did not end in order")
    for stream in streams:
        end = stream.finish()
        check(end.code == 0 and end.ids == undisturbed.ids and end.text == undisturbed.text, end.code, end.out[-300:], end.err)
        check([event["exact"] for event in end.events if event["event"] == "resumed"] == [True], end.events[-3:])
    end = failing.finish()
    check(end.events[-1]["event"] in ("error", "done") and len(end.ids) < 3000, end.events[-1])
    daemon.ok("release", "slow")
    eventually(lambda: not daemon.workers(), "no worker to be left")
