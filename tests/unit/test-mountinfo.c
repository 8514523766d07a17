/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Where a file lies for qosd that others have at another path. */

#include "util.h"

#include "check.h"
#include "mountinfo.h"

static void expect_file(const char *names, size_t size, const char *want) {
        _cleanup_free_ char *path = NULL;

        check((mounts_file_path(names, size, &path) >= 0) == !!want);
        check(!want || streq(path, want));
}

static void expect_found(const char *line, unsigned major, unsigned minor, const char *file,
                         const char *want) {
        _cleanup_free_ char *path = NULL;

        check((mounts_line_find(line, major << 20 | minor, file, &path) >= 0) == !!want);
        check(!want || streq(path, want));
}

static void expect_line(const char *line, uint32_t device, bool whole, const char *want) {
        _cleanup_mount_line_ MountLine m = {};

        check((mounts_line_parse(line, &m) >= 0) == !!want);
        check(!want || (m.device == device && m.whole == whole && streq(m.point, want) && !m.remote));
}

static void expect_remote(const char *source, const char *want) {
        _cleanup_mount_line_ MountLine m = {};
        char line[256];

        (void) snprintf(line, sizeof(line), "40 35 0:52 / /srv rw shared:1 - nfs4 %s rw,addr=::1\n", source);
        check(mounts_line_parse(line, &m) >= 0 && streq(m.point, "/srv"));
        check(want ? streq_ptr(m.remote, want) : !m.remote);
}

int main(int argc, char *argv[]) {
        static const char all[] = "36 35 98:1 / / rw,noatime master:1 - ext4 /dev/root rw,errors=continue\n";
        static const char part[] = "40 35 98:1 /srv/other\\040root /mnt/a\\134b rw - ext4 /dev/root rw\n";

        expect_file("libssl.so\0lib\0usr", 18, "/usr/lib/libssl.so");
        expect_file("x", 2, "/x");
        expect_file("x", 1, NULL);
        expect_file("", 0, NULL);
        expect_file("x\0\0y", 5, NULL);

        expect_found(all, 98, 1, "/usr/lib/libssl.so", "/usr/lib/libssl.so");
        expect_found(all, 98, 2, "/usr/lib/libssl.so", NULL);
        expect_found(part, 98, 1, "/srv/other root/lib/libssl.so", "/mnt/a\\b/lib/libssl.so");
        expect_found(part, 98, 1, "/srv/other root", "/mnt/a\\b");
        expect_found(part, 98, 1, "/srv/other roots/lib", NULL);
        expect_found(part, 98, 1, "/srv", NULL);
        expect_found("40 35 0:3 /var/root / rw - btrfs x rw\n", 0, 3, "/var/root/a", "/a");
        expect_found("40 35 0:3 net:[1] /run/ns rw - nsfs x rw\n", 0, 3, "/a", NULL);
        expect_found("40 35 0:3 /", 0, 3, "/a", NULL);
        expect_found("40 35 0:3", 0, 3, "/a", NULL);
        expect_found("nonsense", 0, 3, "/a", NULL);

        expect_line(all, 98 << 20 | 1, true, "/");
        expect_line(part, 98 << 20 | 1, false, "/mnt/a\\134b");
        expect_line("40 35 0:3 / /a\x1b[31m\x7f\xc2\x9b" "b rw - tmpfs x rw\n", 3, true,
                    "/a\\033[31m\\177\\302\\233b");
        expect_line("40 35 0:3 / /\xc3\xa4\xff rw - tmpfs x rw\n", 3, true, "/\xc3\xa4?");
        expect_remote("files.example:/export/a\\040b", "files.example:/export/a\\040b");
        expect_remote("[fe80::1]:/\x1b[31m", "[fe80::1]:/\\033[31m");
        expect_remote("//files/share", "//files/share");
        expect_remote("/dev/disk/by-path/pci-0000:00:1f.2", NULL);
        expect_remote("tmpfs", NULL);
        expect_line("40 35 0:3 net:[1] /run/ns rw - nsfs x rw\n", 0, false, NULL);
        expect_line("40 35 0:3 /", 0, false, NULL);
        expect_line("nonsense", 0, false, NULL);
        return EXIT_SUCCESS;
}
