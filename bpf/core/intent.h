/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Requests that wait by intent: long polls, and workers that wait for work. Nothing in such a request says
 * so. It is known by what sets the response off, while nothing of the unit is busy with it:
 *
 *   - another request, which has come in the last part of the wait. An event loop reads it, and responds to
 *     the first one in the same run. A thread that is parked is woken by one that has just read it
 *   - the timeout of a wait in futex(2), as of a condition variable
 *
 * What waits for a lock, for a connection of a pool or for a row of a database is woken as well, but by a
 * request that is older than the wait, or as old. In an event loop a timer may end a request, or a thread of
 * its own, in the very run in which another one was read. That is rare, unless the loop reads requests all
 * the time: one such case is a proof only if nothing else was read for some time before it. Several in
 * succession are one, too. Pure: compiled for BPF and for the unit tests.
 *
 * The lowest bit of the time of a read says that the server sends events on that connection. */

#include "unit-map.h"

#define INTENT_INLINE static inline __attribute__((always_inline))

/* Shorter times are latency, whatever they have been waiting for. Only for longer ones anything of this is
 * looked at. */
#define INTENT_WAIT_MIN_NSEC 100000000ULL

/* What sets a response off comes in the last eighth of the wait. */
#define INTENT_PART 8U

/* A run of an event loop takes some hundredths of that: a coincidence is a matter of one in a thousand. */
#define INTENT_SILENCE_NSEC 20000000ULL

/* For so many times as long as since what may have set the response off, the unit has read nothing before.
 * Of requests that arrive at random, whatever their rate, a fifth of the coincidences at most pass that. */
#define INTENT_SILENCE 4U

/* Waits of a thread with less than this between them are one: it was woken for the event of another one. */
#define INTENT_JOIN_NSEC 10000000ULL

/* For how long an endpoint is known for such waits after the last one. */
#define INTENT_MEMORY_NSEC 600000000000ULL

/* Requests that a thread reads on a CPU until it waits again. */
struct intent_run {
        __u32 thread;           /* 0: none, or something else has been read since */
        __u32 waits;            /* how often it had waited before, modulo 2^32 */
        __u32 preempted;        /* how often it had been preempted before */
        __u32 _padding;
        __u64 begun_at;         /* first one read in this run */
        __u64 before_at;        /* last one that the unit has read before */
        __u64 last_at;          /* last one read in this run */
};

/* Time that a thread was parked until an event of the above. */
struct intent_park {
        __u64 from;
        __u64 until;            /* 0: never */
};

enum intent {
        INTENT_NONE,
        INTENT_LIKELY,          /* it may be a coincidence */
        INTENT_SHOWN,
};

/* now: what the thread is in. unit_at: when the unit has read last. */
INTENT_INLINE void intent_read(struct intent_run *r, const struct intent_run *now, __u64 *unit_at) {
        if (r->thread != now->thread || r->waits != now->waits) {
                *r = *now;
                r->before_at = *unit_at;
        }
        r->last_at = *unit_at = now->begun_at;
}

/* The time of a read. */
INTENT_INLINE __u64 intent_mark(__u64 now, int pushed) {
        return (now & ~1ULL) | (pushed & 1);
}

/* Whether a thread sends now what it has read after that time, and in this run: an event loop that forwards
 * what others have sent. */
INTENT_INLINE int intent_is_forwarded(const struct intent_run *r, const struct intent_run *now,
                                      __u64 read_at) {
        return r->thread == now->thread && r->waits == now->waits && r->last_at > read_at;
}

/* What sets off a response that a thread sends now, to a request read at that time. */
INTENT_INLINE enum intent intent_of_run(const struct intent_run *r, const struct intent_run *now,
                                        __u64 read_at) {
        __u64 since = now->begun_at > r->begun_at ? now->begun_at - r->begun_at : 0;

        if (r->thread != now->thread || r->waits != now->waits || r->begun_at <= read_at ||
            since * INTENT_PART > now->begun_at - read_at ||
            since * INTENT_SILENCE > r->begun_at - r->before_at)
                return INTENT_NONE;
        return r->preempted == now->preempted && r->begun_at - r->before_at >= INTENT_SILENCE_NSEC ?
               INTENT_SHOWN : INTENT_LIKELY;
}

/* What a thread sends now on a connection without a parser, to what it has read from there at that time. */
enum intent_cause {
        INTENT_OWN,             /* it responds */
        INTENT_FORWARDED,       /* it forwards what it has read from another connection since */
        INTENT_AWAITED,         /* the same, and the first data has waited for that by intent */
};

/* What is read from a connection with events is a reaction to one: what it sets off is a response. */
INTENT_INLINE enum intent_cause intent_cause(const struct intent_run *r, const struct intent_run *now,
                                             __u64 read_at) {
        if (!intent_is_forwarded(r, now, read_at))
                return INTENT_OWN;
        return now->begun_at - read_at >= INTENT_WAIT_MIN_NSEC && !(r->last_at & 1) &&
               intent_of_run(r, now, read_at) == INTENT_SHOWN ? INTENT_AWAITED : INTENT_FORWARDED;
}

/* A wait has ended with an event. */
INTENT_INLINE void intent_park(struct intent_park *p, __u64 from, __u64 until) {
        if (p->until == 0 || from > p->until + INTENT_JOIN_NSEC)
                p->from = from;
        p->until = until;
}

/* Whether a request was read at that time by a thread that was parked for nearly all of the time since. */
INTENT_INLINE int intent_is_parked(const struct intent_park *p, __u64 read_at, __u64 now) {
        __u64 from = p->from > read_at ? p->from : read_at;

        return p->until > from && p->until <= now &&
                (p->until - from) * INTENT_PART >= (now - read_at) * (INTENT_PART - 1);
}

/* Whether a wait that began at from, and ends now, ends with a request that has come in its last part. */
INTENT_INLINE int intent_is_news(__u64 request_at, __u64 from, __u64 now) {
        return request_at > from && (now - request_at) * INTENT_PART <= now - from;
}

/* How sure it is that the endpoint has such requests: up for each, down for each other one that takes
 * long. */
#define INTENT_SCORE_KNOWN 3U
#define INTENT_SCORE_MAX 8U

/* Whether a request that has been waiting since then may wait by intent, as others have before: for up to
 * twice as long as the longest of these. */
INTENT_INLINE int intent_is_usual(const struct qos_intended *i, __u64 since, __u64 now) {
        __u64 age = now > since ? now - since : 0;

        return i->score >= INTENT_SCORE_KNOWN && age >= INTENT_WAIT_MIN_NSEC && age <= 2 * i->longest &&
                now <= i->at + INTENT_MEMORY_NSEC + 2 * i->longest;
}

/* A request gets its response. again: the one before it on the same connection has waited by intent. Returns
 * whether it has, too. */
INTENT_INLINE int intent_learn(struct qos_intended *i, enum intent intent, int again, __u64 since,
                               __u64 now) {
        if (intent == INTENT_NONE && again && intent_is_usual(i, since, now))
                return 1;
        if (intent == INTENT_NONE) {
                i->score -= i->score > 0;
                return 0;
        }
        if (now - since > i->longest || now > i->at + INTENT_MEMORY_NSEC)
                i->longest = now - since;
        i->at = now;
        if (intent == INTENT_SHOWN)
                i->score = INTENT_SCORE_MAX;
        else
                i->score += i->score < INTENT_SCORE_MAX;
        return i->score >= INTENT_SCORE_KNOWN;
}
