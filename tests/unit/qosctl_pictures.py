# SPDX-License-Identifier: LGPL-2.1-or-later
"""history and heatmap as SVG. Numbers are read back from the pictures, by the labels of their axes, and compared
with those that the stub has replied."""

import re
import xml.etree.ElementTree as ElementTree

from fake_qosd import SEC, USEC, history
from util_qosctl import Test

SVG = "{http://www.w3.org/2000/svg}"
BEGIN = 1763683200 * SEC        # 2025-11-21 00:00:00 UTC
SCALES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "k": 1e3, "M": 1e6, "G": 1e9, "%": 0.01, "": 1}


def number(text):
    """Of a label of an axis: 1.00ms, 30.0k/s, 50.0%."""
    value, scale = re.fullmatch(r"([\d.]+)([a-zA-Z%]*)(?:/s)?", text).groups()
    return float(value) * SCALES[scale]


class Picture:
    """The charts of a picture, by their titles: what is below a title is of that chart."""

    def __init__(self, text):
        self.root = ElementTree.fromstring(text)
        self.charts, chart = {}, None
        for e in self.root:
            if e.tag == SVG + "text" and e.get("class") == "t" and e.get("x") != "8":
                chart = self.charts.setdefault(e.text, [])
            elif chart is not None:
                chart.append(e)

    def labels(self, title, axis):
        """(position, text) of the labels of the y axis ("e") or the x axis ("m")."""
        return [(float(e.get("y")) - 4 if axis == "e" else float(e.get("x")), e.text) for e in self.charts[title]
                if e.tag == SVG + "text" and e.get("class") == axis]

    def lines(self, title):
        """Steps of each line as (x, end, y), by name."""
        lines = {}
        for e in self.charts[title]:
            name = e.find(SVG + "title")
            if e.tag != SVG + "path" or name is None:
                continue
            x = y = 0.0
            steps = lines.setdefault(name.text, [])
            for letter, arguments in re.findall(r"([MVHz])([\d. ]*)", e.get("d")):
                values = [float(a) for a in arguments.split()]
                if letter == "M":
                    x, y = values
                elif letter == "V":
                    y = values[0]
                elif letter == "H":
                    steps.append((x, values[0], y))
                    x = values[0]
        return lines

    def gaps(self, title):
        """(begin, end) of what was not observed."""
        return [(x, x + width) for x, width in
                (map(float, re.match(r"M([\d.]+) [\d.]+h([\d.]+)", e.get("d")).groups())
                 for e in self.charts[title] if e.get("class") == "n")]


def linear(labels):
    """Returns a function from a position to the number, by the first and the last label."""
    (p0, t0), (p1, t1) = labels[0], labels[-1]
    n0, n1 = number(t0), number(t1)
    return lambda p: n0 + (p - p0) * (n1 - n0) / (p1 - p0)


class Pictures(Test):
    def picture(self, *arguments, **options):
        return Picture(self.out_of(*arguments, **options))

    def test_history(self):
        self.qosd.add("nginx.service")
        replied = self.qosd.histories["nginx.service"] = history("nginx.service", 60, gap=range(20, 26))
        p = self.picture("history", "nginx", "--svg", locale="C.UTF-8")
        self.assertNotIn("metrics", self.calls("History")[-1])
        self.assertEqual(list(p.charts), ["Requests and errors", "Latency", "Requests in flight"])

        steps = {(s["timestamp"] * USEC - BEGIN) // (10 * SEC): s for s in replied["steps"]}
        width = (900 - 76 - 12) / 60
        to_rate = linear(p.labels("Requests and errors", "e"))
        lines = p.lines("Requests and errors")
        for name, value in (("requests", lambda s: s["requests"]["server"]["rate"]),
                            ("errors", lambda s: s["requests"]["server"]["errors"]["reset"] / 10)):
            drawn = {round((x - 76) / width): (end, y) for x, end, y in lines[name]}
            self.assertEqual(set(drawn), set(steps))
            for slot, (end, y) in drawn.items():
                self.assertAlmostEqual(end, 76 + (slot + 1) * width, delta=0.1)
                # A tenth of a pixel, on each side of the scale
                self.assertAlmostEqual(to_rate(y), value(steps[slot]),
                                       delta=abs(to_rate(0) - to_rate(0.2)) + 0.001 * value(steps[slot]))
        (gap,) = p.gaps("Requests and errors")
        self.assertAlmostEqual(gap[0], 76 + 20 * width, delta=0.1)
        self.assertAlmostEqual(gap[1], 76 + 26 * width, delta=0.1)

        # The latency is four times as high in the middle: as many pixels in all quantiles, as the axis is logarithmic
        rises = []
        for name in ("p50", "p90", "p99", "max"):
            drawn = {round((x - 76) / width): y for x, _, y in p.lines("Latency")[name]}
            rises.append(drawn[1] - drawn[28])
        self.assertLess(max(rises) - min(rises), 0.3)
        labels = p.labels("Latency", "e")
        self.assertTrue(all(b < a for (a, _), (b, _) in zip(labels, labels[1:])))
        for (_, a), (_, b) in zip(labels, labels[1:]):
            self.assertIn(round(number(b) / number(a), 6), (2, 2.5, 10), labels)

        # Times of the local time zone
        self.assertEqual([t for _, t in p.labels("Latency", "m")][0], "00:00")
        kolkata = self.picture("history", "nginx", "--svg", TZ="Asia/Kolkata")
        self.assertEqual([t for _, t in kolkata.labels("Latency", "m")][0], "05:30")

    def test_metrics(self):
        """A chart for each unit of measurement."""
        self.qosd.add("nginx.service")
        self.qosd.histories["nginx.service"] = history("nginx.service", 30)
        p = self.picture("history", "nginx", "--svg", "requests.server.latency.p99", "requests.server.count",
                         "requests.server.latency.p50")
        self.assertEqual({t: list(p.lines(t)) for t in p.charts},
                         {"Duration": ["latency.p99", "latency.p50"], "Number": ["count"]})
        self.assertIn("not a number", self.error_of("history", "nginx", "--svg", "requests.quality"))
        self.assertIn("cannot be combined", self.error_of("history", "nginx", "--svg", "-j", status=2))
        self.assertIn("not supported by 'list'", self.error_of("list", "--svg", status=2))

    def test_until(self):
        self.qosd.add("nginx.service")
        self.qosd.histories["nginx.service"] = history("nginx.service", 30)
        # The step that begins at that time is not part of it
        until = f"--until=@{BEGIN // SEC + 100}"
        self.assertEqual(len(self.out_of("history", "nginx", until, "--no-legend").splitlines()), 10)
        p = self.picture("history", "nginx", "--svg", until)
        self.assertEqual(len(p.lines("Requests in flight")["in flight"]), 10)
        self.assertIn("is recorded for this period", self.error_of("history", "nginx", "--svg", "--until=@1000"))
        self.assertIn("in the future", self.error_of("history", "nginx", "--until=@9999999999999", status=2))

    def test_heatmap(self):
        self.qosd.add("nginx.service")
        replied = self.qosd.histories["nginx.service"] = history("nginx.service", 60, gap=range(20, 26))
        p = self.picture("heatmap", "nginx", "--svg")
        (title,) = p.charts
        self.assertEqual(title, "requests.server.latency of nginx.service")
        cells = {}
        for e in p.charts[title]:
            if e.tag != SVG + "path" or not re.fullmatch(r"h\d", e.get("class")):
                continue
            for x, y, w, h in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)", e.get("d")):
                for i in range(round(float(w) / (812 / 60))):
                    column = round((float(x) - 76) / (812 / 60)) + i
                    row = round((330 - 26 - float(y)) / float(h)) - 1
                    self.assertNotIn((column, row), cells)
                    cells[column, row] = int(e.get("class")[1])
        # Every observed step has cells but the first one, which has a sample beyond the others only; and none else
        steps = {(s["timestamp"] * USEC - BEGIN) // (10 * SEC): s for s in replied["steps"]}
        self.assertEqual({c for c, _ in cells}, set(steps))
        # The cell with most samples of a column has the darkest color of the column
        for column, s in steps.items():
            counts = s["histograms"][0]["counts"]
            if sum(counts) > 100:
                self.assertGreaterEqual(max(v for (c, _), v in cells.items() if c == column), 4)
        self.assertEqual(len(p.gaps(title)), 1)

    def test_hostile_names(self):
        """Nothing of a name is interpreted, and the picture is well-formed."""
        name = "a&<script>alert('1')</script>\x1b[31m\u202e\".service"
        self.qosd.add(name)
        self.qosd.histories[name] = history(name, 5)
        for verb in ("history", "heatmap"):
            text = self.out_of(verb, name, "--svg", locale="C.UTF-8")
            self.assertNotIn("<script", text)
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\u202e", text)
            words = "".join(ElementTree.fromstring(text).itertext())
            self.assertIn("a&<script>alert('1')</script>\\x1b[31m\\u202e\".service", words)
