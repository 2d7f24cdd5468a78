#!/usr/bin/python3
"""Checks docs/model/allocation.pml with spin: that every run of it holds to its assertions and comes to its end, that no
run is endless, and that each mutant fails. Usage: check.py names-program working-directory
"""

import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTANTS = {
    1: "a charge retired with the signal",
    2: "an answer before the end",
    3: "a late kill's charge given up",
    4: "a cancelled request forgotten with its worker",
    5: "work for a worker that is leaving",
    6: "a shutdown that leaves those who wait",
}


def run(command, directory, **options):
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def verify(work, name, spin=(), c=(), pan=(), optimise="-O2"):
    """Errors found, and spin's report."""
    directory = work / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for file in (ROOT / "docs" / "model" / "allocation.pml", work / "names.pml"):
        shutil.copy(file, directory)
    run(["spin", "-a", *spin, "allocation.pml"], directory)
    run(["gcc", optimise, "-w", "-DCOLLAPSE", "-DMEMLIM=1900", *c, "-o", "pan", "pan.c"], directory)
    started = time.monotonic()
    report = run(["./pan", "-m100000", *pan], directory)
    if "Search not completed" in report and "errors: 0" in report:
        sys.exit(f"{name}: the search was not exhaustive\n{report}")
    errors = int(re.search(r"errors: (\d+)", report).group(1))
    states = re.search(r"^\s*([\d.e+]+) states, stored", report, re.M).group(1)
    memory = re.search(r"([\d.]+)\s+total actual memory", report).group(1)
    print(f"model: {name}: {errors} errors, {states} states, {memory} MB, {time.monotonic() - started:.1f} s", flush=True)
    return errors, report, directory


def main():
    names, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    work.mkdir(parents=True, exist_ok=True)
    (work / "names.pml").write_text(run([names], work))
    wrong = []
    errors, report, directory = verify(work, "safety", c=["-DSAFETY"])
    if errors:
        wrong.append("the model fails")
        print(report, run(["spin", "-t", "-p", "-g", "-l", "allocation.pml"], directory)[-6000:])
    # Without progress labels every cycle is one without progress: none means that every run ends.
    errors, report, _ = verify(work, "endings", spin=["-DCRASHES=1"], c=["-DNP"], pan=["-l"])
    if errors:
        wrong.append("a run is endless")
        print(report)
    for mutant, what in MUTANTS.items():
        errors, _, _ = verify(work, f"mutant {mutant} ({what})", spin=[f"-DMUTANT={mutant}"], c=["-DSAFETY"],
                              optimise="-O0")
        if not errors:
            wrong.append(f"mutant {mutant} was not found")
    for line in wrong:
        print(f"model: FAILED: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
