#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each text of the page for Cockpit, and each label of a thread state, has a translation, and no translation is of a
text that does not exist. All modules are in cockpit/meson.build."""

import json
import re
import sys
from pathlib import Path


def texts_of(source):
    """Arguments of _(), which may be several strings that are added."""
    for match in re.finditer(r'\b_\(\s*("(?:[^"\\]|\\.)*"(?:\s*\+\s*"(?:[^"\\]|\\.)*")*),?\s*\)', source):
        yield "".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', match[1]))


def translations(text):
    return {json.loads(match[1]): json.loads(match[2])
            for match in re.finditer(r'^    ("(?:[^"\\]|\\.)*"): \[null, ("(?:[^"\\]|\\.)*")\],?$', text, re.M)}


def main():
    root = Path(sys.argv[1])
    page = root / "cockpit"
    modules = sorted((page / "src").glob("*.js"))
    wanted = {"Service quality"}    # the title of index.html
    for module in modules:
        wanted.update(texts_of(module.read_text(encoding="utf-8")))
    wanted.update(re.findall(r'\{ "\w+",\s+"([^"]+)"\s*\}', (root / "src/model/state-label.c").read_text()))
    manifest = json.loads((page / "manifest.json").read_text())["menu"]["index"]
    of_manifest = {manifest["label"], *(word for k in manifest["keywords"] for word in k["matches"])}
    wrong = []
    for name, texts in (("po.de.js", wanted), ("po.manifest.de.js", of_manifest)):
        had = translations((page / name).read_text(encoding="utf-8"))
        wrong += [f"cockpit/{name}: no translation of {t!r}" for t in sorted(texts - had.keys())]
        wrong += [f"cockpit/{name}: no text {t!r} in the page" for t in sorted(had.keys() - texts)]
        wrong += [f"cockpit/{name}: other arguments in the translation of {t!r}" for t, of in had.items()
                  if sorted(re.findall(r"\$\d", t)) != sorted(re.findall(r"\$\d", of))]
    listed = set(re.findall(r"'src/(\w+\.js)'", (page / "meson.build").read_text()))
    wrong += [f"cockpit/meson.build: {n} is not listed" for n in sorted({m.name for m in modules} - listed)]
    if len(wanted) < 20 or not modules:
        wrong.append("The texts of the page are not found")
    print("\n".join(wrong))
    sys.exit(len(wrong) > 0)


main()
