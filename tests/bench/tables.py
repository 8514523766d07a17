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
