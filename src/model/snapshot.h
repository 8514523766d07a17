/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A consistent snapshot of one unit over one window. All interfaces (D-Bus, varlink, qosctl, metrics) show
 * this struct without further computation. Fields are named after the catalogue in metrics/; the generated
 * metric table (metric.h) maps names of metrics to offsets in here.
 *
 * Values not measured or not applicable are UINT64_MAX in integers and NaN in doubles, never 0. Durations
 * are in nanoseconds, sizes in bytes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-id128.h>

#include "contention-map.h"
#include "lifecycle.h"
#include "network-map.h"
#include "quantiles.h"
#include "storage-map.h"
#include "util.h"

/* The default of DefaultWindow= in qosd.conf. */
#define WINDOW_DEFAULT_NSEC UINT64_C(10000000000)

/* The window "since attach". */
#define WINDOW_TOTAL UINT64_C(0)

typedef enum Quality {
        QUALITY_ABSENT,         /* probe "requests" not active, or no requests */
        QUALITY_EXACT,          /* protocol parsed */
        QUALITY_EXCHANGES,      /* protocol not parsed, assuming one response per request */
        QUALITY_PARTIAL,        /* more than 1 % on unparsed connections: metrics of the rest */
        QUALITY_OVERLAPPING,    /* overlapping requests: counts and quantiles are absent */
        _QUALITY_MAX,
} Quality;

/* "exact", "exchanges", "partial", "overlapping"; NULL if absent */
const char* quality_to_string(Quality q);

typedef struct Connections {
        uint64_t open;                  /* gauge: established connections accepted from a listener */
        uint64_t accepted;              /* handshakes completed */
        uint64_t accept_queue;          /* gauge: established connections not accepted yet, of all
                                         * listeners */
        uint64_t accept_queue_max;      /* gauge: sum of the backlog limits of all listeners */
        uint64_t listen_drops;          /* connection attempts dropped by listeners */
        uint64_t retransmits;           /* retransmitted segments */
} Connections;

/* Connections of unknown protocol on which requests overlap: in no other counter and no distribution. */
typedef struct Unparsed {
        uint64_t connections;           /* that became unparsed in the window */
        uint64_t bytes;                 /* of unparsed connections, in both directions */
        double share;                   /* bytes as a share of bytes_in and bytes_out */
} Unparsed;

/* Counters of requests in parsed protocols, by QOS_COUNTER_HTTP1 ... QOS_COUNTER_GRPC. */
#define PARSED(protocol) (QOS_COUNTER_##protocol - QOS_COUNTER_HTTP1)
#define PARSED_PROTOCOLS (PARSED(GRPC) + 1)

typedef struct Server {
        uint64_t count;                 /* requests whose first response byte was sent in the window */
        double rate;                    /* count per second of covered time */
        uint64_t errors_reset;          /* connections closed by the unit during a request */
        uint64_t errors_timeout;        /* connections timed out during a request */
        uint64_t errors_status5xx;      /* HTTP responses that report a server error; absent if there were no
                                         * HTTP responses */
        uint64_t errors_grpc;           /* gRPC calls with a status that reports a server error; absent if
                                         * there were no gRPC calls */
        uint64_t errors_replies;        /* error replies of Redis and memcached; absent if there were no
                                         * requests of either */
        uint64_t status4xx;             /* HTTP responses that report a client error */
        uint64_t status_unknown;        /* HTTP/2 responses of unknown status; status counts are absent
                                         * then */
        uint64_t client_aborts;         /* connections closed by the client during its request */
        uint64_t in_flight;             /* gauge: requests from first byte received to last response byte
                                         * sent */
        uint64_t oldest_in_flight;      /* gauge: age of the oldest of these; absent if there are none */
        uint64_t waiting;               /* gauge: requests without any response byte, except for long polls;
                                         * absent if not all could be read */
        uint64_t oldest_waiting;        /* gauge: age of the oldest of these; absent if there are none */
        Distribution latency;
        Distribution first_byte;
        Distribution receive;
        Distribution queue;
        Distribution service;
        struct {
                double attributed;      /* share of count: requests read and responded to by one thread, of
                                         * known states */
                double shares[QOS_STATES]; /* shares of the service time of these requests; NaN if there are
                                            * none */
                double blocked_by_requests;            /* share of parks and polls ended by another thread
                                                        * that was processing a request */
        } service_states;
        Distribution answer;
        uint64_t protocol_tcp;          /* unparsed exchanges on TCP, part of count */
        uint64_t parsed[PARSED_PROTOCOLS]; /* requests by protocol, part of count */
        uint64_t protocol_tls;          /* exchanges on TLS connections, part of count */
        uint64_t protocol_unix;         /* unparsed exchanges on Unix sockets, part of count */
        uint64_t protocol_udp;          /* unparsed exchanges on UDP, part of count */
        uint64_t blocking;              /* blocking commands (BLPOP), part of intended */
        struct {
                uint64_t count;         /* requests that have waited by intent (intent.h); part of count, in
                                         * no distribution */
                uint64_t latency;       /* mean ns to the first response byte; absent if there are none */
                uint64_t in_flight;     /* gauge: requests known to wait by intent; in neither waiting nor an
                                         * age; absent if not all could be read */
        } intended;
        uint64_t streams;               /* streaming responses, part of count; their time ends with the
                                         * response head */
        uint64_t excluded;              /* requests excluded from all other metrics, by endpoint or name */
        Unparsed unparsed;
        uint64_t bytes_in;
        uint64_t bytes_out;
        Connections connections;
} Server;

/* The unit as a client of all its peers. */
typedef struct ClientRole {
        uint64_t count;                 /* requests whose first response byte was received in the window */
        double rate;                    /* count per second of covered time */
        uint64_t errors_reset;          /* connections closed or refused by the peer during a request */
        uint64_t errors_timeout;        /* connections timed out during a request or handshake */
        uint64_t errors_status5xx;      /* HTTP/1 responses that report a server error */
        uint64_t errors_replies;        /* error replies of Redis and memcached */
        uint64_t aborts;                /* connections closed by the unit during its request */
        uint64_t in_flight;             /* gauge: requests from first byte sent to first response byte
                                         * received */
        Distribution latency;
        Unparsed unparsed;
        uint64_t bytes_in;
        uint64_t bytes_out;
        Quality quality;                /* never QUALITY_EXACT; overlapping: all requests are on unparsed
                                         * connections */
} ClientRole;

typedef struct Requests {
        Quality quality;
        Server server;
        ClientRole client;
} Requests;

/* Completed block I/O of a unit, in total or of one device. */
typedef struct BlockCounts {
        uint64_t operations[QOS_BLOCK_COUNTERS]; /* by enum qos_block_counter */
        union {
                uint64_t sums[QOS_BLOCK_SUMS]; /* by enum qos_block_sum */
                uint64_t bytes[QOS_BLOCK_COUNTERS]; /* the first of them; unused for flushes */
        };
} BlockCounts;

_Static_assert(QOS_BLOCK_BYTES == 0, "bytes are the first sums");

typedef struct Block {
        BlockCounts counts;
        uint64_t sectors;               /* of 512 bytes */
        uint64_t writeback_bytes;       /* part of the bytes written: by writeback on behalf of the unit;
                                         * absent without io controller */
        Distribution read_queue;
        Distribution read_device;
        Distribution write_queue;
        Distribution write_device;
} Block;

typedef struct Memory {
        uint64_t minor_faults;
        uint64_t major_faults;          /* with I/O */
        uint64_t minor_fault_time;      /* ns, all threads */
        uint64_t major_fault_time;
        uint64_t reclaims;              /* direct reclaims */
        uint64_t reclaim_time;
        uint64_t dirty_throttles;       /* sleeps because of too many dirty pages */
        uint64_t dirty_throttle_time;
        uint64_t oom_kills;
        uint64_t swap_ins;              /* pages */
        uint64_t refaults;              /* file pages faulted in again soon after eviction */
} Memory;

/* Pressure stall information. */
typedef struct Pressure {
        double some;                    /* share of the window in which at least one task was stalled */
        double full;                    /* share in which all non-idle tasks were stalled */
        uint64_t some_time;             /* ns */
        uint64_t full_time;
} Pressure;

typedef struct Quota {
        uint64_t periods;               /* of the CPU quota in which the unit was runnable */
        uint64_t throttled_periods;     /* periods in which the quota was exhausted */
        uint64_t throttled_time;        /* ns, summed over CPUs */
} Quota;

/* Thread states, by enum qos_state; index QOS_STATE_NONE is unused. */
typedef struct Contention {
        uint64_t covered;               /* ns of the window in which the unit had a contention map */
        uint64_t thread_time;           /* lifetime of all threads in ns: sum of time[] */
        double shares[QOS_STATES];      /* time[] / thread_time; NaN without threads */
        double threads[QOS_STATES];     /* time[] / covered: average number of threads */
        uint64_t time[QOS_STATES];      /* ns, current waits included */
        uint64_t waits[QOS_STATES];     /* waits begun; from QOS_STATE_LOCK on */
        uint64_t switches_voluntary;    /* sum of waits[] */
        uint64_t switches_involuntary;  /* preemptions */
        uint64_t migrations;            /* runs on another CPU than the previous one */
        uint64_t wake_ups;
        uint64_t futex_wakes;           /* threads woken from futex(2) by threads of the unit */
        struct {
                double share;           /* share of covered with requests in flight; NaN: several descendants
                                         * have requests */
                uint64_t thread_time;   /* ns, sum of all states */
                double shares[QOS_STATES];
        } serving;                      /* the above, restricted to the time with requests in flight */
        Distribution run_queue_latency; /* from runnable to running, without time throttled */
        Block block;
        Memory memory;
        struct {
                Pressure cpu;
                Pressure memory;
                Pressure io;
        } pressure;
        Quota quota;
} Contention;

/* Calls on files of one kind. */
typedef struct StorageCalls {
        uint64_t count;                 /* calls that ended in the window */
        uint64_t errors;                /* failed calls */
} StorageCalls;

typedef struct StorageTimedCalls {
        StorageCalls calls;
        Distribution latency;
} StorageTimedCalls;

/* Reads or writes of io_uring and with O_DIRECT, on kernels where other calls are not observable. */
typedef struct StorageRequests {
        StorageCalls calls;
        uint64_t bytes;
        uint64_t time;                  /* ns, sum */
} StorageRequests;

/* Operations of threads on file systems. */
typedef struct Storage {
        uint64_t covered;               /* ns of the window in which the unit had a storage map */
        StorageTimedCalls timed[QOS_STORAGE_TIMED]; /* by enum qos_storage_call */
        uint64_t bytes[QOS_STORAGE_WRITE + 1];      /* read, written */
        double shares[QOS_STORAGE_DIVIDED][QOS_STATES]; /* shares of the time of these calls, by enum
                                                         * qos_state; NaN if there are none */
        uint64_t unseen;                /* reads and writes that were begun and not counted */
        uint64_t in_flight;             /* calls that have not returned */
        uint64_t oldest_in_flight;      /* ns; absent if there are none */
        StorageCalls calls[QOS_STORAGE_CALLS - QOS_STORAGE_TIMED]; /* all others */
        struct {
                uint64_t reads, writes; /* calls on files of any kind, as the kernel counts in each task */
                uint64_t read_bytes, write_bytes;
        } counted;
        struct {
                uint64_t looked_up, read_in, read_ahead, dirtied; /* pages */
                double hit_ratio;       /* share of the pages looked up that were not read in */
        } cache;
        struct {
                uint64_t faults, major_faults;
        } mapped;
        StorageRequests submitted[QOS_STORAGE_WRITE + 1];
        struct {
                uint64_t requests;      /* to FUSE servers */
                uint64_t time;          /* ns until their responses */
        } fuse;
        double amplification[QOS_STORAGE_WRITE + 1]; /* bytes read from and written to block devices per byte
                                                      * of these calls; NaN: unknown */
} Storage;

/* What TCP has counted on the unit's connections, as a server and as a client. */
typedef struct Network {
        uint64_t covered;               /* ns of the window in which the unit had a network map */
        uint64_t flows[QOS_FLOW_TICKS]; /* by enum qos_flow_counter */
        uint64_t recoveries;            /* fast retransmits begun */
        uint64_t drops;                 /* packets that this machine has discarded */
        Distribution duration;          /* of connections that ended */
        Distribution rtt;               /* samples of connections younger than the attach */
        Distribution rtt_kernel, rtt_wire; /* parts of it, of segments and their acknowledgements */
        struct {
                Distribution ports;     /* search for a local port */
                Distribution handshake; /* of connections that the unit has opened */
                uint64_t syn_retransmits;
                uint64_t ports_exhausted; /* that failed for want of a local port */
        } connecting;
        struct {
                Distribution driver, ip, backlog, socket, total; /* of segments with data, see
                                         * network-map.h */
                uint64_t unstamped;     /* segments whose arrival is not known */
        } receiving;
        struct {
                Distribution ip, total, pacing; /* of segments other than mere acknowledgements, see
                                         * network-map.h */
                uint64_t qdisc;         /* mean ns between ip and total */
        } transmitting;
        struct {
                double application, peer_window, send_buffer, network; /* shares of the time that connections
                                         * existed, together 1; NaN if there were none */
        } limited_by;
} Network;

/* Base of the offsets in the metric table. */
typedef struct Metrics {
        Requests requests;
        Contention contention;
        Storage storage;
        Network network;
} Metrics;

/* An endpoint that the unit serves, or a peer that it is a client of. */
typedef enum RowKind {
        ROW_ENDPOINT,
        ROW_EXCLUDED,           /* an endpoint excluded from the metrics of the unit */
        ROW_PEER,
} RowKind;

typedef struct Row {
        RowKind kind;
        bool rest;              /* all others of the kind, without an entry of their own */
        uint8_t address[16];    /* IPv4: the first 4 bytes */
        uint16_t port, family;
        char path[109];         /* of a Unix socket, whose address is a hash */
        bool measured;          /* false: exists, without metrics in this window */
        uint64_t count;         /* as in Server or ClientRole; absent if requests overlap */
        double rate;
        uint64_t errors_reset, errors_timeout, aborts;
        uint64_t errors_status5xx, errors_replies; /* of a peer */
        uint64_t in_flight;
        uint64_t bytes_in, bytes_out;
        Quality quality;        /* as in ClientRole, of a peer */
        Unparsed unparsed;      /* the same */
        Distribution latency;   /* max is absent for the first endpoint of several */
        uint64_t retransmits;   /* these two of its TCP connections, with the probe "network" */
        uint64_t rtt;           /* mean of the smoothed round-trip time, ns */
} Row;

/* As DISK_NAME_LEN in the kernel. */
#define DEVICE_NAME_MAX 32

/* Block I/O of a unit on one device. */
typedef struct BlockDevice {
        char name[DEVICE_NAME_MAX]; /* "sda"; empty: all others */
        BlockCounts counts;
        double share;           /* share of all bytes to and from the device; NaN: unknown */
} BlockDevice;

/* Limit of mount points; longer ones are not shown. Those of container engines take less than 200 bytes. */
#define MOUNT_POINT_MAX 256
#define MOUNT_DEVICE_MAX sizeof("4095:1048575")

/* Operations of a unit on one file system. */
typedef struct Mount {
        char point[MOUNT_POINT_MAX]; /* escaped as in /proc/PID/mountinfo, also for terminals; empty:
                                      * unknown */
        char device[MOUNT_DEVICE_MAX]; /* "8:1"; empty: all others */
        char type[QOS_MOUNT_TYPE_SIZE]; /* "ext4" */
        StorageTimedCalls timed[QOS_MOUNT_TIMED];
        uint64_t bytes[QOS_STORAGE_WRITE + 1];
        StorageCalls opens, changes;
        StorageRequests submitted[QOS_STORAGE_WRITE + 1];
        uint64_t round_trips, round_trip_nsec; /* to the server, of the whole machine, since the mount */
} Mount;

/* The kernel's names have less than 30 characters. */
#define DROP_REASON_MAX 40

#define DROP_REASONS_MAX QOS_DROP_ROWS

/* Packets of a unit that the kernel has discarded for one reason. */
typedef struct DropReason {
        char name[DROP_REASON_MAX]; /* "SOCKET_FILTER"; empty: all others */
        uint64_t count;
} DropReason;

/* All entries of a unit's map, and the first endpoint. */
#define SNAPSHOT_ROWS_MAX 13

typedef struct Snapshot {
        uint64_t seq;           /* incremented for each new snapshot of the unit; equal seq means equal
                                 * contents */
        uint64_t timestamp;     /* CLOCK_REALTIME, ns since 1970 */
        uint64_t window;        /* ns; WINDOW_TOTAL for since attach */
        uint64_t covered;       /* ns of the window in which the unit was attached */
        Metrics metrics;        /* over the window */
        Metrics totals;         /* since attach; only counters of the catalogue are meaningful */
        Row rows[SNAPSHOT_ROWS_MAX]; /* over the window: endpoints, then peers, by time in descending
                                      * order */
        size_t n_rows;
        BlockDevice devices[QOS_BLOCK_ROWS]; /* over the window: devices used, by time in descending order */
        size_t n_devices;
        Mount mounts[QOS_STORAGE_ROWS]; /* over the window: by time in descending order, then all others */
        size_t n_mounts;
        DropReason drop_reasons[DROP_REASONS_MAX]; /* over the window: by number in descending order,
                                      * then all others */
        size_t n_drop_reasons;
        double cost_share;      /* run time of qosd's programs for this unit as a share of one CPU; NaN: not
                                 * measured */
        uint64_t drops;         /* since attach: events of this unit that could not be recorded */
} Snapshot;

/* Valid windows: WINDOW_TOTAL, 60 s, 300 s, multiples of 100 ms up to 1 s and of 1 s up to 10 s. */
bool window_is_valid(uint64_t window_nsec);
#define WINDOW_EXPECTED "a multiple of 100ms up to 1s, of 1s up to 10s, 60s, 5min, or total"

/* Identity of the unit in a reading. */
typedef struct UnitIdentity UnitIdentity;
struct UnitIdentity {
        const char *name;
        const char *control_group;      /* NULL: unknown */
        const char *active_state;
        sd_id128_t invocation_id;       /* null if unknown */
        const Lifecycle *lifecycle;
        uint64_t attached_since;        /* CLOCK_REALTIME, ns */
        /* Name of the attached unit that listens at the peer's address on this machine; NULL: unknown */
        const char* (*find_listening)(const UnitIdentity *u, const Row *row);
        const void *userdata;
};

/* Buckets of a distribution metric ("requests.server.latency", "requests.server[:443].latency"). */
typedef struct HistogramBucket {
        uint64_t lower, upper;          /* ns, (lower, upper]; upper UINT64_MAX: unbounded */
        uint64_t count;
} HistogramBucket;

typedef struct Histogram {
        uint64_t seq, timestamp, window, covered;
        int schema;                     /* OpenTelemetry / Prometheus exponential schema, 5 or 3 */
        uint64_t count, sum;
        HistogramBucket *buckets;       /* non-empty ones, ascending */
        size_t n_buckets;
} Histogram;

void histogram_done(Histogram *h);
#define _cleanup_histogram_ _cleanup_(histogram_done)
