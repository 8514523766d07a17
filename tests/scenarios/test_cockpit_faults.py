# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page for Cockpit with what goes wrong, and with names and numbers that nobody hoped for."""

import contextlib
import os

import pytest

import scenario
from browser import AXE, Browser, has_text, logged_in, row_of
from scenario import (Client, attach, check, equal, load, qosctl, qosctl_json, run, start_served, test, unit_name,
                      varlink)
from test_diagnose import benchmark, hog, redis

MARKUP = "<img src=x onerror=alert(1)>"


@test(own_daemon=True, nightly=True, deadline=180)
def restarts():
    """The page goes on by itself after a crash of qosd, after a stop, during which it shows no figures, and after a
    restart of the bus, also of one that qosd has left before; on the page of a unit as well."""
    s = start_served(mode="thread")
    row = f"!!page.querySelector(`tr[data-unit='{s.name}']`)?.dataset.seq"
    with logged_in() as b:
        b.wait(row)
        before = row_of(b, s.name)["seq"]
        scenario.kill_qosd()
        b.wait(f"{row} && page.querySelector(`tr[data-unit='{s.name}']`).dataset.seq !== '{before}'", 20)

        scenario.systemctl("stop", "qosd.service")
        b.wait("page.querySelectorAll('tbody tr').length === 0", 20)
        check(b.evaluate(f'{has_text("qosd is not running")} || {has_text("no connection to qosd")}'), "no reason")
        run("systemctl", "restart", "dbus.service", timeout=30)
        scenario.systemctl("start", "qosd.service")
        scenario.wait_qosd()
        b.wait(has_text("No unit is attached"), 20)
        attach(s)
        b.wait(row, 20)

        b.evaluate("""void (page.defaultView.texts = [], new MutationObserver(
                          () => page.defaultView.texts.push(page.querySelector(".empty").textContent))
                          .observe(page.querySelector(".empty"), { childList: true }))""")
        run("systemctl", "restart", "dbus.service", timeout=30)
        load(s, connections=1, number=1000)
        b.wait(f"{row} && Number(page.querySelector(`tr[data-unit='{s.name}'] .number`).dataset.value) > 0", 30)
        texts = b.evaluate("page.defaultView.texts")
        check(texts and not any("No unit" in t for t in texts), f"what was shown meanwhile: {texts}")

        b.click(f"tr[data-unit='{s.name}'] a")
        b.wait("!!page.querySelector('main').dataset.seq", 20)
        scenario.kill_qosd()
        b.wait("delete page.querySelector('main').dataset.seq")
        b.wait("!!page.querySelector('main').dataset.seq", 20)

        shown = "page.querySelector('#figures').offsetParent !== null"
        check(b.evaluate(shown), "figures are not shown")
        scenario.systemctl("stop", "qosd.service")
        b.wait(f"!({shown}) && {has_text('It is tried again', '.notice[role=alert]')}", 20)
        scenario.systemctl("start", "qosd.service")
        scenario.wait_qosd()
        b.wait(has_text("The unit is not attached"), 20)
        attach(s)
        b.wait(shown, 20)


@contextlib.contextmanager
def control_group(name):
    path = f"/sys/fs/cgroup/{name}"
    os.mkdir(path)
    try:
        yield f"/{name}"
    finally:
        varlink("Detach", unit=f"/{name}")
        os.rmdir(path)


@test(deadline=120)
def markup_in_names():
    """Names of control groups and sockets with markup and control characters are text on the page."""
    name, path = f"{unit_name('group', '')} {MARKUP}", f"/run/{unit_name('socket', '')}{MARKUP}"
    s = scenario.Unit(f'/usr/bin/python3 -B {scenario.SOURCES}/unixserver.py stream "{path}\\x1b[2J\\u202e"')
    attach(s)
    s.start()
    with control_group(name) as group, logged_in(administrator=True) as b:
        varlink("Attach", unit=group)
        b.wait(has_text(MARKUP, "tbody"), 20)
        b.click("tbody a[href*='onerror']")
        b.wait("!!page.querySelector('main').dataset.seq", 20)
        check(b.evaluate(has_text(MARKUP, "h1")), "the page of the group has another title")
        b.evaluate("page.querySelector('nav a').click()")
        b.click(f"tr[data-unit='{s.name}'] a")
        # qosd replaces control characters by itself
        b.wait(has_text(f"{path}?[2J\\u202e", "main"), 20)
        equal(b.evaluate("page.querySelectorAll('img').length"), 0, "elements that a name has made")
        equal(b.messages(), [], "messages of the page")


@test(nightly=True, deadline=180)
def accessible():
    """axe-core finds no serious fault in the table, the dialog and the page of a unit, in both styles; and it does find
    one that is made."""
    if not os.path.exists(AXE):
        pytest.skip("axe-core is not there: \"tests/lab/lab nightly\" gets it")
    s = start_served(mode="thread")
    varlink("SetThreshold", unit=s.name, threshold="quiet: requests.server.rate < 1 over 1s")
    with logged_in(administrator=True) as b:
        def expect_none(what):
            for dark in True, False:
                b.resize(1280, 900, dark)
                equal([f for f in b.axe() if f[0] in ("serious", "critical")], [], f"faults of {what}, dark: {dark}")
        b.wait(has_text("quiet", ".alerts"), 20)
        expect_none("the table")
        b.click("#attach")
        b.wait(has_text("of memory", "dialog"))
        expect_none("the dialog")
        b.evaluate("page.querySelector('dialog').close()")
        b.click(f"tr[data-unit='{s.name}'] a")
        b.wait("!!page.querySelector('main').dataset.seq && !!page.querySelector('table code')", 20)
        expect_none("the page of a unit")
        b.evaluate("page.querySelector('h1').append(new Image())")
        check("image-alt" in [f[1] for f in b.axe()], "an image without a text is no fault")


@test(nightly=True, deadline=120)
def hidden_page():
    """While another page of Cockpit is shown, this one gets no readings; it goes on when it is shown again."""
    s = start_served(mode="thread")
    seq = f"window.ours.querySelector(`tr[data-unit='{s.name}']`)?.dataset.seq"
    with logged_in() as b:
        b.wait(f"!!page.querySelector(`tr[data-unit='{s.name}']`)?.dataset.seq")
        b.evaluate("void (window.ours = page)")
        b.evaluate("void frame.contentWindow.cockpit.jump('/system')")
        b.wait("frame.contentWindow.location.pathname.includes('/system/') && ours.defaultView.cockpit.hidden", 30)
        before = b.evaluate(seq)
        with scenario.Varlink() as v:
            v.send("Subscribe", {"units": [s.name]}, more=True)
            for _ in range(4):
                load(s, connections=1, number=10)
                after = v.reply()["snapshot"]["seq"]
        # That of the last overview may have been on its way
        shown = b.evaluate(seq)
        check(int(shown) <= int(before) + 1 < after, f"a hidden page got readings: {before}, {shown}, of {after}")
        b.evaluate("void frame.contentWindow.cockpit.jump('/qosd')")
        b.wait(f"Number({seq}) > {after}", 20)


@test(nightly=True, own_daemon=True, deadline=240)
def many_units():
    """256 units: all are in the table with figures, and the filter leaves one."""
    scenario.fresh_qosd()
    s = start_served(mode="thread")
    names = [unit_name() for _ in range(255)]
    for name in names:
        scenario.write_unit(name, "[Service]\nExecStart=/bin/true\n")
    with scenario.Varlink(timeout=20) as v:
        for name in names:
            v.call("Attach", unit=name)
    with logged_in() as b:
        b.wait("page.querySelectorAll('tbody tr[data-seq]').length === 256", 60)
        load(s, connections=4, number=1000)
        b.wait(f"Number(page.querySelector(`tr[data-unit='{s.name}'] .number`).dataset.value) > 0", 20)
        b.type("#filter", s.name)
        b.wait("page.querySelectorAll('tbody tr').length === 1")
        equal(b.messages(), [], "messages of the page")


@test(quiet="loaded", nightly=True, deadline=180)
def diagnosis_of_a_hog():
    """A unit that shares its CPU with another one: the diagnosis on the page names the other one."""
    u, other = redis(cpu=0), hog()
    attach(u)
    with logged_in(administrator=True) as b, benchmark(u):
        b.click(f"tr[data-unit='{u.name}'] a")
        b.click("#diagnose")
        b.wait("page.querySelector('progress').value > 2")
        b.wait("page.querySelector('[data-verdict]')?.dataset.verdict === 'found'", 60)
        check(b.evaluate(has_text(other.name, ".findings")), "the other unit is not named")


@test(quiet="light", nightly=True, deadline=120)
def threshold_within_three_seconds():
    """A violated threshold is on the page within 3 s of the crossing, by the clock of this machine."""
    s = start_served(mode="thread")
    varlink("SetThreshold", unit=s.name, threshold="busy: requests.server.rate > 1 over 1s")
    with logged_in() as b:
        b.wait(f"!!page.querySelector(`tr[data-unit='{s.name}']`)?.dataset.seq")
        b.evaluate("""void new MutationObserver(() => { page.defaultView.seenAt ??= Date.now(); })
                      .observe(page.querySelector(".alerts"), { childList: true })""")
        c = Client(s, connections=1, think_us=10000, duration_ms=600000)
        seen = b.wait("page.defaultView.seenAt")
        since = qosctl_json("list-thresholds", s.name)[0]["since"]
        c.stop()
        check(seen - since / 1000 < 3000, f"the page shows it {seen - since / 1000} ms after the crossing")
        b.wait("page.querySelector('.alerts').children.length === 0", 10)


@test(nightly=True, deadline=120)
def report_in_the_browser():
    """The page that qosctl report writes opens without a request to anything, without an error, and prints."""
    s = start_served(mode="thread")
    load(s, connections=4, number=1000)
    path = f"/run/{unit_name('report', '.html')}"
    qosctl("report", s.name, "-o", path)
    with Browser() as b:
        b.open(f"file://{path}")
        b.wait(has_text(s.name))
        requests = [e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"]
        equal([u for u in requests if not u.startswith(("file:", "data:"))], [], "requests of the report")
        equal(b.messages(), [], "messages of the report")
        pdf = b.call("Page.printToPDF")["data"]
        check(pdf.startswith("JVBERi"), "no PDF")
    os.unlink(path)
