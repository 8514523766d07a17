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
def loop_device(image):
    """A block device with the contents of the image. Yields its path."""
    subprocess.run(["modprobe", "-q", "loop"], check=False)
    make_node("/dev/loop-control", stat.S_IFCHR, 10, 237)
    for i in range(8):
        make_node(f"/dev/loop{i}", stat.S_IFBLK, 7, i)
    device = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True,
                            text=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@contextlib.contextmanager
def mounted(device, fs_type="ext4"):
    """Mounts the block device, with a file system of that type on it. Yields where."""
    point = f"/var/tmp/{scenario.prefix}.mount"
    os.makedirs(point)
    try:
        subprocess.run(["mount", "-t", fs_type, device, point], check=True)
        try:
            yield point
        finally:
            # A unit may still be there
            subprocess.run(["umount", "-l", point], check=True)
    finally:
        os.rmdir(point)


@contextlib.contextmanager
def image(size, fs_type=None):
    """A file of that size, maybe with a file system on it. Yields its path."""
    path = f"/var/tmp/{scenario.prefix}.image"
    with open(path, "wb") as f:
        f.truncate(size)
    try:
        if fs_type:
            subprocess.run([f"mkfs.{fs_type}", "-q", path], check=True)
        yield path
    finally:
        os.unlink(path)


@contextlib.contextmanager
def slow_disk(**sleeps):
    """ext4 on a device whose image is a file of slow_files(). Yields where it is mounted, and the device."""
    with image(16 << 20) as path:
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", "1024", "-J", "size=4", path], check=True)
        with slow_files(**sleeps) as directory:
            with open(path, "rb") as f, open(directory + "/image", "wb") as to:
                while data := f.read(1 << 20):
                    to.write(data)
            with loop_device(directory + "/image") as device, mounted(device) as point:
                yield point, os.path.basename(device)
