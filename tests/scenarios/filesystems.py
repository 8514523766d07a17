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
def mounted(device, fs_type="ext4", options="defaults"):
    """Mounts the block device, with a file system of that type on it. Yields where."""
    point = f"/var/tmp/{scenario.prefix}.mount"
    os.makedirs(point)
    try:
        subprocess.run(["mount", "-t", fs_type, "-o", options, device, point], check=True)
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


@contextlib.contextmanager
def mapped(image, table):
    """A device of the device mapper on the image, by its target. Yields its path."""
    for module in "dm_mod", "dm_delay":
        subprocess.run(["modprobe", "-q", module], check=False)
    name = f"{scenario.prefix}-mapped"
    with loop_device(image) as device:
        subprocess.run(["dmsetup", "create", name, "--table",
                        f"0 {os.path.getsize(image) // 512} {table.format(device=device)}"], check=True)
        try:
            yield f"/dev/mapper/{name}"
        finally:
            subprocess.run(["dmsetup", "remove", "--retry", name], check=True)


@contextlib.contextmanager
def mounted_nfs():
    """A directory that this machine exports, mounted from itself. Yields where, what, and functions after which
    packets to the server are dropped, and arrive again."""
    export, point = f"/var/tmp/{scenario.prefix}.export", f"/var/tmp/{scenario.prefix}.nfs"
    os.makedirs(export)
    os.makedirs(point)

    def packets(action):
        subprocess.run(["iptables", action, "INPUT", "-p", "tcp", "--dport", "2049", "-j", "DROP"], check=True)

    subprocess.run(["mount", "-t", "tmpfs", "none", export], check=True)
    subprocess.run(["systemctl", "start", "nfs-server.service"], check=True)
    try:
        subprocess.run(["exportfs", "-o", "rw,no_root_squash,insecure,fsid=77", f"127.0.0.1:{export}"], check=True)
        subprocess.run(["mount", "-t", "nfs4", f"127.0.0.1:{export}", point], check=True)
        try:
            yield point, f"127.0.0.1:{export}", lambda: packets("-I"), lambda: packets("-D")
        finally:
            subprocess.run(["iptables", "-F", "INPUT"], check=True)
            subprocess.run(["umount", "-f", "-l", point], check=False)
    finally:
        subprocess.run(["exportfs", "-u", f"127.0.0.1:{export}"], check=False)
        subprocess.run(["systemctl", "stop", "nfs-server.service"], check=False)
        subprocess.run(["umount", "-l", export], check=False)
        os.rmdir(point)
        os.rmdir(export)
