/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any contents of qosd-exporter.conf: the resulting settings are within the limits. */

#include <sys/stat.h>

#include "check.h"
#include "exporter-config.h"
#include "fuzz.h"
#include "log.h"

static char root[] = "/tmp/fuzz-exporter-config-XXXXXX", directory[64], path[64];

static void clean_up(void) {
        (void) unlink(path);
        (void) rmdir(directory);
        (void) rmdir(root);
}

static void set_up(void) {
        if (*path)
                return;

        log_set_max_level(LOG_CRIT);
        check(mkdtemp(root));
        (void) snprintf(directory, sizeof(directory), "%s/etc", root);
        check(mkdir(directory, 0700) >= 0);
        (void) snprintf(path, sizeof(path), "%s/etc/qosd-exporter.conf", root);
        check(atexit(clean_up) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        ExpositionOptions options;
        FILE *f;

        set_up();
        f = fopen(path, "we");
        check(f);
        check(fwrite(data, 1, size, f) == size);
        check(fclose(f) == 0);

        check(exporter_config_load(root, &options) >= 0);

        check(options.scope < _EXPOSITION_SCOPE_MAX);
        check(options.buckets_max == 0 || (options.buckets_max >= EXPOSITION_BUCKETS_MIN &&
                                           options.buckets_max <= EXPOSITION_BUCKETS_MAX));
        check(options.series_max <= EXPOSITION_SERIES_MAX);
        return 0;
}
