"""When `release` says so, the process is gone and its charge is retired; the next request gets another allocation."""

from harness import Daemon, alive, check

with Daemon() as daemon:
    daemon.ok("run", "tale", "Once", "--raw", "--max-tokens", "5")
    before = daemon.model("tale")
    reply = daemon.json("release", "tale")
    check(not alive(before["pid"]), "the process lives after release")
    check(reply["released"] == ["tale"], reply)
    after = daemon.json("ps")
    check(after["models"] == [] and after["budget"]["charged_bytes"] == 0, after)
    check(daemon.json("release", "tale")["released"] == [], "released twice")
    daemon.ok("run", "tale", "Once", "--raw", "--max-tokens", "5")
    check(daemon.model("tale")["allocation_id"] != before["allocation_id"], "an allocation id was used twice")
