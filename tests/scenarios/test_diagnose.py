# SPDX-License-Identifier: LGPL-2.1-or-later
"""Diagnoses of units, compared with faults that are known, as each unit is set up to suffer from them. Nothing else may
run meanwhile, as the CPU time of other tests would be a finding, too."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
import types

import scenario
from diagnosing import (FIRST, LETS_WAIT, NEEDS, SECONDS, Toiler, backend, benchmark, caddy, case, diagnose,
                        fetching, files, found, hog, holds, loaded, measure_alone, mount_of, nginx, on_cpu, only,
                        other_cpu, prepare, redis, requested, requests_from, said, script, waiter, writer)
from scenario import Server, Unit, check, equal, qosctl, test, unit_name, unused_port, wait_for
from test_udp_peers import unbound


@case("cpu")
def cpu_hog():
    """Redis shares its CPU with another unit."""
    u, other = redis(cpu=0), hog()
    with benchmark(u):
        d = yield u
    f = found(d, "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


@case("cpu")
def hog_that_has_ended():
    """A unit that takes the CPU of Redis ends while the diagnosis goes on, so that its control group is gone at the
    end."""
    u, other = redis(cpu=0), hog(processes=3)
    group = "/sys/fs/cgroup" + scenario.unit_property(other.name, "ControlGroup")

    def cpu_nsec():
        return int(scenario.unit_property(other.name, "CPUUsageNSec"))

    def end():
        wait_for("the diagnosis has begun", lambda: u.name in scenario.listed() and holds(u), 20)
        # The unit is held before the programs are loaded, which may take a second
        wait_for("threads are measured",
                 lambda: scenario.lookup(scenario.snapshot(u), "contention.covered", 0) > 0, 20)
        before = cpu_nsec()
        wait_for("the other unit had the CPU for some time", lambda: cpu_nsec() > before + scenario.SEC * 11 // 2, 20)
        other.stop()
    ends = threading.Thread(target=end)
    with benchmark(u):
        ends.start()
        try:
            d = yield u, "--for=10s"
        finally:
            ends.join()
    check(not os.path.exists(group), f"the control group {group} is still there")
    f = found(d, "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


@case(also=("limit",), quiet="loaded")
def hog_that_ended_before():
    """A unit that took the CPU of Redis ended before the diagnosis began: it is no finding of this, and keeps its name
    in the table of what Redis has waited for."""
    u, other = redis(cpu=0), hog()
    scenario.attach(u, "--probes=requests,cpu")

    def waits():
        return [r for r in scenario.varlink("Resources", unit=u.name)["resources"] if r.get("unit") == other.name]
    with benchmark(u):
        wait_for("Redis has waited for it", waits, 20)
        other.stop()
        d = yield u
        check(waits(), f"it has lost its name: {scenario.varlink('Resources', unit=u.name)}")
    check(other.name not in json.dumps(d), f"it is in the diagnosis: {said(d)}")


@case("cpu")
def hogs_that_come_and_go():
    """A unit that is restarted whenever it ends takes the CPU of Redis, each time in a control group of its own."""
    u = redis(cpu=0)
    other = Unit("/usr/bin/timeout 0.3 /bin/sh -c 'while :; do :; done'", name=unit_name("hog"), type="exec",
                 settings=FIRST + "CPUAffinity=0\nRestart=always\nRestartSec=10ms\n").start()
    with benchmark(u):
        d = yield u
    f = found(d, "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


@case("limit", recorded=True)
def one_busy_process():
    """A server with one thread, and more requests than that can serve."""
    s = Toiler(workers=1, cpu_us=500, settings="CPUAffinity=0")
    with on_cpu(other_cpu()), loaded(s, connections=8):
        d = yield s
    f = found(d, "limit")
    equal((f["state"], f["resource"]), ("running", f"process {s.main_pid}"), f"what saturates: {f}")


@case("limit", also=("cpu",), recorded=True)
def broker():
    """A stream of Redis gets more messages than Redis' one thread can process."""
    u = redis(cpu=0)
    # Messages of several fields, in pipelines, are more work for the server than for the client
    fields = [w for i in range(20) for w in (f"field{i}", "x" * 20)]
    with benchmark(u, connections=100, command=("-P", "16", "XADD", "stream", "MAXLEN", "1000", "*", *fields)):
        d = yield u
    f = found(d, "limit")
    check(f.get("state") == "running"
          and f["resource"] in (f"process {u.main_pid}", f"thread redis-server ({u.main_pid})"), f"what saturates: {f}")


@case("limit", quiet="light")
def pool_too_small():
    """Two workers that sleep serve eight connections, while the CPUs are idle."""
    s = Toiler(workers=2, sleep_us=10000)
    with loaded(s, connections=8):
        d = yield s
    f = found(d, "limit")
    check("2.0 at a time" in f["text"], f"size of the pool: {f}")
    equal("CPUs are idle" in f["text"], d["figures"]["idleCpus"] >= 0.2, f"idle CPUs: {said(d)}")


@case("limit", recorded=True)
def batches():
    """One thread does the work of the threads of all connections, for several requests at once."""
    s = Toiler(batch=4, cpu_us=4000, settings="CPUAffinity=0")
    with on_cpu(other_cpu()), loaded(s, connections=12):
        d = yield s
    f = found(d, "limit")
    check(f["resource"].startswith("thread batcher (") and f["state"] == "running", f"what saturates: {f}")


@case("dependency", quiet="light")
def slow_dependency():
    """The unit sends requests to another server, which is slow."""
    slow = backend(20000)
    s = Toiler(ask=slow.port)
    with loaded(s, connections=4):
        d = yield s
    f = found(d, "dependency")
    equal((f["resource"], f["certainty"]), (f"127.0.0.1:{slow.port}", "certain"), f"the dependency: {f}")


# A DNS server that takes its time for each response: 192.0.2.1 for A, and none for other types
SLOW_DNS = """
import socket, sys, threading
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 53))
def respond(query, client):
    end = query.index(b'\\0', 12) + 5
    a = query[end - 3] == 1
    s.sendto(query[:2] + b'\\x81\\x80\\0\\1\\0' + bytes([a]) + bytes(4) + query[12:end]
             + (b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\0\\0\\4\\xc0\\0\\2\\1' if a else b''), client)
while True:
    threading.Timer(.03, respond, s.recvfrom(512)).start()
"""


@case("dependency", quiet="light", recorded=True)
def slow_dns():
    """Each response needs the address of a name, which glibc queries at a slow DNS server."""
    address = "127.0.53.1"
    path, configuration = (f"/run/{unit_name('dns', end)}" for end in (".py", ".conf"))
    for name, text in ((path, SLOW_DNS), (configuration, f"nameserver {address}\n")):
        with open(name, "w") as f:
            f.write(text)
    Unit(f"/usr/bin/python3 {path} {address}", type="exec", settings=FIRST).start()
    wait_for("the DNS server is there", lambda: scenario.run("ss", "-lunH", "src", f"{address}:53").stdout)
    u = script("import socket\ndef need():\n    socket.getaddrinfo('backend.example', 80)\n" + NEEDS,
               settings=f"BindReadOnlyPaths={configuration}:/etc/resolv.conf\n")
    with fetching(u.port, "/", n=4) as times:
        wait_for("some responses", lambda: len(times) > 20)
        d = yield u
    check(min(times) > .03, f"a response takes {min(times)} s")
    equal(found(d, "dependency")["resource"], f"{address}:53", f"the dependency: {said(d)}")


@case("quota", deadline=120, vm="nightly", needs_vm="the CPU controller is not there")
def quota_too_small():
    s = Toiler(cpu_us=5000, settings="CPUQuota=10%")
    with loaded(s, connections=2):
        d = yield s
    f = found(d, "quota")
    check(f["state"] == "throttled" and "the quota was used up in" in f["text"], f"state and text: {f}")


def without_room(limit):
    """Each response reads pages of a mapped file that is larger than the memory of the unit, from a disk that is slow:
    a page that takes long to read is what a unit waits for, even if its own work takes long on an emulated CPU."""
    with files(1) as (path,):
        scenario.run("dd", "if=/dev/urandom", f"of={path}", "bs=1M", "count=64", "conv=fsync", timeout=60)
        # Pages in memory are charged to the control group that has written them
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        s = Toiler(map=path, settings=f"{limit}=20M\nMemorySwapMax=0\nIOReadIOPSMax=/var/tmp 150")
        with loaded(s, connections=2):
            d = yield s
    f = found(d, "memory")
    check("major faults" in f["text"], f"text: {f}")


@case("memory", also=("disk",), deadline=180, vm="nightly", needs_vm="the memory controller is not there")
def memory_too_small():
    yield from without_room("MemoryMax")


@case("memory", also=("disk",), deadline=180, vm="nightly", needs_vm="the memory controller is not there")
def memory_throttled():
    """Threads are throttled beyond MemoryHigh=, and no process is killed."""
    yield from without_room("MemoryHigh")


@case("disk", also=("cpu",))
def own_syncs():
    """Each response waits until some MiB are on the disk, for which a CPU is woken up repeatedly."""
    with files(1) as (path,):
        s = Toiler(sync=path, sync_size=8 << 20)
        with loaded(s, connections=2):
            d = yield s
    f = found(d, "disk")
    check("of its bytes are the unit's own" in f["text"], f"the unit that writes: {f}")


@case("disk", also=("cpu",), recorded=True)
def busy_neighbour_on_the_disk():
    """Each response waits until a page is on the disk, while another unit writes as much as it can."""
    with files(5) as (path, *others):
        s = Toiler(sync=path)
        other = writer(*others)
        with loaded(s, connections=2):
            d = yield s
        other.stop()
    f = found(d, "disk")
    equal((f["resource"], f["unit"]), (d["devices"][0]["name"], other.name),
          f"the device, and the unit that uses it: {said(d)}")


@case("cpu", "dependency", recorded=True)
def two_faults():
    """The unit shares its CPU with another one, and has a slow dependency."""
    slow = backend(10000)
    s, other = Toiler(ask=slow.port, cpu_us=5000, settings="CPUAffinity=0"), hog()
    with on_cpu(other_cpu()), loaded(s, connections=1):
        d = yield s
    equal((found(d, "cpu")["unit"], found(d, "dependency")["resource"]), (other.name, f"127.0.0.1:{slow.port}"),
          f"both: {said(d)}")


@case("cpu", recorded=True)
def batch_beside_a_hog():
    """A unit that is no server shares its CPU with another one."""
    prepare()
    u = Unit(f"{scenario.tools}/waiter burn:1", settings=FIRST + "CPUAffinity=0").start()
    other = hog()
    f = found((yield u), "cpu")
    equal((f["state"], f["unit"]), ("runQueue", other.name), f"state and CPU occupant: {f}")


@case("disk", also=("cpu",))
def batch_beside_a_writer():
    """A unit that is no server writes to a disk that another unit writes to as much as it can."""
    prepare()
    with files(5) as (path, *others):
        other = writer(*others)
        u = Unit(f"/bin/sh -c 'while :; do dd if=/dev/zero of={path} bs=4k count=1 conv=fsync,notrunc "
                 "status=none; done'",
                 type="exec", settings=FIRST).start()
        d = yield u
        other.stop()
        u.stop()
    f = found(d, "disk")
    equal((f["resource"], f["unit"]), (d["devices"][0]["name"], other.name),
          f"the device, and the unit that uses it: {said(d)}")
    equal(f["mount"], mount_of("/var/tmp"), f"the file system: {said(d)}")


@case(recorded=True)
def batch_that_runs():
    """A unit that is no server has a CPU for itself, and pauses at times."""
    yield waiter("burn:1", "work:1", "sleep:2")


@case(quiet="light", recorded=True)
def idle_redis():
    yield redis()


@case(quiet="light", recorded=True)
def idle_pool():
    """The unit's threads wait for work."""
    yield Toiler(idle=50)


@case(quiet="light", recorded=True)
def busy_threads():
    """The unit serves its requests, and has idle threads."""
    s = Toiler(idle=50, cpu_us=100)
    with loaded(s, connections=2, think_us=10000):
        yield s


@case(quiet="light", recorded=True)
def busy_workers():
    s = Toiler(workers=4, sleep_us=2000)
    with loaded(s, connections=2, think_us=10000):
        yield s


@case(quiet="light", recorded=True)
def busy_batches():
    """One thread does the work of the threads of all connections, and is not saturated."""
    s = Toiler(batch=4, cpu_us=500)
    with loaded(s, connections=4, think_us=20000):
        yield s


@case(quiet="light", recorded=True)
def idle_go():
    yield caddy()


@case(quiet="light", recorded=True)
def busy_go():
    u = caddy()
    with requests_from(f"http://127.0.0.1:{u.port}/"):
        yield u


@case("dependency", quiet="light")
def nginx_before_a_slow_server():
    """nginx waits for a slow server that it forwards requests to."""
    port = unused_port()
    Unit(f"/usr/bin/python3 {scenario.SOURCES}/http_server.py {port}", settings=FIRST).start()
    u = nginx(f"location / {{ return 200 well; }} location /late/ {{ proxy_pass http://127.0.0.1:{port}; }}")
    with requests_from(f"http://127.0.0.1:{u.port}/late/20", per_second=40):
        d = yield u
    equal(found(d, "dependency")["resource"], f"127.0.0.1:{port}", f"the dependency: {said(d)}")


@case(quiet="light")
def watch_in_progress():
    """A stream of messages is no finding."""
    u = script(LETS_WAIT)
    with requested(u, "/watch", lambda f: f["streams"] == 1) as f:
        equal((f["inFlight"], f["waiting"], "oldestWaiting" in f), (0, 0, False), "inFlight, waiting, oldestWaiting")
        d = yield u
    equal(d["text"], "almost no requests", f"text: {said(d)}")


@case(quiet="light")
def consumer_without_work():
    """A request without a response to a server that has not responded before is no finding."""
    u = script(LETS_WAIT)
    with requested(u, "/work") as f:
        equal((f["inFlight"], f["waiting"]), (1, 1), "inFlight, waiting")
        check(abs(f["oldestWaiting"] - f["oldestInFlight"]) < 100 * scenario.MSEC, f"ages {f}")
        d = yield u
    check("1 request waits without a response" in d["text"], f"text: {said(d)}")


@case("dependency", quiet="light", recorded=True)
def nginx_before_a_server_that_hangs():
    s = Server(mode="thread", hang=True, settings=FIRST).start()
    scenario.attach(s)
    u = nginx(f"location / {{ return 200 well; }} location /late {{ proxy_pass http://127.0.0.1:{s.port}; }}")
    with requested(u, "/late"):
        d = yield u
    f = found(d, "dependency")
    equal((f["resource"], f["unit"]), (f"127.0.0.1:{s.port}", s.name),
          f"the dependency that does not respond: {said(d)}")
    check("does not respond" in d["summary"], f"summary: {said(d)}")


@case("limit", quiet="light")
def endless_loop():
    """A server of one thread is in a loop without an end, while others wait to be accepted."""
    u = script("""
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        while True:
            pass
class Server(http.server.HTTPServer):
    request_queue_size = 64
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
""")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", u.port)))
            s.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with requested(u, "/"):
            d = yield u
    f = found(d, "limit")
    equal((f["state"], f["resource"]), ("running", f"thread python3 ({u.main_pid})"), f"what is busy: {f}")
    check("has not responded; 3 connections are not accepted (limit 64)" in f["text"], f"text: {f}")


@case("limit", quiet="light", recorded=True)
def no_more_files():
    """A server that may not open more files accepts no connections."""
    u = script("""
import asyncio, sys
async def respond(reader, writer):
    await reader.readline()
    writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
async def main():
    await (await asyncio.start_server(respond, '127.0.0.1', int(sys.argv[1]))).serve_forever()
asyncio.run(main())
""", settings="LimitNOFILE=12\n")
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(socket.create_connection(("127.0.0.1", u.port)))
        with requested(u, "/"):
            d = yield u
    f = found(d, "limit")
    check("not accepted" in f["text"], f"text: {f}")


@case(quiet="light")
def busy_dns():
    """A DNS server that is not saturated has no finding, and a mean time to first byte, though phases of UDP requests
    are not measured."""
    u = unbound()
    queries = f"/run/{scenario.prefix}-queries"
    with open(queries, "w") as f:
        f.write("www.example A\n")
    p = subprocess.Popen(["dnsperf", "-s", "127.0.0.1", "-p", str(u.port), "-d", queries, "-Q", "1000", "-l", "60"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        d = yield u
    finally:
        p.kill()
        p.wait()
        os.unlink(queries)
    check("requests/s; mean time to first byte" in d["text"], f"text: {said(d)}")


@case(quiet="light")
def steady_nginx():
    u = nginx('return 200 "hello";')
    with requests_from(f"http://127.0.0.1:{u.port}/"):
        yield u


@case("workload", also=("limit",), deadline=120)
def more_load():
    """A rate of requests above the usual one is a finding about the load."""
    s = Toiler(workers=1, cpu_us=1000, settings="CPUAffinity=0")
    path = f"/run/{scenario.prefix}.normal"
    try:
        with on_cpu(other_cpu()):
            with loaded(s, connections=1, think_us=4000):
                only((yield s, f"--save={path}"))
            with loaded(s, connections=1, think_us=4000):
                only((yield s, f"--against={path}"))
            with loaded(s, connections=8, think_us=4000):
                yield s, f"--against={path}"
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def steps(u):
    return len(scenario.varlink("History", unit=u.name, metrics=["requests.server.count"])["steps"])


@test(quiet="loaded")
def rivals_in_a_slice():
    """CPU time that one unit of a slice takes from another is a finding about the latter, and none about the slice."""
    slice = types.SimpleNamespace(name=unit_name("slice", ".slice").replace("-", ""))
    u, other = (f(cpu=0, settings=f"Slice={slice.name}\n") for f in (redis, hog))
    with benchmark(u):
        whole, part = diagnose(slice), diagnose(u)
    figures = whole["figures"]
    check(figures["runQueueOwn"] > 10 * figures["runQueueOthers"],
          f"waits for units in the slice and outside of it: {said(whole)}")
    check(all(f["kind"] != "cpu" for f in whole["findings"]), f"units outside of the slice have its CPU: {said(whole)}")
    check(all(n["unit"] not in (u.name, other.name) for n in whole.get("users", []) if "unit" in n),
          f"units of the slice as CPU occupants: {said(whole)}")
    equal(found(part, "cpu")["unit"], other.name, f"CPU occupant, for the service: {said(part)}")


@test(deadline=240, quiet="light")
def by_its_history():
    """A diagnosis compares a unit with its history, without a saved baseline. A fault that the unit has had all the
    time is found as well, and a time in which a threshold was violated is not compared with."""
    slow = backend(20000)
    well, never, known = Toiler(cpu_us=5000, settings="CPUAffinity=0"), Toiler(ask=slow.port), Toiler(ask=slow.port)
    for u in (well, never, known):
        scenario.attach(u, "--probes=requests,cpu,block,memory")
    qosctl("set-threshold", known.name, "slow: requests.server.firstByte.mean > 10ms over 1s")
    with on_cpu(other_cpu()), loaded(well, connections=1, think_us=20000), loaded(never, connections=1,
                                                                                  think_us=5000), \
            loaded(known, connections=1, think_us=5000):
        wait_for("a threshold is violated", lambda: qosctl("is-ok", known.name, ok=False).returncode == 1, 20)
        # Three steps are needed; the first one may be too short, and the last one is not complete
        wait_for("five steps have passed", lambda: steps(well) >= 5, 90, pause=0.5)
        for u, cited in ((never, True), (known, False)):
            d = measure_alone(lambda: diagnose(u))
            equal(found(d, "dependency")["resource"], f"127.0.0.1:{slow.port}", f"the fault from the start: {said(d)}")
            equal(("; usually: " in d["text"], "baselineSource" in d), (cited, cited),
                  f"whether the history is the baseline: {said(d)}")
        # What others on the machine add to the baseline is less than two of them do
        other = hog(processes=2)
        d = diagnose(well)
        f = found(d, "cpu")
        equal(f["unit"], other.name, f"the CPU occupant: {f}")
        check("; usually: " in d["text"], f"no baseline in the text: {said(d)}")
        check(1.5 * d["baseline"]["firstByte"] <= d["figures"]["firstByte"], f"not worse than normal: {said(d)}")
        check(d["baseline"]["threads"]["runQueue"] < d["figures"]["threads"]["runQueue"],
              f"threads in the run queue, baseline: {json.dumps(d['baseline'])}")
        period = d["baselineSource"]
        check(30 * scenario.SEC <= period["covered"] + 10 * scenario.SEC
              and period["until"] <= d["timestamp"] - SECONDS * 10**6
              and period["since"] < period["until"], f"period of the baseline: {period}")
        check("Compared with its history, " in qosctl("diagnose", well.name, f"--for={SECONDS}s", timeout=40).stdout,
              "no baseline in the output of qosctl")


@test(deadline=90)
def contention_in_the_history():
    """The steps of the history have the states of threads, to one percent."""
    s = Toiler(idle=50)
    scenario.attach(s, "--probes=requests,cpu,block,memory")
    wait_for("two steps have passed", lambda: steps(s) >= 2, 60, pause=0.2)
    for step in scenario.varlink("History", unit=s.name,
                                 metrics=["contention.threads.park", "contention.shares.park"])["steps"][1:]:
        scenario.within(scenario.lookup(step, "contention.threads.park"), 50, 0.01, 0, "threads that park")
        check(scenario.lookup(step, "contention.shares.park") > 0.9, f"their share: {step}")


# An event loop that responds to all requests but those for /late
HANGS = """
import asyncio, sys
async def serve(reader, writer):
    while b'/late' not in await reader.readuntil(b'\\r\\n\\r\\n'):
        writer.write(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
    await reader.read()
async def run():
    async with await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1])) as s:
        await s.serve_forever()
asyncio.run(run())
"""


@test(quiet="light")
def attached_too_late():
    """Requests that were read before the attach may be stuck, so that the diagnosis is inconclusive. That a client is
    connected, and has got all responses, is no reason for doubt."""
    u = script(HANGS)
    with contextlib.ExitStack() as stack:
        def requests(*paths):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", u.port)))
            for path in paths:
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                if path != "/late":
                    check(s.recv(4096).startswith(b"HTTP/1.1 200"), "response")
        requests("/")
        requests("/", "/")
        d = diagnose(u)
        equal((d["verdict"], d["text"]), ("nothing", "almost no requests"), f"without such a request: {said(d)}")
        requests("/late")
        requests("/", "/late")
        d = diagnose(u, status=1)
        equal((d["verdict"], d["findings"]), ("unknown", []), f"with two: {said(d)}")
        check("on 2 connections the client was the last to send" in d["text"], f"text: {said(d)}")


@test(quiet="loaded")
def while_it_lasts():
    """A diagnosis holds the unit until its interval or its connection ends, and at most sixteen run at a time."""
    s = Server().start()
    connections = [scenario.Varlink() for _ in range(16)]
    for c in connections:
        c.send("Diagnose", {"unit": s.name, "window": 60 * scenario.SEC})
    wait_for("all diagnoses run", lambda: s.name in scenario.listed() and
             len(holds(s)) == 16, timeout=20)
    equal(scenario.varlink_error("Diagnose", unit=s.name), "TooManyDiagnoses", "error")
    connections.pop().close()
    wait_for("the hold of one has ended", lambda: len(holds(s)) == 15)
    with scenario.Varlink(timeout=30) as c:
        d = c.call("Diagnose", unit=s.name, window=scenario.SEC)
    equal((d["verdict"], d["findings"]), ("nothing", []), "verdict and findings of the short diagnosis")
    for c in connections:
        c.close()
    wait_for("no hold is left", lambda: s.name not in scenario.listed())


@test(quiet="light")
def interrupted():
    """Ctrl+C ends the interval early: qosctl prints the diagnosis of the shorter interval, and no hold is left."""
    b = backend(20000)
    u = Toiler(ask=b.port)
    with loaded(u, connections=1):
        p = subprocess.Popen(["qosctl", "diagnose", u.name, "--for=5min", "--json=short"], stdout=subprocess.PIPE)
        wait_for("the diagnosis runs", lambda: u.name in scenario.listed() and holds(u) == ["lease"], 20)
        begin = time.monotonic()
        wait_for("three seconds have passed", lambda: time.monotonic() > begin + 3.5, 20)
        p.send_signal(signal.SIGINT)
        d = json.loads(p.communicate(timeout=20)[0])
        passed = time.monotonic() - begin
    equal(p.returncode, 0, "exit status")
    equal(found(d, "dependency")["resource"], f"127.0.0.1:{b.port}", f"the peer: {said(d)}")
    check(2 <= d["figures"]["covered"] / scenario.SEC <= passed + 1,
          f"an interval of {d['figures']['covered']} ns after {passed} s")
    wait_for("no hold is left", lambda: u.name not in scenario.listed())


@test()
def not_for_everybody():
    """Unprivileged users cannot diagnose units of other users, whether these are attached or not."""
    s = Server().start()
    for attached in (False, True):
        if attached:
            scenario.attach(s, "--probes=requests,cpu,block,memory")
        r = scenario.run(*scenario.as_user(65534), "qosctl", "--no-ask-password", "diagnose", s.name, "--for=1s",
                         ok=False)
        check(r.returncode == 1 and not r.stdout, f"as nobody, attached: {attached}: {r}")
    equal(holds(s), ["administrator"], "holds")
