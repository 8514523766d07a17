#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Judges what tests/kernels/init.c has reported of some kernels, one file each:

    report.py [--document FILE] OUTPUT...

Prints a table of programs and kernels, what is beyond a limit, and how many passed. A program passes on a kernel that
takes it within the limits below. --document: also writes the table between the two marks in FILE."""

import argparse
import re
import sys

# Half a second natively, and a third of what the kernel allows: each release of the kernel moves the figure
INSTRUCTIONS_MAX = 300_000
# An attach must not bring down a small machine
MEMORY_MAX_KIB = 512 * 1024
# Of the programs in the table of the document
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
            return "loaded, but the kernel does not tell what was verified"
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

    passed = failed = 0
    for k in kernels:
        if k.error:
            print(f"{k.name}: {k.error}")
            failed += 1
        for name, result in k.checks.items():
            if result == "passed":
                passed += 1
            else:
                print(f"{k.name}: {name}: {result}")
                failed += 1
        for name in ordered:
            problem = k.programs[name].problem if name in k.programs else None if k.error else "not tried"
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
