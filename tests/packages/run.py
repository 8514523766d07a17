#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""The life of the packages in a plain system: installed without what they recommend, upgraded and downgraded under
load, removed and purged. Requests are counted by the clients that make them, and files compared with those that were
there before.

Runs as root in that system, with the directories of the packages and of an older version: "tests/lab/lab deb" makes
them."""

import glob
import http.client
import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import threading
import time

import source

NGINX = "nginx.service"
# Activated by its socket: it comes into being with its first request
WEB = "web.service"
PORTS = {NGINX: 80, WEB: 8081}
UNITS = {
    "web.socket": f"[Socket]\nListenStream=127.0.0.1:{PORTS[WEB]}\n",
    WEB: """[Service]
ExecStart=/usr/bin/python3 -c "import http.server, socket; s = http.server.ThreadingHTTPServer(('', 0), \
http.server.SimpleHTTPRequestHandler, False); s.socket = socket.socket(fileno=3); s.serve_forever()"
WorkingDirectory=/usr/share/doc/systemd
StandardError=null
""",
}
THRESHOLDS = {NGINX: "slow: requests.server.firstByte.p99 > 20s over 10s for 2s",
              WEB: "fast: requests.server.rate > 1000000 over 10s for 2s"}
SERVICES = {"qosd.service": "active", "qosd.socket": "active", "qosd-root.socket": "active",
            "qosd-listening.socket": "active", "qosd-actions.socket": "active", "qosd-statistics.socket": "active",
            "qosd-exporter.socket": "active", "qosd-report.socket": "inactive"}
PACKAGES = "qosd", "qosd-exporter", "qos-balance", "libqosd0", "libqosd-dev"
# What changes by itself, or whenever any package is installed
VOLATILE = ("/var/log", "/var/cache", "/var/lib/apt", "/var/lib/dpkg", "/var/lib/qosd-build", "/var/lib/systemd/timers",
            "/var/lib/systemd/random-seed", "/var/lib/private", "/var/tmp", "/tmp", "/etc/ld.so.cache", "/etc/passwd-",
            "/etc/group-", "/etc/shadow-",
            "/etc/gshadow-", "/etc/.pwd.lock", "/usr/src/qosd", "/var/lib/nginx", "/root", "/var/lib/systemd/catalog")
FAILED = []
DEADLINE = 60


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def equal(got, expected, what):
    check(got == expected, f"{what}: {got!r}, expected {expected!r}")


def run(*command, ok=True, **more):
    r = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    check(not ok or r.returncode == 0, f"{' '.join(command)}: exit status {r.returncode}: {r.stdout}{r.stderr}")
    return r.stdout


def wait_for(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        check(time.monotonic() < end, f"not within {DEADLINE} s: {what}")
        time.sleep(.1)


def apt(*words):
    run("apt-get", "-y", "--no-install-recommends", *words, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def install(directory):
    apt("install", "--allow-downgrades", *glob.glob(f"{directory}/*.deb"))


def version():
    return run("dpkg-query", "--show", "--showformat=${Version}", "qosd")


def snapshot():
    """Every file of the system with its type, mode, owner and size, or its target; and what of qosd is in volatile file
    systems."""
    found = {}
    for base, directories, files in os.walk("/", topdown=True):
        directories[:] = [d for d in directories if not os.path.ismount(os.path.join(base, d))
                          and os.path.join(base, d) not in VOLATILE]
        for name in directories + files:
            path = os.path.join(base, name)
            if path in VOLATILE or path.endswith(".pyc") or name == "__pycache__":
                continue
            s = os.lstat(path)
            found[path] = (stat.filemode(s.st_mode), s.st_uid, s.st_gid,
                           os.readlink(path) if stat.S_ISLNK(s.st_mode) else s.st_size if stat.S_ISREG(s.st_mode)
                           else 0)
    for base in "/run", "/sys/fs/bpf", "/dev/shm":
        for path in glob.glob(f"{base}/**", recursive=True):
            if "qos" in path or base == "/sys/fs/bpf":
                found[path] = ()
    found["/run/varlink"] = os.path.exists("/run/varlink")
    for database in "passwd", "group", "shadow", "gshadow":
        with open(f"/etc/{database}") as f:
            found[f"/etc/{database}: lines"] = f.read()
    return found


def installed():
    return set(run("dpkg-query", "--show", "--showformat=${binary:Package} ${db:Status-Status}\n").splitlines())


def difference(before, after, others):
    """What has changed but for the files of other packages."""
    files = set(run("dpkg-query", "--listfiles", *(p.split()[0] for p in others)).splitlines()) if others else ()
    return [f"{path}: {before.get(path)} before, {after.get(path)} after"
            for path in sorted(before.keys() | after.keys())
            if before.get(path) != after.get(path) and path not in files]


class Load:
    """Requests on two connections to each unit, one of them a new one for each request, until it is stopped."""

    def __init__(self):
        self.done = dict.fromkeys(PORTS, 0)
        self.lock = threading.Lock()
        self.stopped = False
        self.failures = []
        self.threads = [threading.Thread(target=self.requests, args=(unit, keep)) for unit in PORTS
                        for keep in (True, False)]
        for t in self.threads:
            t.start()

    def requests(self, unit, keep):
        connection = None
        try:
            while not self.stopped:
                connection = connection or http.client.HTTPConnection("127.0.0.1", PORTS[unit], timeout=30)
                connection.request("GET", "/")
                response = connection.getresponse()
                response.read()
                check(response.status == 200, f"{unit}: status {response.status}")
                with self.lock:
                    self.done[unit] += 1
                if not keep or response.will_close:
                    connection.close()
                    connection = None
        except Exception as e:  # Whatever it is, the main thread reports it
            self.failures.append(f"{unit}: {e!r}")

    def stop(self):
        self.stopped = True
        for t in self.threads:
            t.join()
        equal(self.failures, [], "failures of clients")
        return self.done


def listed(verb):
    return [json.loads(line) for line in run("qosctl", verb, "--json=short").splitlines()]


def totals():
    return {unit: json.loads(run("qosctl", "show", unit, "--window=total",
                                 "--json=short"))["requests"]["server"]["count"] for unit in PORTS}


def holds():
    """The holds of each unit, and since when it is attached."""
    return {u["snapshot"]["unit"]: (u["holds"], u["snapshot"]["attachedSince"]) for u in listed("list")}


def thresholds():
    return sorted((t["unit"], t["threshold"]) for t in listed("list-thresholds"))


def failed():
    return sorted(line.split()[1] for line in run("systemctl", "--failed", "--no-legend").splitlines())


def check_services():
    for unit, state in SERVICES.items():
        equal(run("systemctl", "is-active", unit, ok=False).strip(), state, f"state of {unit}")
    equal(run("systemctl", "is-enabled", "qosd.service").strip(), "enabled", "qosd.service")
    equal(failed(), FAILED, "failed units")
    equal(os.readlink("/run/varlink/registry/org.qosd.QoS"), "/run/qosd/org.qosd.QoS", "link in the registry")


def check_gone():
    for unit in SERVICES:
        state = run("systemctl", "show", "-PLoadState", "-PActiveState", "--value", unit).split()
        equal(sorted(state), ["inactive", "not-found"], unit)


def exporter():
    connection = http.client.HTTPConnection("127.0.0.1", 10478, timeout=30)
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    text = response.read().decode()
    equal(response.status, 200, "status of the exporter")
    return text


def fresh(directory):
    """Installs, attaches, and counts."""
    install(directory)
    check_services()
    equal(pwd.getpwnam("qosd").pw_shell, "/usr/sbin/nologin", "shell of the user")
    check("qos-balance" in run("qos-balance", "--help"), "qos-balance --help")
    equal(run("qosctl", "list", "--no-legend"), "", "units before the first attach")

    run("qosctl", "attach", NGINX)
    # By its unit file, before its service is there
    run("qosctl", "enable", "--now", WEB)
    for unit, rule in THRESHOLDS.items():
        run("qosctl", "set-threshold", unit, rule)
    load = Load()
    wait_for(lambda: min(load.done.values()) >= 100, "100 requests")
    done = load.stop()
    equal(totals(), done, "requests")
    text = exporter()
    for unit in PORTS:
        check(f'unit="{unit}"' in text, f"{unit} is not exported")
    return done


def exchange(directory, done):
    """Other packages over those that are installed, with requests before, during and after that; returns all requests
    so far."""
    before, rules, old = holds(), thresholds(), version()
    equal(before.keys(), PORTS.keys(), "units")
    equal(len(rules), len(PORTS), "number of thresholds")
    pid = run("systemctl", "show", "--value", "-PMainPID", "qosd.service")
    load = Load()
    wait_for(lambda: min(load.done.values()) >= 50, "50 requests")
    install(directory)
    check(version() != old, f"{old} is still there")
    check(run("systemctl", "show", "--value", "-PMainPID", "qosd.service") != pid, "qosd was not restarted")
    during = dict(load.done)
    wait_for(lambda: all(load.done[unit] >= during[unit] + 50 for unit in PORTS), "50 more requests")
    more = load.stop()
    check_services()
    equal(holds(), before, "what is attached")
    equal(thresholds(), rules, "thresholds")
    done = {unit: done[unit] + more[unit] for unit in PORTS}
    equal(totals(), done, f"requests, with {version()} instead of {old}")
    print(f"  {old} -> {version()}: {more} requests meanwhile, {done} in total", flush=True)
    return done


def main():
    packages, previous = sys.argv[1:]
    for name, text in UNITS.items():
        with open(f"/etc/systemd/system/{name}", "w") as f:
            f.write(text)
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "web.socket", NGINX)
    # Not all of a system's own units work in a container
    FAILED.extend(failed())
    before, had = snapshot(), installed()

    print("Install", flush=True)
    done = fresh(previous)
    print("Upgrade", flush=True)
    done = exchange(packages, done)
    print("Downgrade", flush=True)
    done = exchange(previous, done)

    print("Remove", flush=True)
    run("systemctl", "enable", "--now", "qosd-report.socket")
    apt("remove", *PACKAGES)
    check_gone()
    equal([p for p in ("/run/qosd", "/run/varlink/registry/org.qosd.QoS", "/run/systemd/report/org.qosd")
           if os.path.lexists(p)], [], "what is left after removal")
    with socket.create_connection(("127.0.0.1", PORTS[NGINX])):
        pass
    check(os.path.exists(f"/etc/systemd/system/{WEB}.d/50-qos.conf"),
          "configuration goes with a purge, and not with a removal")

    print("Install again", flush=True)
    install(packages)
    check_services()
    wait_for(lambda: WEB in run("qosctl", "list", "--no-legend"), f"{WEB} is attached by its unit file")

    print("Purge", flush=True)
    apt("purge", "--auto-remove", *PACKAGES)
    # Libraries that others recommend are not removed with those that needed them
    others = installed() - had
    equal([p for p in others if "qos" in p], [], "packages after a purge")
    equal(difference(before, snapshot(), others), [], "what is left after a purge")
    check_gone()

    print("Install from source, as README.md says, and remove that", flush=True)
    equal(source.test(run, snapshot, difference, wait_for), [], "what is left of the installation from source")
    print("The packages are as they should be.", flush=True)


if __name__ == "__main__":
    main()
