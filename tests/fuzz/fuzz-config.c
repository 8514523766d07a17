/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any contents of qosd.conf: the resulting settings are within the limits. */

#include <sys/stat.h>

#include "check.h"
#include "config.h"
#include "fuzz.h"
#include "log.h"

static char root[] = "/tmp/fuzz-config-XXXXXX", path[64];

static void clean_up(void) {
        (void) unlink(path);
        path[strlen(path) - strlen("/qosd.conf")] = 0;
        (void) rmdir(path);
        (void) rmdir(root);
}

static void set_up(void) {
        if (*path)
                return;

        log_set_max_level(LOG_CRIT);
        check(mkdtemp(root));
        (void) snprintf(path, sizeof(path), "%s/etc", root);
        check(mkdir(path, 0700) >= 0);
        (void) strcat(path, "/qosd.conf");
        check(atexit(clean_up) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        Config c;
        FILE *f;

        set_up();
        f = fopen(path, "we");
        check(f);
        check(fwrite(data, 1, size, f) == size);
        check(fclose(f) == 0);

        check(config_load(root, &c) >= 0);

        check(c.units_max >= 1 && c.units_max <= 256);
        check(c.default_probes != 0 && (c.default_probes & ~_PROBE_ALL) == 0);
        check(c.default_window_nsec != WINDOW_TOTAL && window_is_valid(c.default_window_nsec));
        check(c.connections_per_uid_max >= 1 && c.connections_per_uid_max <= 4096);
        check(c.leases_per_uid_max <= 4096);
        check(c.units_per_uid_max <= 256);
        check(c.interval_min_usec >= 10 * USEC_PER_MSEC && c.interval_min_usec <= 3600 * USEC_PER_SEC);
        check(c.minimum_samples >= 5);
        check(c.slow_operation_nsec == 0 || (c.slow_operation_nsec >= 100 * NSEC_PER_USEC &&
                                             c.slow_operation_nsec <= 3600 * NSEC_PER_SEC));
        check(c.custom_cost_max <= 100);
        return 0;
}
