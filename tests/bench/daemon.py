# SPDX-License-Identifier: LGPL-2.1-or-later
"""Measures the daemon itself: wake-ups, CPU time, memory, the time of a reply, and scrapes of the exporter."""

import http.client
import os
import statistics
import subprocess
import time
import types
from contextlib import ExitStack

import qosd
from accuracy import quantile
from cost import Load
from workload import Nginx, systemctl

UNITS = 64
TEMPLATE = "/run/systemd/system/qosd-bench-idle@.service"
# A load with which each reading is a new one, and which leaves the CPUs to the clients of the daemon
LIGHT_RATE = 500
ALL_PROBES = ["requests", "cpu", "block", "memory"]
EXPORTER, EXPORTER_SOCKET, EXPORTER_PORT = "qosd-exporter.service", "qosd-exporter.socket", 10478
EXPORTER_CONF = "/run/qosd-exporter.conf.d/50-bench.conf"
# After a reply qosd lets others go first, for a multiple of the time that it took; no scraper comes again that soon
SCRAPE_PAUSE = 0.5
# By name: Accept, and Accept-Encoding. Prometheus takes the first one
FORMS = {
    "binary, gzip": ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
                     "gzip"),
    "binary": ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
               "identity"),
    "text, gzip": ("text/plain;version=0.0.4", "gzip"),
    "text": ("text/plain;version=0.0.4", "identity"),
}


class Idlers:
    """Units that do nothing, for as long as the "with" block."""

    names = [f"qosd-bench-idle@{i}.service" for i in range(UNITS)]

    def __enter__(self):
        os.makedirs(os.path.dirname(TEMPLATE), exist_ok=True)
        with open(TEMPLATE, "w") as f:
            f.write("[Service]\nExecStart=sleep infinity\n")
        systemctl("daemon-reload")
        systemctl("start", *self.names)
        return self

    def __exit__(self, *_):
        systemctl("stop", *self.names)
        os.unlink(TEMPLATE)
        systemctl("daemon-reload")


def watch(name, seconds, process=None):
    p = qosd.Process(process or qosd.pid())
    time.sleep(seconds)
    took, switches, run = p.read()
    return {"name": name, "seconds": took, "wakeUps": switches, "cpuShare": run / 1e9 / took}


def memory(units):
    status = qosd.call("GetStatus")
    # Without attached units there are no maps
    return {"units": units, "rssAnon": qosd.anonymous_memory(), "maps": status.get("mapMemory", 0),
            "mapsPerUnit": status.get("mapMemoryPerUnit"), "perSocket": status.get("memoryPerSocket")}


def answers(directory, way, unit, number, name):
    process = qosd.Process(qosd.pid())
    said = subprocess.run([f"{directory}/query", way, unit, str(number)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    _, _, run = process.read()
    times = sorted(int(n) for n in said.split())
    return {"way": way, "name": name, "number": number, "p50": statistics.median(times), "p99": quantile(times, .99),
            "daemonNsec": run / number, "times": times}


def scrape(accept, encoding):
    """Returns the time and the size of the response."""
    began = time.monotonic()
    c = http.client.HTTPConnection("127.0.0.1", EXPORTER_PORT, timeout=20)
    c.request("GET", "/metrics", headers={"Accept": accept, "Accept-Encoding": encoding})
    r = c.getresponse()
    body = r.read()
    took = time.monotonic() - began
    c.close()
    if r.status != http.client.OK:
        raise qosd.Error(f"the exporter replies with status {r.status}")
    return types.SimpleNamespace(nsec=took * 1e9, size=len(body))


def scrapes(number):
    """Of the metrics of all probes, in each form."""
    os.makedirs(os.path.dirname(EXPORTER_CONF), exist_ok=True)
    with open(EXPORTER_CONF, "w") as f:
        f.write("[Exporter]\nExport=probes\n")
    result = []
    try:
        systemctl("stop", EXPORTER_SOCKET, EXPORTER)
        systemctl("start", EXPORTER_SOCKET)
        for name, form in FORMS.items():
            scrape(*form)
            daemon = qosd.Process(qosd.pid())
            exporter = qosd.Process(systemctl("show", "--value", "--property=MainPID", EXPORTER))
            all_of_them = []
            for _ in range(number):
                time.sleep(SCRAPE_PAUSE)
                all_of_them.append(scrape(*form))
            result.append({"name": name, "size": all_of_them[-1].size,
                           "p50": statistics.median(s.nsec for s in all_of_them),
                           "daemonNsec": daemon.read()[2] / number, "exporterNsec": exporter.read()[2] / number})
    finally:
        os.unlink(EXPORTER_CONF)
        systemctl("stop", EXPORTER_SOCKET, EXPORTER)
    return result


def run(directory, quick, say):
    seconds, number = (4, 300) if quick else (20, 1000)
    result = {"watch": [], "memory": [], "answers": [],
              "watchdogUSec": systemctl("show", "--value", "--property=WatchdogUSec", qosd.SERVICE)}

    def watched(*args):
        result["watch"].append(watch(*args))
        say(result["watch"][-1])

    result["memory"].append(memory(0))
    watched("nothing attached", seconds)

    with Nginx(directory) as unit, qosd.Attached(unit.name):
        result["memory"].append(memory(1))
        watched("one unit attached, idle", seconds)
        light = [f"{directory}/load", "--address", unit.address, "--port", str(unit.port),
                 "--connections", "8", "--rate", str(LIGHT_RATE),
                 "--requests", str(10 * 60 * LIGHT_RATE), "http", "/"]
        with Load(light) as generator:
            watched(f"one unit attached, {LIGHT_RATE} requests/s", seconds)
            with Load(["qosctl", "--no-pager", "top", "--batch", unit.name]) as top:
                watched("the same, and qosctl top at 1 Hz", seconds)
                watched("qosctl top itself", seconds // 2, top.pid())
                top.check()
            for way in "varlink", "dbus":
                result["answers"].append(answers(directory, way, unit.name, number, "new reading"))
            generator.check()
        for way in "varlink", "dbus":
            result["answers"].append(answers(directory, way, unit.name, number, "nothing new"))

    with Idlers() as idlers, ExitStack() as stack:
        for name in idlers.names:
            stack.enter_context(qosd.Attached(name))
        result["memory"].append(memory(UNITS))
        watched(f"{UNITS} units attached, idle", seconds)
    with Idlers() as idlers, ExitStack() as stack:
        for name in idlers.names:
            stack.enter_context(qosd.Attached(name, probes=ALL_PROBES))
        result["scrapes"] = scrapes(number // 20)
    result["memory"].append(memory(0))
    return result
