/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdio.h>

#include "mount-server.h"
#include "util.h"

int mount_server_read(const MountLine *mount, uint64_t *ret_round_trips, uint64_t *ret_nsec) {
        _cleanup_free_ char *line = NULL;
        uint64_t operations = 0, nsec = 0;
        bool here = false, counted = false;
        size_t size = 0;
        FILE *f;

        f = fopen("/proc/self/mountstats", "re");
        if (!f)
                return -errno;
        while (getline(&line, &size, f) > 0) {
                unsigned long long n, msec;
                const char *point;
                int end = 0;

                point = strstr(line, " mounted on ");
                if (startswith(line, "device ") && point) {
                        if (here)
                                break;
                        point += strlen(" mounted on ");
                        here = strncmp(point, mount->point, strlen(mount->point)) == 0 &&
                               startswith(point + strlen(mount->point), " with fstype nfs");
                        continue;
                }
                /* READ: operations, transmissions, timeouts, bytes sent and received, ms in the queue, until
                 * the response, and of all */
                if (here && sscanf(line, " %*[A-Z_0-9]: %llu %*u %*u %*u %*u %*u %llu %*u%n", &n, &msec,
                                   &end) == 2 && end > 0) {
                        operations += n;
                        nsec += msec * NSEC_PER_MSEC;
                        counted = true;
                }
        }
        (void) fclose(f);
        if (!counted)
                return -ENOENT;
        *ret_round_trips = operations;
        *ret_nsec = nsec;
        return 0;
}
