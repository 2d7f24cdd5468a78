"""A request without a seed gets one, is told it, and the same request with that seed gives the same tokens."""

from harness import Daemon, check

with Daemon() as daemon:
    first = daemon.ok("--json", "run", "tale", "Once", "--raw", "--max-tokens", "30", "--temperature", "1.1")
    seed = next(event for event in first.events if event["event"] == "started")["seed"]
    again = daemon.ok("--json", "run", "tale", "Once", "--raw", "--max-tokens", "30", "--temperature", "1.1", "--seed",
                      str(seed))
    check(first.ids == again.ids, "tokens differ:", first.ids, again.ids)
