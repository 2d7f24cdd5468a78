"""Of 20 stories that the demo model tells, sampled with seeds, at least 18 follow the grammar of its corpus."""

import sys

from harness import ROOT, Daemon, check

sys.path.insert(0, str(ROOT / "tools" / "demo_model"))
import grammar  # noqa: E402

with Daemon() as daemon:
    astray = {}
    for seed in range(20):
        story = daemon.ok("run", "tale", grammar.REQUESTS[seed % len(grammar.REQUESTS)], "--seed", str(seed), "--no-stream").out
        if not grammar.parses(story.removesuffix("\n")):
            astray[seed] = story
    check(len(astray) <= 2, astray)
