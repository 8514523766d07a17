/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "probe.h"
#include "storage-probe.h"
#include "storage-source.h"

bool unit_get_storage_sources(const Unit *u, StorageSource *buffer, StorageSources *ret) {
        Manager *m = u->manager;
        size_t n = 0;

        if (!u->storage.map)
                return false;

        buffer[n++] = unit_get_storage_source(u);
        for (unsigned i = 0; (i = unit_next_inner_slot(u, i)) < UNITS_MAX_LIMIT; i++) {
                const Unit *other = m->units.slots[i] ?: m->hierarchy.retained[i];

                if (other && other->view && other->storage.map)
                        buffer[n++] = unit_get_storage_source(other);
        }

        *ret = (StorageSources) {
                .sources = buffer,
                .n = n,
                .since = u->storage.watched_since,
                .before = u->storage.base,
        };
        return true;
}

/* Whether a hold of the unit or of its ancestors requests the probe. */
static bool unit_wants_storage(const Unit *u) {
        for (const Unit *o = u; o; o = unit_find_ancestor(o))
                if (o->probes & PROBE_STORAGE)
                        return true;
        return false;
}

/* Excludes what its sources have counted so far. */
static void unit_init_storage(Unit *u) {
        Manager *m = u->manager;

        u->storage.watched_since = now_nsec(CLOCK_MONOTONIC);
        free(u->storage.base);
        u->storage.base = NULL;
        if (u->storage.since < u->storage.watched_since)
                unit_open_storage(u, u);
        FOREACH_MAP(other, m)
                if (unit_is_ancestor(u, other))
                        unit_open_storage(u, other);
}

static void unit_create_storage(Unit *u) {
        Manager *m = u->manager;
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        int r;

        r = probe_add_storage(m->probe, u->index, u->generation, ++m->units.map_generation, now,
                              &u->storage.map);
        if (r < 0) {
                log_unit_warning_errno(u->name, r, "Failed to create storage map of '%s': %m", u->name);
                return;
        }
        u->storage.since = now;
        unit_init_storage(u);
        unit_update_probe_config(u);
}

static void unit_destroy_storage(Unit *u) {
        Manager *m = u->manager;

        FOREACH_UNIT(other, m)
                if (unit_is_ancestor(other, u))
                        unit_close_storage(other, u);
        probe_remove_storage(m->probe, u->index);
        u->storage.map = NULL;
        unit_update_probe_config(u);
        free(u->storage.base);
        u->storage.base = NULL;
}

void unit_adopt_storage(Unit *u, Unit *retained) {
        if (!retained->storage.map)
                return;
        (void) probe_find_storage_calls(u->manager->probe, NULL);
        u->storage.map = retained->storage.map;
        u->storage.since = retained->storage.since;
        unit_init_storage(u);
        unit_update_probe_config(u);
}

void storage_update(Manager *m) {
        bool any = false, created = false;

        if (!probe_is_started(m->probe))
                return;

        FOREACH_UNIT(u, m)
                any = any || (u->view && unit_wants_storage(u));
        if (any) {
                (void) probe_load_group(m->probe, PROBE_STORAGE);
                /* What threads did so far is of the units that they were in */
                (void) probe_find_storage_calls(m->probe, NULL);
        }

        FOREACH_UNIT(u, m) {
                bool wanted;

                if (!u->view)
                        continue;
                wanted = unit_wants_storage(u);
                if (u->storage.map && !wanted)
                        unit_destroy_storage(u);
                if (!u->storage.map && wanted) {
                        unit_create_storage(u);
                        created = true;
                }
        }
        /* What threads did so far is no new unit's */
        if (created)
                (void) probe_find_storage_calls(m->probe, NULL);

        if (!any && now_usec(CLOCK_MONOTONIC) >= m->programs.keep_until)
                probe_unload_group(m->probe, PROBE_STORAGE);
}

void unit_restore_storage(Unit *u, uint64_t since, uint64_t watched_since, sd_json_variant *base) {
        Manager *m = u->manager;
        int r;

        if (since == 0) {
                /* Created right before a crash, and not recorded */
                probe_remove_storage(m->probe, u->index);
                return;
        }
        r = probe_adopt_storage(m->probe, u->index, u->generation, &u->storage.map);
        if (r >= 0 && base) {
                u->storage.base = new0(StorageCounts, 1);
                r = u->storage.base ? numbers_from_json(base, STORAGE_WORDS, (uint64_t*) u->storage.base) :
                    -ENOMEM;
        }
        u->storage.since = since;
        u->storage.watched_since = watched_since;
        unit_update_probe_config(u);
        if (r >= 0)
                return;
        log_unit_warning_errno(u->name, r,
                               "Failed to restore storage map of '%s', totals start from zero: %m", u->name);
        probe_remove_storage(m->probe, u->index);
        u->storage.map = NULL;
        free(u->storage.base);
        u->storage.base = NULL;
}

int storage_base_to_json(const StorageCounts *base, sd_json_variant **ret) {
        return numbers_to_json((const uint64_t*) base, STORAGE_WORDS, ret);
}
