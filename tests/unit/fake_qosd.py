#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A fake of qosd that serves the figures of a test over Varlink.

As a program, fake_qosd.py SOCKET serves examples to qosctl: QOSD_ADDRESS=SOCKET qosctl."""

import copy
import json
import math
import os
import socket
import sys
import threading
import time

SEC = 1000000000
# Times are in microseconds, durations in nanoseconds
USEC = 1000
PREFIX = "org.qosd.QoS."


# Name, quantile, and its value as a multiple of the median
QUANTILES = (("p50", .5, 1), ("p75", .75, 1.4), ("p90", .9, 1.9), ("p95", .95, 2.2), ("p99", .99, 3.1),
             ("p999", .999, 11))


def distribution(count, scale, heavy=1):
    """Returns a distribution around scale ns, with those quantiles that count samples are enough for."""
    d = {"count": count}
    if count:
        d["mean"] = int(scale * 1.1)
        for name, q, factor in QUANTILES:
            if count * min(q, 1 - q) >= 4.9999:
                d[name] = int(scale * factor * (heavy if q > .95 else 1))
        d["max"] = int(scale * 57 * heavy)
    else:
        d["max"] = 0
    return d


def snapshot(unit, rate, window, scale=109000, total=None, now=None, age=600, **more):
    """Returns a reply of Get for a unit that serves rate requests per second, and was attached age seconds ago."""
    now = now or time.time_ns()
    covered = min(window or age * SEC, age * SEC)
    count = int(rate * covered / SEC)
    server = {
        "count": count, "rate": count * SEC / covered, "errors": {"reset": 0, "timeout": 0}, "clientAborts": 0,
        "inFlight": 0,
        "latency": distribution(count, scale), "firstByte": distribution(count, scale * .95),
        "receive": distribution(count, scale * .01 + 1), "queue": distribution(count, scale * .07),
        "service": distribution(count, scale * .87), "answer": distribution(count, scale * .05),
        "protocols": {"tcp": count}, "bytesIn": count * 86, "bytesOut": count * 3314,
        "connections": {"open": 12, "accepted": 3, "acceptQueue": 0, "acceptQueueMax": 511, "listenDrops": 0,
                        "retransmits": 0},
    }
    s = {"unit": unit, "controlGroup": f"/system.slice/{unit}", "invocationId": "0123456789abcdef0123456789abcdef",
         "activeState": "active", "attachedSince": (now - age * SEC) // USEC, "seq": 812, "timestamp": now // USEC}
    if window:
        s["window"] = window
    s |= {"covered": covered, "requests": {"quality": "exchanges", "server": server},
          "totals": {"requests.server.count": int(rate * age) if total is None else total}, "cost": {"share": 0.004},
          "drops": 0}
    for path, value in more.items():
        o = s
        *parents, key = path.split("__")
        for p in parents:
            o = o.setdefault(p, {})
        if value is None:
            o.pop(key, None)
        else:
            o[key] = value
    return s


def histogram(count, scale=109000):
    """Returns a histogram of schema 5 with a peak at scale, and a small one at 16 times that."""
    weights = {}
    for center, height, width in ((scale, 1, 12), (scale * 16, .02, 8)):
        middle = round(math.log2(center / SEC) * 32)
        for i in range(-4 * width, 4 * width):
            w = height * math.exp(-i * i / (2 * width * width))
            weights[middle + i] = weights.get(middle + i, 0) + w
    whole = sum(weights.values())
    buckets = []
    for i in sorted(weights):
        n = int(count * weights[i] / whole)
        if n:
            buckets.append({"lower": int(2 ** ((i - 1) / 32) * SEC), "upper": int(2 ** (i / 32) * SEC), "count": n})
    n = sum(b["count"] for b in buckets)
    return {"schema": 5, "count": n, "sum": int(n * scale * 1.1), "buckets": buckets}


def history(unit, n, step=10 * SEC, begin=1763683200 * SEC, gap=(), scale=109000):
    """Returns n steps with an increasing number of requests, and four times the latency in the middle."""
    steps = []
    for i in range(n):
        if i in gap:
            continue
        middle = scale * 4 if n // 3 <= i < n // 2 else scale
        s = snapshot(unit, 100 * i, step, scale=middle, now=begin + i * step, age=step // SEC)
        bump = round(math.log2(middle / SEC) * 8)
        counts = [i, 5 * i, 20 * i, 60 * i, 100 * i, 60 * i, 20 * i, 5 * i, i] + [0] * 60 + [1]
        s["requests"]["server"]["errors"] = {"reset": 3 * i, "timeout": 0}
        steps.append({"timestamp": (begin + i * step) // USEC, "covered": step, "requests": s["requests"],
                      "histograms": [{"metric": "requests.server.latency", "schema": 3, "count": sum(counts),
                                      "sum": sum(counts) * middle,
                                      "offset": bump - 4, "counts": counts}]})
    return {"unit": unit, "step": step, "steps": steps}


class Error(Exception):
    def __init__(self, name, **parameters):
        self.name = name if "." in name else PREFIX + name
        self.parameters = parameters


class FakeQosd:
    """The server. Of each unit, it has the item in replies of List, and a function that returns the snapshot of a
    window."""

    def __init__(self, path):
        self.path = path
        self.units = {}
        self.values = {}        # of metrics with a selector; None: not measured
        self.known = set()      # units that can be attached
        self.calls = []         # (method, parameters), in order
        self.errors = {}        # method to Error
        self.slow = {}          # method to the Event that its reply waits for
        self.histories = {}     # name to what History replies
        self.diagnosis = {}     # what Diagnose replies, beside the unit and the time
        self.diagnoses = {}     # the same of some units
        self.begun = {}         # connection to the unit whose diagnosis has begun on it
        self.thresholds = []    # what ListThresholds replies
        self.monitored = []     # lists of what Monitor replies, one for each call; an Error ends one
        self.exported = {}      # name to what Export replies
        self.marks = {}         # (connection, name) to when it was set
        self.metrics = [
            {"name": "requests.quality", "kind": "gauge", "unit": "", "probe": "requests",
             "description": "What is known of the figures: \"exact\", \"exchanges\" or \"overlapping\""},
            {"name": "requests.server.count", "kind": "counter", "unit": "1", "probe": "requests",
             "description": "Requests with a first response byte"},
            {"name": "requests.server.connections.acceptQueueMax", "kind": "gauge", "unit": "1", "probe": "requests",
             "description": "The backlog limits of all listeners together, which is how many connections may wait"},
        ] + [{"name": f"requests.server.{d}.{q}", "kind": "gauge", "unit": "ns", "probe": "requests",
              "description": f"The {q} of {d}"} for d in ("latency", "firstByte")
             for q in ("p50", "p99", "p999", "max")]
        for metric in self.metrics:
            metric["essential"] = True
        self.programs = [
            {"program": "qosd_ingress", "probe": "requests", "hook": "cgroup_skb/ingress",
             "provides": "arrival of requests",
             "state": "attached", "runs": 1234567, "runTime": 234567890, "runTimeMean": 190, "recursionMisses": 0},
            {"program": "qosd_data_ready", "probe": "requests", "hook": "tp_btf/sk_data_ready",
             "provides": "requests that come with the handshake",
             "state": "unavailable", "reason": "the kernel has no such tracepoint"},
            {"program": "qosd_mkdir", "probe": "requests", "hook": "tp_btf/cgroup_mkdir",
             "provides": "units that restart", "state": "idle"},
        ]
        self.status = {"version": "0.1", "units": 2, "unitsMax": 256, "minimumSamples": 5, "statisticsEnabled": True,
                       "mapMemory": 1289748,
                       "mapMemoryPerUnit": 524288, "memoryPerSocket": 320, "drops": 0}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)
        self.connections = []
        self.leases = {}        # connection to names
        self.lock = threading.Lock()
        self.accepting = threading.Thread(target=self.accept, daemon=True)
        self.accepting.start()

    def add(self, unit, rate=15123.4, holds=None, degraded=None, parentUnit=None, descendantUnits=None, **more):
        item = {"attached": True, "holds": holds or [{"type": "administrator", "probes": ["requests"], "uid": 0}],
                "unit": unit}
        if degraded:
            item["degraded"] = degraded
        if parentUnit:
            item["parentUnit"] = parentUnit
        if descendantUnits:
            item["descendantUnits"] = descendantUnits
        self.units[unit] = (item, lambda window: snapshot(unit, rate, window, **copy.deepcopy(more)), more)

    def close(self):
        # The number of the socket may be another's as soon as it is closed
        self.listener.shutdown(socket.SHUT_RDWR)
        self.accepting.join()
        self.listener.close()
        self.disconnect()
        os.unlink(self.path)

    def disconnect(self):
        for c in self.connections:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(c)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        data = b""
        while True:
            try:
                more = c.recv(65536)
            except OSError:
                more = b""
            if not more:
                break
            data += more
            while b"\0" in data:
                message, data = data.split(b"\0", 1)
                self.dispatch(c, json.loads(message))
        for unit in self.leases.pop(c, []):
            self.units.pop(unit, None)
        c.close()

    def dispatch(self, c, message):
        method, parameters = message["method"], message.get("parameters") or {}
        with self.lock:
            self.calls.append((method.removeprefix(PREFIX), parameters))
        slow = self.slow.get(method.removeprefix(PREFIX))
        if slow:
            slow.wait()
        with self.lock:
            try:
                if method in self.errors:
                    raise self.errors[method]
                if method.removeprefix(PREFIX) in self.errors:
                    raise self.errors[method.removeprefix(PREFIX)]
                f = getattr(self, "do_" + method.removeprefix(PREFIX), None)
                if not f:
                    raise Error("org.varlink.service.MethodNotFound", method=method)
                replies = f(c, **parameters)
            except Error as e:
                out = [{"error": e.name, "parameters": e.parameters}]
            else:
                out = [{"parameters": r} for r in replies]
                if message.get("more"):
                    for o in out[:-1]:
                        o["continues"] = True
        try:
            c.sendall(b"".join(json.dumps(o).encode() + b"\0" for o in out))
        except OSError:
            pass

    def resolve(self, unit):
        name = unit if "." in unit or unit.startswith("/") else unit + ".service"
        if name in self.units:
            return name
        if name in self.known:
            raise Error("NotAttached", unit=name, message=f"{name} is not attached")
        raise Error("NoSuchUnit", unit=unit, message=f"no such unit {name}")

    @staticmethod
    def check_window(window):
        if window not in (None, 0, 60 * SEC, 300 * SEC) and not (window % SEC == 0 and window <= 10 * SEC) and \
                not (window % (SEC // 10) == 0 and window <= SEC):
            raise Error("org.varlink.service.InvalidParameter", parameter="window")
        return 10 * SEC if window is None else window

    def do_Attach(self, c, unit, probes=None, exclude=None, duration=None, lease=False,
                  allowInteractiveAuthentication=False):
        for p in probes or []:
            if p != "requests":
                raise Error("NoSuchProbe", probe=p, message=f"there is no probe '{p}', expected requests")
        for e in exclude or []:
            if not e.startswith(("port:", "http:/", "redis:")):
                raise Error("InvalidExclude", exclude=e,
                            message=f"invalid exclusion '{e}', expected 'port:' and a number from 1 to 65535")
        try:
            name = self.resolve(unit)
        except Error as e:
            if e.name != PREFIX + "NotAttached":
                raise
            name = e.parameters["unit"]
            self.add(name, rate=0)
            if lease:
                self.leases.setdefault(c, []).append(name)
        reply = {"unit": name}
        if "degraded" in self.units[name][0]:
            reply["degraded"] = self.units[name][0]["degraded"]
        return [reply]

    def do_Detach(self, c, unit, lease=False, allowInteractiveAuthentication=False):
        del self.units[self.resolve(unit)]
        return [{}]

    def item(self, name, window):
        item, f, _ = self.units[name]
        return item | {"snapshot": f(window)}

    def do_List(self, c, unit=None, window=None):
        window = self.check_window(window)
        if unit is not None:
            return [self.item(self.resolve(unit), window)]
        replies = [self.item(name, window) for name in self.units]
        if not replies:
            raise Error("NoEntries")
        return replies

    def do_Export(self, c, unit=None, tables=False):
        names = list(self.units) if unit is None else [self.resolve(unit)]
        end = {"units": len(names)}
        if unit is None:
            end["programs"] = [{"program": p["program"], "attached": p["state"] == "attached"} |
                               ({"reason": p["reason"]} if "reason" in p else {})
                               for p in self.do_Probes(c) if p["state"] != "idle"]
        return [{"unit": {k: v for k, v in self.exported[name].items() if tables
                          or k not in ("endpoints", "devices", "mounts", "dropReasons")}}
                for name in names] + [end]

    def do_Mark(self, c, unit):
        name = self.resolve(unit)
        self.marks[c, name] = time.time_ns()
        return [{"unit": name}]

    def do_Get(self, c, unit, window=None, sinceMark=False, metrics=None):
        if metrics:
            for m in metrics:
                if m not in self.values:
                    raise Error("NoSuchMetric", metric=m,
                                message=f"there is no metric '{m}', see 'qosctl list-metrics'")
            return [self.item(self.resolve(unit), self.check_window(window))["snapshot"] |
                    {"values": {m: self.values[m] for m in metrics if self.values[m] is not None}}]
        if sinceMark:
            name = self.resolve(unit)
            s = self.item(name, 10 * SEC)["snapshot"]
            del s["window"]
            return [s | {"covered": time.time_ns() - self.marks[c, name]}]
        return [self.item(self.resolve(unit), self.check_window(window))["snapshot"]]

    def do_Histogram(self, c, unit, metric, window=None):
        s = self.item(self.resolve(unit), self.check_window(window))["snapshot"]
        key = metric.removeprefix("requests.server.")
        if key not in ("latency", "firstByte", "receive", "queue", "service", "answer"):
            raise Error("NoSuchMetric", metric=metric, message=f"there is no distribution '{metric}'")
        if key not in s["requests"]["server"]:
            raise Error("NotMeasured", metric=metric, message=f"{metric} is not measured now")
        d = s["requests"]["server"][key]
        h = histogram(d["count"], d.get("p50", 109000))
        return [{"unit": s["unit"], "metric": metric, "seq": s["seq"], "timestamp": s["timestamp"]} |
                ({"window": s["window"]} if "window" in s else {}) | {"covered": s["covered"]} | h]

    def do_History(self, c, unit, metrics=None, since=None, step=None):
        reply = copy.deepcopy(self.histories[self.resolve(unit)])
        for s in reply["steps"]:
            s["histograms"] = [h for h in s["histograms"] if h["metric"] in (metrics or [])]
            # Steps have only the requested metrics, of which distributions are histograms
            if metrics == ["requests.server.latency"]:
                for part in s.keys() - {"timestamp", "covered", "histograms"}:
                    del s[part]
        return [reply]

    def threshold(self, unit, name, state, value=None, **more):
        return {"unit": unit, "name": name, "state": state, "metric": "requests.server.firstByte.p99",
                "limit": 20000000,
                "threshold": f"{name}: requests.server.firstByte.p99 > 20ms over 10s for 2s, clear 15ms for 5s",
                "source": "administrator",
                "since": 1763683200 * SEC // USEC} | ({"value": value} if value is not None else {}) | more

    def do_BeginDiagnosis(self, c, unit, allowInteractiveAuthentication=False):
        self.begun[c] = self.resolve(unit)
        if isinstance(self.diagnoses.get(self.begun[c]), Error):
            raise self.diagnoses[self.begun[c]]
        return [{"unit": self.begun[c]}]

    def do_Diagnose(self, c, unit, sinceBegin=False, baseline=None):
        if not sinceBegin or self.begun.pop(c, None) != self.resolve(unit):
            raise Error("org.varlink.service.InvalidParameter", parameter="sinceBegin")
        return [{"unit": self.resolve(unit), "timestamp": 1763683260000000}
                | self.diagnoses.get(self.resolve(unit), self.diagnosis)]

    def do_SetThreshold(self, c, unit, threshold, allowInteractiveAuthentication=False):
        if ":" not in threshold:
            raise Error("InvalidThreshold", threshold=threshold,
                        message=f"threshold '{threshold}': expected a name and a colon in front")
        return [{"unit": self.resolve(unit), "threshold": threshold + ", clear 1ms"}]

    def do_ClearThreshold(self, c, unit, name, allowInteractiveAuthentication=False):
        name_of = self.resolve(unit)
        if name not in [t["name"] for t in self.thresholds if t["unit"] == name_of]:
            raise Error("NoSuchThreshold", threshold=name, message=f"'{name_of}' has no threshold '{name}'")
        return [{}]

    def do_ListThresholds(self, c, unit=None):
        replies = [{"threshold": t} for t in self.thresholds if unit is None or t["unit"] == self.resolve(unit)]
        if unit is not None:
            self.resolve(unit)
        if not replies:
            raise Error("NoEntries")
        return replies

    def do_Monitor(self, c, units=None, since=None):
        replies = self.monitored.pop(0)
        out = b""
        for r in replies[:-1]:
            out += json.dumps({"parameters": r, "continues": True}).encode() + b"\0"
        c.sendall(out)
        raise replies[-1]

    def do_Wait(self, c, unit, condition):
        if "never" in condition:
            time.sleep(5)
        if "<" not in condition and ">" not in condition:
            raise Error("InvalidThreshold", threshold=condition,
                        message=f"threshold '{condition}': expected '>' or '<'")
        return [{"unit": self.resolve(unit), "value": 12345678}]

    def do_ListMetrics(self, c):
        return self.metrics

    def do_Probes(self, c):
        return self.programs

    def do_GetStatus(self, c):
        return [self.status]


def demo(path):
    q = FakeQosd(path)
    q.known = {"postgresql.service"}
    q.add("nginx.service", requests__server__inFlight=7, requests__server__oldestInFlight=81000,
          requests__server__errors={"reset": 3, "timeout": 1}, requests__server__clientAborts=2,
          holds=[{"type": "administrator", "probes": ["requests"], "uid": 0, "remaining": 543 * SEC},
                 {"type": "lease", "probes": ["requests"], "uid": 1000, "owner": "varlink 1234 (qosctl)"}])
    q.add("redis-server.service", rate=41000, scale=21000, cost__share=0.0123)
    q.add("intranet-wiki-with-a-rather-long-name@instance-number-17.service", rate=5, scale=4200000,
          degraded="requests: the kernel has no tracepoint sk_data_ready",
          requests__server__connections__acceptQueue=128, requests__server__connections__acceptQueueMax=128,
          requests__server__connections__listenDrops=41, drops=3)
    q.add("backup.service", rate=0, activeState="inactive")
    q.histories["nginx.service"] = history("nginx.service", 360, begin=time.time_ns() - 3600 * SEC, gap=range(70, 85))
    q.add("broken.service", rate=0.02, activeState="failed", requests__server__errors={"reset": 9, "timeout": 0})
    q.add("streams.service", rate=10, requests__quality="overlapping", requests__server__count=None,
          requests__server__rate=None,
          requests__server__latency=None, requests__server__firstByte=None, requests__server__receive=None,
          requests__server__queue=None, requests__server__service=None, requests__server__answer=None)
    return q


if __name__ == "__main__":
    if os.path.exists(sys.argv[1]):
        os.unlink(sys.argv[1])
    demo(sys.argv[1])
    threading.Event().wait()
