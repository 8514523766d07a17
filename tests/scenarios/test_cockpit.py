# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page for Cockpit, in a browser: what it shows is what qosctl prints of the same reading."""

import contextlib
import json

from browser import Browser, Cockpit, User
from scenario import SEC, check, equal, load, qosctl_json, start_served, test, wait_for



@contextlib.contextmanager
def logged_in(administrator=False, **options):
    user, cockpit = User(administrator), Cockpit()
    try:
        with Browser(**options) as b:
            b.login(cockpit, user, administrator)
            yield b
    finally:
        cockpit.unit.stop()
        user.remove()


def row_of(b, unit):
    """The row of a unit in the table: the number of its reading and its values, or None."""
    return b.evaluate(f"""(() => {{
        const row = page.querySelector(`tr[data-unit={json.dumps(unit)}]`);
        return row?.dataset.seq ? {{ seq: Number(row.dataset.seq), texts: [...row.cells].map(c => c.innerText.trim()),
            values: [...row.querySelectorAll("[data-value]")].map(c => c.dataset.value) }} : null;
    }})()""")


def values_of(shown):
    """The values of a row, in its order, from what "qosctl show" prints."""
    server = shown["requests"]["server"]
    errors = sum(server.get("errors", {}).values()) * SEC / shown["covered"]
    latency = server["latency"]
    return [server["rate"], errors, latency.get("p50"), latency.get("p99"), server["inFlight"]]


def expect_same(b, unit):
    """The row has the values that qosctl has of the reading of the same number. Nothing happens meanwhile: then there
    is one reading for a second."""
    def pair():
        row, shown = row_of(b, unit), qosctl_json("show", unit)[0]
        return row and row["seq"] == shown["seq"] and (row, shown)
    row, shown = wait_for("page and qosctl have the same reading", pair, 20, pause=0.01)
    values = [float(v) if v else None for v in row["values"][:5]]
    for name, got, want in zip(("rate", "errors", "p50", "p99", "in flight"), values, values_of(shown)):
        check(got == want or got and abs(got - want) <= 1e-9 * want, f"{name} on the page: {got} instead of {want}")
    return row


@test(deadline=120)
def figures_of_a_unit():
    """After a login, a unit is in the table with the values that qosctl prints of the same reading; they change with
    the load. The page says what is hidden from this user, and reports no error."""
    s = start_served(mode="thread")
    with logged_in() as b:
        b.wait(f"page.querySelector(`tr[data-unit='{s.name}']`)?.dataset.seq")
        idle = expect_same(b, s.name)
        equal(idle["texts"][1], "0/s", "rate without requests")
        load(s, connections=4, number=2000)
        busy = expect_same(b, s.name)
        check(busy["texts"][1] not in ("0/s", "-") and busy["texts"][4] not in ("0", "-"), f"load: {busy['texts']}")
        check("Limited access" in b.evaluate("page.body.innerText"), "nothing says that access is limited")
        equal(b.messages(), [], "messages of the page")
