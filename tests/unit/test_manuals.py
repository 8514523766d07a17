#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files that manuals name are installed where they say.

test_manuals.py BUILD SOURCE"""

import glob
import json
import os
import re
import sys
import unittest

BUILD, SOURCE = sys.argv[1:3]


def read_pages():
    """The text of the manuals, by name, without what hyphens need in roff."""
    pages = {}
    for path in glob.glob(f"{SOURCE}/docs/*.[0-9]") + glob.glob(f"{SOURCE}/docs/*.[0-9].in"):
        with open(path) as f:
            pages[os.path.basename(path)] = f.read().replace("\\-", "-")
    return pages


class Test(unittest.TestCase):
    def test_files(self):
        with open(f"{BUILD}/meson-info/intro-installed.json") as f:
            installed = json.load(f)
        paths = set()
        for source, destination in installed.items():
            paths.add(destination)
            for directory, _, names in os.walk(source):
                below = os.path.normpath(os.path.join(destination, os.path.relpath(directory, source)))
                paths |= {below} | {f"{below}/{name}" for name in names}
        named = set()
        for name, text in read_pages().items():
            for path in re.findall(r"/usr/share/doc/qosd[\w./@-]*", text):
                named.add(path := path.rstrip("."))
                self.assertIn(path, paths, name)
            self.assertNotRegex(text, r"(?<![\w/.-])docs/\w", name)
        self.assertIn("/usr/share/doc/qosd/METRICS.md", named)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
