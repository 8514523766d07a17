# SPDX-License-Identifier: LGPL-2.1-or-later
"""Tables in Markdown."""


def verdict(ok):
    return "ok" if ok else "**missed**"


def table(header, rows):
    """A Markdown table that can be read as it is."""
    rows = [[str(c) for c in r] for r in [header, *rows]]
    widths = [max(len(r[i]) for r in rows) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(r, widths)) + " |" for r in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def confusion_table(results):
    """Each row is what units suffer from, each column what the first finding was: numbers of diagnoses. Where other
    units had the CPUs, and that was found besides what is right, it is in a column of its own."""
    busy, order = "cpu, busy machine", {"nothing": 1, "unknown": 2, "failed": 3}
    said = [busy if r["right"] and r["verdict"] == "cpu" and r["noise"]
            and "cpu" not in r["suffers"] else r["verdict"] for r in results]
    truths, verdicts = (sorted(set(keys), key=lambda k: (order.get(k, 0), k))
                        for keys in ([r["truth"] for r in results], said))
    rows = []
    for truth in truths:
        mine = [v for r, v in zip(results, said) if r["truth"] == truth]
        rows.append([truth, *(mine.count(v) or "" for v in verdicts),
                     f"{sum(r['right'] for r in results if r['truth'] == truth)} of {len(mine)}"])
    return table(["suffers from", *verdicts, "right"], rows)


def diagnosis_table(results):
    """Each row is what units suffered from; each column how often that was said. Several things may be said of one."""
    said = sorted({k for r in results for k in r["said"]}, key=lambda k: (k in ("nothing", "unknown", "failed"), k))
    rows = []
    for name in dict.fromkeys(r["scenario"] for r in results):
        mine = [r for r in results if r["scenario"] == name]
        right = sum(r["right"] for r in mine)
        cells = [sum(k in r["said"] for r in mine) or "" for k in said]
        rows.append([name, ", ".join(mine[0]["suffers"]) or "nothing", *cells, f"{right} of {len(mine)}",
                     sum(r["noise"] for r in mine) or "", verdict(right >= 0.95 * len(mine))])
    return table(["scenario", "suffers from", *said, "right", "CPUs busy", ""], rows)
