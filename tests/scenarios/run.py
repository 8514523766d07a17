#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs the scenario tests by pytest inside the booted lab, as root:

    run.py [GLOB...] [OPTION...]

GLOBs are names of tests, as "units.*". The options are those of pytest, as -k, -x and --lf, and those of conftest.py,
which "run.py --help" has under "scenarios"."""

import os
import sys

# The checkout is read-only
sys.pycache_prefix = "/var/lib/qosd-build/pycache"

import pytest  # noqa: E402 (its compiled tests are to go there, too)

if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(pytest.main())
