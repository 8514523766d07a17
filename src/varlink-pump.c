/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "log.h"
#include "varlink-pump.h"

struct VarlinkPump {
        sd_varlink *link;               /* no reference: the pump ends with the connection */
        int fd;                         /* the link's */
        sd_event_source *io;
        sd_event_source *again;         /* NULL: there is no next step yet */
        uint64_t unread_since;          /* since when there is something to be written, and nothing leaves, CLOCK_MONOTONIC usec; 0: there is not */
        sd_event_source *unread;        /* fires no later than that has been so for too long */
        size_t unfinished;              /* bytes of the message whose end has not been seen */
        bool *freed;                    /* set when the pump ends within its own callback */
};

VarlinkPump* varlink_pump_free(VarlinkPump *p) {
        if (!p)
                return NULL;

        if (p->freed)
                *p->freed = true;
        sd_event_source_disable_unref(p->io);
        sd_event_source_disable_unref(p->again);
        sd_event_source_disable_unref(p->unread);
        free(p);
        return NULL;
}

/* Looks at what has come in since the last time: the socket keeps a position for those who only look. What comes in
 * between this and the library's read is not seen, which is too short a time to make much of. */
static int pump_measure(VarlinkPump *p) {
        char buffer[4096];

        for (;;) {
                const char *end;
                ssize_t n;

                n = recv(p->fd, buffer, sizeof(buffer), MSG_PEEK|MSG_DONTWAIT);
                if (n < 0)
                        return errno == EAGAIN ? 0 : -errno;
                if (n == 0)
                        return 0;

                end = memrchr(buffer, 0, n);
                p->unfinished = end ? (size_t) (buffer + n - (end + 1)) : p->unfinished + n;
                if (p->unfinished > VARLINK_MESSAGE_MAX)
                        return -EMSGSIZE;
        }
}

/* 0: not before something happens on the socket. */
static int pump_may_process(VarlinkPump *p) {
        struct pollfd pollfd = { .fd = p->fd, .events = POLLOUT };
        int events, r;

        events = sd_varlink_get_events(p->link);
        if (events < 0)
                return events;

        if (poll(&pollfd, 1, 0) < 0)
                return -errno;

        /* The client is gone, or has shut down its receiving side, which poll() does not report: its remaining
         * requests are not served, the library would serve them all and keep the replies */
        if (pollfd.revents & (POLLHUP|POLLERR))
                return -ECONNRESET;
        if (send(p->fd, NULL, 0, MSG_NOSIGNAL|MSG_DONTWAIT) < 0)
                return -errno;

        /* Replies first. If they cannot be written, then the library would go on and read */
        if (events & EPOLLOUT) {
                if (!(pollfd.revents & POLLOUT))
                        return 0;
                p->unread_since = 0;
                return 1;
        }

        r = pump_measure(p);
        return r < 0 ? r : 1;
}

static int on_again(sd_event_source *s, void *userdata);

static int pump_process(VarlinkPump *p) {
        _cleanup_(sd_varlink_unrefp) sd_varlink *link = sd_varlink_ref(p->link);
        bool freed = false;
        int r;

        r = pump_may_process(p);
        if (r == 0)
                return 0;
        if (r > 0) {
                p->freed = &freed;
                r = sd_varlink_process(link);
                if (freed)
                        return 0;
                p->freed = NULL;
        }
        if (r < 0) {
                (void) log_debug_errno(r, "Ending a varlink connection: %m");
                (void) sd_varlink_close(link);
                return 0;
        }

        /* One step at a time, so that a busy client does not keep the others waiting. With a new event source each time: a defer source
         * counts as pending since it was made, and sd-event dispatches what has been pending for longest. */
        if (r > 0 && !p->again)
                return sd_event_add_defer(sd_event_source_get_event(p->io), &p->again, on_again, p);
        return 0;
}

void varlink_pump_flush(VarlinkPump *p) {
        int events;

        assert(p);

        events = sd_varlink_get_events(p->link);
        if (events > 0 && events & EPOLLOUT)
                (void) pump_process(p);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        return pump_process(ASSERT_PTR(userdata));
}

static int on_again(sd_event_source *s, void *userdata) {
        VarlinkPump *p = ASSERT_PTR(userdata);

        p->again = sd_event_source_disable_unref(p->again);
        return pump_process(p);
}

static int on_unread(sd_event_source *s, uint64_t usec, void *userdata) {
        VarlinkPump *p = ASSERT_PTR(userdata);
        _cleanup_(sd_varlink_unrefp) sd_varlink *link = sd_varlink_ref(p->link);

        if (p->unread_since == 0)
                return 0;
        if (now_usec(CLOCK_MONOTONIC) < p->unread_since + UNREAD_USEC) {
                (void) sd_event_source_set_time(s, p->unread_since + UNREAD_USEC);
                (void) sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
                return 0;
        }
        log_notice("A client has not read its replies for %llu s, it is cut off.", (unsigned long long) (UNREAD_USEC / USEC_PER_SEC));
        (void) sd_varlink_close(link);
        return 0;
}

static int on_prepare(sd_event_source *s, void *userdata) {
        VarlinkPump *p = ASSERT_PTR(userdata);
        int events, enabled;

        events = sd_varlink_get_events(p->link);
        if (events < 0)
                return events;

        if (!(events & EPOLLOUT))
                p->unread_since = 0;
        else if (p->unread_since == 0) {
                p->unread_since = now_usec(CLOCK_MONOTONIC);
                /* Each reply is unread for a moment: that is not worth setting a timer again */
                if (sd_event_source_get_enabled(p->unread, &enabled) >= 0 && enabled == SD_EVENT_OFF) {
                        (void) sd_event_source_set_time(p->unread, p->unread_since + UNREAD_USEC);
                        (void) sd_event_source_set_enabled(p->unread, SD_EVENT_ONESHOT);
                }
        }

        /* What is not to be handled yet must not wake us up, and what has its next step coming gets no second one */
        if (p->again)
                events = 0;
        return sd_event_source_set_io_events(s, events & EPOLLOUT ? EPOLLOUT : (uint32_t) events);
}

int varlink_pump_new(sd_event *event, sd_varlink *link, VarlinkPump **ret) {
        const int start = 0;
        VarlinkPump *p;
        int fd, r;

        fd = sd_varlink_get_fd(link);
        if (fd < 0)
                return fd;
        if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &start, sizeof(start)) < 0)
                return -errno;

        p = new0(VarlinkPump, 1);
        if (!p)
                return -ENOMEM;
        *p = (VarlinkPump) {
                .link = link,
                .fd = fd,
        };

        sd_varlink_detach_event(link);
        r = sd_event_add_io(event, &p->io, fd, 0, on_io, p);
        if (r >= 0)
                r = sd_event_source_set_prepare(p->io, on_prepare);
        if (r >= 0)
                r = sd_event_add_time(event, &p->unread, CLOCK_MONOTONIC, 0, USEC_PER_SEC, on_unread, p);
        if (r >= 0)
                r = sd_event_source_set_enabled(p->unread, SD_EVENT_OFF);
        if (r < 0) {
                varlink_pump_free(p);
                return r;
        }

        *ret = p;
        return 0;
}
