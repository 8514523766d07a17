/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "log.h"
#include "varlink-listen.h"

/* Time until the next attempt to accept connections after an error, such as a lack of descriptors. */
#define RETRY_USEC USEC_PER_SEC

/* Extended attribute by which "varlinkctl list-sockets" finds sockets, supported since Linux 7.0. Its value
 * is "entrypoint" for the socket in the file system. */
#define ROLE_XATTR "user.varlink"

struct VarlinkListener {
        int fd;
        sd_event_source *io;
        sd_event_source *retry;
        Turn turn;                      /* without a queue for the socket of root */
        void (*accepted)(int fd, void *userdata);
        void *userdata;
};

/* Accepts connections for the time of a turn. 1: more may be pending; 0: none is. */
static int listener_accept(VarlinkListener *l) {
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);

        do {
                int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK|SOCK_CLOEXEC);

                if (fd >= 0) {
                        (void) fsetxattr(fd, ROLE_XATTR, "server", strlen("server"), 0);
                        l->accepted(fd, l->userdata);
                } else if (errno == EAGAIN)
                        return 0;
                else if (errno != EINTR && errno != ECONNABORTED)
                        return -errno;
        } while (now_nsec(CLOCK_MONOTONIC) < begin + TURN_NSEC);
        return 1;
}

static void listener_pause(VarlinkListener *l, int error) {
        (void) log_warning_errno(error, "Failed to accept a connection, trying again in a second: %m");
        (void) sd_event_source_set_enabled(l->io, SD_EVENT_OFF);
        if (sd_event_source_set_time_relative(l->retry, RETRY_USEC) >= 0)
                (void) sd_event_source_set_enabled(l->retry, SD_EVENT_ONESHOT);
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata) {
        VarlinkListener *l = ASSERT_PTR(userdata);

        return sd_event_source_set_enabled(l->io, SD_EVENT_ON);
}

static void on_turn(void *userdata) {
        VarlinkListener *l = ASSERT_PTR(userdata);
        int r;

        r = listener_accept(l);
        if (r > 0)
                r = turn_request(&l->turn);
        else if (r == 0)
                r = sd_event_source_set_enabled(l->io, SD_EVENT_ON);
        if (r < 0)
                listener_pause(l, r);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        VarlinkListener *l = ASSERT_PTR(userdata);
        int r;

        if (!l->turn.queue)
                r = listener_accept(l);
        else {
                /* The event loop must not wake up for the socket until then */
                (void) sd_event_source_set_enabled(s, SD_EVENT_OFF);
                r = turn_request(&l->turn);
        }
        if (r < 0)
                listener_pause(l, r);
        return 0;
}

int varlink_listener_new(sd_event *event, TurnQueue *turns, int fd,
                         void (*accepted)(int fd, void *userdata), void *userdata, VarlinkListener **ret) {
        VarlinkListener *l;
        int flags, r;

        l = new0(VarlinkListener, 1);
        if (!l) {
                (void) close_fd(fd);
                return -ENOMEM;
        }
        *l = (VarlinkListener) {
                .fd = fd,
                .accepted = accepted,
                .userdata = userdata,
        };
        (void) fsetxattr(fd, ROLE_XATTR, "listen", strlen("listen"), 0);
        flags = fcntl(fd, F_GETFL);
        r = flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
        if (r >= 0 && turns)
                r = turn_init(&l->turn, turns, TURN_UID_UNKNOWN, on_turn, l);
        if (r >= 0)
                r = sd_event_add_time(event, &l->retry, CLOCK_MONOTONIC, 0, 0, on_retry, l);
        if (r >= 0)
                r = sd_event_source_set_enabled(l->retry, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_event_add_io(event, &l->io, fd, EPOLLIN, on_io, l);
        if (r >= 0)
                r = sd_event_source_set_priority(l->io, turns ? SD_EVENT_PRIORITY_NORMAL : PRIORITY_ROOT);
        if (r < 0) {
                varlink_listener_free(l);
                return r;
        }

        *ret = l;
        return 0;
}

VarlinkListener* varlink_listener_free(VarlinkListener *l) {
        if (!l)
                return NULL;

        sd_event_source_disable_unref(l->io);
        sd_event_source_disable_unref(l->retry);
        turn_done(&l->turn);
        (void) close_fd(l->fd);
        free(l);
        return NULL;
}

int varlink_listen_at(const char *path, mode_t mode) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        _cleanup_close_ int fd = -EBADF;
        mode_t mask;
        int r;

        if (strlen(path) >= sizeof(sa.sun_path))
                return -ENAMETOOLONG;
        strcpy(sa.sun_path, path);
        fd = socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -errno;
        (void) unlink(path);
        mask = umask(~mode & 0777);
        r = bind(fd, (const struct sockaddr*) &sa, sizeof(sa)) < 0 ? -errno : 0;
        (void) umask(mask);
        if (r >= 0)
                (void) setxattr(path, ROLE_XATTR, "entrypoint", strlen("entrypoint"), 0);
        if (r >= 0 && listen(fd, SOMAXCONN) < 0)
                r = -errno;
        return r < 0 ? r : TAKE_FD(fd);
}
