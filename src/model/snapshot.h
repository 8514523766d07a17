/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* One consistent reading of one unit over one window. Every view (D-Bus, varlink, qosctl, metrics) shows
 * this struct and computes nothing of its own. The catalogue in dbus/ names the fields; the generated metric
 * table (metric.h) leads from a metric's name to its offset in here.
 *
 * What was not measured, or does not apply, is UINT64_MAX in integers and NaN in doubles, never 0. All
 * durations are nanoseconds, sizes bytes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "contention-map.h"
#include "util.h"

/* The default of DefaultWindow= in qosd.conf. */
#define WINDOW_DEFAULT_NSEC UINT64_C(10000000000)

/* The window "since attach". */
#define WINDOW_TOTAL UINT64_C(0)

typedef enum Quality {
        QUALITY_ABSENT,         /* the probe "requests" does not run for this unit, or nothing was counted */
        QUALITY_EXACT,          /* a parser knows the protocol */
        QUALITY_EXCHANGES,      /* one answer per question assumed */
        QUALITY_OVERLAPPING,    /* questions came while one was open: counts and quantiles are absent */
        _QUALITY_MAX,
} Quality;

const char* quality_to_string(Quality q);       /* "exact", "exchanges", "overlapping"; NULL for absent */

/* The distribution of a duration. count and max are there whenever the distribution is measured; mean when
 * count is not 0; a quantile q when count * min(q, 1-q) >= 5. */
typedef struct Distribution {
        uint64_t count;
        uint64_t mean;
        uint64_t p50, p90, p95, p99, p999;
        uint64_t max;
} Distribution;

/* Its quantiles, in ascending order. */
typedef struct Quantile {
        const char *name;               /* of the member, and of the metric's last part: "p50" */
        double q;
        size_t offset;                  /* in Distribution */
} Quantile;

#define QUANTILES 5
extern const Quantile quantile_table[QUANTILES];

void distribution_set_absent(Distribution *d);

static inline uint64_t distribution_get_quantile(const Distribution *d, const Quantile *quantile) {
        return *(const uint64_t*) ((const char*) d + quantile->offset);
}

typedef struct Connections {
        uint64_t open;                  /* gauge: established connections that were accepted from a
                                         * listener */
        uint64_t accepted;              /* handshakes completed */
        uint64_t accept_queue;          /* gauge: established, not yet taken by accept(); all listeners
                                         * together */
        uint64_t accept_queue_max;      /* gauge: the backlog limits of all listeners together */
        uint64_t listen_drops;          /* connection attempts the kernel dropped at the listeners */
        uint64_t retransmits;           /* segments sent again */
} Connections;

typedef struct Server {
        uint64_t count;                 /* requests whose first answer byte left in the window */
        double rate;                    /* count per second of covered time */
        uint64_t errors_reset;          /* the unit ended a connection with a question unanswered */
        uint64_t errors_timeout;        /* the connection timed out with a question unanswered */
        uint64_t errors_status5xx;      /* answers of HTTP that say the unit failed; absent where none of
                                         * HTTP was counted */
        uint64_t errors_grpc;           /* calls of gRPC whose status does; absent where none was counted */
        uint64_t status4xx;             /* answers of HTTP that say the client is wrong */
        uint64_t status_unknown;        /* answers of HTTP/2 whose status is not known: the others are absent
                                         * then */
        uint64_t client_aborts;         /* the client ended a connection with its question unanswered */
        uint64_t in_flight;             /* gauge: questions that have begun to arrive, answers not all
                                         * left */
        uint64_t oldest_in_flight;      /* gauge: age of the oldest of these; absent while there is none */
        Distribution latency;
        Distribution first_byte;
        Distribution receive;
        Distribution queue;
        Distribution service;
        struct {
                double attributed;      /* share of count: answered by the thread that had read it, whose
                                         * states are known */
                double shares[QOS_STATES]; /* of the service time of these; NaN if there are none */
                double blocked_by_requests;            /* … what of park and poll another thread, in the
                                                        * midst of a request, has ended */
        } service_states;
        Distribution answer;
        uint64_t protocol_tcp;          /* plain exchanges on TCP, part of count */
        uint64_t protocol_http1;        /* requests of HTTP/1.0 and 1.1, part of count */
        uint64_t protocol_redis;        /* commands of RESP, part of count */
        uint64_t protocol_memcached;    /* requests of memcached's protocols, part of count */
        uint64_t protocol_http2;        /* requests of HTTP/2, part of count */
        uint64_t protocol_grpc;         /* … those that are calls of gRPC apart */
        uint64_t protocol_tls;          /* exchanges sealed by TLS, part of count */
        uint64_t protocol_unix;         /* plain exchanges on Unix sockets, part of count */
        uint64_t protocol_udp;          /* plain exchanges on UDP, part of count */
        uint64_t blocking;              /* those that asked the unit to wait, part of count and of no
                                         * distribution */
        uint64_t streams;               /* answers that never are complete, part of count: their time ends
                                         * with their head */
        uint64_t excluded;              /* requests that were left out of all of this, by where or what they
                                         * asked */
        uint64_t bytes_in;
        uint64_t bytes_out;
        Connections connections;
} Server;

/* What the unit asks of others, all of them together. */
typedef struct ClientRole {
        uint64_t count;                 /* requests whose first answer byte came in the window */
        double rate;                    /* count per second of covered time */
        uint64_t errors_reset;          /* the other end ended or refused a connection, with a question
                                         * unanswered */
        uint64_t errors_timeout;        /* it timed out with a question unanswered, or while it was being
                                         * made */
        uint64_t aborts;                /* the unit ended a connection with its question unanswered */
        uint64_t in_flight;             /* gauge: questions that have begun to leave, and no answer has begun
                                         * to come */
        Distribution latency;
        uint64_t bytes_in;
        uint64_t bytes_out;
} ClientRole;

typedef struct Requests {
        Quality quality;
        Server server;
        ClientRole client;
} Requests;

/* What the unit has block devices do, or one of them, by enum qos_block_counter: requests that are done. */
typedef struct BlockCounts {
        uint64_t operations[QOS_BLOCK_COUNTERS];
        uint64_t bytes[QOS_BLOCK_COUNTERS]; /* those of flushes are not used */
        uint64_t queue_time;            /* ns that requests waited to be given to the device, all together */
        uint64_t device_time;           /* ns that the device had them */
} BlockCounts;

typedef struct Block {
        BlockCounts counts;
        uint64_t sectors;               /* of 512 bytes, as the kernel counts */
        uint64_t writeback_bytes;       /* part of the bytes written: by the kernel, for the unit; absent
                                         * without the io controller */
        Distribution read_queue;
        Distribution read_device;
        Distribution write_queue;
        Distribution write_device;
} Block;

typedef struct Memory {
        uint64_t minor_faults;
        uint64_t major_faults;          /* those that had to wait for a device */
        uint64_t minor_fault_time;      /* ns, of all threads */
        uint64_t major_fault_time;
        uint64_t reclaims;              /* how often a thread looked for memory to free */
        uint64_t reclaim_time;
        uint64_t dirty_throttles;       /* how often a thread had to wait as too much was dirty */
        uint64_t dirty_throttle_time;
        uint64_t oom_kills;
        uint64_t swap_ins;              /* pages */
        uint64_t refaults;              /* pages of files that were needed again soon after they had been
                                         * dropped */
} Memory;

/* Time in which threads of the unit were held up for want of something. */
typedef struct Pressure {
        double some;                    /* share of the window in which at least one was */
        double full;                    /* … in which all were that could have done something */
        uint64_t some_time;             /* ns */
        uint64_t full_time;
} Pressure;

typedef struct Quota {
        uint64_t periods;               /* of the CPU quota, in which the unit wanted to run */
        uint64_t throttled_periods;     /* … those in which it was used up */
        uint64_t throttled_time;        /* ns, by CPU: all that it may not run on then */
} Quota;

/* Where the time of the unit's threads goes, by enum qos_state; that of QOS_STATE_NONE is not used. */
typedef struct Contention {
        uint64_t covered;               /* ns of the window in which the unit was watched with one of the
                                         * probes of contention */
        uint64_t thread_time;           /* ns that all threads together have lived: the sum of time[] */
        double shares[QOS_STATES];      /* time[] / thread_time; NaN while there are no threads */
        double threads[QOS_STATES];     /* time[] / covered: average number of threads */
        uint64_t time[QOS_STATES];      /* ns, waits in progress included */
        uint64_t waits[QOS_STATES];     /* how often a thread left the CPU for this; from QOS_STATE_LOCK
                                         * on */
        uint64_t switches_voluntary;    /* the sum of waits[] */
        uint64_t switches_involuntary;  /* how often a thread left the CPU though it could have gone on */
        uint64_t migrations;            /* to another CPU than the one it ran on before */
        uint64_t wake_ups;
        uint64_t futex_wakes;           /* threads woken by one of the unit in futex(2) */
        struct {
                double share;           /* of covered: at least one request of the unit was in flight; NaN:
                                         * several units in it serve */
                uint64_t thread_time;   /* ns: the sum of all states */
                double shares[QOS_STATES];
        } serving;                      /* the same of the time in which requests were in flight */
        Distribution run_queue_latency; /* from ready to running, without what it was throttled for */
        Block block;
        Memory memory;
        struct {
                Pressure cpu;
                Pressure memory;
                Pressure io;
        } pressure;
        Quota quota;
} Contention;

/* What the metric table points into. */
typedef struct Metrics {
        Requests requests;
        Contention contention;
} Metrics;

/* A part of these figures: an endpoint that the unit answers at, or a peer that it asks. */
typedef enum RowKind {
        ROW_ENDPOINT,
        ROW_EXCLUDED,           /* an endpoint that is not in the unit's figures */
        ROW_PEER,
} RowKind;

typedef struct Row {
        RowKind kind;
        bool rest;              /* all others of the kind, which have no row of their own */
        uint8_t address[16];    /* IPv4: the first four */
        uint16_t port, family;
        char path[109];         /* of a Unix socket, whose address is a number without a meaning */
        bool measured;          /* 0: only that it is there is known, not what it did in this window */
        uint64_t count;         /* as in Server, and in ClientRole; absent if questions overlap */
        double rate;
        uint64_t errors_reset, errors_timeout, aborts;
        uint64_t in_flight;
        uint64_t bytes_in, bytes_out;
        Distribution latency;   /* max is absent of the first endpoint of several */
} Row;

/* As long as the kernel has them. */
#define DEVICE_NAME_MAX 32

/* What the unit has one block device do. */
typedef struct BlockDevice {
        char name[DEVICE_NAME_MAX]; /* "sda"; empty: all others */
        BlockCounts counts;
        double share;           /* of all bytes to and from the device; NaN: not known */
} BlockDevice;

/* The rows of a unit's map, and the first endpoint. */
#define SNAPSHOT_ROWS_MAX 13

typedef struct Snapshot {
        uint64_t seq;           /* grows by one with each new reading of the unit; equal seq means equal
                                 * content */
        uint64_t timestamp;     /* CLOCK_REALTIME, ns since 1970 */
        uint64_t window;        /* ns; WINDOW_TOTAL for since attach */
        uint64_t covered;       /* ns of the window in which the unit was attached */
        Metrics metrics;        /* over the window */
        Metrics totals;         /* since attach; only what the catalogue calls a counter is meaningful */
        Row rows[SNAPSHOT_ROWS_MAX]; /* endpoints, then peers, those that take most time first; over the
                                      * window */
        size_t n_rows;
        BlockDevice devices[QOS_BLOCK_ROWS]; /* those that the unit has used, with most time first; over the
                                              * window */
        size_t n_devices;
        double cost_share;      /* what qosd's programs took for this unit, as a share of one CPU; NaN:
                                 * nothing is measured */
        uint64_t drops;         /* since attach: events of this unit that could not be booked */
} Snapshot;

/* A window that can be asked for: WINDOW_TOTAL, 60 s, 300 s, multiples of 100 ms up to 1 s and of 1 s up to
 * 10 s. */
bool window_is_valid(uint64_t window_nsec);
#define WINDOW_EXPECTED "a multiple of 100ms up to 1s, of 1s up to 10s, 60s, 5min, or total"
