#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures how often diagnoses are right: runs each of the cases of tests/scenarios/test_diagnose*.py, test_failures.py
and test_healthy.py several times, and compares the first finding with what the unit suffers from. A test repeats a
diagnosis if the machine was busy; here the first one counts.

This is a separate program, because tests and benchmarks have modules of the same names."""

import argparse
import contextlib
import fnmatch
import json
import os
import sys

sys.dont_write_bytecode = True
SCENARIOS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scenarios")
sys.path.insert(0, SCENARIOS)

import diagnosing  # noqa: E402
import running  # noqa: E402
import scenario  # noqa: E402
import tables  # noqa: E402
# These have cases
import test_diagnose  # noqa: E402, F401
import test_diagnose_locks  # noqa: E402, F401
import test_diagnose_mounts  # noqa: E402, F401
import test_diagnose_network  # noqa: E402, F401
import test_failures  # noqa: E402, F401
import test_healthy  # noqa: E402, F401

RUNS = 3      # 20 for the table in docs/bench


def once(case):
    """Runs a scenario, in a process of its own. Returns the diagnosis, right or wrong."""
    kept = {}

    def look(unit, *options):
        kept["reply"] = diagnosing.diagnose(unit, *options, status=None)
        return kept["reply"]
    try:
        case.run(look)
        kept["right"] = True
    except (scenario.Failed, LookupError) as e:
        kept["right"], kept["why"] = False, (str(e) if isinstance(e, scenario.Failed) else repr(e)).split(": {")[0]
    return kept


def result(case, number, kept, said):
    kept = kept or {}
    reply = kept.get("reply")
    if reply:
        reply.pop("excluded", None)
    kinds = sorted(f["kind"] for f in reply["findings"]) if reply else []
    return {"scenario": case.name, "suffers": sorted(case.kinds), "run": number, "right": kept.get("right", False),
            "said": kinds or [reply["verdict"] if reply else "failed"], "truth": case.truth,
            "verdict": reply["findings"][0]["kind"] if kinds else reply["verdict"] if reply else "failed",
            # Less than half of the CPU time was idle: a finding about other users of the CPUs is right then
            "noise": bool(reply) and bool(diagnosing.noise(reply)),
            "why": kept.get("why") or "".join(said.splitlines()[:1]),
            "reply": reply}


def run(runs, say, globs=()):
    """Runs all scenarios in each round, so that other load on the machine affects all of them. In the virtual machine
    these are the ones that need it."""
    cases = [c for c in diagnosing.CASES
             if bool(c.needs_vm) == scenario.in_vm and (not globs or any(fnmatch.fnmatch(c.name, g) for g in globs))]
    results = []
    # After SIGINT, the results so far are printed
    with running.tools(), contextlib.suppress(KeyboardInterrupt), running.programs_loaded():
        for number in range(runs):
            for case in cases:
                job = running.Job(case.name, lambda c=case: once(c), case.deadline)
                for _, kept, said in running.run_some([job], 1):
                    results.append(result(case, number, kept, said))
                    say(results[-1])
    return results


def say(r):
    print(f"  {r['scenario']}: {', '.join(r['said'])}{'' if r['right'] else ' (wrong: ' + str(r['why']) + ')'}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N")
    parser.add_argument("--output", metavar="DIR", help="where the raw data goes")
    parser.add_argument("--vm", action="store_true", help="this is the virtual machine")
    parser.add_argument("globs", nargs="*", metavar="GLOB")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error(f"--runs: {args.runs} is not 1 or more")
    scenario.in_vm = args.vm
    results = run(args.runs, say, args.globs)
    if args.output:
        os.makedirs(f"{args.output}/raw", exist_ok=True)
        with open(f"{args.output}/raw/diagnosis.jsonl", "w") as f:
            for r in results:
                f.write(json.dumps(r) + "\n")
    print(tables.confusion_table(results))
    print()
    print(tables.diagnosis_table(results))


if __name__ == "__main__":
    main()
