/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "turns.h"

/* Pause of a user other than root after a turn, as a multiple of its CPU time: no user has more than a fifth
 * of the CPU. */
#define TURN_PAUSE 4U

/* The same for all users other than root together: half of the CPU is left to root. */
#define TURN_PAUSE_OTHERS 1U

/* Limit of the CPU time of a reply in several turns after which the user pauses once, at its end. Applies to
 * one reply of a user at a time; the pause of all users together is not deferred. An export of 64 units with
 * all probes takes 14 ms, and has to be complete within 50 ms. */
#define TURN_REPLY_NSEC (20 * NSEC_PER_MSEC)

/* Limit of the pause after a turn. Only a turn that loads BPF programs reaches it: the first user to attach
 * a unit is not charged for programs that all users share. PROGRAMS_KEEP_USEC limits how often that
 * happens. */
#define TURN_PAUSE_MAX_NSEC NSEC_PER_SEC

/* Accuracy of the end of a pause. */
#define PAUSE_ACCURACY_USEC UINT64_C(100)

struct TurnQueue {
        sd_event *event;
        sd_event_source *turn;          /* next turn; NULL: none scheduled */
        sd_event_source *timer;         /* end of the first pause */
        TurnUser *users;                /* least recently served first */
        uint64_t others_not_before;     /* CLOCK_MONOTONIC ns */
        unsigned n_unread;              /* of all users */
};

static int on_turn(sd_event_source *s, void *userdata);

static bool user_waits(const TurnQueue *q, const TurnUser *u) {
        return u->first && u->n_unread < UNREAD_CONNECTIONS_MAX && q->n_unread < UNREAD_OTHERS_MAX;
}

static int queue_arm(TurnQueue *q) {
        uint64_t earliest = UINT64_MAX;

        if (q->turn)
                return 0;
        for (const TurnUser *u = q->users; u; u = u->next)
                if (user_waits(q, u))
                        earliest = MIN(earliest, u->not_before);
        if (earliest == UINT64_MAX)
                return sd_event_source_set_enabled(q->timer, SD_EVENT_OFF);
        earliest = MAX(earliest, q->others_not_before);
        if (earliest > now_nsec(CLOCK_MONOTONIC)) {
                (void) sd_event_source_set_time(q->timer, earliest / NSEC_PER_USEC + 1);
                return sd_event_source_set_enabled(q->timer, SD_EVENT_ONESHOT);
        }

        /* A new event source each time: sd-event dispatches the source that has been pending longest, and a
         * defer source has been since it was created, even while disabled */
        (void) sd_event_source_set_enabled(q->timer, SD_EVENT_OFF);
        return sd_event_add_defer(q->event, &q->turn, on_turn, q);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata) {
        return queue_arm(ASSERT_PTR(userdata));
}

static uint64_t pause_get_end(uint64_t not_before, uint64_t now, uint64_t nsec, unsigned times) {
        return MAX(not_before, now) + MIN(nsec * times, TURN_PAUSE_MAX_NSEC);
}

/* t: the client, compared by its address only, or NULL. */
static void user_charge(TurnQueue *q, TurnUser *u, const Turn *t, uint64_t nsec) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);

        if (t && u->reply == t && u->reply_nsec + nsec <= TURN_REPLY_NSEC)
                u->reply_nsec += nsec;
        else
                u->not_before = pause_get_end(u->not_before, now, nsec, TURN_PAUSE);
        q->others_not_before = pause_get_end(q->others_not_before, now, nsec, TURN_PAUSE_OTHERS);
}

/* Frees users without clients once their pause is over: they cannot skip it by reconnecting. */
static void queue_forget_users(TurnQueue *q) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);

        for (TurnUser **u = &q->users; *u; )
                if ((*u)->n_turns == 0 && (*u)->not_before <= now) {
                        TurnUser *gone = *u;

                        *u = gone->next;
                        free(gone);
                } else
                        u = &(*u)->next;
}

TurnUser* turn_queue_find_user(TurnQueue *q, uid_t uid) {
        for (TurnUser *u = q->users; u; u = u->next)
                if (u->uid == uid)
                        return u;
        return NULL;
}

static TurnUser* queue_get_user(TurnQueue *q, uid_t uid) {
        TurnUser **u;

        queue_forget_users(q);
        for (u = &q->users; *u; u = &(*u)->next)
                if ((*u)->uid == uid)
                        return *u;
        *u = new0(TurnUser, 1);
        if (*u)
                (*u)->uid = uid;
        return *u;
}

int turn_queue_new(sd_event *event, TurnQueue **ret) {
        TurnQueue *q;
        int r;

        q = new0(TurnQueue, 1);
        if (!q)
                return -ENOMEM;
        q->event = sd_event_ref(event);
        r = sd_event_add_time(event, &q->timer, CLOCK_MONOTONIC, 0, PAUSE_ACCURACY_USEC, on_timer, q);
        if (r >= 0)
                r = sd_event_source_set_enabled(q->timer, SD_EVENT_OFF);
        if (r < 0) {
                turn_queue_free(q);
                return r;
        }

        *ret = q;
        return 0;
}

bool turn_queue_is_busy(const TurnQueue *q) {
        for (const TurnUser *u = q->users; u; u = u->next)
                if (user_waits(q, u))
                        return true;
        return false;
}

TurnQueue* turn_queue_free(TurnQueue *q) {
        if (!q)
                return NULL;

        sd_event_source_disable_unref(q->turn);
        sd_event_source_disable_unref(q->timer);
        for (TurnUser *u = q->users, *next; u; u = next) {
                assert(u->n_turns == 0);
                next = u->next;
                free(u);
        }
        sd_event_unref(q->event);
        free(q);
        return NULL;
}

static int on_root(sd_event_source *s, void *userdata) {
        Turn *t = ASSERT_PTR(userdata);

        t->source = sd_event_source_disable_unref(t->source);
        t->handler(t->userdata);
        return 0;
}

static int on_turn(sd_event_source *s, void *userdata) {
        TurnQueue *q = ASSERT_PTR(userdata);
        uint64_t now = now_nsec(CLOCK_MONOTONIC), cpu;
        TurnUser *user, **u, **end;
        Turn *t;

        q->turn = sd_event_source_disable_unref(q->turn);
        for (u = &q->users; *u; u = &(*u)->next)
                if (user_waits(q, *u) && (*u)->not_before <= now)
                        break;
        if (!*u || q->others_not_before > now)
                return queue_arm(q);

        user = *u;
        for (end = u; *end; end = &(*end)->next)
                ;
        if (user->next) {
                *u = user->next;
                *end = user;
                user->next = NULL;
        }

        t = user->first;
        turn_cancel(t);
        cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
        user->n_turns++; /* keeps the user if its last client is freed */
        t->handler(t->userdata);
        user->n_turns--;
        user_charge(q, user, t, now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu);
        return queue_arm(q);
}

int turn_init(Turn *t, TurnQueue *q, uid_t uid, void (*handler)(void *userdata), void *userdata) {
        assert(t);
        assert(q);
        assert(handler);

        *t = (Turn) { .queue = q, .handler = handler, .userdata = userdata };
        if (uid != 0) {
                t->user = queue_get_user(q, uid);
                if (!t->user) {
                        t->queue = NULL;
                        return -ENOMEM;
                }
                t->user->n_turns++;
        }
        return 0;
}

void turn_done(Turn *t) {
        if (!t->queue)
                return;
        turn_cancel(t);
        turn_set_unread(t, false);
        turn_set_reply(t, false);
        if (t->user)
                t->user->n_turns--; /* freed by queue_forget_users() */
        t->queue = NULL;
}

int turn_request(Turn *t) {
        TurnUser *u = t->user;

        if (!u)
                return t->source ? 0 : sd_event_add_defer(t->queue->event, &t->source, on_root, t);
        if (t->queued)
                return 0;
        t->queued = true;
        t->next = NULL;
        *(u->first ? &u->last->next : &u->first) = t;
        u->last = t;
        return queue_arm(t->queue);
}

void turn_cancel(Turn *t) {
        TurnUser *u = t->user;
        Turn *before = NULL;

        t->source = sd_event_source_disable_unref(t->source);
        if (!t->queued)
                return;
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what is queued has a user */
        for (Turn *i = u->first; i != t; i = i->next)
                before = i;
        *(before ? &before->next : &u->first) = t->next;
        if (u->last == t)
                u->last = before;
        t->queued = false;
}

bool turn_is_requested(const Turn *t) {
        return t->queued || t->source;
}

bool turn_may_begin(const Turn *t) {
        return !t->user ||
                MAX(t->user->not_before, t->queue->others_not_before) <= now_nsec(CLOCK_MONOTONIC);
}

void turn_charge(Turn *t, uint64_t cpu_begin) {
        if (t->user)
                user_charge(t->queue, t->user, t, now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu_begin);
}

void turn_queue_charge(TurnQueue *q, uid_t uid, uint64_t nsec) {
        TurnUser *u;

        if (uid == 0)
                return;
        u = queue_get_user(q, uid);
        if (u)
                user_charge(q, u, NULL, nsec);
}

void turn_set_reply(Turn *t, bool unfinished) {
        TurnUser *u = t->user;

        if (!u)
                return;
        if (unfinished && !u->reply)
                u->reply = t;
        else if (!unfinished && u->reply == t) {
                u->reply = NULL;
                u->not_before = pause_get_end(u->not_before, now_nsec(CLOCK_MONOTONIC), u->reply_nsec,
                                              TURN_PAUSE);
                u->reply_nsec = 0;
        }
}

void turn_set_unread(Turn *t, bool unread) {
        if (!t->user || t->unread == unread)
                return;
        t->unread = unread;
        if (unread) {
                t->user->n_unread++;
                t->queue->n_unread++;
        } else {
                t->user->n_unread--;
                t->queue->n_unread--;
                (void) queue_arm(t->queue);
        }
}
