# SPDX-License-Identifier: LGPL-2.1-or-later
"""The exact counts of kernels.*, while twice as many threads as there are CPUs compute: on the newest kernel tasks are
preempted in the programs, and the kernel skips runs of these."""

import contextlib
import os
import subprocess

import test_kernels
from scenario import test


@contextlib.contextmanager
def busy():
    threads = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * os.cpu_count())]
    try:
        yield
    finally:
        for t in threads:
            t.kill()
            t.wait()


@test(vm="nightly", nightly=True, deadline=600, quiet="alone")
def http1():
    test_kernels.count_http1(busy())


@test(vm="nightly", nightly=True, deadline=600, quiet="alone")
def http2():
    test_kernels.count_http2(busy())


@test(vm="nightly", nightly=True, deadline=600, quiet="alone")
def redis():
    test_kernels.count_redis(busy())


@test(vm="nightly", nightly=True, deadline=600, quiet="alone")
def unix():
    test_kernels.count_unix(busy())


@test(vm="nightly", nightly=True, deadline=600, quiet="alone")
def tls_records():
    test_kernels.count_tls_records(busy())


@test(vm="nightly", nightly=True, deadline=600, quiet="alone")
def tls():
    test_kernels.count_tls(busy())
