"""`preflight` gives a verdict and the lines it was reckoned from, loads nothing, and exits 3 where it would not fit."""

from harness import Daemon, check

with Daemon() as daemon:
    fits = daemon.json("preflight", "slow", "--context", "1024", "--sequences", "2")
    check(fits["verdict"] == "ALLOWED" and fits["context"] == 1024 and fits["sequences"] == 2, fits)
    check(len(fits["lines"]) >= 3 and all(isinstance(line["bytes"], int) for line in fits["lines"]), fits)
    check(daemon.workers() == [], "preflight loaded the model")
with Daemon('[budget]\nprofile = "custom"\nbytes = "1 MiB"\n') as daemon:
    result = daemon.run("--json", "preflight", "slow")
    check(result.code == 3 and result.reply["verdict"] == "EXCEEDS_CEILING", result.code, result.out)
    result = daemon.run("--json", "run", "slow", "x", "--raw")
    check(result.code == 3 and result.reply["reason"] == "EXCEEDS_CEILING", result.code, result.out)
    check("try: bulkhead" in result.err, result.err)
