# SPDX-License-Identifier: LGPL-2.1-or-later
"""Writes results as Markdown tables, raw data and plots."""

import csv
import math
import os
import re
import statistics
from html import escape

import comparison
from accuracy import BINNED, PHASES, STATISTICS, within
from tables import table, verdict

BUDGET_ANSWER_NSEC = 200000
BUDGET_RSS = 8 << 20
BUDGET_SCRAPE_SIZE = 2 << 20
BUDGET_SCRAPE_NSEC = 50e6
BUDGET_SCRAPE_DAEMON_NSEC = 15e6
BUDGET_MAPS = 640 << 10


def duration(ns):
    if ns is None:
        return "absent"
    if abs(ns) < 1e3:
        return f"{ns:.0f} ns"
    if abs(ns) < 1e6:
        return f"{ns / 1e3:.1f} us"
    return f"{ns / 1e6:.2f} ms"


def size(n):
    if n is None:
        return ""
    return f"{n / (1 << 20):.2f} MiB" if n >= 1 << 20 else f"{n / 1024:.0f} KiB" if n >= 1024 else f"{n} bytes"


def percent(share):
    return f"{share * 100:+.2f} %"


# ---- accuracy -----------------------------------------------------------------------------------------------------

def rows_of(level, source, metric):
    return [r for r in level.get("rows", []) if r["source"] == source and r["metric"] == metric]


def count_ok(level):
    c = level["counts"]
    return c["qosd"] == (c["capture"] if c["server"] is None else c["server"]) and \
        (not c["clientExact"] or c["qosd"] == c["client"])


def counts_table(levels):
    rows = []
    for level in levels:
        if "counts" not in level:
            rows.append([level["title"], "", "", "", "", "", "void: " + level["void"][-1]])
            continue
        c = level["counts"]
        rows.append([level["title"], f"{level['rate']:,.0f}", f"{c['capture']:,}",
                     "" if c["server"] is None else f"{c['server']:,}",
                     f"{c['client']:,}" + ("" if c["clientExact"] else " *"),
                     "absent" if c["qosd"] is None else f"{c['qosd']:,}", verdict(count_ok(level))])
    return table(["load", "exchanges/s", "capture", "server", "client", "qosd", ""], rows)


def cell(row, judged):
    said = f"{duration(row['truth'])}, {duration(row['qosd'])}"
    return f"**{said}**" if judged and not within(row) else said


def accuracy_table(levels, source, metrics):
    rows = []
    for level in levels:
        for metric in metrics:
            found = {r["statistic"]: r for r in rows_of(level, source, metric)}
            # Requests and responses of most servers are one segment each: a phase that is always zero has no row
            if any(r["truth"] or r["qosd"] for r in found.values()):
                judged = source == "capture" or level["known"]
                cells = [cell(found[s], judged) if s in found else "" for s in STATISTICS]
                rows.append([level["title"], metric, *cells,
                             verdict(all(map(within, found.values()))) if judged else ""])
    return table(["load", "", *STATISTICS, ""], rows)


# ---- comparison ---------------------------------------------------------------------------------------------------

INSTRUMENT_TITLES = {"qosd": "qosd", "accept_close": "accept to close", "read_send": "read to send"}


def errors_of(level, instrument, statistic):
    """Returns the errors of all windows; None for a window in which the instrument has no figure."""
    return [comparison.error(r) for r in level.get("rows", [])
            if (r["instrument"], r["statistic"]) == (instrument, statistic)]


def largest(errors):
    return max((e for e in errors if e is not None), key=abs, default=None)


def worst(level, instrument, statistic):
    errors = errors_of(level, instrument, statistic)
    if not errors:
        return ""       # too few requests for a truth
    if None not in errors:
        return percent(largest(errors))
    return ("absent" if largest(errors) is None
            else f"{percent(largest(errors))}, absent in {errors.count(None)} of {len(errors)}")


def comparison_table(levels):
    rows = []
    for level in levels:
        if "rows" not in level:
            rows.append([level["title"], f"{level['share']:.0%}", "void: " + level["void"][-1],
                         *[""] * (2 + len(comparison.STATISTICS))])
            continue
        for instrument, title in INSTRUMENT_TITLES.items():
            counted = level["counts"][instrument]
            rows.append([level["title"], f"{level['share']:.0%}", f"{level['rate']:,.0f}", title,
                         "absent" if counted is None else f"{counted:,} of {level['counts']['wire']:,}",
                         *(worst(level, instrument, s) for s in comparison.STATISTICS)])
    return "![Largest error in a window of a second, by load](comparison.svg)\n\n" + \
        table(["load", "of the most", "requests/s", "", "counted", *comparison.STATISTICS], rows)


# ---- cost ---------------------------------------------------------------------------------------------------------

def cost_verdict(difference, budget):
    if difference["low"] <= budget < difference["high"]:
        return "not certain"
    return verdict(difference["median"] <= budget)


def by_accounts(r):
    return r["bpf"]["netNsecPerExchange"]["median"] / r["requestsPerExchange"] / r["cpu"]["nsecPerRequest"]


def calibration_line(results):
    """Says how fast the machine was: nanoseconds of one measurement are comparable with those of another by this
    only."""
    names = results[0]["calibration"]
    said = [f"{name} {duration(statistics.median(r['calibration'][name] for r in results))}" for name in names]
    for name in ("tracing", "cgroup_skb"):
        empty = [r["bpf"]["nothing"][name] for r in results if name in r["bpf"]["nothing"]]
        said.append(f"empty program ({name}) {duration(statistics.median(empty))}")
    return f"\n\nCalibration: {', '.join(said)}."


def cost_table(results):
    rows = []
    for r in results:
        d, u = r["cpu"]["difference"], r["cpu"]["unrest"]
        rows.append([r["title"], duration(r["cpu"]["nsecPerRequest"]), percent(d["median"]),
                     f"{percent(d['low'])} to {percent(d['high'])}", f"{percent(d['q1'])} to {percent(d['q3'])}",
                     d["n"], f"{percent(u['low'])} to {percent(u['high'])}", percent(by_accounts(r)),
                     percent(r["budget"]), cost_verdict(d, r["budget"])])
    return table(["load", "CPU a request", "more when observed", "95 % sure", "quartiles", "pairs", "A against A",
                  "by BPF run time", "budget", ""], rows) + calibration_line(results)


def bpf_table(results):
    rows = []
    for r in results:
        t = r["bpf"]["netNsecPerExchange"]
        rows.append([r["title"], duration(t["median"]), f"{duration(t['q1'])} to {duration(t['q3'])}",
                     duration(r["budgetNsec"]), verdict(t["median"] <= r["budgetNsec"])])
    return table(["load", "BPF time an exchange, net", "quartiles", "budget", ""], rows) + calibration_line(results)


def programs_table(results):
    rows = []
    for r in results:
        rows += [[r["title"], p["name"], f"{p['runsPerExchange']:.3f}", duration(p["nsecPerRun"]),
                  duration(p["netNsecPerExchange"])] for p in r["bpf"]["programs"]]
        rows += [[r["title"], f"*nothing ({name})*", "", duration(ns), ""]
                 for name, ns in r["bpf"]["nothing"].items()]
    return table(["load", "program", "runs an exchange", "a run, gross", "an exchange, net"],
                 rows) + calibration_line(results)


# ---- daemon -------------------------------------------------------------------------------------------------------

def watch_table(result):
    return table(["", "seconds", "wake-ups", "of one CPU"],
                 [[w["name"], f"{w['seconds']:.0f}", w["wakeUps"], f"{w['cpuShare'] * 100:.3f} %"]
                  for w in result["watch"]])


def memory_table(result):
    rows = [[m["units"], size(m["rssAnon"]), size(BUDGET_RSS), verdict(m["rssAnon"] < BUDGET_RSS), size(m["maps"]),
             size(m["mapsPerUnit"]), size(BUDGET_MAPS) if m["mapsPerUnit"] else "",
             verdict(m["mapsPerUnit"] <= BUDGET_MAPS) if m["mapsPerUnit"] else "", size(m["perSocket"])]
            for m in result["memory"]]
    return table(["units attached", "daemon, RssAnon", "budget", "", "all maps", "map of a unit", "budget", "",
                  "an open connection"], rows)


def answers_table(result):
    return table(["one snapshot over", "", "p50", "p99", "CPU of the daemon", "budget", ""],
                 [[a["way"], a["name"], duration(a["p50"]), duration(a["p99"]), duration(a["daemonNsec"]),
                   *((duration(BUDGET_ANSWER_NSEC), verdict(a["p50"] <= BUDGET_ANSWER_NSEC))
                     if a["way"] == "varlink" else ("", ""))] for a in result["answers"]])


def scrapes_table(result):
    return table(["64 units, all probes", "size", size(BUDGET_SCRAPE_SIZE), "p50", duration(BUDGET_SCRAPE_NSEC),
                  "CPU of the daemon",
                  duration(BUDGET_SCRAPE_DAEMON_NSEC), "CPU of the exporter"],
                 [[s["name"], size(s["size"]), verdict(s["size"] <= BUDGET_SCRAPE_SIZE),
                   duration(s["p50"]), verdict(s["p50"] <= BUDGET_SCRAPE_NSEC),
                   duration(s["daemonNsec"]), verdict(s["daemonNsec"] <= BUDGET_SCRAPE_DAEMON_NSEC),
                   duration(s["exporterNsec"])] for s in result["scrapes"]])


SECTIONS = {
    "accuracy": lambda r: {"counts": counts_table(r), "accuracy": accuracy_table(r, "capture", BINNED),
                           "phases": accuracy_table(r, "capture", PHASES),
                           "client": accuracy_table(r, "client", BINNED)},
    "comparison": lambda r: {"comparison": comparison_table(r)},
    "cost": lambda r: {"cost": cost_table(r), "bpf": bpf_table(r), "programs": programs_table(r)},
    "daemon": lambda r: {"wakeups": watch_table(r), "memory": memory_table(r), "answers": answers_table(r),
                         "scrapes": scrapes_table(r)},
}


def sections(results, circumstances):
    """Returns the texts between the markers in README.md, by name, for the parts that were measured."""
    filled = {}
    for part, result in results.items():
        c = circumstances[part]
        filled[f"{part}-measured"] = (
            f"Measured {c['date']}, in {c['took']}. Load average before: {c['load']}; CPU time that the host kept "
            f"for others: {c['stolen']}.")
        filled.update(SECTIONS[part](result))
    return filled


def fill(text, filled):
    for name, content in filled.items():
        text, n = re.subn(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: f"{m[1]}\n{content}\n\n{m[2]}",
                          text, flags=re.DOTALL)
        if n != 1:
            raise ValueError(f"no place for \"{name}\"")
    return text


# ---- raw data -----------------------------------------------------------------------------------------------------

def write_csv(path, header, rows):
    with open(path, "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        w.writerow(header)
        w.writerows(rows)


def write_raw_accuracy(accuracy, directory):
    header = ["source", "metric", "statistic", "truth", "qosd", "tolerance"]
    write_csv(f"{directory}/accuracy.csv", ["load", *header],
              [[level["name"], *(r[h] for h in header)] for level in accuracy for r in level.get("rows", [])])
    write_csv(f"{directory}/counts.csv",
              ["load", "rate", "packets", "connections", "repeated", "capture", "server", "client", "qosd", "void"],
              [[level["name"], level["rate"], level["packets"], level["connections"], level["repeated"],
                level["counts"]["capture"], level["counts"]["server"], level["counts"]["client"],
                level["counts"]["qosd"], len(level["void"])]
               for level in accuracy if "counts" in level])
    header = ["metric", "lower", "upper", "qosd", "capture"]
    write_csv(f"{directory}/histograms.csv", ["load", *header],
              [[level["name"], *(b[h] for h in header)] for level in accuracy for b in level.get("histogram", [])])


def write_raw_comparison(levels, directory):
    header = ["window", "instrument", "statistic", "truth", "seen"]
    write_csv(f"{directory}/comparison.csv", ["load", "share", "rate", *header],
              [[level["name"], level["share"], level["rate"], *(r[h] for h in header)]
               for level in levels for r in level.get("rows", [])])
    header = ["wire", *comparison.INSTRUMENTS]
    write_csv(f"{directory}/comparison-counts.csv", ["load", "share", "most", "rate", *header, "void"],
              [[level["name"], level["share"], level["most"], level["rate"], *(level["counts"][h] for h in header),
                len(level["void"])] for level in levels if "counts" in level])


def write_raw_cost(cost, directory):
    header = ["seconds", "busy", "requests", "nsecPerRequest"]
    write_csv(f"{directory}/cpu.csv", ["load", "round", "what", *header],
              [[r["name"], n, name, *(s[h] for h in header)] for r in cost
               for name, samples in r["cpu"]["samples"].items() for n, s in enumerate(samples)])
    write_csv(f"{directory}/bpf.csv", ["load", "netNsecPerExchange"],
              [[r["name"], s] for r in cost for s in r["bpf"]["slices"]])


def write_raw_daemon(daemon, directory):
    write_csv(f"{directory}/answers.csv", ["way", "what", "nsec"],
              [[a["way"], a["name"], t] for a in daemon["answers"] for t in a["times"]])


WRITE_RAW = {"accuracy": write_raw_accuracy, "comparison": write_raw_comparison, "cost": write_raw_cost,
             "daemon": write_raw_daemon}


# ---- plots --------------------------------------------------------------------------------------------------------

INK, SOFT, RULE, BAND = "#1f2430", "#6b7280", "#d6dae1", "#e6f2ea"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#7b4fa3", "#b8860b", "#56b4e9", "#8c564b", "#444444")


class Drawing:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def add(self, text):
        self.parts.append(text)

    def rectangle(self, x, y, width, height, fill):
        self.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{fill}"/>')

    def line(self, x1, y1, x2, y2, stroke=RULE, width=1, dash=None):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.add(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
                 f'stroke-width="{width}"{dashed}/>')

    def text(self, x, y, text, anchor="start", fill=INK, size=12, weight="normal"):
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
                 f'font-weight="{weight}">{escape(text)}</text>')

    def marker(self, kind, x, y, colour):
        """Draws a marker. Its shape is different for each statistic or instrument, as its colour is."""
        shapes = {
            "mean": f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"',
            "p50": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"',
            "p90": f'<path d="M{x:.1f} {y - 5:.1f} l5.5 9 h-11 z"',
            "p99": f'<path d="M{x:.1f} {y - 5.5:.1f} l5.5 5.5 l-5.5 5.5 l-5.5 -5.5 z"',
        }
        self.add(f'{shapes[kind]} fill="{colour}" fill-opacity="0.85" stroke="#ffffff" stroke-width="0.8"/>')

    def write(self, path):
        with open(path, "w") as f:
            f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                    f'width="{self.width}" height="{self.height}" font-family="system-ui, sans-serif">\n')
            f.write(f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>\n')
            f.write("\n".join(self.parts) + "\n</svg>\n")


def plot_accuracy(levels, path):
    left, gap, right, top, row, reach = 360, 30, 20, 92, 30, 2
    panel = 330
    height = top + row * len(levels) + 62
    d = Drawing(left + 2 * panel + gap + right, height)
    d.text(20, 28, "How far qosd is from the packet capture", size=17, weight="bold")
    d.text(20, 48, "Error in units of what is allowed: 3 % (mean: 2 %) or 5 us, whichever is larger. Green: within.",
           fill=SOFT)

    x = d.width - right - 4 * 70
    for statistic, colour in zip(STATISTICS, COLOURS):
        d.marker(statistic, x, 24, colour)
        d.text(x + 10, 28, statistic)
        x += 70

    bottom = top + row * len(levels)
    for n, metric in enumerate(BINNED):
        x0 = left + n * (panel + gap)

        def place(error):
            return x0 + panel / 2 + max(-reach, min(reach, error)) / reach * panel / 2

        d.text(x0 + panel / 2, top - 14, metric, "middle", weight="bold", size=13)
        d.rectangle(place(-1), top, place(1) - place(-1), bottom - top, BAND)
        for tick in (-2, -1, 0, 1, 2):
            d.line(place(tick), top, place(tick), bottom, SOFT if tick == 0 else RULE)
            d.text(place(tick), bottom + 18, f"{tick:+d}" if tick else "0", "middle", SOFT)
        d.text(x0 + panel / 2, bottom + 40, "qosd reads shorter ←   → longer", "middle", SOFT)
        for i, level in enumerate(levels):
            y = top + row * (i + .5)
            d.line(x0, top + row * (i + 1), x0 + panel, top + row * (i + 1), RULE, .5)
            rows = rows_of(level, "capture", metric)
            if not rows:
                d.text(x0 + panel / 2, y + 4, "void: the capture lost packets", "middle", SOFT)
            for k, r in enumerate(rows):
                if r["qosd"] is None:
                    d.text(x0 + panel / 2, y + 4, "absent", "middle", SOFT)
                    break
                error = (r["qosd"] - r["truth"]) / r["tolerance"]
                d.marker(r["statistic"], place(error), y + (k - 1.5) * 3, COLOURS[STATISTICS.index(r["statistic"])])
                if abs(error) > reach:
                    d.text(place(error) + (-8 if error > 0 else 8), y + 4, f"{error:+.1f}",
                           "end" if error > 0 else "start", INK, 10)
    for i, level in enumerate(levels):
        d.text(left - 14, top + row * (i + .5) + 4, level["title"], "end")
    d.write(path)


def plot_cost(results, path):
    left, width, right, row = 340, 520, 90, 52
    # Programs with the largest times; the share of those that run once per connection or less would be invisible
    most_of = {}
    for p in (p for r in results for p in r["bpf"]["programs"]):
        most_of[p["name"]] = max(most_of.get(p["name"], 0), p["netNsecPerExchange"])
    programs = sorted(sorted((n for n in most_of if most_of[n] >= 1), key=most_of.get)[-len(COLOURS):])
    colours = dict(zip(programs, COLOURS))
    legend = 20 * ((len(programs) + 2) // 3)
    top1 = 84
    bottom1 = top1 + row * len(results)
    top2 = bottom1 + 118 + legend
    bottom2 = top2 + row * len(results)
    d = Drawing(left + width + right, bottom2 + 50)

    d.text(20, 28, "What observing costs", size=17, weight="bold")
    d.text(20, 56, "CPU time of server and client per request, observed against not observed: median and its 95 % "
           "interval", weight="bold", size=13)
    d.text(20, 73, "Dashed: budget. Grey: the same for stretches without qosd against each other.", fill=SOFT)

    intervals = [r["cpu"][name][end] for r in results
                 for name in ("difference", "unrest") for end in ("low", "high")]
    low = min(0, *intervals)
    high = max(*intervals, *(r["budget"] for r in results))
    low, high = low - .005, high * 1.12

    def share(v):
        return left + (v - low) / (high - low) * width

    step = .01 if high - low < .12 else .02 if high - low < .24 else .1
    tick = int(low / step) * step
    while tick <= high:
        d.line(share(tick), top1, share(tick), bottom1, SOFT if abs(tick) < 1e-9 else RULE)
        d.text(share(tick), bottom1 + 16, f"{tick * 100:+.0f} %" if abs(tick) > 1e-9 else "0", "middle", SOFT)
        tick += step
    for i, r in enumerate(results):
        y, c, u = top1 + row * i, r["cpu"]["difference"], r["cpu"]["unrest"]
        d.text(left - 14, y + row / 2 + 4, r["title"], "end")
        x1, x2 = sorted((share(0), share(c["median"])))
        d.rectangle(x1, y + 12, x2 - x1, 18, COLOURS[0])
        d.line(share(c["low"]), y + 21, share(c["high"]), y + 21, INK, 1.6)
        for end in c["low"], c["high"]:
            d.line(share(end), y + 16, share(end), y + 26, INK, 1.6)
        d.rectangle(share(u["low"]), y + 35, share(u["high"]) - share(u["low"]), 5, "#b4bac4")
        d.line(share(r["budget"]), y + 6, share(r["budget"]), y + row - 8, INK, 2, "4 3")
        d.text(left + width + 12, y + 26, percent(c["median"]), weight="bold")

    d.text(20, top2 - 52 - legend, "BPF time per exchange, an empty program's time subtracted", weight="bold",
           size=13)
    for n, name in enumerate(programs):
        x, y = left + (n % 3) * 200 - 200, top2 - 36 - legend + 20 * (n // 3)
        d.rectangle(x, y, 12, 12, colours[name])
        d.text(x + 18, y + 11, name)
    most = max(*(r["budgetNsec"] for r in results), *(sum(max(p["netNsecPerExchange"], 0) for p in r["bpf"]["programs"])
                                       for r in results)) * 1.1

    def time_of(ns):
        return left + ns / most * width

    step = 100 if most < 1000 else 500 if most < 5000 else 2000
    for tick in range(0, int(most) + 1, step):
        d.line(time_of(tick), top2, time_of(tick), bottom2, SOFT if tick == 0 else RULE)
        d.text(time_of(tick), bottom2 + 16, f"{tick} ns", "middle", SOFT)
    for i, r in enumerate(results):
        y, x = top2 + row * i, left
        d.text(left - 14, y + row / 2 + 4, r["title"], "end")
        for p in r["bpf"]["programs"]:
            w = max(p["netNsecPerExchange"], 0) / most * width
            if p["name"] in colours:
                d.rectangle(x, y + 12, w, 26, colours[p["name"]])
                x += w
        d.line(time_of(r["budgetNsec"]), y + 6, time_of(r["budgetNsec"]), y + row - 8, INK, 2, "4 3")
        d.text(left + width + 12, y + 30, duration(r["bpf"]["netNsecPerExchange"]["median"]), weight="bold")
    d.write(path)


def plot_comparison(levels, path):
    """Draws a panel for each load and statistic, with the largest error by the load of the server."""
    left, right, top, width, height, gap = 280, 24, 112, 150, 110, 18
    low, high = -3, 2       # 0.1 % to 100 times, by powers of ten
    names = list(dict.fromkeys(level["name"] for level in levels))
    shares = sorted({level["share"] for level in levels})
    shapes = "p50", "mean", "p90"
    d = Drawing(left + len(comparison.STATISTICS) * (width + gap) + right, top + len(names) * (height + gap) + 36)
    d.text(20, 28, "Largest error in a window of a second, against the packet capture", size=17, weight="bold")
    d.text(20, 48, "qosd beside pairs of system calls, in the same runs, from an idle server to a saturated one. "
           "Green: within 3 %.", fill=SOFT)
    x = 20
    for (instrument, title), shape, colour in zip(INSTRUMENT_TITLES.items(), shapes, COLOURS):
        d.marker(shape, x + 5, 68, colour)
        d.text(x + 16, 72, title)
        x += 40 + 7 * len(title)
    d.text(x, 72, "× on the upper edge: says nothing", fill=SOFT)

    for column, statistic in enumerate(comparison.STATISTICS):
        d.text(left + column * (width + gap) + width / 2, top - 12, statistic, "middle", weight="bold", size=13)
    for row, name in enumerate(names):
        y0 = top + row * (height + gap)
        ours = {level["share"]: level for level in levels if level["name"] == name}
        title, most = next((level["title"], level["most"]) for level in ours.values())
        d.text(20, y0 + height / 2 - 4, title, weight="bold", size=11)
        d.text(20, y0 + height / 2 + 12, f"100 %: {most:,.0f} requests/s", fill=SOFT, size=11)

        def y_of(e):
            e = max(min(math.log10(max(abs(e), 1e-9)), high), low)
            return y0 + height - (e - low) / (high - low) * height

        for column, statistic in enumerate(comparison.STATISTICS):
            x0 = left + column * (width + gap)

            def x_of(share):
                return x0 + width * (shares.index(share) + .5) / len(shares)

            d.rectangle(x0, y_of(.03), width, y0 + height - y_of(.03), BAND)
            for power in range(low, high + 1):
                d.line(x0, y_of(10 ** power), x0 + width, y_of(10 ** power), RULE, .7)
                if column == 0:
                    d.text(x0 - 6, y_of(10 ** power) + 3, f"{10 ** power * 100:g} %", "end", SOFT, 9)
            if row == len(names) - 1:
                for share in shares:
                    d.text(x_of(share), y0 + height + 14, f"{share * 100:.0f}", "middle", SOFT, 9)
            for instrument, shape, colour in zip(INSTRUMENT_TITLES, shapes, COLOURS):
                before = None
                for share in shares:
                    errors = errors_of(ours.get(share, {}), instrument, statistic)
                    e = largest(errors)
                    if e is not None:
                        if before:
                            d.line(*before, x_of(share), y_of(e), colour, 1.2)
                        before = x_of(share), y_of(e)
                        d.marker(shape, *before, colour)
                    elif errors:
                        d.text(x_of(share), y0 + 4, "×", "middle", colour, 13, "bold")
    d.text(left + (d.width - left) / 2, d.height - 12, "% of the most that the server can do", "middle", SOFT)
    d.write(path)


PLOT = {"accuracy": plot_accuracy, "comparison": plot_comparison, "cost": plot_cost}


def write(machine, results, circumstances, directory, template):
    filled = {"machine": table(["", ""], list(machine.items())), **sections(results, circumstances)}
    with open(template) as f:
        text = f.read()
    with open(f"{directory}/README.md", "w") as f:
        f.write(fill(text, filled))
    os.makedirs(f"{directory}/raw", exist_ok=True)
    for part, result in results.items():
        WRITE_RAW[part](result, f"{directory}/raw")
        if part in PLOT:
            PLOT[part](result, f"{directory}/{part}.svg")
    return filled
