/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <unistd.h>

#include "history-collector.h"
#include "history-file.h"
#include "history.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "service-manager.h"
#include "unit-map.h"

/* Interval of collecting: the kernel keeps WINDOW_STEPS steps, which leaves time for late wakeups and a
 * restart. Of file systems it keeps one. */
#define HISTORY_USEC (5 * HISTORY_MOUNTS_USEC)
#define HISTORY_MOUNTS_USEC (HISTORY_FINE_NSEC / NSEC_PER_USEC)

/* Delay after the end of a step, for programs that are still recording in it. */
#define HISTORY_DELAY_USEC (100 * USEC_PER_MSEC)

void unit_forget_history(Manager *m, unsigned slot) {
        _cleanup_free_ char *path = NULL;

        if (history_path(m->readings.history.prefix, slot, &path) >= 0)
                (void) unlink(path);
}

void manager_forget_histories(Manager *m) {
        const char *name = m->readings.history.prefix ? strrchr(m->readings.history.prefix, '/') : NULL;
        _cleanup_free_ char *directory = NULL;
        DIR *d;

        if (!name)
                return;
        directory = strndup(m->readings.history.prefix, name++ - m->readings.history.prefix);
        d = directory ? opendir(directory) : NULL;
        if (!d)
                return;
        for (struct dirent *e; (e = readdir(d)); ) {
                const char *number = startswith(e->d_name, name);
                unsigned slot;

                if (number && sscanf(number, "%u", &slot) == 1 && slot < UNITS_MAX_LIMIT &&
                    !m->units.slots[slot])
                        unit_forget_history(m, slot);
        }
        (void) closedir(d);
}

/* Collects the steps of all units, or of those with file systems, and saves the histories. */
static void manager_collect(Manager *m, bool all) {
        FOREACH_UNIT(u, m) {
                _cleanup_free_ char *path = NULL;
                int r;

                if (!all && !u->storage.map)
                        continue;
                unit_collect_usage(u);
                r = unit_collect_history(u);
                if (r >= 0)
                        r = history_path(m->readings.history.prefix, u->index, &path);
                if (r >= 0)
                        r = history_save(u->history.steps, u->generation, path);
                if (r == -ENOENT)
                        continue;
                if (r < 0 && !u->history.unsaved)
                        log_unit_warning_errno(u->name, r, "Failed to save history of '%s': %m",
                                               u->name);
                u->history.unsaved = r < 0;
        }
}

void manager_collect_history(Manager *m) {
        manager_collect(m, /* all= */ true);
}

static int on_history(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC), next = UINT64_MAX;
        bool all = now >= m->readings.history.all_at;

        manager_collect(m, all);

        if (all)
                m->readings.history.all_at = (now / HISTORY_USEC + 1) * HISTORY_USEC + HISTORY_DELAY_USEC;
        FOREACH_UNIT(u, m)
                if (u->storage.map)
                        next = (now / HISTORY_MOUNTS_USEC + 1) * HISTORY_MOUNTS_USEC + HISTORY_DELAY_USEC;
        (void) sd_event_source_set_time(source, MIN(next, m->readings.history.all_at));
        (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
        return 0;
}

/* Collects immediately, to catch up after a restart, and then at multiples of the interval. */
void manager_begin_history(Manager *m) {
        int r;

        if (m->readings.history.timer)
                return;
        r = sd_event_add_time(m->event, &m->readings.history.timer, CLOCK_MONOTONIC, 0, 0, on_history, m);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to arm history timer, history is disabled: %m");
}

void unit_load_history(Unit *u, uint32_t generation) {
        _cleanup_free_ char *path = NULL;
        History *h;
        int r;

        r = history_path(u->manager->readings.history.prefix, u->index, &path);
        if (r >= 0)
                r = history_load(path, generation, &h);
        if (r >= 0) {
                history_free(u->history.steps);
                u->history.steps = h;
        } else if (r == -ESTALE)
                (void) log_unit_full_errno(u->name, LOG_NOTICE, 0,
                                           "History of '%s' is of another version of qosd, starting a "
                                           "new one.", u->name);
        else if (r != -ENOENT)
                log_unit_warning_errno(u->name, r, "Failed to load history of '%s', starting a new "
                                                   "one: %m",
                                       u->name);
}

int history_collector_init(Manager *m) {
        return history_find_prefix(&m->readings.history.prefix);
}

void history_collector_done(Manager *m) {
        manager_collect_history(m);
        m->readings.history.timer = sd_event_source_disable_unref(m->readings.history.timer);
        free(m->readings.history.prefix);
        m->readings.history.prefix = NULL;
}
