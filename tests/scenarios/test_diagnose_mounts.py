# SPDX-License-Identifier: LGPL-2.1-or-later
"""Units that wait for a file system, and what their diagnoses name."""

from diagnosing import FIRST, case, found, prepare, said
from filesystems import slow_disk, slow_files
from scenario import Unit, check, equal, unit_name

# Writes a page, and waits until it is on the disk
SYNCS = """
import os, sys

fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
while True:
    os.pwrite(fd, b"x" * 4096, 0)
    os.fsync(fd)
"""

# Lets each commit of the journal have much to do: names of files, and data that has to be there before
COMMITS = """
import os, sys

while True:
    for i in range(20):
        fd = os.open(f"{sys.argv[1]}.{i}", os.O_CREAT | os.O_WRONLY)
        os.write(fd, bytes(1 << 16))
        os.close(fd)
    os.sync()
    for i in range(20):
        os.unlink(f"{sys.argv[1]}.{i}")
"""

# Looks for files that are not there
SEARCHES = """
import os, sys

i = 0
while True:
    i += 1
    os.path.exists(f"{sys.argv[1]}/{i}")
"""

# Makes and removes files in a directory
CHANGES = """
import os, sys

while True:
    os.close(os.open(sys.argv[1] + "/file", os.O_CREAT))
    os.unlink(sys.argv[1] + "/file")
"""


def program(source, path, name):
    """Starts a unit that executes the source."""
    script = f"/run/{unit_name('script', '.py')}"
    with open(script, "w") as f:
        f.write(source)
    return Unit(f"/usr/bin/python3 {script} {path}", name=unit_name(name), type="exec", settings=FIRST).start()


@case("disk", also=("cpu",))
def journal_of_a_neighbour():
    """A unit waits for commits of the journal of its file system, which another unit fills."""
    prepare()
    with slow_disk(write=2000) as (point, device):
        other, u = program(COMMITS, point + "/other", "other"), program(SYNCS, point + "/own", "syncs")
        d = yield u
        other.stop()
        u.stop()
    f = found(d, "disk")
    equal((f["mount"], f["resource"], f["unit"]), (point, device, other.name),
          f"the file system, its device, and the unit that uses it: {said(d)}")


@case("lock")
def lock_of_a_directory():
    """A unit looks for files in a directory in which another one makes files. The server of that file system takes its
    time, while the kernel has the directory locked."""
    prepare()
    with slow_files(create=50000) as point:
        other, u = program(CHANGES, point, "other"), program(SEARCHES, point, "searches")
        d = yield u
        other.stop()
        u.stop()
    f = found(d, "lock")
    equal(f["mount"], point, f"the file system: {said(d)}")
    check(f["resource"].startswith("lock in ") and "released by python3 (" in f["text"],
          f"the lock and its holder: {f}")
