/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "log.h"
#include "varlink-io.h"

/* Limit of messages that are written with one system call. */
#define OUTPUT_BATCH 16U

/* A message that is written without the library. */
typedef struct Output {
        VarlinkText *text;              /* beginning, which connections may share */
        char *end;                      /* end, with the terminating NUL byte */
        size_t end_size;
        struct Output *next;
} Output;

struct VarlinkIo {
        VarlinkIoSet *set;
        Turn turn;
        sd_varlink *link;               /* not owned */
        int fd;                         /* socket of the link */
        sd_event_source *io;
        VarlinkIo *touched_before, *touched_next; /* neighbours in the set's list */
        bool touched;
        bool wants_turn;
        bool turn_when_written;         /* the turn is not used while there is output */
        varlink_turn_handler_t handler;
        void *userdata;
        Output *output, *output_last;   /* written before output of the library */
        size_t output_sent;             /* written bytes of the first message */
        uint64_t unread_since;          /* CLOCK_MONOTONIC us since when no output could be written; 0: there
                                         * is no output */
        sd_event_source *unread_timer;  /* fires SLOW_READER_USEC after unread_since, or earlier */
        size_t unfinished;              /* received bytes of an incomplete message */
        size_t received;                /* bytes that count in VarlinkIoSet.received */
        bool *freed;                    /* set if varlink_io_free() is called within io_run() */
};

/* ---- messages that connections share ------------------------------------------------------------ */

struct VarlinkText {
        unsigned n_ref;
        size_t size;
        char data[];
};

VarlinkText* varlink_text_new(const char *s) {
        size_t size = strlen(s);
        VarlinkText *t;

        t = malloc(offsetof(VarlinkText, data) + size);
        if (!t)
                return NULL;
        t->n_ref = 1;
        t->size = size;
        memcpy(t->data, s, size);
        return t;
}

VarlinkText* varlink_text_unref(VarlinkText *t) {
        if (t && --t->n_ref == 0)
                free(t);
        return NULL;
}

static void io_drop_output(VarlinkIo *p) {
        Output *o = p->output;

        p->output = o->next;
        p->output_sent = 0;
        varlink_text_unref(o->text);
        free(o->end);
        free(o);
}

int varlink_io_send(VarlinkIo *p, VarlinkText *begin, const char *end) {
        Output *o;

        o = new0(Output, 1);
        if (!o)
                return -ENOMEM;
        o->end_size = strlen(end) + 1;
        o->end = strdup(end);
        if (!o->end) {
                free(o);
                return -ENOMEM;
        }
        begin->n_ref++;
        o->text = begin;
        *(p->output ? &p->output_last->next : &p->output) = o;
        p->output_last = o;
        return 0;
}

static int io_write_output(VarlinkIo *p) {
        struct iovec iov[OUTPUT_BATCH * 2];
        struct msghdr message = { .msg_iov = iov };
        size_t skip = p->output_sent;
        ssize_t n;

        for (const Output *o = p->output; o && message.msg_iovlen < ELEMENTSOF(iov); o = o->next) {
                size_t in_text = MIN(skip, o->text->size);

                iov[message.msg_iovlen++] = (struct iovec) { o->text->data + in_text,
                                                             o->text->size - in_text };
                iov[message.msg_iovlen++] = (struct iovec) { o->end + (skip - in_text),
                                                             o->end_size - (skip - in_text) };
                skip = 0;
        }
        n = sendmsg(p->fd, &message, MSG_NOSIGNAL|MSG_DONTWAIT);
        if (n < 0)
                return errno == EAGAIN ? 0 : -errno;
        for (size_t left = n; p->output; ) {
                size_t rest = p->output->text->size + p->output->end_size - p->output_sent;

                if (left < rest) {
                        p->output_sent += left;
                        break;
                }
                left -= rest;
                io_drop_output(p);
        }
        return 1;
}

/* ---- one connection ----------------------------------------------------------------------------------- */

static void io_untouch(VarlinkIo *p) {
        if (!p->touched)
                return;
        *(p->touched_before ? &p->touched_before->touched_next : &p->set->touched) = p->touched_next;
        if (p->touched_next)
                p->touched_next->touched_before = p->touched_before;
        p->touched = false;
}

VarlinkIo* varlink_io_free(VarlinkIo *p) {
        if (!p)
                return NULL;

        if (p->freed)
                *p->freed = true;
        sd_event_source_disable_unref(p->io);
        sd_event_source_disable_unref(p->unread_timer);
        io_untouch(p);
        p->set->received -= p->received;
        if (p->turn.user)
                p->turn.user->n_connections--;
        turn_done(&p->turn);
        while (p->output)
                io_drop_output(p);
        free(p);
        return NULL;
}

/* Disconnects the client, as the library has no limit for its buffers. The error is the same as of
 * sd_varlink_error_errno(). To be called when all replies before were written. */
static int io_refuse(VarlinkIo *p) {
        static const char error[] = "{\"error\":\"io.systemd.System\",\"parameters\":{\"origin\":\"linux\","
                                    "\"errno\":105,\"errnoName\":\"ENOBUFS\"}}";
        uint64_t now = now_usec(CLOCK_MONOTONIC);

        _Static_assert(ENOBUFS == 105, "as in the text");
        (void) send(p->fd, error, sizeof(error), MSG_NOSIGNAL|MSG_DONTWAIT);
        p->set->n_refused++;
        if (p->set->refused_at == 0 || now >= p->set->refused_at + REFUSED_USEC) {
                log_notice("Messages of users other than root take %zu MiB, disconnecting clients with "
                           "more: %u so far, the last one of user %u.",
                           p->set->received / (1024U * 1024U), p->set->n_refused,
                           (unsigned) p->turn.user->uid);
                p->set->refused_at = now;
                p->set->n_refused = 0;
        }
        return -ENOBUFS;
}

/* Counts the size of the library's buffer after the next read. */
static int io_count_received(VarlinkIo *p) {
        size_t size;
        int waiting;

        if (!p->turn.user)
                return 0;
        if (ioctl(p->fd, FIONREAD, &waiting) < 0)
                return -errno;
        size = MAX((size_t) waiting, p->unfinished);
        size = MIN(size, (size_t) VARLINK_MESSAGE_MAX);
        if (size <= MAX(p->received, (size_t) RECEIVED_SMALL))
                return 0;
        if (p->set->received - p->received + size > RECEIVED_OTHERS_MAX)
                return io_refuse(p);
        p->set->received += size - p->received;
        p->received = size;
        return 0;
}

/* Examines data received since the last call, as the offset for peeking is kept (SO_PEEK_OFF). Data that
 * arrives before the library reads is not examined. */
static int io_measure(VarlinkIo *p) {
        char buffer[4096];
        bool any = false;

        for (;;) {
                const char *end;
                ssize_t n;

                n = recv(p->fd, buffer, sizeof(buffer), MSG_PEEK|MSG_DONTWAIT);
                if (n < 0 && errno != EAGAIN)
                        return -errno;
                if (n <= 0)
                        return any ? io_count_received(p) : 0;
                any = true;

                end = memrchr(buffer, 0, n);
                p->unfinished = end ? (size_t) (buffer + n - (end + 1)) : p->unfinished + n;
                if (p->unfinished > VARLINK_MESSAGE_MAX)
                        return -EMSGSIZE;
        }
}

static bool io_has_output(VarlinkIo *p) {
        int events = sd_varlink_get_events(p->link);

        return p->output || (events > 0 && events & EPOLLOUT);
}

/* Whether the library may read or write. 0: not before the next event of the socket; negative: the
 * connection is to be closed. */
static int io_may_process(VarlinkIo *p) {
        struct pollfd pollfd = { .fd = p->fd, .events = POLLOUT };
        int r;

        if (poll(&pollfd, 1, 0) < 0)
                return -errno;

        /* The client has disconnected, or shut down its receiving side, which only send() reports. Its
         * remaining calls are not served: the library would queue the replies to all of them */
        if (pollfd.revents & (POLLHUP|POLLERR))
                return -ECONNRESET;
        if (send(p->fd, NULL, 0, MSG_NOSIGNAL|MSG_DONTWAIT) < 0)
                return -errno;

        /* Only if replies can be written, as the library would read further calls otherwise */
        if (io_has_output(p)) {
                if (!(pollfd.revents & POLLOUT))
                        return 0;
                p->unread_since = 0;
                return 1;
        }

        r = io_measure(p);
        return r < 0 ? r : 1;
}

static int io_step(VarlinkIo *p, bool turn) {
        int r;

        if (turn && p->wants_turn && !(p->turn_when_written && io_has_output(p))) {
                p->wants_turn = false;
                r = p->handler(p->userdata);
                return r < 0 ? r : 1;
        }
        r = io_may_process(p);
        if (r <= 0)
                return r;
        return p->output ? io_write_output(p) : sd_varlink_process(p->link);
}

/* Sets the events that the connection waits for. To be called after each change of these, as there may be
 * thousands of connections, too many to update them all in each iteration of the event loop. */
static int io_update(VarlinkIo *p) {
        int events, enabled;

        events = sd_varlink_get_events(p->link);
        if (events < 0)
                return events;
        if (p->output)
                events |= EPOLLOUT;

        turn_set_unread(&p->turn, events & EPOLLOUT);
        if (!(events & EPOLLOUT))
                p->unread_since = 0;
        else if (p->unread_since == 0) {
                p->unread_since = now_usec(CLOCK_MONOTONIC);
                /* A running timer is not set again, as each reply is unread for a moment */
                if (sd_event_source_get_enabled(p->unread_timer, &enabled) >= 0 && enabled == SD_EVENT_OFF) {
                        (void) sd_event_source_set_time(p->unread_timer, p->unread_since + SLOW_READER_USEC);
                        (void) sd_event_source_set_enabled(p->unread_timer, SD_EVENT_ONESHOT);
                }
        }

        /* Messages that have to wait for a turn must not wake the event loop */
        if (events & EPOLLOUT)
                events = EPOLLOUT;
        else if (turn_is_requested(&p->turn))
                events = 0;
        return sd_event_source_set_io_events(p->io, events);
}

static void io_request_turn(VarlinkIo *p) {
        (void) turn_request(&p->turn);
        (void) io_update(p);
}

/* Serves the connection until it is idle, or for nsec, after which it requests another turn. With 0 only one
 * step is made, and the handler is not called. May free p. */
static void io_run(VarlinkIo *p, uint64_t nsec) {
        _cleanup_(sd_varlink_unrefp) sd_varlink *link = sd_varlink_ref(p->link);
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        bool freed = false;
        int r;

        io_untouch(p);
        p->freed = &freed;
        do {
                r = io_step(p, nsec > 0);
                if (freed)
                        return;
        } while (r > 0 && now_nsec(CLOCK_MONOTONIC) < begin + nsec);
        p->freed = NULL;

        turn_set_reply(&p->turn, p->wants_turn && p->turn_when_written);
        if (r > 0)
                r = turn_request(&p->turn);
        if (r >= 0)
                r = io_update(p);
        if (r < 0) {
                (void) log_debug_errno(r, "Varlink connection failed, closing: %m");
                (void) sd_varlink_close(link);
        }
}

static void on_turn(void *userdata) {
        io_run(ASSERT_PTR(userdata), TURN_NSEC);
}

void varlink_io_touch(VarlinkIo *p) {
        if (!p || p->freed) /* io_run() updates it at its end */
                return;
        if (!p->touched) {
                p->touched = true;
                p->touched_before = NULL;
                p->touched_next = p->set->touched;
                if (p->touched_next)
                        p->touched_next->touched_before = p;
                p->set->touched = p;
        }
        (void) io_update(p);
}

void varlink_io_flush_touched(VarlinkIoSet *set) {
        VarlinkIo *p;

        while ((p = set->touched)) {
                io_untouch(p);
                if (io_has_output(p))
                        io_run(p, 0);
        }
}

TurnUser* varlink_io_get_user(const VarlinkIo *p) {
        return p->turn.user;
}

bool varlink_io_want_turn(VarlinkIo *p, bool when_written) {
        if (p->wants_turn)
                return false;
        p->wants_turn = true;
        p->turn_when_written = when_written;
        io_request_turn(p);
        return true;
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        VarlinkIo *p = ASSERT_PTR(userdata);
        bool ended = revents & (EPOLLHUP|EPOLLERR);
        uint64_t cpu;

        if (!p->turn.user) {
                io_run(p, TURN_NSEC);
                return 0;
        }

        /* Requests wait for a turn. Output does not, as it takes no time. The end of the connection waits if
         * the user has used up its time, as thousands of connections may end at once */
        if (ended && !turn_may_begin(&p->turn)) {
                turn_set_unread(&p->turn, false);
                (void) sd_event_source_set_enabled(s, SD_EVENT_OFF);
                return turn_request(&p->turn);
        }
        if (!ended && !io_has_output(p)) {
                io_request_turn(p);
                return 0;
        }
        cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
        {
                TurnQueue *q = p->set->turns;
                uid_t uid = p->turn.user->uid;

                io_run(p, 0); /* may free p */
                turn_queue_charge(q, uid, now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu);
        }
        return 0;
}

static int on_unread(sd_event_source *s, uint64_t usec, void *userdata) {
        VarlinkIo *p = ASSERT_PTR(userdata);
        _cleanup_(sd_varlink_unrefp) sd_varlink *link = sd_varlink_ref(p->link);

        if (p->unread_since == 0)
                return 0;
        if (now_usec(CLOCK_MONOTONIC) < p->unread_since + SLOW_READER_USEC) {
                (void) sd_event_source_set_time(s, p->unread_since + SLOW_READER_USEC);
                (void) sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
                return 0;
        }
        log_notice("Client has not read replies for %llu s, disconnecting.",
                   (unsigned long long) (SLOW_READER_USEC / USEC_PER_SEC));
        (void) sd_varlink_close(link);
        return 0;
}

int varlink_io_new(VarlinkIoSet *set, sd_varlink *link, uid_t uid, varlink_turn_handler_t handler,
                   void *userdata, VarlinkIo **ret) {
        const int start = 0;
        VarlinkIo *p;
        int fd, r;

        fd = sd_varlink_get_fd(link);
        if (fd < 0)
                return fd;
        if (setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &start, sizeof(start)) < 0)
                return -errno;

        p = new0(VarlinkIo, 1);
        if (!p)
                return -ENOMEM;
        *p = (VarlinkIo) {
                .set = set,
                .link = link,
                .fd = fd,
                .handler = handler,
                .userdata = userdata,
        };
        r = turn_init(&p->turn, set->turns, uid, on_turn, p);
        if (r < 0) {
                varlink_io_free(p);
                return r;
        }
        if (p->turn.user)
                p->turn.user->n_connections++;

        sd_varlink_detach_event(link);
        r = sd_event_add_io(set->event, &p->io, fd, 0, on_io, p);
        if (r >= 0)
                r = sd_event_source_set_priority(p->io, p->turn.user ? SD_EVENT_PRIORITY_NORMAL :
                                                 PRIORITY_ROOT);
        if (r >= 0)
                r = sd_event_add_time(set->event, &p->unread_timer, CLOCK_MONOTONIC, 0, USEC_PER_SEC,
                                      on_unread, p);
        if (r >= 0)
                r = sd_event_source_set_enabled(p->unread_timer, SD_EVENT_OFF);
        if (r >= 0)
                r = io_update(p);
        if (r < 0) {
                varlink_io_free(p);
                return r;
        }

        *ret = p;
        return 0;
}
