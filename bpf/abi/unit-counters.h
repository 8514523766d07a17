/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What is counted of a unit: distributions, counters and sums of the map of a unit. */

#include "histogram.h"
#include "states.h"

/* Distributions, in nanoseconds. Three of them nearly always equal another one or are all zero. They are
 * stored as the difference to that one (modulo 2^32 and 2^64), so that a request costs three samples instead
 * of six. Readers add the distribution in brackets, see window_complete() in src/model/window.c. */
enum qos_distribution {
        QOS_LATENCY,            /* first request byte arriving at the IP layer to last response byte leaving
                                 * it [QOS_FIRST_BYTE] */
        QOS_FIRST_BYTE,         /* first request byte arriving to first response byte leaving */
        QOS_RECEIVE,            /* first to last request byte arriving at the IP layer [one zero per sample
                                 * of QOS_QUEUE] */
        QOS_QUEUE,              /* last request byte arriving to read by the application */
        QOS_SERVICE,            /* last request byte read to first response byte leaving the IP layer */
        QOS_ANSWER,             /* first to last response byte leaving [one zero per sample of
                                 * QOS_SERVICE] */
        QOS_DISTRIBUTIONS,
};

#define QOS_DISTRIBUTION_IS_FINE(d) ((d) <= QOS_FIRST_BYTE)
#define QOS_DISTRIBUTION_BINS(d) (QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_BINS : HISTOGRAM_COARSE_BINS)
#define QOS_DISTRIBUTION_FIRST_COUNTER(d)                                       \
        ((d) <= QOS_FIRST_BYTE ? (d) * HISTOGRAM_FINE_BINS :                    \
         2 * HISTOGRAM_FINE_BINS + ((d) - 2) * HISTOGRAM_COARSE_BINS)

/* 32 bit cells: the bins of all distributions, then plain counters of events. */
enum qos_counter {
        /* requests, counted when the first response byte leaves */
        QOS_COUNTER_COUNT = 2 * HISTOGRAM_FINE_BINS + 4 * HISTOGRAM_COARSE_BINS,
        QOS_COUNTER_HTTP1,                 /* of QOS_COUNTER_COUNT, by protocol in the order of enum protocol
                                            * (parser.h) */
        QOS_COUNTER_REDIS,
        QOS_COUNTER_MEMCACHED,
        QOS_COUNTER_DNS,                   /* over TCP */
        QOS_COUNTER_HTTP2,
        QOS_COUNTER_GRPC,
        QOS_COUNTER_TLS,                   /* of QOS_COUNTER_COUNT, on TLS connections */
        QOS_COUNTER_UNIX,                  /* of QOS_COUNTER_COUNT, unparsed on Unix sockets */
        QOS_COUNTER_UDP,                   /* of QOS_COUNTER_COUNT, on UDP */
        QOS_COUNTER_WAITS,                 /* of QOS_COUNTER_COUNT, blocking by request of the client (long
                                            * polls): in no distribution */
        QOS_COUNTER_INTENDED,              /* of QOS_COUNTER_COUNT, delayed by intent (intent.h),
                                            * QOS_COUNTER_WAITS included: in no distribution */
        QOS_COUNTER_STREAMS,               /* of QOS_COUNTER_COUNT, with a stream as response */
        QOS_COUNTER_EXCLUDED,              /* requests excluded from all other metrics, counted with their
                                            * response */
        QOS_COUNTER_STATUS_4XX,            /* responses that report a client error */
        QOS_COUNTER_STATUS_5XX,            /* responses that report a server error */
        QOS_COUNTER_STATUS_UNKNOWN,        /* HTTP/2 responses of unknown status (hpack.h) */
        QOS_COUNTER_ERRORS_GRPC,           /* gRPC responses that report a server error */
        QOS_COUNTER_ERRORS_REPLIES,        /* responses of Redis and memcached that report an error */
        QOS_COUNTER_ERRORS_RESET,          /* connections closed by the unit during a request */
        QOS_COUNTER_ERRORS_TIMEOUT,        /* connections timed out during a request */
        QOS_COUNTER_CLIENT_ABORTS,         /* connections closed by the client during its request */
        QOS_COUNTER_OVERLAPS,              /* requests on unparsed connections, which no other counter has;
                                            * and requests of other connections that arrived while another
                                            * one was in progress, at most one in a hundred of a
                                            * connection */
        QOS_COUNTER_UNPARSED,              /* connections that became unparsed */
        QOS_COUNTER_ACCEPTED,              /* completed handshakes (inet_sock_set_state) */
        QOS_COUNTER_LISTEN_DROPS,          /* connection attempts dropped because of a full accept queue */
        QOS_COUNTER_RETRANSMITS,           /* retransmitted segments (tcp_retransmit_skb) */
        QOS_COUNTER_DROPS,                 /* events of this unit that could not be recorded */
        QOS_COUNTER_DROPS_CONTENTION,      /* the same for threads, page faults, block I/O, calls on files
                                            * and what TCP does */
        QOS_COUNTER_MISSED,                /* program runs skipped by the kernel on the whole machine since
                                            * the unit was attached; mostly recovered later */
        QOS_COUNTER_FLOW_RETRANSMITS,      /* segments retransmitted on connections to the unit, with the
                                            * probe "network" */
        QOS_COUNTER_FLOW_RTTS,             /* number of round-trip times in QOS_SUM_FLOW_RTT */
        QOS_COUNTERS,
};

/* Fixed size, so that a new counter does not move the fields after it. A multiple of 8 copies fastest. */
#define QOS_COUNTERS_SIZE 2736
_Static_assert(QOS_COUNTERS <= QOS_COUNTERS_SIZE, "no room for so many counters");

/* 64 bit sums: nanoseconds of each distribution, bytes, overhead, then the breakdown of QOS_SERVICE. */
enum qos_sum {
        QOS_SUM_BYTES_IN = QOS_DISTRIBUTIONS,   /* payload of requests, without retransmissions and unparsed
                                                 * connections */
        QOS_SUM_UNPARSED_IN,                    /* the same of unparsed connections */
        QOS_SUM_BYTES_OUT,                      /* payload of responses, without retransmissions and unparsed
                                                 * connections */
        QOS_SUM_UNPARSED_OUT,                   /* the same of unparsed connections */
        QOS_SUM_INTENDED,                       /* time to first byte of the requests in
                                                 * QOS_COUNTER_INTENDED */
        QOS_SUM_COST,                           /* run time of the programs in ns, extrapolated from samples
                                                 * (overhead.h) */
        QOS_SUM_FLOW_RTT,                       /* smoothed round-trip times of connections to the unit, us,
                                                 * with the probe "network" */
        QOS_SUM_ATTRIBUTED,                     /* number of requests read and responded to by the same
                                                 * thread */
        QOS_SUM_STATES,                         /* time of that thread between the two, by state: index is
                                                 * this plus enum qos_state, including
                                                 * QOS_STATE_BLOCKED_BY_REQUESTS */
        QOS_SUMS = QOS_SUM_STATES + QOS_STATES,
};
