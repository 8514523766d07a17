/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "manager.h"
#include "probe.h"
#include "read-check.h"

/* Duration of the check of a unit that reads less than QOS_READS_CHECKED times: most services do in their
 * first seconds what they do later. Otherwise the first spliced requests have no read time of their own. */
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

void read_check_update(Manager *m, const Unit *started) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), end = 0;
        bool needed = false;
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
                        needed = true;
                else if (result == READS_UNCHECKED && now < u->reads_checked_since + CHECK_NSEC)
                        end = MAX(end, u->reads_checked_since + CHECK_NSEC);
        }

        r = probe_watch_reads(m->probe, needed || end != 0);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to attach requests_read, spliced requests have no read "
                                            "time: %m");
        m->reads.timer = sd_event_source_disable_unref(m->reads.timer);
        if (!needed && end != 0)
                (void) sd_event_add_time(m->event, &m->reads.timer, CLOCK_MONOTONIC, end / NSEC_PER_USEC + 1,
                                         0, on_check_end, m);
}
