#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""docs/METRICS.md has each metric of the D-Bus interfaces, in the part about its role, and no other.

A metric is named in backticks, by its name or the end of that: `errors.reset`. One name stands for all values of a
distribution, and for all states of threads, which have a table of their own."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

METRIC = "org.qosd1.Metric"
# Sections, by what their tables of figures are about. All others are about the server role
SECTIONS = {
    "The client role": "requests.client",
    "Threads": "contention",
    "Block devices": "contention.block",
    "Memory": "contention.memory",
    "Pressure and quota": "contention",
    "Calls on files": "storage",
    "Connections": "network",
}
SERVER = "requests.server"
# Service times by thread state are a subject of "Threads"
ELSEWHERE = {"requests.server": ["contention"]}


def metrics(root, interfaces):
    """All names, and for each what stands for it in the documentation: itself, a distribution, or an object of
    states."""
    names = []
    for interface in interfaces:
        for a in ElementTree.parse(interface).iter("annotation"):
            if a.get("name") == METRIC:
                names.append(a.get("value"))

    types = ElementTree.parse(root / "metrics/metric-types.xml").getroot()
    members = {t.get("name"): {m.get("name") for m in t} for t in types.iter("type")}
    extends = {t.get("name"): t.get("extends") for t in types.iter("type")}
    shown = {name: name for name in names}
    states = set()
    for o in types.iter("object"):
        base = o.get("type")
        base = extends.get(base) or base
        if base not in ("Distribution", "States"):
            continue
        for name in names:
            parent, _, key = name.rpartition(".")
            if parent == o.get("path") and key in members[base]:
                shown[name] = parent
                if base == "States":
                    states.add(key)
    arrays = {a.get("path") for a in types.iter("array")}
    records = {f"{a.get('path')}[].{f.get('name')}" for a in types.iter("array") for r in types.iter("record")
               if r.get("name") == a.get("type") for f in r.iter("field")}
    return shown, states, arrays | {a + "[]" for a in arrays} | records


def tokens(text):
    """What stands in backticks, line by line. `.full` after `pressure.*.some` is `pressure.*.full`."""
    for line in text.splitlines():
        before = ""
        for token in re.findall(r"`([^`]+)`", line):
            if re.fullmatch(r"\.\w+", token):
                token = before.rpartition(".")[0] + token
            before = token
            yield token


def is_suffix(token, name):
    pattern = re.escape(token).replace(r"\*", r"\w+")
    return re.fullmatch(rf"(?:.*\.)?{pattern}", name) is not None


def main():
    root = Path(sys.argv[1])
    text = (root / "docs/METRICS.md").read_text(encoding="utf-8")
    shown, states, records = metrics(root, sys.argv[2:])
    objects = {name[:m.start()] for name in shown for m in re.finditer(r"\.", name)}
    parts = {}
    failed = False

    def fail(message):
        nonlocal failed
        print(f"docs/METRICS.md: {message}", file=sys.stderr)
        failed = True

    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        role = SECTIONS.get(title, SERVER)
        parts.setdefault(re.match(r"contention|storage|network|requests\.\w+", role)[0], []).append(body)

        # The first column of tables of figures
        for table in re.findall(r"^\| figure \|.*\n\|[-|]+\n((?:\|.*\n)+)", body, flags=re.MULTILINE):
            for row in table.splitlines():
                parent = ""
                for token in tokens(row.split("|")[1]):
                    known = [n for n in {*shown, *objects, *records} if n.startswith(role + ".") and
                             (is_suffix(token, n) or is_suffix(f"{parent}.{token}", n))]
                    if not known:
                        fail(f"{title}: '{token}' is no metric in {role}")
                    parent = token.rpartition(".")[0]

        # Full names, anywhere
        for token in tokens(body):
            if re.match(r"(requests|contention|network)\.\w", token):
                # Without the endpoint or peer, and the limit of a threshold
                plain = re.match(r"[\w.*]+", re.sub(r"\[(\[[^]]*\]|[^][])+\]", "", token))[0]
                if not any(is_suffix(plain, n) for n in {*shown, *objects, *records}):
                    fail(f"{title}: there is no metric '{token}'")

        for table in re.findall(r"^\| state \|.*\n\|[-|]+\n((?:\|.*\n)+)", body, flags=re.MULTILINE):
            named = {token for row in table.splitlines() for token in tokens(row.split("|")[1])}
            if named != states:
                fail(f"{title}: states {', '.join(sorted(named ^ states))} are in the table or in the interfaces alone")
            states = named

    for name in dict.fromkeys(shown.values()):
        role = next((r for r in parts if name.startswith(r + ".")), SERVER)
        bodies = [body for part in [role, *ELSEWHERE.get(role, [])] for body in parts[part]]
        if not any(is_suffix(token, name) for body in bodies for token in tokens(body)):
            fail(f"no '{name}' in the part about {role}")

    sys.exit(failed)


main()
