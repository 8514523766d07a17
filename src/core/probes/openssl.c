/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <sys/types.h>

#include "group-walk.h"
#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "openssl.h"
#include "probe.h"

/* Limit of processes scanned per unit. Each takes some tens of microseconds, and processes of a service are
 * mostly alike. */
#define PROCESSES_MAX 1024U

/* Initial delay before a unit is scanned again because of a missing library; doubled when nothing new is
 * found. A library other than OpenSSL is missing as long as it is used. */
#define RESCAN_NSEC (10 * NSEC_PER_MSEC)
#define RESCAN_MAX_NSEC (60 * NSEC_PER_SEC)

/* Interval of sweeps for unused libraries while the limit prevents probing others: a sweep scans all
 * processes of all units. */
#define SWEEP_NSEC (10 * NSEC_PER_SEC)

/* Minimum delay before a unit is scanned again, as a multiple of the CPU time of its scan. */
#define SCAN_PAUSE 9U

/* Limit of the time of one turn. A process takes some tens of us, a group some ten. */
#define SCAN_TURN_NSEC NSEC_PER_MSEC

typedef enum ScanType {
        SCAN_DUE,                       /* units whose scan is due */
        SCAN_SWEEP,                     /* all, to release unused libraries */
        SCAN_LIMITED,                   /* after a sweep: units limited so far */
} ScanType;

/* Scans units one after the other, in turns of root, as no other user may request the probe. */
struct LibraryScan {
        Manager *manager;
        Turn turn;
        ScanType type;
        unsigned next;                  /* slot of the next unit, except for SCAN_DUE */

        /* The unit being scanned, which may have been detached */
        GroupWalk *groups;              /* NULL: none */
        FILE *processes;                /* cgroup.procs of the current group; NULL: none open */
        unsigned slot;
        uint32_t generation;
        bool due;
        unsigned n_processes, n_libraries;
        int limit;
        uint64_t nsec;                  /* CPU time so far */
};

static void scan_end_group(LibraryScan *s) {
        if (s->processes)
                (void) fclose(s->processes);
        s->processes = NULL;
}

static void scan_leave_unit(LibraryScan *s) {
        scan_end_group(s);
        s->groups = group_walk_free(s->groups);
}

static LibraryScan* scan_free(LibraryScan *s) {
        if (!s)
                return NULL;

        scan_leave_unit(s);
        turn_done(&s->turn);
        free(s);
        return NULL;
}

static bool unit_scan_is_due(const Unit *u, uint64_t now) {
        return u->openssl.watched && u->openssl.scan_pending &&
               now >= u->openssl.scanned_at + u->openssl.rescan_delay;
}

static void scan_enter_unit(LibraryScan *s, Unit *u, uint64_t now) {
        s->slot = u->index;
        s->generation = u->generation;
        s->due = unit_scan_is_due(u, now);
        s->n_processes = s->n_libraries = 0;
        s->limit = 0;
        s->nsec = 0;
        if (!isempty(u->control_group) && group_walk_new(u->control_group, u->instances, &s->groups) < 0)
                (void) log_oom();
        /* Libraries that are found missing from now on cause another scan */
        u->openssl.scan_pending = false;
}

/* The unit being scanned; NULL: it no longer has to be. */
static Unit* scan_get_unit(const LibraryScan *s) {
        Unit *u = s->manager->units.slots[s->slot];

        return u && u->generation == s->generation && u->openssl.watched ? u : NULL;
}

static void scan_complete_unit(LibraryScan *s, Unit *u) {
        UnitOpenSSL *o = &u->openssl;
        bool first = o->scanned_at == 0, had = o->found, changed;

        o->scanned_at = now_nsec(CLOCK_MONOTONIC);
        o->found = s->n_libraries > 0;
        changed = first || had != o->found || o->limit != s->limit;
        if (s->limit < 0 && o->limit >= 0)
                log_unit_info(u->name, "Not all OpenSSL libraries of '%s' are probed: %s.", u->name,
                              probe_library_limit_reason(s->limit));
        o->limit = s->limit;
        if (s->limit < 0)
                o->scan_pending = true; /* other libraries may become unused */
        if (streq(u->active_state, "active") && s->n_libraries == 0 && s->limit >= 0 && o->rescan_delay == 0)
                log_unit_info(u->name, "No process of '%s' has mapped libssl yet, waiting for one.",
                              u->name);
        if (s->due) {
                o->rescan_delay = o->rescan_delay == 0 || had != o->found ? RESCAN_NSEC :
                        MIN(2 * o->rescan_delay, o->limit < 0 ? SWEEP_NSEC : RESCAN_MAX_NSEC);
                o->rescan_delay = MAX(o->rescan_delay, SCAN_PAUSE * s->nsec);
        }
        unit_update_probe_config(u);
        if (s->due || changed)
                manager_emit_unit_changed(u);
}

/* Scans a process, or opens the next group. Returns false if there are no more. */
static bool scan_step(LibraryScan *s) {
        int group, fd, pid, n;

        if (s->n_processes >= PROCESSES_MAX)
                return false;
        if (!s->processes) {
                group = group_walk_next(s->groups);
                if (group < 0)
                        return false;
                group_walk_enter(s->groups);
                fd = openat(group, "cgroup.procs", O_RDONLY|O_CLOEXEC);
                if (fd < 0)
                        return true;
                s->processes = fdopen(fd, "r");
                if (!s->processes)
                        (void) close_fd(fd);
                return true;
        }

        if (fscanf(s->processes, "%i", &pid) != 1) {
                scan_end_group(s);
                return true;
        }
        s->n_processes++;
        n = pid > 0 ? probe_add_libraries(s->manager->probe, pid, &s->limit) : 0;
        if (n > 0)
                s->n_libraries += n;
        return true;
}

static void scan_begin_sweep(LibraryScan *s) {
        scan_leave_unit(s);
        probe_begin_libraries(s->manager->probe);
        s->type = SCAN_SWEEP;
        s->next = 0;
}

/* Starts with the next unit. Returns false if there is none. */
static bool scan_begin_next(LibraryScan *s) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        Manager *m = s->manager;

        if (s->type == SCAN_DUE)
                FOREACH_UNIT(u, m) {
                        if (!unit_scan_is_due(u, now))
                                continue;
                        if (u->openssl.limit >= 0 || now < m->openssl.swept_at + SWEEP_NSEC) {
                                scan_enter_unit(s, u, now);
                                return true;
                        }
                        m->openssl.swept_at = now;
                        scan_begin_sweep(s);
                        break;
                }

        while (s->type != SCAN_DUE) {
                while (s->next < UNITS_MAX_LIMIT) {
                        Unit *u = m->units.slots[s->next++];

                        if (!u || !u->openssl.watched || (s->type == SCAN_LIMITED && u->openssl.limit >= 0))
                                continue;
                        scan_enter_unit(s, u, now);
                        return true;
                }
                if (s->type == SCAN_SWEEP)
                        probe_end_libraries(m->probe);
                s->type = s->type == SCAN_SWEEP ? SCAN_LIMITED : SCAN_DUE;
                s->next = 0;
        }
        return false;
}

static int on_rescan(sd_event_source *source, uint64_t usec, void *userdata);

/* Arms the timer for the next unit. */
static void library_schedule(Manager *m) {
        uint64_t next = UINT64_MAX;

        FOREACH_UNIT(u, m)
                if (u->openssl.watched && u->openssl.scan_pending)
                        next = MIN(next, u->openssl.scanned_at + u->openssl.rescan_delay);
        m->openssl.timer = sd_event_source_disable_unref(m->openssl.timer);
        if (next != UINT64_MAX)
                (void) sd_event_add_time(m->event, &m->openssl.timer, CLOCK_MONOTONIC, next / NSEC_PER_USEC,
                                         0, on_rescan, m);
}

/* Continues for one turn. */
static void on_scan_turn(void *userdata) {
        uint64_t end = now_nsec(CLOCK_MONOTONIC) + SCAN_TURN_NSEC;
        LibraryScan *s = ASSERT_PTR(userdata);
        Manager *m = s->manager;

        while (s->groups || scan_begin_next(s)) {
                uint64_t cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
                Unit *u = scan_get_unit(s);
                bool more = u && s->groups, over = false;

                while (more && !over) {
                        more = scan_step(s);
                        over = now_nsec(CLOCK_MONOTONIC) >= end;
                }
                s->nsec += now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu;
                if (!more) {
                        scan_leave_unit(s);
                        if (u)
                                scan_complete_unit(s, u);
                }
                if (over) {
                        (void) turn_request(&s->turn);
                        return;
                }
        }
        library_schedule(m);
}

static LibraryScan* scan_new(Manager *m) {
        LibraryScan *s;

        s = new0(LibraryScan, 1);
        if (s)
                s->manager = m;
        if (!s || turn_init(&s->turn, m->turns, /* uid= */ 0, on_scan_turn, s) < 0) {
                (void) log_oom();
                return scan_free(s);
        }
        return s;
}

static void openssl_scan(Manager *m) {
        if (m->openssl.scan && !turn_is_requested(&m->openssl.scan->turn))
                on_scan_turn(m->openssl.scan);
}

static int on_rescan(sd_event_source *source, uint64_t usec, void *userdata) {
        openssl_scan(ASSERT_PTR(userdata));
        return 0;
}

static void on_missing_library(const struct qos_owner *owner, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        Unit *u = owner->slot < UNITS_MAX_LIMIT ? m->units.slots[owner->slot] : NULL;

        if (u && u->generation == owner->generation)
                u->openssl.scan_pending = true;
}

static int on_missing_libraries_readable(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        probe_read_missing_libraries(m->probe, on_missing_library, m);
        openssl_scan(m);
        return 0;
}

/* Whether holds of the unit or its ancestors request the probe. */
static bool unit_wants_tls(const Unit *u) {
        for (const Unit *o = u; o; o = unit_find_ancestor(o))
                if (o->probes & PROBE_TLS)
                        return true;
        return false;
}

bool unit_awaits_libraries(const Unit *u) {
        const LibraryScan *s = u->manager->openssl.scan;

        return u->openssl.watched && u->openssl.scanned_at == 0 && s && turn_is_requested(&s->turn);
}

void openssl_stop(Manager *m) {
        m->openssl.events = sd_event_source_disable_unref(m->openssl.events);
        m->openssl.timer = sd_event_source_disable_unref(m->openssl.timer);
        m->openssl.scan = scan_free(m->openssl.scan);
        m->openssl.n_watched = 0;
}

void openssl_update(Manager *m, Unit *started) {
        unsigned n = 0;
        bool lost;
        int r;

        if (!probe_is_started(m->probe)) {
                openssl_stop(m);
                return;
        }

        FOREACH_UNIT(u, m) {
                bool watch;

                if (!u->view)
                        continue;
                watch = unit_wants_tls(u);
                n += watch;
                if (watch == u->openssl.watched && u != started) {
                        /* A lease of the previous run may have set it */
                        if (!watch)
                                unit_update_probe_config(u);
                        continue;
                }
                u->openssl.watched = watch;
                u->openssl.scan_pending = watch;
                u->openssl.found = false;
                u->openssl.limit = 0;
                u->openssl.scanned_at = u->openssl.rescan_delay = 0;
                if (!watch)
                        unit_update_probe_config(u);
        }
        lost = n < m->openssl.n_watched;
        m->openssl.n_watched = n;

        if (n == 0) {
                openssl_stop(m);
                probe_unload_group(m->probe, PROBE_TLS);
                return;
        }

        r = probe_load_group(m->probe, PROBE_TLS);
        if (r < 0 || probe_group_failure(m->probe, PROBE_TLS))
                return;
        if (!m->openssl.events) {
                r = probe_get_missing_libraries_fd(m->probe);
                if (r >= 0)
                        r = sd_event_add_io(m->event, &m->openssl.events, r, EPOLLIN,
                                on_missing_libraries_readable, m);
                if (r < 0)
                        (void) log_warning_errno(r, "Failed to set up notifications, processes that "
                                                    "load libssl later will be missed: %m");
        }

        if (!m->openssl.scan)
                m->openssl.scan = scan_new(m);
        if (lost && m->openssl.scan)
                scan_begin_sweep(m->openssl.scan); /* releases libraries that no other unit uses */
        openssl_scan(m);
}
