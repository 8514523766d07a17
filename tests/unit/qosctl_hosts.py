# SPDX-License-Identifier: LGPL-2.1-or-later
"""Other hosts"""

import json
import os
import sys

from fake_qosd import QUANTILES, SEC, Error, FakeQosd
from util_qosctl import Test, plain


class Hosts(Test):
    def program_ssh(self):
        """Installs an ssh that connects to the stub's socket, or for host2 to that of another stub."""
        self.program("ssh", f"""#!{sys.executable}
import os, socket, sys, threading, time
with open({self.directory + "/ssh.log"!r}, "a") as f:
    print(*sys.argv[1:], sep="|", file=f)
if sys.argv[-1].startswith("unreachable"):
    sys.exit("ssh: no route to host")
if "silent" in sys.argv:
    time.sleep(3600)
if "chatty" in sys.argv:
    for _ in range(100000):
        os.write(2, b"\\033[31mnoise\\n")
    os.write(1, b"x" * 1000 + b"\\0")
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[sys.argv.index("-W") + 1] + ("2" if "host2" in sys.argv else ""))
def back():
    while data := s.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back).start()
while data := os.read(0, 65536):
    s.sendall(data)
os._exit(0)
""")

    def test_other_host(self):
        self.qosd.add("nginx.service")
        self.program_ssh()
        self.assertIn("nginx.service", self.out_of("-H", "web1", "list"))
        self.assertIn("nginx.service", self.out_of("--host=admin@web1:2222"))
        self.assertIn("nginx.service", self.out_of("-H", "admin@[::1]:2222"))
        self.assertIn("nginx.service", self.out_of("-H", "fe80::1"))
        self.assertIn("nginx.service", self.out_of("-H", "-oProxyCommand=x"))
        self.assertIn("nginx.service", self.out_of("-H", "web1", "top", "-n", "2", "-d", "100ms", "-b", "nginx"))
        with open(self.directory + "/ssh.log") as f:
            calls = f.read().splitlines()
        p = self.qosd.path
        self.assertEqual(calls, [f"-xT|-W|{p}|--|web1", f"-xT|-p|2222|-W|{p}|--|admin@web1",
                                 f"-xT|-p|2222|-W|{p}|--|admin@::1",
                                 f"-xT|-W|{p}|--|fe80::1", f"-xT|-W|{p}|--|-oProxyCommand=x", f"-xT|-W|{p}|--|web1"])
        err = self.error_of("-H", "unreachable", "status", "nginx")
        self.assertIn("no route to host", err)
        self.assertIn("connection closed", err)

    def second_qosd(self):
        """Starts the stub of host2."""
        self.program_ssh()
        self.others.append(FakeQosd(self.directory + "/qosd2"))
        return self.others[-1]

    def test_hosts(self):
        """list has a column with the host. A host that fails is reported, and the others are shown."""
        second = self.second_qosd()
        self.qosd.add("nginx.service")
        self.qosd.add("redis.service", degraded="no such hook")
        second.add("nginx.service", rate=99)
        for columns in (40, 80, 200):
            out = self.out_of("-H", "host1,host2", columns=columns)
            rows = [line.split() for line in plain(out).splitlines()]
            self.assertEqual(rows[0][:2], ["HOST", "UNIT"])
            self.assertEqual([r[0] for r in rows[1:4]], ["host1", "host1", "host2"])
            self.fits(out if columns > 40 else out.split("\n\n")[0], columns)
            if columns > 40:
                self.assertEqual([r[1] for r in rows[1:4]], ["nginx.service", "redis.service", "nginx.service"])
            self.assertIn("host1 redis.service: no such hook", out)
            self.assertIn("3 units attached on 2 hosts.", out)
        self.assertEqual(self.out_of("-H", "host1", "-H", "host2", "list", "nginx").count("nginx.service"), 2)
        items = [json.loads(line)
                 for line in self.out_of("-H", "host1,host2", "list", "nginx", "--json=short").splitlines()]
        self.assertEqual([(i["host"], i["unit"], i["snapshot"]["requests"]["server"]["rate"]) for i in items],
                         [("host1", "nginx.service", 15123.4), ("host2", "nginx.service", 99)])
        with open(self.directory + "/ssh.log") as f:
            self.assertEqual({line.split("|-W")[0] for line in f}, {"-xT|-oBatchMode=yes|-oConnectTimeout=10"})

        out, err = self.run_qosctl("-H", "host1,unreachable,host2", "list", status=1)
        self.assertIn("unreachable: ssh: no route to host\n", err)
        self.assertIn("unreachable: Failed to list units: connection closed; ", err)
        self.assertIn("3 units attached on 2 hosts.", out)
        for line in err.splitlines():
            self.assertTrue(line.startswith("unreachable: "), line)
        out, err = self.run_qosctl("-H", "unreachable,unreachable2", "list", status=1)
        self.assertEqual(out, "")
        out, err = self.run_qosctl("-H", "host1,chatty", "list", status=1)
        self.assertIn("2 units attached on 1 host.", out)
        self.assertIn("chatty: \\x1b[31mnoise", err)
        # Only the first 16 KiB are printed, which host names and escapes make longer
        self.assertLess(len(err), 3 * 16 << 10)

    def test_silent_host(self):
        """A host without a response is given up after a timeout, and the others are shown."""
        self.program_ssh()
        self.qosd.add("nginx.service")
        out, err = self.run_qosctl("-H", "silent,host1", "list", status=1)
        self.assertEqual(err, "silent: no response within 15s.\n")
        self.assertIn("host1 nginx.service", out)

    def test_histogram_of_hosts(self):
        """The histogram of several hosts has the sums of their buckets, also of different schemas."""
        second = self.second_qosd()
        self.qosd.add("nginx.service")
        second.add("nginx.service", rate=99)

        def get(host):
            return json.loads(self.out_of("-H", host, "histogram", "nginx", "--json=short"))

        def buckets(*replies):
            sums = {}
            for b in (b for r in replies for b in r["buckets"]):
                key = b["lower"], b.get("upper")
                sums[key] = sums.get(key, 0) + b["count"]
            return dict(sorted(sums.items()))

        single, other, both = get("host1"), get("host2"), get("host1,host2")
        self.assertEqual(buckets(both), buckets(single, other))
        self.assertEqual(len(both["buckets"]), len(buckets(both)))
        for key in ("count", "sum"):
            self.assertEqual(both[key], single[key] + other[key])
        self.assertEqual({k: both[k] for k in ("unit", "metric", "window", "schema")},
                         {k: single[k] for k in ("unit", "metric", "window", "schema")})
        self.assertEqual([(h["host"], h["count"]) for h in both["hosts"]],
                         [("host1", single["count"]), ("host2", other["count"])])

        for columns in (40, 80, 200):
            out = self.out_of("-H", "host1,host2", "histogram", "nginx", columns=columns)
            self.assertIn(f"requests.server.latency of nginx.service on 2 hosts: {self.count(both['count'])} in the "
                          "last 10s, mean ",
                          out.replace(":\n", ": "))
            self.assertIn(" p99.9\n", out)
            if columns > 40:
                self.fits(out, columns)
        second.status["minimumSamples"] = 1000
        self.assertNotIn(" p99.9\n", self.out_of("-H", "host1,host2", "histogram", "nginx"))

        out, err = self.run_qosctl("-H", "host1,unreachable", "histogram", "nginx", "--json=short", status=1)
        self.assertEqual(buckets(json.loads(out)), buckets(single))
        self.assertIn("unreachable: ", err)
        del second.units["nginx.service"]
        out, err = self.run_qosctl("-H", "host1,host2", "histogram", "nginx", "--json=short", status=4)
        self.assertEqual(buckets(json.loads(out)), buckets(single))
        self.assertIn("host2: Failed to read 'nginx': ", err)
        second.add("nginxx.service")
        self.assertIn("nginx.service on host1 and nginxx.service on host2",
                      self.error_of("-H", "host1,host2", "histogram", "nginx*", status=2))

    @staticmethod
    def count(n):
        return str(n) if n < 1000 else f"{n / 1000:.3g}k"

    def test_status_of_hosts(self):
        """status of several hosts has a row for each, and quantiles of all requests, which are from the sums of the
        buckets."""
        second = self.second_qosd()
        self.qosd.add("nginx.service", requests__server__inFlight=2, requests__server__oldestInFlight=7000,
                      requests__server__errors={"reset": 3, "timeout": 1})
        second.add("nginx.service", rate=99, requests__server__inFlight=3, requests__server__oldestInFlight=81000)
        second.add("redis.service")

        def histogram_of(host, name):
            return json.loads(self.out_of("-H", host, "histogram", "nginx", f"requests.server.{name}", "--json=short"))

        r = json.loads(self.out_of("-H", "host1,host2", "status", "nginx", "--json=short"))
        server = r["requests"]["server"]
        self.assertEqual((r["unit"], r["window"], [h["host"] for h in r["hosts"]]),
                         ("nginx.service", 10 * SEC, ["host1", "host2"]))
        self.assertEqual((server["count"], server["rate"], server["inFlight"]), (151234 + 990, 15123.4 + 99, 5))
        for name in ("latency", "firstByte", "receive", "queue", "service", "answer"):
            parts = [histogram_of(host, name) for host in ("host1", "host2")]
            values = sorted((b["lower"], b["upper"], b["count"]) for p in parts for b in p["buckets"])
            n = sum(p["count"] for p in parts)
            self.assertEqual((server[name]["count"], server[name]["mean"]), (n, sum(p["sum"] for p in parts) // n))
            for key, q, _ in QUANTILES:
                seen = 0
                for lower, upper, count in values:
                    seen += count
                    if seen >= q * n:
                        break
                self.assertTrue(lower <= server[name][key] <= upper,
                                f"{key} of {name}: {server[name][key]} is not from {lower} to {upper}")
            self.assertEqual(server[name]["max"], max(h["requests"]["server"][name]["max"] for h in r["hosts"]))

        for columns in (40, 80, 200):
            out = self.out_of("-H", "host1,host2", "status", "nginx", columns=columns)
            self.fits(out if columns > 40 else out.split("\n\n")[0], columns)
            self.assertRegex(out, r"(?s)nginx.service on 2 hosts\nHOST .*\nhost1 .*\nhost2 ")
            for line in ("Requests: 15.2k/s (152k in the last 10s)\n", "In flight: 5, oldest 81.0us on host2\n",
                         "Errors: 0.40/s\n",
                         "Traffic: 1.2M/s in, 48.1M/s out\n", "Total: 9.13M requests since attached\n",
                         "Histogram: request latency, last 10s\n"):
                self.assertIn(line, out)
        self.assertIn("since attached)\n", self.out_of("-H", "host1,host2", "status", "nginx", "--window=total"))
        self.qosd.add("redis.service", requests__server=None)
        out = self.out_of("-H", "host1,host2", "status", "*.service")
        self.assertEqual(out.count(" on 2 hosts\n"), 2)
        self.assertIn("Requests: 15.1k/s (151k in the last 10s)\n" + " " * 18 + "not measured on host1\n", out)
        out, err = self.run_qosctl("-H", "host1,unreachable,host2", "status", "nginx", status=1)
        self.assertIn("nginx.service on 2 hosts", out)
        self.assertIn("unreachable: ", err)
        self.qosd.known = {"nginx.service"}
        del self.qosd.units["nginx.service"]
        out, err = self.run_qosctl("-H", "host1,host2", "status", "nginx", status=3)
        self.assertIn("nginx.service on 1 host\n", out)
        self.assertTrue(err.startswith("host1: Failed to read 'nginx': "), err)

    def test_diagnose_of_hosts(self):
        second = self.second_qosd()
        for qosd, kind in (self.qosd, "found"), (second, "nothing"):
            qosd.add("nginx.service")
            qosd.diagnosis = {"verdict": kind, "summary": f"summary {kind}", "text": "1000 requests/s", "findings": [],
                              "excluded": [], "figures": {}}
        out = self.out_of("-H", "host1,host2", "diagnose", "nginx", "--for=1s")
        self.assertEqual(out,
                         "host1: nginx.service: summary found\n1000 requests/s\n\nhost2: nginx.service: summary "
                         "nothing\n1000 requests/s\n")
        items = [json.loads(line) for line in self.out_of("-H", "host1,host2", "diagnose", "nginx", "--for=1s",
                                                          "--json=short").splitlines()]
        self.assertEqual([(i["host"], i["verdict"]) for i in items], [("host1", "found"), ("host2", "nothing")])
        out, err = self.run_qosctl("-H", "unreachable,host2", "diagnose", "nginx", "--for=1s", status=1)
        self.assertTrue(out.startswith("host2: nginx.service: summary nothing"), out)
        second.diagnosis["verdict"] = "unknown"
        self.assertIn("host2: ", self.run_qosctl("-H", "host1,host2", "diagnose", "nginx", "--for=1s", status=1)[0])
        for option in ("--save=", "--against="):
            self.assertIn(f"{option} cannot be combined",
                          self.error_of("-H", "host1,host2", "diagnose", "nginx", option + "/x", status=2))
        self.error_of("-H", "host1,host2", "diagnose", "nginx", "--for=7ms", status=2)

        # Ctrl+C ends the interval on all hosts
        t = self.terminal("--no-pager", "-H", "host1,host2", "diagnose", "nginx", "--for=5min")
        t.wait_for("Observing nginx on 2 hosts: ")

        def observed():
            with open(f"/proc/{t.process.pid}/task/{t.process.pid}/children") as f:
                children = f.read().split()
            return len(children) == 2 and all(map(self.sleeps, children))

        self.until(observed)
        t.key("\x03")
        self.assertEqual(t.end(), 1)
        for line in ("host1: nginx.service: summary found", "host2: nginx.service: summary nothing"):
            self.assertIn(line, plain(t.output))

    def test_hosts_usage(self):
        self.program_ssh()
        for hosts in ("a,,b", ",a", "a,", ""):
            self.assertEqual(self.error_of("-H", hosts, status=2),
                             "Empty host name in --host=, expected names separated by commas.\n")
        self.assertEqual(self.error_of("-H", "a,b,a", status=2), "Host 'a' is given twice in --host=.\n")
        self.assertEqual(self.error_of("-H", "a", "-H", "a", status=2), "Host 'a' is given twice in --host=.\n")
        self.assertIn("without blanks", self.error_of("-H", "a, b", status=2))
        self.assertEqual(self.error_of("-H", ",".join(map(str, range(65))), status=2),
                         "Too many hosts in --host=, expected at most 64.\n")
        for verb in ("attach", "detach", "show", "top", "history", "heatmap", "measure", "why", "set-threshold",
                     "monitor", "metrics", "probes"):
            words = ["x"] if verb != "probes" else []
            self.assertEqual(self.error_of("-H", "a,b", verb, *words, status=2),
                             f"'{verb}' operates on one host, but --host= has several.\n")
        self.assertIn("--all cannot be combined", self.error_of("-H", "a,b", "list", "--all", status=2))
        self.assertFalse(os.path.exists(self.directory + "/ssh.log"))

    def test_password_prompt(self):
        """On a terminal, polkit's agent runs during requests that may require authorization."""
        self.qosd.known = {"nginx.service"}
        self.program("pkttyagent",
                     "#!/bin/sh\necho started \"$*\"\ntrap 'echo ended; exit' TERM\neval \"exec $2>&-\"\nwhile :; do "
                     "sleep 0.1; done\n")
        nobody = 65534 if os.geteuid() == 0 else None
        t = self.terminal("attach", "nginx", uid=nobody)
        t.wait_for(r"started --notify-fd \d+ --fallback")
        t.wait_for("ended")
        self.assertEqual(t.end(), 0)
        for arguments, uid in ((["attach", "--no-ask-password", "nginx"], nobody), (["status", "nginx"], nobody),
                               (["-H", "x", "attach", "nginx"], nobody)):
            t = self.terminal(*arguments, uid=uid)
            t.end()
            self.assertNotIn("started", t.output)
        self.assertEqual([p["allowInteractiveAuthentication"] for p in self.calls("Attach")], [True, False])
        # The agent ends before the pager starts
        self.program("mine", "#!/bin/sh\necho paged\nexec cat\n")
        self.qosd.errors["Resources"] = Error("org.varlink.service.PermissionDenied")
        t = self.terminal("resources", "nginx", uid=nobody, env={"SYSTEMD_PAGERSECURE": "0", "PAGER": "mine"})
        t.wait_for("started .*ended.*paged.*Waits: access denied")
        self.assertEqual(t.end(), 0)
        t = self.terminal("resources", "--no-ask-password", "nginx", uid=nobody)
        t.end()
        self.assertNotIn("started", t.output)
        self.assertEqual([p["allowInteractiveAuthentication"] for p in self.calls("Resources")], [True, False])
