/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <time.h>
#include <wchar.h>

#include "format.h"

#define NSEC_PER_MINUTE (60 * NSEC_PER_SEC)
#define NSEC_PER_HOUR (60 * NSEC_PER_MINUTE)
#define NSEC_PER_DAY (24 * NSEC_PER_HOUR)
#define NSEC_PER_WEEK (7 * NSEC_PER_DAY)
/* As in systemd: 30.44 and 365.25 days. */
#define NSEC_PER_MONTH (UINT64_C(2629800) * NSEC_PER_SEC)
#define NSEC_PER_YEAR (UINT64_C(31557600) * NSEC_PER_SEC)

/* Number of decimals for three significant digits after rounding. */
static int decimals(double v) {
        return v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
}

char* format_duration(char buf[static FORMAT_MAX], uint64_t nsec) {
        static const struct {
                const char *name;
                double nsec;
        } units[] = {
                { "us", 1e3 },
                { "ms", 1e6 },
                { "s",  1e9 },
        };

        if (nsec == 0)
                (void) snprintf(buf, FORMAT_MAX, "0");
        else if (nsec < NSEC_PER_USEC)
                (void) snprintf(buf, FORMAT_MAX, "%" PRIu64 "ns", nsec);
        else if (nsec >= NSEC_PER_MINUTE)
                return format_span(buf, nsec);
        else
                for (size_t i = 0; i < ELEMENTSOF(units); i++) {
                        double v = (double) nsec / units[i].nsec;

                        /* 999.5 rounds to 1.00 of the next unit */
                        if (v < 999.5 || i == ELEMENTSOF(units) - 1) {
                                (void) snprintf(buf, FORMAT_MAX, "%.*f%s", decimals(v), v, units[i].name);
                                break;
                        }
                }

        return buf;
}

char* format_span(char buf[static FORMAT_MAX], uint64_t nsec) {
        static const struct {
                const char *name;
                uint64_t nsec;
        } units[] = {
                { "y",     NSEC_PER_YEAR   },
                { "month", NSEC_PER_MONTH  },
                { "w",     NSEC_PER_WEEK   },
                { "d",     NSEC_PER_DAY    },
                { "h",     NSEC_PER_HOUR   },
                { "min",   NSEC_PER_MINUTE },
                { "s",     NSEC_PER_SEC    },
                { "ms",    NSEC_PER_MSEC   },
                { "us",    NSEC_PER_USEC   },
                { "ns",    1               },
        };

        if (nsec == 0) {
                (void) snprintf(buf, FORMAT_MAX, "0");
                return buf;
        }

        for (size_t i = 0; i < ELEMENTSOF(units); i++) {
                uint64_t first = nsec / units[i].nsec, rest = nsec % units[i].nsec, second = 0;

                if (first == 0)
                        continue;

                /* No fractions below a second: "5min 3s", but "5s" */
                if (units[i].nsec > NSEC_PER_SEC)
                        second = rest / units[i + 1].nsec;
                if (second > 0)
                        (void) snprintf(buf, FORMAT_MAX, "%" PRIu64 "%s %" PRIu64 "%s",
                                        first, units[i].name, second, units[i + 1].name);
                else
                        (void) snprintf(buf, FORMAT_MAX, "%" PRIu64 "%s", first, units[i].name);
                break;
        }

        return buf;
}

char* format_window(char buf[static FORMAT_MAX], uint64_t nsec) {
        if (nsec == 0)
                (void) snprintf(buf, FORMAT_MAX, "total");
        else if (nsec % NSEC_PER_SEC != 0)
                (void) snprintf(buf, FORMAT_MAX, "%" PRIu64 "ms", nsec / NSEC_PER_MSEC);
        else if (nsec % NSEC_PER_MINUTE == 0 && nsec > NSEC_PER_MINUTE)
                (void) snprintf(buf, FORMAT_MAX, "%" PRIu64 "min", nsec / NSEC_PER_MINUTE);
        else
                (void) snprintf(buf, FORMAT_MAX, "%" PRIu64 "s", nsec / NSEC_PER_SEC);

        return buf;
}

static char* format_scaled(char buf[static FORMAT_MAX], double v, const char *suffix) {
        static const char *const prefixes[] = { "", "k", "M", "G", "T", "P", "E" };
        size_t i = 0;

        while (v >= 999.5 && i < ELEMENTSOF(prefixes) - 1) {
                v /= 1000;
                i++;
        }

        (void) snprintf(buf, FORMAT_MAX, "%.*f%s%s", decimals(v), v, prefixes[i], suffix);
        return buf;
}

char* format_count(char buf[static FORMAT_MAX], uint64_t n) {
        if (n >= 1000)
                return format_scaled(buf, (double) n, "");

        (void) snprintf(buf, FORMAT_MAX, "%" PRIu64, n);
        return buf;
}

char* format_rate(char buf[static FORMAT_MAX], double per_second) {
        if (!isfinite(per_second) || per_second < 0)
                (void) snprintf(buf, FORMAT_MAX, "-");
        else if (fpclassify(per_second) == FP_ZERO)
                (void) snprintf(buf, FORMAT_MAX, "0/s");
        else if (per_second < 0.005)
                (void) snprintf(buf, FORMAT_MAX, "<0.01/s");
        else if (per_second > 1e21)
                (void) snprintf(buf, FORMAT_MAX, "%.2e/s", per_second);
        else
                return format_scaled(buf, per_second, "/s");

        return buf;
}

char* format_bytes(char buf[static FORMAT_MAX], uint64_t bytes) {
        static const char prefixes[] = { 'K', 'M', 'G', 'T', 'P', 'E' };
        double v = (double) bytes / 1024;
        size_t i = 0;

        if (bytes < 1024) {
                (void) snprintf(buf, FORMAT_MAX, "%" PRIu64 "B", bytes);
                return buf;
        }

        while (v >= 1023.95 && i < ELEMENTSOF(prefixes) - 1) {
                v /= 1024;
                i++;
        }

        (void) snprintf(buf, FORMAT_MAX, "%.1f%c", v, prefixes[i]);
        return buf;
}

char* format_percent(char buf[static FORMAT_MAX], double share) {
        if (!isfinite(share) || share < 0)
                (void) snprintf(buf, FORMAT_MAX, "-");
        else if (fpclassify(share) == FP_ZERO)
                (void) snprintf(buf, FORMAT_MAX, "0%%");
        else if (share < 0.0005)
                (void) snprintf(buf, FORMAT_MAX, "<0.1%%");
        else
                (void) snprintf(buf, FORMAT_MAX, share < 1e6 ? "%.1f%%" : "%.2e%%", share * 100);

        return buf;
}

char* format_real(char buf[static FORMAT_MAX], double value) {
        /* 15 digits are always exact, but do not identify every double; 17 do */
        for (int digits = 15; digits <= 17; digits++) {
                double back;

                (void) snprintf(buf, FORMAT_MAX, "%.*g", digits, value);
                back = strtod(buf, NULL);
                /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): all bits, also those of -0 */
                if (memcmp(&back, &value, sizeof(value)) == 0)
                        break;
        }

        return buf;
}

char* format_timestamp(char buf[static FORMAT_MAX], uint64_t nsec) {
        time_t t = (time_t) (nsec / NSEC_PER_SEC);
        struct tm tm;

        if (!localtime_r(&t, &tm) || strftime(buf, FORMAT_MAX, "%a %Y-%m-%d %H:%M:%S %Z", &tm) == 0)
                (void) snprintf(buf, FORMAT_MAX, "-");

        return buf;
}

char* format_time(char buf[static FORMAT_MAX], uint64_t nsec, uint64_t now) {
        time_t t = (time_t) (nsec / NSEC_PER_SEC), n = (time_t) (now / NSEC_PER_SEC);
        struct tm tm, today;

        if (!localtime_r(&t, &tm) || !localtime_r(&n, &today) ||
            strftime(buf, FORMAT_MAX,
                     tm.tm_yday == today.tm_yday && tm.tm_year == today.tm_year ? "%H:%M:%S" : "%a %H:%M:%S",
                     &tm) == 0)
                (void) snprintf(buf, FORMAT_MAX, "-");

        return buf;
}

int parse_span(const char *s, uint64_t *ret_nsec) {
        static const struct {
                const char *name;
                uint64_t nsec;
        } units[] = {
                { "seconds", NSEC_PER_SEC    },
                { "second",  NSEC_PER_SEC    },
                { "sec",     NSEC_PER_SEC    },
                { "s",       NSEC_PER_SEC    },
                { "minutes", NSEC_PER_MINUTE },
                { "minute",  NSEC_PER_MINUTE },
                { "min",     NSEC_PER_MINUTE },
                { "months",  NSEC_PER_MONTH  },
                { "month",   NSEC_PER_MONTH  },
                { "M",       NSEC_PER_MONTH  },
                { "msec",    NSEC_PER_MSEC   },
                { "ms",      NSEC_PER_MSEC   },
                { "m",       NSEC_PER_MINUTE },
                { "hours",   NSEC_PER_HOUR   },
                { "hour",    NSEC_PER_HOUR   },
                { "hr",      NSEC_PER_HOUR   },
                { "h",       NSEC_PER_HOUR   },
                { "days",    NSEC_PER_DAY    },
                { "day",     NSEC_PER_DAY    },
                { "d",       NSEC_PER_DAY    },
                { "weeks",   NSEC_PER_WEEK   },
                { "week",    NSEC_PER_WEEK   },
                { "w",       NSEC_PER_WEEK   },
                { "years",   NSEC_PER_YEAR   },
                { "year",    NSEC_PER_YEAR   },
                { "y",       NSEC_PER_YEAR   },
                { "usec",    NSEC_PER_USEC   },
                { "us",      NSEC_PER_USEC   },
                { "nsec",    1               },
                { "ns",      1               },
        };
        double sum = 0;
        bool any = false;

        for (;;) {
                char number[24];
                uint64_t unit = 0;
                size_t n, l;
                double v;

                s += strspn(s, " \t");
                if (!*s)
                        break;

                /* Digits and a decimal point only, without signs, exponents and hexadecimal numbers */
                n = strspn(s, "0123456789.");
                if (n == 0 || n >= sizeof(number) || memchr(s, '.', n) != memrchr(s, '.', n) ||
                    (n == 1 && *s == '.'))
                        return -EINVAL;
                memcpy(number, s, n);
                number[n] = 0;
                v = strtod(number, NULL);
                s += n;

                s += strspn(s, " \t");
                for (l = 0; isalpha((unsigned char) s[l]); l++)
                        ;
                if (l == 0)
                        unit = NSEC_PER_SEC;
                else
                        for (size_t i = 0; i < ELEMENTSOF(units); i++)
                                if (strlen(units[i].name) == l && strncmp(s, units[i].name, l) == 0)
                                        unit = units[i].nsec;
                if (unit == 0)
                        return -EINVAL;
                s += l;

                sum += v * (double) unit;
                any = true;
        }

        if (!any)
                return -EINVAL;
        /* Maximum of "int" in varlink */
        if (sum >= (double) INT64_MAX)
                return -ERANGE;

        *ret_nsec = (uint64_t) (sum + 0.5);
        return 0;
}

int parse_window(const char *s, uint64_t *ret_nsec) {
        uint64_t nsec;
        int r;

        if (streq(s, "total")) {
                *ret_nsec = 0;
                return 0;
        }

        r = parse_span(s, &nsec);
        if (r < 0)
                return r;
        if (nsec == 0)
                return -EINVAL;

        *ret_nsec = nsec;
        return 0;
}

int parse_since(const char *s, uint64_t now, uint64_t *ret_nsec) {
        static const char *const formats[] = {
                "%Y-%m-%d %H:%M:%S",
                "%Y-%m-%d %H:%M",
                "%Y-%m-%d",
                "%H:%M:%S",
                "%H:%M",
        };
        time_t t = (time_t) (now / NSEC_PER_SEC), then;
        struct tm today, tm;
        uint64_t span;
        const char *end;

        if (streq(s, "now")) {
                *ret_nsec = now;
                return 0;
        }

        /* "10min", "10min ago", "-10min" */
        end = endswith(s, "ago");
        if (end) {
                _cleanup_free_ char *words = strndup(s, (size_t) (end - s));

                if (!words)
                        return -ENOMEM;
                if (parse_span(words, &span) < 0)
                        return -EINVAL;
                *ret_nsec = now - MIN(now, span);
                return 0;
        }
        if (parse_span(*s == '-' ? s + 1 : s, &span) >= 0) {
                *ret_nsec = now - MIN(now, span);
                return 0;
        }

        if (*s == '@') {
                int r = strspn(s + 1, "0123456789.") == strlen(s + 1) ? parse_span(s + 1, &span) : -EINVAL;

                if (r < 0)
                        return r;
                *ret_nsec = span;
                return span > now ? -ERANGE : 0;
        }

        if (!localtime_r(&t, &today))
                return -EINVAL;
        today.tm_hour = today.tm_min = today.tm_sec = 0;
        today.tm_isdst = -1;
        tm = today;

        if (streq(s, "yesterday"))
                tm.tm_mday--;
        else if (!streq(s, "today")) {
                bool found = false;

                for (size_t i = 0; i < ELEMENTSOF(formats) && !found; i++) {
                        struct tm day;

                        tm = today;
                        end = strptime(s, formats[i], &tm);
                        if (!end || *end)
                                continue;

                        /* mktime() would normalize the 31st of February */
                        day = tm;
                        day.tm_hour = 12;
                        found = mktime(&day) != (time_t) -1 && day.tm_mday == tm.tm_mday;
                }
                if (!found)
                        return -EINVAL;
        }

        tm.tm_isdst = -1;
        then = mktime(&tm);
        if (then < 0)
                return -EINVAL;
        *ret_nsec = (uint64_t) then * NSEC_PER_SEC;
        return *ret_nsec > now ? -ERANGE : 0;
}

/* Decodes a UTF-8 character. Returns its length, or 0 if invalid. */
static size_t utf8_next(const char *s, uint32_t *ret) {
        const unsigned char *p = (const unsigned char*) s;
        uint32_t c, least;
        size_t n;

        if (p[0] < 0x80) {
                *ret = p[0];
                return 1;
        }

        if ((p[0] & 0xe0) == 0xc0) {
                n = 2, c = p[0] & 0x1f, least = 0x80;
        } else if ((p[0] & 0xf0) == 0xe0) {
                n = 3, c = p[0] & 0x0f, least = 0x800;
        } else if ((p[0] & 0xf8) == 0xf0) {
                n = 4, c = p[0] & 0x07, least = 0x10000;
        } else
                return 0;

        for (size_t i = 1; i < n; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                c = (c << 6) | (p[i] & 0x3f);
        }

        if (c < least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
                return 0;

        *ret = c;
        return n;
}

/* Columns and bytes of the character at s. */
static size_t char_width(const char *s, size_t *ret_length) {
        uint32_t c;
        size_t n;
        int w;

        /* A color sequence, as other control characters are escaped */
        if (*s == '\x1b') {
                n = strcspn(s, "m");
                *ret_length = n + (s[n] == 'm');
                return 0;
        }

        n = utf8_next(s, &c);
        if (n == 0) {
                *ret_length = 1;
                return 1;
        }

        *ret_length = n;
        w = n == 1 ? 1 : wcwidth((wchar_t) c);
        return w < 0 ? 1 : (size_t) w;
}

size_t text_width(const char *s) {
        size_t width = 0;

        for (size_t n; *s; s += n)
                width += char_width(s, &n);

        return width;
}

/* Characters that make different names look equal, or change the text beside them: zero-width characters,
 * bidirectional controls, line separators, the byte order mark. */
static bool is_invisible(uint32_t c) {
        return c == 0xad || c == 0x61c || c == 0x180e || (c >= 0x200b && c <= 0x200f) ||
               (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
               (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe007f);
}

char* text_clean(const char *s, bool utf8) {
        char *t, *p;

        /* A byte becomes at most "\xff", a letter of n bytes at most 4 n. */
        t = p = new0(char, 4 * strlen(s) + 1);
        if (!t)
                return NULL;

        while (*s) {
                uint32_t c;
                size_t n;

                n = utf8_next(s, &c);
                /* C0, DEL and C1 control the terminal */
                if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0)) {
                        n = n ?: 1;
                        for (size_t i = 0; i < n; i++)
                                p += sprintf(p, "\\x%02x", (unsigned char) s[i]);
                } else if (n > 1 && utf8 && is_invisible(c))
                        p += sprintf(p, "\\u%04x", c);
                else if (n > 1 && !utf8)
                        *p++ = '?';
                else
                        p = mempcpy(p, s, n);
                s += n;
        }

        *p = 0;
        return t;
}

char* text_ellipsize(const char *s, size_t width, bool utf8) {
        const char *dots = utf8 ? "\xe2\x80\xa6" : "...";
        size_t total = text_width(s), room, head, w = 0;
        const char *a = s, *b;
        char *t;

        if (total <= width)
                return strdup(s);

        /* Not enough space for more than the ellipsis */
        if (width <= text_width(dots))
                return strndup(utf8 && width > 0 ? dots : "...", utf8 && width > 0 ? strlen(dots) : width);

        room = width - text_width(dots);
        head = room - room / 3;

        for (size_t n; *a; a += n) {
                size_t c = char_width(a, &n);

                if (w + c > head)
                        break;
                w += c;
        }

        b = a;
        for (size_t n, left = total - w; *b && left > room - w; b += n)
                left -= MIN(char_width(b, &n), left);

        if (asprintf(&t, "%.*s%s%s", (int) (a - s), s, dots, b) < 0)
                return NULL;
        return t;
}

size_t text_wrap(const char *s, size_t width) {
        size_t w = 0, space = 0;
        const char *p = s;

        for (size_t n; *p; p += n) {
                size_t c = char_width(p, &n);

                if (*p == ' ')
                        space = (size_t) (p - s);
                if (w + c > width && p > s)
                        return space ?: (size_t) (p - s);
                w += c;
        }

        return (size_t) (p - s);
}

char* text_bar(double share, size_t width, bool utf8) {
        static const char *const eighths[] = {
                "", "\xe2\x96\x8f", "\xe2\x96\x8e", "\xe2\x96\x8d",
                "\xe2\x96\x8c", "\xe2\x96\x8b", "\xe2\x96\x8a", "\xe2\x96\x89",
        };
        size_t n, full;
        char *t, *p;

        /* Non-zero shares get the thinnest bar at least */
        share = isfinite(share) ? fmin(fmax(share, 0), 1) : 0;
        n = (size_t) ceil(share * (double) width * 8 - 1e-9);
        full = n / 8;

        t = p = new0(char, 3 * width + 1);
        if (!t)
                return NULL;

        if (!utf8) {
                memset(p, '#', (n + 7) / 8);
                return t;
        }

        for (size_t i = 0; i < full; i++)
                p = stpcpy(p, "\xe2\x96\x88");
        (void) stpcpy(p, eighths[n % 8]);
        return t;
}
