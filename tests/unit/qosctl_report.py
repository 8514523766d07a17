# SPDX-License-Identifier: LGPL-2.1-or-later
"""report: its page is parsed, and compared with what the stub has replied"""

import html.parser
import json
import os
import stat

from fake_qosd import SEC, Error, distribution, history
from util_qosctl import Test

# Without content, and without end
VOID = ("meta",)


class Page(html.parser.HTMLParser):
    """Texts of elements by their paths, and all attributes."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.attributes, self.unbalanced = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag not in VOID:
            self.open.append(tag)
            self.texts.append(["/".join(self.open), ""])

    def handle_startendtag(self, tag, attributes):
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.unbalanced.append(tag)
        elif self.open:
            self.open.pop()

    def handle_data(self, data):
        path = "/".join(self.open)
        for t in reversed(self.texts):
            if t[0] == path:
                t[1] += data
                break

    def all(self, element):
        return [text for path, text in self.texts if path.endswith(element)]

    def rows(self):
        """Cells of the rows of all tables."""
        rows = []
        for path, text in self.texts:
            if path.endswith("/tr"):
                rows.append([])
            elif path.endswith(("/td", "/th")):
                rows[-1].append(text)
        return rows


class Report(Test):
    FINDING = {"kind": "dependency", "certainty": "certain", "rule": "requests to a peer take the time",
               "text": "wait for 10.1.2.3:5432 (db-main.service), /srv/secret and 'alpha beta'; other.service had it",
               "next": "journalctl -u db-main -p err", "resource": "10.1.2.3:5432", "unit": "db-main.service",
               "mount": "/srv/secret", "share": 0.6}

    def setUp(self):
        super().setUp()
        peers = [{"peer": "10.1.2.3:5432", "unit": "db-main.service", "count": 7000,
                  "errors": {"reset": 2, "timeout": 0},
                  "latency": distribution(7000, 200000), "bytesIn": 4096, "bytesOut": 1024},
                 {"rest": True, "count": 3, "errors": {"reset": 0, "timeout": 1}}]
        self.qosd.add("nginx.service",
                      requests__server__endpoints=[{"listen": "192.0.2.7:443"}, {"listen": "[::1]:80"}],
                      requests__client__peers=peers)
        self.qosd.histories["nginx.service"] = history("nginx.service", 60)
        self.qosd.diagnosis = {"verdict": "found", "summary": "dependency: 60 % of each request is 10.1.2.3:5432",
                               "text": "1000 requests/s", "findings": [self.FINDING],
                               "excluded": [{"kind": "disk", "text": "disk wait: 0us", "share": 0}], "figures": {},
                               "peers": [{"name": "@hidden", "time": 4000000, "rate": 100}]}
        self.qosd.thresholds = [self.qosd.threshold("nginx.service", "slow", "violated", value=31000000)]

    def page(self, *arguments, **options):
        return self.out_of("report", "nginx", "--for=1s", *arguments, locale="C.UTF-8", **options)

    def test_page(self):
        text = self.page()
        page = Page(text)
        self.assertEqual((page.open, page.unbalanced), ([], []))
        # Nothing is fetched from elsewhere, and nothing is run
        self.assertEqual({name for _, name, _ in page.attributes if name in ("src", "href", "style") or
                          name.startswith("on")}, set())
        self.assertNotIn("<script", text)
        self.assertNotIn("url(", text)
        self.assertIn("default-src 'none'", text)

        raw = json.loads(page.all("/pre")[0])
        replied = self.qosd.histories["nginx.service"]
        self.assertEqual(raw["diagnosis"]["findings"], [self.FINDING])
        self.assertEqual([(s["timestamp"], s["histograms"]) for s in raw["latency"]["steps"]],
                         [(s["timestamp"], s["histograms"]) for s in replied["steps"]])
        self.assertEqual(raw["history"]["steps"][7]["requests"], replied["steps"][7]["requests"])
        self.assertEqual(raw["total"]["requests"]["client"]["peers"][0]["peer"], "10.1.2.3:5432")
        self.assertEqual([c["window"] for c in self.calls("Get")], [10 * 10 ** 9, 300 * 10 ** 9, 0])

        rows = {r[0]: r[1:] for r in page.rows()}
        self.assertEqual(rows["10.1.2.3:5432"][:5], ["db-main.service", "7.00k", "2", "200us", "620us"])
        self.assertEqual(rows["others"][1:3], ["3", "1"])
        count = sum(s["requests"]["server"]["count"] for s in replied["steps"])
        self.assertIn(f"{count / 1e6:.2f}M requests in 10min of this period", " ".join(page.all("/p")))
        errors = sum(s["requests"]["server"]["errors"]["reset"] for s in replied["steps"])
        self.assertIn(f"{errors / 1e3:.2f}k failed", " ".join(page.all("/p")))
        threshold = next(r for r in page.rows() if r[0].startswith("slow: "))
        self.assertEqual(threshold[1:], ["violated", "31.0ms", "-"])
        self.assertIn("dependency (certain)", page.all("/h3"))
        self.assertIn("journalctl -u db-main -p err", page.all("/code"))
        titles = page.all("/svg/title")
        for title in ("Requests and errors", "Latency", "Requests in flight", "Latency, share of requests"):
            self.assertIn(title, titles)

    def test_size(self):
        """A day with all probes, whose steps are as large as those of a busy unit, takes less than 2 MB."""
        day = history("nginx.service", 288, step=300 * SEC)
        for i, step in enumerate(day["steps"]):
            for part, n in ("contention", 900), ("storage", 900), ("network", 600):
                step[part] = {f"value{k}": 1234567 + i for k in range(n // len('"value10":1234567,'))}
            for h in step["histograms"]:
                h["counts"] = [100 + i * k for k in range(120)]
        self.qosd.histories["nginx.service"] = day
        text = self.page()
        self.assertEqual(len(json.loads(Page(text).all("/pre")[0])["history"]["steps"]), 288)
        self.assertLess(len(text.encode()), 2_000_000)

    def test_redact(self):
        """No name of another unit, peer, endpoint or file is in the page, and each has the same number
        everywhere."""
        text = self.page("--redact")
        for name in ("10.1.2.3", "db-main", "/srv/secret", "alpha", "other.service", "192.0.2.7", "[::1]", "@hidden",
                     os.uname().nodename):
            self.assertNotIn(name, text)
        page = Page(text)
        raw = json.loads(page.all("/pre")[0])
        (finding,) = raw["diagnosis"]["findings"]
        peer, unit, mount = finding["resource"], finding["unit"], finding["mount"]
        self.assertEqual(len({peer, unit, mount}), 3)
        self.assertEqual(raw["total"]["requests"]["client"]["peers"][0]["peer"], peer)
        self.assertTrue(finding["text"].startswith(f"wait for {peer} ({unit}), {mount} and 'name-"), finding["text"])
        self.assertEqual(finding["next"], f"journalctl -u {unit} -p err")
        self.assertEqual(raw["diagnosis"]["summary"], f"dependency: 60 % of each request is {peer}")
        self.assertIn("slow: requests.server.firstByte.p99 &gt; 20ms", text)
        # The rest is as it was
        self.assertEqual(raw["total"]["unit"], "nginx.service")
        self.assertEqual(raw["history"]["steps"], json.loads(Page(self.page()).all("/pre")[0])["history"]["steps"])
        self.assertEqual(finding["rule"], self.FINDING["rule"])

    def test_redact_phrases(self):
        """Names of several words, which are of locks and threads, and of processes in front of their numbers."""
        self.qosd.diagnosis["findings"] = [self.FINDING | {
            "resource": "lock in secret_write()",
            "text": "30 % wait, most on lock in secret_write() of the file system, released by ledger (4756) after "
                    "44us (60%)"}]
        text = self.page("--redact")
        for name in ("secret_write", "ledger"):
            self.assertNotIn(name, text)
        (finding,) = json.loads(Page(text).all("/pre")[0])["diagnosis"]["findings"]
        self.assertRegex(finding["text"], rf"^30 % wait, most on {finding['resource']} of the file system, "
                                          r"released by name-\d+ \(4756\) after 44us \(60%\)$")

    def test_hostile(self):
        name = "a&<script>alert('1')</script>\x1b[31m\u202e\".service"
        self.qosd.add(name)
        self.qosd.histories[name] = history(name, 5)
        self.qosd.diagnosis["summary"] = "</p><script>x</script>"
        text = self.out_of("report", name, "--for=1s", locale="C.UTF-8")
        self.assertEqual(Page(text).unbalanced, [])
        for part in ("<script", "\x1b", "\u202e"):
            self.assertNotIn(part, text)

    def test_file(self):
        path = self.directory + "/r.html"
        self.assertEqual(self.page(f"--output={path}"), "")
        with open(path) as f:
            first = f.read()
        self.assertTrue(first.startswith("<!DOCTYPE html>") and first.endswith("</html>\n"))
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        # A report that fails leaves what is there
        self.qosd.errors["History"] = Error("NotMeasured", message="no history")
        self.error_of("report", "nginx", "--for=1s", "-o", path)
        with open(path) as f:
            self.assertEqual(f.read(), first)
        self.assertEqual([n for n in os.listdir(self.directory) if n.startswith("r.html")], ["r.html"])
        del self.qosd.errors["History"]
        self.assertIn("Failed to write '/nonexistent/r'", self.error_of("report", "nginx", "--for=1s",
                                                                       "-o", "/nonexistent/r"))

    def test_errors(self):
        self.error_of("report", "other", status=4)
        self.error_of("report", status=2)
        self.assertIn("not after", self.error_of("report", "nginx", "--since=10min", "--until=20min", status=2))
        self.assertIn("--for=11s", self.error_of("report", "nginx", "--for=11s", status=2))
        self.assertIn("not supported by 'status'", self.error_of("status", "nginx", "--redact", status=2))
        t = self.terminal("report", "nginx")
        self.assertEqual(t.end(), 2)
        # Without a diagnosis, the page says why
        self.qosd.errors["BeginDiagnosis"] = Error("org.varlink.service.PermissionDenied")
        page = Page(self.page())
        self.assertTrue(any(p.startswith("There is none: ") for p in page.all("/p")))
        self.qosd.histories["nginx.service"] = history("nginx.service", 0)
        self.assertIn("No complete step", self.page())
