/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "nest.h"
#include "probe.h"
#include "threads.h"

/* ---- books ---------------------------------------------------------------------------------------------------- */

static ContentionBook unit_get_contention_book(const Unit *u) {
        return (ContentionBook) {
                .map = u->contention,
                .shards = u->shards,
                .since = u->contention_since,
        };
}

bool unit_get_contention_books(const Unit *u, ContentionBook *buffer, ContentionBooks *ret) {
        Manager *m = u->manager;
        size_t n = 0;

        if (!u->contention)
                return false;

        buffer[n++] = unit_get_contention_book(u);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                const Unit *other = m->units[i] ?: m->closed[i];

                if (other && other->contention && unit_contains(u, other))
                        buffer[n++] = unit_get_contention_book(other);
        }

        *ret = (ContentionBooks) {
                .books = buffer,
                .n = n,
                .since = u->watched_since,
                .before = u->contention_base,
        };
        return true;
}

static int unit_add_contention(Unit *u, const Unit *inner, int times) {
        ContentionBook book;

        if (!u->contention || !inner->contention)
                return 0;
        if (!u->contention_base) {
                u->contention_base = new0(ContentionCounts, 1);
                if (!u->contention_base)
                        return -ENOMEM;
        }
        book = unit_get_contention_book(inner);
        return contention_counts_add(u->contention_base, &book, now_nsec(CLOCK_MONOTONIC), times);
}

int unit_open_contention(Unit *u, const Unit *inner) {
        return unit_add_contention(u, inner, 1);
}

int unit_close_contention(Unit *u, const Unit *inner) {
        return unit_add_contention(u, inner, -1);
}

/* Its own holds ask for it, or those of a unit that it lies in. */
static bool unit_wants(const Unit *u, ProbeMask probes) {
        for (const Unit *o = u; o; o = unit_find_outer(o))
                if (o->probes & probes)
                        return true;
        return false;
}

static void unit_make_contention(Unit *u) {
        Manager *m = u->manager;
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        int r;

        r = probe_add_contention(m->probe, u->index, u->generation, ++m->contention_generation, now, &u->contention, &u->shards);
        if (r < 0) {
                log_unit_warning_errno(u->name, r, "Failed to make the book of contention of '%s': %m", u->name);
                return;
        }
        u->contention_since = now;
}

/* What its books have by now is not its own. */
static void unit_begin_contention(Unit *u) {
        Manager *m = u->manager;
        int r = 0;

        u->watched_since = now_nsec(CLOCK_MONOTONIC);
        free(u->contention_base);
        u->contention_base = NULL;
        if (u->contention_since < u->watched_since)
                r = unit_open_contention(u, u);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT && r >= 0; i++) {
                const Unit *other = m->units[i] ?: m->closed[i];

                if (other && unit_contains(u, other))
                        r = unit_open_contention(u, other);
        }
        if (r < 0)
                log_unit_warning_errno(u->name, r, "The totals of the contention of '%s' begin too early: %m", u->name);
}

void unit_reopen_contention(Unit *u, Unit *closed) {
        if (!closed->contention)
                return;
        u->contention = closed->contention;
        u->shards = closed->shards;
        u->contention_since = closed->contention_since;
        unit_begin_contention(u);
}

static void unit_drop_contention(Unit *u) {
        Manager *m = u->manager;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && unit_contains(m->units[i], u))
                        (void) unit_close_contention(m->units[i], u);
        probe_remove_contention(m->probe, u->index);
        u->contention = NULL;
        u->shards = NULL;
        free(u->contention_base);
        u->contention_base = NULL;
}

/* ---- threads -------------------------------------------------------------------------------------------------- */

static void threads_find(Manager *m) {
        int r;

        r = probe_find_threads(m->probe);
        if (r < 0 && r != -EOPNOTSUPP)
                (void) log_warning_errno(r, "Failed to look for the threads of units, those that sleep are missing in their figures: %m");
}

static int on_moves(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        threads_find(ASSERT_PTR(userdata));
        return 0;
}

void threads_stop(Manager *m) {
        m->moves = sd_event_source_disable_unref(m->moves);
}

void threads_update(Manager *m) {
        unsigned n = 0;
        int r;

        if (!probe_is_started(m->probe)) {
                threads_stop(m);
                return;
        }

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && m->units[i]->view)
                        n += unit_wants(m->units[i], PROBES_CONTENTION);
        if (n > 0)
                (void) probe_start_more(m->probe, PROBE_CPU);

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                Unit *u = m->units[i];
                bool wanted;

                if (!u || !u->view)
                        continue;
                wanted = unit_wants(u, PROBES_CONTENTION);
                if (wanted && !u->contention) {
                        unit_make_contention(u);
                        if (u->contention)
                                unit_begin_contention(u);
                }
                if (!wanted && u->contention)
                        unit_drop_contention(u);
        }

        if (n == 0) {
                threads_stop(m);
                probe_stop_more(m->probe, PROBE_CPU);
                return;
        }

        if (!m->moves) {
                r = probe_get_moves_fd(m->probe);
                if (r >= 0)
                        r = sd_event_add_io(m->event, &m->moves, r, EPOLLIN, on_moves, m);
                if (r < 0)
                        (void) log_warning_errno(r, "Processes that are moved to units later will be missed until they do something: %m");
        }
        threads_find(m);
}

/* ---- a restart of qosd ---------------------------------------------------------------------------------------- */

int contention_base_to_json(const ContentionCounts *base, sd_json_variant **ret) {
        return numbers_to_json((const uint64_t*) base, CONTENTION_WORDS, ret);
}

int contention_base_from_json(sd_json_variant *v, ContentionCounts *ret) {
        *ret = (ContentionCounts) {};
        return numbers_from_json(v, CONTENTION_WORDS, (uint64_t*) ret);
}
