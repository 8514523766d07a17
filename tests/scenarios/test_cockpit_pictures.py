# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pictures of the page for Cockpit on a phone, a small and a large screen, in both styles, of services under load:
/var/lib/qosd-build/pictures, from which docs/pictures has some. They are looked at by a person; a test sees that
nothing is cut off."""

import os
import subprocess

import scenario
from browser import logged_in
from scenario import SOURCES, Unit, attach, equal, run, systemctl, test, unused_port, varlink, wait_for

DIRECTORY = "/var/lib/qosd-build/pictures"
SIZES = (390, 844), (1280, 800), (1920, 1080)
NGINX = "/etc/nginx/conf.d/qosd-pictures.conf"
UNITS = "nginx.service", "redis-server.service", "shop.service", "worker.service"
# So that charts have something to show
LOAD_SEC = 90


class Load:
    """nginx before a server of its own, and Redis, each with a client, that of Redis as a unit."""

    def __enter__(self):
        port, front = unused_port(), unused_port()
        self.shop = Unit(f"/usr/bin/python3 -B {SOURCES}/http_server.py {port}", name="shop.service", type="exec")
        with open(NGINX, "w") as f:
            f.write(f"server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://127.0.0.1:{port}; }} }}\n")
        self.worker = Unit("/usr/bin/redis-benchmark -q -l -c 4 -t set,get", name="worker.service", type="exec")
        systemctl("restart", self.shop.name, "nginx.service", "redis-server.service")
        for unit in UNITS:
            attach(unit)
        self.worker.start()
        varlink("SetThreshold", unit="nginx.service", threshold="slow: requests.server.firstByte.p99 > 1ms over 10s")
        varlink("SetThreshold", unit="redis-server.service", threshold="busy: requests.server.rate > 1000000 over 1s")
        self.client = subprocess.Popen(["wrk", "-t", "1", "-c", "4", "-d", "1h", f"http://127.0.0.1:{front}/late/2"],
                                       stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        self.client.kill()
        self.client.wait()
        os.unlink(NGINX)
        # Clients first: they fail when their server goes
        for unit in reversed(UNITS):
            run("qosctl", "detach", unit, ok=False)
            systemctl("stop", unit)
        for unit in self.shop, self.worker:
            os.unlink(f"{scenario.UNIT_DIR}/{unit.name}")
        systemctl("daemon-reload")


def take(b, name):
    for width, height in SIZES:
        for dark in False, True:
            b.resize(width, height, dark)
            b.wait(f"page.documentElement.classList.contains('pf-v6-theme-dark') === {str(dark).lower()}")
            wide = b.evaluate("[page.documentElement.scrollWidth, page.documentElement.clientWidth]")
            equal(wide[0], wide[1], f"width of what {name} shows on {width} pixels")
            if name != "table":
                # The whole page
                b.resize(width, min(3000, 130 + int(b.evaluate("page.documentElement.scrollHeight"))), dark)
            b.picture(f"{DIRECTORY}/cockpit-{name}-{width}{'-dark' if dark else ''}.png")


@test(own_daemon=True, nightly=True, deadline=300)
def pictures():
    os.makedirs(DIRECTORY, exist_ok=True)
    with Load(), logged_in(administrator=True) as b:
        b.wait(f"page.querySelectorAll('tr[data-seq]').length >= {len(UNITS)}", 20)
        wait_for("there is something to see", lambda: len(varlink(
            "History", unit="nginx.service", metrics=["requests.server.rate"])["steps"]) > LOAD_SEC / 10, LOAD_SEC)
        b.wait("page.querySelectorAll('tr .sparkline').length >= 3", 30)
        take(b, "table")
        b.click("#map summary")
        b.wait("page.querySelectorAll('.edge').length >= 2", 30)
        take(b, "map")
        b.click("tr[data-unit='nginx.service'] a")
        b.wait("page.querySelectorAll('path.line').length >= 5 && page.querySelectorAll('.edge').length >= 1", 30)
        take(b, "unit")
        equal(b.messages(), [], "messages of the page")
