# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page for Cockpit with nginx before a server of its own, PostgreSQL and Redis, all under load: its figures are
those of the same reading elsewhere, and its map has the dependencies between units."""

import contextlib
import json
import math
import os
import subprocess

import scenario
from browser import AXE, has_text, logged_in
from diagnosing import postgresql
from scenario import SEC, SOURCES, Unit, attach, check, equal, run, systemctl, test, unused_port, wait_for
from test_diagnose import redis

READINGS = 3
# Values that are in the row of a unit, as properties on D-Bus
PROPERTIES = "Rate", "ErrorRate", "LatencyP50NSec", "LatencyP99NSec", "InFlight"
ABSENT = 2**64 - 1


@contextlib.contextmanager
def nginx(upstream):
    """Yields a unit with nginx before a server, and its port."""
    directory, port = f"/run/{scenario.prefix}-nginx", unused_port()
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/conf", "w") as f:
        f.write(f"error_log stderr; pid {directory}/pid; events {{}}\nhttp {{ access_log off;\n"
                f"upstream shop {{ server 127.0.0.1:{upstream}; keepalive 8; }}\n"
                f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://shop; proxy_http_version 1.1;\n"
                "proxy_set_header Connection ''; } } }\n")
    u = Unit(f"/usr/sbin/nginx -c {directory}/conf -g 'daemon off;'", type="exec")
    attach(u)
    u.start()
    yield u, port
    u.stop()
    run("rm", "-rf", directory)


@contextlib.contextmanager
def services():
    """Yields nginx, its upstream, PostgreSQL, Redis, and the unit of a client of Redis."""
    port = unused_port()
    shop = Unit(f"/usr/bin/python3 -B {SOURCES}/http_server.py {port}", type="exec")
    attach(shop)
    shop.start()
    cache = redis()
    with nginx(port) as (front, front_port), postgresql() as database:
        attach(cache)
        attach(database)
        worker = Unit(f"/usr/bin/redis-benchmark -q -l -c 2 -t set,get -p {cache.port}", type="exec",
                      settings="Nice=10")
        attach(worker)
        wait_for("nginx responds", lambda: run("curl", "-sf", f"http://127.0.0.1:{front_port}/late/2",
                                               ok=False).returncode == 0)
        worker.start()
        with database.load("select n from accounts where id = 7;\n", clients=2):
            client = subprocess.Popen(["nice", "wrk", "-t", "1", "-c", "2", "-d", "1h",
                                       f"http://127.0.0.1:{front_port}/late/2"], stdout=subprocess.DEVNULL)
            try:
                yield front, shop, database, cache, worker
            finally:
                client.kill()
                client.wait()
                worker.stop()


class Lines:
    """What a process writes, as JSON in each line."""

    def __init__(self, *command):
        self.path = f"/run/{scenario.unit_name('lines', '.json')}"
        with open(self.path, "w") as f:
            self.process = subprocess.Popen(command, stdout=f)

    def read(self):
        with open(self.path) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]

    def stop(self):
        self.process.kill()
        self.process.wait()
        os.unlink(self.path)


def properties_of(lines):
    """What PropertiesChanged has had of each unit and reading: a property that is not in it has not changed. Signals of
    a reading begin with that of org.qosd1.Requests, which has its number; the last reading may not be complete."""
    known, found = {}, {}
    for m in lines:
        interface, changed, _ = m["payload"]["data"]
        values = known.setdefault(m["path"], {})
        if interface == "org.qosd1.Requests":
            if "Seq" in values:
                found[m["path"], values["Seq"]] = dict(values)
            values["Seq"] = changed["Seq"]["data"]
        elif interface == "org.qosd1.Unit":
            values.update({k: v["data"] for k, v in changed.items()})
    return found


def same(got, want):
    """A value on the page, and one of qosd, which may be absent. Parsers of JSON differ in the last digit."""
    if want in (None, ABSENT) or want != want:
        return got in ("", None)
    return got not in ("", None) and math.isclose(float(got), want, rel_tol=1e-12)


ROWS = """[...page.querySelectorAll("tr[data-seq]")].map(row => ({ unit: row.dataset.unit, seq: Number(row.dataset.seq),
    values: [...row.querySelectorAll("[data-value]")].map(c => c.dataset.value) }))"""
FIGURES = """(() => { const main = page.querySelector("main"); return main.dataset.seq ? { seq: Number(main.dataset.seq),
    values: Object.fromEntries([...page.querySelectorAll("[data-figure]")]
        .map(e => [e.dataset.figure, e.dataset.value])) } : null; })()"""


def collect(b, expression, into):
    for shown in b.evaluate(expression) or []:
        into[shown["unit"], shown["seq"]] = shown["values"]


def expect_rows(b, units):
    """Rows have what PropertiesChanged has of the reading of the same number."""
    bus = Lines("busctl", "--json=short", "--match", "type='signal',member='PropertiesChanged'", "monitor")
    shown = {}
    try:
        def compared():
            collect(b, ROWS, shown)
            sent = properties_of(bus.read())
            return [(u, seq, shown[u, seq], sent[path, seq]) for u, path in paths.items() for (name, seq) in shown
                    if name == u and (path, seq) in sent and all(p in sent[path, seq] for p in PROPERTIES[:4:3])]
        paths = {u.name: scenario.busctl_call("GetUnit", "s", u.name)[0] for u in units}
        pairs = wait_for("each row is compared", lambda: (p := compared()) and all(
            sum(name == u.name for name, *_ in p) >= READINGS for u in units) and p, 30, pause=0.1)
    finally:
        bus.stop()
    for unit, seq, row, properties in pairs:
        for got, name in zip(row, PROPERTIES):
            if name in properties:
                check(same(got, properties[name]), f"{unit}, reading {seq}: {name} is {got} instead of "
                                                   f"{properties[name]}")


def expect_figures(b, unit):
    """The page of a unit has what a stream of qosctl has of the reading of the same number."""
    stream = Lines("qosctl", "monitor", unit, "--interval=1s", "--json=short")
    shown = {}
    try:
        def compared():
            f = b.evaluate(FIGURES)
            if f:
                shown[f["seq"]] = f["values"]
            readings = [line["snapshot"] for line in stream.read()]
            return [(shown[s["seq"]], s) for s in readings if s["seq"] in shown]
        pairs = wait_for(f"the page of {unit} is compared", lambda: len(p := compared()) >= READINGS and p, 30,
                         pause=0.1)
    finally:
        stream.stop()
    for values, s in pairs:
        server = s["requests"]["server"]
        want = {**{k: server["latency"].get(k) for k in ("p50", "p90", "p99", "p999", "max")}, "rate": server["rate"],
                "errors": sum(server["errors"].values()), "inFlight": server["inFlight"],
                "firstByte": server["firstByte"].get("p99"), "cost": s.get("cost", {}).get("share")}
        for k, v in want.items():
            check(same(values[k], v), f"{unit}, reading {s['seq']}: {k} is {values[k]} instead of {v}")
        check(server["rate"] > 0 and s["covered"] <= 10 * SEC, f"a reading without load: {s}")


def edges(b):
    """Pairs of client and server, by the text that the map has for screen readers."""
    return b.evaluate("""[...page.querySelectorAll(".map li")].flatMap(li => {
        const text = li.querySelector(".hidden-text").textContent, from = li.firstElementChild.title;
        return [...text.matchAll(/(?:to |; )([^ ]+): [0-9.k]+\\/s/g)].map(m => [from, m[1]]); })""")


@test(own_daemon=True, nightly=True, deadline=240)
def under_load():
    """The figures of nginx, PostgreSQL and Redis change with the load, and are those of the same reading on D-Bus and
    in qosctl."""
    with services() as (front, _shop, database, cache, _worker), logged_in(administrator=True) as b:
        units = front, database, cache
        b.wait(" && ".join(f"Number(page.querySelector(`tr[data-unit='{u.name}'] .number`)?.dataset.value) > 0"
                           for u in units), 30)
        expect_rows(b, units)
        for u in units:
            b.click(f"tr[data-unit='{u.name}'] a")
            b.wait(f"{has_text(u.name, 'h1')} && !!page.querySelector('main').dataset.seq", 20)
            expect_figures(b, u.name)
            b.evaluate("page.querySelector('nav a').click()")
            b.wait(f"!!page.querySelector(`tr[data-unit='{u.name}']`)?.dataset.seq")
        equal(b.messages(), [], "messages of the page")


@test(own_daemon=True, nightly=True, deadline=180)
def dependency_map():
    """The map of all attached units has an edge for each that sends requests to another; it is drawn without being cut
    off on a phone, and its nodes are reached by the keyboard and keep the focus. That of a unit has what is connected
    with it."""
    with services() as (front, shop, _database, cache, worker), logged_in(administrator=True) as b:
        want = {(front.name, shop.name), (worker.name, cache.name)}
        b.wait(f"!!page.querySelector(`tr[data-unit='{cache.name}']`)?.dataset.seq", 20)
        check(b.evaluate("page.querySelectorAll('.map li').length === 0"), "the map is read although it is closed")
        b.click("#map summary")
        b.wait("page.querySelectorAll('.map li').length >= 4 && page.querySelectorAll('.edge').length >= 2", 30)
        equal({tuple(e) for e in edges(b)}, want, "edges")
        for width in 390, 1280:
            b.resize(width, 900)
            b.wait("""(() => { const map = page.querySelector(".map ul"), w = map.clientWidth;
                return [...map.children].every(li => li.offsetLeft >= 0 && li.offsetLeft + li.offsetWidth <= w) &&
                       page.documentElement.scrollWidth === page.documentElement.clientWidth; })()""")
        if os.path.exists(AXE):
            equal([f for f in b.axe() if f[0] in ("serious", "critical")], [], "faults of accessibility")
        b.evaluate(f"page.querySelector(`.map a[title='{shop.name}']`).focus()")
        b.wait(has_text(f"{front.name} → {shop.name}", ".readout"))
        before = b.evaluate("page.querySelector('.map').textContent")
        b.wait(f"page.querySelector('.map').textContent !== {json.dumps(before)}", 30)
        equal(b.evaluate("page.activeElement.title"), shop.name, "what has the focus after the next reading")

        b.evaluate("page.activeElement.click()")
        b.wait(has_text(shop.name, "h1"))
        b.wait("page.querySelectorAll('.map li').length >= 2", 30)
        equal({tuple(e) for e in edges(b)}, {(front.name, shop.name)}, "edges around a unit")
        systemctl("stop", front.name)
        b.wait("page.querySelector('.map').offsetParent === null", 40)
        equal(b.messages(), [], "messages of the page")
