/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "config.h"
#include "parse.h"

void config_set_defaults(Config *c) {
        *c = (Config) {
                .units_max = 256,
                .default_probes = PROBE_REQUESTS | PROBE_CPU,
                .default_window_nsec = WINDOW_DEFAULT_NSEC,
                .connections_per_uid_max = 128,
                .leases_per_uid_max = 64,
                .units_per_uid_max = 32,
                .interval_min_usec = 100 * USEC_PER_MSEC,
                .minimum_samples = 5,
                .slow_operation_nsec = 10 * NSEC_PER_MSEC,
                .receive_timestamps = true,
                .custom_cost_max = 5,
        };
}

static int parse_number(const char *s, unsigned min, unsigned max, unsigned *ret) {
        char *end;
        unsigned long n;

        if (s[0] < '0' || s[0] > '9')
                return -EINVAL;
        errno = 0;
        n = strtoul(s, &end, 10);
        if (errno != 0 || *end != 0 || n < min || n > max)
                return -EINVAL;

        *ret = n;
        return 0;
}

static const char* set_units_max(void *data, const char *value) {
        Config *c = data;

        return parse_number(value, 1, 256, &c->units_max) < 0 ? "a number from 1 to 256" : NULL;
}

static const char* set_observe(void *data, const char *value) {
        Config *c = data;

        if (!streq(value, "auto") && !streq(value, "no"))
                return "'auto' or 'no'";
        c->observe_auto = streq(value, "auto");
        return NULL;
}

static const char* set_default_probes(void *data, const char *value) {
        Config *c = data;
        _cleanup_free_ char *copy = strdup(value);
        ProbeMask mask = 0;
        char *state;

        for (char *word = copy ? strtok_r(copy, " \t", &state) : NULL; word;
             word = strtok_r(NULL, " \t", &state)) {
                ProbeMask probe = probe_mask_from_name(word);

                if (probe == 0)
                        return "names of probes " PROBES_LISTED;
                mask |= probe;
        }
        if (mask == 0)
                return "names of probes " PROBES_LISTED;

        c->default_probes = mask;
        return NULL;
}

static const char* set_default_window(void *data, const char *value) {
        Config *c = data;
        uint64_t nsec;

        if (parse_time(value, &nsec) < 0 || nsec == WINDOW_TOTAL || !window_is_valid(nsec))
                return "a multiple of 100ms up to 1s, of 1s up to 10s, 60s or 5min";
        c->default_window_nsec = nsec;
        return NULL;
}

static const char* set_connections(void *data, const char *value) {
        Config *c = data;

        return parse_number(value, 1, 4096, &c->connections_per_uid_max) < 0 ? "a number from 1 to 4096" :
               NULL;
}

static const char* set_leases(void *data, const char *value) {
        Config *c = data;

        return parse_number(value, 0, 4096, &c->leases_per_uid_max) < 0 ? "a number from 0 to 4096" : NULL;
}

static const char* set_units_per_uid(void *data, const char *value) {
        Config *c = data;

        return parse_number(value, 0, 256, &c->units_per_uid_max) < 0 ? "a number from 0 to 256" : NULL;
}

static const char* set_interval_min(void *data, const char *value) {
        Config *c = data;
        uint64_t nsec;

        if (parse_time(value, &nsec) < 0 || nsec < 10 * NSEC_PER_MSEC || nsec > 3600 * NSEC_PER_SEC)
                return "a time from 10ms to 1h";
        c->interval_min_usec = nsec / NSEC_PER_USEC;
        return NULL;
}

static const char* set_minimum_samples(void *data, const char *value) {
        Config *c = data;

        return parse_number(value, 5, 100000, &c->minimum_samples) < 0 ? "a number from 5 to 100000" : NULL;
}

static const char* set_slow_operation(void *data, const char *value) {
        Config *c = data;
        uint64_t nsec;

        if (parse_time(value, &nsec) < 0 ||
            (nsec != 0 && (nsec < 100 * NSEC_PER_USEC || nsec > 3600 * NSEC_PER_SEC)))
                return "a time from 100us to 1h, or 0";
        c->slow_operation_nsec = nsec;
        return NULL;
}

static const char* set_receive_timestamps(void *data, const char *value) {
        Config *c = data;

        if (!streq(value, "yes") && !streq(value, "no"))
                return "'yes' or 'no'";
        c->receive_timestamps = streq(value, "yes");
        return NULL;
}

static const char* set_custom_cost_max(void *data, const char *value) {
        _cleanup_free_ char *number = strndup(value, strlen(value) - !!endswith(value, "%"));
        Config *c = data;

        return !number || !endswith(value, "%") || parse_number(number, 0, 100, &c->custom_cost_max) < 0 ?
               "a percentage from 0% to 100%" : NULL;
}

#define SETTING(name, set, field) CONF_SETTING(name, set, Config, field)

static const ConfSetting settings[] = {
        SETTING("UnitsMax",              set_units_max,       units_max),
        { "Observe", set_observe, offsetof(Config, observe_auto), sizeof(bool),
          offsetof(Config, observe_file) },
        SETTING("DefaultProbes",         set_default_probes,  default_probes),
        SETTING("DefaultWindow",         set_default_window,  default_window_nsec),
        SETTING("ConnectionsPerUserMax", set_connections,     connections_per_uid_max),
        SETTING("LeasesPerUserMax",      set_leases,          leases_per_uid_max),
        SETTING("UnitsPerUserMax",       set_units_per_uid,   units_per_uid_max),
        SETTING("IntervalMinSec",        set_interval_min,    interval_min_usec),
        SETTING("MinimumSamples",        set_minimum_samples, minimum_samples),
        SETTING("SlowOperation",         set_slow_operation,  slow_operation_nsec),
        SETTING("ReceiveTimestamps",     set_receive_timestamps, receive_timestamps),
        SETTING("CustomCostMax",         set_custom_cost_max, custom_cost_max),
};

int config_load(const char *root, Config *ret) {
        Config defaults, c;
        const ConfFormat format = {
                .name = "qosd.conf",
                .section = "[QoS]",
                .settings = settings,
                .n_settings = ELEMENTSOF(settings),
                .defaults = &defaults,
        };
        int r;

        config_set_defaults(&defaults);
        c = defaults;
        r = conf_file_load(root, &format, &c);
        if (r < 0)
                return r;
        *ret = c;
        return 0;
}
