#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""No line of C has more than 109 columns, and none of Markdown more than 120 but rows of tables. Each link in
Markdown to a file of the project leads to one."""

import re
import sys
from pathlib import Path

C_COLUMNS = 109
MARKDOWN_COLUMNS = 120


def too_long(path, line):
    if path.suffix == ".md":
        return len(line) > MARKDOWN_COLUMNS and not line.startswith("|")
    return len(line) > C_COLUMNS


def dead_links(path, lines):
    code = False
    for number, line in enumerate(lines, 1):
        code ^= line.lstrip().startswith("```")
        for target in [] if code else re.findall(r"\]\(([^)#]+)[^)]*\)", line):
            if "://" not in target and not (path.parent / target).exists():
                yield number, target


def main():
    root, wrong = Path(sys.argv[1]), []
    sources = [p for top in ("bpf", "dbus", "src", "tests") for p in (root / top).rglob("*.[ch]")]
    texts = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    if not sources or not texts:
        sys.exit(f"there are no sources below {root}")

    for path in sorted(sources + texts):
        lines = path.read_text(encoding="utf-8").splitlines()
        wrong += [f"{path.relative_to(root)}:{number}: {len(line)} columns"
                  for number, line in enumerate(lines, 1) if too_long(path, line)]
        if path.suffix == ".md":
            wrong += [f"{path.relative_to(root)}:{number}: there is no {target}" for number, target in dead_links(path, lines)]

    print("\n".join(wrong))
    sys.exit(len(wrong) > 0)


main()
