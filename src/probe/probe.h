/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Loads BPF programs and maps, attaches them, and stores their descriptors in the descriptor store of the
 * service manager, so that nothing is missed during a restart of qosd. The only module that uses libbpf.
 * Control groups are passed as descriptors, units as slots. */

#include <systemd/sd-event.h>

#include "bitmap.h"
#include "contention-map.h"
#include "exclude.h"
#include "network-map.h"
#include "probe-name.h"
#include "program.h"
#include "unit-map.h"

struct qos_connection;
struct qos_network_clock;
struct qos_stamp_ring;
union qos_network_element;
union qos_storage_element;

typedef struct Probe Probe;

/* event: for closing unloaded programs once the service manager has closed them. */
int probe_new(sd_event *event, Probe **ret);
Probe* probe_free(Probe *p);

/* Loads and attaches all programs that the kernel supports, and records the errors of others. Fails, with
 * nothing loaded, only if the maps cannot be created. */
int probe_start(Probe *p);

/* As probe_start(), which takes seconds, in a thread. The handler is then called once, from the event loop,
 * unless the start was freed before. The probe must not be freed until then. Fails immediately if the kernel
 * is not supported. */
typedef struct ProbeStart ProbeStart;
typedef void (*probe_start_handler_t)(int error, void *userdata);
int probe_start_new(Probe *p, probe_start_handler_t handler, void *userdata, ProbeStart **ret);
/* Waits for the thread. */
ProbeStart* probe_start_free(ProbeStart *s);

/* Unloads everything, and clears the descriptor store. */
void probe_stop(Probe *p);

bool probe_is_started(Probe *p);

/* Programs that work or have an alternative that works, and programs that are not needed. */
Bitmap probe_get_programs(Probe *p);

/* Why nothing could be loaded; NULL: something was. */
const char* probe_get_failure(Probe *p);

/* Loads and attaches, or unloads, the programs of a probe other than "requests". Programs rejected by the
 * kernel are not retried. */
int probe_load_group(Probe *p, ProbeMask probe);
void probe_unload_group(Probe *p, ProbeMask probe);
/* Why a program of the probe is not available; NULL: all are. */
const char* probe_group_failure(Probe *p, ProbeMask probe);

/* Creates the map of a unit. ret_view is mapped read-only, and valid until probe_remove_unit(). */
int probe_add_unit(Probe *p, unsigned slot, uint32_t generation, uint64_t now,
                   const struct qos_unit_map **ret_view);
/* Removes the maps of a unit, including those of other probes, as far as they exist. */
void probe_remove_unit(Probe *p, unsigned slot);
/* Whether the slot has any of these maps. */
bool probe_has_unit(const Probe *p, unsigned slot);

/* Descriptor of the map, for export to clients; owned by the probe. -EOPNOTSUPP: clients could not be
 * notified of the end of the export. */
int probe_get_unit_fd(Probe *p, unsigned slot);
/* Marks the map as no longer valid, for all clients that have it. Irreversible. */
int probe_end_export(Probe *p, unsigned slot);

/* Assigns a control group (descriptor of its directory) to a unit; or a path, for groups created there
 * later. -ENAMETOOLONG: the path is too long for the programs. */
int probe_assign_cgroup(Probe *p, int fd, unsigned slot, uint32_t generation);
void probe_unassign_cgroup(Probe *p, int fd);
/* -ENOENT: no owner. The owner may have been removed. */
int probe_get_group_owner(Probe *p, int fd, struct qos_owner *ret);
int probe_assign_path(Probe *p, const char *path, unsigned slot, uint32_t generation);
void probe_unassign_path(Probe *p, const char *path);

/* Searches the open files of the units' tasks for sockets. */
int probe_find_sockets(Probe *p);
/* The same for Unix sockets only. */
int probe_find_unix(Probe *p);

/* Sets the hierarchy of one slot, and reassigns all sockets accordingly. */
void probe_set_hierarchy(Probe *p, unsigned slot, const struct qos_hierarchy *hierarchy);
int probe_reassign_sockets(Probe *p);

/* Sets the addresses on which the service manager listens for this unit alone, replacing the previous
 * ones. */
int probe_set_addresses(Probe *p, unsigned slot, uint32_t generation, const struct qos_address *addresses,
                        size_t n);
/* Searches the sockets of the service manager for these addresses. Returns all its TCP listeners. */
int probe_find_activation_sockets(Probe *p, struct qos_activation_socket **ret, size_t *ret_n);

/* Sets the ports excluded from the metrics of the unit, replacing the previous ones. Open sockets are
 * reassigned, along with their requests in flight. */
int probe_set_excludes(Probe *p, unsigned slot, uint32_t generation, const ExcludeList *excludes);

/* ---- contention ---- */

typedef struct ContentionBegin {
        uint32_t generation;            /* of the contention map */
        uint64_t now;
        uint64_t served;                /* serving clock of the unit */
} ContentionBegin;

/* Creates and maps the two contention maps of a unit (contention-map.h), like probe_add_unit().
 * generation is that of the unit. */
int probe_add_contention(Probe *p, unsigned slot, uint32_t generation, const ContentionBegin *begin,
                         const struct qos_contention_map **ret_contention,
                         const struct qos_contention_cpu **ret_shards);
void probe_remove_contention(Probe *p, unsigned slot);
/* To be called after probe_adopt(). -ENOENT: none was stored. */
int probe_adopt_contention(Probe *p, unsigned slot, uint32_t generation,
                           const struct qos_contention_map **ret_contention,
                           const struct qos_contention_cpu **ret_shards);

/* Searches for threads in the control groups of all units. */
int probe_find_threads(Probe *p);
/* Opens an iterator over the threads of the machine, which continues at each read. */
int probe_open_threads(Probe *p);
/* Calls handler for the next few dozen threads in the contention maps of these slots, with their current
 * state. 0: there are no more threads. */
int probe_read_threads(Probe *p, int fd, const unsigned *slots, size_t n,
                       void (*handler)(const struct qos_thread *t, void *userdata), void *userdata);
/* Calls handler for each file mapping of a process at offset 0 and for the one at the address. -ESRCH: no
 * such process. */
int probe_read_mappings(Probe *p, pid_t process, uint64_t address,
                        void (*handler)(const struct qos_mapping *m, void *userdata), void *userdata);
/* Records page faults of all threads so far. */
int probe_find_faults(Probe *p);

/* Creates the contention map of the machine, with the I/O of all devices. Not stored over a restart. */
int probe_add_machine(Probe *p, uint32_t contention, uint64_t now, const struct qos_contention_map **ret);
void probe_remove_machine(Probe *p);
/* Devices by row. */
int probe_get_devices(Probe *p, struct qos_block_devices *ret);
/* I/O users by device, sorted for block_users_find(). */
typedef struct BlockUser {
        struct qos_block_user user;
        struct qos_block_use use;
} BlockUser;

int probe_get_block_users(Probe *p, BlockUser **ret, size_t *ret_n);
const struct qos_block_use* block_users_find(const BlockUser *users, size_t n,
                                             const struct qos_block_user *user);

/* Descriptor that becomes readable when tasks were migrated from or to control groups of units, until the
 * next probe_find_threads(). */
int probe_get_moves_fd(Probe *p);
void probe_read_moves(Probe *p);

/* ---- reads ---- */

/* Whether requests_content sees all reads of a unit. */
typedef enum ReadCheckResult {
        READS_UNCHECKED,                /* unknown: too few so far */
        READS_SEEN,
        READS_UNSEEN,                   /* not all: requests_read is needed */
} ReadCheckResult;

ReadCheckResult probe_get_read_check(Probe *p, unsigned slot, uint32_t generation);
/* Attaches requests_read, or detaches it. */
int probe_watch_reads(Probe *p, bool wanted);
/* Whether the unit has had Unix sockets since probe_forget_unix_use() or its attach. Reads are seen at any
 * time, open sockets by probe_find_unix(). */
bool probe_unit_uses_unix(Probe *p, unsigned slot, uint32_t generation);
void probe_forget_unix_use(Probe *p, unsigned slot);
/* Attaches requests_unix, and finds the Unix sockets of all units, or detaches it. */
int probe_watch_unix(Probe *p, bool wanted);
/* Descriptor that becomes readable when results of probe_get_read_check() or probe_unit_uses_unix() may have
 * changed. */
int probe_get_read_events_fd(Probe *p);
void probe_drain_read_events(Probe *p);

/* ---- storage ---- */

/* Creates and maps the storage map of a unit (storage-map.h), like probe_add_unit(). generation is that of
 * the unit, storage that of the storage map. */
int probe_add_storage(Probe *p, unsigned slot, uint32_t generation, uint32_t storage, uint64_t now,
                      const union qos_storage_element **ret);
void probe_remove_storage(Probe *p, unsigned slot);
/* To be called after probe_adopt(). -ENOENT: none was stored. */
int probe_adopt_storage(Probe *p, unsigned slot, uint32_t generation,
                        const union qos_storage_element **ret);
/* Records calls of all threads so far, from the kernel's counters. */
int probe_find_storage_calls(Probe *p, uint64_t *ret_session);

/* ---- network ---- */

/* Creates and maps the network map of a unit (network-map.h), as probe_add_storage(). */
int probe_add_network(Probe *p, unsigned slot, uint32_t generation, uint32_t network, uint64_t now,
                      const union qos_network_element **ret);
void probe_remove_network(Probe *p, unsigned slot);
/* To be called after probe_adopt(). -ENOENT: none was stored. */
int probe_adopt_network(Probe *p, unsigned slot, uint32_t generation,
                        const union qos_network_element **ret);
/* Differences of clocks, by which programs read the arrival stamps of packets. */
int probe_set_network_clock(Probe *p, const struct qos_network_clock *clock);
/* Names of the reasons for which packets are discarded, by row; valid until the next call. */
int probe_get_drop_names(Probe *p, const char *ret[static QOS_DROP_ROWS - 1]);
/* Reads the times of segments between hosts, and has them recorded until that time, CLOCK_MONOTONIC ns, or
 * later if that was requested before; 0: only reads. */
int probe_read_stamps(Probe *p, uint64_t until, struct qos_stamp_ring *ret);
/* Records what TCP has counted of all connections. */
int probe_find_flows(Probe *p);
/* Opens an iterator over the connections of the machine, which keeps its place between two reads. */
int probe_open_connections(Probe *p);
/* Calls handler for the next connections of it that are of the units in these slots, some dozen. 0: there
 * are no more connections. */
int probe_read_connections(Probe *p, int fd, const unsigned *slots, size_t n,
                           void (*handler)(const struct qos_connection *c, void *userdata), void *userdata);

/* ---- libssl ----  */

/* Sets whether a unit is observed with "tls", "memory", "block" and "storage"; other probes are ignored.
 * slow_usec: minimum duration of calls on files to be recorded as slow; 0: none. Resets the notification of
 * probe_get_missing_libraries_fd(). */
void probe_set_config(Probe *p, unsigned slot, uint32_t generation, ProbeMask probes, uint32_t slow_usec);

/* Limits of probed libssl files, in total, and owned by one user other than root, as copies are easily made.
 * A machine with containers has some. */
#define LIBRARIES_MAX 32U
#define LIBRARIES_PER_UID_MAX 8U

/* Attaches the programs to all instances of libssl mapped by a process. Returns their number. *limit: set if
 * some were skipped, to -ENOSPC (LIBRARIES_MAX) or -EDQUOT (LIBRARIES_PER_UID_MAX). */
int probe_add_libraries(Probe *p, pid_t process, int *limit);
const char* probe_library_limit_reason(int limit);
/* Detaches from libraries that no process has mapped that was passed to probe_add_libraries() between begin
 * and end. */
void probe_begin_libraries(Probe *p);
void probe_end_libraries(Probe *p);

/* Descriptor that becomes readable when a unit has read TLS records by a library that is not probed. handler
 * is called for each such unit. */
int probe_get_missing_libraries_fd(Probe *p);
void probe_read_missing_libraries(Probe *p, void (*handler)(const struct qos_owner *owner, void *userdata),
                                  void *userdata);

/* Records program runs that the kernel has skipped since the last call, for each unit: those mostly
 * compensated for (QOS_COUNTER_MISSED), and those with lost events (QOS_COUNTER_DROPS). */
void probe_count_missed(Probe *p);

/* Number of control groups created since loading for which units_mkdir() failed to store the owner. */
uint64_t probe_get_lost_groups(Probe *p);

/* Run the iterators that update qos_unit_map.accept_queue* and .oldest_at. Values of a unit are valid if its
 * session number equals the returned one. */
int probe_read_listeners(Probe *p, uint64_t *ret_session);
int probe_read_oldest(Probe *p, uint64_t *ret_session);

/* Samples what sent data waits for, into qos_unit_map.sends. */
int probe_count_sends(Probe *p);

/* Corrects the gauges of connections for changes that no program has seen. A difference has to be found in
 * two calls, some time apart. */
void probe_reconcile_gauges(Probe *p);

/* As probe_read_oldest(), for qos_unit_map.gauges. */
int probe_read_gauge(Probe *p, enum qos_gauge gauge, uint64_t *ret_session);

/* Expires requests over UDP. */
int probe_expire_udp(Probe *p);

typedef enum ProgramState {
        PROGRAM_IDLE,           /* not loaded, or not attached, as not needed */
        PROGRAM_ATTACHED,
        PROGRAM_UNAVAILABLE,    /* see reason */
        _PROGRAM_STATE_MAX,
} ProgramState;

const char* program_state_to_string(ProgramState s);    /* "idle", "attached", "unavailable" */

typedef struct ProgramInfo {
        const char *name;               /* "requests_ingress" */
        const char *probe;              /* "requests", "tls", ..., or "units" for programs that find control
                                         * groups and sockets */
        const char *hook;               /* "cgroup_skb/ingress", "tp_btf/cgroup_mkdir" */
        const char *provides;           /* metrics that require it: "arrival times: receive, queue,
                                         * latency" */
        ProgramState state;
        char *reason;                   /* why it is unavailable; why it is idle, or which one is used
                                         * instead; or NULL */
        uint64_t runs, run_nsec;        /* ABSENT unless kernel.bpf_stats_enabled has ever been set */
        uint64_t recursion_misses;      /* ABSENT while not attached */
} ProgramInfo;

/* Elements of a map that could not be created, for lack of memory or as the map was full. */
typedef struct ElementLoss {
        const char *map;                /* "h2_conns" */
        uint64_t n;                     /* since the first attach, above 0 */
} ElementLoss;

typedef struct ProbesInfo {
        ProgramInfo *programs;
        size_t n_programs;
        bool statistics_enabled;        /* current value of kernel.bpf_stats_enabled */
        uint64_t map_memory;            /* bytes of all maps of qosd, as accounted by the kernel */
        uint64_t map_memory_per_unit;   /* bytes of the map that each attached unit has */
        uint64_t memory_per_socket;     /* bytes of socket storage per open connection without
                                         * multiplexing */
        uint64_t drops;                 /* events that could not be recorded, machine-wide, since the first
                                         * attach; without skipped runs, see ProgramInfo.recursion_misses */
        ElementLoss losses[QOS_STATISTICS]; /* of these, map elements */
        size_t n_losses;
} ProbesInfo;

void probes_info_done(ProbesInfo *i);
#define _cleanup_probes_info_ _cleanup_(probes_info_done)

int probe_get_info(Probe *p, ProbesInfo *ret);
/* The programs only: the memory of all maps takes 2 ms. */
int probe_get_program_info(Probe *p, ProbesInfo *ret);

/* ---- restart ------------------------------------------------------------------------------------------ */

/* Checksum of programs and map layouts, 16 hexadecimal digits: descriptors of another build are not
 * adopted. */
const char* probe_get_checksum(void);

/* Takes a descriptor of the descriptor store by name. False: unknown name, the caller still owns the
 * descriptor. */
bool probe_take_fd(Probe *p, const char *name, int fd);

/* Continues with the taken descriptors. -ENOENT: there are none; -ESTALE: incomplete, and all were closed.
 * discard: closes them in any case. */
int probe_adopt(Probe *p, bool discard);

/* To be called after probe_adopt(): the map of a unit, as probe_add_unit(). */
int probe_adopt_unit(Probe *p, unsigned slot, uint32_t generation, const struct qos_unit_map **ret_view);
