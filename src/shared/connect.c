/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "connect.h"

int unix_connect(const char *path, uint64_t timeout_usec) {
        struct timeval timeout = {
                .tv_sec = (time_t) (timeout_usec / USEC_PER_SEC),
                .tv_usec = (suseconds_t) (timeout_usec % USEC_PER_SEC),
        };
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = -EBADF;

        if (strlen(path) >= sizeof(sa.sun_path))
                return -ENAMETOOLONG;
        strcpy(sa.sun_path, path);
        fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|(timeout_usec > 0 ? 0 : SOCK_NONBLOCK), 0);
        if (fd < 0)
                return -errno;
        /* SO_SNDTIMEO is the timeout of connect() as well */
        if (timeout_usec > 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
                return -errno;
        while (connect(fd, (const struct sockaddr*) &sa, sizeof(sa)) < 0)
                if (errno != EINTR)
                        return -errno;
        return TAKE_FD(fd);
}
