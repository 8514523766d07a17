/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Segments of a connection that have been received and not read yet. Compiled for BPF and for the unit
 * tests.
 *
 * The first ones have elements of their own. When all elements are in use, the last one takes what follows,
 * and is read when all of it is: sums are exact, and the oldest segment, which has waited longest, is always
 * alone. */

#include "histogram.h"

#define RECEIVE_INLINE static inline __attribute__((always_inline))

/* A power of two. */
#define UNREAD_ELEMENTS 8U

struct unread {
        __u32 end;              /* position in the stream behind it */
        __u32 n;                /* segments, each as many as it stands for (sample-rate.h) */
        __u64 tcp_at;           /* CLOCK_MONOTONIC ns when TCP got them, sum modulo 2^64 */
        __u64 came_at;          /* the same of their arrival, of those where it is known */
        __u32 dated;            /* number of these */
        __u32 _padding;
};

struct receive_queue {
        __u32 first;            /* index of the oldest element, modulo UNREAD_ELEMENTS */
        __u32 n;                /* elements in use */
        struct unread elements[UNREAD_ELEMENTS];
};

RECEIVE_INLINE struct unread* receive_queue_get(struct receive_queue *q, __u32 i) {
        __u64 index = (q->first + i) % UNREAD_ELEMENTS;

        BPF_BOUND(index, UNREAD_ELEMENTS);
        return q->elements + index;
}

/* A segment in sequence, with times in CLOCK_MONOTONIC ns. */
struct received {
        __u32 rcv_nxt;          /* the position from which on TCP expects data */
        __u32 end;              /* that behind the segment */
        __u64 tcp_at;
        __u64 came_at;          /* 0: not known */
        __u32 weight;           /* number of segments that it stands for */
};

RECEIVE_INLINE void receive_queue_add(struct receive_queue *q, const struct received *s) {
        struct unread *u = receive_queue_get(q, q->n - 1);

        /* TCP has not accepted it, or the socket has another connection now */
        if (q->n > 0 && (__s32) (u->end - s->rcv_nxt) > 0)
                q->n = 0;
        if (q->n < UNREAD_ELEMENTS) {
                u = receive_queue_get(q, q->n++);
                u->n = u->dated = 0;
                u->tcp_at = u->came_at = 0;
        }
        u->end = s->end;
        u->n += s->weight;
        u->tcp_at += s->weight * s->tcp_at;
        u->came_at += s->weight * s->came_at;
        u->dated += s->came_at != 0 ? s->weight : 0;
}

/* Takes the oldest element if the application has read all of it. */
RECEIVE_INLINE int receive_queue_take(struct receive_queue *q, __u32 copied_seq, struct unread *ret) {
        struct unread *u = receive_queue_get(q, 0);

        if (q->n == 0 || (__s32) (copied_seq - u->end) < 0)
                return 0;
        *ret = *u;
        q->first++;
        q->n--;
        return 1;
}
