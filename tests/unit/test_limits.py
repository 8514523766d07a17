#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The tables of docs/LIMITS.md have each limit of the code, with its value."""

import re
import sys
from pathlib import Path

# Each #define of a maximum in these folders has to be in a table, if it is not in NO_LIMITS
FOLDERS = "src/core/", "src/server/", "src/probe/", "src/generator/", "src/exporter/", "src/custom/"
# Maxima that do not limit what a user can make grow: sizes of buffers, numbers of attempts, times
NO_LIMITS = {
    "LINE_LENGTH_MAX", "LOAD_USEC_MAX", "RESCAN_MAX_NSEC", "READY_MAX_USEC", "ROWS_NSEC_MAX",
    "THRESHOLD_PERIOD_MAX_NSEC",
    "TRIES_MAX", "SUGGESTIONS_MAX", "SHARE_CHANGES_MAX", "VERDICT_FINDINGS_MAX", "JSON_WRITER_DEPTH_MAX",
    "PROPERTIES_MAX",
    "NAME_MAX_SIZE",
}

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "us": 10**3, "ms": 10**6, "s": 10**9}
WORDS = {"NSEC_PER_USEC": 10**3, "NSEC_PER_MSEC": 10**6, "NSEC_PER_SEC": 10**9, "USEC_PER_MSEC": 10**3,
         "USEC_PER_SEC": 10**6}


def defines(root):
    """name -> [(file, text of the value)]"""
    found = {}
    for top in "src", "bpf":
        for path in sorted((root / top).rglob("*.[ch]")):
            text = path.read_text(encoding="utf-8").replace("\\\n", " ")
            for m in re.finditer(r"^#define (\w+) +([^\n]+?) *(?:/\*.*)?$", text, re.MULTILINE):
                found.setdefault(m[1], []).append((path, m[2]))
            for m in re.finditer(r"__uint\(max_entries, (\w+)\);(?:(?!SEC).)*?\} (\w+) SEC\(\"\.maps\"\)", text,
                                 re.DOTALL):
                found.setdefault(m[2], []).append((path, m[1]))
    return found


def evaluate(text, known):
    def word(m):
        if m[0] in WORDS:
            return str(WORDS[m[0]])
        return f"({evaluate(known[m[0]][0][1], known)})"

    if m := re.fullmatch(r"MAX\((.+), (.+)\)", text):
        return max(evaluate(m[1], known), evaluate(m[2], known))
    text = re.sub(r"\b[A-Z]\w+\b", word, text)
    text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)(?:ULL|UL|U|LL|L)\b", r"\1", text)
    if not re.fullmatch(r"[\s\d()+*/<-]+", text):
        raise ValueError(text)
    return eval(text.replace("/", "//"))


def setting(root, name):
    """The value of a setting: in the unit file, or the default in the manual."""
    m = re.search(rf"^{name}=(.*)$", (root / "units/qosd.service.in").read_text(encoding="utf-8"), re.MULTILINE)
    if m:
        return m[1]
    manual = (root / "docs/qosd.conf.5").read_text(encoding="utf-8")
    m = re.search(rf"^\.I {name}=\n.*?Default: (\w+)", manual, re.MULTILINE | re.DOTALL)
    return m[1] if m else None


def number(text, name):
    m = re.fullmatch(r"(\d+)(?: (\w+))?", text)
    n = int(m[1]) * (UNITS[m[2]] if m[2] else 1)
    return n // 1000 if name.endswith("_USEC") else n


def main():
    root = Path(sys.argv[1])
    known, wrong, listed = defines(root), [], set()
    for line in (root / "docs/LIMITS.md").read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        listed.update(re.findall(r"`(\w+)`", line))
        if not line.startswith("|") or len(cells) != 4:
            continue
        where = re.search(r"\(([\w.-]+)\)$", cells[1])
        for name, equals in re.findall(r"`(\w+)(=?)`", cells[1]):
            if equals:
                if setting(root, name) != cells[2]:
                    wrong.append(f"{name}= is {setting(root, name)}, docs/LIMITS.md says {cells[2]}")
                continue
            places = [p for p in known.get(name, []) if not where or p[0].name == where[1]]
            if len(places) != 1:
                wrong.append(f"{name} is defined in {len(places)} places: "
                             f"{', '.join(str(p[0].relative_to(root)) for p in places)}")
            elif evaluate(places[0][1], known) != number(cells[2], name):
                wrong.append(f"{name} is {places[0][1]}, docs/LIMITS.md says {cells[2]}")

    for name, places in sorted(known.items()):
        for path, _ in places:
            if str(path.relative_to(root)).startswith(FOLDERS) and re.search(r"_MAX(_|$)",
                                                                             name) and not name.startswith("_") and \
                    name not in listed | NO_LIMITS:
                wrong.append(f"{path.relative_to(root)}: {name} is not in docs/LIMITS.md")
    wrong += [f"{name} is not defined any more, remove it from NO_LIMITS" for name in sorted(NO_LIMITS - known.keys())]

    print("\n".join(wrong))
    sys.exit(len(wrong) > 0)


main()
