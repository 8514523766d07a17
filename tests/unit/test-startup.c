/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Readiness is reported once: when it is reached, or when the ordering timeout is near. */

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "startup.h"

int main(void) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        char path[sizeof(sa.sun_path)], buf[64];
        socklen_t l;
        ssize_t n;
        int fd;

        fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC, 0);
        check(fd >= 0);
        (void) snprintf(path, sizeof(path), "@test-ready-%i", (int) getpid());
        l = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(path));
        memcpy(sa.sun_path + 1, path + 1, strlen(path + 1));
        check(bind(fd, (struct sockaddr*) &sa, l) >= 0);
        check(setenv("NOTIFY_SOCKET", path, 1) >= 0);

        /* It is reported although nothing happens; the timeout of the test ends a hang */
        check(ready_watch(1) >= 0);
        n = recv(fd, buf, sizeof(buf), 0);
        check(n == (ssize_t) strlen("READY=1") && memcmp(buf, "READY=1", (size_t) n) == 0);

        /* and not a second time */
        check(!ready_notify());
        check(recv(fd, buf, sizeof(buf), MSG_DONTWAIT) < 0 && errno == EAGAIN);
        return EXIT_SUCCESS;
}
