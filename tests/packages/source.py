# SPDX-License-Identifier: LGPL-2.1-or-later
"""The installation from source, with the commands of README.md as they stand there, and without what packages
recommend: everything runs, and nothing is left after the commands that remove it."""

import os
import re
import shutil
import subprocess
import tempfile

CHECKOUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def read_commands():
    """The commands of the section, as one list for each block."""
    with open(os.path.join(CHECKOUT, "README.md")) as f:
        section = f.read().split("### From source\n")[1].split("\n## ")[0]
    return [block.splitlines() for block in re.findall(r"^```\n(.*?)^```", section, re.M | re.S)]


def shell(commands, directory):
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "APT_CONFIG": os.path.join(directory, "apt.conf")}
    r = subprocess.run(["bash", "-euxc", "\n".join(commands)], cwd=directory, env=environment, capture_output=True,
                       text=True, timeout=1500)
    assert r.returncode == 0, f"exit status {r.returncode} of {commands}: {r.stdout[-2000:]}{r.stderr[-2000:]}"


def copy_source(directory):
    for name in os.listdir(CHECKOUT):
        path = os.path.join(CHECKOUT, name)
        if os.path.isdir(path):
            shutil.copytree(path, os.path.join(directory, name), symlinks=True)
        else:
            shutil.copy(path, directory)


def test(run, snapshot, difference, wait_for):
    (requirements, *commands), removal = read_commands()
    with tempfile.TemporaryDirectory(prefix="qosd-source-", dir="/var/tmp") as directory:
        copy_source(directory)
        with open(os.path.join(directory, "apt.conf"), "w") as f:
            f.write('APT::Install-Recommends "false";\nAPT::Get::Assume-Yes "true";\n')
        shell([requirements], directory)
        before = snapshot()
        shell(commands, directory)

        # Programs find the library, and compilers do
        run("qos-balance", "--help")
        run("pkg-config", "--exists", "libqosd")
        run("qosctl", "attach", "nginx")
        run("python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1/').read()")
        wait_for(lambda: run("qosctl", "show", "nginx", "-P", "requests.server.count", "--value",
                             "--window=total").strip() == "1",
                 "the request is counted")

        shell(removal, directory)
        return difference(before, snapshot(), ())
