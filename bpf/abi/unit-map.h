/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* What the BPF programs and the daemon share: the map of one observed unit, and the small values of the
 * other maps. A change of anything in here changes the object's checksum, so that a running daemon's maps
 * are never taken over by one that reads them differently (probe.c). */

#include <linux/types.h>

#include "histogram.h"

/* No map of slots has more room; UnitsMax= may only lower it. 256 units x 950 KiB are 240 MiB of kernel
 * memory, the most that a service about other services may take. */
#define UNITS_MAX_LIMIT 256U

/* ---- windows ------------------------------------------------------------------------------------------ */

/* The finest sub-window. All time in the map of a unit is counted in these, "epochs": CLOCK_MONOTONIC / 100
 * ms. */
#define QOS_EPOCH_NSEC 100000000ULL

/* A level keeps checkpoints of the unit's counters at the boundaries of its sub-windows:
 *
 *   level  sub-window  for windows up to
 *     0      100 ms      1 s
 *     1        1 s      10 s
 *     2       10 s      60 s
 *     3       50 s       5 min
 *
 * so that each of the windows 1 s, 10 s, 60 s and 5 min moves on in steps of at most a sixth. A window is
 * the difference between the counters now and a checkpoint, therefore each event is booked once, not once
 * per level. */
#define QOS_LEVELS 4
#define QOS_LEVEL_EPOCHS(level) ((level) == 0 ? 1U : (level) == 1 ? 10U : (level) == 2 ? 100U : 500U)

/* One more than the windows reach back, and one that may be written while the others are read. */
#define QOS_LEVEL_CHECKPOINTS(level) ((level) <= 1 ? 12U : 8U)
#define QOS_LEVEL_FIRST_CHECKPOINT(level) ((level) == 0 ? 0U : (level) == 1 ? 12U : (level) == 2 ? 24U : 32U)
#define QOS_CHECKPOINTS 40

/* Maxima cannot be subtracted: they are kept per sub-window, in rings of these sizes. */
#define QOS_LEVEL_MAXIMA(level) ((level) <= 1 ? 16U : 8U)
#define QOS_LEVEL_FIRST_MAXIMUM(level) ((level) == 0 ? 0U : (level) == 1 ? 16U : (level) == 2 ? 32U : 40U)
#define QOS_MAXIMA 48

/* A maximum and the sub-window it belongs to in one word, so that it is replaced atomically: the
 * sub-window's number in the upper 20 bits (distinct for 29 hours even at 100 ms), nanoseconds in the lower
 * 44 (4.8 hours). */
#define QOS_MAXIMUM_BITS 44
#define QOS_MAXIMUM_MASK ((1ULL << QOS_MAXIMUM_BITS) - 1)

/* ---- counters of a unit ------------------------------------------------------------------------------- */

/* The distributions, all in nanoseconds. Three of them are nearly always equal to another one, or all zero,
 * and are kept as the difference (modulo 2^32 and 2^64), so that what a question costs is three samples and
 * not six. A reader adds what is named in brackets, see window_complete() in src/model/window.c. */
enum qos_distribution {
        QOS_LATENCY,            /* first question byte at the IP layer to last answer byte leaving it
                                 * [QOS_FIRST_BYTE] */
        QOS_FIRST_BYTE,         /* … to first answer byte leaving it */
        QOS_RECEIVE,            /* first to last question byte at the IP layer [as many zeros as QOS_QUEUE
                                 * has samples] */
        QOS_QUEUE,              /* … until the application has read the last one */
        QOS_SERVICE,            /* … until the first answer byte leaves the IP layer */
        QOS_ANSWER,             /* … until the last one does [as many zeros as QOS_SERVICE has samples] */
        QOS_DISTRIBUTIONS,
};

#define QOS_DISTRIBUTION_IS_FINE(d) ((d) <= QOS_FIRST_BYTE)
#define QOS_DISTRIBUTION_BINS(d) (QOS_DISTRIBUTION_IS_FINE(d) ? HISTOGRAM_FINE_BINS : HISTOGRAM_COARSE_BINS)
#define QOS_DISTRIBUTION_FIRST_COUNTER(d)                                                                  \
        ((d) <= QOS_FIRST_BYTE ? (d) * HISTOGRAM_FINE_BINS : 2 * HISTOGRAM_FINE_BINS + \
         ((d) - 2) * HISTOGRAM_COARSE_BINS)

/* 32 bit cells: the bins of all distributions, then plain counters of events. */
enum qos_counter {
        /* questions whose first answer byte left */
        QOS_COUNTER_COUNT = 2 * HISTOGRAM_FINE_BINS + 4 * HISTOGRAM_COARSE_BINS,
        QOS_COUNTER_HTTP1,                 /* of these, those of each protocol that is parsed, as in enum
                                            * protocol (parser.h) … */
        QOS_COUNTER_REDIS,
        QOS_COUNTER_MEMCACHED,
        QOS_COUNTER_HTTP2,
        QOS_COUNTER_GRPC,
        QOS_COUNTER_TLS,                   /* … exchanges sealed by TLS … */
        QOS_COUNTER_UNIX,                  /* … plain exchanges on Unix sockets … */
        QOS_COUNTER_UDP,                   /* … on UDP */
        QOS_COUNTER_WAITS,                 /* of these, those that asked the unit to wait: in no
                                            * distribution */
        QOS_COUNTER_STREAMS,               /* … whose answers are streams */
        QOS_COUNTER_EXCLUDED,              /* questions that are left out of all of this, and were
                                            * answered */
        QOS_COUNTER_STATUS_4XX,            /* … with an answer that says the client is wrong … */
        QOS_COUNTER_STATUS_5XX,            /* … that the unit failed */
        QOS_COUNTER_STATUS_UNKNOWN,        /* … of HTTP/2 of which that is not known (hpack.h) */
        QOS_COUNTER_ERRORS_GRPC,           /* … of gRPC that say the unit failed */
        QOS_COUNTER_ERRORS_RESET,          /* connections that the unit ended with a question unanswered */
        QOS_COUNTER_ERRORS_TIMEOUT,        /* … that timed out with a question unanswered */
        QOS_COUNTER_CLIENT_ABORTS,         /* … that the client ended with its question unanswered */
        QOS_COUNTER_OVERLAPS,              /* questions that came while one was open */
        QOS_COUNTER_ACCEPTED,              /* handshakes completed (inet_sock_set_state) */
        QOS_COUNTER_LISTEN_DROPS,          /* connection attempts that came while the queue of their listener
                                            * was full */
        QOS_COUNTER_RETRANSMITS,           /* segments (tcp_retransmit_skb) */
        QOS_COUNTER_DROPS,                 /* events of this unit that could not be booked */
        QOS_COUNTER_MISSED,                /* runs of programs that the kernel has skipped since the unit was
                                            * attached, of the whole machine */
        QOS_COUNTERS,
};

/* Room for them: fixed, so that a counter more does not move what lies behind. A multiple of 8, which copies
 * are fastest in */
#define QOS_COUNTERS_SIZE 2752
_Static_assert(QOS_COUNTERS <= QOS_COUNTERS_SIZE, "no room for so many counters");

/* What a thread does, or waits for: each is in one of them at any time, see contention-map.h. */
enum qos_state {
        QOS_STATE_NONE,         /* of a thread that is not in any book */
        QOS_STATE_RUNNING,      /* on a CPU, in the program or in the kernel for it */
        QOS_STATE_RUN_QUEUE,    /* ready, but others run */
        QOS_STATE_THROTTLED,    /* ready, but the CPU quota of its control group is used up */
        QOS_STATE_LOCK,         /* waits for what another thread holds: a mutex, a file lock, a lock in the
                                 * kernel */
        QOS_STATE_PARK,         /* waits in futex(2) for work: condition variables, idle pools */
        QOS_STATE_DISK,         /* waits for files and block devices */
        QOS_STATE_SOCKET,       /* in a call on one socket */
        QOS_STATE_POLL,         /* for one of many descriptors, or one that is neither socket, pipe nor
                                 * file */
        QOS_STATE_PIPE,         /* in a call on a pipe or a message queue */
        QOS_STATE_SLEEP,        /* for a time, or a signal */
        QOS_STATE_MEMORY,       /* page faults, reclaim, dirty pages that are too many */
        QOS_STATE_CHILD,        /* for another process to end, or to be started */
        QOS_STATE_OTHER,        /* stopped, frozen, traced, and what is known to be none of the above */
        QOS_STATES,

        /* No thread is in no state: in its place is what of park and poll was until another thread of the
         * unit, in the midst of a request of its own, let this one go on */
        QOS_STATE_BLOCKED_BY_REQUESTS = QOS_STATE_NONE,
};

/* 64 bit sums: one per distribution (nanoseconds), then bytes, what all this costs, then what is known of
 * QOS_SERVICE. */
enum qos_sum {
        QOS_SUM_BYTES_IN = QOS_DISTRIBUTIONS,   /* payload of questions, each byte once */
        QOS_SUM_BYTES_OUT,                      /* payload of answers, each byte once */
        QOS_SUM_COST,                           /* nanoseconds of programs, by those that were measured
                                                 * (overhead.h) */
        QOS_SUM_ATTRIBUTED,                     /* questions that were answered by the thread that had read
                                                 * them … */
        QOS_SUM_STATES,                         /* … and in which state that was in between: from this plus
                                                 * the state on, and QOS_STATE_BLOCKED_BY_REQUESTS */
        QOS_SUMS = QOS_SUM_STATES + QOS_STATES,
};

/* The serving clock: for how long, up to a moment, at least one question has been in flight. It is one word,
 * so that it needs no lock and is written only when the first question comes and when the last one is
 * answered. While it stands still the word is what it shows; while it goes, with this bit, how far it is
 * behind CLOCK_MONOTONIC. */
#define QOS_SERVING (1ULL << 63)

static inline __attribute__((always_inline)) __u64 serving_clock_read(__u64 word, __u64 at) {
        return word & QOS_SERVING ? at - (word & ~QOS_SERVING) : word;
}

/* The word from now on. */
static inline __attribute__((always_inline)) __u64 serving_clock_toggle(__u64 word, __u64 now) {
        return word & QOS_SERVING ? serving_clock_read(word, now) : QOS_SERVING | (now - word);
}

/* The counters at the boundaries first … last (in sub-windows of the level): nothing happened between these.
 * Whoever changes one of the gauges in here enters the sub-window first (window_advance()), as for the
 * counters. */
struct qos_checkpoint {
        __u64 first;
        __u64 last;             /* < first: being written, or never was */
        __s64 in_flight;        /* the gauges, as they were then */
        __s64 open;
        __u64 serving;          /* … and the clock */
        __u64 sums[QOS_SUMS];
        __u32 cells[QOS_COUNTERS_SIZE];
};

/* ---- rows: what a unit does, by address --------------------------------------------------------------- */

/* The endpoints that a unit answers at, and the peers that it asks. Endpoints: the first one has no row. Its
 * figures are what the unit has and no other endpoint's row, so that a unit with a single one, which most
 * are, pays for none. Each further one has a row, as long as there are some, then all share the first row.
 * Peers: a row each, as long as there are some, and the second row for the rest.
 *
 * The number of rows is what the budget of a unit's map (640 KiB) leaves. */
#define QOS_ENTRIES 12
#define QOS_ENDPOINT_ENTRIES_MAX 7 /* so that some are left for peers */

/* Numbers of rows are counted from one: 0 is "none". */
#define QOS_ENTRY_ENDPOINTS_OTHERS 1
#define QOS_ENTRY_PEERS_OTHERS 2
#define QOS_ENTRY_FIRST 3

enum qos_entry_kind {
        QOS_ENTRY_FREE,
        QOS_ENTRY_ENDPOINT,
        QOS_ENTRY_EXCLUDED,       /* an endpoint that is not in the unit's figures */
        QOS_ENTRY_PEER,
};

struct qos_address {
        __u8 address[16];       /* IPv4: the first four */
        __u16 port;             /* host byte order */
        __u16 family;
} __attribute__((aligned(4)));

/* sun_path, without a zero at the end if it is as long as can be. */
#define QOS_SOCKET_PATH_SIZE 108

struct qos_peer_key {
        struct qos_address address;     /* of a Unix socket: a hash of its path */
        __u32 taken;            /* 1: it has an owner, whose name may not be there yet */
        __u32 kind;             /* enum qos_entry_kind; written last, when the address is there */
        __u32 generation;       /* goes up when the row becomes another one's */
        char path[QOS_SOCKET_PATH_SIZE]; /* of a Unix socket. "@": it is abstract */
};

/* 32 bit cells: the bins of the latency, schema 3, then counters as those of the unit with the same
 * names. */
enum qos_entry_counter {
        QOS_ENTRY_COUNT = HISTOGRAM_COARSE_BINS,
        QOS_ENTRY_ERRORS_RESET,
        QOS_ENTRY_ERRORS_TIMEOUT,
        QOS_ENTRY_CLIENT_ABORTS,
        QOS_ENTRY_OVERLAPS,
        QOS_ENTRY_BUNDLED,                /* of a peer: questions that were asked while another was open:
                                           * they count, and how long each took is not known */
        QOS_ENTRY_COUNTERS,
};
#define QOS_ENTRY_COUNTERS_SIZE 232
_Static_assert(QOS_ENTRY_COUNTERS <= QOS_ENTRY_COUNTERS_SIZE, "no room for so many counters");

enum qos_entry_sum {
        QOS_ENTRY_SUM_LATENCY,
        QOS_ENTRY_SUM_BYTES_IN,
        QOS_ENTRY_SUM_BYTES_OUT,
        QOS_ENTRY_SUMS,
};

/* As struct qos_checkpoint. Rows have those of one level: windows from 2 s to 10 s, and since attach. */
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
        __u64 earned;                           /* what its peer took, as far as it is known, before it got
                                                 * the row */
        __u64 maximum_total;                    /* of the latency … */
        __u64 maxima[QOS_LEVEL_MAXIMA(QOS_ENTRY_LEVEL)]; /* … and by sub-window, as those of the unit */
        __u32 cells[QOS_ENTRY_COUNTERS_SIZE];
        __u32 carry[QOS_ENTRY_COUNTERS_SIZE];
        struct qos_entry_checkpoint checkpoints[QOS_ENTRY_CHECKPOINTS];
        __u32 written;
        __u32 _padding;
};

/* Peers without a row that may earn one: who takes more than a ninth of the time that all without a row take
 * is among them for sure (the counters of Misra and Gries). */
#define QOS_CHALLENGERS 8

struct qos_heavy_hitters {
        struct {
                struct qos_address address;
                __u32 _padding;
                __u64 nsec;     /* by which it is ahead; 0: free */
        } list[QOS_CHALLENGERS];
        __u64 changed_at;       /* CLOCK_MONOTONIC ns, when a row was given to another peer */
        __u32 busy;             /* 1 while a program is at it; others leave it alone */
        __u32 _padding;
};

/* Questions in flight on sockets whose end no program sees: only an iterator over them can tell. */
enum qos_gauge {
        QOS_GAUGE_UNIX,
        QOS_GAUGE_UDP,
        QOS_GAUGES,
};

/* Questions of which nothing of the answer has left, and that did not ask to wait, by how long ago they
 * began to come: bin i has those of QOS_WAITING_NSEC(i) and more, up to that of the next bin. Octaves tell
 * soon enough that something hangs; what is shorter than the first is no hang, what is longer than the last
 * (34 s) is one by anybody's measure. */
#define QOS_WAITING_BINS 19
#define QOS_WAITING_NSEC(bin) (131072ULL << (bin))

struct qos_open_requests {
        __u64 session;          /* of the iterator; another one than the last: there are none */
        __u64 in_flight;
        __u64 oldest_at;
        __u32 waiting[QOS_WAITING_BINS + 1]; /* the last one is unused */
        __u32 rows[QOS_ENTRIES + 1]; /* of these, and of what is not in the unit's figures; 0: unused */
};

/* What the connections of a unit have in its gauges, as requests_gauges sums it up. A program that was
 * skipped (QOS_COUNTER_MISSED) leaves in them what it would have taken away. */
struct qos_summed {
        __u64 session;          /* of the iterator; another one than the last: there are no connections */
        __u64 begun;            /* qos_unit_map.opened when the iterator began … */
        __u64 activity;         /* … and what had happened by then (window_activity()) */
        __s64 open;
        __s64 in_flight;
        __s64 more_open;        /* the gauges had so much more the last time, at least */
        __s64 more_in_flight;
        struct {
                __u64 activity; /* … of the row */
                __s64 in_flight;
                __s64 more;
        } rows[QOS_ENTRIES];       /* by number - 1 */
};

/* The map of one unit: the only element of an mmapped, frozen array. Written by BPF programs alone,
 * concurrently, with atomic operations on single words. A reader takes the count of a distribution from the
 * sum of its bins, which are each added to once per sample: there is no second word that could disagree. */
struct qos_unit_map {
        __u32 generation;       /* set once, before the map is frozen */
        __u32 rolling;          /* the CPU, from 1, whose program writes checkpoints; 0: none */
        __u64 epoch;            /* of the newest event */
        __u64 epoch_end;        /* CLOCK_MONOTONIC ns when it ends: a comparison costs less than a
                                 * division */
        __s64 in_flight;        /* questions that began to arrive and whose answers have not all left */
        __s64 open;             /* connections */
        __u64 serving;          /* the clock of in_flight > 0 */
        __u32 turn;             /* of the run that is measured next (overhead.h) */
        __u32 never;            /* 0, see overhead_begin_sample() */
        __u64 search_session;   /* of the first units_find_sockets that came across an open file of the unit;
                                 * with it, what each run looks at is one line of the cache */

        /* Written by the iterators, for the reading that started them */
        __u64 listeners_session;
        __u64 accept_queue;
        __u64 accept_queue_max;
        __u64 oldest_session;
        __u64 oldest_at;        /* CLOCK_MONOTONIC ns when the oldest open question began to arrive */
        __u32 waiting[QOS_WAITING_BINS + 1]; /* the last one is unused */
        struct qos_open_requests gauges[QOS_GAUGES];

        __u64 sums[QOS_SUMS];
        __u64 maxima_total[QOS_DISTRIBUTIONS];
        __u64 maxima[QOS_MAXIMA][QOS_DISTRIBUTIONS];

        __u32 cells[QOS_COUNTERS_SIZE]; /* modulo 2^32 … */
        __u32 carry[QOS_COUNTERS_SIZE]; /* … and how often each has wrapped */

        __u32 written[QOS_LEVELS]; /* checkpoints written so far, modulo 2^32 */
        struct qos_checkpoint checkpoints[QOS_CHECKPOINTS];

        struct qos_peer_key names[QOS_ENTRIES + 1]; /* by number; 0: the first endpoint */
        struct qos_peer_entry rows[QOS_ENTRIES];          /* by number - 1 */
        struct qos_heavy_hitters challengers;
        struct qos_summed summed;
        __u64 opened;                           /* connections that were added to the gauge */
        __u64 missed;                           /* QOS_STATISTIC_RUNS_MISSED, as far as it is in
                                                 * QOS_COUNTER_MISSED */
        __u32 folds;                            /* odd while a row becomes part of the rest */
        __u32 retired;                          /* 1: what is in here is no longer all that is the unit's, or
                                                 * nobody adds to it. For those who were given the map to
                                                 * read (GetView) */
};

/* What libqosd must have been built with to read the map of a running qosd. It goes up with each change of
 * what a word in struct qos_unit_map means; most changes move the others. */
#define QOS_LAYOUT ((__u64) sizeof(struct qos_unit_map) << 24 | (__u64) QOS_COUNTERS << 8 | 2)

/* ---- other maps --------------------------------------------------------------------------------------- */

/* Whose control group (CGRP_STORAGE), and whose it will be when a group of this path is made (hash). One
 * word: what is one's becomes another's while programs look at it. No generation is 0. */
struct qos_owner {
        __u32 slot;
        __u32 generation;
} __attribute__((aligned(8)));

/* Where the unit in a slot lies (array). */
struct qos_hierarchy {
        struct qos_owner outer; /* the innermost attached unit around it; generation 0: none */
        __u32 generation;       /* of the unit that this is about */
        __u32 flags;
};

#define QOS_HIERARCHY_RETAINED 1U      /* detached: what is its own goes to the outer one */
#define QOS_HIERARCHY_EXPORT_ENDED 4U     /* its map is of no use any more to those who were given it:
                                           * units_end_exports() tells them */
#define QOS_HIERARCHY_RESCAN   2U      /* one in it was attached: perhaps what is this one's is that one's */

/* Paths of this depth are the deepest that are observed, so no unit has more around it. */
#define QOS_HIERARCHY_DEPTH 32

/* A path in the control group tree, relative to the daemon's root, zero padded. Unit names have up to 255
 * bytes, so that a service of a user manager needs about 330. */
#define QOS_PATH_SIZE 512
struct qos_path {
        char path[QOS_PATH_SIZE];
};

/* What is not to be in a unit's figures (hash): an endpoint, or questions by their name (exclude-key.h). As
 * many for each of 256 units as EXCLUDES_MAX in src/shared/exclude.h says. */
#define QOS_EXCLUDES 4096
struct qos_exclude {
        struct qos_owner owner;
        __u64 name;             /* or the port, in host byte order */
        __u32 kind;             /* enum name_kind; QOS_EXCLUDE_PORT */
        __u32 _padding;         /* all of it: a key is compared as bytes */
};
#define QOS_EXCLUDE_PORT 0U

/* Whether a unit leaves out any questions by their name (array, by slot): only then the parsers make
 * names. */
struct qos_filter {
        __u32 generation;       /* of the unit that this is about */
        __u32 names;            /* 1: it does */
};

/* Where the service manager listens for a unit (hash): by this those of its sockets are recognised that it
 * has already. What does not fit is found when the service has it open. */
#define QOS_ADDRESSES 4096
/* A listening socket of the service manager's, as the iterator over its files writes them. */
struct qos_activation_socket {
        __u64 cookie;
        struct qos_address address;
        __u32 _padding;
};

/* What a listener had dropped when it was last looked at (SK_STORAGE). */
struct qos_listener {
        struct qos_owner owner;
};

/* What the unit in a slot is watched with besides requests (array). */
struct qos_probe_config {
        __u32 generation;
        __u32 probes;
        __u32 missing_libraries;           /* 1: who reads for it is in no library that is known, which the
                                            * daemon was told (ring buffer) */
        __u32 _padding;
};

#define QOS_PROBE_CONFIG_TLS 1U

/* Which function of OpenSSL's library is called: the cookie of its probe. */
enum qos_openssl_call {
        QOS_CALL_READS      = 1 << 0,
        QOS_CALL_WRITES     = 1 << 1,
        QOS_CALL_COUNTS     = 1 << 2,   /* says how much by way of a pointer, and takes a size_t */
        QOS_CALL_FLAGS      = 1 << 3,   /* … and flags in front of that */
        QOS_CALL_SENDS_FILE = 1 << 4,
};

/* A file that a process has mapped and that is called like OpenSSL's library, as the iterator over its
 * memory writes it. */
#define QOS_LIBRARY_PATH_SIZE 1024
struct qos_openssl_library {
        __u64 inode;
        __u32 device;           /* as the kernel has it inside: major << 20 | minor */
        __u32 names_size;       /* 0: they are not known */
        char path[QOS_LIBRARY_PATH_SIZE]; /* as qosd sees it, if it can … */
        char names[QOS_LIBRARY_PATH_SIZE]; /* … and where it lies in its file system: names from its own up
                                            * to the root's, each with a 0 behind it */
};

/* Machine-wide counters (array). */
enum qos_statistic {
        QOS_STATISTIC_SOCKETS_LOST,     /* no storage for a socket: its questions are not seen */
        QOS_STATISTIC_GROUPS_LOST,      /* no storage for a control group */
        QOS_STATISTIC_SEGMENTS_LOST,    /* a segment whose headers could not be read */
        QOS_STATISTIC_CALLS_LOST,       /* no storage for a call of OpenSSL's library */
        QOS_STATISTIC_PLAINTEXT_LOST,    /* no room for a sealed connection whose plaintext is seen: it is
                                          * counted by its records */
        QOS_STATISTIC_THREADS_LOST,     /* no storage for a thread: its time is in no state, or its faults
                                         * are not counted */
        QOS_STATISTIC_BLOCKS_LOST,      /* no room for a request to a block device: it is not counted */
        QOS_STATISTIC_RUNS_MISSED,      /* the kernel has skipped runs of programs; written by the daemon,
                                         * for units_count_missed() */
        QOS_STATISTICS,
};

/* What the iterators write when they are through. */
struct qos_iter_session {
        __u64 id;
};
