#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""An #include goes down the layers or stays in its folder, and no two files include each other."""

import os
import re
import sys

# Folders of core, from the bottom up
CORE = ["src/core/" + name
        for name in ("base", "unit", "probes", "reading", "threshold", "export", "inspect", "attach")]
BELOW_CORE = ["bpf/abi", "src/shared", "src/model", "src/probe"]

# Each folder may include itself and those named
BELOW = {
    "bpf/abi": [],
    "bpf/protocols": ["bpf/abi"],
    "bpf/core": ["bpf/abi", "bpf/protocols"],
    "bpf/requests": ["bpf/abi", "bpf/protocols", "bpf/core"],
    "bpf/contention": ["bpf/abi", "bpf/core"],
    "bpf/storage": ["bpf/abi", "bpf/core"],
    "bpf/custom": ["bpf/abi", "bpf/core"],
    "bpf/network": ["bpf/abi", "bpf/core", "bpf/requests"],
    "src/shared": ["bpf/abi"],
    "src/model": ["bpf/abi", "src/shared"],
    "src/probe": ["bpf/abi", "src/shared"],
    **{name: [*BELOW_CORE, *CORE[:i]] for i, name in enumerate(CORE)},
    "src/core": [*BELOW_CORE, *CORE],
    "src/server": [*BELOW_CORE, *CORE, "src/core"],
    "src": ["src/shared", "src/probe", *CORE, "src/core", "src/server"],
    "src/generator": ["src/shared"],
    "src/qosctl": ["bpf/abi", "src/shared", "src/model"],
    "src/custom": ["src/shared"],
    "src/exporter": ["src/shared", "src/qosctl"],
    "src/report": ["src/shared", "src/qosctl"],
    "src/statistics": ["src/shared"],
    "src/actions": ["bpf/abi", "src/shared", "src/model"],
    "src/libqosd": ["bpf/abi", "src/shared", "src/model"],
    "src/qos-balance": ["src/shared", "src/model", "src/libqosd"],
}

# The structs that have those of all modules of core in them, by value
ROOTS = {"src/core/manager.h", "src/core/config.h"}

# Includes that go up all the same, and what has to change first. One that is gone has to leave this list.
KNOWN = {
    # A unit has the state of its probes and of its history in it
    ("src/core/unit/unit.h", "src/core/probes/contention-probe.h"),
    ("src/core/unit/unit.h", "src/core/probes/storage-probe.h"),
    ("src/core/unit/unit.h", "src/core/probes/network-probe.h"),
    ("src/core/unit/unit.h", "src/core/probes/custom-probe.h"),
    ("src/core/unit/unit.h", "src/core/probes/openssl.h"),
    ("src/core/unit/unit.h", "src/core/reading/history-collector.h"),
    # Recording takes what the accounting of threads returns
    ("bpf/core/maps.h", "bpf/contention/request-cpu.h"),
    # A request knows the thread that has read it
    ("bpf/requests/tcp.bpf.c", "bpf/contention/thread.h"),
    ("bpf/requests/unix.bpf.h", "bpf/contention/thread.h"),
    ("bpf/storage/storage-thread.bpf.h", "bpf/contention/own-pid.h"),
    ("bpf/storage/storage-thread.bpf.h", "bpf/contention/thread-storage.h"),
}


def includes(path):
    with open(path) as f:
        # By base name, also where the path is given: "../server/polkit.h" goes up, too
        return [os.path.basename(name)
                for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', f.read(), re.MULTILINE)]


def main():
    root = sys.argv[1]
    files = {}      # by base name
    for folder in BELOW:
        for name in os.listdir(os.path.join(root, folder)):
            if name.endswith((".c", ".h")):
                files.setdefault(name, []).append(folder)

    wrong, known, edges = [], set(), {}
    for top in ("bpf", "src"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            folder = os.path.relpath(folder, root)
            if folder not in BELOW and any(name.endswith((".c", ".h")) for name in names):
                wrong.append(f"{folder} has no layer: add it to BELOW")

    for name, folders in files.items():
        for folder in folders:
            path = f"{folder}/{name}"
            edges[path] = []
            for target in includes(os.path.join(root, path)):
                where = files.get(target)
                if not where:   # generated, or of the system
                    continue
                other = folder if folder in where else where[0]
                edges[path].append(f"{other}/{target}")
                if other == folder or other in BELOW[folder] or (folder in CORE and f"{other}/{target}" in ROOTS):
                    continue
                if (path, f"{other}/{target}") in KNOWN:
                    known.add((path, f"{other}/{target}"))
                else:
                    wrong.append(f"{path} includes {other}/{target}, which is not below it")
    wrong += [f"{a} does not include {b} any more: remove it from KNOWN" for a, b in KNOWN if (a, b) not in known]

    done = set()

    def visit(path, way):
        if path in way:
            wrong.append("cycle: " + " -> ".join(way[way.index(path):] + [path]))
        elif path not in done:
            for other in edges[path]:
                visit(other, way + [path])
            done.add(path)

    for path in sorted(edges):
        visit(path, [])

    for line in wrong:
        print(line)
    return bool(wrong)


sys.exit(main())
