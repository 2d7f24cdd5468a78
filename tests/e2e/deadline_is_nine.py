"""--timeout ends a generation with exit 9; the worker lives and serves on."""

import time
from harness import Daemon, check

with Daemon() as daemon:
    daemon.ok("load", "slow")
    started = time.monotonic()
    result = daemon.run("--json", "run", "slow", "Once", "--raw", "--ignore-eos", "--max-tokens", "3000", "--timeout",
                        "500ms")
    took = time.monotonic() - started
    check(result.code == 9, "exit", result.code, result.out[-500:], result.err)
    check(0.4 < took < 3, "took", took)
    daemon.ok("run", "slow", "Once", "--raw", "--max-tokens", "3")
