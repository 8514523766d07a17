#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Object files of a folder call each other in one direction: there is an order of the files in which each refers
to functions and data of those before it alone. So do the folders in it. The object files are those of the build
directory."""

import collections
import json
import os
import subprocess
import sys

# References between files, by folder, that close a cycle all the same. One without which there is no cycle has to
# leave this list, and nothing is added.
KNOWN = {}

# Folders in a folder, from the bottom up: files refer to those in their own folder and below alone. "" is the folder
# itself
ORDER = {"src/core": ["base", "unit", "probes", "reading", "threshold", "export", "inspect", "attach", ""]}

# Folders whose objects have to be among those found: without them the test would see nothing
EXPECTED = ["src/core", "src/model", "src/probe", "src/qosctl", "src/server", "src/shared"]


def find_objects(build, root):
    """Source files and their object files below src, by folder."""
    with open(os.path.join(build, "compile_commands.json")) as f:
        commands = json.load(f)
    folders = collections.defaultdict(dict)
    for command in commands:
        source = os.path.relpath(os.path.join(command["directory"], command["file"]), root)
        if source.startswith("src/"):
            folder = next((f for f in ORDER if source.startswith(f + "/")), os.path.dirname(source))
            folders[folder][os.path.relpath(source, folder)] = os.path.join(command["directory"], command["output"])
    return folders


def find_references(objects):
    """Symbols by (file that refers to them, file that defines them)."""
    sources = {path: name for name, path in objects.items()}
    # All at once: it loads the plugins of the compilers each time
    listing = subprocess.run(["nm", "--portability", "--print-file-name", *sources],
                             capture_output=True, text=True, check=True).stdout
    where, used = {}, []
    for line in listing.splitlines():
        path, symbol = line.split(": ", 1)
        symbol, kind = symbol.split()[:2]
        if kind in "Uw":
            used.append((sources[path], symbol))
        elif kind.isupper():
            where[symbol] = sources[path]
    references = collections.defaultdict(list)
    for name, symbol in used:
        if where.get(symbol, name) != name:
            references[name, where[symbol]].append(symbol)
    return references


def find_cycle(arrows):
    """Files of a cycle, the first one also as the last; None if there is no cycle."""
    below = collections.defaultdict(list)
    for a, b in sorted(arrows):
        below[a].append(b)
    done, way = set(), []

    def visit(name):
        if name in way:
            return way[way.index(name):] + [name]
        if name in done:
            return None
        way.append(name)
        for other in below[name]:
            cycle = visit(other)
            if cycle:
                return cycle
        way.pop()
        done.add(name)
        return None

    for name in list(below):
        cycle = visit(name)
        if cycle:
            return cycle
    return None


def check_folder(folder, objects, known):
    references = find_references(objects)
    order = ORDER.get(folder, [""])
    for name in objects:
        if os.path.dirname(name) not in order:
            print(f"{folder}/{name}: its folder has no place in ORDER")
            return False
    up = [(a, b) for a, b in references if order.index(os.path.dirname(a)) < order.index(os.path.dirname(b))]
    for a, b in up:
        print(f"{folder}: {a} -> {b} points up: {', '.join(references[a, b])}")
    if up:
        return False
    cycle = find_cycle(set(references) - set(known))
    if cycle:
        print(f"{folder}: the files call each other in a cycle:")
        for a, b in zip(cycle, cycle[1:]):
            print(f"  {a} -> {b}: {', '.join(references[a, b])}")
        return False
    superfluous = [arrow for arrow in known
                   if arrow not in references or not find_cycle(set(references) - set(known) | {arrow})]
    for a, b in superfluous:
        print(f"{folder}: {a} -> {b} closes no cycle any more: remove it from KNOWN")
    return not superfluous


def main():
    build, root = sys.argv[1:]
    folders = find_objects(build, root)
    good = True
    for folder in EXPECTED:
        if len(folders[folder]) < 2:
            print(f"{folder}: compile_commands.json of {build} has {len(folders[folder])} object files")
            good = False
    for folder in sorted(folders):
        good = check_folder(folder, folders[folder], KNOWN.get(folder, [])) and good
    return not good


sys.exit(main())
