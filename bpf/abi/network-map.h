/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Layout of the network map of a unit: what TCP has counted on its connections. Written by the programs of
 * the probe "network" (bpf/network/network-record.h), read by src/model/network-window.c.
 *
 * The map is an array whose elements have one size:
 *
 *   QOS_NETWORK_HEADER        generation, checkpoints written
 *   QOS_NETWORK_CHECKPOINT    counters at boundaries of sub-windows: QOS_CHECKPOINTS of them
 *   QOS_NETWORK_LIVE          counters now
 *   QOS_NETWORK_CARRY         number of wraparounds of each bin
 *   QOS_NETWORK_PEAKS         largest samples
 *
 * All CPUs write to the same counters. What TCP counts is recorded ten times a second for a connection at
 * most, samples for each segment. */

#include "unit-map.h"

/* What is counted of each connection, as a difference to what was recorded of it before. */
enum qos_flow_counter {
        QOS_FLOW_RETRANSMITS,           /* segments */
        QOS_FLOW_BYTES_RETRANSMITTED,
        QOS_FLOW_BYTES_SENT,
        QOS_FLOW_BYTES_ACKED,
        QOS_FLOW_BYTES_RECEIVED,
        QOS_FLOW_BYTES_READ,            /* by the application */
        QOS_FLOW_BYTES_WRITTEN,
        QOS_FLOW_TIMEOUTS,              /* of retransmissions */
        QOS_FLOW_TICKS,                 /* time that the connection has existed, in jiffies */
        QOS_FLOW_TICKS_BUSY,            /* of this, with data to send, and not limited by what follows */
        QOS_FLOW_TICKS_PEER_WINDOW,     /* limited by the receive window of the peer */
        QOS_FLOW_TICKS_SEND_BUFFER,     /* limited by the own send buffer */
        QOS_FLOW_COUNTERS,
};

/* Distributions, in nanoseconds. */
enum qos_network_distribution {
        QOS_NETWORK_RTT,                /* round-trip times as TCP measures them */
        QOS_NETWORK_DURATION,           /* from the end of the handshake to the end of the connection */
        QOS_NETWORK_HANDSHAKE,          /* from connect(2) to the end of the handshake */
        QOS_NETWORK_PORTS,              /* from connect(2) to the first SYN */
        QOS_NETWORK_RECEIVING_DRIVER,   /* of a segment with data: from its arrival stamp to the IP layer */
        QOS_NETWORK_RECEIVING_IP,       /* from there to TCP */
        QOS_NETWORK_RECEIVING_BACKLOG,  /* the same, if a process had locked the socket */
        QOS_NETWORK_RECEIVING_SOCKET,   /* from TCP to the application */
        QOS_NETWORK_RECEIVING_TOTAL,    /* from the arrival stamp to the application */
        QOS_NETWORK_TRANSMITTING_IP,    /* of a segment: from TCP to the queue of the device */
        QOS_NETWORK_TRANSMITTING_TOTAL, /* from TCP to the driver */
        QOS_NETWORK_TRANSMITTING_PACING, /* how long it has to wait in the queue for its time to leave */
        QOS_NETWORK_RTT_KERNEL,         /* of a segment and its acknowledgement: from TCP to the driver */
        QOS_NETWORK_RTT_WIRE,           /* the rest of the round-trip time */
        QOS_NETWORK_DISTRIBUTIONS,
};

/* Discarded packets are counted by the first reasons that occur on the machine, the rest together in the
 * last row. The kernel has 130 reasons, of which a machine meets a handful. */
#define QOS_DROP_ROWS 16U

enum qos_network_sum {
        QOS_NETWORK_FLOWS,              /* index is this plus enum qos_flow_counter */
        QOS_NETWORK_RECOVERIES = QOS_NETWORK_FLOWS + QOS_FLOW_COUNTERS, /* fast retransmits begun */
        QOS_NETWORK_SYN_RETRANSMITS,    /* segments retransmitted while connecting */
        QOS_NETWORK_PORTS_EXHAUSTED,    /* connections without a local port */
        QOS_NETWORK_UNSTAMPED,          /* segments whose arrival is not known */
        QOS_NETWORK_DROPS,              /* discarded packets: index is this plus the row of the reason */
        QOS_NETWORK_NSEC = QOS_NETWORK_DROPS + QOS_DROP_ROWS, /* sums of samples, by enum
                                         * qos_network_distribution */
        QOS_NETWORK_COST = QOS_NETWORK_NSEC + QOS_NETWORK_DISTRIBUTIONS, /* run time of the programs in ns,
                                         * extrapolated from samples */
        QOS_NETWORK_SUMS,
};

/* Round-trip times have bins of schema 3. All others have two bins per power of two (schema 1): the map has
 * place for two of the former only. */
#define QOS_NETWORK_ROUGH_SCHEMA 1
#define QOS_NETWORK_ROUGH_BINS (HISTOGRAM_OCTAVES * 2 + 2)
#define QOS_NETWORK_SCHEMA(d) ((d) == QOS_NETWORK_RTT ? HISTOGRAM_COARSE_SCHEMA : QOS_NETWORK_ROUGH_SCHEMA)
#define QOS_NETWORK_FIRST_BIN(d)                                                                     \
        ((d) == QOS_NETWORK_RTT ? 0 : HISTOGRAM_COARSE_BINS + ((d) - 1) * QOS_NETWORK_ROUGH_BINS)
#define QOS_NETWORK_BINS QOS_NETWORK_FIRST_BIN(QOS_NETWORK_DISTRIBUTIONS)

struct qos_network_header {
        __u32 generation;       /* set once before the map is frozen; differs for each map created */
        __u32 unit;             /* generation of the unit, as in struct qos_owner */
        __u32 rolling;          /* CPU + 1 of the program writing checkpoints; 0: none */
        __u32 slot;             /* of the unit; set once */
        __u64 epoch;            /* of the newest event */
        __u32 written[QOS_LEVELS];
};

/* Counters now; or at the boundaries first … last, in sub-windows of the level. No event lies between first
 * and last. */
struct qos_network_counts {
        __u64 first;
        __u64 last;             /* < first: invalid or being written */
        __u64 sums[QOS_NETWORK_SUMS];
        __u32 bins[QOS_NETWORK_BINS]; /* modulo 2^32: coarse */
};

/* Distributions whose largest samples are in an element. */
#define QOS_NETWORK_PEAKS_EACH 7U

union qos_network_element {
        struct qos_network_header header;
        struct qos_network_counts counts;
        struct qos_max_ring peaks[QOS_NETWORK_PEAKS_EACH];
};

/* ---- clock -------------------------------------------------------------------------------------------- */

/* Differences of clocks, by which programs read the arrival stamps of packets, which are in CLOCK_REALTIME
 * (array with a single element). */
struct qos_network_clock {
        __u64 realtime;         /* CLOCK_REALTIME - CLOCK_MONOTONIC, ns; 0: not known */
        __u64 tai;              /* CLOCK_TAI - CLOCK_REALTIME, ns */
        __u64 set_at;           /* CLOCK_MONOTONIC ns when the clock was set last; 0: not since the start */
};

/* A step that is larger is noticed by programs. More than a thread that reads two clocks is interrupted. */
#define QOS_CLOCK_SLACK_NSEC 10000000ULL

/* Time after a step for which no arrival stamp is used: packets may have waited since before. */
#define QOS_CLOCK_SETTLE_NSEC 1000000000ULL

/* ---- drops -------------------------------------------------------------------------------------------- */

/* The reason of each row but the last, the same in all maps (array with a single element). */
struct qos_drop_reasons {
        __u32 reasons[QOS_DROP_ROWS - 1]; /* enum skb_drop_reason; 0: free, as are all after it */
};

/* Reasons of the core of the kernel; those of its subsystems are beyond. */
#define QOS_DROP_REASONS 256U

/* ---- single connections ------------------------------------------------------------------------------- */

/* What limits sending on a connection at a moment; as enum tcp_chrono. */
enum qos_flow_limit {
        QOS_FLOW_BY_APPLICATION,        /* nothing to send */
        QOS_FLOW_BY_NETWORK,
        QOS_FLOW_BY_PEER_WINDOW,
        QOS_FLOW_BY_SEND_BUFFER,
        QOS_FLOW_LIMITS,
};

/* A connection, as written by the iterator that lists them. */
struct qos_connection {
        struct qos_address local;
        struct qos_address peer;
        __u32 slot;             /* of the unit */
        __u32 unit;             /* generation of it */
        __u64 age;              /* ns since the end of the handshake; 0: it is older than the attach */
        __u64 bytes_sent;       /* these, and counts below, since the connection began */
        __u64 bytes_acked;
        __u64 bytes_received;
        __u64 bytes_retransmitted;
        __u32 retransmits;
        __u32 timeouts;
        __u32 rtt;              /* us, smoothed; 0: not measured yet */
        __u32 peer_window;      /* bytes */
        __u32 receive_window;
        __u32 congestion_window; /* segments */
        __u32 mss;
        __u32 in_flight;        /* bytes sent and not acknowledged */
        __u32 in_flight_segments;
        __u32 unsent;           /* bytes written and not sent */
        __u32 max_queued;       /* most bytes written and not acknowledged, when it was recorded */
        __u8 state;             /* TCP_ESTABLISHED and so on */
        __u8 limit;             /* enum qos_flow_limit */
        __u8 client;            /* 1: the unit has opened it */
        __u8 _padding;
};

/* Units whose connections are listed (array with a single element). */
struct qos_connections_request {
        __u64 slots[UNITS_MAX_LIMIT / 64]; /* bitmap */
};

/* ---- segments between two hosts ----------------------------------------------------------------------- */

/* Distance of the bytes whose times are recorded, in sequence space: a power of two. */
#define QOS_STAMP_SPACING 1024U

/* The newest ones are kept. A power of two. */
#define QOS_STAMPS 4096U

enum qos_stamp_kind {
        QOS_STAMP_LEAVES = 1,           /* the driver gets it for the first time */
        QOS_STAMP_RETRANSMITTED,        /* the same, again */
        QOS_STAMP_ARRIVES,              /* the arrival stamp of data in sequence */
};

/* A byte of a stream. */
struct qos_stamp {
        __u64 at;               /* CLOCK_MONOTONIC ns; 0: none */
        __u32 position;         /* sequence number */
        __u32 unit;             /* generation of it */
        __u16 slot;             /* of the unit */
        __u16 local_port;
        __u16 peer_port;
        __u16 kind;             /* enum qos_stamp_kind */
};

/* Of all units (arrays with a single element). */
struct qos_stamp_ring {
        __u64 next;             /* number of stamps that were recorded */
        struct qos_stamp stamps[QOS_STAMPS];
};

struct qos_stamp_control {
        __u64 until;            /* CLOCK_MONOTONIC ns until which stamps are recorded; 0: none are */
};

#define QOS_NETWORK_HEADER 0U
#define QOS_NETWORK_CHECKPOINT 1U
#define QOS_NETWORK_LIVE (QOS_NETWORK_CHECKPOINT + QOS_CHECKPOINTS)
#define QOS_NETWORK_CARRY (QOS_NETWORK_LIVE + 1U)
#define QOS_NETWORK_PEAKS (QOS_NETWORK_CARRY + 1U)
#define QOS_NETWORK_ELEMENTS                                                                         \
        (QOS_NETWORK_PEAKS + (QOS_NETWORK_DISTRIBUTIONS - 1U) / QOS_NETWORK_PEAKS_EACH + 1U)

/* Array elements begin at multiples of 8 bytes. */
_Static_assert(sizeof(union qos_network_element) % 8 == 0, "elements of an array follow each other");
_Static_assert(sizeof(union qos_network_element) * QOS_NETWORK_ELEMENTS <= 192 << 10,
               "a map takes at most 192 KiB");
