# SPDX-License-Identifier: LGPL-2.1-or-later
"""What qosd-exporter serves over HTTP: the same numbers as qosctl, in the format that a scraper takes, to each that
waits its turn, and read by Prometheus itself."""

import gzip
import http.client
import json
import math
import os
import re
import shutil
import socket
import ssl
import statistics
import tempfile
import time
import urllib.parse
from itertools import pairwise

import scenario
from scenario import (check, equal, expect_total, fail, load, qosctl, run, start_served, systemctl, test, unit_property,
                      wait_for)

PORT = 10478
UNITS = "qosd-exporter.socket", "qosd-exporter.service"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def scrape(method="GET", path="/metrics", status=200, body=None, **headers):
    """Returns the headers and the text of the response."""
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=20 * scenario.patience())
    try:
        c.request(method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
        r = c.getresponse()
        data = r.read()
    finally:
        c.close()
    equal(r.status, status, f"status of {method} {path}")
    if r.headers["Content-Encoding"] == "gzip":
        data = gzip.decompress(data)
    return r.headers, data.decode()


def samples(text, unit=None):
    """By name with labels."""
    return {k: v for k, v in (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
            if unit is None or f'unit="{unit}"' in k}


def serve():
    systemctl("start", UNITS[0])


def started(number, connections=1):
    """Returns a server that has served so many requests. Its state is a label, which changes when qosd is notified of
    the end of its start."""
    s = start_served(mode="thread")
    load(s, connections=connections, number=number)
    expect_total(s, number)
    wait_for("its start is complete", lambda: scenario.snapshot(s)["activeState"] == "active")
    return s


@test()
def equals_qosctl():
    """Each sample of requests of a unit at rest is the one that qosctl prints, in both formats; promtool finds nothing
    to say."""
    serve()
    s = started(400, connections=4)
    wait_for("no connection is open", lambda: scenario.server_figures(s)["connections"]["open"] == 0)
    for accept, name, content_type in ((OPENMETRICS, "openmetrics", OPENMETRICS),
                                       (PROMETHEUS, "prometheus", PROMETHEUS),
                                       ("*/*", "prometheus", PROMETHEUS)):
        headers, text = scrape(accept=accept)
        equal(headers["Content-Type"], content_type, f"type for {accept}")
        there = samples(qosctl("metrics", s.name, f"--format={name}", "--export=requests").stdout)
        check(len(there) > 25, f"there are few samples: {there}")
        equal(samples(text, s.name), there, f"samples in {name}")
        check(f'qosd_requests_server_total{{unit="{s.name}"}}' in there, "no request")
        equal(samples(text)["qosd_up"], "1", "qosd_up")
        check(float(samples(text)["qosd_scrape_duration_seconds"]) < 5, "the reading took longer than it may")
        equal(text.endswith("# EOF\n"), name == "openmetrics", f"end of {name}")
        r = run("promtool", "check", "metrics", "--extended", stdin=scrape(accept=PROMETHEUS)[1], ok=False)
        equal(r.returncode in (0, 3), True, f"promtool: {r.stderr}")
        check("error while linting" not in r.stderr, r.stderr)
    plain, packed = scrape(), scrape(accept_encoding="gzip")
    equal(packed[0]["Content-Encoding"], "gzip", "encoding")
    check(int(packed[0]["Content-Length"]) * 4 < int(plain[0]["Content-Length"]), "compressed text is hardly smaller")
    equal(samples(packed[1], s.name), samples(plain[1], s.name), "samples in compressed text")


class Prometheus:
    """Debian's own, which scrapes the exporter each second."""

    def __init__(self, *options, scrape=""):
        """scrape: further settings of it, in YAML."""
        self.port, directory = scenario.unused_port(), f"/run/{scenario.unit_name('prometheus', '')}"
        os.makedirs(directory)
        with open(f"{directory}/prometheus.yml", "w") as f:
            f.write(f"""global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: qosd
    static_configs: [{{targets: ['127.0.0.1:{PORT}']}}]
    {scrape}
""")
        self.unit = scenario.Unit(f"/usr/bin/prometheus --config.file={directory}/prometheus.yml --log.level=warn "
                                  f"--web.listen-address=127.0.0.1:{self.port} --storage.tsdb.path={directory}/data "
                                  f"{' '.join(options)}",
                                  type="exec").start()

    def results(self, text):
        r = run("curl", "-s", "-f", f"http://127.0.0.1:{self.port}/api/v1/query?query=" + urllib.parse.quote(text),
                ok=False)
        return json.loads(r.stdout)["data"]["result"] if r.returncode == 0 else []

    def query(self, text):
        return [float(r["value"][1]) for r in self.results(text)]


@test(deadline=60)
def scraped_by_prometheus():
    """Prometheus stores what clients have sent, integer by integer, and sees no reset in a restart."""
    serve()
    s = start_served(mode="thread")
    load(s, connections=4, number=300)
    expect_total(s, 300)
    p, name = Prometheus(), f'{{unit="{s.name}"}}'
    wait_for("Prometheus has all", lambda: p.query(f"qosd_requests_server_total{name}") == [300], 30)
    equal(p.query("up{job='qosd'}"), [1], "up")
    equal(p.query(f"qosd_requests_server_first_byte_seconds_count{name}"), [300], "count of the histogram")
    equal(p.query(f'qosd_requests_server_first_byte_seconds_bucket{{unit="{s.name}",le="+Inf"}}'), [300], "last bucket")
    equal(p.query(f'count(qosd_unit_info{{unit="{s.name}",state="active"}})'), [1], "the unit's information")
    s.restart()
    load(s, connections=4, number=200)
    expect_total(s, 500)
    wait_for("Prometheus has the rest", lambda: p.query(f"qosd_requests_server_total{name}") == [500], 30)
    equal(p.query(f"resets(qosd_requests_server_total{name}[1m])"), [0], "resets")


def restart_with(*options):
    """Restarts the exporter with options, or without any."""
    drop_in = f"/run/systemd/system/{UNITS[1]}.d"
    if options:
        command = unit_property(UNITS[1], "ExecStart").split("path=")[1].split(" ")[0]
        scenario.write_unit("50-options.conf", f"[Service]\nExecStart=\nExecStart={command} {' '.join(options)}\n",
                            drop_in)
    else:
        os.unlink(f"{drop_in}/50-options.conf")
    systemctl("daemon-reload")
    restart()


def restart():
    """The next scrape starts it."""
    systemctl("stop", UNITS[1])
    # More starts in 10 s than systemd permits would fail, and close the socket
    systemctl("reset-failed", UNITS[1], ok=False)


def configure(text):
    """Restarts the exporter with a drop-in of qosd-exporter.conf, or without it."""
    path = "/run/qosd-exporter.conf.d/50-test.conf"
    if text:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
    else:
        os.unlink(path)
    restart()


@test(own_daemon=True)
def configured_by_files():
    """What is in qosd-exporter.conf.d is in force, a line that is invalid is named, and options go before it."""
    serve()
    s = started(10)
    requests, probes = (set(samples(qosctl("metrics", s.name, "--format=prometheus", f"--export={scope}").stdout))
                        for scope in ("requests", "probes"))
    equal(sorted(requests - probes), [], "metrics that are missing with other probes")
    check(len(requests) < len(probes), "the unit has no other probe")
    equal(set(samples(scrape()[1], s.name)), requests, "metrics without a file")
    try:
        since = time.time()
        configure("[Exporter]\nExport=probes\nExportSeriesMax=many\n")
        equal(set(samples(scrape()[1], s.name)), probes, "metrics with Export=probes")
        equal(samples(scrape()[1])["qosd_series_dropped"], "0", "series that are dropped")
        wait_for("a message about the line",
                 lambda: "/run/qosd-exporter.conf.d/50-test.conf:3: ExportSeriesMax= must be a number from 0 "
                 "to 10000000, got 'many', ignoring." in run("journalctl", "-u", UNITS[1], f"--since=@{since:.6f}",
                                                             "-o", "cat").stdout)
        configure("[Exporter]\nExportSeriesMax=1\n")
        equal(set(samples(scrape()[1], s.name)), set(), "metrics with ExportSeriesMax=1")
        restart_with("--series-max=0", "--export=requests")
        try:
            equal(set(samples(scrape()[1], s.name)), requests, "metrics with options")
        finally:
            restart_with()
    finally:
        configure(None)
    equal(set(samples(scrape()[1], s.name)), requests, "metrics without the file")


@test(own_daemon=True)
def all_probes():
    """With --export=probes the metrics of other probes are there, too."""
    serve()
    s = started(10)
    requests = set(samples(scrape()[1], s.name))
    check(not any("contention" in name for name in requests), "there are metrics of other probes")
    restart_with("--export=probes")
    try:
        equal(set(samples(scrape()[1], s.name)), set(samples(qosctl("metrics", s.name, "--format=prometheus").stdout)),
              "metrics")
        check(set(samples(scrape()[1], s.name)) > requests, "metrics of requests are missing")
    finally:
        restart_with()
    equal(set(samples(scrape()[1], s.name)), requests, "metrics without the option")


def native_buckets(histogram):
    """Count by the bounds in seconds, as exponents of two."""
    return {(None if float(lower) < 0 else round(math.log2(float(lower)), 6), round(math.log2(float(upper)), 6)): int(n)
            for _, lower, upper, n in histogram["buckets"]}


def coarser(there, schema):
    """Count by the upper bound in schema, as an exponent of two, of a reply to Histogram()."""
    r = {}
    for b in there["buckets"]:
        index = math.log2(b["upper"] / scenario.SEC) if "upper" in b else 6 + 1 / 2 ** there["schema"]
        bound = round(math.ceil(round(index * 2 ** there["schema"]) / 2 ** (there["schema"] - schema)) / 2 ** schema, 6)
        r[bound] = r.get(bound, 0) + b["count"]
    return r


@test(deadline=90, own_daemon=True)
def native_histograms():
    """Prometheus has the buckets of qosd, integer by integer; with a limit each is the sum of its pairs."""
    serve()
    s = start_served(mode="thread", delay_us=200)
    for connections, number in (1, 200), (4, 1000), (16, 3000):
        load(s, connections=connections, number=number)
    expect_total(s, 4200)
    p = Prometheus("--enable-feature=native-histograms")
    for limit in 160, 29:
        if limit == 29:
            restart_with(f"--buckets-max={limit}")
        try:
            for metric in "firstByte", "latency":
                name = "qosd_requests_server_" + ("first_byte" if metric == "firstByte"
                                                  else metric) + f'_seconds{{unit="{s.name}"}}'
                there = scenario.varlink("Histogram", unit=s.name, metric=f"requests.server.{metric}", window=0)
                check(len(there["buckets"]) > 29, "the load is too regular for this test")

                def is_stored():
                    r = p.results(name)
                    return r and int(r[0]["histogram"][1]["count"]) == 4200 and \
                        len(r[0]["histogram"][1]["buckets"]) <= limit and r[0]["histogram"][1]

                h = wait_for(f"Prometheus has {metric}", is_stored, 30)
                got = native_buckets(h)
                equal(sum(got.values()), 4200, "sum of the buckets")
                schema = round(-math.log2(max(upper - lower for lower, upper in got if lower is not None)))
                finest = max(s for s in range(there["schema"] + 1) if len(coarser(there, s)) <= limit)
                equal(schema, finest, f"the schema of {metric}")
                equal({upper: n for (_, upper), n in got.items()}, coarser(there, schema), f"buckets of {metric}")
                check(abs(float(h["sum"]) - there["sum"] / scenario.SEC) < 1e-9, "sum")
                shown = qosctl("metrics", s.name, "--verbose", f"--buckets-max={limit}").stderr
                row = next(r for r in map(str.split, shown.splitlines()) if r[:2] == [s.name, name.split("{")[0]])
                equal(list(map(int, row[2:])), [schema, len([b for b in got if b[0] is not None]), there["schema"]],
                      f"schema, buckets and finest schema of {metric}, as shown")
        finally:
            if limit == 29:
                restart_with()


def queries(value):
    """All expressions in a dashboard."""
    if isinstance(value, dict):
        for key, v in value.items():
            yield from [v] if key == "expr" else queries(v)
    elif isinstance(value, list):
        for v in value:
            yield from queries(v)


@test(deadline=90)
def dashboards():
    """Each query of the shipped dashboards has data, or is one for what should not be."""
    serve()
    directory = os.path.join(scenario.SOURCES, "../../docs/grafana")
    backend = start_served(mode="thread")
    s = scenario.attach(scenario.Unit(f"/usr/bin/socat TCP-LISTEN:{scenario.unused_port()},fork,reuseaddr "
                                      f"TCP:127.0.0.1:{backend.port}",
                                      type="exec"))
    qosctl("set-threshold", s.name, "slow: requests.server.firstByte.p99 > 30s")
    s.start()
    with open(os.path.join(scenario.UNIT_DIR, s.name)) as f:
        port = int(f.read().split("TCP-LISTEN:")[1].split(",")[0])
    wait_for("it listens",
             lambda: run("socat", "-u", "OPEN:/dev/null", f"TCP:127.0.0.1:{port}", ok=False).returncode == 0)
    p = Prometheus("--enable-feature=native-histograms")

    def fill(expression):
        for variable, text in (("$__rate_interval", "1m"), ("$unit", s.name), ("$instance", ".*")):
            expression = expression.replace(variable, text)
        check("$" not in expression, f"a variable is left in {expression}")
        return expression

    def has_data(expression):
        load(port, connections=1, number=1)
        return p.results(expression)

    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name)) as f:
            expressions = [fill(e) for e in queries(json.load(f))]
        check(len(expressions) > 5, f"{name} has few queries")
        for e in expressions:
            if e.endswith("== 0") or "state!=" in e:
                r = json.loads(run("curl", "-s",
                                   f"http://127.0.0.1:{p.port}/api/v1/query?query=" + urllib.parse.quote(e)).stdout)
                equal(r["status"], "success", e)
                continue
            wait_for(f"{name}: {e} has data", lambda: has_data(e), 20)


@test()
def rules_for_alerts():
    """The shipped rules fire when they should, by promtool's own evaluation."""
    directory = os.path.join(scenario.SOURCES, "../../docs/prometheus")
    run("promtool", "check", "rules", f"{directory}/qosd.rules.yml")
    r = run("promtool", "test", "rules", f"{directory}/qosd.rules.test.yml", ok=False)
    check(r.returncode == 0, r.stdout + r.stderr)


@test()
def invalid_requests():
    """Each gets a status that says what is wrong, and the next scrape is served."""
    serve()
    scrape()
    restarts = unit_property(UNITS[1], "NRestarts")
    equal(scrape("POST", status=405)[0]["Allow"], "GET, HEAD", "methods")
    scrape("POST", body="x" * 100000, status=405)
    scrape("DELETE", "/", status=405)
    scrape("GET", "/metric", status=404)
    scrape("GET", "/metrics/", status=404)
    scrape("GET", body="content", status=400)
    scrape("GET", "/", status=200)
    headers, text = scrape("HEAD")
    equal(text, "", "body of the response to HEAD")
    check(int(headers["Content-Length"]) > 0, "HEAD gives no length")
    scrape("GET", "/metrics?collect[]=x")
    for request in (b"\r\n\r\n", b"\0" * 4096, b"GET /metrics\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n",
                    b"GET /metrics HTTP/1.1\r\n\r\n",
                    b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                    b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 50000 + b"\r\n",
                    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", PORT), timeout=20 * scenario.patience()) as c:
            try:
                c.sendall(request)
                c.shutdown(socket.SHUT_WR)
                reply = c.recv(65536)
            except OSError:
                continue
            check(not reply
                  or (reply.startswith(b"HTTP/1.") and reply[9:12] in (b"200", b"400", b"413", b"414", b"431", b"505")),
                  f"{request[:40]} is replied to with {reply[:80]}")
    equal(samples(scrape()[1])["qosd_up"], "1", "qosd_up")
    equal(unit_property(UNITS[1], "NRestarts"), restarts, "restarts of the exporter")


@test(deadline=60)
def stuck_scrapers():
    """Connections without a request, and ones that do not read their responses, are more than it serves: a scrape is
    served, and the memory is bounded."""
    serve()
    scrape()
    restarts = unit_property(UNITS[1], "NRestarts")
    s = start_served()
    stuck = []
    for i in range(400):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        c.settimeout(10 * scenario.patience())
        c.connect(("127.0.0.1", PORT))
        stuck.append(c)
        if i % 2:
            c.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + (b"\r\n" if i % 4 == 1 else b""))
    for _ in range(20):
        check(f'unit="{s.name}"' in scrape()[1], "the unit is missing")
    with open(f"/proc/{unit_property(UNITS[1], 'MainPID')}/status") as f:
        peak = int(next(line for line in f if line.startswith("VmHWM:")).split()[1])
    check(peak < 100 << 10, f"it took {peak} KiB")
    equal(unit_property(UNITS[1], "NRestarts"), restarts, "restarts of the exporter")
    # Each connection ends by itself
    for c in stuck:
        try:
            while c.recv(65536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            fail("a connection stays open")
        c.close()


@test(own_daemon=True)
def limit_of_series():
    """Units that do not fit are left out whole, and what they would have had is said; a histogram is one series."""
    serve()
    units = [start_served() for _ in range(3)]
    for s in units:
        load(s, connections=2, number=100)
        expect_total(s, 100)

    def read(unit):
        """How many series of the unit there are, and how many of all are left out."""
        text = scrape()[1]
        there = samples(text, unit.name)
        whole = {re.sub("_(bucket|sum|count)$", "", k.split("{")[0]) if re.search("_seconds_(bucket|sum|count)[{]", k)
                 else k
                 for k in there}
        return len(whole), int(samples(text)["qosd_series_dropped"])

    each, dropped = read(units[0])
    equal(dropped, 0, "series that are left out")
    for s in units:
        equal(read(s), (each, 0), "series")
    try:
        for limit, kept in (each * 3, 3), (each * 3 - 1, 2), (each, 1), (each - 1, 0):
            restart_with(f"--series-max={limit}")
            left = sorted(read(s)[0] for s in units)
            equal(left, [0] * (3 - kept) + [each] * kept, f"series of units with a limit of {limit}")
            equal(read(units[0])[1], each * (3 - kept), f"series that are left out with a limit of {limit}")
        restart_with("--series-max=0")
        equal("qosd_series_dropped" in scrape()[1], False, "whether series are left out without a limit")
    finally:
        restart_with()


@test(own_daemon=True)
def without_qosd():
    """It says so, with a status that is no success, and serves again once qosd is there."""
    serve()
    s = start_served()
    check(f'unit="{s.name}"' in scrape()[1], "the unit is missing")
    systemctl("stop", "qosd.socket", "qosd-root.socket", "qosd.service")
    try:
        for accept, end in ((OPENMETRICS, True), (PROMETHEUS, False)):
            _, text = scrape(status=503, accept=accept)
            equal(samples(text)["qosd_up"], "0", "qosd_up")
            equal(text.endswith("# EOF\n"), end, "end")
    finally:
        systemctl("start", "qosd.socket", "qosd-root.socket", "qosd.service")
    equal(samples(scrape()[1])["qosd_up"], "1", "qosd_up")


@test(own_daemon=True, deadline=60)
def qosd_starts_anew():
    """The exporter keeps its connection, and yet no scrape fails behind a restart or a crash of qosd."""
    serve()
    s = started(100)
    before = samples(scrape()[1], s.name)
    for way in ("restart",), ("kill", "--signal=SIGKILL", "--kill-whom=main"):
        for _ in range(3):
            pid = unit_property("qosd.service", "MainPID")
            systemctl(*way, "qosd.service")
            wait_for("another qosd", lambda pid=pid: unit_property("qosd.service", "MainPID") not in ("0", pid))
            text = scrape()[1]
            equal(samples(text)["qosd_up"], "1", "qosd_up")
            key = f'qosd_requests_server_total{{unit="{s.name}"}}'
            equal(samples(text)[key], before[key], f"requests behind {way[0]}")
            equal(samples(text).keys() & before.keys(), before.keys(), "series")


CREDENTIALS = "/run/credstore"


class Certificates:
    """Authorities and certificates that they have signed, in a directory of their own."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="qosd-exporter-")
        for name in "ours", "other":
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                         "2",
                         "-subj", f"/CN=authority {name}", "-addext", "keyUsage=critical,keyCertSign",
                         "-keyout", f"{name}.key", "-out", f"{name}.pem")

    def openssl(self, *arguments):
        run("env", "-C", self.directory, "openssl", *arguments)

    def make(self, name, authority, usage, days=2):
        """days: negative for one that has expired."""
        with open(self.path(f"{name}.ext"), "w") as f:
            f.write(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={usage}\nauthorityKeyIdentifier=keyid\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                     f"/CN={name}",
                     "-keyout", f"{name}.key", "-out", f"{name}.csr")
        begin, end = (time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + at * 86400))
                      for at in (min(days, 0) - 1, days))
        self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key",
                     "-extfile", f"{name}.ext", "-not_before", begin, "-not_after", end, "-out", f"{name}.pem")

    def path(self, name):
        return os.path.join(self.directory, name)

    def install(self, **credentials):
        """What qosd-exporter gets at its next start: name to file."""
        os.makedirs(CREDENTIALS, mode=0o700, exist_ok=True)
        for name in "certificate", "key", "authorities":
            to = os.path.join(CREDENTIALS, f"qosd-exporter.{name}")
            if name in credentials:
                shutil.copy(self.path(credentials[name]), to)
            elif os.path.exists(to):
                os.unlink(to)
        systemctl("stop", *UNITS)
        systemctl("reset-failed", *UNITS, ok=False)
        systemctl("start", UNITS[0])

    def context(self, name=None):
        c = ssl.create_default_context(cafile=self.path("ours.pem"))
        if name:
            c.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        return c

    def scrape(self, name=None):
        """The text, or None if the connection was refused."""
        c = http.client.HTTPSConnection("127.0.0.1", PORT, timeout=20 * scenario.patience(), context=self.context(name))
        try:
            c.request("GET", "/metrics")
            r = c.getresponse()
            equal(r.status, 200, "status")
            return r.read().decode()
        except ssl.SSLCertVerificationError:
            raise
        except (ssl.SSLError, ConnectionError):
            return None
        finally:
            c.close()

    def remove(self):
        self.install()
        shutil.rmtree(self.directory)


@test(own_daemon=True, deadline=90)
def encrypted():
    """With a certificate nothing is served in plain text; with authorities, nothing but to clients that have one of
    theirs, for clients, that is valid. Prometheus scrapes it."""
    serve()
    s = start_served()
    load(s, connections=4, number=400)
    expect_total(s, 400)
    line = f'qosd_requests_server_total{{unit="{s.name}"}} 400'
    c = Certificates()
    try:
        c.make("server", "ours", "serverAuth")
        c.make("client", "ours", "clientAuth")
        c.make("expired", "ours", "clientAuth", days=-1)
        c.make("stranger", "other", "clientAuth")
        c.install(certificate="server.pem", key="server.key")
        check(line in c.scrape(), "nothing is served")
        for request in b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /\r\n":
            with socket.create_connection(("127.0.0.1", PORT), timeout=20 * scenario.patience()) as plain:
                plain.sendall(request)
                data = b""
                try:
                    while (more := plain.recv(65536)):
                        data += more
                except ConnectionError:
                    pass
                check(b"HTTP" not in data and b"qosd" not in data, "plain text is served")

        c.install(certificate="server.pem", key="server.key", authorities="ours.pem")
        for name, served in ((None, False), ("client", True), ("expired", False), ("stranger", False),
                             ("server", False),
                             ("client", True)):
            text = c.scrape(name)
            equal(text is not None and line in text, served, f"whether {name} is served")
            equal(text is not None, served, f"whether {name} gets anything")

        # Handshakes that do not end keep nobody waiting
        stuck = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(150)]
        for i in stuck:
            i.sendall(b"\x16\x03\x01\x02\x00\x01")
        for _ in range(5):
            check(line in c.scrape("client"), "nothing is served beside handshakes that do not end")
        for i in stuck:
            i.close()

        p = Prometheus(scrape=f"""scheme: https
    tls_config: {{ca_file: {c.path("ours.pem")}, cert_file: {c.path("client.pem")}, key_file: {c.path("client.key")}}}""")
        wait_for("Prometheus has the requests",
                 lambda: p.query(f'qosd_requests_server_total{{unit="{s.name}"}}') == [400], 30)
        p.unit.stop()
    finally:
        c.remove()
    check(line in scrape()[1], "nothing is served in plain text any more")


@test(own_daemon=True)
def invalid_credentials():
    """Never plain text where encryption was meant: it does not start, and says which credential is missing or
    invalid."""
    serve()
    c = Certificates()
    try:
        c.make("server", "ours", "serverAuth")
        with open(c.path("empty"), "w") as f:
            f.write("\n")
        for credentials, message in (({"key": "server.key"}, "Credential 'qosd-exporter.certificate' is missing"),
                                     ({"certificate": "server.pem"}, "Credential 'qosd-exporter.key' is missing"),
                                     ({"authorities": "ours.pem"}, "Credentials 'qosd-exporter.certificate'"),
                                     ({"certificate": "server.pem", "key": "ours.key"}, "Invalid credential"),
                                     ({"certificate": "empty", "key": "server.key"}, "Invalid credential"),
                                     ({"certificate": "server.pem", "key": "server.key", "authorities": "empty"},
                                      "Invalid credential 'qosd-exporter.authorities'")):
            c.install(**credentials)
            since = time.time()
            with socket.create_connection(("127.0.0.1", PORT), timeout=20 * scenario.patience()) as plain:
                plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                wait_for("an error", lambda since=since, message=message:
                         message in run("journalctl", "-u", UNITS[1], f"--since=@{since:.6f}", "-o", "cat").stdout)
                plain.settimeout(0)
                try:
                    equal(plain.recv(1), b"", f"response with {credentials}")
                except (BlockingIOError, ConnectionError):
                    pass
    finally:
        c.remove()
    equal(samples(scrape()[1])["qosd_up"], "1", "qosd_up")


@test(nightly=True, own_daemon=True, deadline=400)
def ends_without_scrapes():
    """After five minutes; the next scrape starts it."""
    serve()
    scrape()
    pid = unit_property(UNITS[1], "MainPID")
    begun = time.monotonic()
    wait_for("it has ended", lambda: unit_property(UNITS[1], "ActiveState") == "inactive", 360, pause=1)
    check(time.monotonic() - begun > 290, "it ended before its time")
    scrape()
    check(unit_property(UNITS[1], "MainPID") not in ("0", pid), "it was not started")


def series_of_units(text):
    """The series of each unit, in the order of the units. A histogram is one of them."""
    found = {}
    for name in samples(text):
        unit = re.search('[{,]unit="([^"]*)"', name)
        if unit:
            found.setdefault(unit[1],
                             set()).add(re.sub("_(bucket|sum|count)(?=[{])", "", re.sub(',?le="[^"]*"', "", name))
                                                 if re.search("_seconds_(bucket|sum|count)[{]", name) else name)
    return found


def held(service):
    """Resident bytes and the number of open files of a service."""
    pid = unit_property(service, "MainPID")
    with open(f"/proc/{pid}/status") as f:
        resident = int(next(line for line in f if line.startswith("VmRSS:")).split()[1]) << 10
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


def churn(at_once, rounds, limit, active, leak_max):
    """Attaches and detaches so many units in each round, some of which are active, and scrapes them. One stays
    attached: with the last unit qosd unloads its programs, and to load them again takes seconds. leak_max: bytes for
    each unit."""
    services = "qosd.service", UNITS[1]
    serve()
    stays = start_served(mode="thread")
    # As many that qosd knows how the unit reads, and holds requests_read no longer, which is one file less
    load(stays, connections=4, number=1200)
    expect_total(stays, 1200)
    wait_for("requests_read is detached", lambda: next(p["state"] for p in scenario.programs()
                                                       if p["program"] == "requests_read") == "idle")
    template = scenario.unit_name("churn", "@.service")
    scenario.write_unit(template, "[Service]\nExecStart=/usr/bin/sleep infinity\n")
    systemctl("daemon-reload")
    configure(f"[Exporter]\nExport=everything\nExportSeriesMax={limit}\n")
    # PID 1 has several calls of qosd at a time to reply to
    connections = [scenario.Varlink(timeout=60) for _ in range(4)]
    memory, files = [], []

    def call(method, names):
        for k in range(0, len(names), len(connections)):
            calls = list(zip(connections, names[k:k + len(connections)]))
            for v, name in calls:
                v.send(method, {"unit": name})
            for v, _ in calls:
                v.reply()

    def everything():
        return series_of_units(qosctl("metrics", "--format=prometheus", "--export=everything").stdout)

    def at_rest(names):
        """All series, and the text of a scrape between two equal exports."""
        before, text, after = everything(), scrape()[1], everything()
        equal(set(before), {stays.name, *names}, "units that are exported")
        return before == after and (before, text)

    try:
        for i in range(rounds):
            names = [template.replace("@", f"@{i}-{k}") for k in range(at_once)]
            systemctl("start", *names[:active])
            call("Attach", names)
            series, text = wait_for("no series comes or goes", lambda names=names: at_rest(names), 60)
            kept, dropped = series_of_units(text), int(samples(text)["qosd_series_dropped"])
            n = sum(map(len, kept.values()))
            check(n <= limit, f"there are {n} series")
            equal(n + dropped, sum(map(len, series.values())), "series that are there and those that are dropped")
            check(dropped > 0, "the limit is too large for this test")
            check(all(kept[name] <= series[name] for name in kept), "there are series that no unit has")
            if len(kept) < len(series):
                more = len(list(series.values())[len(kept)])
                check(limit - n < more, f"there are {n} series, and the next unit has {more}")
            equal(samples(text, stays.name)[f'qosd_requests_server_total{{unit="{stays.name}"}}'], "1200",
                  "requests of the unit that stays")
            call("Detach", names)
            systemctl("stop", *names[:active])
            text = scrape()[1]
            equal(set(series_of_units(text)), {stays.name}, "units that are exported")
            equal(samples(text)["qosd_series_dropped"], "0", "series that are dropped")
            for seen, what in zip((memory, files), zip(*map(held, services))):
                seen.append(what)
    finally:
        for v in connections:
            v.close()
        configure(None)
        os.unlink(f"{scenario.UNIT_DIR}/{template}")
        systemctl("daemon-reload")
    # Pages that are given back and taken again make a difference of a MiB between two rounds, as a buffer that is made
    # once does. A leak has each round larger than the one before
    half = rounds // 2
    for service, sizes in zip(services, zip(*memory[1:])):
        before, after = sizes[:half - 1], sizes[half - 1:]
        grown = min(after) - min(before)
        check(grown < leak_max * half * at_once
              or statistics.median(b - a for a, b in pairwise(sizes)) < leak_max * at_once / 2,
              f"{service} has grown by {grown} bytes within {half * at_once} units: {before}, {after}")
    for service, number in zip(services, zip(*files)):
        equal(len(set(number)), 1, f"numbers of open files of {service}, {number}")


@test(own_daemon=True, deadline=90)
def churned_units():
    """However many units there are and have been, no more series are exported than ExportSeriesMax= says, those that
    are missing are counted, and qosd and the exporter keep neither memory nor files of a unit that is gone."""
    churn(64, 8, limit=2000, active=4, leak_max=4096)


@test(nightly=True, own_daemon=True, deadline=1500)
def churned_units_by_thousands():
    """As many at once as there may be, and the default limit."""
    churn(255, 40, limit=10000, active=16, leak_max=256)
