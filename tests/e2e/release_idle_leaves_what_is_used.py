"""`release --idle` takes what has been idle that long, not what is busy or was used since."""

from harness import Daemon, Stream, alive, check

with Daemon() as daemon:
    daemon.ok("run", "tale", "Once", "--raw", "--max-tokens", "3")
    stream = Stream(daemon, "slow", "Once", "--raw", "--max-tokens", "600", "--ignore-eos")
    stream.until("delta")
    check(daemon.json("release", "--idle=10m")["released"] == [], "released what was used just now")
    idle = daemon.model("tale")["pid"]
    check(daemon.json("release-idle", "--idle-for", "0s")["released"] == ["tale"], "did not release what was idle")
    check(not alive(idle), "the idle worker lives")
    check(daemon.model("slow")["in_flight"] == 1, "the busy worker was touched")
    daemon.ok("cancel", stream.inference_id)
    stream.finish()
