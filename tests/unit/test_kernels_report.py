#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""tests/kernels/report.py: a program that takes a tenth more instructions than the baseline fails."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPORT = Path(sys.argv.pop(1))


class Report(unittest.TestCase):
    def setUp(self):
        d = tempfile.TemporaryDirectory()
        self.addCleanup(d.cleanup)
        self.directory = Path(d.name)
        self.baseline = self.directory / "baseline"
        self.baseline.write_text("# what it is\n6.12 large 100000\n6.12 small 100\n")

    def report(self, release, programs, *args):
        output = self.directory / "output"
        output.write_text(f"kernel {release}\n"
                          + "".join(f"program {name} loaded {n} 1 0\n" for name, n in programs.items()) +
                          "check owner passed\nend\n")
        p = subprocess.run([sys.executable, REPORT, "--baseline", self.baseline, *args, output], stdout=subprocess.PIPE,
                           text=True)
        return p.returncode, p.stdout

    def test_within(self):
        status, out = self.report("6.12.99+deb13-cloud-amd64", {"large": 110000, "small": 290})
        self.assertEqual(status, 0, out)
        self.assertIn("3 passed, 0 failed", out)

    def test_beyond(self):
        status, out = self.report("6.12.99+deb13-cloud-amd64", {"large": 110001, "small": 301})
        self.assertEqual(status, 1)
        self.assertIn("6.12.99: large: 110001 verified instructions, 100000 in the baseline", out)
        self.assertIn("6.12.99: small: 301 verified instructions, 100 in the baseline", out)
        self.assertIn("1 passed, 2 failed", out)

    def test_names(self):
        status, out = self.report("6.12.99+deb13-cloud-amd64", {"large": 1, "other": 1})
        self.assertEqual(status, 1)
        self.assertIn("other: not in the baseline", out)
        self.assertIn("small: in the baseline, but there is no such program", out)

    def test_other_series(self):
        status, out = self.report("6.12.99+deb13-rt-amd64", {"large": 200000})
        self.assertEqual(status, 0, out)
        self.assertIn("Linux 6.12-rt is not in the baseline", out)

    def test_update(self):
        status, out = self.report("6.12.99+deb13-cloud-amd64", {"large": 150000}, "--update")
        self.assertEqual(status, 0, out)
        status, out = self.report("6.9.1+deb13-rt-amd64", {"large": 7}, "--update")
        self.assertEqual(status, 0, out)
        self.assertEqual(self.baseline.read_text(), "# what it is\n6.9-rt large 7\n6.12 large 150000\n")


unittest.main()
