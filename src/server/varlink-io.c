/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "log.h"
#include "varlink-io.h"

/* How long a connection is served at a time if it has more to do. Longer than most calls take, so that these
 * need one turn. */
#define TURN_NSEC (500 * NSEC_PER_USEC)

/* A user other than root whose connection took the CPU for so long waits for so many times as long: nobody
 * has more than a fifth of it. */
#define TURN_PAUSE 4U

/* No turn makes a user wait for longer than this. Only one that loads BPF programs takes so much time: the
 * user who is the first to attach a unit is not charged for what all use. How often that happens is limited
 * by PROGRAMS_KEEP_USEC. */
#define TURN_PAUSE_MAX_NSEC NSEC_PER_SEC

/* A pause may be so much longer. */
#define PAUSE_ACCURACY_USEC UINT64_C(100)

/* So that root's requests are read as soon as what is being done is finished. What follows has the priority
 * of all others. */
#define PRIORITY_ROOT (SD_EVENT_PRIORITY_NORMAL - 1)

/* Messages that are written with one system call. */
#define OUTPUT_BATCH 16U

/* A message that is not the library's, to be written. */
typedef struct Output {
        VarlinkText *text;              /* its beginning, which other connections may have, too */
        char *end;                      /* … and its end, with the byte that ends a message */
        size_t end_size;
        struct Output *next;
} Output;

/* Somebody whose connections are limited in what they take together. */
typedef struct User {
        uid_t uid;
        unsigned n_connections;
        unsigned n_unread;              /* connections that have replies which the client does not take */
        uint64_t not_before;            /* CLOCK_MONOTONIC ns */
        VarlinkIo *first, *last;      /* connections with something to do, in the order of their turns */
        struct User *next;
} User;

struct VarlinkQueue {
        sd_event *event;
        sd_event_source *turn;          /* NULL: nobody has the next one */
        sd_event_source *timer;         /* when the first pause is over */
        User *users;                    /* who had a turn is the last */
};

struct VarlinkIo {
        VarlinkQueue *queue;
        User *user;                     /* NULL: root */
        sd_varlink *link;               /* no reference: the pump ends with the connection */
        int fd;                         /* the link's */
        sd_event_source *io;
        sd_event_source *again;         /* of root: the next turn; NULL: not before something happens on the
                                         * socket */
        VarlinkIo *next;              /* in the user's queue */
        bool queued;
        bool wants_turn;
        bool turn_when_written;         /* … and not while there is output */
        varlink_turn_handler_t handler;
        void *userdata;
        Output *output, *output_last;   /* to be written before anything of the library's */
        size_t output_sent;             /* bytes of the first one that were */
        bool unread;                    /* counted in n_unread */
        uint64_t unread_since;          /* since when there is something to be written, and nothing leaves,
                                         * CLOCK_MONOTONIC usec; 0: there is not */
        sd_event_source *unread_timer;  /* fires no later than that has been so for too long */
        size_t unfinished;              /* bytes of the message whose end has not been seen */
        bool *freed;                    /* set when the pump ends within its own callback */
};

/* ---- turns -------------------------------------------------------------------------------------------- */

static int on_turn(sd_event_source *s, void *userdata);

static bool user_waits(const User *u) {
        return u->first && u->n_unread < UNREAD_CONNECTIONS_MAX;
}

static int queue_arm(VarlinkQueue *q) {
        uint64_t earliest = UINT64_MAX;

        if (q->turn)
                return 0;
        for (const User *u = q->users; u; u = u->next)
                if (user_waits(u))
                        earliest = MIN(earliest, u->not_before);
        if (earliest == UINT64_MAX)
                return sd_event_source_set_enabled(q->timer, SD_EVENT_OFF);
        if (earliest > now_nsec(CLOCK_MONOTONIC)) {
                (void) sd_event_source_set_time(q->timer, earliest / NSEC_PER_USEC + 1);
                return sd_event_source_set_enabled(q->timer, SD_EVENT_ONESHOT);
        }

        /* A new event source each time: a defer source counts as pending since it was made, and sd-event
         * dispatches what has been pending for longest. One that was enabled again would win against
         * everything. */
        (void) sd_event_source_set_enabled(q->timer, SD_EVENT_OFF);
        return sd_event_add_defer(q->event, &q->turn, on_turn, q);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        return queue_arm(ASSERT_PTR(userdata));
}

static void user_pause(User *u, uint64_t cpu_begin) {
        uint64_t pause = (now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu_begin) * TURN_PAUSE;

        u->not_before = MAX(u->not_before, now_nsec(CLOCK_MONOTONIC)) + MIN(pause, TURN_PAUSE_MAX_NSEC);
}

/* Those who are gone, once their pause is over: a new connection does not end it. */
static void queue_forget_users(VarlinkQueue *q) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);

        for (User **u = &q->users; *u; )
                if ((*u)->n_connections == 0 && (*u)->not_before <= now) {
                        User *gone = *u;

                        *u = gone->next;
                        free(gone);
                } else
                        u = &(*u)->next;
}

static User* queue_get_user(VarlinkQueue *q, uid_t uid) {
        User **u;

        queue_forget_users(q);
        for (u = &q->users; *u; u = &(*u)->next)
                if ((*u)->uid == uid)
                        return *u;
        *u = new0(User, 1);
        if (*u)
                (*u)->uid = uid;
        return *u;
}

int varlink_queue_new(sd_event *event, VarlinkQueue **ret) {
        VarlinkQueue *q;
        int r;

        q = new0(VarlinkQueue, 1);
        if (!q)
                return -ENOMEM;
        q->event = sd_event_ref(event);
        r = sd_event_add_time(event, &q->timer, CLOCK_MONOTONIC, 0, PAUSE_ACCURACY_USEC, on_timer, q);
        if (r >= 0)
                r = sd_event_source_set_enabled(q->timer, SD_EVENT_OFF);
        if (r < 0) {
                varlink_queue_free(q);
                return r;
        }

        *ret = q;
        return 0;
}

VarlinkQueue* varlink_queue_free(VarlinkQueue *q) {
        if (!q)
                return NULL;

        sd_event_source_disable_unref(q->turn);
        sd_event_source_disable_unref(q->timer);
        for (User *u = q->users, *next; u; u = next) {
                assert(u->n_connections == 0);
                next = u->next;
                free(u);
        }
        sd_event_unref(q->event);
        free(q);
        return NULL;
}

static void io_set_unread(VarlinkIo *p, bool unread) {
        if (!p->user || p->unread == unread)
                return;
        p->unread = unread;
        if (unread)
                p->user->n_unread++;
        else {
                p->user->n_unread--;
                (void) queue_arm(p->queue);
        }
}

static int on_again(sd_event_source *s, void *userdata);

/* Gives the connection its next turn. */
static int io_enqueue(VarlinkIo *p) {
        User *u = p->user;

        if (!u)
                return p->again ? 0 : sd_event_add_defer(p->queue->event, &p->again, on_again, p);
        if (p->queued)
                return 0;
        p->queued = true;
        p->next = NULL;
        *(u->first ? &u->last->next : &u->first) = p;
        u->last = p;
        return queue_arm(p->queue);
}

static void io_dequeue(VarlinkIo *p) {
        User *u = p->user;
        VarlinkIo *before = NULL;

        if (!p->queued)
                return;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what is queued has a user */
        for (VarlinkIo *i = u->first; i != p; i = i->next)
                before = i;
        *(before ? &before->next : &u->first) = p->next;
        if (u->last == p)
                u->last = before;
        p->queued = false;
}

/* ---- messages that several connections get ------------------------------------------------------------ */

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

VarlinkIo* varlink_io_free(VarlinkIo *p) {
        if (!p)
                return NULL;

        if (p->freed)
                *p->freed = true;
        sd_event_source_disable_unref(p->io);
        sd_event_source_disable_unref(p->again);
        sd_event_source_disable_unref(p->unread_timer);
        io_dequeue(p);
        io_set_unread(p, false);
        while (p->output)
                io_drop_output(p);
        if (p->user)
                p->user->n_connections--; /* it is forgotten later */
        free(p);
        return NULL;
}

/* Looks at what has come in since the last time: the socket keeps a position for those who only look. What
 * comes in between this and the library's read is not seen, which is too short a time to make much of. */
static int io_measure(VarlinkIo *p) {
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

static bool io_has_output(VarlinkIo *p) {
        int events = sd_varlink_get_events(p->link);

        return p->output || (events > 0 && events & EPOLLOUT);
}

/* 0: not before something happens on the socket. */
static int io_may_process(VarlinkIo *p) {
        struct pollfd pollfd = { .fd = p->fd, .events = POLLOUT };
        int r;

        if (poll(&pollfd, 1, 0) < 0)
                return -errno;

        /* The client is gone, or has shut down its receiving side, which poll() does not report: its
         * remaining requests are not served, the library would serve them all and keep the replies */
        if (pollfd.revents & (POLLHUP|POLLERR))
                return -ECONNRESET;
        if (send(p->fd, NULL, 0, MSG_NOSIGNAL|MSG_DONTWAIT) < 0)
                return -errno;

        /* Replies first. If they cannot be written, then the library would go on and read */
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

/* Serves the connection until it has nothing to do (0), or nsec are over (1). With nsec 0 it is one step,
 * and no turn. A negative value: it has ended. */
static int io_run(VarlinkIo *p, uint64_t nsec) {
        _cleanup_(sd_varlink_unrefp) sd_varlink *link = sd_varlink_ref(p->link);
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        bool freed = false;
        int r;

        p->freed = &freed;
        do {
                r = io_step(p, nsec > 0);
                if (freed)
                        return -ECONNRESET;
        } while (r > 0 && now_nsec(CLOCK_MONOTONIC) < begin + nsec);
        p->freed = NULL;

        if (r < 0) {
                (void) log_debug_errno(r, "Ending a varlink connection: %m");
                (void) sd_varlink_close(link);
        }
        return r;
}

static int on_again(sd_event_source *s, void *userdata) {
        VarlinkIo *p = ASSERT_PTR(userdata);

        p->again = sd_event_source_disable_unref(p->again);
        return io_run(p, TURN_NSEC) > 0 ? io_enqueue(p) : 0;
}

static int on_turn(sd_event_source *s, void *userdata) {
        VarlinkQueue *q = ASSERT_PTR(userdata);
        uint64_t now = now_nsec(CLOCK_MONOTONIC), cpu;
        User *user, **u, **end;
        VarlinkIo *p;

        q->turn = sd_event_source_disable_unref(q->turn);
        for (u = &q->users; *u; u = &(*u)->next)
                if (user_waits(*u) && (*u)->not_before <= now)
                        break;
        if (!*u)
                return queue_arm(q);

        user = *u;
        for (end = u; *end; end = &(*end)->next)
                ;
        if (user->next) {
                *u = user->next;
                *end = user;
                user->next = NULL;
        }

        p = user->first;
        io_dequeue(p);
        cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
        if (io_run(p, TURN_NSEC) > 0)
                (void) io_enqueue(p);
        user_pause(user, cpu);
        return queue_arm(q);
}

void varlink_io_flush(VarlinkIo *p) {
        assert(p);

        if (!p->freed && io_has_output(p) && io_run(p, 0) > 0)
                (void) io_enqueue(p);
}

bool varlink_io_want_turn(VarlinkIo *p, bool when_written) {
        if (p->wants_turn)
                return false;
        p->wants_turn = true;
        p->turn_when_written = when_written;
        (void) io_enqueue(p);
        return true;
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        VarlinkIo *p = ASSERT_PTR(userdata);
        User *user = p->user;
        uint64_t cpu;
        int r;

        if (!user)
                return io_run(p, TURN_NSEC) > 0 ? io_enqueue(p) : 0;

        /* Requests wait for their turn. What takes no time does not: replies, so that a client which reads
         * them has them, and the end */
        if (!(revents & (EPOLLHUP|EPOLLERR)) && !io_has_output(p))
                return io_enqueue(p);
        cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
        r = io_run(p, 0);
        user_pause(user, cpu);
        return r > 0 ? io_enqueue(p) : 0;
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
        log_notice("A client has not read its replies for %llu s, it is cut off.",
                   (unsigned long long) (SLOW_READER_USEC / USEC_PER_SEC));
        (void) sd_varlink_close(link);
        return 0;
}

static int on_prepare(sd_event_source *s, void *userdata) {
        VarlinkIo *p = ASSERT_PTR(userdata);
        int events, enabled;

        events = sd_varlink_get_events(p->link);
        if (events < 0)
                return events;
        if (p->output)
                events |= EPOLLOUT;

        io_set_unread(p, events & EPOLLOUT);
        if (!(events & EPOLLOUT))
                p->unread_since = 0;
        else if (p->unread_since == 0) {
                p->unread_since = now_usec(CLOCK_MONOTONIC);
                /* Each reply is unread for a moment: that is not worth setting a timer again */
                if (sd_event_source_get_enabled(p->unread_timer, &enabled) >= 0 && enabled == SD_EVENT_OFF) {
                        (void) sd_event_source_set_time(p->unread_timer, p->unread_since + SLOW_READER_USEC);
                        (void) sd_event_source_set_enabled(p->unread_timer, SD_EVENT_ONESHOT);
                }
        }

        /* What is not to be handled yet must not wake us up */
        if (events & EPOLLOUT)
                events = EPOLLOUT;
        else if (p->again || p->queued)
                events = 0;
        return sd_event_source_set_io_events(s, events);
}

int varlink_io_new(VarlinkQueue *q, sd_varlink *link, uid_t uid, varlink_turn_handler_t handler,
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
                .queue = q,
                .link = link,
                .fd = fd,
                .handler = handler,
                .userdata = userdata,
        };
        if (uid != 0) {
                p->user = queue_get_user(q, uid);
                if (!p->user) {
                        varlink_io_free(p);
                        return -ENOMEM;
                }
                p->user->n_connections++;
        }

        sd_varlink_detach_event(link);
        r = sd_event_add_io(q->event, &p->io, fd, 0, on_io, p);
        if (r >= 0)
                r = sd_event_source_set_priority(p->io, p->user ? SD_EVENT_PRIORITY_NORMAL : PRIORITY_ROOT);
        if (r >= 0)
                r = sd_event_source_set_prepare(p->io, on_prepare);
        if (r >= 0)
                r = sd_event_add_time(q->event, &p->unread_timer, CLOCK_MONOTONIC, 0, USEC_PER_SEC,
                                      on_unread, p);
        if (r >= 0)
                r = sd_event_source_set_enabled(p->unread_timer, SD_EVENT_OFF);
        if (r < 0) {
                varlink_io_free(p);
                return r;
        }

        *ret = p;
        return 0;
}
