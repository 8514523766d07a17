# SPDX-License-Identifier: LGPL-2.1-or-later
"""verify, attach and detach"""

import hashlib
import json
import os
import shutil
import socket
import subprocess

import util_qosctl

from fake_qosd import SEC, Error
from util_qosctl import DEADLINE, Test


class Verify(Test):
    def verify(self, text, status=1, name="x.conf"):
        path = f"{self.directory}/{name}"
        with open(path, "wb") as f:
            f.write(text.encode())
        return self.run_qosctl("verify", path, status=status)[1].replace(path, name)

    def test_file(self):
        good = "[Service]\nExecStart=/bin/x\n[X-QoS]\nObserve=requests cpu\nExclude=port:9100 http:/healthz\n" \
            "Threshold=slow: requests.server.firstByte.p99 >= 20ms over 10s for 2s\n"
        self.assertEqual(self.verify(good, status=0), "")
        self.assertEqual(self.verify("[Unit]\nDescription=Threshold=x\n", status=0),
                         "'x.conf' has no section [X-QoS].\n")
        for line, message in (
                ("Threshold=a: requests.server.latncy.p99 > 5ms", "there is no metric 'requests.server.latncy.p99'"),
                ("Threshold=requests.server.rate > 5", "expected a name and a colon"),
                ("Threshold=a: requests.server.rate > 5ms", "expected a rate"), ("Observe=request", "got 'request'"),
                ("Exclude=9100", "got '9100'"), ("Obsreve=requests", "there is no setting 'Obsreve'"),
                ("requests", "expected 'Name=value'")):
            err = self.verify(good + line + "\n")
            self.assertEqual(len(err.splitlines()), 1, err)
            self.assertTrue(err.startswith("x.conf:7: "), err)
            self.assertIn(message, err)
        self.assertEqual([line.split(" ")[0] for line in self.verify("[X-QoS]\nA=\n\nObserve=x y\n").splitlines()],
                         ["x.conf:2:", "x.conf:4:", "x.conf:4:"])

    def test_failures(self):
        self.assertIn(f"Failed to read '{self.directory}/none': No such file",
                      self.error_of("verify", self.directory + "/none"))
        self.assertIn("not a regular file", self.error_of("verify", self.directory + "/."))
        self.assertIn("Too few arguments", self.error_of("verify", status=2))
        self.assertIn("Failed to connect to the system bus", self.error_of("verify", "nginx"))
        self.assertIn("--host= is not supported", self.error_of("-H", "web1", "verify", "nginx", status=2))


class CheckProbe(Test):
    def setUp(self):
        super().setUp()
        self.env["QOSD_PROBE_CHECK"] = os.path.join(os.path.dirname(util_qosctl.QOSCTL), "../custom/qosd-probe-check")

        self.build = os.path.join(os.path.dirname(util_qosctl.QOSCTL), "../../tests/unit")

    def write(self, text, name="drops.xml", probe="GOOD"):
        shutil.copy(f"{self.build}/probe{probe}.bpf.o", f"{self.directory}/{name.removesuffix('.xml')}.bpf.o")
        with open(f"{self.directory}/{name}", "w") as f:
            f.write(text)
        return f.name

    def test_valid(self):
        path = self.write('<probe description="x"><metric name="packets" type="counter" description="packets dropped">'
                          '<label name="reason" decoder="uint"/></metric>' + self.CLOCK + '</probe>')
        out = self.run_qosctl("check-probe", path)[0].splitlines()
        self.assertEqual([line.split() for line in out],
                         [["METRIC", "TYPE", "UNIT", "LABELS", "DESCRIPTION"],
                          ["custom.drops.packets", "counter", "1", "reason", "packets", "dropped"]])
        manifest = json.loads(self.run_qosctl("check-probe", "--json=short", path)[0])
        self.assertEqual(manifest["name"], "drops")
        self.assertEqual([m["name"] for m in manifest["metrics"]], ["packets"])

    CLOCK = '<perf-event program="on_clock" type="software" config="cpu-clock" frequency="9"/>'
    METRIC = '<metric name="a" type="counter" description="x"/>'

    def test_object(self):
        def fail(manifest, **more):
            path = self.write(manifest, **more)
            return self.error_of("check-probe", path).replace(self.directory + "/", "")

        def probe(content, attributes=""):
            return f'<probe description="x"{attributes}>{self.METRIC}{content}</probe>'

        self.assertEqual(fail(probe("")), "drops.xml: There is no element for the program 'on_clock', which is in "
                         "section 'perf_event' of the object file.\n")
        self.assertIn("names the program 'on_clocks', which does not exist",
                      fail(probe(self.CLOCK.replace("on_clock", "on_clocks"))))
        self.assertIn("names the program 'on_exec', which is not in section 'perf_event'",
                      fail(probe(self.CLOCK + self.CLOCK.replace("on_clock", "on_exec"))))
        self.assertIn("calls the helper 109 (send_signal)", fail(probe(self.CLOCK), probe="SIGNAL"))
        with open(f"{self.build}/probeGOOD.bpf.o", "rb") as f:
            sha256 = hashlib.sha256(f.read()).hexdigest()
        self.assertIn(f"'X-SHA256' does not match 'drops.bpf.o', whose hash is {sha256}.",
                      fail(probe(self.CLOCK, f' X-SHA256="{"0" * 64}"')))
        path = self.write(probe(self.CLOCK, f' X-SHA256="{sha256}"'))
        manifest = json.loads(self.run_qosctl("check-probe", "--json=short", path)[0])
        self.assertEqual(manifest["object"], {"sha256": sha256, "programs": [
            {"name": "on_exec", "section": "raw_tp/sched_process_exec"},
            {"name": "on_clock", "section": "perf_event"}]})
        os.unlink(f"{self.directory}/drops.bpf.o")
        self.assertIn(f"Failed to read '{self.directory}/drops.bpf.o': No such file",
                      self.error_of("check-probe", path))

    def test_invalid(self):
        path = self.write("<probe description='x'>\n<metric name='a' type='rate' description='x'/></probe>")
        self.assertTrue(self.error_of("check-probe", path).startswith(f"{path}:2: Attribute 'type' of <metric> is "))
        self.assertIn("The name of the file is invalid", self.error_of("check-probe", self.write("", "a-b.xml")))
        self.assertIn("No such file", self.error_of("check-probe", f"{self.directory}/none.xml"))
        os.mkdir(f"{self.directory}/dir.xml")
        self.assertIn("Is a directory", self.error_of("check-probe", f"{self.directory}/dir.xml"))
        self.assertIn("--host= is not supported", self.error_of("-H", "web1", "check-probe", path, status=2))


class Attach(Test):
    def test_attach(self):
        self.qosd.known = {"nginx.service", "redis.service"}
        self.assertEqual(self.out_of("attach", "nginx", "redis.service"), "")
        self.assertEqual(self.calls("Attach"), [{"unit": "nginx", "allowInteractiveAuthentication": True},
                                                {"unit": "redis.service", "allowInteractiveAuthentication": True}])
        self.assertEqual(set(self.qosd.units), {"nginx.service", "redis.service"})

    def test_listening(self):
        """The unit of this test listens, too. Other units and their names depend on the host."""
        with open("/proc/self/cgroup") as f:
            own = [part for part in f.read().strip().rsplit(":", 1)[-1].split("/")
                   if part.endswith((".service", ".scope"))]
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            names = [json.loads(line)["unit"] for line in self.out_of("list", "--all", "--json=short").splitlines()]
            # There is no bus to read what socket units start
            if not own or own[0] not in names or any(name.endswith(".socket") for name in names):
                self.skipTest("no unit is known to listen")
            self.qosd.known = set(names)
            error = self.error_of("attach", "--listening", status=2)
            self.assertIn("--yes is required without a terminal", error)
            self.assertEqual(self.calls("Attach"), [])
            out = self.out_of("attach", "--listening", "--yes", "--probes=requests")
            self.assertIn(f"\n  {own[0]}\n", out)
            n = len(self.calls("Attach"))
            self.assertRegex(out, rf"^{n} units? listens? and (is|are) not attached:\n")
            self.assertIn(f"Memory: at least {512 * n if 512 * n < 1024 else f'{n / 2:.1f}'}", out)
            self.assertIn("320B for each open connection.", out)
            self.assertIn({"unit": own[0], "probes": ["requests"], "allowInteractiveAuthentication": True},
                          self.calls("Attach"))
            self.assertEqual(set(c["unit"] for c in self.calls("Attach")), set(self.qosd.units))
            # Those are attached now
            self.assertIn("No unit listens that is not attached.", self.run_qosctl("attach", "--listening", "--yes")[1])
            self.assertEqual(len(self.calls("Attach")), n)
            self.qosd.units.clear()
            self.qosd.status |= {"units": 256}
            self.assertIn("only 0 more may be (UnitsMax=)", self.error_of("attach", "--listening", "--yes", status=1))
            self.assertEqual(len(self.calls("Attach")), n)
        self.assertIn("requires a unit, or --listening", self.error_of("attach", status=2))
        self.assertIn("cannot be combined", self.error_of("attach", "--listening", "nginx", status=2))
        self.assertIn("--yes requires --listening", self.error_of("attach", "--yes", "nginx", status=2))
        self.assertIn("local host", self.error_of("attach", "--listening", "-H", "x", status=2, PATH=self.bin))

    def test_listening_on_a_terminal(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            self.qosd.known = {json.loads(line)["unit"]
                               for line in self.out_of("list", "--all", "--json=short").splitlines()}
            if not self.qosd.known or any(name.endswith(".socket") for name in self.qosd.known):
                self.skipTest("no unit is known to listen")
            for reply, attached in (("n\n", False), ("\n", False), ("y\n", True)):
                ours, theirs = os.openpty()
                p = subprocess.Popen([util_qosctl.QOSCTL, "attach", "--listening"], env=self.env, stdin=theirs,
                                     stdout=theirs, stderr=theirs)
                os.write(ours, reply.encode())
                self.assertEqual(p.wait(DEADLINE), 0 if attached else 1)
                os.close(theirs)
                os.close(ours)
                self.assertEqual(bool(self.calls("Attach")), attached, reply)

    def test_options(self):
        self.qosd.known = {"nginx.service"}
        self.out_of("attach", "--probes=requests", "--for=10min", "--no-ask-password", "nginx")
        self.assertEqual(self.calls("Attach"), [{"unit": "nginx", "probes": ["requests"], "duration": 600 * SEC,
                                                 "allowInteractiveAuthentication": False}])
        self.out_of("attach", "--probes=requests,requests requests", "--probes", "requests", "nginx")
        self.assertEqual(self.calls("Attach")[1]["probes"], ["requests"] * 4)
        self.out_of("attach", "--exclude=port:9100,http:/healthz", "--exclude", "redis:BRPOP", "nginx")
        self.assertEqual(self.calls("Attach")[2]["exclude"], ["port:9100", "http:/healthz", "redis:BRPOP"])
        self.assertIn("invalid exclusion '/healthz'", self.error_of("attach", "--exclude=/healthz", "nginx", status=2))
        self.assertIn("port:N", self.error_of("attach", "--exclude=", "nginx", status=2))
        self.assertIn("Option --exclude= is not supported by 'status'",
                      self.error_of("status", "--exclude=port:1", "nginx", status=2))

    def test_json(self):
        self.qosd.known = {"nginx.service"}
        self.assertEqual(json.loads(self.out_of("attach", "nginx", "--json=short")), {"unit": "nginx.service"})
        self.assertEqual(json.loads(self.out_of("detach", "nginx", "--json=short")), {})

    def test_degraded(self):
        self.qosd.add("nginx.service", degraded="requests: no BTF")
        self.assertEqual(self.run_qosctl("attach", "nginx"),
                         ("", "nginx.service is attached, but some metrics are unavailable: requests: no BTF.\n"))

    def test_inactive(self):
        self.qosd.add("nginx.service", activeState="inactive")
        self.assertEqual(self.run_qosctl("attach", "nginx"),
                         ("", "'nginx.service' is inactive: it will be observed when it starts.\n"))

    def test_failures(self):
        self.qosd.known = {"nginx.service"}
        self.assertEqual(self.error_of("attach", "foo", status=4),
                         "Failed to attach 'foo': no such unit foo.service.\n")
        self.assertIn("expected requests", self.error_of("attach", "--probes=nonsense", "nginx", status=2))
        err = self.error_of("attach", "foo", "nginx", "bar", status=4)
        self.assertEqual(len(err.splitlines()), 2)
        self.assertIn("nginx.service", self.qosd.units)
        self.qosd.errors["Attach"] = Error("org.varlink.service.PermissionDenied")
        self.assertEqual(self.error_of("attach", "nginx"), "Failed to attach 'nginx': access denied.\n")
        self.qosd.errors["Attach"] = Error("io.systemd.InteractiveAuthenticationRequired")
        self.assertEqual(self.error_of("attach", "nginx"),
                         "Failed to attach 'nginx': authentication is required, run it as root or on a terminal with "
                         "polkit.\n")
        self.qosd.errors["Attach"] = Error("TooManyUnits", limit=256,
                                           message="256 units are attached, and no more may be (UnitsMax=)")
        self.assertIn("UnitsMax=", self.error_of("attach", "nginx"))
        self.qosd.errors["Attach"] = Error("NoControlGroup", unit="a.target",
                                           message="'a.target' has none. Did you mean a@b.service?")
        self.assertEqual(self.error_of("attach", "nginx"),
                         "Failed to attach 'nginx': 'a.target' has none. Did you mean a@b.service?\n")
        self.qosd.errors["Attach"] = Error("org.qosd.QoS.SomethingNew")
        self.assertIn("SomethingNew", self.error_of("attach", "nginx"))

    def test_two_kinds_of_failure(self):
        self.qosd.errors["Attach"] = Error("NoControlGroup", unit="a.target", message="a.target has no control group")
        self.error_of("attach", "a.target")
        del self.qosd.errors["Attach"]
        f = self.qosd.resolve

        def resolve(unit):
            if unit == "a.target":
                raise Error("NoControlGroup", unit=unit, message="a.target has no control group")
            return f(unit)
        self.qosd.resolve = resolve
        self.error_of("attach", "a.target", "nonsense", status=1)

    def test_strange_names(self):
        """Control characters of names are escaped in messages, and names that are not UTF-8 are rejected."""
        self.assertIn("\\x1b]31m", self.error_of("attach", "\x1b]31m", status=4))
        self.assertIn("\\x1b[31m", self.error_of("-H", "x", "attach", "\x1b[31m", status=2))
        r = subprocess.run([util_qosctl.QOSCTL, "attach", b"\xff\xfe"], env=self.env, capture_output=True)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"UTF-8", r.stderr)
        self.assertNotIn(b"\xff", r.stderr)
        self.error_of("attach", "", status=4)
        self.error_of("attach", "--", "-x", status=4)
        self.error_of("attach", "a" * 100000, status=4)

    def test_detach(self):
        for name in ("a.service", "b.service", "c.service"):
            self.qosd.add(name)
        self.qosd.add("leased.service", holds=[{"type": "lease", "probes": ["requests"], "uid": 1000, "owner": "x"}])
        self.qosd.known = set(self.qosd.units)
        self.assertEqual(self.out_of("detach", "a"), "")
        self.assertIn("not attached", self.error_of("detach", "a"))
        self.out_of("detach", "b*")
        self.assertEqual(set(self.qosd.units), {"c.service", "leased.service"})
        self.assertIn("No attached unit matches 'b*'", self.error_of("detach", "b*"))
        self.out_of("detach", "--all")
        self.assertEqual(set(self.qosd.units), {"leased.service"})
        self.error_of("detach", status=2)
        self.error_of("detach", "--all", "x", status=2)

    def test_patterns_on_another_host(self):
        self.assertIn("remote host", self.error_of("-H", "somewhere", "attach", "ngin*", status=2))

    def test_patterns_without_a_bus(self):
        self.assertIn("system bus", self.error_of("attach", "ngin*"))
