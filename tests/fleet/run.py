#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A fleet of two hosts, each with nginx, qosd and its exporter, and a Prometheus that scrapes both: what it has of all
requests together is compared with what qosd has on each host, integer by integer, and with a capture of the network
between them.

Runs on the first host, which reaches both as root over ssh: "tests/lab/lab fleet" makes them."""

import argparse
import json
import math
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request

SOURCES = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.append(f"{SOURCES}/scenarios")

from scenario import SEC, Failed, check, equal, wait_for  # noqa: E402 (its path is set above)
from test_exporter import coarser, native_buckets, queries  # noqa: E402

ADDRESSES = "10.78.0.1", "10.78.0.2"
# Each its own: a capture has the requests to the other host, too
PORTS = 8001, 8002
HOSTS = [f"root@{a}" for a in ADDRESSES]
INTERFACE = "fleet0"
URLS = [f"http://{a}:{port}/" for a, port in zip(ADDRESSES, PORTS)]
UNIT = "nginx.service"
FIRST_BYTE = f'qosd_requests_server_first_byte_seconds{{unit="{UNIT}"}}'
# The first host serves as fast as it can, the second one 200 requests a second: what comes sooner waits
NGINX = [f"server {{ listen {port}; root /var/www/html; index index.nginx-debian.html; }}\n{more}"
         for port, more in zip(PORTS, (
    "", "limit_req_zone $server_port zone=slow:1m rate=200r/s;\nlimit_req zone=slow burst=1000;\n"))]
# Requests to each, and on how many connections
LOADS = (20000, 8), (600, 16)


def run(*command, timeout=60, **more):
    r = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **more)
    check(r.returncode == 0, f"{' '.join(command)}: exit status {r.returncode}: {r.stderr or r.stdout}")
    return r.stdout


def on(address, script, **more):
    return run("ssh", f"root@{address}", script, **more)


def qosctl(hosts, *words):
    return json.loads(run("qosctl", "-H", ",".join(hosts), *words, "--json=short"))


class Wire:
    def __init__(self, address, port):
        self.process = subprocess.Popen(["ssh", f"root@{address}", f"{SOURCES}/fleet/wire.py {INTERFACE} {port}"],
                                        text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        equal(self.process.stdout.readline(), "ready\n", "the capture")

    def stop(self):
        out, _ = self.process.communicate(timeout=120)
        return json.loads(out)


def export_with(*options):
    """Restarts both exporters with options."""
    for a in ADDRESSES:
        on(a, f"""set -e
                  d=/run/systemd/system/qosd-exporter
                  mkdir -p $d.socket.d $d.service.d
                  printf '[Socket]\\nListenStream=\\nListenStream=0.0.0.0:10478\\n' >$d.socket.d/50-fleet.conf
                  rm -f $d.service.d/50-fleet.conf
                  systemctl daemon-reload
                  program=$(systemctl cat qosd-exporter.service | sed -n 's/^ExecStart=//p')
                  printf '[Service]\\nExecStart=\\nExecStart=%s {' '.join(options)}\\n' "$program" >$d.service.d/50-fleet.conf
                  systemctl daemon-reload
                  systemctl stop qosd-exporter.service qosd-exporter.socket
                  systemctl start qosd-exporter.socket""")


def start_hosts():
    # What --keep has left, first on both: each loads the other
    for a in ADDRESSES:
        on(a, "systemctl stop fleet-load.service 2>/dev/null || :")
    for a, text in zip(ADDRESSES, NGINX):
        on(a, """set -e
                 systemctl stop nginx.service
                 qosctl detach nginx 2>/dev/null || :
                 cat >/etc/nginx/conf.d/fleet.conf
                 qosctl attach nginx
                 qosctl set-threshold nginx 'slow: requests.server.firstByte.p99 > 40ms'
                 systemctl start nginx.service""", input=text)


class Alertmanager:
    PORT = 9093

    def __init__(self):
        directory = "/run/fleet-alertmanager"
        subprocess.run(["systemctl", "stop", "fleet-alertmanager.service"], stderr=subprocess.DEVNULL, check=False)
        run("rm", "-rf", directory)
        os.mkdir(directory)
        with open(f"{directory}/alertmanager.yml", "w") as f:
            f.write("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
        run("systemd-run", "--quiet", "--collect", "--unit=fleet-alertmanager", "prometheus-alertmanager",
            f"--config.file={directory}/alertmanager.yml", f"--storage.path={directory}/data", "--log.level=warn",
            f"--web.listen-address=127.0.0.1:{self.PORT}", "--cluster.listen-address=")

    def alerts(self):
        """By name, unit, threshold and instance."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.PORT}/api/v2/alerts", timeout=20) as r:
                return {tuple(a["labels"].get(k) for k in ("alertname", "unit", "threshold", "instance"))
                        for a in json.load(r)}
        except (urllib.error.URLError, ConnectionError):
            return set()


class Prometheus:
    PORT = 9090

    def __init__(self):
        directory = "/run/fleet-prometheus"
        subprocess.run(["systemctl", "stop", "fleet-prometheus.service"], stderr=subprocess.DEVNULL, check=False)
        run("rm", "-rf", directory)
        os.mkdir(directory)
        with open(f"{directory}/prometheus.yml", "w") as f:
            f.write("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
                    f"rule_files: [{SOURCES}/../docs/prometheus/qosd.rules.yml]\n"
                    f"alerting:\n  alertmanagers:\n    - static_configs: [{{targets: "
                    f"['127.0.0.1:{Alertmanager.PORT}']}}]\n"
                    "scrape_configs:\n  - job_name: qosd\n"
                    f"    static_configs: [{{targets: [{', '.join(f'{a}:10478' for a in ADDRESSES)}]}}]\n")
        run("systemd-run", "--quiet", "--collect", "--unit=fleet-prometheus", "prometheus",
            f"--config.file={directory}/prometheus.yml",
            "--log.level=warn", f"--web.listen-address=0.0.0.0:{self.PORT}", f"--storage.tsdb.path={directory}/data",
            "--enable-feature=native-histograms")

    def results(self, text):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.PORT}/api/v1/query?query={urllib.parse.quote(text)}",
                                        timeout=20) as r:
                return json.load(r)["data"]["result"]
        except (urllib.error.URLError, ConnectionError):
            return []

    def value(self, text):
        r = self.results(text)
        equal(len(r), 1, f"results of {text}")
        return float(r[0]["value"][1])


def nearest_rank(ordered, q):
    return ordered[max(math.ceil(len(ordered) * q - 1e-9), 1) - 1]


def bucket(seconds):
    """The index of the bucket of schema 5."""
    return math.ceil(math.log2(seconds) * 32)


def added(replies):
    """The buckets of several replies to Histogram(), each with its bounds, added up."""
    sums = {}
    for b in (b for r in replies for b in r["buckets"]):
        key = b["lower"], b.get("upper")
        sums[key] = sums.get(key, 0) + b["count"]
    return sums


def compare_buckets(prometheus):
    """The sum over both hosts in Prometheus is that of both hosts themselves."""
    words = "histogram", UNIT, "requests.server.firstByte", "--window=total"
    each = [qosctl([h], *words) for h in HOSTS]
    both = qosctl(HOSTS, *words)
    equal([r["count"] for r in each], [n for n, _ in LOADS], "requests of each host")
    equal(added([both]), added(each), "buckets of qosctl with both hosts")
    equal(both["sum"], sum(r["sum"] for r in each), "sum of all durations")
    for limit in 0, 160, 29:
        export_with(f"--buckets-max={limit}")

        def stored():
            parts = prometheus.results(FIRST_BYTE)
            r = prometheus.results(f"sum({FIRST_BYTE})")
            if len(parts) == 2 and len(r) == 1 and int(r[0]["histogram"][1]["count"]) == both["count"] and \
                    all(limit == 0 or len(p["histogram"][1]["buckets"]) <= limit for p in parts):
                return r[0]["histogram"][1], [len(p["histogram"][1]["buckets"]) for p in parts]
            return None

        # A scrape with the limit of before is followed by one with this
        time_of_restart = time.time()
        wait_for("both are scraped",
                 lambda: prometheus.results(f"count(timestamp(qosd_up) > {time_of_restart}) == {len(HOSTS)}"), 30)
        h, numbers = wait_for("Prometheus has all requests", stored, 30)
        got = native_buckets(h)
        schema = round(-math.log2(max(upper - lower for lower, upper in got if lower is not None)))
        finest = [max(s for s in range(6) if limit == 0 or len(coarser(r, s)) <= limit) for r in each]
        equal(schema, min(finest), f"schema with --buckets-max={limit}")
        equal({upper: n for (_, upper), n in got.items()}, coarser(both, schema), f"buckets with --buckets-max={limit}")
        check(abs(float(h["sum"]) - both["sum"] / SEC) < 1e-9 * both["count"], "sum of all durations")
        print(f"--buckets-max={limit}: {' + '.join(map(str, numbers))} buckets, {len(got)} of schema {schema} in the "
              "sum, all "
              f"{sum(got.values())} requests equal")


def compare_quantiles(prometheus, wires):
    """The quantile of the sum is that of all requests, as they were on the wire."""
    for wire, (number, _) in zip(wires, LOADS):
        equal(len(wire), number, "requests in the capture")
    wait_for("Prometheus has all requests",
             lambda: prometheus.results(f"histogram_count(sum({FIRST_BYTE})) == {sum(map(len, wires))}"), 30)
    truth = nearest_rank(sorted(wires[0] + wires[1]), .99) / SEC
    of_sum = prometheus.value(f"histogram_quantile(0.99, sum({FIRST_BYTE}))")
    of_qosctl = qosctl(HOSTS, "status", UNIT, "--window=total")["requests"]["server"]["firstByte"]["p99"] / SEC
    each = [float(r["value"][1]) for r in prometheus.results(f"histogram_quantile(0.99, {FIRST_BYTE})")]
    mean = sum(each) / len(each)
    print(f"p99 of the time to first byte: {truth * 1e3:.3f} ms on the wire, {of_sum * 1e3:.3f} ms of the sum in "
          "Prometheus, "
          f"{of_qosctl * 1e3:.3f} ms in qosctl status; the mean of both hosts' p99 "
          f"({', '.join(f'{v * 1e3:.3f}' for v in each)} ms) "
          f"is {mean * 1e3:.3f} ms")
    for name, value in ("Prometheus", of_sum), ("qosctl", of_qosctl):
        check(abs(bucket(value) - bucket(truth)) <= 1,
              f"p99 of {name} is {bucket(value) - bucket(truth)} buckets from the truth")
    check(abs(bucket(mean) - bucket(truth)) > 1, "the hosts are too similar for this test")


def check_dashboard(prometheus):
    """Each query of the dashboard has data, but for those of what should not be."""
    with open(f"{SOURCES}/../docs/grafana/qosd-fleet.json") as f:
        expressions = [e.replace("$__rate_interval", "1m").replace("$unit", UNIT) for e in queries(json.load(f))]
    expressions = [e for e in expressions if not e.endswith("== 0") and "state!=" not in e]
    check(len(expressions) > 5, "the dashboard has few queries")
    for e in expressions:
        check("$" not in e, f"a variable is left in {e}")

        def has_data():
            for url in URLS:
                run("curl", "-s", "-f", "-o", "/dev/null", url)
            return prometheus.results(e)

        wait_for(f"{e} has data", has_data, 30)
    print(f"{len(expressions)} queries of the dashboard have data")


def check_alert(alertmanager):
    """The objective is the same on both hosts, and the slow one misses it."""
    name, want = "QosdObjectiveBurnsInTwoDays", {f"{ADDRESSES[1]}:10478"}

    def instances():
        return {i for n, unit, threshold, i in alertmanager.alerts() if (n, unit, threshold) == (name, UNIT, "slow")}

    wait_for("Alertmanager has the alert", lambda: instances() >= want, 30)
    equal(instances(), want, f"instances with {name}")
    print(f"{name} of {', '.join(want)} is at Alertmanager")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true", help="leave load on both hosts")
    arguments = parser.parse_args()

    start_hosts()
    export_with("--buckets-max=0")
    alertmanager, prometheus = Alertmanager(), Prometheus()
    # The rate of a counter is that of its growth between scrapes
    wait_for("both are scraped", lambda: len(prometheus.results("qosd_objective_requests_total == 0")) == 2, 30)
    wires = [Wire(a, port) for a, port in zip(ADDRESSES, PORTS)]
    # From the other host, through the network
    clients = [subprocess.Popen(["ssh", f"root@{ADDRESSES[1 - i]}", "h2load", "--h1", "-n", str(n), "-c", str(c),
                                 URLS[i]],
                                stdout=subprocess.PIPE, text=True) for i, (n, c) in enumerate(LOADS)]
    for client, (number, _) in zip(clients, LOADS):
        out, _ = client.communicate(timeout=180)
        check(f"{number} succeeded, 0 failed" in out, out)
    wires = [w.stop() for w in wires]
    for h, (number, _) in zip(HOSTS, LOADS):
        wait_for("qosd has all requests", lambda: qosctl([h], "histogram", UNIT, "requests.server.firstByte",
                                                         "--window=total")["count"] >= number)

    failed, parts = 0, ((compare_quantiles, prometheus, wires), (compare_buckets, prometheus),
                        (check_alert, alertmanager),
                        (check_dashboard, prometheus))
    for part, *with_what in parts:
        try:
            part(*with_what)
        except Failed as e:
            failed += 1
            print(f"FAIL {part.__name__}: {e}")
    print(f"{len(parts) - failed} passed, {failed} failed")
    if arguments.keep and not failed:
        for a, url in zip(reversed(ADDRESSES), URLS):
            on(a, f"systemd-run --quiet --collect --nice=5 --unit=fleet-load wrk -t 1 -c 4 -d 24h {url}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
