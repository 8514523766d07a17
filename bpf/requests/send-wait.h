/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Why data written by the application is not sent or acknowledged yet, by the state of the TCP socket at one
 * moment. The conditions are those of tcp_write_xmit(), tcp_nagle_test(), tcp_pacing_check() and
 * tcp_cwnd_validate() in the kernel.
 *
 * Pure: compiled for BPF and for the unit tests. */

#include "unit-map.h"

/* Values of tcp_sock.nonagle and inet_connection_sock.icsk_ca_state in the kernel */
#define SEND_NAGLE_CORK 2
#define SEND_CA_RECOVERY 3

/* Number of segments whose acknowledgement a receiver may delay: it acknowledges every second full one at
 * once. They do not indicate a queue on the path. */
#define SEND_DELAYED_SEGMENTS 2

struct send_state {
        __u32 snd_una, snd_nxt, write_seq;
        __u32 snd_sml;          /* end of the last partial segment sent */
        __u32 snd_wnd;          /* bytes from snd_una that the peer accepts */
        __u32 max_window;       /* largest snd_wnd so far */
        __u32 mss;
        __u32 packets_out;      /* segments sent and not acknowledged */
        __u32 in_network;       /* those that are neither acknowledged selectively nor lost */
        __u32 cwnd;             /* in segments */
        __u32 nonagle;
        __u32 ca_state;
        __u32 srtt, min_rtt;    /* us; 0: not measured */
        __u32 throttled;        /* 1: enough data of this socket is queued at the network device */
        __u32 paced;            /* 1: pacing has set a later time for the next segment */
        __u32 nospace;          /* 1: the application waits for space in the send buffer */
};

/* Whether the path has a queue: without one, segments are acknowledged in half the time or less. */
static inline __attribute__((always_inline)) int send_is_queued(const struct send_state *s) {
        return s->packets_out > SEND_DELAYED_SEGMENTS && s->min_rtt != 0 &&
                s->srtt > 2 * (__u64) s->min_rtt;
}

/* Returns enum qos_send_wait; QOS_SEND_WAITS: nothing is pending, or unknown. */
static inline __attribute__((always_inline)) __u32 send_wait_classify(const struct send_state *s) {
        __u32 unsent = s->write_seq - s->snd_nxt, space = s->snd_una + s->snd_wnd - s->snd_nxt,
              need = unsent < s->mss ? unsent : s->mss;

        if ((int) unsent < 0)
                return QOS_SEND_WAITS; /* read while the socket was changing */

        if (unsent == 0) {
                if (!s->nospace || s->packets_out == 0)
                        return QOS_SEND_WAITS;
                return s->ca_state >= SEND_CA_RECOVERY || s->in_network >= s->cwnd || s->throttled ||
                        send_is_queued(s) ? QOS_SEND_WAIT_PATH : QOS_SEND_WAIT_BUFFER;
        }

        if ((int) space < (int) need) {
                /* Nothing is in flight, or the window has shrunk: the peer does not read */
                if (s->packets_out == 0 || s->snd_wnd < s->max_window / 2)
                        return QOS_SEND_WAIT_WINDOW;
                return send_is_queued(s) ? QOS_SEND_WAIT_PATH : QOS_SEND_WAIT_WINDOW_FULL;
        }

        if (s->ca_state >= SEND_CA_RECOVERY || s->in_network >= s->cwnd || s->throttled || s->paced)
                return QOS_SEND_WAIT_PATH;

        if (unsent < s->mss && s->packets_out > 0 && s->nonagle == 0 &&
            (int) (s->snd_sml - s->snd_una) > 0 && (int) (s->snd_sml - s->snd_nxt) <= 0)
                return QOS_SEND_WAIT_NAGLE;
        if (unsent < s->mss && s->nonagle & SEND_NAGLE_CORK)
                return QOS_SEND_WAIT_CORK;
        return QOS_SEND_WAIT_OTHER;
}
