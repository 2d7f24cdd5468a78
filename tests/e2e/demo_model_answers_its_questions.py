"""The demo model answers at least 38 of its 40 questions exactly, greedily, through the daemon."""

import sys

from harness import ROOT, Daemon, check

sys.path.insert(0, str(ROOT / "tools" / "demo_model"))
from questions import QUESTIONS  # noqa: E402

check(len(QUESTIONS) == 40, len(QUESTIONS), "questions")
with Daemon() as daemon:
    wrong = {}
    for phrasings, answer in QUESTIONS:
        got = daemon.ok("run", "tale", phrasings[0], "--temperature", "0", "--no-stream").out.strip()
        if got != answer:
            wrong[phrasings[0]] = got
    check(len(wrong) <= 2, wrong)
