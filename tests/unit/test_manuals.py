#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files that manuals name are installed where they say, and all manuals have examples. The scenario manuals.examples
runs those that are marked; the example of libqosd(3) is compiled here.

test_manuals.py BUILD SOURCE COMPILER..."""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE, *COMPILER = sys.argv[1:]
MARK = '.\\" test: run\n'


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

    def test_examples(self):
        for name, text in read_pages().items():
            sections = re.findall(r"^\.SH EXAMPLES\n(.*?)(?=^\.SH )", text, re.M | re.S)
            self.assertEqual(len(sections), 1, name)
            self.assertEqual(text.count(MARK), sections[0].count(MARK), name)
            if name != "libqosd.3":
                self.assertIn(MARK, sections[0], name)
            for block in sections[0].split(MARK)[1:]:
                self.assertRegex(block, r"\A\.nf\n[#$] ", name)

    def test_library(self):
        """The example is a whole program, and is right for a compiler that warns."""
        with open(f"{SOURCE}/docs/libqosd.3") as f:
            example = re.search(r"^\.SH EXAMPLES\n.*?^\.nf\n(.*?)^\.fi", f.read(), re.M | re.S)[1]
        with tempfile.TemporaryDirectory() as directory:
            with open(f"{directory}/example.c", "w") as f:
                f.write(example.replace("\\-", "-").replace("\\e", "\\"))
            subprocess.run([*COMPILER, "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}/src/libqosd", "-o",
                            f"{directory}/example",
                            f"{directory}/example.c", f"-L{BUILD}/src/libqosd", "-lqosd"], check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
