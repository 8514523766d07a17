#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Interfaces keep what the last release had: nothing is removed, no type changes, and no call of then lacks an argument
now. docs/STABILITY.md has the rules.

test_stability.py RELEASED VARLINK DBUS...          compares
test_stability.py --release VARLINK DBUS...         prints the file RELEASED of a release
"""

import re
import sys
import unittest
import xml.etree.ElementTree as ET


def split(text):
    """At commas outside of brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += c
    return [p for p in parts + [part] if p]


def closing(text, at):
    """Where the bracket at this place is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise ValueError(f"no end of '{text[at:at + 40]}'")


def read_varlink(text):
    """Types by what has them; nothing for what has none: values of enumerations, and the symbols themselves."""
    text = re.sub(r"\s+", "", re.sub(r"#.*", "", text).replace("interface ", "interface:").replace("\n\n", "\n;"))
    symbols, names = {}, set()
    name = re.match(r";?interface:([\w.]+)", text)
    text = text[name.end():]
    while m := re.match(r";*(type|method|error)(\w+)\(", text):
        end = closing(text, m.end() - 1)
        lists = {"": text[m.end():end]}
        text = text[end + 1:]
        kind, prefix = m[1], f"{name[1]} {m[1]} {m[2]}"
        if m[2] in names:
            raise ValueError(f"'{m[2]}' is defined twice: types, methods and errors share their names")
        names.add(m[2])
        if kind == "method":
            text = text.removeprefix("->")
            end = closing(text, 0)
            lists = {" input": lists[""], " output": text[1:end]}
            text = text[end + 1:]
        symbols[prefix] = ""
        for direction, fields in lists.items():
            for field in split(fields):
                field, _, type_ = field.partition(":")
                symbols[f"{prefix}{direction} {field}"] = type_
    if text.strip(";"):
        raise ValueError(f"cannot read '{text[:60]}'")
    return symbols


def read_dbus(text):
    symbols = {}
    for interface in ET.fromstring(text).iter("interface"):
        for member in interface:
            key = f"{interface.get('name')} {member.tag} {member.get('name')}"
            if member.tag == "property":
                symbols[key] = f"{member.get('type')} {member.get('access')}"
            elif member.tag in ("method", "signal"):
                arguments = {"in": "", "out": ""}
                for a in member.iter("arg"):
                    arguments[a.get("direction", "in" if member.tag == "method" else "out")] += a.get("type")
                symbols[key] = f"({arguments['in']})->({arguments['out']})"
    return symbols


def read(paths):
    symbols = {}
    for path in paths:
        with open(path) as f:
            text = f.read()
        symbols |= read_varlink(text) if path.endswith(".varlink") else read_dbus(text)
    return symbols


def compare(old, new):
    """What clients of the old interface would miss."""
    broken = []
    for name, type_ in old.items():
        now = new.get(name)
        if now is None:
            broken.append(f"{name} is removed")
        elif now != type_ and not (now == "?" + type_ if " input " in name else "?" + now == type_):
            broken.append(f"{name} is of type {now}, was {type_}")
    for name, type_ in new.items():
        if name not in old and " input " in name and name.partition(" input ")[0] in old and not type_.startswith("?"):
            broken.append(f"{name} has to be given, and is new")
    return broken


def format_symbols(symbols):
    return "".join(f"{name}\t{type_}".rstrip() + "\n" for name, type_ in sorted(symbols.items()))


class Test(unittest.TestCase):
    maxDiff = None

    def test_released(self):
        with open(RELEASED) as f:
            old = {name: type_ for name, _, type_ in (line.rstrip("\n").partition("\t") for line in f)}
        self.assertGreater(len(old), 500)
        self.assertEqual(compare(old, LIVE), [])

    def test_all_is_read(self):
        for name, type_ in {"org.qosd.QoS method Get input unit": "string",
                            "org.qosd.QoS method Get input window": "?int",
                            "org.qosd.QoS type Quality exact": "", "org.qosd.QoS error NotAttached unit": "string",
                            "org.qosd1.Manager method Snapshot": "(st)->(a{sv})",
                            "org.qosd1.Requests property ServerCount": "t read",
                            "org.qosd1.Unit signal ThresholdCrossed": "()->(ssssdddttta(sdd))"}.items():
            self.assertEqual(LIVE.get(name), type_, name)

    def test_each_removal(self):
        for name in LIVE:
            self.assertEqual(compare(LIVE, {k: v for k, v in LIVE.items() if k != name}), [f"{name} is removed"])

    def test_each_change(self):
        for name, type_ in LIVE.items():
            if type_:
                self.assertEqual(len(compare(LIVE, LIVE | {name: "[]" + type_})), 1, name)

    def test_additions(self):
        varlink = {"org.qosd.QoS method New": "", "org.qosd.QoS method New input unit": "string",
                   "org.qosd.QoS method Get input new": "?int",
                   "org.qosd.QoS method Get output new": "int", "org.qosd.QoS type Quality new": "",
                   "org.qosd.QoS error New": ""}
        dbus = {"org.qosd1.Manager method New": "(s)->()", "org.qosd1.Requests property New": "t read"}
        self.assertEqual(compare(LIVE, LIVE | varlink | dbus), [])
        self.assertEqual(len(compare(LIVE, LIVE | {"org.qosd.QoS method Get input new": "int"})), 1)

    def test_optional(self):
        """What had to be given may be left out, what might be left out is always there, and not the other way round."""
        self.assertEqual(compare(LIVE, LIVE | {"org.qosd.QoS method Get input unit": "?string"}), [])
        self.assertEqual(len(compare(LIVE, LIVE | {"org.qosd.QoS method Get input window": "int"})), 1)
        self.assertEqual(len(compare(LIVE, LIVE | {"org.qosd.QoS method List output attached": "?bool"})), 1)
        self.assertEqual(compare(LIVE | {"org.qosd.QoS method List output attached": "?bool"}, LIVE), [])


if __name__ == "__main__":
    RELEASED, LIVE = sys.argv[1], read(sys.argv[2:])
    if RELEASED == "--release":
        sys.stdout.write(format_symbols(LIVE))
        sys.exit()
    unittest.main(argv=sys.argv[:1])
