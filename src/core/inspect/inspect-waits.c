/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>

#include "contention-probe.h"
#include "contention-window.h"
#include "futex-name.h"
#include "hierarchy.h"
#include "inspect-waits.h"
#include "manager.h"
#include "parse.h"
#include "peers.h"
#include "probe.h"
#include "state-label.h"
#include "unit-name.h"

/* Contention maps and slots of the unit and its descendants. */
typedef struct WaitsScope {
        ContentionSource buffer[UNITS_MAX_LIMIT];
        ContentionSources sources;
        unsigned slots[UNITS_MAX_LIMIT];
} WaitsScope;

/* -ENODATA: no probe observes the threads of the unit, or some of its programs are unavailable. */
static int unit_get_waits_scope(const Unit *u, WaitsScope *ret) {
        if (!(u->contention.probes & PROBE_CPU) ||
            !programs_attached(probe_get_programs(u->manager->probe), PROGRAMS(PROGRAM_READ_THREADS)) ||
            !unit_get_contention_sources(u, ret->buffer, &ret->sources))
                return -ENODATA;
        for (size_t i = 0; i < ret->sources.n; i++)
                ret->slots[i] = ret->sources.sources[i].slot;
        return 0;
}

/* NULL: the thread belongs to a unit that has reused the slot. */
static const ContentionSource* scope_get_source(const WaitsScope *a, const struct qos_thread *t) {
        for (size_t i = 0; i < a->sources.n; i++)
                if (a->sources.sources[i].map->generation == t->map_id >> THREAD_GENERATION_SHIFT)
                        return a->sources.sources + i;
        return NULL;
}

struct WaitsQuery {
        void (*handler)(const struct qos_thread *thread, void *userdata);
        WaitsScope scope;
        ThreadsReading threads;
        ResourcesReading resources;
        sd_json_variant **variants;     /* of the threads; NULL: not allocated yet */
        size_t n_variants;
        int fd;                         /* iterator over threads; negative: all were visited */

        Probe *probe;                   /* for the child process */
        ChildJob *job;                  /* search for names in progress; NULL: none */
        bool named;                     /* names were searched, or the search has started */
        waits_names_t on_names;
        void *userdata;
};

/* ---- threads ------------------------------------------------------------------------------------------ */

/* Time in which a thread runs or waits for a resource, without states of idle threads, for sorting. */
static uint64_t thread_get_weight(const struct qos_thread *t) {
        return t->times[QOS_STATE_RUNNING] + t->times[QOS_STATE_RUN_QUEUE] + t->times[QOS_STATE_THROTTLED] +
                t->times[QOS_STATE_LOCK] + t->times[QOS_STATE_DISK] + t->times[QOS_STATE_MEMORY];
}

static int thread_compare(const void *a, const void *b) {
        const struct qos_thread *x = a, *y = b;
        uint64_t v = thread_get_weight(x), w = thread_get_weight(y);

        return v != w ? (v > w ? -1 : 1) : x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Merges the threads with the least weight into the rest. */
static void threads_fold(ThreadsReading *t) {
        qsort(t->threads, t->n, sizeof(*t->threads), thread_compare);
        for (; t->n > THREADS_MAX; t->n--) {
                const struct qos_thread *last = t->threads + t->n - 1;

                for (unsigned i = 0; i < QOS_STATES; i++)
                        t->rest.times[i] += last->times[i];
                for (unsigned i = 0; i < QOS_THREAD_COUNTERS; i++)
                        t->rest.counters[i] += last->counters[i];
                t->n_rest++;
        }
}

static void on_thread(const struct qos_thread *thread, void *userdata) {
        WaitsQuery *q = ASSERT_PTR(userdata);
        ThreadsReading *t = &q->threads;

        if (!scope_get_source(&q->scope, thread))
                return;
        if (t->n == 2 * THREADS_MAX)
                threads_fold(t);
        t->threads[t->n] = *thread;
        for (unsigned i = 0; i < QOS_STATES; i++)
                if ((int64_t) t->threads[t->n].times[i] < 0) /* the clocks differ by some microseconds */
                        t->threads[t->n].times[i] = 0;
        t->threads[t->n].name[sizeof(thread->name) - 1] = 0;
        utf8_sanitize(t->threads[t->n++].name);
}

void threads_reading_done(ThreadsReading *t) {
        free(t->threads);
        *t = (ThreadsReading) {};
}

static int states_to_json(const __u64 *values, enum qos_state first, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        int r = 0;

        for (enum qos_state i = first; i < QOS_STATES && r >= 0; i++)
                r = sd_json_variant_set_field_unsigned(&v, qos_state_to_string(i), values[i]);
        if (r < 0)
                return r;
        *ret = TAKE_PTR(v);
        return 0;
}

/* n: number of threads summed up in t; 0: t is a single thread */
static int thread_to_json(const struct qos_thread *t, size_t n, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *times = NULL, *waits = NULL;
        uint64_t voluntary = 0;
        int r;

        for (unsigned i = 0; i < QOS_STATES; i++)
                voluntary += t->counters[QOS_CONTENTION_CPU_WAITS + i];
        r = states_to_json(t->times, QOS_STATE_RUNNING, &times);
        if (r >= 0)
                r = states_to_json(t->counters + QOS_CONTENTION_CPU_WAITS, QOS_STATE_LOCK, &waits);
        if (r < 0)
                return r;
        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_CONDITION(n == 0 && t->tid != 0, "tid",
                                                           SD_JSON_BUILD_UNSIGNED(t->tid)),
                              SD_JSON_BUILD_PAIR_CONDITION(n == 0 && t->pid != 0, "pid",
                                                           SD_JSON_BUILD_UNSIGNED(t->pid)),
                              SD_JSON_BUILD_PAIR_CONDITION(n == 0, "name", SD_JSON_BUILD_STRING(t->name)),
                              SD_JSON_BUILD_PAIR_CONDITION(n == 0, "state",
                                                           SD_JSON_BUILD_STRING(
                                                                   qos_state_to_string(t->state))),
                              SD_JSON_BUILD_PAIR_CONDITION(n > 0, "threads", SD_JSON_BUILD_UNSIGNED(n)),
                              SD_JSON_BUILD_PAIR_VARIANT("times", times),
                              SD_JSON_BUILD_PAIR_VARIANT("waits", waits),
                              SD_JSON_BUILD_PAIR_UNSIGNED("voluntary", voluntary),
                              SD_JSON_BUILD_PAIR_UNSIGNED("involuntary",
                                      t->counters[QOS_CONTENTION_CPU_INVOLUNTARY]),
                              SD_JSON_BUILD_PAIR_UNSIGNED("migrations",
                                      t->counters[QOS_CONTENTION_CPU_MIGRATIONS]),
                              SD_JSON_BUILD_PAIR_UNSIGNED("wakeUps",
                                      t->counters[QOS_CONTENTION_CPU_WAKE_UPS]),
                              SD_JSON_BUILD_PAIR_UNSIGNED("futexWakes",
                                      t->counters[QOS_CONTENTION_CPU_FUTEX_WAKES]));
}

static void variants_freep(sd_json_variant ***array) {
        for (sd_json_variant **v = *array; v && *v; v++)
                sd_json_variant_unref(*v);
        free(*array);
}

/* Limit of threads converted to JSON in one step, 10 to 20 us each. */
#define VARIANTS_AT_A_TIME 32U

int threads_query_to_json(WaitsQuery *q, sd_json_variant **ret) {
        const ThreadsReading *t = &q->threads;
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *rest = NULL, *array = NULL;
        int r;

        if (!q->variants)
                q->variants = new0(sd_json_variant*, t->n + 1);
        if (!q->variants)
                return -ENOMEM;
        for (unsigned i = 0; i < VARIANTS_AT_A_TIME && q->n_variants < t->n; i++, q->n_variants++) {
                r = thread_to_json(t->threads + q->n_variants, 0, q->variants + q->n_variants);
                if (r < 0)
                        return r;
        }
        if (q->n_variants < t->n)
                return 1;

        r = sd_json_variant_new_array(&array, q->variants, t->n);
        if (r >= 0 && t->n_rest > 0)
                r = thread_to_json(&t->rest, t->n_rest, &rest);
        if (r >= 0)
                r = sd_json_buildo(ret,
                                   SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", t->timestamp / NSEC_PER_USEC),
                                   SD_JSON_BUILD_PAIR_VARIANT("threads", array),
                                   SD_JSON_BUILD_PAIR_CONDITION(!!rest, "rest",
                                                                SD_JSON_BUILD_VARIANT(rest)));
        return MIN(r, 0);
}

/* ---- resources ---------------------------------------------------------------------------------------- */

/* Limit of attempts to copy a row that a program is reassigning, which takes some hundred nanoseconds. */
#define ROW_READS 8

static bool row_read(const struct qos_wait_target *from, struct qos_wait_target *ret) {
        for (unsigned try = 0; try < ROW_READS; try++) {
                uint32_t generation = __atomic_load_n(&from->generation, __ATOMIC_ACQUIRE);

                memcpy(ret, from, sizeof(*ret));
                __atomic_thread_fence(__ATOMIC_ACQUIRE);
                if (generation % 2 == 0 &&
                    __atomic_load_n(&from->generation, __ATOMIC_RELAXED) == generation) {
                        ret->generation = generation;
                        return generation != 0;
                }
        }
        return false;
}

static int waker_compare(const void *a, const void *b) {
        const struct qos_waker *x = a, *y = b;

        return x->waits != y->waits ? (x->waits > y->waits ? -1 : 1) : 0;
}

/* Merges the wakers of another row of the same resource. Keeps those with the most waits. */
static void wakers_add(struct qos_wait_target *to, const struct qos_wait_target *from) {
        struct qos_waker all[2 * QOS_WAKERS] = {};
        size_t n = 0;

        for (unsigned i = 0; i < 2 * QOS_WAKERS; i++) {
                const struct qos_waker *w = i < QOS_WAKERS ? to->wakers + i : from->wakers + i - QOS_WAKERS;
                size_t k;

                if (w->thread == 0)
                        continue;
                for (k = 0; k < n && all[k].thread != w->thread; k++)
                        ;
                if (k == n)
                        all[n++] = *w;
                else
                        all[k].waits += w->waits;
        }
        qsort(all, n, sizeof(*all), waker_compare);
        memcpy(to->wakers, all, sizeof(to->wakers));
}

static int resource_compare(const void *a, const void *b) {
        const WaitTarget *x = a, *y = b;

        return x->row.nsec != y->row.nsec ? (x->row.nsec > y->row.nsec ? -1 : 1) :
                memcmp(&x->row.resource, &y->row.resource, sizeof(x->row.resource));
}

static void resources_fold(ResourcesReading *r) {
        qsort(r->resources, r->n, sizeof(*r->resources), resource_compare);
        for (; r->n > RESOURCES_MAX; r->n--) {
                const struct qos_wait_target *row = &r->resources[r->n - 1].row;

                r->rests[row->resource.state % QOS_STATES].waits += row->waits;
                r->rests[row->resource.state % QOS_STATES].nsec += row->nsec;
        }
}

/* Whether two targets are shown as one resource: listeners on the same port of IPv4 and IPv6, a Unix socket
 * before and after a restart of its server, and addresses within the same kernel function. */
bool resource_equal(const struct qos_wait_target *a, const struct qos_wait_target *b) {
        const struct qos_resource *x = &a->resource, *y = &b->resource;

        if (memcmp(x, y, sizeof(*x)) == 0)
                return true;
        if (y->kind != x->kind || x->state != y->state)
                return false;
        if (x->kind == QOS_RESOURCE_KERNEL_LOCK || x->kind == QOS_RESOURCE_KERNEL_CALL)
                return x->device == y->device && strncmp(a->name, b->name, sizeof(a->name)) == 0;
        if (x->kind != QOS_RESOURCE_SOCKET || x->side != y->side)
                return false;
        if (x->family == AF_UNIX && y->family == AF_UNIX && a->name[0] > 0)
                return a->name[0] == b->name[0] &&
                       memcmp(a->name, b->name, MIN((size_t) a->name[0] + 1, sizeof(a->name))) == 0;
        return x->side == QOS_SIDE_LISTENS && x->port == y->port &&
               (x->family == AF_INET || x->family == AF_INET6) &&
                (y->family == AF_INET || y->family == AF_INET6);
}

const struct qos_wait_target* resources_find(const ResourcesReading *r, const struct qos_wait_target *row) {
        for (size_t i = 0; i < r->n; i++)
                if (resource_equal(&r->resources[i].row, row))
                        return &r->resources[i].row;
        return NULL;
}

static void resources_add(ResourcesReading *r, const struct qos_wait_target *row) {
        for (size_t i = 0; i < r->n; i++) {
                struct qos_wait_target *other = &r->resources[i].row;

                if (!resource_equal(other, row))
                        continue;
                other->waits += row->waits;
                other->nsec += row->nsec;
                other->blocked_by_requests += row->blocked_by_requests;
                wakers_add(other, row);
                return;
        }
        if (r->n == 2 * RESOURCES_MAX)
                resources_fold(r);
        r->resources[r->n++].row = *row;
}

/* Adds a wait in progress, which is not recorded in the map yet. */
static void on_waiting(const struct qos_thread *thread, void *userdata) {
        WaitsQuery *q = ASSERT_PTR(userdata);
        const ContentionSource *b = scope_get_source(&q->scope, thread);
        struct qos_wait_target row;

        if (!b || thread->state <= QOS_STATE_THROTTLED || thread->state >= QOS_STATES)
                return;
        if (thread->row > 0 && thread->row <= QOS_WAIT_TARGETS &&
            row_read(b->map->rows + thread->row - 1, &row) &&
            row.generation == thread->generation) {
                row.waits = 1;
                row.nsec = thread->nsec;
                row.blocked_by_requests = 0;
                memset(row.wakers, 0, sizeof(row.wakers));
                resources_add(&q->resources, &row);
        } else {
                q->resources.rests[thread->state].waits++;
                q->resources.rests[thread->state].nsec += thread->nsec;
        }
}

void resources_reading_done(ResourcesReading *r) {
        for (size_t i = 0; i < r->n; i++)
                free(r->resources[i].name);
        free(r->resources);
        *r = (ResourcesReading) {};
}

/* Limit of futexes, by time, whose names are searched in the memory maps of their processes. */
#define RESOLVED_MAX 16U

typedef struct ResolvedName {
        size_t i;                       /* index of the resource */
        char name[RESOURCE_NAME_SIZE];
} ResolvedName;
_Static_assert(sizeof(ResolvedName) <= PIPE_BUF, "one write is one name");
_Static_assert(sizeof(ResolvedName) * RESOLVED_MAX <= CHILD_OUTPUT_MAX, "all can be read at the end");

static bool wait_target_may_have_name(const WaitTarget *t) {
        return t->row.resource.kind == QOS_RESOURCE_FUTEX && t->row.process != 0;
}

/* Runs in a child process, as reading the memory map of a process that hangs in the kernel may block, and so
 * may opening a file on a network file system. Names that are not found in time are absent. */
static void look_up_names(int fd, void *userdata) {
        const WaitsQuery *q = ASSERT_PTR(userdata);
        const ResourcesReading *r = &q->resources;
        size_t n = 0;

        for (size_t i = 0; i < r->n && n < RESOLVED_MAX; i++) {
                const struct qos_wait_target *row = &r->resources[i].row;
                ResolvedName found = { .i = i };
                char *name = NULL;

                if (!wait_target_may_have_name(r->resources + i))
                        continue;
                n++;
                if (mapping_find_name(q->probe, (pid_t) row->process, row->resource.id, &name) < 0 || !name)
                        continue;
                (void) snprintf(found.name, sizeof(found.name), "%s", name);
                free(name);
                if (write(fd, &found, sizeof(found)) < 0)
                        return;
        }
}

static void on_names_found(const void *output, size_t size, uint64_t nsec, void *userdata) {
        WaitsQuery *q = ASSERT_PTR(userdata);
        ResourcesReading *r = &q->resources;
        ResolvedName found;

        q->job = NULL;
        for (size_t at = 0; at + sizeof(found) <= size; at += sizeof(found)) {
                memcpy(&found, (const char*) output + at, sizeof(found));
                if (found.i < r->n && !r->resources[found.i].name)
                        r->resources[found.i].name = strndup(found.name, sizeof(found.name));
        }
        q->on_names(nsec, q->userdata);
}

/* ---- readings ----------------------------------------------------------------------------------------- */

WaitsQuery* waits_query_free(WaitsQuery *q) {
        if (!q)
                return NULL;

        child_job_free(q->job);
        threads_reading_done(&q->threads);
        resources_reading_done(&q->resources);
        variants_freep(&q->variants);
        (void) close_fd(q->fd);
        free(q);
        return NULL;
}

static int query_new(Unit *u, void (*handler)(const struct qos_thread *thread, void *userdata),
                     WaitsQuery **ret) {
        WaitsQuery *q;
        int r;

        q = new0(WaitsQuery, 1);
        if (!q)
                return -ENOMEM;
        q->handler = handler;
        q->fd = -EBADF;
        r = unit_get_waits_scope(u, &q->scope);
        if (r >= 0)
                r = q->fd = probe_open_threads(u->manager->probe);
        if (r < 0) {
                waits_query_free(q);
                return r;
        }

        *ret = q;
        return 0;
}

int threads_query_new(Unit *u, WaitsQuery **ret) {
        _cleanup_waits_query_ WaitsQuery *q = NULL;
        int r;

        r = query_new(u, on_thread, &q);
        if (r < 0)
                return r;
        q->threads.threads = new0(struct qos_thread, 2 * THREADS_MAX);
        if (!q->threads.threads)
                return -ENOMEM;
        *ret = TAKE_PTR(q);
        return 0;
}

int resources_query_new(Unit *u, WaitsQuery **ret) {
        _cleanup_waits_query_ WaitsQuery *q = NULL;
        struct qos_wait_target row;
        int r;

        r = query_new(u, on_waiting, &q);
        if (r < 0)
                return r;
        q->resources.resources = new0(WaitTarget, 2 * RESOURCES_MAX);
        if (!q->resources.resources)
                return -ENOMEM;
        for (size_t i = 0; i < q->scope.sources.n; i++) {
                const struct qos_contention_map *c = q->scope.sources.sources[i].map;

                for (unsigned k = 0; k < QOS_WAIT_TARGETS; k++)
                        if (row_read(c->rows + k, &row))
                                resources_add(&q->resources, &row);
                for (unsigned k = 0; k < QOS_STATES; k++) {
                        q->resources.rests[k].waits += __atomic_load_n(&c->rests[k].waits, __ATOMIC_RELAXED);
                        q->resources.rests[k].nsec += __atomic_load_n(&c->rests[k].nsec, __ATOMIC_RELAXED);
                }
        }
        *ret = TAKE_PTR(q);
        return 0;
}

int waits_query_step(WaitsQuery *q, Unit *u) {
        int r;

        if (q->fd < 0)
                return 0;
        /* Descendants of the unit may have been attached or detached since the last step */
        r = unit_get_waits_scope(u, &q->scope);
        if (r >= 0)
                r = probe_read_threads(u->manager->probe, q->fd, q->scope.slots, q->scope.sources.n,
                                       q->handler, q);
        if (r != 0)
                return r;

        q->fd = close_fd(q->fd);
        if (q->threads.threads) {
                threads_fold(&q->threads);
                q->threads.timestamp = now_nsec(CLOCK_REALTIME);
        } else {
                resources_fold(&q->resources);
                q->resources.timestamp = now_nsec(CLOCK_REALTIME);
        }
        return 0;
}

int resources_query_find_names(WaitsQuery *q, Unit *u, bool root, waits_names_t handler, void *userdata) {
        bool any = false;
        int r;

        if (q->named)
                return !!q->job;

        q->named = true;
        for (size_t i = 0; i < q->resources.n; i++)
                any = any || wait_target_may_have_name(q->resources.resources + i);
        if (!any)
                return 0;
        q->probe = u->manager->probe;
        q->on_names = handler;
        q->userdata = userdata;
        r = child_job_new(u->manager->inspections.children, root, look_up_names, on_names_found, q, &q->job);
        return r < 0 ? r : 1;
}

void threads_query_take(WaitsQuery *q, ThreadsReading *ret) {
        *ret = TAKE_GENERIC(q->threads, ThreadsReading, (ThreadsReading) {});
}

void resources_query_take(WaitsQuery *q, ResourcesReading *ret) {
        *ret = TAKE_GENERIC(q->resources, ResourcesReading, (ResourcesReading) {});
}

/* ---- as JSON ------------------------------------------------------------------------------------------ */

static int wakers_to_json(const Unit *u, const struct qos_wait_target *row, CgroupNames *groups,
                          sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        struct qos_waker wakers[QOS_WAKERS];
        int r = 0;

        memcpy(wakers, row->wakers, sizeof(wakers));
        qsort(wakers, QOS_WAKERS, sizeof(*wakers), waker_compare);
        for (unsigned i = 0; i < QOS_WAKERS && r >= 0; i++) {
                struct qos_waker *w = wakers + i;
                const char *unit;

                if (w->thread == 0 || w->waits == 0)
                        continue;
                w->name[sizeof(w->name) - 1] = 0;
                utf8_sanitize(w->name);
                unit = cgroup_names_get(groups, u->manager, w->group);
                r = sd_json_variant_append_arraybo(&array,
                                                   SD_JSON_BUILD_PAIR_STRING("name", w->name),
                                                   SD_JSON_BUILD_PAIR_CONDITION(w->tid != 0, "tid",
                                                                                SD_JSON_BUILD_UNSIGNED(
                                                        w->tid)),
                                                   SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit",
                                                                                SD_JSON_BUILD_STRING(unit)),
                                                   SD_JSON_BUILD_PAIR_UNSIGNED("waits", w->waits));
        }
        if (r < 0)
                return r;
        *ret = TAKE_PTR(array);
        return 0;
}

static int resource_to_json(const Unit *u, const WaitTarget *resource, CgroupNames *groups,
                            sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *wakers = NULL;
        const struct qos_wait_target *row = &resource->row;
        char name[RESOURCE_NAME_SIZE], address[RESOURCE_NAME_SIZE];
        const char *kind, *unit, *group;
        bool process = row->process != 0 && (row->resource.kind == QOS_RESOURCE_FUTEX ||
                                             row->resource.kind == QOS_RESOURCE_EPOLL);
        int r;

        kind = resource_describe(u, resource, groups, name, address, &unit);
        group = row->resource.kind == QOS_RESOURCE_CPU ? cgroup_names_get_path(groups, row->resource.id) :
                NULL;
        r = wakers_to_json(u, row, groups, &wakers);
        if (r < 0)
                return r;
        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("state", qos_state_to_string(row->resource.state)),
                              SD_JSON_BUILD_PAIR_STRING("kind", strempty(kind)),
                              SD_JSON_BUILD_PAIR_STRING("name", name),
                              SD_JSON_BUILD_PAIR_CONDITION(!isempty(address), "address",
                                                           SD_JSON_BUILD_STRING(address)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!group, "controlGroup",
                                                           SD_JSON_BUILD_STRING(group)),
                              SD_JSON_BUILD_PAIR_CONDITION(process, "pid",
                                                           SD_JSON_BUILD_UNSIGNED(row->process)),
                              SD_JSON_BUILD_PAIR_UNSIGNED("waits", row->waits),
                              SD_JSON_BUILD_PAIR_UNSIGNED("time", row->nsec),
                              SD_JSON_BUILD_PAIR_CONDITION(!!wakers, "wakers",
                                                           SD_JSON_BUILD_VARIANT(wakers)));
}

/* Adds waits for a CPU to the row of an occupant with the same name, if another control group of its unit
 * has one. names: of the rows. False: no such row yet. */
static bool cpu_row_merge(const WaitTarget *from, const char *name, char (*names)[RESOURCE_NAME_SIZE],
                          WaitTarget *rows, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (rows[i].row.resource.kind == QOS_RESOURCE_CPU && streq(names[i], name)) {
                        rows[i].row.waits += from->row.waits;
                        rows[i].row.nsec += from->row.nsec;
                        return true;
                }
        return false;
}

int resources_query_to_json(WaitsQuery *q, Unit *u, sd_json_variant **ret) {
        const ResourcesReading *reading = &q->resources;
        _cleanup_(variants_freep) sd_json_variant **resources = NULL;
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        _cleanup_cgroup_names_ CgroupNames groups = CGROUP_NAMES_INIT;
        _cleanup_free_ char (*cpu_names)[RESOURCE_NAME_SIZE] = NULL;
        _cleanup_free_ WaitTarget *rows = NULL;
        size_t n_rows = 0, n = 0;
        int r = 0;

        resources = new0(sd_json_variant*, reading->n + QOS_STATES + 1);
        rows = new0(WaitTarget, reading->n + 1);
        cpu_names = calloc((reading->n + 1) ?: 1, sizeof(*cpu_names)); /* as new0() */
        if (!resources || !rows || !cpu_names)
                return -ENOMEM;
        for (size_t i = 0; i < reading->n; i++) {
                const WaitTarget *row = reading->resources + i;

                /* The time of a wait for a CPU is divided between the groups that had the CPU in turn, but
                 * counts as a wait of one of them */
                if (row->row.waits == 0 && row->row.nsec == 0)
                        continue;
                if (row->row.resource.kind == QOS_RESOURCE_CPU) {
                        (void) resource_format_cpu(u, &row->row, &groups, cpu_names[n_rows],
                                                   RESOURCE_NAME_SIZE);
                        if (cpu_row_merge(row, cpu_names[n_rows], cpu_names, rows, n_rows))
                                continue;
                }
                rows[n_rows++] = *row;
        }
        qsort(rows, n_rows, sizeof(*rows), resource_compare);
        for (size_t i = 0; i < n_rows && r >= 0; i++)
                r = resource_to_json(u, rows + i, &groups, resources + n++);
        for (enum qos_state i = QOS_STATE_RUN_QUEUE; i < QOS_STATES && r >= 0; i++)
                if (reading->rests[i].waits > 0 || reading->rests[i].nsec > 0)
                        r = sd_json_buildo(resources + n++,
                                           SD_JSON_BUILD_PAIR_STRING("state", qos_state_to_string(i)),
                                           SD_JSON_BUILD_PAIR_STRING("kind", "rest"),
                                           SD_JSON_BUILD_PAIR_STRING("name", "others"),
                                           SD_JSON_BUILD_PAIR_UNSIGNED("waits", reading->rests[i].waits),
                                           SD_JSON_BUILD_PAIR_UNSIGNED("time", reading->rests[i].nsec));
        if (r >= 0)
                r = sd_json_variant_new_array(&array, resources, n);
        if (r < 0)
                return r;
        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", reading->timestamp / NSEC_PER_USEC),
                              SD_JSON_BUILD_PAIR_VARIANT("resources", array));
}
