/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Effect of a read by the application on a connection in the server role, for any protocol.
 *
 * Since Linux 7.0 programs on tracepoints can be preempted, and the kernel skips runs of the same program
 * for all other tasks on that CPU until it continues. So nothing here depends on any single run: the
 * position up to which the application has read is TCP's own, and the next event (a later read, the response
 * being sent, the end of the connection) makes up for a skipped run.
 *
 * Pure: compiled for BPF, where the caller holds the connection's lock, and for the unit tests. */

#include "http2.h"
#include "tls-record.h"

/* The application reads bytes up to copied that it has only peeked at before (MSG_PEEK), which is not a
 * read. */
EXCHANGE_INLINE void read_again(struct exchange *x, struct pipeline *p, __u64 now, __u32 copied) {
        if (p) {
                /* copied is the end of the newest request */
                if (p->in.state == 0 && p->in_pos == copied && p->n_groups > 0)
                        pipeline_newest(p)->read_at = now;
        } else if (x->state == EXCHANGE_PENDING && copied == x->read_end)
                x->read_at = now;
}

/* Parser of a connection: at most one of these */
struct read_parsers {
        struct pipeline *pipeline;
        struct h2_conn *h2;
        struct tls *tls;
};

/* The application has read up to copied, now at the latest. unsent: bytes written by it, but not sent. */
EXCHANGE_INLINE void read_apply(struct exchange *x, const struct read_parsers *parsers, __u64 now,
                                __u32 copied, __u32 unsent, struct exchange_effect *effect) {
        struct pipeline *p = parsers->pipeline;
        struct h2_conn *h = parsers->h2;
        struct tls *s = parsers->tls;
        __u64 first_at, last_at;

        /* Data read after the unit has closed the connection is discarded: reading it avoids a reset */
        if (p) {
                exchange_take(x, copied, &first_at, &last_at);
                if (x->flags & EXCHANGE_DONE)
                        return;
                if (exchange_distance(copied, p->in_pos) > 0)
                        pipeline_lose_sync(p, copied, first_at, last_at, unsent);
                pipeline_read(p, now);
                pipeline_commit(p, x, now, unsent == 0, effect);
                return;
        }
        if (h) {
                exchange_take(x, copied, &first_at, &last_at);
                if (x->flags & EXCHANGE_DONE)
                        return;
                if (exchange_distance(copied, h->in_pos) > 0)
                        h2_miss(h, copied, now);
                /* It may be a request of another protocol (h2_refuse()) */
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
