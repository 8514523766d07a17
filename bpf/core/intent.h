/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Detection of requests that are delayed by intent: long polls, and requests of workers that wait for work.
 * The request itself does not indicate it. It is inferred from the event that triggers the response, while
 * nothing in the unit is busy with the request:
 *
 *   - another request, read in the last part of the wait: an event loop reads it and responds to the
 *     waiting one in the same run, or a parked thread is woken by the thread that has just read it
 *   - the timeout of a wait in futex(2), e.g. of a condition variable
 *
 * A thread that waits for a lock, a pooled connection or a database row is woken as well, but by a request
 * that is at least as old as the wait. In an event loop, a timer or another thread may complete a request in
 * the very run in which another request was read. That is rare unless the loop reads all the time: one such
 * case is proof only if nothing else was read for some time before. Several in succession are proof, too.
 * Pure: compiled for BPF and for the unit tests.
 *
 * The lowest bit of the time of a read is set if the server sends events on that connection
 * (intent_mark()). */

#include "unit-map.h"

#define INTENT_INLINE static inline __attribute__((always_inline))

/* Shorter waits are latency, whatever their reason, and are not examined. */
#define INTENT_WAIT_MIN_NSEC 100000000ULL

/* The triggering event happens in the last eighth of the wait. */
#define INTENT_PART 8U

/* Silence before the triggering event that makes a single case proof. A run of an event loop takes a few
 * hundredths of it: about one in a thousand is a coincidence. */
#define INTENT_SILENCE_NSEC 20000000ULL

/* Minimum ratio of the silence before the triggering event to the time since that event. If requests arrive
 * at random, at whatever rate, at most a fifth of the coincidences pass. */
#define INTENT_SILENCE 4U

/* Waits of a thread with a shorter gap between them are one: the thread was woken for an event that was not
 * its own. */
#define INTENT_JOIN_NSEC 10000000ULL

/* How long the score of an endpoint is valid after the last such request. */
#define INTENT_MEMORY_NSEC 600000000000ULL

/* Requests that a thread reads on a CPU until it waits again. Times are CLOCK_MONOTONIC ns. */
struct intent_run {
        __u32 thread;           /* pid; 0: none, or data of a peer was read since */
        __u32 waits;            /* its voluntary context switches at the beginning, modulo 2^32 */
        __u32 preempted;        /* its involuntary context switches at the beginning */
        __u32 _padding;
        __u64 begun_at;         /* first read of this run */
        __u64 before_at;        /* last read of the unit before this run */
        __u64 last_at;          /* last read of this run */
};

/* Last time that a thread was parked until such an event. */
struct intent_park {
        __u64 from;
        __u64 until;            /* 0: never */
};

enum intent {
        INTENT_NONE,
        INTENT_LIKELY,          /* possibly a coincidence */
        INTENT_SHOWN,
};

/* A thread reads a request. now: its current run. unit_at: last read of the unit, updated. */
INTENT_INLINE void intent_read(struct intent_run *r, const struct intent_run *now, __u64 *unit_at) {
        if (r->thread != now->thread || r->waits != now->waits) {
                *r = *now;
                r->before_at = *unit_at;
        }
        r->last_at = *unit_at = now->begun_at;
}

/* The time of a read, with its lowest bit. pushed: the server sends events on the connection. */
INTENT_INLINE __u64 intent_mark(__u64 now, int pushed) {
        return (now & ~1ULL) | (pushed & 1);
}

/* Whether the thread has read something else in this run after read_at, which it may be forwarding now
 * (event loops). */
INTENT_INLINE int intent_is_forwarded(const struct intent_run *r, const struct intent_run *now,
                                      __u64 read_at) {
        return r->thread == now->thread && r->waits == now->waits && r->last_at > read_at;
}

/* Whether the trigger of a response that the thread sends now, to a request read at read_at, shows that the
 * request was delayed by intent. */
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

/* Cause of data that a thread sends on an unparsed connection, from which it has read at read_at */
enum intent_cause {
        INTENT_OWN,             /* the data read there: a response */
        INTENT_FORWARDED,       /* data read from another connection since, which is forwarded */
        INTENT_AWAITED,         /* the same, and the data read there was waiting for it by intent */
};

/* Data read from a connection with events (lowest bit of last_at) is a reaction to one of them, e.g. an
 * acknowledgement: a response that it triggers was not awaited by intent. */
INTENT_INLINE enum intent_cause intent_cause(const struct intent_run *r, const struct intent_run *now,
                                             __u64 read_at) {
        if (!intent_is_forwarded(r, now, read_at))
                return INTENT_OWN;
        return now->begun_at - read_at >= INTENT_WAIT_MIN_NSEC && !(r->last_at & 1) &&
               intent_of_run(r, now, read_at) == INTENT_SHOWN ? INTENT_AWAITED : INTENT_FORWARDED;
}

/* A wait of the thread has ended with a triggering event. */
INTENT_INLINE void intent_park(struct intent_park *p, __u64 from, __u64 until) {
        if (p->until == 0 || from > p->until + INTENT_JOIN_NSEC)
                p->from = from;
        p->until = until;
}

/* Whether the thread, which has read a request at read_at, was parked for nearly all of the time since. */
INTENT_INLINE int intent_is_parked(const struct intent_park *p, __u64 read_at, __u64 now) {
        __u64 from = p->from > read_at ? p->from : read_at;

        return p->until > from && p->until <= now &&
                (p->until - from) * INTENT_PART >= (now - read_at) * (INTENT_PART - 1);
}

/* Whether a wait that began at from, and ends now, ends with a request that was read in its last part. */
INTENT_INLINE int intent_is_news(__u64 request_at, __u64 from, __u64 now) {
        return request_at > from && (now - request_at) * INTENT_PART <= now - from;
}

/* Score of an endpoint: incremented by each request that seems delayed by intent, decremented by each other
 * one that takes at least INTENT_WAIT_MIN_NSEC. */
#define INTENT_SCORE_KNOWN 3U
#define INTENT_SCORE_MAX 8U

/* Whether a request that has been waiting since then may be delayed by intent, as others have been before:
 * for up to twice as long as the longest of these. */
INTENT_INLINE int intent_is_usual(const struct qos_intended *i, __u64 since, __u64 now) {
        __u64 age = now > since ? now - since : 0;

        return i->score >= INTENT_SCORE_KNOWN && age >= INTENT_WAIT_MIN_NSEC && age <= 2 * i->longest &&
                now <= i->at + INTENT_MEMORY_NSEC + 2 * i->longest;
}

/* Updates an endpoint when a request gets its response. again: the previous one on the same connection was
 * delayed by intent. Returns whether this one was. */
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
