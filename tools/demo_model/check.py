#!/usr/bin/python3
"""Asks the demo model through a running daemon: 40 questions, answered exactly at temperature 0 (95 % must be), and 20
sampled stories, which must follow the corpus's grammar (90 % must). Needs no torch."""

import argparse
import json
import subprocess
import sys

import grammar
from questions import QUESTIONS


def ask(options, prompt, *flags):
    """The answer's text, or an error's message in angle brackets."""
    out = subprocess.run([options.bulkhead, "--socket", options.socket, "--json", "run", options.model, prompt, *flags],
                         capture_output=True, text=True, timeout=60)
    events = [json.loads(line) for line in out.stdout.splitlines() if line.strip()]
    failed = [event for event in events if event.get("event") == "error"]
    if failed or out.returncode:
        return f"<{failed[0]['message'] if failed else out.stderr}>"
    return "".join(event["text"] for event in events if event.get("event") == "delta")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bulkhead", default="bulkhead")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--model", default="demo")
    options = parser.parse_args()

    right = 0
    for phrasings, answer in QUESTIONS:
        got = ask(options, phrasings[0], "--temperature", "0", "--max-tokens", "100")
        right += got == answer
        if got != answer:
            print(f"asked {phrasings[0]!r}: got {got!r}, not {answer!r}")
    good = 0
    for seed in range(20):
        story = ask(options, grammar.REQUESTS[seed % 3], "--seed", str(seed))
        good += grammar.parses(story)
        if not grammar.parses(story):
            print(f"seed {seed} does not parse: {story}")
    print(f"{right} of {len(QUESTIONS)} questions answered exactly, {good} of 20 stories parse")
    return 0 if right >= 0.95 * len(QUESTIONS) and good >= 18 else 1


if __name__ == "__main__":
    sys.exit(main())
