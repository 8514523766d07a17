/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "network-probe.h"
#include "network-source.h"
#include "probe.h"

bool unit_get_network_sources(const Unit *u, NetworkSource *buffer, NetworkSources *ret) {
        Manager *m = u->manager;
        size_t n = 0;

        if (!u->network.map)
                return false;

        buffer[n++] = unit_get_network_source(u);
        for (unsigned i = 0; (i = unit_next_inner_slot(u, i)) < UNITS_MAX_LIMIT; i++) {
                const Unit *other = m->units.slots[i] ?: m->hierarchy.retained[i];

                if (other && other->view && other->network.map)
                        buffer[n++] = unit_get_network_source(other);
        }

        *ret = (NetworkSources) {
                .sources = buffer,
                .n = n,
                .since = u->network.watched_since,
                .before = u->network.base,
        };
        return true;
}

/* Whether a hold of the unit or of its ancestors requests the probe. */
static bool unit_wants_network(const Unit *u) {
        for (const Unit *o = u; o; o = unit_find_ancestor(o))
                if (o->probes & PROBE_NETWORK)
                        return true;
        return false;
}

/* Excludes what its sources have counted so far. */
static void unit_init_network(Unit *u) {
        Manager *m = u->manager;

        u->network.watched_since = now_nsec(CLOCK_MONOTONIC);
        free(u->network.base);
        u->network.base = NULL;
        if (u->network.since < u->network.watched_since)
                unit_open_network(u, u);
        FOREACH_MAP(other, m)
                if (unit_is_ancestor(u, other))
                        unit_open_network(u, other);
}

static void unit_create_network(Unit *u) {
        Manager *m = u->manager;
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        int r;

        r = probe_add_network(m->probe, u->index, u->generation, ++m->units.map_generation, now,
                              &u->network.map);
        if (r < 0) {
                log_unit_warning_errno(u->name, r, "Failed to create network map of '%s': %m", u->name);
                return;
        }
        u->network.since = now;
        unit_init_network(u);
        unit_update_probe_config(u);
}

static void unit_destroy_network(Unit *u) {
        Manager *m = u->manager;

        FOREACH_UNIT(other, m)
                if (unit_is_ancestor(other, u))
                        unit_close_network(other, u);
        probe_remove_network(m->probe, u->index);
        u->network.map = NULL;
        unit_update_probe_config(u);
        free(u->network.base);
        u->network.base = NULL;
}

void unit_adopt_network(Unit *u, Unit *retained) {
        if (!retained->network.map)
                return;
        (void) probe_find_flows(u->manager->probe);
        u->network.map = retained->network.map;
        u->network.since = retained->network.since;
        unit_init_network(u);
        unit_update_probe_config(u);
}

void network_update(Manager *m) {
        bool any = false, created = false;

        if (!probe_is_started(m->probe)) {
                receive_stamps_update(m, false);
                return;
        }

        FOREACH_UNIT(u, m)
                any = any || (u->view && unit_wants_network(u));
        if (any) {
                (void) probe_load_group(m->probe, PROBE_NETWORK);
                /* What connections have counted so far is of the units that they were of */
                (void) probe_find_flows(m->probe);
        }
        receive_stamps_update(m, any);

        FOREACH_UNIT(u, m) {
                bool wanted;

                if (!u->view)
                        continue;
                wanted = unit_wants_network(u);
                if (u->network.map && !wanted)
                        unit_destroy_network(u);
                if (!u->network.map && wanted) {
                        unit_create_network(u);
                        created = true;
                }
        }
        /* What connections have counted so far is no new unit's */
        if (created)
                (void) probe_find_flows(m->probe);

        if (!any && now_usec(CLOCK_MONOTONIC) >= m->programs.keep_until)
                probe_unload_group(m->probe, PROBE_NETWORK);
}

void unit_restore_network(Unit *u, uint64_t since, uint64_t watched_since, sd_json_variant *base) {
        Manager *m = u->manager;
        int r;

        if (since == 0) {
                /* Created right before a crash, and not recorded */
                probe_remove_network(m->probe, u->index);
                return;
        }
        r = probe_adopt_network(m->probe, u->index, u->generation, &u->network.map);
        if (r >= 0 && base) {
                u->network.base = new0(NetworkCounts, 1);
                r = u->network.base ? numbers_from_json(base, NETWORK_WORDS, (uint64_t*) u->network.base) :
                    -ENOMEM;
        }
        u->network.since = since;
        u->network.watched_since = watched_since;
        unit_update_probe_config(u);
        if (r >= 0)
                return;
        log_unit_warning_errno(u->name, r,
                               "Failed to restore network map of '%s', totals start from zero: %m", u->name);
        probe_remove_network(m->probe, u->index);
        u->network.map = NULL;
        free(u->network.base);
        u->network.base = NULL;
}

int network_base_to_json(const NetworkCounts *base, sd_json_variant **ret) {
        return numbers_to_json((const uint64_t*) base, NETWORK_WORDS, ret);
}
