/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "run-time.h"
#include "statistics-socket.h"
#include "util.h"

struct RunTime {
        sd_event *event;
        sd_event_source *io;            /* of the connection; NULL: none */
        bool awaited;                   /* a response */
        run_time_handler_t handler;
        void *userdata;
};

static void run_time_disconnect(RunTime *t) {
        t->io = sd_event_source_disable_unref(t->io);
        t->awaited = false;
}

static int on_response(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        RunTime *t = ASSERT_PTR(userdata);
        bool awaited = t->awaited;
        int response;
        ssize_t n;

        n = recv(fd, &response, sizeof(response), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n != sizeof(response)) {
                response = n < 0 ? -errno : -ECONNRESET;
                run_time_disconnect(t);
        }
        t->awaited = false;
        if (awaited)
                t->handler(response, t->userdata);
        return 0;
}

static int run_time_connect(RunTime *t) {
        static const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = STATISTICS_SOCKET };
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        int r;

        if (fd < 0 || connect(fd, (const struct sockaddr*) &address, sizeof(address)) < 0)
                return -errno;
        r = sd_event_add_io(t->event, &t->io, fd, EPOLLIN, on_response, t);
        if (r < 0)
                return r;
        (void) sd_event_source_set_io_fd_own(t->io, true);
        TAKE_FD(fd);
        return 0;
}

static int run_time_send(RunTime *t, char request) {
        return send(sd_event_source_get_io_fd(t->io), &request, sizeof(request), MSG_NOSIGNAL) < 0 ? -errno :
                                                                                                    0;
}

int run_time_begin(RunTime *t) {
        int r;

        r = t->io ? 0 : run_time_connect(t);
        if (r >= 0)
                r = run_time_send(t, STATISTICS_BEGIN);
        t->awaited = r >= 0;
        if (r < 0)
                run_time_disconnect(t);
        return r;
}

/* While a response is outstanding, the connection has to be closed: the response would be taken for that to
 * the next request. */
void run_time_end(RunTime *t) {
        if (t->io && (t->awaited || run_time_send(t, STATISTICS_END) < 0))
                run_time_disconnect(t);
}

int run_time_new(sd_event *event, run_time_handler_t handler, void *userdata, RunTime **ret) {
        RunTime *t = new0(RunTime, 1);

        if (!t)
                return -ENOMEM;
        *t = (RunTime) { .event = event, .handler = handler, .userdata = userdata };
        *ret = t;
        return 0;
}

RunTime* run_time_free(RunTime *t) {
        if (!t)
                return NULL;

        run_time_disconnect(t);
        free(t);
        return NULL;
}
