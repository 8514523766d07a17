# SPDX-License-Identifier: LGPL-2.1-or-later
"""Cockpit in a browser: cockpit-ws at a port of its own, and headless Chromium, driven over its DevTools protocol by a
pair of pipes. Standard library only."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import scenario
from scenario import check, fail, patience, run, systemctl, unused_port

AXE = "/var/lib/qosd-build/node/node_modules/axe-core/axe.min.js"
PASSWORD = "Only-for-the-lab-1"


class User:
    """A user who may log in; administrator: also with sudo."""

    def __init__(self, administrator=False):
        self.name = scenario.unit_name("user", "").replace("_", "-")[-30:]
        groups = ["--groups", "sudo"] if administrator else []
        # Unit tests show the user 1000 by number
        run("useradd", "--create-home", "--shell", "/bin/bash", "--key", "UID_MIN=20000", *groups, self.name)
        run("chpasswd", stdin=f"{self.name}:{PASSWORD}\n")

    def remove(self):
        run("loginctl", "terminate-user", self.name, ok=False)
        scenario.wait_for("the user can be removed",
                          lambda: run("userdel", "--force", "--remove", self.name, ok=False).returncode in (0, 6), 10)


class Cockpit:
    """cockpit-ws without TLS, as a unit. Users log in by PAM, in the processes of Cockpit's own socket."""

    def __init__(self):
        systemctl("start", "cockpit-session.socket")
        # Without it a login waits for half a minute. It does not survive a restart of the bus, which other tests make
        if run("busctl", "status", "org.freedesktop.login1", ok=False).returncode != 0:
            systemctl("restart", "systemd-logind.service")
        self.port = unused_port()
        self.unit = scenario.Unit(f"/usr/lib/cockpit/cockpit-ws --no-tls --address=127.0.0.1 --port={self.port}",
                                  type="exec")
        self.unit.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"


class Browser:
    """One page in Chromium. The directory has all that it writes."""

    def __init__(self, width=1280, height=900, dark=False):
        self.directory = tempfile.mkdtemp(prefix="qosd-browser-")
        commands, self.to = os.pipe()
        self.replies, replies = os.pipe()
        self.number, self.buffer, self.events = 0, b"", []
        self.contexts = {}      # frames of the contexts in which scripts run

        def connect():
            # Where --remote-debugging-pipe expects them; neither may be in the way of the other
            os.dup2(commands, 10)
            os.dup2(replies, 11)
            os.dup2(10, 3)
            os.dup2(11, 4)
        self.log = open(f"{self.directory}/log", "w+")
        self.process = subprocess.Popen(
            ["/usr/lib/chromium/chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--lang=en", "--remote-debugging-pipe",
             f"--user-data-dir={self.directory}/profile", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, close_fds=False, preexec_fn=connect,
            # Chromium ends with the bus that it is connected to
            env={**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": "disabled:", "DBUS_SESSION_BUS_ADDRESS": "disabled:"})
        os.close(commands)
        os.close(replies)
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(f"{domain}.enable")
        self.resize(width, height, dark)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.replies)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 30 * patience()
        while True:
            reply = self.receive(deadline)
            if reply.get("id") == self.number:
                check("error" not in reply, f"{method}: {reply.get('error')}")
                return reply["result"]
            self.events.append(reply)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.replies], [], [], max(0, deadline - time.monotonic()))[0]:
                fail("the browser does not reply")
            data = os.read(self.replies, 1 << 20)
            if not data:
                self.log.seek(0)
                fail(f"the browser has ended: {self.log.read()[-2000:]}")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        if message.get("method") == "Runtime.executionContextCreated":
            context = message["params"]["context"]
            self.contexts[context["id"]] = context["auxData"]["frameId"]
        return message

    def resize(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
                                                           "value": "dark" if dark else "light"}])

    def evaluate(self, expression):
        """The value of an expression of JavaScript in the page; a promise is awaited. Within a frame of Cockpit's
        shell, "page" is the document of the frame that is shown."""
        r = self.call("Runtime.evaluate", expression=f"""(() => {{
            const frame = [...document.querySelectorAll("iframe")].find(f => f.offsetWidth > 0 && f.contentDocument);
            const page = frame ? frame.contentDocument : document;
            return ({expression});
        }})()""", returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            details = r["exceptionDetails"]
            fail(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return r["result"].get("value")

    def wait(self, expression, timeout=10):
        """Waits until an expression is true, and returns its value."""
        try:
            return scenario.wait_for(expression, lambda: self.evaluate(expression), timeout, pause=0.05)
        except scenario.Failed as e:
            fail(f"{e}; the page has: {self.evaluate('page.body?.innerText')!r:.1500}; messages: {self.messages()}")

    def open(self, address):
        self.call("Page.navigate", url=address)

    def frames(self):
        """The frames of our page: those in Cockpit's shell, or the only one."""
        tree = self.call("Page.getFrameTree")["frameTree"]
        inner = [f["frame"]["id"] for f in tree.get("childFrames", []) if "/qosd/" in f["frame"]["url"]]
        return inner or [tree["frame"]["id"]]

    def messages(self):
        """Errors and warnings of scripts in our page, not of other pages of Cockpit, since the last call."""
        frames, found = self.frames(), []
        for e in self.events:
            p = e.get("params", {})
            details = p.get("exceptionDetails", p)
            if self.contexts.get(details.get("executionContextId")) not in frames:
                continue
            if e.get("method") == "Runtime.exceptionThrown":
                found.append(details.get("exception", {}).get("description", details["text"]))
            elif e.get("method") == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
        self.events.clear()
        # What Cockpit says after an error of any page that no script has caught
        if self.evaluate("document.body.innerText.includes('Ooops!')"):
            found.append("Ooops!")
        return found

    def type(self, selector, text):
        self.evaluate(f"page.querySelector({json.dumps(selector)}).focus()")
        self.evaluate(f"page.querySelector({json.dumps(selector)}).select?.()")
        self.call("Input.insertText", text=text)

    def click(self, selector):
        self.wait(f"!!page.querySelector({json.dumps(selector)})")
        self.evaluate(f"page.querySelector({json.dumps(selector)}).click()")

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def axe(self):
        """Faults of accessibility that axe-core finds in the page, without Cockpit's frame around it."""
        with open(AXE) as f:
            source = f.read()
        # A world of its own: the policy of the page permits no other scripts
        world = self.call("Page.createIsolatedWorld", frameId=self.frames()[0])["executionContextId"]
        self.call("Runtime.evaluate", expression=f"{source}; 0", contextId=world)
        r = self.call("Runtime.evaluate", contextId=world, awaitPromise=True, returnByValue=True,
                      expression="axe.run(document, { resultTypes: ['violations'] }).then(r => r.violations)")
        found = r["result"]["value"]
        return [(v["impact"], v["id"], [n["html"][:200] for n in v["nodes"]][:3]) for v in found]

    def login(self, cockpit, user, administrator=False, path="/qosd"):
        self.open(f"{cockpit.address}{path}")
        self.wait("page.querySelector('#login-user-input')?.offsetWidth > 0")
        # With it the password of the login is used for sudo
        self.evaluate(f"localStorage.setItem('superuser:{user.name}', '{'any' if administrator else 'none'}')")
        self.type("#login-user-input", user.name)
        self.type("#login-password-input", PASSWORD)
        self.click("#login-button")
        self.wait("!!(frame && page.querySelector('#app main'))", 20)


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


def has_text(text, where="body"):
    return f"!!page.querySelector({json.dumps(where)})?.innerText.includes({json.dumps(text)})"
