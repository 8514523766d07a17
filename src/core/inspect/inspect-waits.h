/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Threads of a unit and their wait targets, read on request. Values are totals since the unit got its
 * contention map, or the thread was first seen in it. */

#include <systemd/sd-json.h>

#include "contention-map.h"
#include "resource-name.h"
#include "unit.h"

/* Limit of threads in a reply: half a MiB of JSON. */
#define THREADS_MAX 1000U

typedef struct ThreadsReading {
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        struct qos_thread *threads;     /* most active first */
        size_t n, n_rest;
        struct qos_thread rest;         /* sum of all others */
} ThreadsReading;

void threads_reading_done(ThreadsReading *t);
#define _cleanup_threads_reading_ _cleanup_(threads_reading_done)

/* Limit of wait targets in a reply, not counting the others of each state. */
#define RESOURCES_MAX QOS_WAIT_TARGETS

typedef struct ResourcesReading {
        uint64_t timestamp;             /* CLOCK_REALTIME ns */
        WaitTarget *resources;     /* by time, descending */
        size_t n;
        struct qos_resource_others rests[QOS_STATES];
} ResourcesReading;

void resources_reading_done(ResourcesReading *r);
#define _cleanup_resources_reading_ _cleanup_(resources_reading_done)

/* A reading in progress. It visits the threads of the machine in steps of well below a millisecond: each
 * thread is shown as it was when visited, and threads that start or end between two steps may be absent. To
 * be freed before the unit is detached. */
typedef struct WaitsQuery WaitsQuery;

/* -ENODATA: threads of the unit are not observed. */
int threads_query_new(Unit *u, WaitsQuery **ret);
int resources_query_new(Unit *u, WaitsQuery **ret);
WaitsQuery* waits_query_free(WaitsQuery *q);
#define _cleanup_waits_query_ _cleanup_(waits_query_freep)
static inline void waits_query_freep(WaitsQuery **q) {
        waits_query_free(*q);
}
/* Continues the reading. 0: complete; > 0: more steps are needed. */
int waits_query_step(WaitsQuery *q, Unit *u);
/* The search for names of futexes has ended, after a run time of nsec. */
typedef void (*waits_names_t)(uint64_t nsec, void *userdata);
/* For a complete reading, searches names of futexes in the memory maps of processes. 1: the search is in
 * progress, and the handler will be called; 0: it has ended, or there are no futexes. */
int resources_query_find_names(WaitsQuery *q, Unit *u, bool root, waits_names_t handler, void *userdata);
/* Serialization of a complete reading. threads_query_to_json() converts some threads per call; 1: there are
 * more. */
int threads_query_to_json(WaitsQuery *q, sd_json_variant **ret);
int resources_query_to_json(WaitsQuery *q, Unit *u, sd_json_variant **ret);

/* Moves the result out of a complete reading. */
void threads_query_take(WaitsQuery *q, ThreadsReading *ret);
void resources_query_take(WaitsQuery *q, ResourcesReading *ret);
bool resource_equal(const struct qos_wait_target *a, const struct qos_wait_target *b);
/* Finds the target in another reading; NULL: no waits for it so far. */
const struct qos_wait_target* resources_find(const ResourcesReading *r, const struct qos_wait_target *row);
