# SPDX-License-Identifier: LGPL-2.1-or-later
"""Custom probes: the examples against what they count, attribution, and what is refused."""

import contextlib
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

from running import TOOLS_BUILT
from scenario import (SOURCES, Unit, attach, busctl_call, check, equal, kill_qosd, occupied, qosctl, qosctl_json,
                      run, systemctl, test, unit_name, varlink, wait_for, within, write_unit)
from test_block import Disk
from test_history import next_step
from test_storage import Worker

PROBES = "/etc/qosd/probes.d"
PACKAGED = "/usr/lib/qosd/probes.d"
EXAMPLES = f"{os.path.dirname(os.path.dirname(SOURCES))}/docs/examples/probes"


def compile_probe(source, name):
    machine = "x86" if platform.machine() == "x86_64" else "arm64"
    subprocess.run(["clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", f"-D__TARGET_ARCH_{machine}", "-idirafter",
                    f"/usr/include/{platform.machine()}-linux-gnu", "-c", source, "-o", f"{PROBES}/{name}.bpf.o"],
                   check=True)


def install(name, to=None, directory=PROBES):
    """Installs an example, or a probe of the tests, that meson has compiled."""
    shutil.copy(f"{TOOLS_BUILT}/{name}.bpf.o", f"{directory}/{to or name}.bpf.o")
    manifest = f"{EXAMPLES}/{name}.xml"
    shutil.copy(manifest if os.path.exists(manifest) else f"{SOURCES}/{name}.xml", f"{directory}/{to or name}.xml")


@contextlib.contextmanager
def installed(*names, texts={}):
    """Installs examples, and probes of these texts with the manifest of the example "started"."""
    os.makedirs(PROBES, mode=0o755, exist_ok=True)
    try:
        for name in names:
            install(name)
        for name, text in texts.items():
            with open(f"{PROBES}/{name}.bpf.c", "w") as f:
                f.write(text)
            compile_probe(f"{PROBES}/{name}.bpf.c", name)
            shutil.copy(f"{EXAMPLES}/started.xml", f"{PROBES}/{name}.xml")
        systemctl("reload", "qosd")
        yield
    finally:
        for path in glob.glob(f"{PROBES}/*"):
            os.unlink(path)


def metrics(unit):
    name = unit.name if isinstance(unit, Unit) else unit
    return json.loads(qosctl("show", name, "--window=total", "--json=short").stdout).get("custom", {})


def custom(unit, path):
    value = metrics(unit)
    for key in path.split("."):
        value = value[key]
    return value


def stored(prefix):
    """Names in the descriptor store of qosd."""
    lines = subprocess.run(["systemd-analyze", "fdstore", "--json=short", "qosd.service"], stdout=subprocess.PIPE,
                           check=True, text=True).stdout
    return [row["fdname"] for row in json.loads(lines or "[]") if row["fdname"].startswith(prefix)]


def large(unit):
    """The number of large allocations."""
    entries = {e["labels"]["size"]: e["count"] for e in custom(unit, "malloc.calls").get("entries", [])}
    return entries.get("large", 0)


def rows_of(probe):
    return [p for p in qosctl_json("probes") if p.get("probe") == f"custom:{probe}"]


@test(deadline=90, own_daemon=True)
def programs_started():
    """Each program that the unit executes counts once, also those that end at once, after a restart, in a unit
    inside another one, and over restarts and crashes of qosd."""
    outer = unit_name("outer", ".slice")
    write_unit(outer, "[Unit]\nDescription=Slice under test\n")
    script = "/bin/sh -c 'for i in $(seq 50); do /bin/true; done; exec sleep infinity'"
    with installed("started"):
        u = Unit(script, type="exec", settings=f"Slice={outer}")
        systemctl("start", outer)
        attach(outer, "--probes=requests,custom:started")
        equal(custom(outer, "started.programs.count"), 0, "programs before")
        u.start()
        # The executor of the service manager, the shell, seq, 50 times true, and sleep
        wait_for("all have run", lambda: custom(outer, "started.programs.count") >= 54)
        equal(custom(outer, "started.programs.count"), 54, "programs")
        attach(u, "--probes=requests,custom:started")
        equal(custom(u, "started.programs.count"), 0, "programs of the inner unit before")
        u.restart()
        wait_for("all have run", lambda: custom(u, "started.programs.count") >= 54)
        equal(custom(u, "started.programs.count"), 54, "programs of the inner unit")
        equal(custom(outer, "started.programs.count"), 108, "programs of both")
        u.kill()
        qosctl("detach", u.name)
        equal(custom(outer, "started.programs.count"), 108, "programs after the inner unit was detached")
        equal(qosctl("show", outer, "--window=total", "-P", "custom.started.programs.count",
                     "--value").stdout.strip(), "108", "value")
        equal([p["state"] for p in rows_of("started")], ["attached"], "programs of the probe")

        # Totals and the programs are kept over a restart and a crash of qosd, before, in and after which it counts
        hashed = rows_of("started")[0]["reason"]
        equal(len([name for name in stored("custom-") if name.endswith("-maps")]), 1, "probes in the store")
        attach(u, "--probes=requests,custom:started")
        for end in (lambda: systemctl("restart", "qosd"), kill_qosd):
            before, inner = custom(outer, "started.programs.count"), custom(u, "started.programs.count")
            install("runqueue", "started")
            u.restart()
            end()
            wait_for("all have run", lambda: custom(outer, "started.programs.count") >= before + 54)
            u.restart()
            wait_for("all have run", lambda: custom(outer, "started.programs.count") >= before + 108)
            equal(custom(outer, "started.programs.count"), before + 108, "programs of both")
            equal(custom(u, "started.programs.count"), inner + 108, "programs of the inner unit")
            equal([(p["program"], p["hook"], p["state"], p["reason"]) for p in rows_of("started")],
                  [("on_exec", "tp_btf/sched_process_exec", "attached", hashed)], "programs of the probe")
        qosctl("detach", u.name)
        equal(custom(outer, "started.programs.count"), 324, "programs after the inner unit was detached")
        shown = busctl_call("Snapshot", "st", outer, 0)[0]
        equal(shown["custom.started.programs.count"]["data"], 324, "count on D-Bus")
        exported = [line for line in qosctl("metrics", "--verbose", outer).stdout.splitlines()
                    if line.startswith("qosd_custom")]
        equal(exported, [f'qosd_custom_started_programs_total{{unit="{outer}"}} 324'], "export")
        qosctl("detach", outer)
        equal([p["state"] for p in rows_of("started")], ["idle"], "programs of the probe")
        equal(stored("custom-"), [], "descriptors in the store")


@test(deadline=60, own_daemon=True)
def calls_of_malloc():
    """Calls of a function of a library, by what is passed to it."""
    with installed("malloc"):
        u = Worker()
        u.start()
        u.do("import ctypes; c = ctypes.CDLL(None)")
        attach(u, "--probes=requests,custom:malloc")
        before = large(u)
        u.do("for i in range(500): c.malloc(1 << 20)")
        wait_for("all are counted", lambda: large(u) - before >= 500)
        equal(large(u) - before, 500, "large allocations")
        check(custom(u, "malloc.bytes.count") >= 500 << 20, "bytes")
        equal(custom(u, "malloc.calls.count"), sum(e["count"] for e in custom(u, "malloc.calls.entries")), "calls")


# A child that responds to each byte, on the same CPU: what wakes a process is the other one, and not an interrupt. Then
# how often both have slept, as the kernel counts it
EXCHANGES = """
import resource
there, back = os.pipe(), os.pipe()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
child_pid = os.fork()
if child_pid == 0:
    for _ in range(300):
        os.write(back[1], os.read(there[0], 1))
    os._exit(0)
for _ in range(300):
    os.write(there[1], b"x")
    os.read(back[0], 1)
os.waitpid(child_pid, 0)
with open("slept", "w") as f:
    f.write(str(sum(resource.getrusage(of).ru_nvcsw for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))))
"""


@test(deadline=60, own_daemon=True)
def waits_for_a_cpu():
    """Each wakeup of a thread is one wait for a CPU: as many as the kernel counts sleeps."""
    with installed("runqueue"):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:runqueue")

        def exchanges():
            u.do(f"exec({EXCHANGES!r})")
            with open(u.directory + "/slept") as f:
                return int(f.read()), custom(u, "runqueue.wait.count")
        slept, waits = exchanges()
        more = [after - before for before, after in zip((slept, waits), exchanges())]
        check(more[0] >= 300 and abs(more[1] - more[0]) <= 4, f"{more[1]} waits, {more[0]} sleeps")
        wait = custom(u, "runqueue.wait")
        check(wait["sum"] > 0 and wait["p99"] > 0, f"durations: {wait}")


@test(deadline=60, own_daemon=True)
def samples_of_perf_events():
    """Samples of a software event are proportional to the time on the CPU."""
    with installed("samples"):
        u = Unit("/bin/sh -c 'while :; do :; done'", type="exec").start()
        attach(u, "--probes=requests,custom:samples")

        def used():
            with open(f"/sys/fs/cgroup{u.control_group}/cpu.stat") as f:
                return int(f.readline().split()[1]) / 1e6
        begin = used()
        wait_for("it has used a CPU for three seconds", lambda: used() - begin > 3, timeout=30)
        n = custom(u, "samples.samples.count")
        within(n / 99, used() - begin, 0.15, 0.2, "seconds")


@test(deadline=90, own_daemon=True)
def kept_links():
    """Links of all kinds, of which a static probe and a perf event have several, outlive a restart and a crash of
    qosd."""
    with installed("malloc", "collections", "samples"):
        u = Worker()
        u.start()
        u.do("import ctypes, gc; c = ctypes.CDLL(None); gc.disable()")
        attach(u, "--probes=requests,custom:malloc,custom:collections,custom:samples")
        calls, collections = large(u), 0
        for end in (lambda: systemctl("restart", "qosd"), kill_qosd):
            samples = custom(u, "samples.samples.count")
            end()
            u.do("for i in range(40): c.malloc(1 << 20)")
            u.do("for i in range(30): gc.collect(0)")
            u.do("import time\nt = time.process_time()\nwhile time.process_time() - t < 1: pass")
            calls, collections = calls + 40, collections + 30
            wait_for("all calls are counted", lambda: large(u) >= calls)
            equal(large(u), calls, "large allocations")
            equal(custom(u, "collections.collections.count"), collections, "collections")
            check(custom(u, "samples.samples.count") - samples >= 50, "samples")
            equal({p["state"] for name in ("malloc", "collections", "samples") for p in rows_of(name)}, {"attached"},
                  "states")
        qosctl("detach", u.name)
        equal(stored("custom-"), [], "descriptors in the store")


BAD = """
#include <qosd/qosd-probe.h>
QOSD_COUNTER(programs);
SEC("tp_btf/sched_process_exec")
int on_exec(unsigned long long *ctx) {
        return *(int*) (ctx[0] + ctx[1]);
}
char LICENSE[] SEC("license") = "GPL";
"""

HOSTILE = """
#include <qosd/qosd-probe.h>
QOSD_COUNTER(programs);
SEC("tp_btf/sched_process_exec")
int on_exec(unsigned long long *ctx) {
        return bpf_send_signal(9);
}
char LICENSE[] SEC("license") = "GPL";
"""

OTHER_METRIC = """
#include <qosd/qosd-probe.h>
QOSD_GAUGE(programs);
SEC("tp_btf/sched_process_exec")
int on_exec(unsigned long long *ctx) {
        struct qosd_unit unit;
        if (qosd_unit_of_current(&unit))
                qosd_set(&programs, &unit, 1);
        return 0;
}
char LICENSE[] SEC("license") = "GPL";
"""


OLD = """
#include <qosd/custom-map.h>
#undef QOS_CUSTOM_VERSION
#define QOS_CUSTOM_VERSION 99
""" + OTHER_METRIC.replace("GAUGE", "COUNTER").replace("qosd_set", "qosd_count")


# A helper that changes something, in a function that another helper calls
CALLBACK = """
#include <qosd/qosd-probe.h>
QOSD_COUNTER(programs);
static int act(unsigned i, void *ctx) {
        return bpf_send_signal(9);
}
SEC("tp_btf/sched_process_exec")
int on_exec(unsigned long long *ctx) {
        return bpf_loop(1, act, NULL, 0);
}
char LICENSE[] SEC("license") = "GPL";
"""

# The first program is loaded before the second one is refused
LOOP = """
#include <qosd/qosd-probe.h>
QOSD_COUNTER(programs);
SEC("tp_btf/sched_process_fork")
int before_loop(unsigned long long *ctx) {
        return 0;
}
SEC("tp_btf/sched_process_exec")
int on_exec(unsigned long long *ctx) {
        struct qosd_unit unit;
        if (qosd_unit_of_current(&unit))
                qosd_count(&programs, &unit, 1);
        while (bpf_ktime_get_ns() != 0) {
        }
        return 0;
}
char LICENSE[] SEC("license") = "GPL";
"""

# An end that the verifier does not reach
LONG = LOOP.replace("while (bpf_ktime_get_ns() != 0)", "for (int i = 0; i < 10000000; i++)").replace(
    "{\n        }", "bpf_get_smp_processor_id();")


def cut_types(path):
    """Makes the section of types of an object file half as long."""
    with open(path, "r+b") as f:
        data = bytearray(f.read())
        at, size, number, names = struct.unpack_from("<Q", data, 40) + struct.unpack_from("<3H", data, 58)
        headers = [at + i * size for i in range(number)]
        strings = struct.unpack_from("<Q", data, headers[names] + 24)[0]
        for header in headers:
            name = strings + struct.unpack_from("<I", data, header)[0]
            if data[name:].startswith(b".BTF\0"):
                length = struct.unpack_from("<Q", data, header + 32)[0]
                struct.pack_into("<Q", data, header + 32, length // 2)
        f.seek(0)
        f.write(data)


def change_manifest(name, old, new):
    with open(f"{PROBES}/{name}.xml") as f:
        text = f.read()
    check(old in text, f"'{old}' is not in the manifest")
    with open(f"{PROBES}/{name}.xml", "w") as f:
        f.write(text.replace(old, new))


@contextlib.contextmanager
def unavailable(expected, texts, change=lambda: None):
    """A unit that is observed with a probe that works, and with others of which each is unavailable for the reason
    expected. Yields the unit."""
    with installed("started", texts=texts):
        change()
        u = Unit("/bin/sh -c 'sleep infinity'", type="exec").start()
        attach(u, "--probes=requests,custom:started" + "".join(f",custom:{name}" for name in expected))
        rows = {name: [(p["state"], p.get("reason", "")) for p in rows_of(name)] for name in expected}
        for name, text in expected.items():
            check(len(rows[name]) == 1 and rows[name][0][0] == "unavailable" and text in rows[name][0][1],
                  f"{name}: {rows[name]}, expected '{text}'")
        equal([p["state"] for p in rows_of("started")], ["attached"], "state of the probe that works")
        u.restart()
        wait_for("it counts", lambda: custom(u, "started.programs.count") >= 1)
        equal(list(metrics(u)), ["started"], "probes with metrics")
        equal(len({name.split("-")[1] for name in stored("custom-")}), 1, "probes in the store")
        yield u


@test(deadline=90, own_daemon=True)
def refused():
    """A probe that cannot be loaded is unavailable, with the reason; others, and all else, work."""
    with unavailable({
            # The verifier's last line
            "bad": "loading 'on_exec': math between",
            "hostile": "calls the helper 109 (send_signal)",
            "other": "'programs' is a qosd_gauge in the object file, but the manifest says qosd_counter",
            "old": "was compiled for another version of qosd",
            "callback": "calls the helper 109 (send_signal)",
            "endless": "loading 'on_exec': infinite loop detected at insn",
            "long": "loading 'on_exec': BPF program is too large. Processed 1000001 insn",
            }, {"bad": BAD, "hostile": HOSTILE, "other": OTHER_METRIC, "old": OLD, "callback": CALLBACK,
                "endless": LOOP, "long": LONG}) as u:
        equal(run("bpftool", "prog", "show", "name", "before_loop", ok=False).stdout, "", "half of a probe")
        os.chmod(PROBES, 0o777)
        try:
            qosctl("detach", u.name)
            attach(u, "--probes=requests,custom:started")
            reason = rows_of("started")[0]["reason"]
            check("started.xml: it or a directory above is not owned by root" in reason, reason)
        finally:
            os.chmod(PROBES, 0o755)
        equal(metrics(u), {}, "metrics")
        error = qosctl("attach", u.name, "--probes=custom:none", ok=False).stderr
        check("there is no probe 'custom:none'" in error, error)


@test(deadline=90, own_daemon=True)
def refused_files():
    """Files that do not belong together, or that are damaged, make a probe unavailable; others work."""
    def change():
        change_manifest("hash", "<probe ", f"<probe X-SHA256='{'0' * 64}' ")
        cut_types(f"{PROBES}/cut.bpf.o")
        change_manifest("many", "</probe>", "".join(f"<metric name='m{i}' type='counter' description='d'/>\n"
                                                    for i in range(10000)) + "</probe>")
        os.chmod(f"{PROBES}/open.bpf.o", 0o666)
        change_manifest("more", "</probe>", "".join(f"<metric name='m{i}' type='counter' description='d'/>\n"
                                                    for i in range(32)) + "</probe>")
        change_manifest("twice", "</probe>", "<metric name='programs' type='gauge' description='d'/></probe>")
        change_manifest("bomb", "<probe ", "<!DOCTYPE probe [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><probe ")
    with unavailable({
            "hash": "'X-SHA256' does not match 'hash.bpf.o', whose hash is",
            "cut": "cut.bpf.o: It is invalid",
            "many": "many.xml: File too large",
            "more": "more.xml:35: <probe> has more than 32 metrics",
            "twice": "<probe> has two metrics 'programs'",
            "bomb": "bomb.xml:2: The manifest has a document type",
            "open": "open.bpf.o: it or a directory above is not owned by root",
            }, dict.fromkeys(("hash", "cut", "many", "more", "twice", "bomb", "open"), CLASSIC), change):
        with open(f"{PROBES}/hash.bpf.o", "rb") as f:
            change_manifest("hash", "0" * 64, hashlib.sha256(f.read()).hexdigest())
        qosctl("check-probe", f"{PROBES}/hash.xml")


@test(deadline=60, own_daemon=True)
def replaced():
    """A probe that is replaced while in use continues as it was until the next attach."""
    with installed("started"):
        u = Unit("/bin/sh -c 'sleep infinity'", type="exec").start()
        attach(u, "--probes=requests,custom:started")
        before = rows_of("started")[0]["reason"]
        install("runqueue", "started")
        systemctl("reload", "qosd")
        u.restart()
        wait_for("it counts on", lambda: custom(u, "started.programs.count") >= 1)
        equal(rows_of("started")[0]["reason"], before, "hash")
        qosctl("detach", u.name)
        attach(u, "--probes=requests,custom:started")
        equal([p["program"] for p in rows_of("started")], ["on_wakeup", "on_switch"], "programs")
        equal(list(metrics(u)["started"]), ["wait"], "metrics")


@test(deadline=60, own_daemon=True)
def of_two_directories():
    """Of two probes of the same name that of the administrator is used, and not that of a package."""
    os.makedirs(PACKAGED, exist_ok=True)
    try:
        for name in "started", "waits":
            install("runqueue", name, PACKAGED)
        with installed("started"):
            u = Unit("/bin/sh -c 'sleep infinity'", type="exec").start()
            attach(u, "--probes=requests,custom:started,custom:waits")
            equal({name: [p["program"] for p in rows_of(name)] for name in ("started", "waits")},
                  {"started": ["on_exec"], "waits": ["on_wakeup", "on_switch"]}, "programs")
    finally:
        shutil.rmtree(PACKAGED)


CHECKER = "/usr/libexec/qosd-probe-check"


@contextlib.contextmanager
def stopped_checker():
    """The process that checks probes stops as soon as it is started. Yields a function that waits for it and returns
    its ID."""
    os.rename(CHECKER, CHECKER + ".kept")
    with open(CHECKER, "w") as f:
        f.write(f"#!/bin/sh\nkill -STOP $$\nexec {CHECKER}.kept \"$@\"\n")
    os.chmod(CHECKER, 0o755)

    def find():
        for path in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError), open(path) as f:
                pid, name, state = f.read().split()[:3]
                if name == "(qosd-probe-chec)" and state == "T":
                    return int(pid)
        return None
    try:
        yield lambda: wait_for("the checker is stopped", find)
    finally:
        os.rename(CHECKER + ".kept", CHECKER)


# Each program takes the verifier some hundred thousand steps
SLOW = """
#include <qosd/qosd-probe.h>
QOSD_COUNTER(programs);
#define PROGRAM(n) \\
SEC("raw_tp/sched_process_exec") \\
int on_exec_##n(struct bpf_raw_tracepoint_args *ctx) { \\
        struct qosd_unit unit; \\
        unsigned long long x = ctx->args[0]; \\
        for (int i = 0; i < 100000; i++) \\
                x = x * 3 + n; \\
        if (x != 0 && qosd_unit_of_current(&unit)) \\
                qosd_count(&programs, &unit, 1); \\
        return 0; \\
}
PROGRAM(0) PROGRAM(1) PROGRAM(2) PROGRAM(3) PROGRAM(4) PROGRAM(5) PROGRAM(6) PROGRAM(7) PROGRAM(8) PROGRAM(9)
PROGRAM(10) PROGRAM(11) PROGRAM(12) PROGRAM(13) PROGRAM(14) PROGRAM(15) PROGRAM(16) PROGRAM(17) PROGRAM(18) PROGRAM(19)
char LICENSE[] SEC("license") = "GPL";
"""


@test(deadline=120, own_daemon=True)
def loading_takes_long():
    """While the verifier is busy with a probe, other clients are served; a unit that is detached meanwhile, and
    attached again, is observed with it afterwards."""
    with installed(texts={"slow": SLOW}):
        u = Unit("/bin/sh -c 'sleep infinity'", type="exec").start()
        qosctl("attach", u.name)

        def begin():
            client = subprocess.Popen(["qosctl", "attach", u.name, "--probes=requests,custom:slow"], text=True,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            wait_for("it is being loaded", lambda: rows_of("slow")[0].get("reason") == "is being loaded")
            return client
        client = begin()
        qosctl("detach", u.name)
        check("was detached before its programs were loaded" in client.communicate()[1], "error")
        equal(begin().wait(), 0, "attach")
        equal({p["state"] for p in rows_of("slow")}, {"attached"}, "states")
        u.restart()
        wait_for("they count", lambda: custom(u, "slow.programs.count") >= 20)


@test(deadline=90, own_daemon=True)
def checker_hangs():
    """While the process that checks a probe hangs, other clients are served; the attach ends with it, or at its
    deadline, or as soon as the unit is detached."""
    with installed("started", "runqueue"), stopped_checker() as wait_for_checker:
        u, other = [Unit("/bin/sh -c 'sleep infinity'", type="exec").start() for _ in range(2)]

        def begin():
            return subprocess.Popen(["qosctl", "attach", u.name, "--probes=requests,custom:started"], text=True,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        client = begin()
        checker = wait_for_checker()
        attach(other)
        check(u.name in qosctl("list").stdout, "both are listed")
        equal([(p["state"], p.get("reason")) for p in rows_of("started")], [("idle", "is being checked")], "state")
        equal(client.poll(), None, "attach has ended")
        os.kill(checker, signal.SIGCONT)
        equal(client.wait(), 0, "attach")
        equal([p["state"] for p in rows_of("started")], ["attached"], "state")
        u.restart()
        wait_for("it counts", lambda: custom(u, "started.programs.count") >= 1)

        # Another one, at whose deadline all else goes on
        attach(other, "--probes=requests,custom:started,custom:runqueue")
        equal([(p["state"], p.get("reason")) for p in rows_of("runqueue")],
              [("unavailable", "qosd-probe-check took more than 5 s")], "state")
        equal(list(metrics(other)), ["started"], "metrics")

        qosctl("detach", u.name)
        qosctl("detach", other.name)
        client = begin()
        checker = wait_for_checker()
        qosctl("detach", u.name)
        check("was detached before its programs were loaded" in client.communicate()[1], "error")
        # The files may have changed: they are checked again
        client = begin()
        os.kill(checker, signal.SIGCONT)
        wait_for("the second process", lambda: wait_for_checker() != checker)
        client.kill()
        client.wait()
        os.kill(wait_for_checker(), signal.SIGCONT)
        wait_for("it is loaded", lambda: [p["state"] for p in rows_of("started")] == ["attached"])


# Takes some 100 us of each system call of the units that are observed with it, most of it to read the clock
COSTLY = """
#include <qosd/qosd-probe.h>
QOSD_COUNTER(programs);
static int read_clock(unsigned i, void *ctx) {
        return bpf_ktime_get_ns() == 0;
}
SEC("raw_tp/sys_enter")
int on_call(void *ctx) {
        struct qosd_unit unit;
        if (!qosd_unit_of_current(&unit))
                return 0;
        bpf_loop(4000, read_clock, NULL, 0);
        qosd_count(&programs, &unit, 1);
        return 0;
}
char LICENSE[] SEC("license") = "GPL";
"""


def cost_of(name, probe):
    """What the probe has taken of a CPU for a unit in the last sample; None: that was not measured."""
    return varlink("Get", unit=name).get("customCost", {}).get(probe)


def measuring():
    """The processes that have the kernel measure the run time of BPF programs."""
    return systemctl("list-units", "qosd-statistics@*", "--no-legend", "--plain").stdout.split()


@test(deadline=180, quiet="alone")
def cost(qosd_conf):
    """What a probe takes of a CPU is shown, and divided among units. One that takes more than is permitted is unloaded;
    all others continue. The kernel measures that only while there are custom probes."""
    with installed("started", texts={"costly": COSTLY}):
        outer = unit_name("outer", ".slice")
        write_unit(outer, "[Unit]\nDescription=Slice under test\n")
        u, idle = Worker(settings=f"Slice={outer}"), Worker(settings=f"Slice={outer}")

        @contextlib.contextmanager
        def calling():
            """The unit makes system calls. Yields a function that returns the time of CPUs that it has used, s."""
            u.do("import os, threading, time\nstop = False\n"
                 "def call():\n while not stop: os.getppid(); time.sleep(0.0002)\n"
                 "t = threading.Thread(target=call); t.start()")

            def used():
                with open(f"/sys/fs/cgroup{u.control_group}/cpu.stat") as f:
                    return int(f.readline().split()[1]) / 1e6
            try:
                yield used
            finally:
                u.do("stop = True; t.join()")

        def of_all_units():
            return float(rows_of("costly")[0]["reason"].split("the probe takes ")[1].split("%")[0]) / 100

        def of_unit(name):
            return cost_of(name, "costly")

        def next_sample():
            before = of_unit(u.name)
            wait_for("a sample is over", lambda: of_unit(u.name) not in (None, before), timeout=20)
        u.start()
        idle.start()
        equal(measuring(), [], "processes before")
        qosd_conf("[QoS]\nCustomCostMax=100%\n")
        for name in u.name, outer, idle.name:
            attach(name, "--probes=requests,custom:costly")
        with calling() as used:
            begin, at = used(), time.monotonic()
            # The first one may have begun before
            next_sample()
            next_sample()
            of_all, own, outer_share, idle_share = of_all_units(), *map(of_unit, (u.name, outer, idle.name))
            share = (used() - begin) / (time.monotonic() - at)
            # It makes some other calls, and the begin of each is no part of the program
            check(share / 2 < of_all < share * 1.1, f"{of_all} of a CPU, the unit has used {share}")
            check(own >= of_all * 0.9 and idle_share <= of_all * 0.1, f"{own}, {idle_share} of {of_all}")
            within(outer_share, own + idle_share, 0.01, 0.0001, "share of the outer unit")
            lines = qosctl("status", u.name).stdout.splitlines()
            check(any("Custom probes: costly " in line and line.endswith("% of a CPU") for line in lines), f"{lines}")
        equal(len({line for line in measuring() if line.startswith("qosd-statistics@")}), 1, "processes")
        for name in u.name, outer, idle.name:
            qosctl("detach", name)
        wait_for("the kernel does not measure any more", lambda: measuring() == [])

        qosd_conf("[QoS]\nCustomCostMax=1%\n")
        attach(u, "--probes=requests,custom:costly,custom:started")
        with calling():
            wait_for("it is unloaded", lambda: rows_of("costly")[0]["state"] == "unavailable", timeout=30)
        reason = rows_of("costly")[0]["reason"]
        check(reason.startswith("unloaded, as it took ") and "more than 1% (CustomCostMax=)" in reason, reason)
        u.do("import subprocess; subprocess.run(['/bin/true'])")
        equal(metrics(u)["started"]["programs"]["count"], 1, "programs")
        equal(list(metrics(u)), ["started"], "probes")
        qosctl("detach", u.name)
        attach(u, "--probes=requests,custom:costly")
        equal([p["state"] for p in rows_of("costly")], ["attached"], "state after it was attached again")
        qosctl("detach", u.name)


@test(deadline=90, own_daemon=True)
def cost_of_an_idle_unit(qosd_conf):
    """A unit that does nothing any more has no share of what a probe takes for processes of no unit."""
    with installed("started"):
        qosd_conf("[QoS]\nCustomCostMax=100%\n")
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:started")
        u.do("import subprocess, threading\nstop = threading.Event()\n"
             "def load():\n while not stop.wait(0.02): subprocess.run(['/bin/true'])\n"
             "t = threading.Thread(target=load); t.start()")
        wait_for("it has a share", lambda: cost_of(u.name, "started"), timeout=20)
        u.do("stop.set(); t.join()")

        def share():
            run("/bin/true")
            return cost_of(u.name, "started")
        wait_for("it has none", lambda: share() == 0, timeout=20)


@test(deadline=60, own_daemon=True)
def cost_that_cannot_be_measured():
    """Without the process that has the kernel measure it, a probe works, and the journal says what does not."""
    systemctl("stop", "qosd-statistics.socket")
    try:
        with installed("started"):
            u = Worker()
            u.start()
            since = f"@{time.time()}"
            attach(u, "--probes=requests,custom:started")
            u.do("import subprocess; subprocess.run(['/bin/true'])")
            equal(custom(u, "started.programs.count"), 1, "programs")
            wait_for("it is logged", lambda: "(is qosd-statistics.socket active?), CustomCostMax= has no effect" in
                     run("journalctl", "-u", "qosd.service", f"--since={since}", "--output=cat").stdout)
            check("customCost" not in varlink("Get", unit=u.name), "there is a cost")
    finally:
        systemctl("start", "qosd-statistics.socket")


def entries(unit, metric, label):
    """Counts of a metric by the value of its only label."""
    return {e["labels"][label]: e["count"] for e in custom(unit, metric).get("entries", [])}


@test(deadline=60, own_daemon=True)
def collections_of_python():
    """A static probe of the interpreter fires once for each collection."""
    with installed("collections"):
        u = Worker()
        u.start()
        u.do("import gc; gc.disable()")
        attach(u, "--probes=requests,custom:collections")
        u.do("for i in range(40): gc.collect(0)")
        u.do("for i in range(7): gc.collect(2)")
        equal(entries(u, "collections.collections", "generation"), {"0": 40, "2": 7}, "collections by generation")


@test(deadline=60, own_daemon=True)
def failures_of_bind():
    """Failed calls, by error; those that succeed are not counted."""
    with installed("bind"), socket.create_server(("127.0.0.1", 0)) as server:
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:bind")
        port = server.getsockname()[1]
        u.do(f"import socket, contextlib\nfor i in range(30):\n with socket.socket() as s, "
             f"contextlib.suppress(OSError): s.bind(('127.0.0.1', {port}))")
        u.do("for i in range(20):\n with socket.socket() as s, contextlib.suppress(OSError): s.bind(('192.0.2.1', 0))")
        u.do("for i in range(10):\n with socket.socket() as s: s.bind(('127.0.0.1', 0))")
        equal(entries(u, "bind.failures", "error"), {"EADDRINUSE": 30, "EADDRNOTAVAIL": 20}, "failures by error")


@test(deadline=60, own_daemon=True)
def packets_dropped():
    """Packets that a full receive queue drops are those that the kernel counts for the socket, though another process
    sends them."""
    with installed("drops"):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:drops")
        u.do("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); "
             "s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)\n"
             "open('/run/custom-port', 'w').write(str(s.getsockname()[1]))")
        with open("/run/custom-port") as f:
            port = int(f.read())
        os.unlink("/run/custom-port")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, occupied():
            for _ in range(500):
                sender.sendto(b"x" * 500, ("127.0.0.1", port))
        with open("/proc/net/udp") as f:
            dropped = next(int(line.split()[-1]) for line in f if f":{port:04X} " in line)
        check(dropped > 400, f"{dropped} packets dropped")
        equal(custom(u, "drops.packets.count"), dropped, "packets")


@test(deadline=60, quiet="alone")
def latency_of_disks():
    """Each write past the page cache is a request to the disk."""
    def devices(unit):
        return entries(unit, "disk.latency", "device")
    with installed("disk"):
        u = Disk()
        attach(u, "--probes=requests,custom:disk")
        u.start()
        before = sum(devices(u).values())
        u.go("write-100")
        wait_for("all are counted", lambda: sum(devices(u).values()) - before >= 100)
        equal(sum(devices(u).values()) - before, 100, "requests")
        check(all(os.path.exists(f"/sys/block/{name}") for name in devices(u)), f"devices {devices(u)}")
        qosctl("detach", u.name)


@test(deadline=60, own_daemon=True)
def threshold():
    """A threshold of a custom metric is violated and met as others, and has the value of Get."""
    with installed("started"):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:started")
        qosctl("set-threshold", u.name, "many: custom.started.programs.count > 20 over 10s")

        def state():
            return [(t["state"], t.get("value")) for t in qosctl_json("list-thresholds", u.name)][0]
        wait_for("it is met", lambda: state()[0] == "ok", timeout=20)
        u.do("import subprocess\nfor i in range(60): subprocess.run(['/bin/true'])")
        wait_for("it is violated, with all of them", lambda: state() == ("violated", 60))
        equal(varlink("Get", unit=u.name, window=10 * 10**9)["custom"]["started"]["programs"]["count"], 60, "Get")
        wait_for("it is met again", lambda: state()[0] == "ok", timeout=20)
        qosctl("wait", u.name, "custom.started.programs.count < 1 over 1s", "--timeout=20s", timeout=30)
        for rule, message in (("custom.started.programs", "is no metric of a custom probe"),
                              ("custom.started.programs.p101", "is no metric of a custom probe"),
                              ("custom.started.programs.value.p99", "is no metric of a custom probe")):
            error = qosctl("set-threshold", u.name, f"x: {rule} > 1", ok=False).stderr
            check(message in error, error)
        qosctl("set-threshold", u.name, "none: custom.started.other.rate > 1")
        equal([t["state"] for t in qosctl_json("list-thresholds", u.name) if t["name"] == "none"], ["unknown"], "state")


@test(deadline=90, own_daemon=True)
def in_the_history():
    """A step of the history has exactly what Get has of all time, if nothing happened in other steps, also after a
    restart and a crash of qosd, and those of five minutes have the sum."""
    names = [f"custom.{name}" for name in ("started.programs.count", "runqueue.wait.count", "runqueue.wait.sum",
                                           "runqueue.wait.mean", "runqueue.wait.p50")]

    def steps(**more):
        return [s["values"] for s in varlink("History", unit=u.name, metrics=names, **more)["steps"]]

    def some():
        return [values for values in steps() if values.get(names[0], 0) > 0]
    with installed("started", "runqueue"):
        u = Worker()
        u.start()
        u.do("import subprocess")
        attach(u, "--probes=requests,custom:started,custom:runqueue")
        next_step()
        u.do("for i in range(60): subprocess.run(['/bin/true'])")
        wait_for("the step is over", some, timeout=20)
        over = len(steps())
        wait_for("the next one is over, too", lambda: len(steps()) > over, timeout=20)
        expected = {name: custom(u, name.removeprefix("custom.")) for name in names}
        equal(expected[names[0]], 60, "programs")
        check(expected[names[1]] >= 60, f"waits: {expected}")
        equal(some(), [expected], "steps with programs")
        equal(sum(values[names[0]] for values in steps(step=300 * 10**9)), 60, "programs in steps of five minutes")
        lines = qosctl("history", u.name, names[0], "--no-legend").stdout.splitlines()
        equal([line.split()[-1] for line in lines if line.split()[-1] not in ("0", "-")], ["60"], "lines")
        check("<svg" in qosctl("history", u.name, *names, "--svg").stdout, "picture")
        for end in (lambda: systemctl("restart", "qosd"), kill_qosd):
            end()
            equal(some(), [expected], "steps with programs after qosd was started again")
        error = qosctl("history", u.name, "custom.started.programs", ok=False).stderr
        check("there is no metric 'custom.started.programs'" in error, error)


# How long programs that are started are meant to take, by their name, of which the manifest is the same as in "started"
# but for the metric
BY_NAME = """
#include <qosd/qosd-probe.h>
QOSD_HISTOGRAM(programs);
SEC("tp_btf/sched_process_exec")
int on_exec(unsigned long long *ctx) {
        struct qosd_labels labels = {};
        struct qosd_unit unit;
        if (qosd_unit_of_current(&unit)) {
                bpf_get_current_comm(labels.labels.bytes[0], QOS_CUSTOM_LABEL_SIZE);
                qosd_observe_by(&programs, &unit, 1000000, &labels);
        }
        return 0;
}
char LICENSE[] SEC("license") = "GPL";
"""


@test(deadline=90, own_daemon=True)
def entries_in_the_history():
    """An entry in a step of the history is exactly what Get has of it, if nothing happened in other steps, also after a
    restart and a crash of qosd. What does not exist is absent, or named in an error."""
    fields = ("count", "sum", "mean", "p50")
    names = [f"custom.names.programs[true].{field}" for field in fields] + ["custom.malloc.calls[large].count"]
    missing = ["custom.names.programs[none].count", "custom.malloc.calls[large,large].count"]

    def steps(**more):
        return [s["values"] for s in varlink("History", unit=u.name, metrics=names + missing, **more)["steps"]]

    def some():
        return [values for values in steps() if values.get(names[0], 0) > 0]

    def entry(metric, **labels):
        return next((e for e in custom(u, metric)["entries"] if e["labels"] == labels), {})
    with installed("malloc", texts={"names": BY_NAME}):
        change_manifest("names", "executed by processes of the unit\"/>",
                        "by name\"><label name=\"name\" decoder=\"string\"/></metric>")
        change_manifest("names", "counter", "histogram")
        systemctl("reload", "qosd")
        u = Worker()
        u.start()
        u.do("import ctypes, subprocess; c = ctypes.CDLL(None)")
        attach(u, "--probes=requests,custom:malloc,custom:names")
        next_step()
        u.do("for i in range(60): c.malloc(1 << 20), subprocess.run(['/bin/true'])")
        wait_for("the step is over", some, timeout=20)
        over = len(steps())
        wait_for("the next one is over, too", lambda: len(steps()) > over, timeout=20)
        programs = entry("names.programs", name="true")
        expected = {f"custom.names.programs[true].{field}": programs[field] for field in fields}
        expected[names[-1]] = entry("malloc.calls", size="large")["count"]
        equal((programs["count"], programs["sum"]), (60, 60 * 10**6), "programs by name")
        equal(some(), [expected], "steps with programs")
        equal([values[names[0]] for values in steps(step=300 * 10**9) if names[0] in values], [60],
              "programs in steps of five minutes")
        lines = qosctl("history", u.name, names[0], missing[0], "--no-legend").stdout.splitlines()
        equal([line.split()[-2:] for line in lines if line.split()[-2] != "-"], [["60", "-"]], "lines")
        check("<svg" in qosctl("history", u.name, *names, "--svg").stdout, "picture")
        for end in (lambda: systemctl("restart", "qosd"), kill_qosd):
            end()
            equal(some(), [expected], "steps with programs after qosd was started again")
        for command, name in (("history", "custom.malloc.calls[large].p101"), ("history", "custom.malloc.calls[large]"),
                              ("show", names[0]), ("set-threshold", names[0])):
            arguments = {"history": [name], "show": ["-P", name], "set-threshold": [f"x: {name} > 1"]}[command]
            error = qosctl(command, u.name, *arguments, ok=False).stderr
            check(f"'{name}'" in error, error)


@test(deadline=60, own_daemon=True)
def system_calls():
    """Calls that nothing but the test makes are counted exactly, by name."""
    with installed("syscalls"):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:syscalls")
        u.do("import os\nfor i in range(200): os.getppid()\nfor i in range(70): os.getpgid(0)")
        calls = entries(u, "syscalls.calls", "call")
        equal({name: calls.get(name) for name in ("getppid", "getpgid")}, {"getppid": 200, "getpgid": 70}, "calls")
        check("read" in calls and all(not name.isdigit() for name in calls), f"calls {calls}")
        shown = qosctl("status", u.name).stdout
        check("syscalls.calls" in shown and "getppid" in shown, shown)


@test(deadline=60, own_daemon=True)
def packets_sent():
    """Each datagram is a packet on the interface that it leaves by, and of the unit that sends it."""
    with installed("sent"):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:sent")
        u.do("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
             "for i in range(60): s.sendto(b'x', ('127.0.0.1', 9))")
        # Each is refused by a message of the kernel, which it sends in the context of the sender, too
        equal(entries(u, "sent.packets", "interface"), {"lo": 120}, "packets by interface")


@test(deadline=60, own_daemon=True)
def timers_by_function():
    """Each setitimer() starts a timer of high resolution, and each SO_KEEPALIVE that of a connection."""
    with installed("timers"), socket.create_server(("127.0.0.1", 0)) as server:
        u = Worker()
        u.start()
        u.do(f"import socket, signal\ns = socket.create_connection({server.getsockname()!r})")
        attach(u, "--probes=requests,custom:timers")
        u.do("for i in range(80): signal.setitimer(signal.ITIMER_REAL, 1000)\nsignal.setitimer(signal.ITIMER_REAL, 0)")
        u.do("for i in range(50):\n for on in 1, 0: s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, on)")
        equal(entries(u, "timers.precise", "function").get("it_real_fn"), 80, "timers of setitimer()")
        equal(entries(u, "timers.timers", "function").get("tcp_keepalive_t"), 50, "timers of SO_KEEPALIVE")


# Children that hold a timer each. All have started it when this ends
HELD_TIMERS = """
import signal
started, pids = os.pipe(), []
for _ in range({n}):
    pids.append(os.fork())
    if pids[-1] == 0:
        signal.setitimer(signal.ITIMER_REAL, {sec})
        os.write(started[1], b"x")
        while True:
            signal.pause()
for _ in pids:
    os.read(started[0], 1)
"""


def listed_timers(sec):
    """The number of timers of setitimer() in /proc/timer_list that expire only after that time."""
    with open("/proc/timer_list") as f:
        rows = re.findall(r"<(\w+)>, it_real_fn,.*\n.* \[in (\d+) to ", f.read())
    return len({timer for timer, nsec in rows if int(nsec) > sec * 10 ** 9})


@test(deadline=60, own_daemon=True)
def timers_that_the_kernel_lists():
    """Timers of setitimer() that processes of the unit hold are those of the kernel's list, each counted once, when it
    was started."""
    with installed("timers"):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:timers")
        # Longer than all others
        sec = 10 ** 7
        equal(listed_timers(sec / 2), 0, "timers in the list before")
        u.do(HELD_TIMERS.format(n=40, sec=sec))
        wait_for("all are in the list", lambda: listed_timers(sec / 2) == 40)
        equal(entries(u, "timers.precise", "function").get("it_real_fn"), 40, "timers")
        u.do("for pid in pids: os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)")
        wait_for("none is in the list", lambda: listed_timers(sec / 2) == 0)
        equal(entries(u, "timers.precise", "function").get("it_real_fn"), 40, "timers after the processes have ended")


@test(deadline=60, quiet="alone")
def packets_that_a_cpu_processes():
    """A CPU that sends packets over lo also receives them, and the kernel counts that: each packet of the unit, and
    hardly another one while nothing else uses the network."""
    cpu = max(os.sched_getaffinity(0))

    def processed():
        with open("/proc/net/softnet_stat") as f:
            rows = [[int(number, 16) for number in line.split()] for line in f]
        return next(row[0] for row in rows if row[12] == cpu)
    with installed("sent"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        u = Worker()
        u.start()
        u.do(f"import socket\nos.sched_setaffinity(0, {{{cpu}}})\n"
             "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)")
        attach(u, "--probes=requests,custom:sent")
        before = processed()
        u.do(f"for i in range(20000): s.sendto(b'x', {receiver.getsockname()!r})")
        n = processed() - before
        equal(entries(u, "sent.packets", "interface"), {"lo": 20000}, "packets by interface")
        check(20000 <= n <= 20400, f"{n} packets processed by the CPU")


@test(deadline=60, quiet="alone")
def soft_interrupts():
    """A unit that keeps a CPU busy sees the soft interrupts that the kernel counts for it, as far as it has the CPU."""
    cpu = max(os.sched_getaffinity(0))

    def counted():
        with open("/proc/softirqs") as f:
            column = f.readline().split().index(f"CPU{cpu}")
            return {name.rstrip(":"): int(numbers[column]) for name, *numbers in map(str.split, f)}
    with installed("softirq"):
        u = Worker()
        u.start()
        u.do(f"import os, time; os.sched_setaffinity(0, {{{cpu}}})")
        attach(u, "--probes=requests,custom:softirq")
        before = counted()
        u.do("t = time.monotonic(), time.process_time()\nwhile time.monotonic() - t[0] < 3: pass\n"
             "with open('share', 'w') as f: f.write(str((time.process_time() - t[1]) / 3))")
        after = counted()
        with open(u.directory + "/share") as f:
            share = float(f.read())
        seen = entries(u, "softirq.time", "kind")
        most = {kind: after[kind] - before[kind] for kind in after}
        check(seen and all(n <= most[kind] + 2 for kind, n in seen.items()), f"{seen}, of {most}")
        # The kernel's timers expire on top of whatever runs
        check(seen["TIMER"] >= most["TIMER"] * share / 4, f"{seen}, of {most}, with {share} of the CPU")
        check(0 < custom(u, "softirq.time.sum") < 3e9, "time")


@test(deadline=60, own_daemon=True)
def counters_of_the_cpu():
    """Without counters of the CPU a probe is unavailable, and the reason names the program. With software events, whose
    periods are nanoseconds, the same program counts the time of CPUs."""
    with installed("ipc"):
        u = Unit("/bin/sh -c 'while :; do :; done'", type="exec").start()
        attach(u, "--probes=requests,custom:ipc")
        if not os.path.exists("/sys/bus/event_source/devices/cpu/events"):
            equal([(p["state"], p["reason"].split(":")[0]) for p in rows_of("ipc")],
                  [("unavailable", "attaching 'on_cycles'")], "state")
        qosctl("detach", u.name)
        with open(f"{PROBES}/ipc.xml") as f:
            text = f.read()
        for config in ("cycles", "instructions", "cache-misses"):
            text = text.replace(f'type="hardware" config="{config}"', 'type="software" config="cpu-clock"')
        with open(f"{PROBES}/ipc.xml", "w") as f:
            f.write(text)
        attach(u, "--probes=requests,custom:ipc")

        def used():
            with open(f"/sys/fs/cgroup{u.control_group}/cpu.stat") as f:
                return int(f.readline().split()[1]) / 1e6
        begin = used()
        wait_for("it has used a CPU for three seconds", lambda: used() - begin > 3, timeout=30)
        for name in ("cycles", "instructions", "misses"):
            within(custom(u, f"ipc.{name}.count") / 1e9, used() - begin, 0.15, 0.2, f"seconds as {name}")


CLASSIC = """
#include <qosd/qosd-probe.h>
QOSD_COUNTER(programs);
SEC("raw_tp/sched_process_exec")
int on_exec(void *ctx) {
        struct qosd_unit unit;
        if (qosd_unit_of_current(&unit))
                qosd_count(&programs, &unit, 1);
        return 0;
}
char LICENSE[] SEC("license") = "GPL";
"""


@test(deadline=60, own_daemon=True)
def types_of_programs():
    """Raw tracepoints count what those with types do, and classic ones where qosd may read tracefs."""
    with installed("started", texts={"raw": CLASSIC, "classic": CLASSIC.replace("raw_tp/", "tp/sched/")}):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:started,custom:raw,custom:classic")
        u.do("import subprocess\nfor i in range(20): subprocess.run(['/bin/true'])")
        state, reason = rows_of("classic")[0]["state"], rows_of("classic")[0]["reason"]
        names = ["started", "raw"] + ["classic"] * (state == "attached")
        equal({name: custom(u, f"{name}.programs.count") for name in names}, dict.fromkeys(names, 20), "programs")
        check(state == "attached" or reason.startswith("attaching 'on_exec': "), reason)


@test(deadline=60, own_daemon=True)
def threads_by_state():
    """An iterator sees each thread of the unit once in each pass, also after a restart of qosd. GetMany has the sums of
    what Get has."""
    with installed("threads"):
        u = Worker()
        u.start()
        u.do("import threading\nfor i in range(20):\n"
             " threading.Thread(target=threading.Event().wait, daemon=True).start()")
        with open(f"/sys/fs/cgroup{u.control_group}/cgroup.threads") as f:
            n = len(f.readlines())
        check(n >= 21, f"{n} threads")
        attach(u, "--probes=requests,custom:threads")

        def passes(least):
            """Not in the middle of one."""
            count = custom(u, "threads.seen.count")
            return count if count >= least * n and count % n == 0 else None
        wait_for("three whole passes", lambda: passes(3))
        systemctl("restart", "qosd")
        wait_for("seven whole passes", lambda: passes(7))
        check(entries(u, "threads.seen", "state")["sleeping"] >= 7 * 20, "sleeping threads")
        window = 60 * 10 ** 9
        many = varlink("GetMany", units=[u.name], window=window)["snapshots"][0]["custom"]["threads"]["seen"]
        check(many["count"] >= 7 * n and "entries" not in many, f"GetMany: {many}")


@test(deadline=120, own_daemon=True, needs_program="storage_read_begin")
def functions_of_the_kernel():
    """Programs at the begin and at the end of a function see each call, its arguments and its result, also of a nested
    unit, and over a crash of qosd."""
    outer = unit_name("outer", ".slice")
    write_unit(outer, "[Unit]\nDescription=Slice under test\n")
    with installed("allocated"):
        u = Worker(settings=f"Slice={outer}")
        u.start()
        u.do("n = os.open('new', os.O_CREAT|os.O_RDWR)\np = os.pipe()[1]")
        u.do("import ctypes; c = ctypes.CDLL(None).fallocate64; c.argtypes = [ctypes.c_int] * 2 + [ctypes.c_long] * 2")
        for name in outer, u.name:
            attach(name, "--probes=requests,custom:allocated")
        equal([(p["hook"], p["state"]) for p in rows_of("allocated")],
              [("fentry/vfs_fallocate", "attached"), ("fexit/vfs_fallocate", "attached")], "programs")
        for n, end in enumerate((lambda: None, kill_qosd), 1):
            end()
            u.do("for i in range(30): c(n, 0, 0, 100)")
            u.do("for i in range(20): c(p, 0, 0, 7)")
            for name in outer, u.name:
                equal((custom(name, "allocated.calls.count"), custom(name, "allocated.bytes.count")),
                      (50 * n, 3140 * n), "calls and bytes")
                equal(entries(name, "allocated.results", "error"), {"0": 30 * n, "ESPIPE": 20 * n}, "results")


@test(deadline=60, own_daemon=True)
def others_for_want_of_memory():
    """A process that ends otherwise is not counted as killed for want of memory."""
    with installed("oom"):
        u = Worker()
        u.start()
        attach(u, "--probes=requests,custom:oom")
        equal([p["state"] for p in rows_of("oom")], ["attached"], "state")
        u.do("import subprocess\nwith subprocess.Popen(['/bin/sleep', 'infinity']) as p: p.kill()")
        equal(custom(u, "oom.kills.count"), 0, "kills")


@test(deadline=120, own_daemon=True, needs_vm="the memory controller is not there", vm="nightly")
def kills_for_want_of_memory():
    """As many as the kernel counts for the control group."""
    with installed("oom"):
        u = Worker(settings="MemorySwapMax=0\nMemoryMax=64M\nOOMPolicy=continue")
        u.start()
        attach(u, "--probes=requests,custom:oom")
        u.do("for i in range(3): child(lambda: b'x' * (200 << 20))")
        with open(f"/sys/fs/cgroup{u.control_group}/memory.events") as f:
            events = {key: int(value) for key, value in map(str.split, f)}
        equal(events["oom_kill"], 3, "kills that the kernel counts")
        equal(custom(u, "oom.kills.count"), 3, "kills")


# Counts of events that some examples count, too, of a control group
TRACE = """
BEGIN {{ printf("ready\\n"); }}
tracepoint:sched:sched_process_exec /cgroup == {0}/ {{ @programs = count(); }}
tracepoint:raw_syscalls:sys_enter /cgroup == {0}/ {{ @calls = count(); }}
tracepoint:timer:timer_start /cgroup == {0}/ {{ @timers = count(); }}
tracepoint:timer:hrtimer_start /cgroup == {0}/ {{ @precise = count(); }}
tracepoint:irq:softirq_exit /cgroup == {0}/ {{ @time = count(); }}
tracepoint:net:net_dev_queue /cgroup == {0}/ {{ @packets = count(); }}
"""


@contextlib.contextmanager
def traced(group):
    """Yields a dictionary that has, after the body, what bpftrace has counted in the control group meanwhile."""
    counts = {}
    with subprocess.Popen(["bpftrace", "-f", "json", "-e", TRACE.format(os.stat(group).st_ino)],
                          stdout=subprocess.PIPE, text=True) as tracer:
        check(any("ready" in line for line in tracer.stdout), "bpftrace has ended")
        yield counts
        tracer.send_signal(signal.SIGINT)
        for line in filter(str.strip, tracer.stdout):
            if (said := json.loads(line))["type"] == "map":
                counts.update(said["data"])


@test(deadline=90, own_daemon=True)
def as_bpftrace_counts():
    """Examples count what bpftrace does between two moments at which the unit waits."""
    examples = {"started": "programs", "syscalls": "calls", "softirq": "time", "sent": "packets"}
    with installed(*examples, "timers"):
        u = Worker()
        u.start()
        u.do("import signal, socket, subprocess")
        attach(u, "--probes=requests" + "".join(f",custom:{name}" for name in [*examples, "timers"]))

        def counts():
            shown = metrics(u)
            return ({metric: shown[probe][metric]["count"] for probe, metric in examples.items()}
                    | {metric: shown["timers"][metric]["count"] for metric in ("timers", "precise")})

        def skipped():
            """Runs that the kernel has skipped, as an interrupt called the program while it ran, for any process."""
            return sum(row["recursionMisses"] for probe in [*examples, "timers"] for row in rows_of(probe))
        missed = skipped()
        with traced(f"/sys/fs/cgroup{u.control_group}") as expected:
            before = counts()
            u.do("for i in range(30): subprocess.run(['/bin/true'])")
            u.do("for i in (1000,) * 80 + (0,): signal.setitimer(signal.ITIMER_REAL, i)")
            u.do("with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:\n"
                 " for i in range(60): s.sendto(b'x', ('127.0.0.1', 9))")
            u.do("t = time.monotonic()\nwhile time.monotonic() - t < 1: pass")
            after = counts()
        missed = skipped() - missed
        seen = {f"@{metric}": after[metric] - before[metric] for metric in after}
        check(expected["@programs"] == 30 and expected["@precise"] >= 80 and expected["@packets"] >= 60, f"{expected}")
        check(seen.keys() == expected.keys() and all(seen[m] <= n <= seen[m] + missed for m, n in expected.items()),
              f"counts {seen} instead of {expected}, with {missed} skipped runs")
