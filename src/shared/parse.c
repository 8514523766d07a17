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

/* Length of the UTF-8 sequence at s; 0: invalid, or a control character. */
static size_t letter_length(const unsigned char *s, size_t left) {
        size_t n = *s < 0x80 ? 1 : (*s & 0xe0) == 0xc0 ? 2 : (*s & 0xf0) == 0xe0 ? 3 : (*s & 0xf8) == 0xf0 ?
                   4 : 0;
        uint32_t c;

        if (n == 0 || n > left)
                return 0;
        c = n == 1 ? *s : *s & (0x7fU >> n);
        for (size_t i = 1; i < n; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                c = c << 6 | (s[i] & 0x3f);
        }
        /* Control characters, overlong encodings, surrogates, noncharacters and values above U+10FFFF */
        if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (n == 2 && c < 0x80) || (n == 3 && c < 0x800) ||
            (n == 4 && c < 0x10000) ||
            (c >= 0xd800 && c < 0xe000) || c > 0x10ffff || (c >= 0xfdd0 && c <= 0xfdef) ||
            (c & 0xfffe) == 0xfffe)
                return 0;
        return n;
}

bool text_is_valid(const char *s, size_t n) {
        for (size_t i = 0, l; i < n; i += l) {
                l = s[i] == '\t' ? 1 : letter_length((const unsigned char*) s + i, n - i);
                if (l == 0)
                        return false;
        }
        return true;
}

void utf8_sanitize(char *s) {
        for (size_t n = strlen(s), l; n > 0; s += l, n -= l) {
                l = letter_length((const unsigned char*) s, n);
                if (l == 0) {
                        *s = '?';
                        l = 1;
                }
        }
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

        /* Doubles have nanosecond precision up to 104 days, which is longer than any useful duration */
        if (sum > (double) (UINT64_C(1) << 53))
                return -ERANGE;
        *ret_nsec = (uint64_t) llround(sum);
        return 0;
}

size_t text_distance(const char *a, const char *b) {
        size_t rows[3][TEXT_DISTANCE_MAX + 1], n = strlen(b);
        size_t *before = rows[0], *above = rows[1], *row = rows[2];

        if (n > TEXT_DISTANCE_MAX)
                return SIZE_MAX;
        for (size_t k = 0; k <= n; k++)
                above[k] = k;
        for (size_t i = 0; a[i]; i++) {
                size_t *oldest = before;

                row[0] = i + 1;
                for (size_t k = 0; k < n; k++) {
                        size_t replaced = above[k] + (a[i] != b[k]),
                                inserted = MIN(row[k], above[k + 1]) + 1;

                        row[k + 1] = MIN(replaced, inserted);
                        if (i > 0 && k > 0 && a[i] == b[k - 1] && a[i - 1] == b[k])
                                row[k + 1] = MIN(row[k + 1], before[k - 1] + 1);
                }
                before = above;
                above = row;
                row = oldest;
        }
        return above[n];
}

size_t text_distance_of_typo(const char *name) {
        return MIN(strlen(name) / 3, (size_t) 2);
}
