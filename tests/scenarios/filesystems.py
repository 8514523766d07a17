# SPDX-License-Identifier: LGPL-2.1-or-later
"""File systems that tests make, on devices and servers of their own."""

import contextlib
import os
import stat
import subprocess

import scenario
from scenario import wait_for

SLOWFS = "/var/lib/qosd-build/tests/scenarios/slowfs"


def make_node(path, kind, major, minor):
    """A device node, which a container does not have."""
    if not os.path.exists(path):
        os.mknod(path, 0o600 | kind, os.makedev(major, minor))


@contextlib.contextmanager
def slow_files(**sleeps):
    """A file system of FUSE that sleeps for so many us before it does what is named. Yields where it is mounted."""
    point = f"/var/tmp/{scenario.prefix}.slowfs"
    os.makedirs(point)
    make_node("/dev/fuse", stat.S_IFCHR, 10, 229)
    options = ",".join(["allow_other", *(f"{what}={us}" for what, us in sleeps.items())])
    server = subprocess.Popen([SLOWFS, "-f", "-o", options, point])
    try:
        wait_for("it is mounted", lambda: os.path.ismount(point), 10)
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=False)
        server.terminate()
        server.wait()
        os.rmdir(point)


@contextlib.contextmanager
def mounted(image, fs_type="ext4", options="defaults"):
    """Mounts the image, with a file system of that type on it, by a loop device. Yields where, and the device."""
    make_node("/dev/loop-control", stat.S_IFCHR, 10, 237)
    for i in range(8):
        make_node(f"/dev/loop{i}", stat.S_IFBLK, 7, i)
    point = f"/var/tmp/{scenario.prefix}.mount"
    os.makedirs(point)
    device = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True,
                            text=True).stdout.strip()
    try:
        subprocess.run(["mount", "-t", fs_type, "-o", options, device, point], check=True)
        try:
            yield point, os.path.basename(device)
        finally:
            subprocess.run(["umount", point], check=False)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        os.rmdir(point)


@contextlib.contextmanager
def slow_disk(**sleeps):
    """The same of ext4, on a file of slow_files()."""
    image = f"/var/tmp/{scenario.prefix}.image"
    with open(image, "wb") as f:
        f.truncate(16 << 20)
    try:
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", "1024", "-J", "size=4", image], check=True)
        with slow_files(**sleeps) as directory:
            with open(image, "rb") as f, open(directory + "/image", "wb") as to:
                while data := f.read(1 << 20):
                    to.write(data)
            with mounted(directory + "/image") as found:
                yield found
    finally:
        os.unlink(image)
