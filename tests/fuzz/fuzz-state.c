/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any contents of the state file: the daemon starts, and reads again what it has made of it. No programs are
 * loaded. */

#include <fcntl.h>

#include "check.h"
#include "contention-probe.h"
#include "fuzz.h"
#include "group-walk.h"
#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "util-bus.h"

static char directory[] = "/tmp/fuzz-state-XXXXXX", path[sizeof(directory) + sizeof("/units")];

static void clean_up(void) {
        (void) unlink(path);
        (void) rmdir(directory);
}

static bool set_up(void) {
        if (path[0])
                return true;
        if (!test_become_plain_root())
                return false;

        log_set_max_level(LOG_EMERG);
        check(mkdtemp(directory));
        (void) snprintf(path, sizeof(path), "%s/units", directory);
        check(setenv("RUNTIME_DIRECTORY", directory, 1) >= 0);
        check(atexit(clean_up) == 0);
        return true;
}

/* Only read when programs were kept, of which there are none. */
static void read_bases(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        sd_json_variant *units;

        if (sd_json_parse_file(NULL, path, 0, &v, NULL, NULL) < 0)
                return;
        units = sd_json_variant_by_key(v, "units");
        for (size_t i = 0; i < sd_json_variant_elements(units); i++) {
                sd_json_variant *unit = sd_json_variant_by_index(units, i),
                        *base = sd_json_variant_by_key(unit, "base"),
                        *contention = sd_json_variant_by_key(unit, "contentionBase");
                ContentionCounts counts;
                CounterOffset window;

                if (base)
                        (void) window_base_from_json(base, &window);
                if (contention)
                        (void) contention_base_from_json(contention, &counts);
        }
}

static void walk_groups(const Unit *u) {
        _cleanup_(group_walk_freep) GroupWalk *groups = NULL;

        check(group_walk_new(u->control_group, u->instances, &groups) >= 0);
        while (group_walk_next(groups) >= 0)
                group_walk_enter(groups);
}

/* Returns a sum of the state. */
static unsigned restore(void) {
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        unsigned n = 0, n_units = 0;
        Manager *m;

        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &m) >= 0);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                Unit *u = m->units.slots[i];

                if (!u)
                        continue;
                n_units++;
                check(u->index == i && u->holds && !isempty(u->name) && u->control_group[0] == '/');
                check(!names_contain("some other.service", u->name));
                walk_groups(u);
                for (Hold *h = u->holds; h; h = h->next) {
                        check(h->unit == u && h->probes != 0);
                        n++;
                }
                for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a))
                        n++;
        }
        check(n_units == m->units.n);
        if (n_units > 0)
                manager_save(m);
        manager_free(m);
        return n + n_units;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_close_ int fd = -EBADF;
        unsigned n;

        if (!set_up())
                exit(77);

        fd = open(path, O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0600);
        check(fd >= 0);
        check(size == 0 || write(fd, data, size) == (ssize_t) size);

        read_bases();
        n = restore();
        check(n == 0 || restore() == n);
        return 0;
}
