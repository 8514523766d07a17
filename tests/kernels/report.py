#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Checks the output of tests/kernels/init.c on some kernels, one file each:

    report.py [--document FILE] [--baseline FILE [--update]] OUTPUT...

Prints a table of programs and kernels, programs that exceed a limit, and how many passed. A program passes on a kernel
that loads it within the limits below. --document: also writes the table between the two marks in FILE. --baseline: FILE
has the instructions of each program on some series of kernels ("6.12", "6.12-rt"), and a program that takes a tenth
more fails.
--update: writes the figures of these kernels to FILE instead of comparing them."""

import argparse
import re
import sys

# Half a second on real CPUs, and a third of the kernel's limit: the number changes with each release of the kernel
INSTRUCTIONS_MAX = 300_000
# An attach must not bring down a small machine
MEMORY_MAX_KIB = 512 * 1024
# Growth beyond the baseline: point releases and compilers change less than a tenth, or for small programs less than
# this number
GROWTH_MAX = 0.10
GROWTH_MIN = 200
# Minimum number of instructions of programs in the table of the document
SHOWN_MIN = 20_000

BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


class Program:
    def __init__(self, verdict, instructions, states, memory, message):
        self.verdict = verdict
        self.instructions = int(instructions)
        self.states = int(states)
        self.memory = int(memory)
        self.message = message

    @property
    def problem(self):
        if self.verdict == "refused":
            return f"refused: {self.message or 'no reason given'}"
        if self.instructions == 0:
            return "loaded, but the kernel does not report the number of verified instructions"
        if self.instructions > INSTRUCTIONS_MAX:
            return f"{self.instructions} verified instructions, at most {INSTRUCTIONS_MAX} are allowed"
        if self.memory > MEMORY_MAX_KIB:
            return f"{self.memory // 1024} MiB while verifying, at most {MEMORY_MAX_KIB // 1024} MiB are allowed"
        return None


class Kernel:
    def __init__(self, path):
        self.release = None
        self.programs = {}
        self.checks = {}
        self.error = f"the machine ended early, {path} has its console"
        with open(path, errors="replace") as f:
            for line in f:
                line = line.strip()
                if m := re.fullmatch(r"kernel (\S+)", line):
                    self.release = m[1]
                elif m := re.fullmatch(r"program (\w+) (attached|loaded|refused) (\d+) (\d+) (\d+) ?(.*)", line):
                    self.programs[m[1]] = Program(*m.groups()[1:])
                elif m := re.fullmatch(r"check (\w+) (.+)", line):
                    self.checks[m[1]] = m[2]
                elif line == "end":
                    self.error = None
        if self.release is None:
            self.release = path

    @property
    def name(self):
        return re.sub(r"\+deb\d+|-?(cloud-)?amd64$", "", self.release)

    @property
    def series(self):
        m = re.match(r"(\d+\.\d+)[^-]*(-rt)?", self.name)
        return m[1] + (m[2] or "") if m else self.name


def baseline_read(path):
    """series -> program -> instructions"""
    baseline = {}
    with open(path) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                series, name, instructions = line.split()
                baseline.setdefault(series, {})[name] = int(instructions)
    return baseline


def baseline_write(path, kernels):
    with open(path) as f:
        head = [line for line in f if line.startswith("#")]
    baseline = baseline_read(path)
    for k in kernels:
        if not k.error:
            baseline[k.series] = {name: p.instructions for name, p in k.programs.items()}
    with open(path, "w") as f:
        f.writelines(head)
        for series in sorted(baseline, key=lambda s: ([int(n) for n in re.findall(r"\d+", s)], s)):
            f.writelines(f"{series} {name} {n}\n" for name, n in sorted(baseline[series].items()))


def growth(k, baseline):
    """Returns the problems of the programs of a kernel in comparison with its baseline, by name."""
    before = baseline.get(k.series)
    if k.error or before is None:
        return {}
    wrong = {name: "in the baseline, but there is no such program" for name in before.keys() - k.programs.keys()}
    for name, p in k.programs.items():
        if name not in before:
            wrong[name] = "not in the baseline"
        elif p.instructions > before[name] * (1 + GROWTH_MAX) and p.instructions > before[name] + GROWTH_MIN:
            wrong[name] = f"{p.instructions} verified instructions, {before[name]} in the baseline"
    return wrong


def cell(program):
    if program is None:
        return "missing"
    if program.verdict == "refused":
        return "refused"
    return f"{program.instructions / 1000:.0f} k ({program.states})"


def table(kernels, names):
    yield "| program | " + " | ".join(k.name for k in kernels) + " |"
    yield "|---|" + "---|" * len(kernels)
    for name in names:
        yield f"| {name} | " + " | ".join(cell(k.programs.get(name)) for k in kernels) + " |"
    yield "| most memory while verifying | " + " | ".join(
        f"{max((p.memory for p in k.programs.values()), default=0) / 1024:.0f} MiB" for k in kernels) + " |"
    yield "| programs taken | " + " | ".join(
        f"{sum(p.verdict != 'refused' for p in k.programs.values())} of {len(k.programs)}" for k in kernels) + " |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--document")
    parser.add_argument("--baseline")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("output", nargs="+")
    args = parser.parse_args()

    kernels = [Kernel(path) for path in args.output]
    largest = {}
    for k in kernels:
        for name, p in k.programs.items():
            largest[name] = max(largest.get(name, 0), p.instructions)
    ordered = sorted(largest, key=lambda n: (-largest[n], n))
    rows = list(table(kernels, [n for n in ordered if largest[n] >= SHOWN_MIN or
                                any(n not in k.programs or k.programs[n].problem for k in kernels)]))
    print("\n".join(rows))

    if args.update:
        baseline_write(args.baseline, kernels)
    baseline = baseline_read(args.baseline) if args.baseline else {}
    passed = failed = 0
    for k in kernels:
        if args.baseline and k.series not in baseline:
            print(f"{k.name}: Linux {k.series} is not in the baseline, nothing is compared")
        grown = growth(k, baseline)
        if k.error:
            print(f"{k.name}: {k.error}")
            failed += 1
        for name, result in k.checks.items():
            if result == "passed":
                passed += 1
            else:
                print(f"{k.name}: {name}: {result}")
                failed += 1
        for name in ordered + sorted(grown.keys() - largest.keys()):
            problem = k.programs[name].problem if name in k.programs else None
            problem = problem or grown.get(name) or ("not tried" if name not in k.programs and not k.error else None)
            if problem:
                print(f"{k.name}: {name}: {problem}")
                failed += 1
            elif name in k.programs:
                passed += 1

    if args.document:
        with open(args.document) as f:
            text = f.read()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        with open(args.document, "w") as f:
            f.write(before + BEGIN + "\n".join(rows) + "\n" + END + after)

    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0 or passed == 0)


if __name__ == "__main__":
    main()
