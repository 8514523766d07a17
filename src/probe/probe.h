/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The only file that knows libbpf: loading, attaching, the maps, and handing all of it to the service
 * manager's descriptor store so that a restart of qosd misses nothing. Control groups come in as
 * descriptors, units as slots. */

#include "exclude.h"
#include "probe-name.h"
#include "unit-map.h"

struct qos_block_devices;
struct qos_block_user;
struct qos_block_use;
struct qos_contention_map;
struct qos_mapping;
struct qos_contention_cpu;
struct qos_thread;

typedef struct Probe Probe;

/* The programs, in the order in which they are attached: who is whose is known before anything is
 * counted. */
typedef enum Program {
        PROGRAM_MKDIR,
        PROGRAM_STATE,
        PROGRAM_STATE_NESTED,
        PROGRAM_READ,
        PROGRAM_CONTENT,
        PROGRAM_EGRESS,
        PROGRAM_INGRESS,
        PROGRAM_RETRANSMIT,
        PROGRAM_UNIX,
        PROGRAM_BIND4,
        PROGRAM_BIND6,
        PROGRAM_FIND_SOCKETS,
        PROGRAM_FIND_UNIX,
        PROGRAM_FIND_UDP,
        PROGRAM_FIND_ACTIVATED,
        PROGRAM_REASSIGN,
        PROGRAM_LISTENERS,
        PROGRAM_OLDEST,
        PROGRAM_GAUGES,
        PROGRAM_RETARGET,
        PROGRAM_RETARGET_UDP,
        PROGRAM_UNIX_OPEN,
        PROGRAM_UNIX_CLOSE,
        PROGRAM_UDP_OPEN,
        PROGRAM_UDP_EXPIRE,
        PROGRAM_END_EXPORTS,
        /* Those of the probe "tls", which are loaded with the first unit that has it */
        PROGRAM_OPENSSL_EGRESS,
        PROGRAM_OPENSSL_ENTER,
        PROGRAM_OPENSSL_LEAVE,
        PROGRAM_FIND_LIBRARIES,
        /* Those of "cpu" */
        PROGRAM_CPU_SWITCH,
        PROGRAM_CPU_WAKE,
        PROGRAM_CPU_WAKE_NEW,
        PROGRAM_CPU_WAKING,
        PROGRAM_CPU_LOCK,
        PROGRAM_CPU_UNLOCK,
        PROGRAM_CPU_MIGRATE,
        PROGRAM_FIND_THREADS,
        PROGRAM_READ_THREADS,
        PROGRAM_READ_MAPPINGS,
        /* Those of "block" */
        PROGRAM_BLOCK_START,
        PROGRAM_BLOCK_ISSUE,
        PROGRAM_BLOCK_COMPLETE,
        PROGRAM_BLOCK_COMPLETE_NESTED,
        PROGRAM_BLOCK_DONE,
        PROGRAM_BLOCK_DONE_NESTED,
        /* Those of "memory" */
        PROGRAM_FAULT,
        PROGRAM_FAULT_KERNEL,
        PROGRAM_MEMORY_FORK,
        PROGRAM_MEMORY_EXIT,
        PROGRAM_FIND_FAULTS,
        PROGRAM_FAULT_BEGIN,
        PROGRAM_FAULT_END,
        PROGRAM_RECLAIM_BEGIN,
        PROGRAM_RECLAIM_END,
        PROGRAM_LIMIT_BEGIN,
        PROGRAM_LIMIT_END,
        PROGRAM_THROTTLE,
        PROGRAM_OOM,
        _PROGRAM_MAX,
        _PROGRAM_REQUESTS_MAX = PROGRAM_OPENSSL_EGRESS,
} Program;

#define PROGRAM_BIT(p) (UINT64_C(1) << (p))
_Static_assert(_PROGRAM_MAX <= 64, "a bit for each program");

/* event: on which what was unloaded is closed when the service manager has closed it, too. */
int probe_new(sd_event *event, Probe **ret);
Probe* probe_free(Probe *p);

/* Loads and attaches everything that the kernel lets through. Programs it does not are remembered with the
 * reason; fails (and nothing is loaded then) only when not even the maps could be made. */
int probe_start(Probe *p);

/* Unloads everything, here and in the descriptor store. */
void probe_stop(Probe *p);

bool probe_is_started(Probe *p);

/* Bits of the programs that work. */
uint64_t probe_get_programs(Probe *p);

/* Why nothing could be loaded at all; NULL: something could. */
const char* probe_get_failure(Probe *p);

/* Loads and attaches the programs of a probe that is not always loaded (all but "requests"), and unloads
 * them. What the kernel refuses is tried once. */
int probe_load_group(Probe *p, ProbeMask probe);
void probe_unload_group(Probe *p, ProbeMask probe);
/* Why one of them does not work; NULL: all do. */
const char* probe_group_failure(Probe *p, ProbeMask probe);

/* The map of a unit. ret_view is mapped read-only and valid until probe_remove_unit(). */
int probe_add_unit(Probe *p, unsigned slot, uint32_t generation, uint64_t now,
                   const struct qos_unit_map **ret_view);
/* … and its book of contention; what is there of them. */
void probe_remove_unit(Probe *p, unsigned slot);
/* Whether there is something of either. */
bool probe_has_unit(const Probe *p, unsigned slot);

/* The descriptor of the map, for others to read; it stays the probe's. -EOPNOTSUPP: they could not be told
 * when to end that. */
int probe_get_unit_fd(Probe *p, unsigned slot);
/* Tells those who have it that the map is of no use any more, which is for ever. */
int probe_end_export(Probe *p, unsigned slot);

/* Whose control group this is now (by descriptor of its directory), and whose a group that is made at this
 * path will be. -ENAMETOOLONG: no program could recognise the path. */
int probe_assign_cgroup(Probe *p, int fd, unsigned slot, uint32_t generation);
void probe_unassign_cgroup(Probe *p, int fd);
/* -ENOENT: nobody's. It may be one's that is gone. */
int probe_get_group_owner(Probe *p, int fd, struct qos_owner *ret);
int probe_assign_path(Probe *p, const char *path, unsigned slot, uint32_t generation);
void probe_unassign_path(Probe *p, const char *path);

/* Looks for the sockets that the units' tasks have open. */
int probe_find_sockets(Probe *p);

/* What the kernel knows of units in units: written for one slot, and applied to all sockets. */
void probe_set_hierarchy(Probe *p, unsigned slot, const struct qos_hierarchy *nest);
int probe_reassign_sockets(Probe *p);

/* The addresses on which the service manager listens for this unit, and for no other: all of them, none of
 * before. */
int probe_set_addresses(Probe *p, unsigned slot, uint32_t generation, const struct qos_address *addresses,
                        size_t n);
/* Looks for these among the service manager's sockets. Returns all TCP listeners that it has. */
int probe_find_activation_sockets(Probe *p, struct qos_activation_socket **ret, size_t *ret_n);

/* The ports that are left out of this unit's figures: all of them, none of before. Sockets that are open go
 * where they belong now, with what is in flight on them. */
int probe_set_excludes(Probe *p, unsigned slot, uint32_t generation, const ExcludeList *excludes);

/* ---- contention ---- */

/* The two maps of a unit's book of contention (contention-map.h), made and mapped as that of
 * probe_add_unit(), for the unit of this generation. book: the generation of the book; served: what the
 * unit's serving clock shows. */
int probe_add_contention(Probe *p, unsigned slot, uint32_t generation, uint32_t book, uint64_t now,
                         uint64_t served, const struct qos_contention_map **ret_contention,
                                 const struct qos_contention_cpu **ret_shards);
void probe_remove_contention(Probe *p, unsigned slot);
/* After probe_adopt(). -ENOENT: there is none. */
int probe_adopt_contention(Probe *p, unsigned slot, uint32_t generation,
                           const struct qos_contention_map **ret_contention,
                           const struct qos_contention_cpu **ret_shards);

/* Looks for the threads in all units' control groups. */
int probe_find_threads(Probe *p);
/* Shows each thread in the books of these units' slots, as it is now. */
int probe_read_threads(Probe *p, const unsigned *slots, size_t n,
                       void (*handler)(const struct qos_thread *t, void *userdata), void *userdata);
/* Shows the files that a process has mapped from their beginning on, or at this address. -ESRCH: there is no
 * such process. */
int probe_read_mappings(Probe *p, pid_t process, uint64_t address,
                        void (*handler)(const struct qos_mapping *m, void *userdata), void *userdata);
/* Books the newest page fault of each of them. */
int probe_find_faults(Probe *p);

/* The book of what all devices of the machine do; not kept over a restart. */
int probe_add_machine(Probe *p, uint32_t book, uint64_t now, const struct qos_contention_map **ret);
void probe_remove_machine(Probe *p);
/* Which devices the rows of all books are. */
int probe_get_devices(Probe *p, struct qos_block_devices *ret);
/* Who has used which device, all that the kernel's map has, in an order in which they are found again. */
typedef struct BlockUser {
        struct qos_block_user user;
        struct qos_block_use use;
} BlockUser;

int probe_get_block_users(Probe *p, BlockUser **ret, size_t *ret_n);
const struct qos_block_use* block_users_find(const BlockUser *users, size_t n,
                                             const struct qos_block_user *user);

/* Readable when processes were moved from or to control groups of units, until probe_find_threads(). */
int probe_get_moves_fd(Probe *p);
void probe_read_moves(Probe *p);

/* ---- OpenSSL's library ---- */

/* Whether a unit is watched with "tls"; what was written to probe_get_missing_libraries_fd() of it may be
 * written again. */
void probe_set_config(Probe *p, unsigned slot, uint32_t generation, bool tls);

/* Different versions of OpenSSL in use at a time, each file one: a machine with containers has some. Of
 * these how many may be the files of one user who is not root: copies are made quickly. */
#define LIBRARIES_MAX 32U
#define LIBRARIES_PER_UID_MAX 8U

/* Puts the programs into the libraries that a process has mapped. Returns how many of those it has. limit is
 * left alone, or becomes why they are not in all of them: -ENOSPC (LIBRARIES_MAX) or -EDQUOT
 * (LIBRARIES_PER_UID_MAX). */
int probe_add_libraries(Probe *p, pid_t process, int *limit);
const char* probe_library_limit_reason(int limit);
/* Lets go of those that none of the processes has that were added in between. */
void probe_begin_libraries(Probe *p);
void probe_end_libraries(Probe *p);

/* Readable when a unit was seen to read sealed bytes, and not with a library that is known. handler is told
 * which. */
int probe_get_missing_libraries_fd(Probe *p);
void probe_read_missing_libraries(Probe *p, void (*handler)(const struct qos_owner *owner, void *userdata),
                                  void *userdata);

/* Counts the runs of programs that the kernel has skipped since it was last asked, for each unit
 * (QOS_COUNTER_MISSED). True: there were some. */
bool probe_count_missed(Probe *p);

/* How many control groups have been made since the programs were loaded whose owner units_mkdir() could not
 * note. */
uint64_t probe_get_lost_groups(Probe *p);

/* Lets the kernel fill in the gauges that only it can see, qos_unit_map.accept_queue* and .oldest_at: those
 * of a unit are valid when its session is the one returned. */
int probe_read_listeners(Probe *p, uint64_t *ret_session);
int probe_read_oldest(Probe *p, uint64_t *ret_session);

/* Corrects the gauges of connections where the kernel has skipped a program. What is found twice counts: to
 * be called again some time later. */
void probe_reconcile_gauges(Probe *p);

/* The same for qos_unit_map.gauges. */
int probe_read_gauge(Probe *p, enum qos_gauge gauge, uint64_t *ret_session);

/* What units have asked over UDP too long ago counts as not answered. */
int probe_expire_udp(Probe *p);

typedef enum ProgramState {
        PROGRAM_IDLE,           /* not loaded: nothing needs it */
        PROGRAM_ATTACHED,
        PROGRAM_UNAVAILABLE,    /* reason says why */
        _PROGRAM_STATE_MAX,
} ProgramState;

const char* program_state_to_string(ProgramState s);    /* "idle", "attached", "unavailable" */

typedef struct ProgramInfo {
        const char *name;               /* "requests_ingress" */
        const char *probe;              /* "requests", "tls", or "units" for what finds control groups */
        const char *hook;               /* "cgroup_skb/ingress", "tp_btf/cgroup_mkdir" */
        const char *provides;           /* what is lost without it, for people: "arrival times: receive,
                                         * queue, latency" */
        ProgramState state;
        char *reason;                   /* for PROGRAM_UNAVAILABLE; for PROGRAM_IDLE what it waits for, or
                                         * NULL */
        uint64_t runs, run_nsec;        /* ABSENT unless kernel.bpf_stats_enabled was on at some time */
        uint64_t recursion_misses;      /* ABSENT while not attached */
} ProgramInfo;

typedef struct ProbesInfo {
        ProgramInfo *programs;
        size_t n_programs;
        bool statistics_enabled;        /* kernel.bpf_stats_enabled now */
        uint64_t map_memory;            /* bytes of all maps of qosd, as the kernel accounts them */
        uint64_t map_memory_per_unit;   /* bytes of the one map that each attached unit has */
        uint64_t memory_per_socket;     /* bytes of socket storage per open connection, where messages come
                                         * one after the other */
        uint64_t drops;                 /* events that could not be booked, all units and none, since the
                                         * first attach */
} ProbesInfo;

void probes_info_done(ProbesInfo *i);
#define _cleanup_probes_info_ _cleanup_(probes_info_done)

int probe_get_info(Probe *p, ProbesInfo *ret);

/* ---- over a restart ----------------------------------------------------------------------------------- */

/* What the programs and the layout of the maps are, as 16 hexadecimal digits: descriptors of another build
 * are not taken over. */
const char* probe_get_checksum(Probe *p);

/* A descriptor that the service manager kept for us, by its name in the store: false if it has no place (the
 * caller keeps it then). */
bool probe_take_fd(Probe *p, const char *name, int fd);

/* Goes on with what was taken. -ENOENT: nothing was there; -ESTALE: it is not complete, and all of it was
 * let go. discard: let go in any case. */
int probe_adopt(Probe *p, bool discard);

/* After probe_adopt(): the view of a unit that was there, as probe_add_unit() gives it. */
int probe_adopt_unit(Probe *p, unsigned slot, uint32_t generation, const struct qos_unit_map **ret_view);
