#!/usr/bin/python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tries whether tests notice what mutations.py changes: one build has all changes, and QOSD_MUTANT= selects one."""

import argparse
import fnmatch
import os
import re
import shutil
import subprocess
import sys

from mutations import MUTATIONS

SOURCE = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))

# Programs in the kernel have no environment: they are as they were
HEADER = """#pragma once
#ifdef __bpf__
#define qosd_mutant(n) 0
#else
#include <stdlib.h>
static inline int qosd_mutant(int n) {
        const char *s = getenv("QOSD_MUTANT");

        return s && atoi(s) == n;
}
#endif
"""

# Of the sources themselves, which the changes do not keep to
SOURCE_TESTS = {"test-columns", "test-mutations", "test-vocabulary"}

# Of all tests with one mutation, most of which fail early; minutes
LIMIT = 10


def complaints():
    """What is wrong with the list."""
    for m in MUTATIONS:
        with open(os.path.join(SOURCE, m.file), encoding="utf-8") as f:
            n = f.read().count(m.old)
        if n != 1:
            yield f"{m.name}: the text is {n} times in {m.file}, expected once: {m.old!r}"
        if "MUTANT" not in m.new:
            yield f"{m.name}: there is no MUTANT in {m.new!r}"
    names = [m.name for m in MUTATIONS]
    yield from (f"{name}: the name is there twice" for name in sorted({n for n in names if names.count(n) > 1}))


def make_tree(tree):
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(SOURCE, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    header = os.path.join(tree, "mutant.h")
    with open(header, "w", encoding="utf-8") as f:
        f.write(HEADER)
    changed = set()
    for number, m in enumerate(MUTATIONS, 1):
        path = os.path.join(tree, m.file)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        text = text.replace(m.old, m.new.replace("MUTANT", f"qosd_mutant({number})"))
        if path not in changed:
            text = f'#include "{header}"\n{text}'
        changed.add(path)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def failed_tests(build, number, *arguments):
    """Names of the tests that fail with this mutation (0: none)."""
    environment = {k: v for k, v in os.environ.items() if k != "QOSD_MUTANT"} | ({"QOSD_MUTANT": str(number)} if number
                                                                                 else {})
    try:
        r = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", *arguments], env=environment,
                           stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT * 60, check=False)
    except subprocess.TimeoutExpired:
        return [f"all tests together, which take more than {LIMIT} min"]
    names = re.findall(r"^ *\d+/\d+ \S+ / (\S+) +(?:FAIL|TIMEOUT|ERROR)", r.stdout, re.MULTILINE)
    if r.returncode and not names:
        sys.exit(f"meson test {' '.join(arguments)} failed with status {r.returncode}:\n{r.stdout}")
    return sorted(set(names))


def list_tests(build):
    out = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--list", "--suite", "unit", "--suite",
                          "contract"],
                         stdout=subprocess.PIPE, text=True, check=True).stdout
    return sorted(set(re.findall(r" / (\S+)$", out, re.MULTILINE)) - SOURCE_TESTS)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--check", action="store_true", help="only check that the changes fit the code")
    p.add_argument("--directory", default="/var/tmp/qosd-mutate",
                   help="where the tree and the build are made (default: %(default)s)")
    p.add_argument("pattern", nargs="*", help="only mutations of these names")
    arguments = p.parse_args()

    wrong = list(complaints())
    if wrong:
        sys.exit("\n".join(wrong))
    if arguments.check:
        return 0

    tree, build = (os.path.join(arguments.directory, name) for name in ("tree", "build"))
    make_tree(tree)
    shutil.rmtree(build, ignore_errors=True)
    for command in ["meson", "setup", "--buildtype=debugoptimized", build, tree], ["ninja", "-C", build]:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    tests = list_tests(build)
    unknown = {name for m in MUTATIONS for name in m.tests} - set(tests)
    if unknown:
        sys.exit(f"There are no tests {', '.join(sorted(unknown))}")
    failed = failed_tests(build, 0, *tests)
    if failed:
        sys.exit(f"Without any mutation these fail: {', '.join(failed)}")

    killed = survived = skipped = 0
    for number, m in enumerate(MUTATIONS, 1):
        if arguments.pattern and not any(fnmatch.fnmatchcase(m.name, pattern) for pattern in arguments.pattern):
            continue
        by = failed_tests(build, number, *m.tests) or failed_tests(build, number, "--maxfail=1", *tests)
        if by:
            killed += 1
            print(f"killed    {m.name}: by {', '.join(by)}", flush=True)
        elif m.survives:
            skipped += 1
            print(f"survived  {m.name}: {m.survives}", flush=True)
        else:
            survived += 1
            print(f"SURVIVED  {m.name} ({m.file})", flush=True)
    print(f"{killed} passed, {survived} failed" + (f", {skipped} skipped" if skipped else ""))
    return survived > 0


if __name__ == "__main__":
    sys.exit(main())
