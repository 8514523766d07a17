#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""No line of C has more than 109 columns, and none of Python, of Markdown and of manuals more than 120, but rows of
tables, examples in manuals, and programs and files in strings of Python. Each link in Markdown to a file of the project
leads to one."""

import re
import sys
import tokenize
from pathlib import Path

C_COLUMNS = 109
TEXT_COLUMNS = 120


def lines_of(first, last):
    return range(first, last + 1) if last > first else ()


def lines_in_strings(path):
    """Numbers of lines of strings that have several, but for comments of functions."""
    numbers, before, begun = set(), tokenize.NEWLINE, []
    with open(path, encoding="utf-8") as f:
        for t in tokenize.generate_tokens(f.readline):
            # f-strings are several tokens since Python 3.12
            if tokenize.tok_name[t.type] == "FSTRING_START":
                begun.append(t.start[0])
            elif tokenize.tok_name[t.type] == "FSTRING_END":
                numbers.update(lines_of(begun.pop(), t.end[0]))
            elif t.type == tokenize.STRING and before not in (tokenize.NEWLINE, tokenize.INDENT):
                numbers.update(lines_of(t.start[0], t.end[0]))
            if t.type not in (tokenize.NL, tokenize.COMMENT):
                before = t.type
    return numbers


def too_long(path, lines):
    """Numbers and widths of lines."""
    columns = C_COLUMNS if path.suffix in (".c", ".h") else TEXT_COLUMNS
    in_strings = lines_in_strings(path) if path.suffix == ".py" else ()
    verbatim = False
    for number, line in enumerate(lines, 1):
        if path.suffix == ".md":
            verbatim = line.startswith("|")
        elif path.suffix == ".py":
            verbatim = number in in_strings
        elif columns == TEXT_COLUMNS and line[:3] in (".nf", ".EX", ".fi", ".EE"):
            verbatim = line[:3] in (".nf", ".EX")
        if len(line) > columns and not verbatim:
            yield number, len(line)


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
    programs = [*root.rglob("*.py")]
    manuals = [p for p in (root / "docs").iterdir() if re.search(r"\.[1-8](\.in)?$", p.name)]
    if not sources or not texts or not manuals or not programs:
        sys.exit(f"there are no sources below {root}")

    for path in sorted(sources + texts + manuals + programs):
        lines = path.read_text(encoding="utf-8").splitlines()
        wrong += [f"{path.relative_to(root)}:{number}: {width} columns" for number, width in too_long(path, lines)]
        if path.suffix == ".md":
            wrong += [f"{path.relative_to(root)}:{number}: there is no {target}"
                      for number, target in dead_links(path, lines)]

    print("\n".join(wrong))
    sys.exit(len(wrong) > 0)


main()
