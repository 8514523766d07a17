#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a run of the tests took:

    results.py DIRECTORY

Reads TIER.jsonl, a test each with its name, result and seconds (from run.py, or meson's testlog.json), and tiers.jsonl,
what each tier took. Writes junit.xml beside them, and prints the ten slowest tests, the seconds of the CPU by tier, and
last, as some logs are kept from their end only, those that failed."""

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

SLOWEST = 10
FAILED_MAX = 40
MESSAGE_MAX = 200
# In the words of run.py, and of meson
PASSED = {"ok", "OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}
# What meson has run is not skipped in the lab, which has all that it needs
MESON = {"unit", "sanitizers"}
# What a line of the output of a test in C or Python has that says why it failed
REASON = re.compile("assert|error|fail|panic|timeout", re.IGNORECASE)


def read(path):
    """A line that was cut off, as the machine was that wrote it, is none."""
    values = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values.append(json.loads(line))
        except ValueError:
            pass
    return values


def said(test):
    """What it wrote, without what XML cannot have."""
    return "".join(c for c in test.get("output") or test.get("stdout") or "" if c.isprintable() or c in "\n\t")


def has_failed(tier, test):
    return test["result"] not in (PASSED if tier in MESON else PASSED | SKIPPED)


def message(tier, test):
    """The line that says why it failed: run.py has it first."""
    lines = [line.strip() for line in said(test).splitlines() if line.strip()] or [test["result"]]
    if tier not in MESON:
        return lines[0]
    return next((line for line in lines if REASON.search(line)), lines[-1])


def junit(tiers):
    root = ET.Element("testsuites")
    for tier, tests in tiers.items():
        failed = [t for t in tests if has_failed(tier, t)]
        skipped = [t for t in tests if t["result"] in SKIPPED and t not in failed]
        suite = ET.SubElement(root, "testsuite", name=tier, tests=str(len(tests)), failures=str(len(failed)),
                              skipped=str(len(skipped)), time=f"{sum(seconds(t) for t in tests):.3f}")
        for t in tests:
            case = ET.SubElement(suite, "testcase", classname=tier, name=t["name"], time=f"{seconds(t):.3f}")
            if t in failed:
                ET.SubElement(case, "failure", message=message(tier, t)).text = said(t)
            elif t in skipped:
                ET.SubElement(case, "skipped", message=said(t).strip().partition("\n")[0])
    return ET.ElementTree(root)


def seconds(test):
    return test.get("seconds", test.get("duration", 0))


def print_failed(lines):
    if lines:
        print("Failed:")
    for line in lines[:FAILED_MAX]:
        print(f"  {line}")
    if len(lines) > FAILED_MAX:
        print(f"  and {len(lines) - FAILED_MAX} others")


def main():
    directory = Path(sys.argv[1])
    tiers = {p.stem: read(p) for p in sorted(directory.glob("*.jsonl")) if p.stem != "tiers"}
    junit(tiers).write(directory / "junit.xml", encoding="utf-8", xml_declaration=True)

    slowest = sorted(((seconds(t), tier, t) for tier, tests in tiers.items() for t in tests), key=lambda s: -s[0])
    if slowest:
        print("Slowest tests:")
    for s, tier, t in slowest[:SLOWEST]:
        cpu = f"  {t['cpu']:6.1f} s of the CPU" if "cpu" in t else ""
        print(f"  {s:6.1f} s  {tier} {t['name']}{cpu}")
    if (path := directory / "tiers.jsonl").exists() and (took := read(path)):
        print("Seconds, and seconds of the CPU, by tier:")
        for t in took:
            print(f"  {t['seconds']:6.0f} s {t['cpu']:6.0f} s  {t['tier']}")
        print(f"         {sum(t['cpu'] for t in took):9.0f} s  all")

    print_failed([f"{tier} {t['name']}: {message(tier, t)[:MESSAGE_MAX]}"
                  for tier, tests in tiers.items() for t in tests if has_failed(tier, t)])


main()
