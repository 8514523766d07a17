#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a run of the tests took:

    results.py DIRECTORY

Reads TIER.jsonl, a test each with its name, result and seconds (from run.py, or meson's testlog.json), and tiers.jsonl, what each tier
took. Writes junit.xml beside them, and prints the tests that failed and passed when they ran again, the ten slowest, and the seconds of the
CPU by tier."""

import json
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

SLOWEST = 10
# In the words of run.py, and of meson
PASSED = {"ok", "OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP-VM", "SKIP"}


def read(path):
    """A line that was cut off, as the machine was that wrote it, is none."""
    values = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values.append(json.loads(line))
        except ValueError:
            pass
    return values


def junit(tiers):
    root = ET.Element("testsuites")
    for tier, tests in tiers.items():
        failed = [t for t in tests if t["result"] not in PASSED | SKIPPED]
        suite = ET.SubElement(root, "testsuite", name=tier, tests=str(len(tests)), failures=str(len(failed)),
                              skipped=str(sum(t["result"] in SKIPPED for t in tests)), time=f"{sum(seconds(t) for t in tests):.3f}")
        for t in tests:
            case = ET.SubElement(suite, "testcase", classname=tier, name=t["name"], time=f"{seconds(t):.3f}")
            # What XML cannot have is left out
            said = "".join(c for c in t.get("output") or t.get("stdout") or "" if c.isprintable() or c in "\n\t")
            if t["result"] in SKIPPED:
                ET.SubElement(case, "skipped", message=said.strip().partition("\n")[0])
            elif t in failed:
                ET.SubElement(case, "failure", message=said.strip().partition("\n")[0] or t["result"]).text = said
    return ET.ElementTree(root)


def seconds(test):
    return test.get("seconds", test.get("duration", 0))


def main():
    directory = Path(sys.argv[1])
    tiers = {p.stem: read(p) for p in sorted(directory.glob("*.jsonl")) if p.stem != "tiers"}
    junit(tiers).write(directory / "junit.xml", encoding="utf-8", xml_declaration=True)

    for tier, tests in tiers.items():
        failed, passed = ([t["name"] for t in tests if (t["result"] in PASSED) == right] for right in (False, True))
        for name in failed:
            if name in passed:
                print(f"Failed, and passed when it ran again: {tier} {name}")

    slowest = sorted(((seconds(t), tier, t) for tier, tests in tiers.items() for t in tests), key=lambda s: -s[0])[:SLOWEST]
    if slowest:
        print("Slowest tests:")
    for s, tier, t in slowest:
        cpu = f"  {t['cpu']:6.1f} s of the CPU" if "cpu" in t else ""
        print(f"  {s:6.1f} s  {tier} {t['name']}{cpu}")
    if (path := directory / "tiers.jsonl").exists() and (took := read(path)):
        print("Seconds, and seconds of the CPU, by tier:")
        for t in took:
            print(f"  {t['seconds']:6.0f} s {t['cpu']:6.0f} s  {t['tier']}")
        print(f"         {sum(t['cpu'] for t in took):9.0f} s  all")


main()
