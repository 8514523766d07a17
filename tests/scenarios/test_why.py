# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a unit waits for, from unit to unit: chains of real services, of which the last one has one problem. None of
them is attached beforehand, so that qosctl has to find the units of peers by itself."""

import json
import subprocess

import scenario
from diagnosing import Toiler, files, hog, loaded, nginx, on_cpu, other_cpu, prepare, requests_from, writer
from scenario import Unit, check, equal, qosctl, run, systemctl, test, unit_name, unused_port, wait_for
from test_failures import Failing, accepts_nobody, proxy

SECONDS = 3     # for each unit


def why(unit, *options, status=0, timeout=60):
    r = qosctl("why", unit.name, f"--for={SECONDS}s", "--json=short", *options, ok=False, timeout=timeout)
    equal(r.returncode, status, f"exit status, {r.stderr.strip() or r.stdout}")
    return json.loads(r.stdout)


def said(v):
    """The tree without the diagnoses, for the message of a failed test."""
    return json.dumps({k: ([said(s) for s in v[k]] if k == "steps" else
                           {"findings": v[k]["findings"], "peers": v[k].get("peers"), "text": v[k]["text"]}
                           if k == "diagnosis" else v[k]) for k in v})


def way(v):
    """The units from the first to the last, along what takes most, as steps."""
    steps = [v]
    while steps[-1]["steps"]:
        steps.append(max(steps[-1]["steps"], key=lambda s: s.get("share", 2)))
    return steps


def follows(v, *units):
    """Checks that the path consists of these units, and that each has most of the time of the one above."""
    steps = way(v)
    equal([s.get("unit") for s in steps], [u.name for u in units], f"the units on the way: {said(v)}")
    whole = 1
    for above, s, u in zip(steps, steps[1:], units[1:]):
        equal(s["address"], f"127.0.0.1:{u.port}", f"the address of a peer: {said(v)}")
        check(s["share"] >= 0.5, f"the share of {u.name}: {said(v)}")
        whole *= s["share"]
        scenario.within(s["wholeShare"], whole, 0.01, 0, f"the share of {u.name} of all")


def released(*units):
    wait_for("none of them is held", lambda: not {u.name for u in units} & set(scenario.listed()))


@test(quiet="light", deadline=90)
def to_a_lock():
    """Three services, of which the last one has eight threads and one mutex."""
    last = Toiler(lock_us=3000)
    middle = Toiler(ask=last.port)
    first = Toiler(ask=middle.port)
    with loaded(first, connections=8):
        v = why(first)
    follows(v, first, middle, last)
    cause = v["cause"]
    equal((cause["unit"], cause["finding"]["kind"]), (last.name, "lock"), f"the cause: {said(v)}")
    check(cause["finding"]["resource"].endswith(":hot_mutex")
          and cause["finding"]["next"] == f"qosctl resources {last.name}", f"which lock: {cause}")
    check(cause["wholeShare"] >= 0.5, f"its share of all: {said(v)}")
    released(first, middle, last)


@test(quiet="loaded", deadline=90)
def to_a_cpu():
    """The last one shares its CPU with a unit that has no part in the chain."""
    last, other = Toiler(cpu_us=5000, settings="CPUAffinity=0"), hog()
    with on_cpu(other_cpu()):
        middle = Toiler(ask=last.port)
        first = Toiler(ask=middle.port)
        with loaded(first, connections=1):
            v = why(first)
    follows(v, first, middle, last)
    cause = v["cause"]
    equal((cause["unit"], cause["finding"]["kind"], cause["finding"].get("unit")), (last.name, "cpu", other.name),
          f"the cause: {said(v)}")
    equal(cause["finding"]["next"], f"systemctl set-property {other.name} CPUWeight=20", "the next command")
    released(first, middle, last)


@test(quiet="loaded", deadline=120)
def to_a_disk():
    """nginx, a service behind it, and one that waits for a disk that another unit has busy: as text."""
    with files(5) as (path, *others):
        last = Toiler(sync=path)
        other = writer(*others)
        first = Toiler(ask=last.port)
        with loaded(first, connections=2):
            v = why(first)
            text = qosctl("why", first.name, f"--for={SECONDS}s", timeout=60).stdout
        other.stop()
    follows(v, first, last)
    cause = v["cause"]
    equal((cause["unit"], cause["finding"]["kind"], cause["finding"].get("unit")), (last.name, "disk", other.name),
          f"the cause: {said(v)}")
    check(text.startswith(f"{first.name} → {last.name}: disk: ")
          or text.startswith(f"{first.name} -> {last.name}: disk: "), text)
    check(f"% {last.name} (127.0.0.1:{last.port}): " in text
          and f"Next: systemctl set-property {other.name} IOWeight=20" in text, text)


# Takes the socket that it was started with
LATE = """
import http.server, socket, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(.02)
        self.send_response(200)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *arguments):
        pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler, bind_and_activate=False)
s.socket = socket.socket(fileno=3)
s.serve_forever()
"""


@test(quiet="light", deadline=90)
def opened_by_systemd():
    """The socket of the last one was opened by the service manager, so that the service is known by its processes
    alone."""
    prepare()
    port = unused_port()
    name = unit_name("late")
    path = f"/run/{scenario.prefix}-late.py"
    with open(path, "w") as f:
        f.write(LATE)
    scenario.write_unit(name.replace(".service", ".socket"), f"[Socket]\nListenStream=127.0.0.1:{port}\n")
    last = Unit(f"/usr/bin/python3 {path}", name=name, type="exec")
    systemctl("start", name.replace(".service", ".socket"))
    u = nginx(f"location / {{ return 200 well; }} location /late/ {{ proxy_pass http://127.0.0.1:{port}; }}")
    with requests_from(f"http://127.0.0.1:{u.port}/late/", per_second=20):
        v = why(u)
    last.port = port
    follows(v, u, last)


@test(quiet="light", deadline=60)
def to_nobody():
    """nginx has an upstream that is not there: the path ends with its address, which has failures and no share."""
    port = unused_port()
    u = nginx(f"location / {{ return 200 well; }} location /gone/ {{ proxy_pass http://127.0.0.1:{port}; }}")
    with requests_from(f"http://127.0.0.1:{u.port}/gone/", per_second=20):
        v = why(u)
    step = way(v)[-1]
    equal((step["address"], step.get("end"), "share" in step, "unit" in step),
          (f"127.0.0.1:{port}", "noUnit", False, False), f"the peer: {said(v)}")
    equal((v["cause"]["unit"], v["cause"]["finding"]["kind"]), (u.name, "dependency"), f"the cause: {said(v)}")


@test(quiet="light", deadline=90)
def to_a_silent_one():
    """nginx gives up requests to a service that does not accept connections."""
    last = accepts_nobody(1000)
    first = proxy(last.port, "proxy_read_timeout 200ms;")
    with requests_from(f"http://127.0.0.1:{first.port}/", per_second=40):
        v = why(first)
        text = qosctl("why", first.name, f"--for={SECONDS}s", timeout=60).stdout
    steps = way(v)
    equal([s.get("unit") for s in steps], [first.name, last.name], f"the units on the way: {said(v)}")
    equal((v["cause"]["unit"], v["cause"]["finding"]["kind"]), (last.name, "limit"), f"the cause: {said(v)}")
    check("connections are not accepted" in text.split("\n")[0] and f"fails: {last.name}" in text, text)


@test(quiet="light", deadline=90)
def to_a_slow_one():
    """The last one sleeps for each request, of which nothing more is known: the path ends before it, and its slowness
    is the cause."""
    last = Toiler(sleep_us=20000)
    first = Toiler(ask=last.port)
    with loaded(first, connections=4):
        v = why(first)
        text = qosctl("why", first.name, f"--for={SECONDS}s", timeout=60).stdout
    follows(v, first, last)
    equal((v["cause"]["unit"], v["cause"]["finding"]["kind"]), (first.name, "dependency"), f"the cause: {said(v)}")
    check(text.startswith(f"{first.name}: slow dependency: ") and "Next:" not in text, text)


@test(quiet="light", deadline=90)
def to_errors():
    """Two proxies pass on the errors of the last one: its errors are the cause."""
    last = Failing(503).start()
    middle = proxy(last.port)
    first = proxy(middle.port)
    wait_for("there is a response",
             lambda: run("curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{first.port}/", ok=False).returncode == 0)
    with requests_from(f"http://127.0.0.1:{first.port}/", per_second=40):
        v = why(first)
    steps = way(v)
    equal([s.get("unit") for s in steps], [u.name for u in (first, middle, last)], f"the units on the way: {said(v)}")
    check(not any("share" in s for s in steps[1:]), f"failures are no matter of time: {said(v)}")
    cause = v["cause"]
    equal((cause["unit"], cause["finding"]["kind"]), (last.name, "errors"), f"the cause: {said(v)}")
    # A ratio of rates, which are rounded
    check(0.999 < cause["finding"]["share"] <= 1, f"the share of errors: {cause}")
    released(first, middle, last)


@test(quiet="light", deadline=60)
def in_a_circle():
    """Two services that call each other: the path ends at the first one again."""
    ports = [unused_port(), unused_port()]
    prepare()
    path = f"/run/{scenario.prefix}-circle.py"
    with open(path, "w") as f:
        f.write("""
import http.client, http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        n = int(self.path[1:])
        if n > 0:
            c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[2]))
            c.request('GET', f'/{n - 1}')
            c.getresponse().read()
            c.close()
        else:
            time.sleep(.02)
        self.send_response(200)
        self.send_header('Content-Length', '0')
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
""")
    units = [Unit(f"/usr/bin/python3 {path} {a} {b}", type="exec").start() for a, b in (ports, reversed(ports))]
    for port in ports:
        wait_for("it listens",
                 lambda: scenario.run("curl", "-s", f"http://127.0.0.1:{port}/0", ok=False).returncode == 0, 10)
    with requests_from(f"http://127.0.0.1:{ports[0]}/4", per_second=5):
        v = why(units[0])
    steps = way(v)
    equal(([s["unit"] for s in steps], steps[-1]["end"]), ([u.name for u in (*units, units[0])], "cycle"),
          f"the circle: {said(v)}")


@test(quiet="light", deadline=90)
def stopped_meanwhile():
    """The last one is stopped while it is looked at: it is down, and the tree says so."""
    port = unused_port()
    prepare()
    last = Unit(f"/usr/bin/python3 {scenario.SOURCES}/http_server.py {port}", type="exec").start()
    last.port = port
    first = nginx(f"location / {{ return 200 well; }} location /late/ {{ proxy_pass http://127.0.0.1:{port}; }}")
    with requests_from(f"http://127.0.0.1:{first.port}/late/20", per_second=40):
        p = subprocess.Popen(["qosctl", "why", first.name, f"--for={SECONDS}s", "--json=short"], stdout=subprocess.PIPE)
        wait_for("the last one is looked at", lambda: last.name in scenario.listed(), 30)
        last.stop()
        v = json.loads(p.communicate(timeout=30)[0])
    equal(p.returncode, 0, "exit status")
    follows(v, first, last)
    equal((v["cause"]["unit"], v["cause"]["finding"]["kind"]), (last.name, "down"), f"the cause: {said(v)}")
    released(first, last)


@test()
def not_for_everybody():
    """Another user may not see what a unit waits for."""
    u = Unit("/bin/sleep infinity", type="exec").start()
    r = scenario.run(*scenario.as_user(65534), "qosctl", "why", u.name, "--no-ask-password", ok=False)
    equal(r.returncode, 1, r.stderr)
    check(f"Failed to diagnose '{u.name}': " in r.stderr, r.stderr)
