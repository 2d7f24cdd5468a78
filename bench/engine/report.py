"""Medians and spread of bench/run's results. Usage: report.py RESULTS.jsonl"""
import json
import statistics
import sys

FIELDS = ("read_gb_s", "int8_gop_s", "decode", "decode_share", "decode8", "prefill", "prefill_share")


def spread(values):
    return f"{statistics.median(values):9.3f} ({min(values):.3f}..{max(values):.3f})"


def main(path):
    groups = {}
    notes = set()
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            result = json.loads(line)
            if "features" in result:
                notes.add(f"llama.cpp {result['release']}: {result['features']}")
                continue
            if "int8_how" in result:
                notes.add(f"bulkhead tier {result['tier']}; int8 peak by {result['int8_how']}")
            key = (result["model"], result["threads"], result["engine"])
            groups.setdefault(key, []).append(result)
    for note in sorted(notes):
        print(note)
    for (model, threads, engine), results in sorted(groups.items()):
        print(f"\n{model}, {threads} thread(s), {engine}, {len(results)} runs: median (least..most)")
        for field in FIELDS:
            values = [result[field] for result in results if field in result]
            if values:
                print(f"  {field:14} {spread(values)}")
    for (model, threads, engine), results in sorted(groups.items()):
        peer = groups.get((model, threads, "llama.cpp"))
        if engine != "bulkhead" or not peer:
            continue
        for field in ("decode", "prefill"):
            ours = statistics.median(result[field] for result in results)
            theirs = statistics.median(result[field] for result in peer)
            print(f"\n{model}, {threads} thread(s), {field}: {ours / theirs:.2f} times llama.cpp", end="")
    print()


main(sys.argv[1])
