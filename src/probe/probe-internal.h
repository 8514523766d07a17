/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the files of this folder share, and nobody else may know: descriptors of programs and maps. */

#include <systemd/sd-event.h>

#include "contention-map.h"
#include "probe.h"

typedef enum Map {
        MAP_UNITS,
        MAP_CONNS,
        MAP_PIPELINES,
        MAP_H2_CONNS,
        MAP_TLS_CONNS,
        MAP_LISTENERS,
        MAP_GROUPS,
        MAP_HIERARCHIES,
        MAP_PATHS,
        MAP_ADDRESSES,
        MAP_EXCLUDES,
        MAP_FILTERS,
        MAP_ACCEPT_HANDOFFS,
        MAP_UNIX_CONNS,
        MAP_UNIX_UNRECORDED,
        MAP_UNIX_NAMES,
        MAP_UDP_SOCKETS,
        MAP_UDP_PEERS,
        MAP_UDP_ASKED,
        MAP_UDP_SWEPT,
        MAP_PATH_SCRATCH,
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
        MAP_ANSWERS,
        MAP_MOVED,
        MAP_CLOCKS,
        MAP_MOVES,
        MAP_BLOCKS,
        MAP_BLOCK_DEVICES,
        MAP_BLOCK_USERS,
        MAP_MEMORY_STALLS,
        MAP_INSPECT_REQUESTS,
        MAP_MAPPING_SCRATCH,
        MAP_LOCK_SCRATCH,
        MAP_LOCK_PLACES,
        _MAP_MAX,
} Map;

/* How a program gets to its hook. */
typedef enum HookType {
        HOOK_TRACEPOINT,
        HOOK_FUNCTION,          /* of the kernel, at its beginning or its end: not all kernels allow that */
        HOOK_CGROUP_INGRESS,
        HOOK_CGROUP_EGRESS,
        HOOK_CGROUP_BIND4,
        HOOK_CGROUP_BIND6,
        HOOK_ITERATOR,          /* over tasks' files: run when called for */
        HOOK_ITERATOR_MANAGER,  /* over the service manager's files */
        HOOK_ITERATOR_MAP,      /* over the sockets of a map */
        HOOK_ITERATOR_PROCESS,  /* over the memory of one process at a time */
        HOOK_LIBRARY,           /* of each library that is found */
} HookType;

typedef struct ProgramDescription {
        const char *name;
        const char *probe;
        const char *hook;
        HookType type;
        Map map;                /* HOOK_ITERATOR_MAP: which */
        const char *provides;
} ProgramDescription;

/* Which programs are loaded together, by the number of the probe's bit. */
typedef struct ProgramGroup {
        Program first, end;
} ProgramGroup;

#define PROGRAM_GROUPS 5U

typedef struct Library {
        uint64_t inode;
        uint32_t device;                        /* as in struct qos_openssl_library */
        uid_t owner;                            /* of the file */
        int enter_fd, leave_fd;                 /* the links; negative: it was of no use */
        bool seen;
} Library;

/* What is unloaded, and the service manager may have still: programs run for as long as somebody has their
 * links. */
typedef struct Unloading {
        int program_fds[_PROGRAM_MAX], link_fds[_PROGRAM_MAX];
        Library libraries[LIBRARIES_MAX];
        size_t n_libraries;
        sd_event_source *barrier;               /* the service manager has come as far as that */
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
        ProbeMask loaded_groups;                 /* beside "requests" */
        uint64_t loaded_at;                     /* when those were loaded that came last, CLOCK_MONOTONIC
                                                 * ns */
        char *library_reason;                   /* why the programs are in none */
        int library_limit;                      /* why they are not in all, see probe_add_libraries() */
        char checksum[17];
        int map_fds[_MAP_MAX];
        int program_fds[_PROGRAM_MAX];
        int link_fds[_PROGRAM_MAX];
        char *reasons[_PROGRAM_MAX];            /* why a program does not work */
        char *failure;                          /* why nothing does */
        bool started;
        uint64_t missed;                        /* runs of programs, as the units' maps have them */
        bool store_complained;

        int unit_fds[UNITS_MAX_LIMIT];
        struct qos_unit_map *views[UNITS_MAX_LIMIT];

        /* Books of contention */
        int contention_fds[UNITS_MAX_LIMIT], shards_fds[UNITS_MAX_LIMIT];
        struct qos_contention_map *contentions[UNITS_MAX_LIMIT];
        struct qos_contention_cpu *contention_cpus[UNITS_MAX_LIMIT];
        struct qos_contention_map *machine;         /* that of the whole machine */
        int machine_fd;
};

extern const char *const map_table[_MAP_MAX];

extern const ProgramDescription program_table[_PROGRAM_MAX];

extern const ProgramGroup group_table[PROGRAM_GROUPS];

/* probe.c */
void probe_close(Probe *p);
bool program_has_link(Program i);

/* probe-table.c */
unsigned group_of(ProbeMask probe);

/* probe-fdstore.c */
void store_push(Probe *p, const char *kind, const char *name, int fd);
void store_drop(const char *kind, const char *name);
void store_drop_all(Probe *p);
void store_drop_unit(const char *kind, unsigned slot);
void store_push_unit(Probe *p, const char *kind, unsigned slot, int fd);
void store_drop_contention(Probe *p, unsigned slot);

/* probe-units.c */
int unit_map_view(int fd, struct qos_unit_map **ret);
uint64_t probe_get_missed(Probe *p);

/* probe-contention.c */
unsigned shards_number(void);
void contention_close(Probe *p, unsigned slot);
void machine_close(Probe *p);
int shards_make_map(uint32_t book, uint64_t epoch_end);

/* probe-iterators.c */
int iterator_run(Probe *p, Program i, uint64_t *ret_session);

/* probe-openssl.c */
void library_close(Library *l);
void store_drop_library(const Library *l);
void store_push_library(Probe *p, const Library *l);
void library_drop(Probe *p, size_t i);
Library* library_get(Probe *p, uint32_t device, uint64_t inode, bool make);
