/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "contention-source.h"
#include "custom-source.h"
#include "hierarchy.h"
#include "history.h"
#include "log.h"
#include "manager.h"
#include "network-source.h"
#include "observer.h"
#include "probe.h"
#include "storage-source.h"

/* Time for which the map of a detached unit is retained: until neither a window includes it nor a step of
 * the history that may still be collected, plus some seconds for clocks and late timers. */
#define RETAINED_NSEC (330 * NSEC_PER_SEC)

/* ---- ancestors ---------------------------------------------------------------------------------------- */

static bool path_is_below(const char *path, const char *outer) {
        const char *rest;

        if (streq(outer, "/"))
                return !streq(path, "/");
        rest = startswith(path, outer);
        return rest && *rest == '/';
}

bool unit_is_ancestor(const Unit *outer, const Unit *inner) {
        if (outer == inner || isempty(outer->control_group) || isempty(inner->control_group))
                return false;

        return path_is_below(inner->control_group, outer->control_group) ||
                (outer->instances && startswith(inner->control_group, outer->instances)) ||
                (inner->instances && path_is_below(inner->instances, outer->control_group));
}

/* Finds the descendants of all units: comparing their paths for each reading would take as long as the
 * reading. */
static void hierarchy_rebuild(Manager *m) {
        memset(m->hierarchy.inner, 0, sizeof(m->hierarchy.inner));
        FOREACH_UNIT(u, m)
                for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                        const Unit *other = m->units.slots[i] ?: m->hierarchy.retained[i];

                        if (other && unit_is_ancestor(u, other))
                                bitmap_add(&m->hierarchy.inner[u->index], i);
                }
        m->hierarchy.valid = true;
}

/* Slots of the unit's descendants. */
static const Bitmap* unit_get_inner(const Unit *u) {
        if (!u->manager->hierarchy.valid)
                hierarchy_rebuild(u->manager);
        return u->manager->hierarchy.inner + u->index;
}

static bool unit_contains_slot(const Unit *u, unsigned slot) {
        return bitmap_contains(unit_get_inner(u), slot);
}

unsigned unit_next_inner_slot(const Unit *u, unsigned slot) {
        _Static_assert(UNITS_MAX_LIMIT == BITMAP_CAPACITY, "what bitmap_next() returns at the end");

        return bitmap_next(unit_get_inner(u), slot);
}

/* Whether outer may sum up inner: only with a map, unless inner has none either. */
static bool unit_may_be_ancestor(const Unit *outer, const Unit *inner) {
        return outer != inner && (outer->view || !inner->view);
}

Unit* unit_find_ancestor(const Unit *u) {
        Manager *m = u->manager;
        Unit *nearest = NULL;

        FOREACH_UNIT(other, m)
                if (unit_may_be_ancestor(other, u) && unit_contains_slot(other, u->index) &&
                    (!nearest || unit_contains_slot(nearest, other->index)))
                        nearest = other;
        return nearest;
}

Unit* manager_find_innermost(Manager *m, const char *control_group, const Unit *except) {
        const Unit at = { .control_group = (char*) control_group };
        Unit *nearest = NULL;

        FOREACH_UNIT(other, m)
                if (other != except && other->view && unit_is_ancestor(other, &at) &&
                    (!nearest || unit_is_ancestor(nearest, other)))
                        nearest = other;
        return nearest;
}

/* The attached or retained unit in the slot, if it has a map. */
static Unit* hierarchy_get(Manager *m, unsigned slot) {
        Unit *u = m->units.slots[slot] ?: m->hierarchy.retained[slot];

        return u && u->view ? u : NULL;
}

bool unit_is_whole(const Unit *u) {
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowSources sources;

        if (!u->view || u->base)
                return false;
        unit_get_sources(u, buffer, &sources);
        return sources.n == 1;
}

void unit_end_export(Unit *u) {
        int r;

        if (!u->exported)
                return;
        u->exported = false;
        r = probe_end_export(u->manager->probe, u->index);
        if (r < 0)
                log_unit_warning_errno(u->name, r,
                                       "Failed to end exports of the map of '%s': %m", u->name);
}

void hierarchy_push_to_kernel(Manager *m, const Unit *attached) {
        FOREACH_UNIT(other, m)
                if (other->exported && !unit_is_whole(other))
                        unit_end_export(other);

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                Unit *u = hierarchy_get(m, i), *outer = u ? unit_find_ancestor(u) : NULL;
                struct qos_hierarchy entry = {};

                if (u)
                        entry.generation = u->generation;
                if (outer)
                        entry.outer = (struct qos_owner) { .slot = outer->index,
                                                           .generation = outer->generation };
                if (u && u == m->hierarchy.retained[i])
                        entry.flags |= QOS_HIERARCHY_RETAINED;
                if (u && attached && unit_is_ancestor(u, attached))
                        entry.flags |= QOS_HIERARCHY_RESCAN;
                probe_set_hierarchy(m->probe, i, &entry);
        }
}

void hierarchy_reassign_sockets(Manager *m) {
        int r;

        r = probe_reassign_sockets(m->probe);
        if (r < 0 && r != -EOPNOTSUPP)
                (void) log_warning_errno(r, "Failed to reassign known sockets, some may be "
                                            "attributed to the wrong one of nested units: %m");
}

void hierarchy_notify_relatives(const Unit *u) {
        Manager *m = u->manager;

        FOREACH_UNIT(other, m)
                if (unit_is_ancestor(other, u) || unit_is_ancestor(u, other))
                        manager_emit_unit_changed(other);
}

/* ---- sources ------------------------------------------------------------------------------------------ */

static WindowSource unit_get_source(const Unit *u) {
        return (WindowSource) { .map = u->view, .since = u->map_created };
}

void unit_get_sources(const Unit *u, WindowSource *buffer, WindowSources *ret) {
        Manager *m = u->manager;
        size_t n = 0;

        assert(u->view);

        buffer[n++] = unit_get_source(u);
        for (unsigned i = 0; (i = unit_next_inner_slot(u, i)) < UNITS_MAX_LIMIT; i++) {
                Unit *other = hierarchy_get(m, i);

                if (other)
                        buffer[n++] = unit_get_source(other);
        }

        *ret = (WindowSources) {
                .sources = buffer,
                .n = n,
                .attached_at = u->attached_since_monotonic,
                .base = u->base,
        };
}

/* Creates the offset of a unit that had no other source so far. */
static int unit_ensure_offset(Unit *u) {
        if (u->base)
                return 0;
        u->base = new0(CounterOffset, 1);
        if (!u->base)
                return -ENOMEM;
        u->base->before.at = u->attached_since_monotonic;
        return 0;
}

int unit_init_offset(Unit *u) {
        WindowSource buffer[UNITS_MAX_LIMIT];
        WindowSources sources;

        free(u->base);
        u->base = NULL;
        unit_get_sources(u, buffer, &sources);
        if (sources.n == 1 && u->map_created >= u->attached_since_monotonic)
                return 0;

        u->base = new0(CounterOffset, 1);
        if (!u->base)
                return -ENOMEM;
        counter_offset_begin(sources.sources, sources.n, u->attached_since_monotonic, u->base);
        return 0;
}

/* Add the map of inner to the sources of u, or remove it: its counts up to now stay in the totals. */
static int offset_add_source(Unit *u, const Unit *inner) {
        WindowSource source = unit_get_source(inner);
        int r;

        r = unit_ensure_offset(u);
        if (r >= 0)
                window_base_open(u->base, &source);
        unit_open_contention(u, inner);
        unit_open_storage(u, inner);
        unit_open_network(u, inner);
        unit_open_custom(u, inner);
        return r;
}

static int offset_subtract_source(Unit *u, const Unit *inner) {
        WindowSource source = unit_get_source(inner);
        int r;

        r = unit_ensure_offset(u);
        if (r >= 0)
                window_base_close(u->base, now_nsec(CLOCK_MONOTONIC), &source);
        unit_close_contention(u, inner);
        unit_close_storage(u, inner);
        unit_close_network(u, inner);
        unit_close_custom(u, inner);
        return r;
}

int unit_relocate(Unit *u, const char *control_group, const char *instances) {
        bool around[UNITS_MAX_LIMIT] = {}, within[UNITS_MAX_LIMIT] = {};
        Manager *m = u->manager;
        int r;

        FOREACH_MAP(other, m) {
                around[other->index] = unit_is_ancestor(other, u);
                within[other->index] = unit_is_ancestor(u, other);
        }

        m->hierarchy.valid = false;
        r = free_and_strdup(&u->control_group, control_group);
        if (r >= 0)
                r = free_and_strdup(&u->instances, instances);
        if (r < 0 || !u->view)
                return r;

        FOREACH_MAP(other, m) {
                bool is_around = unit_is_ancestor(other, u), is_within = unit_is_ancestor(u, other);

                if (other == m->units.slots[other->index] && is_around != around[other->index])
                        r = is_around ? offset_add_source(other, u) : offset_subtract_source(other, u);
                if (r >= 0 && is_within != within[other->index])
                        r = is_within ? offset_add_source(u, other) : offset_subtract_source(u, other);
                if (r < 0)
                        return r;
        }
        hierarchy_push_to_kernel(m, NULL);
        return 0;
}

/* ---- retained units ----------------------------------------------------------------------------------- */

Unit* retained_find(Manager *m, const char *control_group) {
        FOREACH_RETAINED(u, m)
                if (streq(u->control_group, control_group))
                        return u;
        return NULL;
}

static void retained_free(Unit *u) {
        Manager *m = u->manager;

        probe_remove_unit(m->probe, u->index);
        m->hierarchy.retained[u->index] = NULL;
        unit_free(u);
}

void retained_gc(Manager *m) {
        FOREACH_RETAINED(u, m)
                if (!unit_find_ancestor(u))
                        retained_free(u);
}

/* CLOCK_MONOTONIC ns from which on no window includes the map. Programs that were running at the detach may
 * have recorded in it later. */
static uint64_t retained_get_end(const Unit *u) {
        uint64_t newest = __atomic_load_n(&u->view->epoch, __ATOMIC_ACQUIRE) * QOS_EPOCH_NSEC;

        return MAX(u->retained_since, newest) + RETAINED_NSEC;
}

/* Merges its counters into the totals of its ancestors. */
static int retained_merge(Unit *u) {
        Manager *m = u->manager;
        int r;

        /* Allocates first, so that all ancestors get the counters or none */
        FOREACH_UNIT(other, m)
                if (other->view && unit_is_ancestor(other, u)) {
                        r = unit_ensure_offset(other);
                        if (r < 0)
                                return r;
                }
        FOREACH_UNIT(other, m)
                if (other->view && unit_is_ancestor(other, u))
                        (void) offset_subtract_source(other, u);

        m->hierarchy.retained[u->index] = NULL;
        return 0;
}

static int on_retained_expired(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        Unit *folded[UNITS_MAX_LIMIT];
        unsigned n = 0;
        int r;

        /* Again, for sockets that were accepted from a listener while it was being reassigned */
        hierarchy_push_to_kernel(m, NULL);
        hierarchy_reassign_sockets(m);
        (void) probe_find_threads(m->probe);

        FOREACH_RETAINED(u, m) {
                if (retained_get_end(u) > now)
                        continue;
                r = retained_merge(u);
                if (r < 0)
                        log_unit_warning_errno(u->name, r,
                                               "Failed to merge counters of '%s', will retry: %m",
                                               u->name);
                else
                        folded[n++] = u;
        }

        /* The state file is written before maps are removed, so that a crash in between loses no counters */
        if (n > 0)
                manager_emit_state_changed(m);
        for (unsigned i = 0; i < n; i++) {
                probe_remove_unit(m->probe, folded[i]->index);
                unit_free(folded[i]);
        }
        hierarchy_push_to_kernel(m, NULL);
        hierarchy_schedule(m);
        return 0;
}

void hierarchy_schedule(Manager *m) {
        uint64_t next = UINT64_MAX;
        int r;

        FOREACH_RETAINED(u, m)
                next = MIN(next, retained_get_end(u));

        m->hierarchy.timer = sd_event_source_disable_unref(m->hierarchy.timer);
        if (next == UINT64_MAX)
                return;
        /* Retries after errors are limited to one per second */
        next = MAX(next, now_nsec(CLOCK_MONOTONIC) + NSEC_PER_SEC);
        r = sd_event_add_time(m->event, &m->hierarchy.timer, CLOCK_MONOTONIC, next / NSEC_PER_USEC,
                              USEC_PER_SEC, on_retained_expired, m);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to arm timer, maps of detached units are not "
                                            "freed: %m");
}

void unit_retain(Unit *u) {
        Manager *m = u->manager;

        m->units.slots[u->index] = NULL;
        m->hierarchy.retained[u->index] = u;
        u->retained_since = now_nsec(CLOCK_MONOTONIC);

        /* Only the map is needed */
        u->history.steps = history_free(u->history.steps);
        free(u->base);
        u->base = NULL;

        hierarchy_push_to_kernel(m, NULL);
        hierarchy_reassign_sockets(m);
        hierarchy_schedule(m);
}

/* ---- a restart of qosd -------------------------------------------------------------------------------- */

int numbers_to_json(const uint64_t *numbers, size_t n, sd_json_variant **ret) {
        _cleanup_free_ sd_json_variant **pairs = NULL;
        size_t k = 0;
        int r = 0;

        pairs = new0(sd_json_variant*, 2 * n);
        if (!pairs)
                return -ENOMEM;
        for (size_t i = 0; i < n && r >= 0; i++) {
                if (numbers[i] == 0)
                        continue;
                r = sd_json_variant_new_unsigned(pairs + k, i);
                if (r >= 0)
                        r = sd_json_variant_new_unsigned(pairs + ++k, numbers[i]);
                if (r >= 0)
                        k++;
        }
        if (r >= 0)
                r = sd_json_variant_new_array(ret, pairs, k);
        for (size_t i = 0; i < k; i++)
                sd_json_variant_unref(pairs[i]);
        return r;
}

int numbers_from_json(sd_json_variant *v, size_t n, uint64_t *ret) {
        if (!sd_json_variant_is_array(v) || sd_json_variant_elements(v) % 2 != 0)
                return -EBADMSG;
        for (size_t k = 0; k < sd_json_variant_elements(v); k += 2) {
                sd_json_variant *index = sd_json_variant_by_index(v, k),
                        *value = sd_json_variant_by_index(v, k + 1);

                if (!sd_json_variant_is_unsigned(index) || !sd_json_variant_is_unsigned(value) ||
                    sd_json_variant_unsigned(index) >= n)
                        return -EBADMSG;
                ret[sd_json_variant_unsigned(index)] = sd_json_variant_unsigned(value);
        }
        return 0;
}

typedef struct BaseField {
        const char *name;
        size_t offset, n;
} BaseField;

static const BaseField base_fields[] = {
        { "at",           offsetof(CounterOffset, before.at),     1                 },
        { "cells",        offsetof(CounterOffset, before.cells),  QOS_COUNTERS         },
        { "sums",         offsetof(CounterOffset, before.sums),   QOS_SUMS          },
        { "maximaBefore", offsetof(CounterOffset, before.maxima), QOS_DISTRIBUTIONS },
        { "maximaClosed", offsetof(CounterOffset, maxima),        QOS_DISTRIBUTIONS },
        { "peerCells",    offsetof(CounterOffset, peers.cells),   QOS_ENTRY_COUNTERS     },
        { "peerSums",     offsetof(CounterOffset, peers.sums),    QOS_ENTRY_SUMS      },
        { "peerBefore",   offsetof(CounterOffset, peers.maximum), 1                 },
        { "peerClosed",   offsetof(CounterOffset, peers_maximum), 1                 },
};

int window_base_to_json(const CounterOffset *base, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        int r;

        for (size_t i = 0; i < ELEMENTSOF(base_fields); i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *field = NULL;

                r = numbers_to_json((const uint64_t*) ((const char*) base + base_fields[i].offset),
                                    base_fields[i].n, &field);
                if (r >= 0)
                        r = sd_json_variant_set_field(&v, base_fields[i].name, field);
                if (r < 0)
                        return r;
        }
        *ret = TAKE_PTR(v);
        return 0;
}

int window_base_from_json(sd_json_variant *v, CounterOffset *ret) {
        int r;

        *ret = (CounterOffset) {};
        for (size_t i = 0; i < ELEMENTSOF(base_fields); i++) {
                r = numbers_from_json(sd_json_variant_by_key(v, base_fields[i].name), base_fields[i].n,
                                      (uint64_t*) ((char*) ret + base_fields[i].offset));
                if (r < 0)
                        return r;
        }
        return 0;
}
