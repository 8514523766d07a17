/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* The last segments of a connection that have left, by which acknowledgements are recognized. Compiled for
 * BPF and for the unit tests. */

#include "histogram.h"

#define SENT_INLINE static inline __attribute__((always_inline))

/* A power of two. */
#define SENT_SEGMENTS 4U

struct sent_segment {
        __u32 end;              /* position in the stream behind it */
        __u32 kernel;           /* ns from TCP to the driver, at most UINT32_MAX */
        __u64 left_at;          /* CLOCK_MONOTONIC ns at the driver; 0: none */
};

struct sent_segments {
        __u32 next;             /* index, modulo SENT_SEGMENTS */
        __u32 end;              /* of all segments that have left */
        struct sent_segment segments[SENT_SEGMENTS];
};

/* A segment leaves, from seq to s->end. snd_una, write_seq: what is acknowledged, and what is written. What
 * is retransmitted has no round-trip time: it is not known which of both is acknowledged. Returns whether it
 * is new. */
SENT_INLINE int sent_segments_add(struct sent_segments *q, __u32 seq, const struct sent_segment *s,
                                  __u32 snd_una, __u32 write_seq) {
        __u64 i = q->next % SENT_SEGMENTS;
        struct sent_segment *to;

        /* The end is of this connection, and not behind all data of it: a socket may be connected again */
        if (q->end - snd_una <= write_seq - snd_una && q->end != snd_una && (__s32) (s->end - q->end) <= 0) {
                for (__u32 k = 0; k < SENT_SEGMENTS; k++)
                        if ((__s32) (q->segments[k].end - seq) > 0)
                                q->segments[k].left_at = 0;
                return 0;
        }
        q->next++;
        q->end = s->end;
        BPF_BOUND(i, SENT_SEGMENTS);
        to = q->segments + i;
        /* The other side holds another lock */
        *(volatile __u64*) &to->left_at = 0;
        to->end = s->end;
        to->kernel = s->kernel;
        *(volatile __u64*) &to->left_at = s->left_at;
        return 1;
}

/* The segment that ends where the peer has acknowledged all. */
SENT_INLINE int sent_segments_take(struct sent_segments *q, __u32 ack, struct sent_segment *ret) {
        for (__u32 k = 0; k < SENT_SEGMENTS; k++) {
                struct sent_segment *s = q->segments + k;

                if (s->end != ack || s->left_at == 0)
                        continue;
                *ret = *s;
                s->left_at = 0;
                return 1;
        }
        return 0;
}
