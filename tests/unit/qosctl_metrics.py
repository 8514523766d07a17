# SPDX-License-Identifier: LGPL-2.1-or-later
"""probes, metrics and list-metrics"""

import json
import os
import re

from util_qosctl import Test


class Metrics(Test):
    def test_probes(self):
        for locale in ("C.UTF-8", "C"):
            for columns in (80, 200):
                self.fits(self.out_of("probes", columns=columns, locale=locale), columns)
        out = self.out_of("probes")
        self.assertRegex(out,
                         r"qosd_ingress +requests +cgroup_skb/ingress +attached +1.23M +190ns +0 arrival of requests\n")
        self.assertRegex(out, r"qosd_data_ready .* unavailable +- +- +- .*; the kernel has no such tracepoint\n")
        self.assertIn("512.0K per attached unit, 320B per open connection.", out)
        self.assertNotIn("bpf_stats_enabled", out)
        self.qosd.status |= {"units": 1, "drops": 1}
        out = self.out_of("probes")
        self.assertIn("\n1 unit attached, limit ", out)
        self.assertIn("\n1 event not counted.\n", out)
        self.qosd.status |= {"units": 2, "statisticsEnabled": False, "drops": 3}
        for p in self.qosd.programs:
            for key in ("runs", "runTime", "runTimeMean"):
                p.pop(key, None)
        out = self.out_of("probes")
        self.assertIn("sysctl kernel.bpf_stats_enabled=1", out)
        self.assertIn("\n2 units attached, limit ", out)
        self.assertIn("3 events not counted", out)
        self.assertNotIn("could not be allocated", out)
        self.qosd.status["lostElements"] = [{"map": "h2_conns", "count": 2}, {"map": "udp_peers", "count": 1}]
        out = self.out_of("probes")
        self.assertIn("\n2 elements could not be allocated in map 'h2_conns'.\n1 element could not be allocated in map "
                      "'udp_peers'.\n", out)
        objects = [json.loads(line) for line in self.out_of("probes", "--json=short").splitlines()]
        self.assertEqual(objects, self.qosd.programs + [self.qosd.status])

    def export(self, name, count, indexes, counts):
        self.qosd.add(name)
        self.qosd.exported[name] = {
            "name": name, "slice": "app.slice", "activeState": "active", "attachedSince": 1763683200123456, "seq": 5,
            "timestamp": 1763683300000000, "drops": 3, "cost": {"requests": 1000000001, "contention": 7},
            "totals": {"requests.server.count": count, "requests.server.bytesIn": 2 ** 53 + 1,
                       "contention.threadTime": 1500000000},
            "gauges": {"requests.server.inFlight": 2, "requests.server.oldestInFlight": 7},
            "histograms": [{"metric": "requests.server.latency", "schema": 5, "sum": 12345678901, "indexes": indexes,
                            "counts": counts,
                            "count": sum(counts)}],
            "objectives": [{"threshold": "slow", "target": 0.99, "good": 5, "total": 9}]}

    def samples(self, *arguments):
        """Returns the samples by name and labels. Checks that those of a family are together, after its HELP and
        TYPE."""
        samples, families, family = {}, [], None
        for line in self.out_of("metrics", *arguments).splitlines():
            if line.startswith("# "):
                _, key, *rest = line.split(" ", 3)
                if key == "HELP":
                    family = rest[0]
                    self.assertNotIn(family, families)
                    families.append(family)
                elif key != "EOF":
                    self.assertEqual(rest[0], family)
                continue
            m = re.fullmatch(r'([a-z_0-9]+)\{(?:unit|program)="((?:[^"\\]|\\.)*)"'
                             r'(?:,(?:le|threshold|slice|reason|probe)="([^"]*)")?'
                             r'(?:,state="active")?\} (\S+)', line)
            self.assertTrue(m, line)
            self.assertTrue(m[1].startswith(family), line)
            self.assertNotIn(m.groups()[:3], samples)
            samples[m.groups()[:3]] = m[4]
        return samples

    def test_metrics(self):
        self.qosd.metrics += [
            {"name": name, "kind": kind, "unit": unit, "probe": "requests", "essential": True,
             "description": description}
            for name, kind, unit, description in
            (("requests.server.bytesIn", "counter", "bytes", "Bytes"),
             ("contention.threadTime", "counter", "ns", "Time"),
             ("requests.server.inFlight", "gauge", "1", "A \\ and \"more\""),
             ("requests.server.oldestInFlight", "gauge", "ns", "Age"),
             ("requests.server.latency.count", "gauge", "1", "Requests in the distribution"))]
        # The first and the last bucket, and bounds on and between those of the export
        indexes, counts = [-704, -672, -671, 0, 5, 192, 193], [1, 2, 4, 8, 16, 32, 64]
        self.export("a.service", 127, indexes, counts)
        self.export("b\\x2dc.service", 4, [33], [4])

        for arguments, created in ((), True), (("--format=openmetrics",), True), (("--format=prometheus",), False):
            s = self.samples(*arguments)
            self.assertEqual(self.out_of("metrics", *arguments).endswith("\n# EOF\n"), created)
            self.assertEqual({k: n for k, n in s.items() if k[0] == "qosd_program_attached"},
                             {("qosd_program_attached", "qosd_ingress", ""): "1",
                              ("qosd_program_attached", "qosd_data_ready", "the kernel has no such tracepoint"): "0"})
            for unit, count in ("a.service", "127"), ("b\\\\x2dc.service", "4"):
                self.assertEqual(s["qosd_requests_server_total", unit, None], count)
                self.assertEqual(s["qosd_requests_server_in_bytes_total", unit, None], str(2 ** 53 + 1))
                self.assertEqual(s["qosd_contention_thread_time_seconds_total", unit, None], "1.500000000")
                self.assertEqual(s["qosd_requests_server_in_flight", unit, None], "2")
                self.assertEqual(s["qosd_requests_server_oldest_in_flight_seconds", unit, None], "0.000000007")
                self.assertEqual(s["qosd_drops_total", unit, None], "3")
                self.assertEqual(s["qosd_cost_seconds_total", unit, "requests"], "1.000000001")
                self.assertEqual(s["qosd_cost_seconds_total", unit, "contention"], "0.000000007")
                self.assertEqual(s["qosd_unit_info", unit, "app.slice"], "1")
                self.assertEqual(s["qosd_objective_good_total", unit, "slow"], "5")
                self.assertEqual(s["qosd_objective_requests_total", unit, "slow"], "9")
                self.assertEqual(s["qosd_objective_target_ratio", unit, "slow"], "0.99")
                self.assertEqual(s["qosd_requests_server_latency_seconds_sum", unit, None], "12.345678901")
                self.assertEqual(s["qosd_requests_server_latency_seconds_count", unit, None], count)
                for name in "qosd_requests_server", "qosd_requests_server_latency_seconds":
                    self.assertEqual(s.get((f"{name}_created", unit, None)),
                                     "1763683200.123456000" if created else None)
                self.assertNotIn(("qosd_contention_thread_time_seconds_created", unit, None), s)
            buckets = {le: int(n) for (name, unit, le), n in s.items() if name.endswith("_bucket")
                       and unit == "a.service"}
            self.assertEqual(len(buckets), 30)
            for le, n in buckets.items():
                self.assertEqual(n, sum(k for i, k in zip(indexes, counts) if i <= 192 and 2 ** (i / 32) <= float(le)
                                        or le == "+Inf"), le)
            self.assertEqual((buckets["1.0"], buckets["2.0"], buckets["0.5"], buckets["64.0"],
                              buckets["2.384185791015625e-07"]), (15, 31, 7, 63, 1))
        self.assertIn("# HELP qosd_requests_server_in_flight A \\\\ and \\\"more\\\"\n", self.out_of("metrics"))
        self.assertIn('# HELP qosd_requests_server_in_flight A \\\\ and "more"\n',
                      self.out_of("metrics", "--format=prometheus"))
        # The alerting rules of the documentation use metrics that exist
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/prometheus/qosd.rules.yml"),
                  encoding="utf-8") as f:
            used = set(re.findall(r"\bqosd_\w+", f.read().split("- name: qosd-fleet")[0]))
        self.assertEqual(used,
                         {"qosd_objective_good_total", "qosd_objective_requests_total", "qosd_objective_target_ratio",
                                "qosd_series_dropped"})
        self.assertLessEqual(used - {"qosd_series_dropped"}, {name for name, _, _ in s})
        self.assertIn("# UNIT qosd_requests_server_latency_seconds seconds\n", self.out_of("metrics"))

        self.assertEqual({unit for _, unit, _ in self.samples("a*")}, {"a.service"})
        self.assertEqual(json.loads(self.out_of("metrics", "a", "--json=short")), self.qosd.exported["a.service"])
        self.qosd.known = {"x.service"}
        self.error_of("metrics", "x", status=3)
        for n in "28", "10001", "-1", "x", "160 ":
            self.assertIn("expected 0 or 29 to 10000", self.error_of("metrics", f"--buckets-max={n}", status=2))
        self.assertIn("expected openmetrics, openmetrics2, prometheus or protobuf",
                      self.error_of("metrics", "--format=json", status=2))
        self.assertIn("not supported by 'list'", self.error_of("list", "--format=prometheus", status=2))
        self.qosd.exported["a.service"]["histograms"][0]["counts"].pop()
        self.assertIn("invalid reply", self.error_of("metrics"))

    def test_metrics_verbose(self):
        """On standard error, in numbers: the series that are printed, and the schema in which a histogram has no more
        buckets than the limit. Standard output is the same."""
        def metric(name, probe, kind="counter"):
            return {"name": name, "kind": kind, "unit": "1", "probe": probe, "essential": probe == "requests",
                    "description": ""}

        def shown(*arguments):
            out, err = self.run_qosctl("metrics", "--verbose", *arguments)
            self.assertEqual(out, self.out_of("metrics", *arguments))
            units, histograms, end = err.split("\n\n")
            return ({row[0]: tuple(map(int, row[1:])) for row in map(str.split, units.splitlines()[1:])},
                    {tuple(row[:2]): tuple(map(int, row[2:])) for row in map(str.split, histograms.splitlines()[1:])},
                    tuple(map(int, re.fullmatch(r"(\d+) series of units exported, (\d+) dropped\.\n", end).groups())))

        self.qosd.metrics = [metric("requests.server.count", "requests"),
                             metric("requests.server.inFlight", "requests", "gauge"),
                             metric("contention.threadTime", "cpu"),
                             metric("requests.server.latency.count", "requests", "gauge")]
        self.export("a.service", 900, list(range(-703, 193)), [1] * 896)
        self.export("b.service", 7, [-704, 0, 193], [3, 2, 2])
        latency = "qosd_requests_server_latency_seconds"
        for limit, schema, n in ("0", 5, 896), ("896", 5, 896), ("895", 4, 448), ("224", 3, 224), ("160", 2,
                                                                                                   112), ("29", 0, 28):
            units, histograms, end = shown(f"--buckets-max={limit}")
            self.assertEqual(histograms, {("a.service", latency): (schema, n, 5), ("b.service", latency): (5, 2, 5)})
        for form in ("--format=prometheus",), ("--format=openmetrics",):
            units, _, end = shown(*form)
            for unit in "a.service", "b.service":
                for scope, n in ("requests", units[unit][0]), ("probes", units[unit][1]):
                    there = [key for key in self.samples(*form, f"--export={scope}", unit)
                             if key[0] != "qosd_program_attached"]
                    names = {(re.sub("_(bucket|sum|count)$", "", name), None) if latency in name
                             and "overflow" not in name else (name, label)
                             for name, _, label in there if not name.endswith("_created")}
                    self.assertEqual(n, len(names), scope)
                self.assertEqual(units[unit][2:], (units[unit][1],) * 2)
            self.assertEqual(end, (sum(row[3] for row in units.values()), 0))

        # The second one has durations of more than 64 s, too, which are a counter
        (requests, probes, _, _), second = units["a.service"], units["b.service"]
        self.assertEqual(second, (requests + 1, probes + 1, probes + 1, probes + 1))
        self.assertEqual(shown("--export=requests", f"--series-max={requests * 2 + 1}")[2], (requests * 2 + 1, 0))
        units, histograms, end = shown(f"--series-max={probes * 2}")
        self.assertEqual((units, end), ({"a.service": (requests, probes, probes, probes),
                                         "b.service": (requests + 1, probes + 1, probes + 1, 0)},
                                        (probes, probes + 1)))
        self.assertEqual(list(histograms), [("a.service", latency)])
        self.assertIn(f"qosd_series_dropped {probes + 1}\n", self.out_of("metrics", f"--series-max={probes * 2}"))

        self.assertIn("not supported with JSON", self.error_of("metrics", "--verbose", "-j", status=2))
        self.assertIn("expected requests, probes or everything", self.error_of("metrics", "--export=all", status=2))
        self.assertIn("expected 0 to 10000000", self.error_of("metrics", "--series-max=x", status=2))

    def test_metrics_of_tables(self):
        """Endpoints, devices and file systems have a label of their own, and are the first that a limit leaves out."""
        self.qosd.metrics = [{"name": "requests.server.count", "kind": "counter", "unit": "1", "probe": "requests",
                              "description": ""}]
        for name in "a.service", "b.service", "c.service":
            self.export(name, 3, [0], [3])
            self.qosd.exported[name] |= {
                "endpoints": [{"listen": "*:80", "count": 2, "errors": {"reset": 4, "timeout": 5}, "clientAborts": 6,
                               "bytesIn": 7, "bytesOut": 8,
                               "inFlight": 9}, {"rest": True, "count": 1, "inFlight": 0}],
                "devices": [{"device": "sda", "reads": 1, "writes": 2, "flushes": 3, "discards": 4, "readBytes": 512,
                             "writeBytes": 1024,
                             "discardBytes": 2048, "queueTime": 1500000000, "deviceTime": 7},
                            {"rest": True, "reads": 8}],
                "mounts": [{"mount": "/srv", "type": "ext4", "device": "8:1",
                            "reads": {"count": 1, "errors": 2, "bytes": 3},
                            "writes": {"count": 4, "errors": 5, "bytes": 6}, "syncs": {"count": 7, "errors": 8},
                            "opens": {"count": 9, "errors": 1},
                            "changes": {"count": 10, "errors": 1}},
                           {"type": "tmpfs", "device": "0:52", "reads": {"count": 11}},
                           {"rest": True, "reads": {"count": 12}}],
                "dropReasons": [{"reason": "QDISC_DROP", "count": 3}, {"rest": True, "count": 1}]}
        endpoint, device = "qosd_requests_server_endpoint", "qosd_contention_block_device"
        of_table = {f'{endpoint}_total{{unit="a.service",endpoint="*:80"}}': "2",
                    f'{endpoint}_total{{unit="a.service",endpoint="others"}}': "1",
                    f'{endpoint}_in_flight{{unit="a.service",endpoint="others"}}': "0"}
        for name, value in {f"{endpoint}_errors_reset_total": 4, f"{endpoint}_errors_timeout_total": 5,
                            f"{endpoint}_client_aborts_total": 6,
                            f"{endpoint}_in_bytes_total": 7, f"{endpoint}_out_bytes_total": 8,
                            f"{endpoint}_in_flight": 9}.items():
            of_table[f'{name}{{unit="a.service",endpoint="*:80"}}'] = str(value)
        for name, value in {"reads": 1, "writes": 2, "flushes": 3, "discards": 4, "read_bytes": 512,
                            "write_bytes": 1024, "discard_bytes": 2048,
                            "queue_time_seconds": "1.500000000", "device_time_seconds": "0.000000007"}.items():
            of_table[f'{device}_{name}_total{{unit="a.service",device="sda"}}'] = str(value)
        of_table[f'{device}_reads_total{{unit="a.service",device="others"}}'] = "8"
        mount = "qosd_storage_mount"
        for name, value in {"reads": 1, "reads_errors": 2, "reads_bytes": 3, "writes": 4, "writes_errors": 5,
                            "writes_bytes": 6, "syncs": 7,
                            "syncs_errors": 8, "opens": 9, "changes": 10}.items():
            of_table[f'{mount}_{name}_total{{unit="a.service",mount="/srv"}}'] = str(value)
        of_table[f'{mount}_reads_total{{unit="a.service",mount="0:52"}}'] = "11"
        of_table[f'{mount}_reads_total{{unit="a.service",mount="others"}}'] = "12"
        of_table['qosd_network_drop_reason_total{unit="a.service",reason="QDISC_DROP"}'] = "3"
        of_table['qosd_network_drop_reason_total{unit="a.service",reason="others"}'] = "1"

        def lines(*arguments):
            return {k: v for k, v in (line.rsplit(" ", 1) for line in self.out_of("metrics", "--format=prometheus",
                                                                                  *arguments).splitlines()
                                      if not line.startswith("#"))}

        without, everything = lines("--export=probes"), lines("--export=everything")
        self.assertEqual({k: v for k, v in everything.items() if k not in without and "a.service" in k}, of_table)
        self.assertEqual(len(everything), len(without) + 3 * len(of_table))
        self.assertIn(f'{endpoint}_created{{unit="a.service",endpoint="*:80"}} 1763683200.123456000\n',
                      self.out_of("metrics", "--export=everything"))

        def left(limit):
            """Which units are there, and with tables, and how many series are left out."""
            there = lines("--export=everything", f"--series-max={limit}")
            return ([u for u in "abc" if any(f'unit="{u}.service"' in k for k in there)],
                    [u for u in "abc" if any(f'unit="{u}.service",endpoint=' in k for k in there)],
                    int(there["qosd_series_dropped"]))

        _, err = self.run_qosctl("metrics", "--verbose", "--export=everything")
        unit, n = list(map(int, err.splitlines()[1].split()[1:3]))[1], len(of_table)
        for limit, units, tables in ((3 * unit + 3 * n, "abc", "abc"), (3 * unit + 3 * n - 1, "abc", "ab"),
                                     (3 * unit + n, "abc", "a"),
                                     (3 * unit + n - 1, "abc", ""), (3 * unit, "abc", ""), (3 * unit - 1, "ab", ""),
                                     (2 * unit - 1, "a", ""),
                                     (unit - 1, "", "")):
            self.assertEqual(left(limit), (list(units), list(tables), (3 - len(units)) * unit + (3 - len(tables)) * n),
                             limit)
        # Those of the first unit would fit where the last unit does not
        self.qosd.exported["a.service"] |= {"endpoints": [{"listen": "*:80", "count": 2}], "devices": [], "mounts": [],
                                                "dropReasons": []}
        self.assertEqual(left(3 * unit + 1), (["a", "b", "c"], ["a"], 2 * n))
        self.assertEqual(left(3 * unit - 1), (["a", "b"], [], unit + 1 + 2 * n))

    def test_metrics_openmetrics2(self):
        """All of it is in the grammar of the draft, and a histogram has all buckets, in both forms."""
        self.qosd.metrics += [
            {"name": name, "kind": kind, "unit": unit, "probe": "requests", "description": description}
            for name, kind, unit, description in
            (("requests.server.bytesIn", "counter", "bytes", "Bytes"),
             ("contention.threadTime", "counter", "ns", "Time"),
             ("requests.server.inFlight", "gauge", "1", "A \\ and \"more\""),
             ("requests.server.latency.count", "gauge", "1", "Requests"))]
        indexes, counts = [-704, -672, -671, 0, 5, 192, 193], [1, 2, 4, 8, 16, 32, 64]
        self.export("a.service", 127, indexes, counts)
        self.export("b\\x2dc.service", 0, [], [])

        # The ABNF of the draft, as far as this has it
        name, real, integer = "[a-zA-Z_:][a-zA-Z0-9_:]*", r"[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?", "-?[0-9]+"
        escaped = r'(?:[^\n"\\]|\\.)*'
        spans = rf"{integer}:[0-9]+(?:,[0-9]+:[0-9]+)*"
        composite = (rf"\{{count:([0-9]+),sum:({real}),schema:({integer}),zero_threshold:({real}),zero_count:([0-9]+)"
                     rf"(?:,positive_spans:\[({spans})\],positive_buckets:\[([0-9]+(?:,[0-9]+)*)\])?"
                     rf",bucket:\[((?:{real}:[0-9]+,)*\+Inf:[0-9]+)\]\}}")
        sample = (rf'({name})\{{({name}="{escaped}"(?:,{name}="{escaped}")*)\}} (?:{composite}|({real}))'
                  rf'(?: st@({real}))?')

        out = self.out_of("metrics", "--format=openmetrics2", "--buckets-max=0")
        self.assertTrue(out.endswith("\n# EOF\n"))
        family, metadata, families, histograms, values = None, [], [], {}, {}
        for line in out.splitlines()[:-1]:
            if line.startswith("# "):
                m = re.fullmatch(rf"# (TYPE|UNIT|HELP) ({name}) ({escaped})", line)
                self.assertTrue(m, line)
                if m[2] != family:
                    family, metadata = m[2], []
                    self.assertNotIn(family, families)
                    families.append(family)
                metadata.append(m[1])
                self.assertEqual(metadata, [w for w in ("TYPE", "UNIT", "HELP") if w in metadata], line)
                if m[1] == "TYPE":
                    self.assertIn(m[3], ("counter", "gauge", "histogram", "info"))
                continue
            m = re.fullmatch(sample, line)
            self.assertTrue(m, line)
            self.assertEqual(m[1], family)
            self.assertTrue(metadata, line)
            if m[3]:
                histograms[m[1], m[2]] = m.groups()[2:]
            else:
                values[m[1], m[2]] = m[11], m[12]
        since = "1763683200.123456000"
        self.assertEqual(values["qosd_requests_server_total", 'unit="a.service"'], ("127", since))
        self.assertEqual(values["qosd_requests_server_in_bytes_total", 'unit="a.service"'], (str(2 ** 53 + 1), since))
        self.assertEqual(values["qosd_contention_thread_time_seconds_total", 'unit="a.service"'], ("1.500000000", None))
        self.assertEqual(values["qosd_requests_server_in_flight", 'unit="b\\\\x2dc.service"'], ("2", None))
        self.assertEqual(values["qosd_unit_info", 'unit="a.service",slice="app.slice",state="active"'], ("1", None))
        latency = "qosd_requests_server_latency_seconds"
        self.assertIn(f"# TYPE {latency} histogram\n# UNIT {latency} seconds\n# HELP {latency} ", out)
        self.assertEqual({k[0] for k in histograms}, {latency})

        count, total, schema, threshold, zero, spans, native, classic, value, created = histograms[latency,
                                                                                                   'unit="a.service"']
        self.assertEqual((count, total, schema, float(threshold), zero, created),
                         ("127", "12.345678901", "5", 2 ** -22, "1", since))
        got, index = {}, 0
        native = list(map(int, native.split(",")))
        for offset, length in (map(int, span.split(":")) for span in spans.split(",")):
            for index in range(index + offset, index + offset + length):
                got[index] = native.pop(0)
            index += 1
        self.assertEqual(got, dict(zip(indexes[1:], counts[1:])))
        self.assertEqual(native, [])
        for le, n in (bucket.split(":") for bucket in classic.split(",")):
            self.assertEqual(int(n), sum(k for i, k in zip(indexes, counts) if i <= 192 and 2 ** (i / 32) <= float(le)
                                         or le == "+Inf"), le)
        self.assertEqual(len(classic.split(",")), 30)

        (count, total, schema, threshold, zero, spans, native, classic, value,
         created) = histograms[latency, 'unit="b\\\\x2dc.service"']
        self.assertEqual((count, zero, spans, native, created), ("0", "0", None, None, since))

    def test_metrics_of_nothing(self):
        self.qosd.programs = [{"program": "qosd_mkdir", "state": "idle"}]
        self.assertEqual(self.out_of("metrics"), "# EOF\n")
        self.assertEqual(self.out_of("metrics", "--format=prometheus"), "")
        # Not even the end of an exposition of a unit that does not exist
        self.assertEqual(self.run_qosctl("metrics", "nope", status=4),
                         ("", "Failed to read 'nope': no such unit nope.service.\n"))

    def test_list_metrics(self):
        for locale in ("C.UTF-8", "C"):
            for columns in (80, 200):
                self.fits(self.out_of("list-metrics", columns=columns, locale=locale), columns)
        self.assertRegex(self.out_of("list-metrics", "--no-legend").splitlines()[1],
                         r"^requests.server.count +1 +counter requests Requests with a first response byte$")
        self.assertEqual([json.loads(line) for line in self.out_of("list-metrics", "--json=short").splitlines()],
                         self.qosd.metrics)
