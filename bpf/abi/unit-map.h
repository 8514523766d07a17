/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Shared between the BPF programs and the daemon: the map of one observed unit, and the small values of the
 * other maps. Any change here changes the checksum of the object, so that a daemon never adopts maps with
 * another layout (probe.c). */

#include <linux/types.h>

#include "unit-counters.h"

/* Size of all maps indexed by slot; UnitsMax= may only lower it. 256 units x 950 KiB are 240 MiB of kernel
 * memory, the upper limit for a monitoring service. */
#define UNITS_MAX_LIMIT 256U

/* ---- windows ------------------------------------------------------------------------------------------ */

/* The finest sub-window. All times in the map of a unit are in these "epochs": CLOCK_MONOTONIC / 100 ms. */
#define QOS_EPOCH_NSEC 100000000ULL

/* A level has checkpoints of the unit's counters at the boundaries of its sub-windows:
 *
 *   level  sub-window  for windows up to
 *     0      100 ms      1 s
 *     1        1 s      10 s
 *     2       10 s      60 s
 *     3       50 s       5 min
 *
 * so that the windows 1 s, 10 s, 60 s and 5 min advance in steps of at most a sixth. A window is the
 * difference between the current counters and a checkpoint, hence an event is recorded once, not once per
 * level. */
#define QOS_LEVELS 4
#define QOS_LEVEL_EPOCHS(level) ((level) == 0 ? 1U : (level) == 1 ? 10U : (level) == 2 ? 100U : 500U)

/* One more than the windows need, and one being written while the others are read. */
#define QOS_LEVEL_CHECKPOINTS(level) ((level) <= 1 ? 12U : 8U)
#define QOS_LEVEL_FIRST_CHECKPOINT(level) ((level) == 0 ? 0U : (level) == 1 ? 12U : (level) == 2 ? 24U : 32U)
#define QOS_CHECKPOINTS 40

/* Maxima cannot be subtracted: they are kept per sub-window, in rings of these sizes. */
#define QOS_LEVEL_MAXIMA(level) ((level) <= 1 ? 16U : 8U)
#define QOS_LEVEL_FIRST_MAXIMUM(level) ((level) == 0 ? 0U : (level) == 1 ? 16U : (level) == 2 ? 32U : 40U)
#define QOS_MAXIMA 48

/* A maximum and its sub-window in one word, for atomic replacement: number of the sub-window in the upper 20
 * bits (unique for 29 hours at 100 ms), nanoseconds in the lower 44 (4.8 hours). */
#define QOS_MAXIMUM_BITS 44
#define QOS_MAXIMUM_MASK ((1ULL << QOS_MAXIMUM_BITS) - 1)

/* Largest samples of a distribution. */
struct qos_max_ring {
        __u64 total;
        __u64 ring[QOS_MAXIMA];
};

/* ---- counters of a unit ------------------------------------------------------------------------------- */

/* The serving clock: total time during which at least one request was in flight. One word, hence no lock,
 * written only when the first request arrives and when the last one completes. While stopped, the word is
 * the time; while running (with this bit), the word is CLOCK_MONOTONIC minus the time. */
#define QOS_SERVING (1ULL << 63)

static inline __attribute__((always_inline)) __u64 serving_clock_read(__u64 word, __u64 at) {
        return word & QOS_SERVING ? at - (word & ~QOS_SERVING) : word;
}

/* Starts or stops the clock: returns the new word. */
static inline __attribute__((always_inline)) __u64 serving_clock_toggle(__u64 word, __u64 now) {
        return word & QOS_SERVING ? serving_clock_read(word, now) : QOS_SERVING | (now - word);
}

/* Counters at the boundaries first … last, in sub-windows of the level. No event happened between the two.
 * Gauges are included: as with counters, a program calls window_advance() before it changes one. */
struct qos_checkpoint {
        __u64 first;
        __u64 last;             /* < first: invalid or being written */
        __s64 in_flight;        /* value of the gauges */
        __s64 open;
        __u64 serving;          /* value of the serving clock */
        __u64 sums[QOS_SUMS];
        __u32 cells[QOS_COUNTERS_SIZE];
};

/* ---- entries: metrics by address ---------------------------------------------------------------------- */

/* The endpoints that a unit serves, and the peers that it is a client of. The first endpoint has no entry:
 * its metrics are those of the unit minus the entries of all other endpoints, so that units with a single
 * one, the common case, pay nothing. Further endpoints get an entry each and, once there are none left,
 * share the first entry. Peers get an entry each, then share the second one.
 *
 * The number of entries is given by the size of a unit's map (640 KiB). */
#define QOS_ENTRIES 12
#define QOS_ENDPOINT_ENTRIES_MAX 7 /* the rest is reserved for peers */

/* Entries are numbered from 1: 0 is "none". */
#define QOS_ENTRY_ENDPOINTS_OTHERS 1
#define QOS_ENTRY_PEERS_OTHERS 2
#define QOS_ENTRY_FIRST 3

enum qos_entry_kind {
        QOS_ENTRY_FREE,
        QOS_ENTRY_ENDPOINT,
        QOS_ENTRY_EXCLUDED,       /* an endpoint excluded from the metrics of the unit */
        QOS_ENTRY_PEER,
};

struct qos_address {
        __u8 address[16];       /* IPv4: the first 4 bytes */
        __u16 port;             /* host byte order */
        __u16 family;
} __attribute__((aligned(4)));

/* sun_path, not NUL terminated at full length. */
#define QOS_SOCKET_PATH_SIZE 108

struct qos_peer_key {
        struct qos_address address;     /* of a Unix socket: hash of its path */
        __u32 taken;            /* 1: allocated, the key may not be complete yet */
        __u32 kind;             /* enum qos_entry_kind; written last, once the address is valid */
        __u32 generation;       /* incremented when the entry is reassigned */
        char path[QOS_SOCKET_PATH_SIZE]; /* of a Unix socket; starts with "@" if abstract */
};

/* 32 bit cells: the bins of the latency, schema 3, then counters like those of the unit. */
enum qos_entry_counter {
        QOS_ENTRY_COUNT = HISTOGRAM_COARSE_BINS,
        QOS_ENTRY_ERRORS_RESET,
        QOS_ENTRY_ERRORS_TIMEOUT,
        QOS_ENTRY_CLIENT_ABORTS,
        QOS_ENTRY_OVERLAPS,
        QOS_ENTRY_UNPARSED,               /* of a peer: connections that became unparsed */
        QOS_ENTRY_BUNDLED,                /* of a peer: requests sent while another was in flight, counted
                                           * without latency */
        QOS_ENTRY_STATUS_5XX,             /* of a peer: HTTP responses that report a server error */
        QOS_ENTRY_ERRORS_REPLIES,         /* of a peer: responses of Redis and memcached that report an
                                           * error */
        QOS_ENTRY_FLOW_RETRANSMITS,       /* as QOS_COUNTER_FLOW_RETRANSMITS and so on */
        QOS_ENTRY_FLOW_RTTS,
        QOS_ENTRY_COUNTERS,
};
#define QOS_ENTRY_COUNTERS_SIZE 238
_Static_assert(QOS_ENTRY_COUNTERS <= QOS_ENTRY_COUNTERS_SIZE, "no room for so many counters");

enum qos_entry_sum {
        QOS_ENTRY_SUM_LATENCY,
        QOS_ENTRY_SUM_BYTES_IN,
        QOS_ENTRY_SUM_BYTES_OUT,
        QOS_ENTRY_SUM_UNPARSED,           /* of a peer: part of the two above, on unparsed connections */
        QOS_ENTRY_SUM_RTT,                /* as QOS_SUM_FLOW_RTT */
        QOS_ENTRY_SUMS,
};

/* As struct qos_checkpoint. Entries have a single level: windows from 2 s to 10 s, and since attach. */
#define QOS_ENTRY_LEVEL 1
#define QOS_ENTRY_CHECKPOINTS QOS_LEVEL_CHECKPOINTS(QOS_ENTRY_LEVEL)

struct qos_entry_checkpoint {
        __u64 first;
        __u64 last;
        __u64 sums[QOS_ENTRY_SUMS];
        __u32 cells[QOS_ENTRY_COUNTERS_SIZE];
};

struct qos_peer_entry {
        __s64 in_flight;
        __u64 sums[QOS_ENTRY_SUMS];
        __u64 earned;                           /* known latency of the peer before the entry was assigned,
                                                 * ns */
        __u64 maximum_total;                    /* largest latency, ns */
        __u64 maxima[QOS_LEVEL_MAXIMA(QOS_ENTRY_LEVEL)]; /* largest latency by sub-window, as in struct
                                                          * qos_unit_map */
        __u32 cells[QOS_ENTRY_COUNTERS_SIZE];
        __u32 carry[QOS_ENTRY_COUNTERS_SIZE];
        struct qos_entry_checkpoint checkpoints[QOS_ENTRY_CHECKPOINTS];
        __u32 written;
        __u32 _padding;
};

/* Candidates for an entry, by Misra and Gries: a peer that accounts for more than a ninth of the time of all
 * peers without an entry is always among them. */
#define QOS_CHALLENGERS 8

struct qos_heavy_hitters {
        struct {
                struct qos_address address;
                __u32 _padding;
                __u64 nsec;     /* Misra-Gries counter; 0: free */
        } list[QOS_CHALLENGERS];
        __u64 changed_at;       /* CLOCK_MONOTONIC ns of the last reassignment */
        __u32 busy;             /* trylock: 1 while a program updates the list */
        __u32 _padding;
};

/* Requests in flight on sockets whose end no program sees: counted by iterators. */
enum qos_gauge {
        QOS_GAUGE_UNIX,
        QOS_GAUGE_UDP,
        QOS_GAUGES,
};

/* Requests without any response byte, long polls excluded, by age: bin i is for ages from
 * QOS_WAITING_NSEC(i) up to QOS_WAITING_NSEC(i + 1), the first one for all shorter ages, too. Octaves are
 * enough to detect a hang; the last one begins at 34 s. */
#define QOS_WAITING_BINS 20
#define QOS_WAITING_NSEC(bin) (65536ULL << (bin))

struct qos_waiting {
        __u64 oldest_at;        /* CLOCK_MONOTONIC ns of the first byte of the oldest; all bits set: none */
        __u32 ages[QOS_WAITING_BINS];
};

struct qos_open_requests {
        __u64 session;          /* of the iterator that wrote this; stale if it is not the last session */
        __u64 in_flight;
        __u64 oldest_at;
        struct qos_waiting waiting;
        __u32 rows[QOS_ENTRIES + 1]; /* by entry, including excluded ones; 0: unused */
};

/* Why data that a unit has written to a connection has not been acknowledged yet
 * (bpf/requests/send-wait.h). */
enum qos_send_wait {
        QOS_SEND_WAIT_NAGLE,            /* a partial segment, held until the previous one is acknowledged */
        QOS_SEND_WAIT_CORK,             /* a partial segment, held by the application (TCP_CORK) */
        QOS_SEND_WAIT_WINDOW,           /* the peer's receive window is closed */
        QOS_SEND_WAIT_WINDOW_FULL,      /* as QOS_SEND_WAIT_WINDOW, or the window is full of data in
                                         * flight */
        QOS_SEND_WAIT_BUFFER,           /* the whole send buffer is in flight, and the application has more
                                         * data */
        QOS_SEND_WAIT_PATH,             /* congestion window, pacing, retransmission, or network device */
        QOS_SEND_WAIT_OTHER,            /* unknown; most are about to be sent */
        QOS_SEND_WAITS,
};

/* Number of connections by the above, added up over all runs of requests_sends since the map was created. */
struct qos_sends {
        __u64 waits[QOS_SEND_WAITS];
        __u64 rtt;              /* sum of the smoothed round-trip times of these connections, us */
        __u64 awaiting;         /* number of connections older than the attach, without data since, on which
                                 * the client was the last to send: it may wait for a response */
};

/* Sums over all connections of a unit, by requests_gauges. The gauges in struct qos_unit_map differ from
 * these when the kernel skipped a program (QOS_COUNTER_MISSED). */
struct qos_summed {
        __u64 session;          /* of the iterator that wrote this; stale if it is not the last session */
        __u64 begun;            /* qos_unit_map.opened at the start of the session */
        __u64 activity;         /* window_activity() at the start of the session */
        __s64 open;
        __s64 in_flight;
        __s64 more_open;        /* excess of the gauge in the previous session; lower bound */
        __s64 more_in_flight;
        struct {
                __u64 activity; /* row_activity() at the start of the session */
                __s64 in_flight;
                __s64 more;
                __u64 queries;  /* 1: has had queries over UDP, which are in flight on no connection */
        } rows[QOS_ENTRIES];    /* by number - 1 */
};

/* Requests of an endpoint that were delayed by intent (bpf/core/intent.h). */
struct qos_intended {
        __u64 at;               /* end of the last one */
        __u64 longest;          /* time of the longest one, ns */
        __u64 score;            /* confidence, up to INTENT_SCORE_MAX */
};

/* The map of a unit: the only element of an mmapable, frozen array. Written by BPF programs only,
 * concurrently, with atomic operations on single words. The number of samples of a distribution is the sum
 * of its bins, each incremented once per sample, so that no second word can disagree. */
struct qos_unit_map {
        __u32 generation;       /* set once, before the map is frozen */
        __u32 rolling;          /* CPU + 1 of the program writing checkpoints; 0: none */
        __u64 epoch;            /* epoch of the newest event */
        __u64 epoch_end;        /* CLOCK_MONOTONIC ns of its end: a comparison is cheaper than a division */
        __u64 search_session;   /* of the first units_find_sockets that found an open file of the unit */
        __u64 never;            /* 0, see overhead_begin() */
        __u64 _read_mostly[3];  /* keeps words that each program reads, and words that requests write, in
                                 * separate cache lines */

        __s64 in_flight;        /* requests from first byte arrived to last response byte sent */
        __s64 open;             /* connections */
        __u64 serving;          /* serving clock: runs while in_flight > 0 */
        __u64 read_at;          /* CLOCK_MONOTONIC ns of the last read of a request */
        __u64 _written[4];

        /* Written by the iterators, for the snapshot that started them */
        __u64 listeners_session;
        __u64 accept_queue;
        __u64 accept_queue_max;
        __u64 oldest_session;
        __u64 oldest_at;        /* CLOCK_MONOTONIC ns of the first byte of the oldest open request, those
                                 * delayed by intent excluded */
        __u64 intending;        /* number of requests being delayed by intent */
        struct qos_waiting waiting;
        struct qos_open_requests gauges[QOS_GAUGES];

        __u64 sums[QOS_SUMS];
        __u64 maxima_total[QOS_DISTRIBUTIONS];
        __u64 maxima[QOS_MAXIMA][QOS_DISTRIBUTIONS];

        __u32 cells[QOS_COUNTERS_SIZE]; /* modulo 2^32 */
        __u32 carry[QOS_COUNTERS_SIZE]; /* number of wraparounds of each cell */

        __u32 written[QOS_LEVELS]; /* number of checkpoints written, modulo 2^32 */
        struct qos_checkpoint checkpoints[QOS_CHECKPOINTS];

        struct qos_peer_key names[QOS_ENTRIES + 1]; /* by number; 0: the first endpoint */
        struct qos_peer_entry rows[QOS_ENTRIES]; /* by number - 1 */
        struct qos_heavy_hitters challengers;
        struct qos_summed summed;
        struct qos_sends sends;
        struct qos_intended intended[QOS_ENTRIES + 1]; /* of endpoints, as names */
        __u64 opened;                           /* connections ever added to the gauge */
        /* Parts of machine-wide statistics already included in counters of the unit: */
        __u64 missed;                           /* QOS_STATISTIC_RUNS_MISSED in QOS_COUNTER_MISSED */
        __u64 lost;                             /* QOS_STATISTIC_RUNS_LOST in QOS_COUNTER_DROPS */
        __u64 lost_memory;                      /* QOS_STATISTIC_RUNS_LOST_MEMORY in
                                                 * QOS_COUNTER_DROPS_CONTENTION */
        __u64 lost_storage;                     /* QOS_STATISTIC_RUNS_LOST_STORAGE in the same */
        __u64 lost_network;                     /* QOS_STATISTIC_RUNS_LOST_NETWORK in the same */
        __u32 folds;                            /* odd while an entry is merged into the others */
        __u32 retired;                          /* 1: no longer complete or no longer written. For clients
                                                 * that read an export of the map (GetView) */
};

_Static_assert(__builtin_offsetof(struct qos_unit_map, in_flight) == 64 &&
               __builtin_offsetof(struct qos_unit_map, listeners_session) == 128,
               "what requests write has a cache line of its own");

/* Layout that libqosd has to match to read the map of a running qosd. Incremented whenever the meaning of a
 * word in struct qos_unit_map changes; most changes also alter the size. */
#define QOS_LAYOUT ((__u64) sizeof(struct qos_unit_map) << 24 | (__u64) QOS_COUNTERS << 8 | 6)

/* ---- other maps --------------------------------------------------------------------------------------- */

/* Owner of a control group (CGRP_STORAGE), of a path whose group may be created later (hash), or of a
 * socket. One word, so that it can be replaced while programs read it. No generation is 0. */
struct qos_owner {
        __u32 slot;
        __u32 generation;
} __attribute__((aligned(8)));

/* Position of the unit in a slot within the hierarchy (array). */
struct qos_hierarchy {
        struct qos_owner outer; /* innermost attached ancestor; generation 0: none */
        __u32 generation;       /* generation of the unit in the slot */
        __u32 flags;
};

#define QOS_HIERARCHY_RETAINED     1U  /* detached: its samples belong to the ancestor */
#define QOS_HIERARCHY_RESCAN       2U  /* a descendant was attached: reassign its sockets and groups */
#define QOS_HIERARCHY_EXPORT_ENDED 4U  /* units_end_exports() is to end exports of its map */

/* Maximum depth of an observed path, and thus of the hierarchy. */
#define QOS_HIERARCHY_DEPTH 32

/* A path in the control group tree relative to the root of the daemon, zero padded. Unit names have up to
 * 255 bytes, so the path of a service of a user manager has up to about 330. */
#define QOS_PATH_SIZE 512
struct qos_path {
        char path[QOS_PATH_SIZE];
};

/* Key of what is excluded from a unit's metrics (hash): an endpoint, or requests by name (exclude-key.h).
 * Sized for EXCLUDES_MAX (src/shared/exclude.h) for each of 256 units. */
#define QOS_EXCLUDES 4096
struct qos_exclude {
        struct qos_owner owner;
        __u64 name;             /* name, or port in host byte order */
        __u32 kind;             /* enum name_kind; QOS_EXCLUDE_PORT */
        __u32 _padding;         /* has to be 0: keys are compared as bytes */
};
#define QOS_EXCLUDE_PORT 0U

/* Whether a unit excludes requests by name (array, by slot): only then parsers hash names. */
struct qos_filter {
        __u32 generation;       /* generation of the unit in the slot */
        __u32 names;            /* 1: it does */
};

/* Whether requests_content sees all reads of a unit (array, by slot). If not, the daemon attaches
 * requests_read. */
struct qos_read_check {
        __u32 generation;       /* generation of the unit in the slot; the counters are of that unit */
        __u32 seen;             /* reads seen by both programs, up to QOS_READS_CHECKED */
        __u32 unseen;           /* reads not seen by requests_content, not limited: spliced, discarded, or
                                 * read by the kernel itself */
        __u32 _padding;
};

/* Number of reads without an unseen one that shows how the unit reads */
#define QOS_READS_CHECKED 1000U

/* A unit uses Unix sockets (array, by slot): the daemon keeps requests_unix attached. */
struct qos_unix_use {
        __u32 generation;       /* generation of the unit in the slot; 0: it does not, as far as known */
        __u32 _padding;
};

/* Size of the map of listening addresses of socket units (hash), by which sockets that the service manager
 * has already opened are recognized. Those that do not fit are found once the service has them open. */
#define QOS_ADDRESSES 4096

/* A listening socket of the service manager, as written by the iterator over its files. */
struct qos_activation_socket {
        __u64 cookie;
        struct qos_address address;
        __u32 _padding;
};

/* Owner of a listening socket (SK_STORAGE). */
struct qos_listener {
        struct qos_owner owner;
        __u64 session;          /* iterator session that last counted its accept queue */
};

/* Probes of the unit in a slot besides "requests" (array). */
struct qos_probe_config {
        __u32 generation;
        __u32 probes;
        __u32 missing_libraries; /* 1: a process of the unit uses TLS through a library without programs,
                                  * and the daemon was notified (ring buffer) */
        __u32 slow_usec;        /* calls on files that take at least this long are kept; 0: none */
};

#define QOS_PROBE_CONFIG_TLS 1U
#define QOS_PROBE_CONFIG_MEMORY 2U
#define QOS_PROBE_CONFIG_BLOCK 4U
#define QOS_PROBE_CONFIG_STORAGE 8U
#define QOS_PROBE_CONFIG_NETWORK 16U

/* Attributes of a function of libssl, passed as cookie of its uprobe. */
enum qos_openssl_call {
        QOS_CALL_READS      = 1 << 0,
        QOS_CALL_WRITES     = 1 << 1,
        QOS_CALL_COUNTS     = 1 << 2,   /* returns the count through a pointer, takes a size_t */
        QOS_CALL_FLAGS      = 1 << 3,   /* has flags in front of that pointer */
        QOS_CALL_SENDS_FILE = 1 << 4,
};

/* A mapped file named like libssl, as written by the iterator over the VMAs of a process. */
#define QOS_LIBRARY_PATH_SIZE 1024
struct qos_openssl_library {
        __u64 inode;
        __u32 device;           /* kernel encoding: major << 20 | minor */
        __u32 names_size;       /* 0: unknown */
        char path[QOS_LIBRARY_PATH_SIZE]; /* as visible to qosd, if it is */
        char names[QOS_LIBRARY_PATH_SIZE]; /* path within its file system: components from the file up to the
                                            * root, each NUL terminated */
};

/* Machine-wide counters (array). */
enum qos_statistic {
        /* Program runs skipped by the kernel; written by the daemon, read by units_count_missed(): */
        QOS_STATISTIC_RUNS_MISSED,      /* of programs whose effect is mostly recovered later */
        QOS_STATISTIC_RUNS_LOST,        /* of programs whose events are lost */
        QOS_STATISTIC_RUNS_LOST_MEMORY, /* the same, for units with the probe "memory" */
        QOS_STATISTIC_RUNS_LOST_STORAGE, /* the same, for units with the probe "storage" */
        QOS_STATISTIC_RUNS_LOST_NETWORK, /* the same, for units with the probe "network" */
        /* Runs of requests_state within one of requests_state_nested, written by the programs: */
        QOS_STATISTIC_STATES_RECORDED,
        QOS_STATISTIC_SEGMENTS_LOST,    /* segments with unreadable headers */
        /* Map elements that could not be allocated, or for which the map was full, by map: */
        QOS_STATISTIC_LOST_CONNS,       /* TCP connections not counted */
        QOS_STATISTIC_LOST_PIPELINES,   /* TCP connections not parsed */
        QOS_STATISTIC_LOST_H2_CONNS,    /* HTTP/2 connections not parsed */
        QOS_STATISTIC_LOST_H2_MORES,    /* HTTP/2 connections with half of the streams, and without paths */
        QOS_STATISTIC_LOST_TLS_CONNS,   /* TLS connections without record parser */
        QOS_STATISTIC_LOST_LISTENERS,   /* listeners whose accept queue is not counted */
        QOS_STATISTIC_LOST_UNIX_CONNS,
        QOS_STATISTIC_LOST_UNIX_UNRECORDED,
        QOS_STATISTIC_LOST_UNIX_NAMES,
        QOS_STATISTIC_LOST_UDP_SOCKETS,
        QOS_STATISTIC_LOST_UDP_PEERS,
        QOS_STATISTIC_LOST_UDP_PENDING,
        QOS_STATISTIC_LOST_PLAINTEXT,   /* TLS connections counted by records instead of plaintext */
        QOS_STATISTIC_LOST_PLAINTEXT_H2,
        QOS_STATISTIC_LOST_OPENSSL_CALLS, /* libssl calls whose plaintext is not parsed */
        QOS_STATISTIC_LOST_GROUPS,      /* control groups; the daemon finds them later */
        QOS_STATISTIC_LOST_THREADS,     /* threads without a state */
        QOS_STATISTIC_LOST_SERVICES,    /* threads whose states are not attributed to requests */
        QOS_STATISTIC_LOST_MEMORY_STALLS, /* threads whose page faults are not counted */
        QOS_STATISTIC_LOST_BLOCKS,      /* block I/O requests that are not counted */
        QOS_STATISTIC_LOST_BLOCK_USERS, /* unknown users of block devices */
        QOS_STATISTIC_LOST_LOCK_PLACES, /* kernel locks, looked up at each wait */
        QOS_STATISTIC_LOST_STORAGE_THREADS, /* threads whose calls on files are not counted */
        QOS_STATISTIC_LOST_FLOWS,       /* TCP connections that are not in the figures of "network" */
        QOS_STATISTIC_LOST_FLOW_PATHS,  /* segments whose way is not in the figures of "network" */
        QOS_STATISTICS,
};

/* Written by iterators when they have finished. */
struct qos_iter_session {
        __u64 id;
};

/* Task of units_walk_tcp for each socket. */
enum qos_walk {
        QOS_WALK_NONE,
        QOS_WALK_REASSIGN,
        QOS_WALK_LISTENERS,
        QOS_WALK_OLDEST,
        QOS_WALK_RETARGET,
};
