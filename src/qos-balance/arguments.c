/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <getopt.h>
#include <math.h>

#include "arguments.h"

/* As strtod(), but for unsigned decimal numbers only, not "inf", "nan" or "0x10". Returns the end of the
 * number; NULL: invalid. */
static const char* parse_number(const char *s, double *ret) {
        size_t l = strspn(s, "0123456789.");
        char *end;

        if (l == 0 || s[l] == 'x' || s[l] == 'X')
                return NULL;
        *ret = strtod(s, &end);
        return end == s ? NULL : end;
}

static int parse_target(const char *s, uint64_t *ret) {
        static const struct {
                const char *suffix;
                double nsec;
        } table[] = { { "us", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
        const char *end;
        double value;

        end = parse_number(s, &value);
        for (size_t i = 0; end && i < ELEMENTSOF(table); i++)
                if (streq(end, table[i].suffix) && value * table[i].nsec >= 1 &&
                    value * table[i].nsec <= TARGET_MAX_NSEC) {
                        *ret = (uint64_t) llround(value * table[i].nsec);
                        return 0;
                }
        fprintf(stderr, "Invalid target '%s', expected a time of up to 1h like 500us, 5ms or 1s.\n", s);
        return -EINVAL;
}

static int parse_quantile(const char *s, double *ret) {
        const char *end;
        double value;

        end = parse_number(s, &value);
        if (!end || *end || !(value >= 0.5 && value < 1)) {
                fprintf(stderr, "Invalid quantile '%s', expected a number from 0.5 to 1 like 0.99.\n", s);
                return -EINVAL;
        }
        *ret = value;
        return 0;
}

static int parse_means(const char *s, Means *ret) {
        if (streq(s, "freeze"))
                *ret = MEANS_FREEZE;
        else if (streq(s, "quota"))
                *ret = MEANS_QUOTA;
        else {
                fprintf(stderr, "Invalid argument '%s' of --by=, expected 'freeze' or 'quota'.\n", s);
                return -EINVAL;
        }
        return 0;
}

/* If qos-balance itself or a service that it needs for thawing were frozen, units would remain frozen.
 * Slices may contain these. */
bool may_be_held_back(const char *name, const char *unit) {
        static const char *const needed[] = { "dbus.service", "dbus-broker.service", "qosd.service" };
        bool may = !startswith(name, "qos-balance");

        if (!endswith(name, ".service") && !endswith(name, ".scope")) {
                fprintf(stderr, "'%s' is not a service or scope, and cannot be throttled.\n", name);
                return false;
        }
        for (size_t i = 0; i < ELEMENTSOF(needed) && may; i++)
                may = !streq(name, needed[i]);
        if (!may)
                fprintf(stderr, "'%s' is required to release units, and cannot be throttled.\n", name);
        else if (streq(name, unit)) {
                fprintf(stderr, "'%s' is the unit to be protected.\n", name);
                may = false;
        }
        return may;
}

static int arguments_check(const Arguments *a) {
        if (a->n_batch == 0) {
                fprintf(stderr, "No batch unit specified, see --help.\n");
                return -EINVAL;
        }
        /* Units may have been throttled by a run with other arguments */
        if (a->release)
                return 0;

        if (a->n_batch > BATCH_MAX) {
                fprintf(stderr, "Too many batch units: %u, expected at most %u.\n", a->n_batch,
                        BATCH_MAX);
                return -EINVAL;
        }
        if (!a->unit || a->target == 0) {
                fprintf(stderr, "--unit= and --target= are required, see --help.\n");
                return -EINVAL;
        }
        if (!*a->unit) {
                fprintf(stderr, "Invalid unit name ''.\n");
                return -EINVAL;
        }
        for (unsigned i = 0; i < a->n_batch; i++) {
                if (!may_be_held_back(a->batch[i], a->unit))
                        return -EINVAL;
                for (unsigned k = 0; k < i; k++)
                        if (streq(a->batch[i], a->batch[k])) {
                                fprintf(stderr, "Duplicate batch unit '%s'.\n", a->batch[i]);
                                return -EINVAL;
                        }
        }
        return 0;
}

int arguments_parse(int argc, char **argv, Arguments *ret) {
        static const struct option options[] = {
                { "unit",     required_argument, NULL, 'u' },
                { "target",   required_argument, NULL, 't' },
                { "quantile", required_argument, NULL, 'q' },
                { "by",       required_argument, NULL, 'b' },
                { "release",  no_argument,       NULL, 'r' },
                { "verbose",  no_argument,       NULL, 'v' },
                { "help",     no_argument,       NULL, 'h' },
                {}
        };
        Arguments a = { .quantile = 0.99 };
        int c, r = 0;

        optind = 0; /* start at the first argument, even if getopt was used before */
        while (r >= 0 && (c = getopt_long(argc, argv, "u:t:q:b:rvh", options, NULL)) >= 0)
                switch (c) {

                case 'u':
                        a.unit = optarg;
                        break;

                case 't':
                        r = parse_target(optarg, &a.target);
                        break;

                case 'q':
                        r = parse_quantile(optarg, &a.quantile);
                        break;

                case 'b':
                        r = parse_means(optarg, &a.means);
                        break;

                case 'r':
                        a.release = true;
                        break;

                case 'v':
                        a.verbose = true;
                        break;

                case 'h':
                        *ret = (Arguments) { .help = true };
                        return 0;

                default:
                        r = -EINVAL; /* getopt_long() has printed a message */
                }
        if (r < 0)
                return r;

        a.batch = argv + optind;
        a.n_batch = argc - optind;
        r = arguments_check(&a);
        if (r < 0)
                return r;
        *ret = a;
        return 0;
}
