/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "cgroup-stat.h"
#include "contention-probe.h"
#include "contention-source.h"
#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "probe.h"

/* ---- contention maps ---------------------------------------------------------------------------------- */

bool unit_get_contention_sources(const Unit *u, ContentionSource *buffer, ContentionSources *ret) {
        Manager *m = u->manager;
        size_t n = 0;

        if (!u->contention.map)
                return false;

        buffer[n++] = unit_get_contention_source(u);
        for (unsigned i = 0; (i = unit_next_inner_slot(u, i)) < UNITS_MAX_LIMIT; i++) {
                const Unit *other = m->units.slots[i] ?: m->hierarchy.retained[i];

                if (other && other->view && other->contention.map)
                        buffer[n++] = unit_get_contention_source(other);
        }

        *ret = (ContentionSources) {
                .sources = buffer,
                .n = n,
                .since = u->contention.watched_since,
                .before = u->contention.base,
        };
        return true;
}

/* Probes with a contention map that are requested by holds of the unit or its ancestors. */
static ProbeMask unit_get_contention_probes(const Unit *u) {
        ProbeMask wanted = 0;

        for (const Unit *o = u; o; o = unit_find_ancestor(o))
                wanted |= o->probes;
        return wanted & PROBES_CONTENTION;
}

static void unit_create_contention(Unit *u) {
        Manager *m = u->manager;
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        int r;

        r = probe_add_contention(m->probe, u->index, u->generation,
                                 &(ContentionBegin) {
                                         .generation = ++m->units.map_generation,
                                         .now = now,
                                         .served = serving_clock_read(u->view->serving, now),
                                 }, &u->contention.map, &u->contention.cpus);
        if (r < 0) {
                log_unit_warning_errno(u->name, r, "Failed to create contention map of '%s': %m",
                                       u->name);
                return;
        }
        u->contention.since = now;
}

/* Excludes what its sources have counted so far. */
static void unit_init_contention(Unit *u) {
        Manager *m = u->manager;

        u->contention.watched_since = now_nsec(CLOCK_MONOTONIC);
        free(u->contention.base);
        u->contention.base = NULL;
        if (u->contention.since < u->contention.watched_since)
                unit_open_contention(u, u);
        FOREACH_MAP(other, m)
                if (unit_is_ancestor(u, other))
                        unit_open_contention(u, other);
}

void unit_adopt_contention(Unit *u, Unit *retained) {
        if (!retained->contention.map)
                return;
        u->contention.map = retained->contention.map;
        u->contention.cpus = retained->contention.cpus;
        u->contention.since = retained->contention.since;
        u->contention.probes = retained->contention.probes;
        unit_init_contention(u);
}

static void unit_destroy_contention(Unit *u) {
        Manager *m = u->manager;

        FOREACH_UNIT(other, m)
                if (unit_is_ancestor(other, u))
                        unit_close_contention(other, u);
        probe_remove_contention(m->probe, u->index);
        u->contention.map = NULL;
        u->contention.cpus = NULL;
        free(u->contention.base);
        u->contention.base = NULL;
        free(u->contention.machine_base);
        u->contention.machine_base = NULL;
        u->contention.usage = usage_free(u->contention.usage);
        u->contention.probes = 0;
}

/* ---- threads ------------------------------------------------------------------------------------------ */

static void threads_find(Manager *m) {
        int r;

        r = probe_find_threads(m->probe);
        if (r < 0 && r != -EOPNOTSUPP)
                (void) log_warning_errno(r, "Failed to find threads of units, sleeping threads are "
                                            "not accounted: %m");
}

/* Minimum interval of thread scans caused by migrations: a scan visits all threads of the machine. */
#define MOVES_USEC (250 * USEC_PER_MSEC)

static int on_moves_committed(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        /* Re-enables notifications */
        threads_find(m);
        return 0;
}

static int on_moves(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        int r;

        probe_read_moves(m->probe);
        if (now >= m->contention.moves_at + MOVES_USEC) {
                m->contention.moves_at = now;
                threads_find(m);
                return 0;
        }
        m->contention.moves_at += MOVES_USEC;
        sd_event_source_disable_unref(m->contention.moves_timer);
        m->contention.moves_timer = NULL;
        r = sd_event_add_time(m->event, &m->contention.moves_timer, CLOCK_MONOTONIC, m->contention.moves_at,
                              USEC_PER_MSEC, on_moves_committed, m);
        if (r < 0)
                threads_find(m);
        return 0;
}

/* Creates or removes the contention map of the machine, to which shares of devices relate. */
static void contention_update_machine(Manager *m, bool wanted) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        int r;

        if (wanted == !!m->contention.machine)
                return;
        if (wanted) {
                r = probe_add_machine(m->probe, ++m->units.map_generation, now, &m->contention.machine);
                if (r < 0) {
                        (void) log_warning_errno(r, "Failed to create the contention map of the "
                                                    "machine, shares of devices are unavailable: %m");
                        return;
                }
                m->contention.machine_since = now;
        } else {
                m->contention.machine = NULL;
                probe_remove_machine(m->probe);
        }
}

/* Starts counting the I/O of the machine, for the unit's shares of devices. adopted: the contention map is
 * older. */
static void unit_begin_shares(Unit *u, bool adopted) {
        Manager *m = u->manager;
        const ContentionSource source = {
                .map = m->contention.machine,
                .since = m->contention.machine_since,
        };

        free(u->contention.machine_base);
        u->contention.machine_base = m->contention.machine ? new0(ContentionCounts, 1) : NULL;
        if (!u->contention.machine_base)
                return;
        u->contention.machine_base_at = now_nsec(CLOCK_MONOTONIC);
        u->contention.shares_since = adopted ? u->contention.machine_base_at : 0;
        /* cannot fail, as there are no per-CPU maps */
        (void) contention_counts_add(u->contention.machine_base, &source, u->contention.machine_base_at, 1);
}

void contention_stop(Manager *m) {
        m->contention.moves = sd_event_source_disable_unref(m->contention.moves);
        m->contention.moves_timer = sd_event_source_disable_unref(m->contention.moves_timer);
        contention_update_machine(m, /* wanted= */ false);
}

void contention_update(Manager *m) {
        static const ProbeMask table[] = { PROBE_CPU, PROBE_BLOCK, PROBE_MEMORY };
        ProbeMask all = 0;
        int r;

        if (!probe_is_started(m->probe)) {
                contention_stop(m);
                return;
        }

        FOREACH_UNIT(other, m)
                if (other->view)
                        all |= unit_get_contention_probes(other);
        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (all & table[i])
                        (void) probe_load_group(m->probe, table[i]);
        contention_update_machine(m, all & PROBE_BLOCK);

        FOREACH_UNIT(u, m) {
                ProbeMask wanted;
                bool adopted;

                if (!u->view)
                        continue;
                wanted = unit_get_contention_probes(u);
                adopted = u->contention.map && u->contention.probes == 0;
                /* Thread times are counted since the map was created, so "cpu" cannot be added to an older
                 * one, except for a map of the previous run, which has its probes already */
                if (u->contention.map &&
                    (wanted == 0 || (wanted & ~u->contention.probes & PROBE_CPU && !adopted)))
                        unit_destroy_contention(u);
                if (wanted != 0 && !u->contention.map) {
                        unit_create_contention(u);
                        if (u->contention.map)
                                unit_init_contention(u);
                }
                if (wanted & PROBE_BLOCK &&
                    (!u->contention.machine_base || !(u->contention.probes & PROBE_BLOCK)))
                        unit_begin_shares(u, adopted);
                if (wanted != u->contention.probes || (wanted != 0 && !u->contention.usage)) {
                        /* Restart from 0 */
                        usage_free(u->contention.usage);
                        /* NULL on -ENOMEM: files are not read */
                        u->contention.usage = wanted != 0 ? new0(Usage, 1) : NULL;
                        u->contention.probes = wanted;
                        unit_update_probe_config(u);
                        unit_collect_usage(u);
                }
        }

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (!(all & table[i]) && now_usec(CLOCK_MONOTONIC) >= m->programs.keep_until)
                        probe_unload_group(m->probe, table[i]);
        if (!(all & PROBE_CPU)) {
                m->contention.moves = sd_event_source_disable_unref(m->contention.moves);
                return;
        }

        if (!m->contention.moves) {
                r = probe_get_moves_fd(m->probe);
                if (r >= 0)
                        r = sd_event_add_io(m->event, &m->contention.moves, r, EPOLLIN, on_moves, m);
                if (r < 0)
                        (void) log_warning_errno(r, "Failed to set up notifications, processes "
                                                    "migrated to units will be detected late: %m");
        }
        threads_find(m);
}

/* ---- serialization ------------------------------------------------------------------------------------ */

int contention_base_to_json(const ContentionCounts *base, sd_json_variant **ret) {
        return numbers_to_json((const uint64_t*) base, CONTENTION_WORDS, ret);
}

int contention_base_from_json(sd_json_variant *v, ContentionCounts *ret) {
        *ret = (ContentionCounts) {};
        return numbers_from_json(v, CONTENTION_WORDS, (uint64_t*) ret);
}
