/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "conf-file.h"
#include "exporter-config.h"

void exporter_config_set_defaults(ExpositionOptions *options) {
        *options = (ExpositionOptions) {
                .buckets_max = EXPOSITION_BUCKETS_DEFAULT,
                .series_max = EXPOSITION_SERIES_DEFAULT,
        };
}

static const char* set_scope(void *data, const char *value) {
        ExpositionOptions *options = data;

        return exposition_parse_scope(value, &options->scope) < 0 ? EXPOSITION_SCOPES : NULL;
}

static const char* set_buckets(void *data, const char *value) {
        ExpositionOptions *options = data;

        static_assert(EXPOSITION_BUCKETS_MIN == 29 && EXPOSITION_BUCKETS_MAX == 10000, "in the message");
        return exposition_parse_buckets(value, &options->buckets_max) < 0 ?
               "0 or a number from 29 to 10000" : NULL;
}

static const char* set_series(void *data, const char *value) {
        ExpositionOptions *options = data;

        static_assert(EXPOSITION_SERIES_MAX == 10000000, "in the message");
        return exposition_parse_series(value, &options->series_max) < 0 ?
               "a number from 0 to 10000000" : NULL;
}

#define SETTING(name, set, field) CONF_SETTING(name, set, ExpositionOptions, field)

static const ConfSetting settings[] = {
        SETTING("Export",           set_scope,   scope),
        SETTING("ExportBucketsMax", set_buckets, buckets_max),
        SETTING("ExportSeriesMax",  set_series,  series_max),
};

int exporter_config_load(const char *root, ExpositionOptions *ret) {
        ExpositionOptions defaults, options;
        const ConfFormat format = {
                .name = "qosd-exporter.conf",
                .section = "[Exporter]",
                .settings = settings,
                .n_settings = ELEMENTSOF(settings),
                .defaults = &defaults,
        };
        int r;

        exporter_config_set_defaults(&defaults);
        options = defaults;
        r = conf_file_load(root, &format, &options);
        if (r < 0)
                return r;
        *ret = options;
        return 0;
}
