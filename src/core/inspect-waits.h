/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Threads of a unit and their wait targets, read on request. Values are since the unit has its contention
 * map, or the thread is in it. */

#include <systemd/sd-json.h>

#include "contention-map.h"
#include "unit.h"

/* Threads in a reply: half a MiB of JSON. */
#define THREADS_MAX 1000U

typedef struct ThreadsReading {
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        struct qos_thread *threads;     /* most active first */
        size_t n, n_rest;
        struct qos_thread rest;         /* sum of all others */
} ThreadsReading;

void threads_reading_done(ThreadsReading *t);
#define _cleanup_threads_reading_ _cleanup_(threads_reading_done)

/* -ENODATA: threads of the unit are not observed. */
int unit_read_threads(Unit *u, ThreadsReading *ret);
int threads_reading_to_json(const ThreadsReading *t, sd_json_variant **ret);

/* Wait targets in a reply, besides the others of each state. */
#define RESOURCES_MAX QOS_WAIT_TARGETS

typedef struct WaitTarget {
        struct qos_wait_target row;
        char *name;                     /* NULL: only the address is known */
        const char *unit;               /* unit that listens there; NULL: unknown */
} WaitTarget;

typedef struct ResourcesReading {
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        WaitTarget *resources;     /* by time, descending */
        size_t n;
        struct qos_resource_others rests[QOS_STATES];
} ResourcesReading;

void resources_reading_done(ResourcesReading *r);
#define _cleanup_resources_reading_ _cleanup_(resources_reading_done)

/* Cache of control groups by id, with their units, for all lookups of a reply, as each one walks the
 * directories. The number is limited to some ten milliseconds per reply. */
#define GROUP_CACHE_LEFT 20000U

typedef struct CgroupNames {
        struct {
                uint64_t id;
                char *path, *unit;      /* NULL: unknown */
        } groups[32];
        size_t n;
        unsigned left;          /* lookups left */
} CgroupNames;

#define GROUP_CACHE_INIT { .left = GROUP_CACHE_LEFT }

/* NULL: unknown or removed. Valid as long as the cache. */
const char* cgroup_names_get(CgroupNames *c, const Manager *m, uint64_t id);
/* Whether the group belongs to the unit or is contained in it. */
bool cgroup_names_is_within(CgroupNames *c, const Unit *u, uint64_t id);
void cgroup_names_done(CgroupNames *c);
#define _cleanup_group_cache_ _cleanup_(cgroup_names_done)

/* names: also resolve futexes, which reads the memory maps of processes. */
int unit_read_resources(Unit *u, bool names, ResourcesReading *ret);
bool resource_equal(const struct qos_wait_target *a, const struct qos_wait_target *b);
/* Name of a kernel lock. */
void resource_format_lock(const struct qos_wait_target *row, char *ret, size_t size);
/* Occupant of a CPU. Returns its unit, or NULL if there is none or it is unknown. */
const char* resource_format_cpu(const Unit *u, const struct qos_wait_target *row, CgroupNames *groups,
                                char *ret, size_t size);
int resources_reading_to_json(const Unit *u, const ResourcesReading *r, sd_json_variant **ret);
