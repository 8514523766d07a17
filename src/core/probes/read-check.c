/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "manager.h"
#include "probe.h"
#include "read-check.h"

/* Duration of the check of a unit that reads less than QOS_READS_CHECKED times, and of the time until its
 * Unix sockets are looked up: most services do in their first seconds what they do later. Otherwise the
 * first spliced requests have no read time of their own, and the first ones on Unix sockets may be
 * missing. */
#define CHECK_NSEC (10 * NSEC_PER_SEC)

static int on_check_end(sd_event_source *source, uint64_t usec, void *userdata) {
        read_check_update(ASSERT_PTR(userdata), NULL);
        return 0;
}

static int on_read_events(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        probe_drain_read_events(m->probe);
        read_check_update(m, NULL);
        return 0;
}

void read_check_stop(Manager *m) {
        m->reads.events = sd_event_source_disable_unref(m->reads.events);
        m->reads.timer = sd_event_source_disable_unref(m->reads.timer);
}

static void read_check_listen(Manager *m) {
        int r;

        if (m->reads.events)
                return;
        r = probe_get_read_events_fd(m->probe);
        if (r >= 0)
                r = sd_event_add_io(m->event, &m->reads.events, r, EPOLLIN, on_read_events, m);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to set up notifications, spliced reads of units are not "
                                            "noticed: %m");
}

/* Only of a running unit is known what it does. */
static bool unix_check_is_over(Unit *u, uint64_t now) {
        Probe *p = u->manager->probe;

        if (u->unix_use >= UNIX_USE_NONE || !streq(u->active_state, "active") || u->instances)
                return false;
        return now >= u->reads_checked_since + CHECK_NSEC ||
                (u->unix_use == UNIX_USE_NEW &&
                 probe_get_read_check(p, u->index, u->generation) != READS_UNCHECKED &&
                 !probe_unit_uses_unix(p, u->index, u->generation));
}

/* Looks up which of the units whose check is over have Unix sockets. What they read during the check may
 * have been for a user's name or the like. */
static void unix_use_look_up(Manager *m, uint64_t now) {
        Unit *over[UNITS_MAX_LIMIT];
        unsigned n = 0;

        FOREACH_MAP(u, m)
                if (n < ELEMENTSOF(over) && unix_check_is_over(u, now)) {
                        probe_forget_unix_use(m->probe, u->index);
                        over[n++] = u;
                }
        if (n == 0 || probe_find_unix(m->probe) < 0)
                return; /* unknown, hence attached */
        for (unsigned i = 0; i < n; i++)
                over[i]->unix_use = UNIX_USE_NONE;
}

/* Returns whether requests_unix is needed, also for checks, which end at *end at the latest. */
static bool unix_use_update(Manager *m, const Unit *started, uint64_t now, uint64_t *end) {
        bool needed = false;

        FOREACH_MAP(u, m)
                if (u == started && u->unix_use == UNIX_USE_NONE)
                        u->unix_use = UNIX_USE_UNKNOWN;
        unix_use_look_up(m, now);

        FOREACH_MAP(u, m) {
                if (u->unix_use == UNIX_USE_NONE && probe_unit_uses_unix(m->probe, u->index, u->generation))
                        u->unix_use = UNIX_USE_SOME;
                if (u->unix_use < UNIX_USE_NONE && now < u->reads_checked_since + CHECK_NSEC)
                        *end = MAX(*end, u->reads_checked_since + CHECK_NSEC);
                needed = needed || u->unix_use != UNIX_USE_NONE;
        }
        return needed;
}

void read_check_update(Manager *m, const Unit *started) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), end = 0;
        bool reads_needed = false, unix_needed;
        int r;

        if (!probe_is_started(m->probe)) {
                read_check_stop(m);
                return;
        }
        read_check_listen(m);

        FOREACH_MAP(u, m) {
                ReadCheckResult result = probe_get_read_check(m->probe, u->index, u->generation);

                if (u->reads_checked_since == 0 || u == started)
                        u->reads_checked_since = now;
                if (result == READS_UNSEEN)
                        reads_needed = true;
                else if (result == READS_UNCHECKED && now < u->reads_checked_since + CHECK_NSEC)
                        end = MAX(end, u->reads_checked_since + CHECK_NSEC);
        }

        r = probe_watch_reads(m->probe, reads_needed || end != 0);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to attach requests_read, spliced requests have no read "
                                            "time: %m");
        if (reads_needed)
                end = 0;
        unix_needed = unix_use_update(m, started, now, &end);
        r = probe_watch_unix(m->probe, unix_needed);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to attach requests_unix, requests on Unix sockets are "
                                            "not counted: %m");
        m->reads.timer = sd_event_source_disable_unref(m->reads.timer);
        if (end != 0)
                (void) sd_event_add_time(m->event, &m->reads.timer, CLOCK_MONOTONIC, end / NSEC_PER_USEC + 1,
                                         0, on_check_end, m);
}
