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
        __u32 weight;           /* number of segments that it stands for (sample-rate.h) */
        __u32 _padding;
};

struct sent_segments {
        __u32 next;             /* index, modulo SENT_SEGMENTS */
        __u32 retransmits;      /* of the connection, as of the last segment */
        struct sent_segment segments[SENT_SEGMENTS];
};

/* A segment leaves. retransmits: segments of the connection that TCP has retransmitted, or is about to: if
 * there are more than before, this may be one of them. Then it has no round-trip time, and neither have
 * those before: it is not known which of both is acknowledged. Returns whether it has. */
SENT_INLINE int sent_segments_add(struct sent_segments *q, const struct sent_segment *s,
                                  __u32 retransmits) {
        __u64 i = q->next % SENT_SEGMENTS;
        struct sent_segment *to;

        if (q->retransmits != retransmits) {
                q->retransmits = retransmits;
                for (__u32 k = 0; k < SENT_SEGMENTS; k++)
                        q->segments[k].left_at = 0;
                return 0;
        }
        q->next++;
        BPF_BOUND(i, SENT_SEGMENTS);
        to = q->segments + i;
        /* The other side holds another lock */
        *(volatile __u64*) &to->left_at = 0;
        to->end = s->end;
        to->kernel = s->kernel;
        to->weight = s->weight;
        *(volatile __u64*) &to->left_at = s->left_at;
        return 1;
}

/* The segment that ends where the peer has acknowledged all. */
SENT_INLINE int sent_segments_take(struct sent_segments *q, __u32 ack, __u32 retransmits,
                                   struct sent_segment *ret) {
        if (q->retransmits != retransmits)
                return 0;
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

/* Whether all of them are acknowledged, one by one or with others. */
SENT_INLINE int sent_segments_are_over(struct sent_segments *q, __u32 ack) {
        __u64 i = (q->next - 1) % SENT_SEGMENTS;

        BPF_BOUND(i, SENT_SEGMENTS);
        return (__s32) (ack - q->segments[i].end) >= 0;
}
