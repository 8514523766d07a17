/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What each thread of a unit does, what they wait for, and who ends it: read when somebody asks. The figures
 * are since the unit came to have its book of contention, or the thread to be in it. */

#include <systemd/sd-json.h>

#include "contention-map.h"
#include "unit.h"

/* Threads in one answer: more than anybody reads, at half a megabyte as JSON. */
#define THREADS_MAX 1000U

typedef struct ThreadsReading {
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        struct qos_thread *threads;     /* those that do most first */
        size_t n, n_rest;
        struct qos_thread rest;         /* all others together */
} ThreadsReading;

void threads_reading_done(ThreadsReading *t);
#define _cleanup_threads_reading_ _cleanup_(threads_reading_done)

/* -ENODATA: the unit's threads are not watched. */
int unit_read_threads(Unit *u, ThreadsReading *ret);
int threads_reading_to_json(const ThreadsReading *t, sd_json_variant **ret);

/* Resources in one answer, the rests of states apart. */
#define RESOURCES_MAX QOS_WAIT_TARGETS

typedef struct WaitTarget {
        struct qos_wait_target row;
        char *name;                     /* NULL: none is known but the address */
        const char *unit;               /* that listens there; NULL: none is known */
} WaitTarget;

typedef struct ResourcesReading {
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        WaitTarget *resources;     /* those with most time first */
        size_t n;
        struct qos_resource_others rests[QOS_STATES];
} ResourcesReading;

void resources_reading_done(ResourcesReading *r);
#define _cleanup_resources_reading_ _cleanup_(resources_reading_done)

/* Units by the ids of their control groups, with what was asked before: all look-ups for one answer have
 * one, as each goes through the directories. So many for one answer, which takes some ten milliseconds: a
 * machine with hundreds of containers has fewer. */
#define GROUP_CACHE_LEFT 20000U

typedef struct CgroupNames {
        struct {
                uint64_t id;
                char *path, *unit;      /* NULL: not known */
        } groups[32];
        size_t n;
        unsigned left;          /* groups that may be looked at yet */
} CgroupNames;

#define GROUP_CACHE_INIT { .left = GROUP_CACHE_LEFT }

/* NULL: it is not known, or gone. Valid as long as the cache is. */
const char* cgroup_names_get(CgroupNames *c, const Manager *m, uint64_t id);
/* Whether it is the unit's, or lies in it: of a slice those of all units in it. */
bool cgroup_names_is_within(CgroupNames *c, const Unit *u, uint64_t id);
void cgroup_names_done(CgroupNames *c);
#define _cleanup_group_cache_ _cleanup_(cgroup_names_done)

/* names: of futexes, too, which takes a process of its own and a while. */
int unit_read_resources(Unit *u, bool names, ResourcesReading *ret);
bool resource_equal(const struct qos_wait_target *a, const struct qos_wait_target *b);
/* What a lock of the kernel's is called. */
void resource_format_lock(const struct qos_wait_target *row, char *ret, size_t size);
/* Who had the CPU. Returns the unit, or NULL: it is none, or not known. */
const char* resource_format_cpu(const Unit *u, const struct qos_wait_target *row, CgroupNames *groups,
                                char *ret, size_t size);
int resources_reading_to_json(const Unit *u, const ResourcesReading *r, sd_json_variant **ret);
