/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What TCP counts of a connection by itself, and the differences of it that are recorded for a unit.
 * Compiled for BPF and for the unit tests.
 *
 * All of it is cumulative: a run that is skipped loses nothing, the next one records the difference. A
 * reading takes no lock of the socket, and may see one field before and another behind a change. What then
 * seems to be less than before is left for the next run, so that no counter falls. */

#include "network-map.h"

#define FLOW_INLINE static inline __attribute__((always_inline))

/* Fields of struct tcp_sock, and what else is needed to make sense of them. */
struct flow_fields {
        __u64 bytes_sent;
        __u64 bytes_acked;
        __u64 bytes_received;
        __u64 bytes_retrans;
        __u32 total_retrans;
        __u32 total_rto;        /* modulo 2^16 */
        __u32 copied_seq;
        __u32 rcv_nxt;
        __u32 write_seq;
        __u32 snd_una;
        __u32 chrono_type;      /* enum qos_flow_limit */
        __u32 chrono_start;     /* jiffies, since when it is this type */
        __u32 chrono_stat[3];   /* jiffies, by type - 1, until then */
        __u32 jiffies;
        __u32 fin_sent;         /* 1: write_seq has the FIN, which is no byte */
        __u32 fin_received;     /* 1: rcv_nxt has it */
        __u32 connects;         /* 1: the SYN of the unit is not acknowledged yet */
        __u32 opened;           /* 0: in a handshake: positions are not set, and its time does not count */
};

/* A connection. */
struct flow_counts {
        __u64 counted[QOS_FLOW_COUNTERS]; /* what is recorded of it, or from before the attach */
        __u32 ended;            /* 1: only what the application still reads may follow */
};

/* As tcp_get_info() computes it. */
FLOW_INLINE __u32 flow_ticks(const struct flow_fields *f, __u32 type) {
        __u32 is_running = (__u32) histogram_if_zero(f->chrono_type ^ type);

        return f->chrono_stat[type - 1] + ((f->jiffies - f->chrono_start) & is_running);
}

/* The kernel counts acknowledged and received bytes in 64 bits, and positions in 32: what was read and
 * written is not further than 2 GiB from these. The SYN of a client is acknowledged as one byte
 * (flow_begin()), a FIN that has been received is counted as one, and is read as one at the end. */
FLOW_INLINE void flow_count(const struct flow_fields *f, __u64 *ret) {
        __u32 unread = f->rcv_nxt - f->copied_seq;

        ret[QOS_FLOW_RETRANSMITS] = f->total_retrans;
        ret[QOS_FLOW_BYTES_RETRANSMITTED] = f->bytes_retrans;
        ret[QOS_FLOW_BYTES_SENT] = f->bytes_sent;
        ret[QOS_FLOW_BYTES_ACKED] = f->bytes_acked;
        ret[QOS_FLOW_BYTES_RECEIVED] = f->bytes_received;
        ret[QOS_FLOW_BYTES_READ] = f->bytes_received - unread -
                                   (f->fin_received & histogram_if_zero(unread));
        ret[QOS_FLOW_BYTES_WRITTEN] = f->bytes_acked + (__u32) (f->write_seq - f->snd_una) - f->fin_sent;
        ret[QOS_FLOW_TIMEOUTS] = f->total_rto;
        ret[QOS_FLOW_TICKS] = f->jiffies;
        ret[QOS_FLOW_TICKS_BUSY] = flow_ticks(f, QOS_FLOW_BY_NETWORK);
        ret[QOS_FLOW_TICKS_PEER_WINDOW] = flow_ticks(f, QOS_FLOW_BY_PEER_WINDOW);
        ret[QOS_FLOW_TICKS_SEND_BUFFER] = flow_ticks(f, QOS_FLOW_BY_SEND_BUFFER);
}

/* Difference of two values of a counter, in the width that the kernel has it in. */
FLOW_INLINE __u64 flow_subtract(__u32 counter, __u64 now, __u64 before) {
        if (counter == QOS_FLOW_RETRANSMITS || counter >= QOS_FLOW_TICKS)
                return (__u64) (__s64) (__s32) (now - before);
        if (counter == QOS_FLOW_TIMEOUTS)
                return (__u64) (__s64) (__s16) (now - before);
        return now - before;
}

/* A connection from its beginning: all that TCP has counted is of it. client: its SYN will be acknowledged,
 * or is. A socket may have been connected before, which only clears some of the fields. */
FLOW_INLINE void flow_begin(struct flow_counts *flow, const struct flow_fields *f, int client) {
        flow_count(f, flow->counted);
        for (__u32 i = 0; i < QOS_FLOW_TIMEOUTS; i++)
                flow->counted[i] = 0;
        if (!client)
                flow->counted[QOS_FLOW_TIMEOUTS] = 0;
        flow->counted[QOS_FLOW_BYTES_WRITTEN] = !!client;
        flow->ended = 0;
}

/* A connection that exists already: what was before is not the unit's. */
FLOW_INLINE void flow_join(struct flow_counts *flow, const struct flow_fields *f) {
        flow_count(f, flow->counted);
        flow->ended = 0;
}

/* What has come since the last time; ret: QOS_FLOW_COUNTERS. Without branches, each of which the verifier
 * would follow through all that comes after it. */
FLOW_INLINE void flow_step(struct flow_counts *flow, const struct flow_fields *f, __u64 *ret) {
        flow_count(f, ret);
        for (__u32 i = 0; i < QOS_FLOW_COUNTERS; i++) {
                __u64 n = flow_subtract(i, ret[i], flow->counted[i]), counts = 1 ^ n >> 63;

                if (i != QOS_FLOW_BYTES_READ)
                        counts &= 1 ^ flow->ended;
                if (i == QOS_FLOW_BYTES_READ || i == QOS_FLOW_BYTES_WRITTEN || i == QOS_FLOW_TICKS)
                        counts &= f->opened;
                BPF_OPAQUE(counts);
                flow->counted[i] = (ret[i] & -counts) | (flow->counted[i] & ~-counts);
                ret[i] = n & -counts;
        }
}
