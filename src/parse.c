/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "parse.h"

int parse_decimal(const char *s, const char **ret_end, double *ret) {
        double value = 0, scale = 1;

        if (*s < '0' || *s > '9')
                return -EINVAL;
        for (; *s >= '0' && *s <= '9'; s++)
                value = value * 10 + (*s - '0');
        if (*s == '.') {
                s++;
                if (*s < '0' || *s > '9')
                        return -EINVAL;
                for (; *s >= '0' && *s <= '9'; s++) {
                        value = value * 10 + (*s - '0');
                        scale *= 10;
                }
        }
        if (!isfinite(value) || !isfinite(scale))
                return -ERANGE;

        *ret_end = s;
        *ret = value / scale;
        return 0;
}

int parse_time(const char *s, uint64_t *ret_nsec) {
        static const struct {
                const char *suffix;
                uint64_t nsec;
        } units[] = {
                { "ns",      1 },
                { "nsec",    1 },
                { "us",      NSEC_PER_USEC },
                { "usec",    NSEC_PER_USEC },
                { "ms",      NSEC_PER_MSEC },
                { "msec",    NSEC_PER_MSEC },
                { "s",       NSEC_PER_SEC },
                { "sec",     NSEC_PER_SEC },
                { "second",  NSEC_PER_SEC },
                { "seconds", NSEC_PER_SEC },
                { "m",       60 * NSEC_PER_SEC },
                { "min",     60 * NSEC_PER_SEC },
                { "minute",  60 * NSEC_PER_SEC },
                { "minutes", 60 * NSEC_PER_SEC },
                { "h",       3600 * NSEC_PER_SEC },
                { "hr",      3600 * NSEC_PER_SEC },
                { "hour",    3600 * NSEC_PER_SEC },
                { "hours",   3600 * NSEC_PER_SEC },
                { "",        NSEC_PER_SEC },
        };
        double sum = 0;

        s += strspn(s, " ");
        if (*s == 0)
                return -EINVAL;

        while (*s) {
                uint64_t nsec = 0;
                double n;
                size_t l;
                int r;

                r = parse_decimal(s, &s, &n);
                if (r < 0)
                        return r;
                s += strspn(s, " ");

                l = strcspn(s, " .0123456789");
                for (size_t i = 0; i < ELEMENTSOF(units); i++)
                        if (strlen(units[i].suffix) == l && strncmp(s, units[i].suffix, l) == 0)
                                nsec = units[i].nsec;
                if (nsec == 0)
                        return -EINVAL;
                sum += n * nsec;
                s += l;
                s += strspn(s, " ");
        }

        /* What a double tells to the nanosecond is 104 days; more than that nobody measures or waits */
        if (sum > (double) (UINT64_C(1) << 53))
                return -ERANGE;
        *ret_nsec = (uint64_t) llround(sum);
        return 0;
}
