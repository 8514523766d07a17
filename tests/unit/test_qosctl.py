#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Every verb of qosctl against a stub of qosd (fake_qosd.py), in pipes and on terminals.

test_qosctl.py QOSCTL COMPLETION [MODULE.CLASS[.TEST]...]"""

import io
import multiprocessing
import os
import signal
import sys
import unittest

import util_qosctl

MODULES = ["qosctl_attach", "qosctl_diagnoses", "qosctl_figures", "qosctl_hosts", "qosctl_metrics",
           "qosctl_pictures", "qosctl_report", "qosctl_thresholds", "qosctl_top", "qosctl_usage",
           "qosctl_views"]
# Independent of the number of CPUs, as most tests wait for intervals of qosctl
WORKERS = 4


def test_names(suite):
    for test in suite:
        yield from test_names(test) if isinstance(test, unittest.TestSuite) else [test.id()]


def run_test(name):
    tests = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(stream=io.StringIO()).run(tests)
    return result.testsRun, [f"{test}\n{text}" for test, text in result.errors + result.failures]


def run_all(names):
    names = list(test_names(unittest.defaultTestLoader.loadTestsFromNames(names)))
    run, failed = 0, []
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        for n, failures in pool.imap_unordered(run_test, names):
            run += n
            failed += failures
    print(*failed, f"{run} of {len(names)} tests run, {len(failed)} failures", sep="\n")
    return 1 if failed or run != len(names) else 0


if __name__ == "__main__":
    # Nohup ignores it, and a shell cannot trap a signal that is ignored at its start
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    util_qosctl.QOSCTL, util_qosctl.COMPLETION = (os.path.abspath(p) for p in sys.argv[1:3])
    sys.exit(run_all(sys.argv[3:] or MODULES))
