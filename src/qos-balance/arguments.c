/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <getopt.h>
#include <math.h>

#include "arguments.h"

/* As strtod(), of decimal numbers alone, and nothing in front of them: "inf", "nan" and "0x10" are no times.
 * NULL: it is none. */
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
        fprintf(stderr, "'%s' is no target, expected a time of at most an hour like 500us, 5ms or 1s.\n", s);
        return -EINVAL;
}

static int parse_quantile(const char *s, double *ret) {
        const char *end;
        double value;

        end = parse_number(s, &value);
        if (!end || *end || !(value >= 0.5 && value < 1)) {
                fprintf(stderr, "'%s' is no quantile, expected one like 0.99, and not below 0.5.\n", s);
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
                fprintf(stderr, "There is no '%s', expected 'freeze' or 'quota'.\n", s);
                return -EINVAL;
        }
        return 0;
}

/* Who freezes itself, or what it needs to thaw others, has frozen them for good: no slices, which may have
 * these in them, and none of these. */
bool may_be_held_back(const char *name, const char *unit) {
        static const char *const needed[] = { "dbus.service", "dbus-broker.service", "qosd.service" };
        bool may = !startswith(name, "qos-balance");

        if (!endswith(name, ".service") && !endswith(name, ".scope")) {
                fprintf(stderr, "'%s' is no service and no scope, others are not held back.\n", name);
                return false;
        }
        for (size_t i = 0; i < ELEMENTSOF(needed) && may; i++)
                may = !streq(name, needed[i]);
        if (!may)
                fprintf(stderr, "'%s' is needed to let the others go on.\n", name);
        else if (streq(name, unit)) {
                fprintf(stderr, "'%s' is the unit that is to be fast.\n", name);
                may = false;
        }
        return may;
}

static int arguments_check(const Arguments *a) {
        if (a->n_batch == 0) {
                fprintf(stderr, "No batch unit was given, see --help.\n");
                return -EINVAL;
        }
        /* Whoever was held back by other arguments than these is to be let go all the same */
        if (a->release)
                return 0;

        if (a->n_batch > BATCH_MAX) {
                fprintf(stderr, "%u batch units were given, more than %u are not held back.\n", a->n_batch,
                        BATCH_MAX);
                return -EINVAL;
        }
        if (!a->unit || a->target == 0) {
                fprintf(stderr, "--unit= and --target= are needed, see --help.\n");
                return -EINVAL;
        }
        if (!*a->unit) {
                fprintf(stderr, "'' is no unit.\n");
                return -EINVAL;
        }
        for (unsigned i = 0; i < a->n_batch; i++) {
                if (!may_be_held_back(a->batch[i], a->unit))
                        return -EINVAL;
                for (unsigned k = 0; k < i; k++)
                        if (streq(a->batch[i], a->batch[k])) {
                                fprintf(stderr, "'%s' was given twice.\n", a->batch[i]);
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

        optind = 0; /* from the first one on, also if that was done before */
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
                        r = -EINVAL; /* which getopt_long() has said */
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
