/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/socket.h>

#include "dbus-reply.h"
#include "dbus-queue.h"
#include "log.h"

/* Number of senders from which on idle ones, and their users, are forgotten. The user of a sender does not
 * change, as the bus never reuses a unique name. */
#define SENDERS_MAX 256U

/* Limit of waiting calls of all senders. Beyond it, the newest one of the sender with most calls is
 * refused. */
#define QUEUED_CALLS_MAX 2048U

/* Limit of the arguments and the path of a waiting call, in bytes. Calls of qosd's methods have a tenth of
 * it. */
#define QUEUED_CALL_SIZE_MAX 16384U

/* Replies in the output queue of the bus connection from which on calls of users other than root wait. A
 * reply may have some hundred KiB, and replies to root are queued behind it. */
#define UNSENT_REPLIES_MAX 1U

/* Limit of replies with all units, up to 3 MiB each, that are built at a time for users other than root, one
 * for each user. */
#define UNITS_REPLIES_MAX 16U

/* Measuring the arguments of a call takes some ns for each byte. If a call exceeds the limit and takes this
 * long, further calls of its sender are refused without measuring for REFUSE_USEC. */
#define MEASURE_NSEC_MAX NSEC_PER_MSEC
#define REFUSE_USEC USEC_PER_SEC

/* Limit of steps of the handshake of the local connection, which takes about ten. */
#define HANDSHAKE_STEPS 1000U

typedef struct Sender Sender;

/* A call that waits for its sender's turn, or was forwarded and has no reply yet. */
typedef struct QueuedCall {
        Sender *sender;
        sd_bus_message *message;
        sd_bus_slot *slot;              /* reply of the local connection; NULL: not forwarded yet */
        struct QueuedCall *next;
} QueuedCall;

/* A connection to the bus, identified by its unique name. */
struct Sender {
        BusQueue *queue;
        Sender *next;
        char *name;
        sd_bus_slot *slot;              /* query of the user; NULL: complete */
        uid_t uid;
        Turn turn;                      /* initialized when the user is known */
        uint64_t refused_until;         /* CLOCK_MONOTONIC ns */
        QueuedCall *calls, **end;       /* waiting calls in order of arrival, and the end of the list */
        unsigned n_calls;
        QueuedCall *made;
        UnitsReply *reply;              /* reply that is being built, on which further calls wait; NULL:
                                         * none */
};

struct BusQueue {
        Manager *manager;
        DBusUnits *objects;
        sd_bus *bus;                    /* the system bus */
        sd_bus *from, *to;              /* ends of the local connection over which calls are forwarded */
        sd_bus_slot *filter, *gone;
        sd_event_source *batch;         /* NULL: no message was read since the last batch */
        sd_event_source *sent;          /* enabled while senders wait for the output queue of the bus
                                         * connection */
        Sender *senders;                /* in order of their last call, the latest one first */
        unsigned n_senders;
        unsigned n_calls;               /* waiting calls of all senders */
};

static void call_free(QueuedCall *c) {
        sd_bus_slot_unref(c->slot);
        sd_bus_message_unref(c->message);
        free(c);
}

static QueuedCall* sender_pop(Sender *s, QueuedCall **p) {
        QueuedCall *c = *p;

        *p = c->next;
        if (!c->next)
                s->end = p;
        c->next = NULL;
        s->n_calls--;
        s->queue->n_calls--;
        return c;
}

/* Resumes senders that wait for a limit. */
static void queue_resume(BusQueue *q) {
        for (Sender *s = q->senders; s; s = s->next)
                if ((s->calls || s->reply) && s->turn.queue)
                        (void) turn_request(&s->turn);
}

static void sender_end_reply(Sender *s) {
        if (!s->reply)
                return;
        s->reply = units_reply_free(s->reply);
        queue_resume(s->queue);
}

static void sender_free(Sender *s) {
        BusQueue *q = s->queue;

        while (s->calls)
                call_free(sender_pop(s, &s->calls));
        for (QueuedCall *c = s->made, *next; c; c = next) {
                next = c->next;
                call_free(c);
        }
        for (Sender **p = &q->senders; *p; p = &(*p)->next)
                if (*p == s) {
                        *p = s->next;
                        q->n_senders--;
                        break;
                }
        turn_done(&s->turn);
        sender_end_reply(s);
        sd_bus_slot_unref(s->slot);
        free(s->name);
        free(s);
}

static Sender* sender_find(BusQueue *q, const char *name) {
        for (Sender **p = &q->senders; *p; p = &(*p)->next)
                if (streq((*p)->name, name)) {
                        Sender *s = *p;

                        *p = s->next;
                        s->next = q->senders;
                        return q->senders = s;
                }
        return NULL;
}

/* ---- turns -------------------------------------------------------------------------------------------- */

/* Processes both ends of the local connection until it is idle. */
static void queue_run(BusQueue *q) {
        int r, k;

        do {
                r = sd_bus_process(q->to, NULL);
                k = sd_bus_process(q->from, NULL);
        } while (r > 0 || k > 0);
}

static int on_made(sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        QueuedCall *c = ASSERT_PTR(userdata), **p;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        if (sd_bus_message_is_method_error(reply, NULL))
                r = sd_bus_reply_method_error(c->message, sd_bus_message_get_error(reply));
        else {
                r = sd_bus_message_new_method_return(c->message, &m);
                if (r >= 0)
                        r = sd_bus_message_copy(m, reply, /* all= */ true);
                if (r >= 0)
                        r = sd_bus_send(NULL, m, NULL);
        }
        if (r < 0)
                (void) log_debug_errno(r, "Failed to pass on the reply to a call: %m");

        for (p = &c->sender->made; *p != c; p = &(*p)->next)
                ;
        *p = c->next;
        call_free(c);
        return 0;
}

static int call_make(QueuedCall *c) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        BusQueue *q = c->sender->queue;
        int r;

        r = sd_bus_message_new_method_call(q->from, &m, NULL, sd_bus_message_get_path(c->message),
                                           sd_bus_message_get_interface(c->message),
                                           sd_bus_message_get_member(c->message));
        if (r >= 0)
                r = sd_bus_message_set_sender(m, c->sender->name);
        if (r >= 0)
                r = sd_bus_message_set_allow_interactive_authorization(m,
                                sd_bus_message_get_allow_interactive_authorization(c->message));
        if (r >= 0)
                r = sd_bus_message_copy(m, c->message, /* all= */ true);
        return r < 0 ? r : sd_bus_call_async(q->from, &c->slot, m, on_made, c, UINT64_MAX);
}

static bool sender_may_begin_reply(const Sender *s) {
        unsigned n = 0;

        if (s->uid == 0)
                return true;
        for (const Sender *i = s->queue->senders; i; i = i->next)
                if (i->reply && i->uid != 0) {
                        if (i->uid == s->uid)
                                return false;
                        n++;
                }
        return n < UNITS_REPLIES_MAX;
}

static void sender_begin_reply(Sender *s) {
        QueuedCall *c = sender_pop(s, &s->calls);
        int r;

        r = units_reply_new(s->queue->objects, s->queue->manager, c->message, &s->reply);
        if (r < 0)
                (void) sd_bus_reply_method_errno(c->message, r, NULL);
        call_free(c);
}

/* Forwards the sender's next call. */
static void sender_make_call(Sender *s) {
        QueuedCall *c = sender_pop(s, &s->calls);
        int r;

        c->next = s->made;
        s->made = c;
        r = call_make(c);
        if (r >= 0) {
                queue_run(s->queue);
                return;
        }
        (void) sd_bus_reply_method_errno(c->message, r, NULL);
        s->made = c->next;
        call_free(c);
}

static void on_turn(void *userdata) {
        uint64_t end = now_nsec(CLOCK_MONOTONIC) + TURN_NSEC, unsent = 0;
        Sender *s = ASSERT_PTR(userdata);
        BusQueue *q = s->queue;

        while (s->reply || s->calls) {
                if (s->uid != 0 && sd_bus_get_n_queued_write(q->bus, &unsent) >= 0 &&
                    unsent >= UNSENT_REPLIES_MAX) {
                        (void) sd_event_source_set_enabled(q->sent, SD_EVENT_ON);
                        break;
                }
                if (now_nsec(CLOCK_MONOTONIC) >= end) {
                        (void) turn_request(&s->turn);
                        break;
                }

                if (s->reply) {
                        if (units_reply_continue(s->reply, end) <= 0)
                                sender_end_reply(s);
                } else if (!units_reply_is_for(s->calls->message))
                        sender_make_call(s);
                else if (sender_may_begin_reply(s))
                        sender_begin_reply(s);
                else
                        break; /* resumed when another reply is complete */
        }
        turn_set_reply(&s->turn, s->reply);
}

static int on_sent(sd_event_source *source, void *userdata) {
        BusQueue *q = ASSERT_PTR(userdata);
        uint64_t unsent = 0;

        if (sd_bus_get_n_queued_write(q->bus, &unsent) >= 0 && unsent >= UNSENT_REPLIES_MAX)
                return 0;
        (void) sd_event_source_set_enabled(source, SD_EVENT_OFF);
        queue_resume(q);
        return 0;
}

/* ---- senders ----------------------------------------------------------------------------------------- */

static int on_identified(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sender *s = ASSERT_PTR(userdata);
        uint32_t uid = 0;
        int r;

        s->slot = sd_bus_slot_unref(s->slot);
        if (!streq_ptr(sd_bus_message_get_sender(m), DBUS_NAME))
                r = -EBADMSG; /* a reply that is not the bus's own */
        else
                r = sd_bus_message_is_method_error(m, NULL) ? -sd_bus_message_get_errno(m) :
                    sd_bus_message_read(m, "u", &uid);
        if (r >= 0)
                r = turn_init(&s->turn, s->queue->manager->turns, uid, on_turn, s);
        if (r < 0) {
                /* The sender has disconnected, or the bus does not reply */
                while (s->calls) {
                        QueuedCall *c = sender_pop(s, &s->calls);

                        (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED,
                                                          "The bus does not know the sender: %s",
                                                          strerror(-r));
                        call_free(c);
                }
                sender_free(s);
                return 0;
        }

        s->uid = uid;
        return s->calls ? turn_request(&s->turn) : 0;
}

static int sender_new(BusQueue *q, const char *name, Sender **ret) {
        Sender *s, *oldest = NULL;
        int r;

        for (s = q->n_senders >= SENDERS_MAX ? q->senders : NULL; s; s = s->next)
                if (!s->slot && !s->calls && !s->made && !s->reply)
                        oldest = s;
        if (oldest)
                sender_free(oldest);

        s = new0(Sender, 1);
        if (!s)
                return -ENOMEM;
        *s = (Sender) {
                .queue = q,
                .next = q->senders,
                .name = strdup(name),
        };
        s->end = &s->calls;
        q->senders = s;
        q->n_senders++;

        r = s->name ? 0 : -ENOMEM;
        if (r >= 0)
                r = sd_bus_call_method_async(q->bus, &s->slot, DBUS_NAME, DBUS_PATH, DBUS_NAME,
                                             "GetConnectionUnixUser", on_identified, s, "s", s->name);
        if (r < 0) {
                sender_free(s);
                return r;
        }

        *ret = s;
        return 0;
}

/* Drops the calls of a sender that has disconnected. */
static int on_gone(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        BusQueue *q = ASSERT_PTR(userdata);
        const char *name, *owner;
        Sender *s;

        if (sd_bus_message_read(m, "sss", &name, NULL, &owner) < 0 || name[0] != ':' || !isempty(owner))
                return 0;
        s = sender_find(q, name);
        if (s)
                sender_free(s);
        return 0;
}

/* ---- calls -------------------------------------------------------------------------------------------- */

/* Subtracts the size of the remaining arguments from *left. Containers count as well: empty ones may be
 * many. -EMSGSIZE: the arguments exceed *left. */
static int message_measure(sd_bus_message *m, size_t *left) {
        const char *contents;
        char type;
        int r;

        while ((r = sd_bus_message_peek_type(m, &type, &contents)) > 0) {
                bool container = strchr("aver(", type);
                union {
                        const char *s;
                        uint64_t t;
                } value = {};
                size_t n = sizeof(value);

                r = container ? sd_bus_message_enter_container(m, type, contents) :
                    sd_bus_message_read_basic(m, type, &value);
                if (r < 0)
                        return r;
                if (strchr("sog", type))
                        n += strlen(value.s);
                if (n > *left)
                        return -EMSGSIZE;
                *left -= n;
                if (!container)
                        continue;
                r = message_measure(m, left);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        return r;
}

static int call_check_size(sd_bus_message *m) {
        size_t left = QUEUED_CALL_SIZE_MAX, n = strlen(strempty(sd_bus_message_get_path(m)));
        int r;

        if (n > left)
                return -EMSGSIZE;
        left -= n;
        r = message_measure(m, &left);
        return r < 0 ? r : sd_bus_message_rewind(m, /* complete= */ true);
}

/* Makes space for a call of the sender: if the queue is full, refuses the newest call of the sender with
 * most calls. -EBUSY: that is this sender. */
static int sender_admit(Sender *s) {
        BusQueue *q = s->queue;
        Sender *most = s;
        QueuedCall **p, *c;

        if (q->n_calls < QUEUED_CALLS_MAX)
                return 0;

        for (Sender *i = q->senders; i; i = i->next)
                if (i->n_calls > most->n_calls)
                        most = i;
        if (most->n_calls <= s->n_calls + 1)
                return -EBUSY;

        for (p = &most->calls; (*p)->next; p = &(*p)->next)
                ;
        c = sender_pop(most, p);
        (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                          "Too many calls are waiting");
        call_free(c);
        return 0;
}

static int sender_enqueue(Sender *s, sd_bus_message *m) {
        QueuedCall *c;
        int r;

        r = sender_admit(s);
        if (r < 0)
                return r;
        c = new0(QueuedCall, 1);
        if (!c)
                return -ENOMEM;
        *c = (QueuedCall) { .sender = s, .message = sd_bus_message_ref(m) };
        *s->end = c;
        s->end = &c->next;
        s->n_calls++;
        s->queue->n_calls++;
        return s->turn.queue ? turn_request(&s->turn) : 0;
}

/* Reads further messages in the same iteration of the event loop, as calls of root may be queued behind
 * them. */
static int on_batch(sd_event_source *source, void *userdata) {
        BusQueue *q = ASSERT_PTR(userdata);
        _cleanup_(sd_bus_unrefp) sd_bus *bus = sd_bus_ref(q->bus);
        uint64_t end = now_nsec(CLOCK_MONOTONIC) + TURN_NSEC;

        q->batch = sd_event_source_disable_unref(q->batch);
        /* May free the queue, with the message that ends the connection. Errors occur in the event source of
         * the bus as well, which then closes the connection. */
        while (sd_bus_process(bus, NULL) > 0 && now_nsec(CLOCK_MONOTONIC) < end)
                ;
        return 0;
}

static bool call_has_effect(sd_bus_message *m) {
        const char *member = strempty(sd_bus_message_get_member(m));

        return !startswith(member, "Get") && !startswith(member, "List") &&
               !startswith(member, "Snapshot") && !streq(member, "Introspect") && !streq(member, "Ping");
}

/* -EMSGSIZE: the arguments are too large, or those of a recent call of the sender were. */
static int sender_measure(Sender *s, sd_bus_message *m) {
        uint64_t begin = now_nsec(CLOCK_MONOTONIC), end;
        int r;

        if (begin < s->refused_until)
                return -EMSGSIZE;
        r = call_check_size(m);
        end = now_nsec(CLOCK_MONOTONIC);
        /* Not for small calls, which take this long if the daemon is preempted */
        if (r == -EMSGSIZE && end > begin + MEASURE_NSEC_MAX)
                s->refused_until = end + REFUSE_USEC * NSEC_PER_USEC;
        return r;
}

/* Filter, which is called before sd-bus dispatches the message. */
static int on_message(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name = sd_bus_message_get_sender(m);
        BusQueue *q = ASSERT_PTR(userdata);
        Sender *s;
        int r;

        if (!q->batch)
                (void) sd_event_add_defer(q->manager->event, &q->batch, on_batch, q);
        if (sd_bus_message_is_method_call(m, NULL, NULL) <= 0 || isempty(name))
                return 0;
        if (sd_bus_message_get_expect_reply(m) == 0 && !call_has_effect(m))
                return 1; /* no effect and no reply: dropped */

        s = sender_find(q, name);
        if (s && s->turn.queue && s->uid == 0 && !s->calls && !s->reply && !units_reply_is_for(m))
                return 0; /* dispatched at once */

        memory_trim_schedule(q->manager->trim);
        r = s ? 0 : sender_new(q, name, &s);
        if (r < 0)
                return r;
        r = sender_measure(s, m);
        if (r == -EMSGSIZE)
                return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "The call, or one shortly before it, has more than %u bytes of "
                                         "arguments", QUEUED_CALL_SIZE_MAX);
        if (r >= 0)
                r = sender_enqueue(s, m);
        if (r == -EBUSY)
                return sd_bus_error_set(error, SD_BUS_ERROR_LIMITS_EXCEEDED, "Too many calls are waiting");
        return r < 0 ? r : 1;
}

void bus_queue_forget_unit(BusQueue *q, const Unit *u) {
        for (Sender *s = q->senders; s; s = s->next)
                if (s->reply)
                        units_reply_forget(s->reply, u);
}

int bus_queue_get_user(BusQueue *q, sd_bus_message *m, uid_t *ret) {
        const Sender *s = sender_find(q, strempty(sd_bus_message_get_sender(m)));

        if (!s || !s->turn.queue)
                return -ENXIO;
        *ret = s->uid;
        return 0;
}

sd_bus* bus_queue_get_bus(BusQueue *q) {
        return q->to;
}

/* ---- queue -------------------------------------------------------------------------------------------- */

static int end_new(int fd, const sd_id128_t *server, sd_bus **ret) {
        int r;

        r = sd_bus_new(ret);
        if (r >= 0)
                r = sd_bus_set_fd(*ret, fd, fd);
        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }
        if (server)
                r = sd_bus_set_server(*ret, true, *server);
        return r < 0 ? r : sd_bus_start(*ret);
}

static int queue_connect(BusQueue *q) {
        sd_id128_t id;
        int fds[2], r;

        r = sd_id128_randomize(&id);
        if (r < 0)
                return r;
        if (socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fds) < 0)
                return -errno;
        r = end_new(fds[0], &id, &q->to);
        if (r < 0) {
                (void) close_fd(fds[1]);
                return r;
        }
        r = end_new(fds[1], NULL, &q->from);
        for (unsigned i = 0; r >= 0 && (sd_bus_is_ready(q->to) <= 0 || sd_bus_is_ready(q->from) <= 0); i++) {
                r = sd_bus_process(q->to, NULL);
                if (r >= 0)
                        r = sd_bus_process(q->from, NULL);
                if (r >= 0 && i >= HANDSHAKE_STEPS)
                        r = -EPROTO;
        }
        /* For replies that are not sent before queue_run() returns */
        if (r >= 0)
                r = sd_bus_attach_event(q->to, q->manager->event, SD_EVENT_PRIORITY_NORMAL);
        if (r >= 0)
                r = sd_bus_attach_event(q->from, q->manager->event, SD_EVENT_PRIORITY_NORMAL);
        return r;
}

int bus_queue_new(Manager *m, DBusUnits *objects, sd_bus *bus, BusQueue **ret) {
        BusQueue *q;
        int r;

        q = new0(BusQueue, 1);
        if (!q)
                return -ENOMEM;
        *q = (BusQueue) {
                .manager = m,
                .objects = objects,
                .bus = sd_bus_ref(bus),
        };
        r = queue_connect(q);
        if (r >= 0)
                r = sd_event_add_post(m->event, &q->sent, on_sent, q);
        if (r >= 0)
                r = sd_event_source_set_enabled(q->sent, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_bus_add_filter(bus, &q->filter, on_message, q);
        /* One match for all names, as the bus limits the number of matches of a connection */
        if (r >= 0 && sd_bus_is_bus_client(bus) > 0)
                r = sd_bus_add_match_async(bus, &q->gone,
                                           "type='signal',sender='" DBUS_NAME "',path='" DBUS_PATH
                                           "',interface='" DBUS_NAME "',member='NameOwnerChanged',arg2=''",
                                           on_gone, NULL, q);
        if (r < 0) {
                bus_queue_free(q);
                return r;
        }

        *ret = q;
        return 0;
}

static void end_free(sd_bus *bus) {
        if (!bus)
                return;
        (void) sd_bus_detach_event(bus);
        sd_bus_close_unref(bus);
}

BusQueue* bus_queue_free(BusQueue *q) {
        if (!q)
                return NULL;

        sd_bus_slot_unref(q->filter);
        sd_bus_slot_unref(q->gone);
        sd_event_source_disable_unref(q->batch);
        sd_event_source_disable_unref(q->sent);
        while (q->senders)
                sender_free(q->senders);
        end_free(q->from);
        end_free(q->to);
        sd_bus_unref(q->bus);
        free(q);
        return NULL;
}
