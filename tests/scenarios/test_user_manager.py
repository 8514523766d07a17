# SPDX-License-Identifier: LGPL-2.1-or-later
"""qosctl --user: units of a user's own service manager, by that user."""

import json
import pwd

from scenario import check, equal, expect_total, qosctl, run, systemctl, test, unit_name, unused_port, wait_for


class User:
    """A user with a service manager that runs."""

    def __init__(self):
        self.name = unit_name("user", "")
        run("useradd", "--create-home", self.name)
        self.uid = pwd.getpwnam(self.name).pw_uid
        systemctl("start", f"user@{self.uid}.service")
        self.root = f"/user.slice/user-{self.uid}.slice/user@{self.uid}.service"

    def run(self, *command, **keywords):
        return run("runuser", "-u", self.name, "--", "env", f"XDG_RUNTIME_DIR=/run/user/{self.uid}", *command,
                   **keywords)

    def qosctl(self, *arguments, **keywords):
        return self.run("qosctl", "--no-pager", "--user", *arguments, **keywords)

    def serve(self, name, *options):
        """Starts a service. Returns its port."""
        port = unused_port()
        self.run("systemd-run", "--user", "--collect", f"--unit={name}", *options, "python3", "-m", "http.server",
                 "--bind", "127.0.0.1", str(port))
        wait_for("it listens",
                 lambda: run("curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{port}/", ok=False).returncode == 0)
        return port

    def remove(self):
        # Another user gets the ID, and the same paths
        qosctl("detach", f"{self.root}/*", ok=False)
        systemctl("stop", f"user@{self.uid}.service")
        run("userdel", "--remove", self.name, ok=False)


@test(deadline=60)
def own_units():
    """Named as for systemctl --user, in each verb, without rights of others; figures are those of the unit."""
    u = User()
    try:
        port = u.serve("web")
        u.serve("deep", "--slice=app-tests.slice")
        web, deep = f"{u.root}/app.slice/web.service", f"{u.root}/app.slice/app-tests.slice/deep.service"
        u.qosctl("attach", "web", "deep.service")
        for _ in range(20):
            run("curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{port}/")
        expect_total(web, 20)
        equal(sorted(json.loads(line)["unit"] for line in u.qosctl("list", "--json=short").stdout.splitlines()),
              sorted([web, deep]), "list")
        equal([json.loads(line)["unit"] for line in u.qosctl("list", "we*", "--json=short").stdout.splitlines()], [web],
              "list of a pattern")
        equal(u.qosctl("show", "web", "--window=total", "-P", "requests.server.count", "--value").stdout, "20\n",
              "show")
        check(f"● {deep}\n" in u.qosctl("status", "deep").stdout, "status of a unit in a slice of its own")
        u.qosctl("set-threshold", "web", "slow: requests.server.latency.p99 > 30s")
        check("slow" in u.qosctl("list-thresholds").stdout, "the threshold is not listed")
        check(web in u.qosctl("metrics", "--format=prometheus").stdout, "no metrics")
        u.qosctl("detach", "web", deep)
        equal(u.qosctl("list", "--no-legend").stdout, "", "list of what is detached")
    finally:
        u.remove()


@test(deadline=60)
def bad_input():
    """What is not there, does not run, or cannot be combined."""
    u = User()
    try:
        for arguments, status, message in (
                (("attach", "nothing-at-all"), 4, "Unit 'nothing-at-all.service' not found (not-found)."),
                (("attach", "app.slice/x"), 2, "Invalid unit name 'app.slice/x'."),
                (("status", "paths.target"), 2,
                 "Units of the type of 'paths.target' have no processes, expected a service, scope, slice or socket."),
                (("enable", "web"), 2, "Option --user cannot be combined with 'enable'."),
                (("verify", "web"), 2, "Option --user cannot be combined with 'verify'."),
                (("attach", "--listening"), 2, "Option --user cannot be combined with '--listening'."),
                (("-H", "host", "list"), 2, "Option --user cannot be combined with '--host='.")):
            r = u.qosctl(*arguments, ok=False)
            equal((r.returncode, r.stderr.strip()), (status, message), f"qosctl --user {arguments}")
        u.run("systemd-run", "--user", "--unit=ends", "--remain-after-exit", "true")
        wait_for("it has ended",
                 lambda: u.run("systemctl", "--user", "show", "-P", "SubState", "ends").stdout == "exited\n")
        r = u.qosctl("attach", "ends", ok=False)
        equal(r.returncode, 4, "status of an attach of what does not run")
        check("'ends.service' is not running" in r.stderr, r.stderr)
        r = run("runuser", "-u", u.name, "--", "env", "XDG_RUNTIME_DIR=/nowhere", "qosctl", "--user", "list", ok=False)
        equal(r.returncode, 1, "status without a manager")
        check("Failed to connect to the service manager of the user (unix:path=/nowhere/systemd/private)" in r.stderr,
              r.stderr)
        equal(qosctl("--user", "list", "x", ok=False).returncode in (1, 3, 4), True, "root without a manager")
    finally:
        u.remove()
