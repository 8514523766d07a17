/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <sys/types.h>

#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "openssl.h"
#include "probe.h"

/* Processes scanned per unit: a scan takes some tens of microseconds each, and processes of a service are
 * mostly alike. */
#define PROCESSES_MAX 1024U

/* Initial delay before a unit is scanned again because of a missing library; doubled when nothing new is
 * found. A library other than OpenSSL is missing for as long as it is used. */
#define RESCAN_NSEC (10 * NSEC_PER_MSEC)
#define RESCAN_MAX_NSEC (60 * NSEC_PER_SEC)

/* Interval of sweeps for unused libraries while the limit prevents probing others: a sweep scans all
 * processes of all units. */
#define SWEEP_NSEC (10 * NSEC_PER_SEC)

typedef struct ProcessScan {
        unsigned processes;
        unsigned libraries;
        int limit;
} ProcessScan;

static void scan_process(Unit *u, int group, void *userdata) {
        ProcessScan *scan = ASSERT_PTR(userdata);
        _cleanup_fclose_ FILE *f = NULL;
        int fd, pid;

        fd = openat(group, "cgroup.procs", O_RDONLY|O_CLOEXEC);
        if (fd < 0)
                return;
        f = fdopen(fd, "r");
        if (!f) {
                close_fd(fd);
                return;
        }
        while (scan->processes < PROCESSES_MAX && fscanf(f, "%i", &pid) == 1) {
                int n;

                scan->processes++;
                n = pid > 0 ? probe_add_libraries(u->manager->probe, pid, &scan->limit) : 0;
                if (n > 0)
                        scan->libraries += n;
        }
}

static void openssl_scan_unit(Unit *u) {
        ProcessScan scan = {};

        unit_for_each_group(u, scan_process, &scan);
        u->openssl.scanned_at = now_nsec(CLOCK_MONOTONIC);
        u->openssl.found = scan.libraries > 0;
        if (scan.limit < 0 && u->openssl.limit >= 0)
                log_unit_info(u->name, "Not all OpenSSL libraries of '%s' are probed: %s.", u->name,
                              probe_library_limit_reason(scan.limit));
        u->openssl.limit = scan.limit;
        u->openssl.scan_pending = scan.limit < 0; /* retried, as other libraries may become unused */
        if (streq(u->active_state, "active") && scan.libraries == 0 && scan.limit >= 0 &&
            u->openssl.rescan_delay == 0)
                log_unit_info(u->name, "No process of '%s' has mapped libssl yet, waiting for one.",
                              u->name);
        unit_update_probe_config(u);
}

/* Releases unused libraries, and scans the units that are waiting for space. */
static void library_sweep(Manager *m) {
        probe_begin_libraries(m->probe);
        FOREACH_UNIT(u, m)
                if (u->openssl.watched)
                        openssl_scan_unit(u);
        probe_end_libraries(m->probe);

        FOREACH_UNIT(u, m)
                if (u->openssl.watched && u->openssl.limit < 0) {
                        openssl_scan_unit(u);
                        manager_emit_unit_changed(u);
                }
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

static void openssl_scan(Manager *m) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);

        FOREACH_UNIT(u, m) {
                UnitOpenSSL *o = &u->openssl;
                bool had = o->found;

                if (!o->watched || !o->scan_pending || now < o->scanned_at + o->rescan_delay)
                        continue;
                if (o->limit < 0 && now >= m->openssl.swept_at + SWEEP_NSEC) {
                        m->openssl.swept_at = now;
                        library_sweep(m);
                } else
                        openssl_scan_unit(u);
                o->rescan_delay = o->rescan_delay == 0 || had != o->found ? RESCAN_NSEC :
                        MIN(2 * o->rescan_delay, o->limit < 0 ? SWEEP_NSEC : RESCAN_MAX_NSEC);
                manager_emit_unit_changed(u);
        }
        library_schedule(m);
}

static int on_rescan(sd_event_source *source, uint64_t usec, void *userdata) {
        openssl_scan(ASSERT_PTR(userdata));
        return 0;
}

static void on_missing_library(const struct qos_owner *owner, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        Unit *u = owner->slot < UNITS_MAX_LIMIT ? m->units[owner->slot] : NULL;

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

void openssl_stop(Manager *m) {
        m->openssl.events = sd_event_source_disable_unref(m->openssl.events);
        m->openssl.timer = sd_event_source_disable_unref(m->openssl.timer);
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
                        /* May be set by a lease of the previous run */
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

        if (lost)
                library_sweep(m); /* libraries of other units are kept */
        openssl_scan(m);
}
