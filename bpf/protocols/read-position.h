/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What it means to a connection in the server role that the application has read, whichever protocol is
 * spoken.
 *
 * Since Linux 7.0 programs at tracepoints can be preempted, and the kernel skips runs of the same program
 * for all other tasks of that CPU until it goes on. So nothing here depends on a run that must not be
 * missed: how far the application has read is TCP's own position, and whoever comes next (a later read, the
 * response when it leaves, the end of the connection) makes good what was missed.
 *
 * Pure: compiled for BPF, where the caller holds the connection's lock, and for the unit tests. */

#include "http2.h"
#include "tls-record.h"

/* The application takes bytes that it has seen before, up to copied: until now it has only peeked at them
 * (MSG_PEEK), which is no read. */
EXCHANGE_INLINE void read_again(struct exchange *x, struct pipeline *t, __u64 now, __u32 copied) {
        if (t) {
                /* The end of the newest request */
                if (t->in.state == 0 && t->in_pos == copied && t->n_groups > 0)
                        pipeline_newest(t)->read_at = now;
        } else if (x->state == EXCHANGE_PENDING && copied == x->read_end)
                x->read_at = now;
}

/* The state of a connection that is parsed, or sealed: at most one of these. */
struct read_parsers {
        struct pipeline *pipeline;
        struct h2_conn *h2;
        struct tls *tls;
};

/* The application has read up to copied, at the latest now. unsent: bytes written by it that have not
 * left. */
EXCHANGE_INLINE void read_apply(struct exchange *x, const struct read_parsers *parsers, __u64 now,
                                __u32 copied, __u32 unsent, struct exchange_effect *effect) {
        struct pipeline *t = parsers->pipeline;
        struct h2_conn *h = parsers->h2;
        struct tls *s = parsers->tls;
        __u64 first_at, last_at;

        /* What is read when the unit has closed the connection is dropped: that avoids a reset */
        if (t) {
                exchange_take(x, copied, &first_at, &last_at);
                if (x->flags & EXCHANGE_DONE)
                        return;
                if (exchange_distance(copied, t->in_pos) > 0)
                        pipeline_lose_sync(t, copied, first_at, last_at, unsent);
                pipeline_read(t, now);
                pipeline_commit(t, x, now, unsent == 0, effect);
                return;
        }
        if (h) {
                exchange_take(x, copied, &first_at, &last_at);
                if (x->flags & EXCHANGE_DONE)
                        return;
                if (exchange_distance(copied, h->in_pos) > 0)
                        h2_miss(h, copied, now);
                /* Perhaps one request of another protocol (h2_refuse()) */
                if (!h->settled) {
                        x->first_at = x->first_at ?: first_at;
                        x->last_at = last_at;
                        x->read_at = now;
                }
                h2_settle(h, x, now, effect);
                return;
        }
        if (s && exchange_distance(copied, s->in_pos) > 0)
                tls_miss(s, copied);
        if (s && !s->has_request) {
                exchange_pass(x, copied, effect);
                return;
        }
        exchange_read(x, now, copied, unsent, effect);
        if (s)
                s->has_request = 0;
}
