# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page for Cockpit, in a browser: what it shows is what qosctl prints of the same reading."""

from browser import has_text, logged_in, row_of
from scenario import (SEC, Client, check, equal, listed, load, qosctl, qosctl_json, server_figures, start_served, test,
                      varlink, wait_for, within)


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
        equal(idle["texts"][2], "0/s", "rate without requests")
        load(s, connections=4, number=2000)
        busy = expect_same(b, s.name)
        check(busy["texts"][2] not in ("0/s", "-") and busy["texts"][5] not in ("0", "-"), f"load: {busy['texts']}")
        check("Limited access" in b.evaluate("page.body.innerText"), "nothing says that access is limited")
        equal(b.messages(), [], "messages of the page")


def shown_figures(b):
    """The figures of the page of a unit: the number of its reading, and its rate."""
    return b.evaluate("""(() => {
        const main = page.querySelector("main");
        return main?.dataset.seq && page.querySelector("[data-figure=rate]")?.dataset.value ?
            { seq: Number(main.dataset.seq), rate: Number(page.querySelector("[data-figure=rate]").dataset.value) } : null;
    })()""")


@test(nightly=True, deadline=120)
def figures_of_ten_minutes():
    """Over ten minutes, a unit has the figures of all requests since it was attached, from the history."""
    s = start_served(mode="thread")
    with logged_in() as b:
        b.click(f"tr[data-unit='{s.name}'] a")
        load(s, connections=4, number=4000)
        load(s, connections=4, number=2000, think_us=2000)
        server = varlink("Get", unit=s.name, window=0)["requests"]["server"]
        latency, first_byte = server["latency"], server["firstByte"]
        b.evaluate("page.querySelector('#window').value = '600'")
        b.evaluate("page.querySelector('#window').dispatchEvent(new Event('change'))")

        def shown():
            return b.evaluate("""Object.fromEntries([...page.querySelectorAll("[data-figure]")]
                .map(e => [e.dataset.figure, Number(e.dataset.value)]))""")

        def same():
            steps, f = varlink("History", unit=s.name, step=10 * SEC)["steps"], shown()
            if not steps:
                return False
            n, covered = (sum(v) for v in zip(*((x["requests"]["server"]["count"], x["covered"]) for x in steps)))
            return n == 6000 and abs(f["rate"] - n * SEC / covered) < 1e-6 and f
        f = wait_for("the page has the steps of all requests", same, 40, pause=0.2)
        equal(f["max"], latency["max"], "the longest")
        for name, want in ("p50", latency["p50"]), ("p99", latency["p99"]), ("firstByte", first_byte["p99"]):
            within(f[name], want, 0.1, 0, name)
        # States of threads in the service time would be those of five minutes
        equal(b.evaluate("page.querySelectorAll('.phases').length"), 1, "bars")
        shares = b.evaluate("""Object.fromEntries([...page.querySelectorAll(".phases:first-child .bar span")]
            .map(e => [e.className, Number(e.style.flexGrow)]))""")
        phases = {name: server[name]["mean"] for name in ("receive", "queue", "service", "answer")}
        for name, mean in phases.items():
            within(shares[f"p-{name}"], mean / sum(phases.values()), 0.02, 0.01, f"share of the phase {name}")
        equal((f["errors"], b.messages()), (0, []), "errors, messages of the page")


def set_threshold(b, **fields):
    for name, value in fields.items():
        b.type(f"#threshold-{name}", value)
    b.click("#set-threshold")


@test(deadline=180)
def administer():
    """With administrative access, a unit that listens is offered, attached, and shown by itself with qosd's figures. A
    threshold is set, and refused by qosd with its reason; a violated one is above the table of units, until it is not
    violated any more."""
    s = start_served(attach_first=False, mode="thread")
    qosctl("detach", s.name)
    with logged_in(administrator=True) as b:
        b.click("#attach")
        b.wait(has_text(s.name, "dialog .listening"), 20)
        b.wait(has_text("of memory", "dialog"), 20)
        b.type("#attach-name", s.name)
        b.click("#attach-ok")
        b.wait(f"!!page.querySelector(`tr[data-unit='{s.name}']`)?.dataset.seq", 60)
        equal(listed().count(s.name), 1, "attached units of the name")

        b.click(f"tr[data-unit='{s.name}'] a")
        load(s, connections=4, number=2000)

        readings = {}

        def pair():
            """Both get one reading, whichever of them is the first."""
            of_qosctl = qosctl_json("show", s.name)[0]
            readings[of_qosctl["seq"]] = of_qosctl["requests"]["server"]
            shown = shown_figures(b)
            return shown and shown["seq"] in readings and (shown, readings[shown["seq"]])
        shown, server = wait_for("page and qosctl have the same reading", pair, 20, pause=0.01)
        within(shown["rate"], server["rate"], 1e-12, 0, "rate on the page of the unit")
        b.wait(has_text(f"127.0.0.1:{s.port}"))

        set_threshold(b, name="wrong", metric="requests.server.nothing", limit="1")
        b.wait(has_text("requests.server.nothing", ".error"))
        set_threshold(b, name="busy", metric="requests.server.rate", limit="1", window="1s")
        b.wait(has_text("requests.server.rate > 1 over 1s", "table code"))
        equal([t["name"] for t in qosctl_json("list-thresholds", s.name)], ["busy"], "thresholds")

        b.evaluate("page.querySelector('nav a').click()")
        b.wait(f"!!page.querySelector(`tr[data-unit='{s.name}']`)?.dataset.seq")
        c = Client(s, connections=1, think_us=10000, duration_ms=600000)
        wait_for("the client sends requests", lambda: server_figures(s)["count"] > 2000)
        b.wait(has_text(s.name, ".alerts"))
        c.stop()
        b.wait(f"!({has_text(s.name, '.alerts')})")

        b.click(f"tr[data-unit='{s.name}'] a")
        b.click("#detach")
        b.wait(has_text("The unit is not attached") + " || " + has_text("No readings"))
        equal(listed().count(s.name), 0, "attached units of the name")
        equal(b.messages(), [], "messages of the page")


@test(deadline=120)
def without_rights():
    """A user without administrative access sees figures, and is refused the rest with a reason: to attach, to set a
    threshold, a diagnosis, and the names of peers."""
    s = start_served(mode="thread")
    load(s, connections=1, number=10)
    with logged_in() as b:
        b.click("#attach")
        b.type("#attach-name", s.name)
        b.click("#attach-ok")
        b.wait(has_text("Attaching a unit needs administrative access", "dialog"))
        b.evaluate("page.querySelector('dialog').close()")
        b.click(f"tr[data-unit='{s.name}'] a")
        b.wait("!!page.querySelector('main').dataset.seq")
        b.wait(has_text("Peers are hidden"))
        set_threshold(b, name="busy", metric="requests.server.rate", limit="1")
        b.wait(has_text("Thresholds are changed with administrative access"))
        b.click("#diagnose")
        b.wait(has_text("it needs administrative access", "[role=status]"))
        b.click("#keep")
        b.wait(has_text("This needs administrative access"))
        equal(b.messages(), [], "messages of the page")


@test(own_daemon=True, nightly=True, deadline=180)
def settings():
    """Further probes and exclusions are applied, their metrics are shown, and the unit is kept across boots, and no
    longer."""
    s = start_served(mode="thread")

    def holds():
        return varlink("List", unit=s.name)["holds"]
    with logged_in(administrator=True) as b:
        b.click(f"tr[data-unit='{s.name}'] a")
        b.wait(has_text("requests cpu", "main"))
        b.click("input[value=network]")
        b.type("#exclude", "port:9100 http:/healthz")
        b.click("#apply")
        b.wait(has_text("without http:/healthz port:9100"), 30)
        equal([(h["probes"], h["exclude"]) for h in holds()],
              [(["requests", "cpu", "network"], ["http:/healthz", "port:9100"])], "holds")
        b.wait("page.querySelector('summary')?.innerText === 'Network'", 20)
        b.click("summary")
        # What was opened stays open with further readings
        seq = b.evaluate("page.querySelector('main').dataset.seq")
        load(s, connections=1, number=10)
        b.wait(f"page.querySelector('main').dataset.seq > {seq}", 20)
        check(b.evaluate("page.querySelector('details').open"), "the metrics of the probe were closed")
        b.click("#keep")
        b.wait(has_text("Do not keep across boots"), 30)
        check("unitFile" in [h["type"] for h in holds()], "there is no hold of a unit file")
        b.click("#keep")
        b.wait("page.querySelector('#keep').innerText === 'Keep across boots'", 30)
        equal([h["type"] for h in holds()], ["administrator"], "holds")
        equal(b.messages(), [], "messages of the page")
