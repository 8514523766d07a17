/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the files of this folder. */

#include <systemd/sd-event.h>

#include "contention-map.h"
#include "network-map.h"
#include "probe.h"
#include "storage-map.h"

/* Program runs that the kernel has skipped since the programs were loaded. */
typedef struct MissedRuns {
        uint64_t healed;        /* QOS_STATISTIC_RUNS_MISSED */
        uint64_t lost;          /* QOS_STATISTIC_RUNS_LOST */
        uint64_t lost_memory;   /* QOS_STATISTIC_RUNS_LOST_MEMORY */
        uint64_t lost_storage;  /* QOS_STATISTIC_RUNS_LOST_STORAGE */
        uint64_t lost_network;  /* QOS_STATISTIC_RUNS_LOST_NETWORK */
} MissedRuns;

typedef enum Map {
        MAP_UNITS,
        MAP_CONNS,
        MAP_PIPELINES,
        MAP_H2_CONNS,
        MAP_H2_MORES,
        MAP_TLS_CONNS,
        MAP_LISTENERS,
        MAP_GROUPS,
        MAP_HIERARCHIES,
        MAP_PATHS,
        MAP_ADDRESSES,
        MAP_EXCLUDES,
        MAP_FILTERS,
        MAP_ACCEPT_HANDOFFS,
        MAP_STATE_RUNNING,
        MAP_UNIX_CONNS,
        MAP_UNIX_UNRECORDED,
        MAP_UNIX_NAMES,
        MAP_UNIX_USES,
        MAP_UDP_SOCKETS,
        MAP_UDP_PEERS,
        MAP_UDP_PENDING,
        MAP_UDP_SWEPT,
        MAP_PATH_SCRATCH,
        MAP_WALK_PURPOSE,
        MAP_STATISTICS,
        MAP_PLAINTEXT,
        MAP_PLAINTEXT_FRESH,
        MAP_PLAINTEXT_H2,
        MAP_PLAINTEXT_H2_FRESH,
        MAP_OPENSSL_CALLS,
        MAP_OPENSSL_SCRATCH,
        MAP_PROBE_CONFIGS,
        MAP_MISSING_LIBRARIES,
        MAP_CONTENTION_MAPS,
        MAP_CONTENTION_CPUS,
        MAP_THREADS,
        MAP_SERVICES,
        MAP_RESPONSES,
        MAP_OVERHEAD_TURNS,
        MAP_MOVED,
        MAP_CLOCKS,
        MAP_MOVES,
        MAP_READ_CHECKS,
        MAP_READ_EVENTS,
        MAP_BLOCKS,
        MAP_BLOCK_DEVICES,
        MAP_BLOCK_USERS,
        MAP_MEMORY_STALLS,
        MAP_INSPECT_REQUESTS,
        MAP_MAPPING_SCRATCH,
        MAP_LOCK_SCRATCH,
        MAP_LOCK_PLACES,
        MAP_STORAGE_MAPS,
        MAP_STORAGE_THREADS,
        MAP_STORAGE_REQUESTS,
        MAP_NETWORK_MAPS,
        MAP_FLOWS,
        MAP_CONNECTIONS_REQUEST,
        MAP_FLOW_PATHS,
        MAP_ARRIVALS,
        MAP_NETWORK_CLOCK,
        MAP_DROP_REASONS,
        MAP_STAMP_CONTROL,
        MAP_STAMP_RING,
        _MAP_MAX,
} Map;

/* How a program is attached. */
typedef enum HookType {
        HOOK_TRACEPOINT,
        HOOK_FUNCTION,          /* fentry or fexit of a kernel function: not supported by all kernels */
        HOOK_CGROUP_INGRESS,
        HOOK_CGROUP_EGRESS,
        HOOK_CGROUP_BIND4,
        HOOK_CGROUP_BIND6,
        HOOK_CGROUP_SOCKOPS,
        HOOK_ITERATOR,          /* over files of tasks; run on request */
        HOOK_ITERATOR_MANAGER,  /* over files of the service manager */
        HOOK_ITERATOR_MAP,      /* over sockets in a map */
        HOOK_ITERATOR_PROCESS,  /* over the VMAs of a process */
        HOOK_CALL,              /* none: run by the daemon, over elements of maps */
        HOOK_LIBRARY,           /* uprobes in each libssl found */
} HookType;

typedef struct ProgramDescription {
        const char *name;
        const char *probe;
        const char *hook;
        HookType type;
        Map map;                /* for HOOK_ITERATOR_MAP */
        const char *provides;
        Program alternative;    /* program that is used on kernels that refuse this one; 0: none */
        enum qos_walk walk;     /* purpose of the alternative */
        Program unless;         /* program that measures all of this one's metrics, which is loaded only on
                                 * kernels that refuse that; 0: loaded always */
        const char *on_demand;  /* attached only while needed, otherwise for this reason not; NULL: always */
        const char *renamed;    /* for HOOK_FUNCTION: name of the function in newer kernels; NULL:
                                 * unchanged */
} ProgramDescription;

/* Programs that are loaded together; indexed by the bit number of the probe. */
typedef struct ProgramGroup {
        Program first, end;
} ProgramGroup;

#define PROGRAM_GROUPS 7U

/* The kernel's names have less than 30 characters. */
#define DROP_NAME_SIZE 40U

typedef struct Library {
        uint64_t inode;
        uint32_t device;                        /* kernel encoding, as in struct qos_openssl_library */
        uid_t owner;                            /* owner of the file */
        int enter_fd, leave_fd;                 /* links; negative: not usable */
        bool seen;
} Library;

/* Unloaded programs whose links the descriptor store may still have: a program runs as long as a descriptor
 * of its link is open. */
typedef struct Unloading {
        int program_fds[_PROGRAM_MAX], link_fds[_PROGRAM_MAX];
        Library libraries[LIBRARIES_MAX];
        size_t n_libraries;
        sd_event_source *barrier;               /* fires when the service manager has closed them */
} Unloading;

struct Probe {
        sd_event *event;
        Unloading unloading;
        Library libraries[LIBRARIES_MAX];
        size_t n_libraries;
        struct ring_buffer *wanted;
        void (*wanted_handler)(const struct qos_owner *owner, void *userdata);
        void *wanted_userdata;
        struct ring_buffer *moves;
        struct ring_buffer *read_events;
        ProbeMask loaded_groups;                 /* besides "requests" */
        uint64_t loaded_at;                     /* CLOCK_MONOTONIC ns when the last group was loaded */
        char *library_reason;                   /* why no library is probed */
        int library_limit;                      /* why not all libraries are probed, see
                                                 * probe_add_libraries() */
        int map_fds[_MAP_MAX];
        int program_fds[_PROGRAM_MAX];
        int link_fds[_PROGRAM_MAX];
        char *reasons[_PROGRAM_MAX];            /* why a program is not available */
        char *failure;                          /* why nothing is available */
        bool started;
        bool in_thread;                         /* programs are loaded in a thread, not by the event loop */
        MissedRuns missed;                      /* as recorded in the units' maps */
        bool store_complained;

        int unit_fds[UNITS_MAX_LIMIT];
        struct qos_unit_map *views[UNITS_MAX_LIMIT];

        /* Contention maps */
        int contention_fds[UNITS_MAX_LIMIT], shards_fds[UNITS_MAX_LIMIT];
        struct qos_contention_map *contentions[UNITS_MAX_LIMIT];
        struct qos_contention_cpu *contention_cpus[UNITS_MAX_LIMIT];
        struct qos_contention_map *machine;         /* of the whole machine */
        int machine_fd;

        /* Storage maps */
        int storage_fds[UNITS_MAX_LIMIT];
        union qos_storage_element *storages[UNITS_MAX_LIMIT];

        /* Network maps */
        int network_fds[UNITS_MAX_LIMIT];
        union qos_network_element *networks[UNITS_MAX_LIMIT];
        struct qos_drop_reasons drop_rows;          /* those that drop_names are of */
        char drop_names[QOS_DROP_ROWS - 1][DROP_NAME_SIZE];

        struct CustomObject *customs[CUSTOM_PROBES_MAX]; /* of the previous run, not adopted yet */
};

/* map-table.c */
extern const char *const map_table[_MAP_MAX];

/* program-table.c */
extern const ProgramDescription program_table[_PROGRAM_MAX];
extern const ProgramGroup group_table[PROGRAM_GROUPS];
unsigned group_of(ProbeMask probe);
bool program_has_link(Program i);
bool program_works(const Probe *p, Program i);
/* Whether another program makes this one unnecessary. */
bool program_is_superseded(const Probe *p, Program i);

/* probe.c */
void probe_close(Probe *p);
int probe_load(Probe *p);
void probe_store(Probe *p);
int program_attach(Probe *p, Program i);
bool program_is_needed(const Probe *p, Program i);

/* probe-fdstore.c: names are those of a kind. */
void store_push(Probe *p, const char *kind, const char *name, int fd);
void store_drop(const char *kind, const char *name);
void store_push_link(Probe *p, Program i);
void store_push_program(Probe *p, Program i);
void store_push_all(Probe *p);
void store_drop_link(const Probe *p, Program i);
void store_drop_program(const Probe *p, Program i);
void store_drop_library(const Library *l);
void store_push_library(Probe *p, const Library *l);
void store_drop_all(Probe *p);
void store_drop_unit(const char *kind, unsigned slot);
void store_push_unit(Probe *p, const char *kind, unsigned slot, int fd);
void store_drop_contention(Probe *p, unsigned slot);

/* probe-units.c */
int unit_map_view(int fd, struct qos_unit_map **ret);

/* probe-missed.c */
uint64_t program_get_missed(Probe *p, Program i);
void probe_get_missed(Probe *p, MissedRuns *ret);

/* probe-contention.c */
unsigned shards_number(void);
void contention_close(Probe *p, unsigned slot);
void machine_close(Probe *p);
int shards_make_map(uint32_t contention, uint64_t epoch_end);

/* probe-storage.c */
void storage_close(Probe *p, unsigned slot);
int storage_make_map(const struct qos_storage_header *header);

/* probe-drops.c: for the programs, what the kernel's types say. */
int drops_set_up(__u64 ret_not_lost[static QOS_DROP_REASONS / 64], bool *ret_have_receiver);

/* probe-custom-adopt.c. name: without "custom-" */
bool custom_take_fd(Probe *p, const char *name, int fd);

/* probe-network.c */
void network_close(Probe *p, unsigned slot);

/* probe-iterators.c */
int iterator_run(Probe *p, Program i, uint64_t *ret_session);

/* probe-openssl.c */
void library_close(Library *l);
void library_drop(Probe *p, size_t i);
Library* library_get(Probe *p, uint32_t device, uint64_t inode, bool make);
