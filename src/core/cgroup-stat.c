/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup-stat.h"
#include "util.h"

/* How old the last reading may be: the kernel adds up memory.stat over all CPUs each time. */
#define AGE_NSEC (100 * NSEC_PER_MSEC)
/* How old those that are kept are when the next one is: a second, less what the timers of those who look are early; and ten. */
#define FINE_AGE_NSEC (900 * NSEC_PER_MSEC)
#define COARSE_AGE_NSEC (9 * NSEC_PER_SEC)

/* Those of a file stand together. */
static const struct {
        const char *file;
        const char *name;
} counter_table[_USAGE_MAX] = {
        [USAGE_CPU_SOME]                = { "cpu.pressure",    "some"                    },
        [USAGE_CPU_FULL]                = { "cpu.pressure",    "full"                    },
        [USAGE_MEMORY_SOME]             = { "memory.pressure", "some"                    },
        [USAGE_MEMORY_FULL]             = { "memory.pressure", "full"                    },
        [USAGE_IO_SOME]                 = { "io.pressure",     "some"                    },
        [USAGE_IO_FULL]                 = { "io.pressure",     "full"                    },
        [USAGE_QUOTA_PERIODS]           = { "cpu.stat",        "nr_periods"              },
        [USAGE_QUOTA_THROTTLED_PERIODS] = { "cpu.stat",        "nr_throttled"            },
        [USAGE_QUOTA_THROTTLED_TIME]    = { "cpu.stat",        "throttled_usec"          },
        [USAGE_SWAP_INS]                = { "memory.stat",     "pswpin"                  },
        [USAGE_REFAULTS]                = { "memory.stat",     "workingset_refault_file" },
};

static void reading_clear(UsageReading *r, uint64_t now) {
        r->at = now;
        r->group = 0;
        for (unsigned i = 0; i < _USAGE_MAX; i++)
                r->values[i] = ABSENT;
        for (unsigned i = 0; i < _USAGE_PRESSURES; i++)
                for (unsigned k = 0; k < USAGE_AVERAGES; k++)
                        r->averages[i][k] = NAN;
}

/* "some avg10=1.00 avg60=0.50 avg300=0.10 total=12345", or "nr_periods 5" */
static void line_parse(const char *file, const char *line, UsageReading *r) {
        double averages[USAGE_AVERAGES];
        unsigned long long value;
        char name[64];
        bool pressure;

        pressure = sscanf(line, "%63s avg10=%lf avg60=%lf avg300=%lf total=%llu", name, averages, averages + 1, averages + 2, &value) == 5;
        if (!pressure && sscanf(line, "%63s %llu", name, &value) != 2)
                return;

        for (unsigned i = 0; i < _USAGE_MAX; i++) {
                if (!streq(counter_table[i].file, file) || !streq(counter_table[i].name, name) || pressure != (i < _USAGE_PRESSURES))
                        continue;
                r->values[i] = value;
                for (unsigned k = 0; pressure && k < USAGE_AVERAGES; k++)
                        r->averages[i][k] = averages[k] / 100;
        }
}

void usage_parse(const char *file, const char *text, UsageReading *r) {
        assert(file);
        assert(text);
        assert(r);

        while (*text) {
                size_t n = strcspn(text, "\n");
                char line[128];

                (void) snprintf(line, sizeof(line), "%.*s", (int) MIN(n, sizeof(line) - 1), text);
                line_parse(file, line, r);
                text += n + (text[n] == '\n');
        }
}

void usage_read(const char *control_group, bool memory, uint64_t now, UsageReading *ret) {
        /* The largest, memory.stat, has some 2 KiB */
        char path[PATH_MAX], text[8192];
        struct stat st;

        assert(ret);

        reading_clear(ret, now);
        if (!control_group ||
            snprintf(path, sizeof(path), "/sys/fs/cgroup%s", control_group) >= (int) sizeof(path) || stat(path, &st) < 0)
                return;
        ret->group = st.st_ino;

        for (unsigned i = 0; i < (memory ? _USAGE_MAX : _USAGE_MEMORY); i++) {
                _cleanup_close_ int fd = -EBADF;
                ssize_t n;

                if (i > 0 && streq(counter_table[i].file, counter_table[i - 1].file))
                        continue;
                if (snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", control_group, counter_table[i].file) >= (int) sizeof(path))
                        return;
                fd = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
                if (fd < 0)
                        continue;
                n = read(fd, text, sizeof(text) - 1); /* fails where pressure is not measured */
                if (n < 0)
                        continue;
                text[n] = 0;
                usage_parse(counter_table[i].file, text, ret);
        }
}

bool usage_is_old(const Usage *u, uint64_t now) {
        assert(u);
        return u->since == 0 || now >= u->last.at + AGE_NSEC;
}

void usage_add(Usage *u, const UsageReading *r) {
        assert(u);
        assert(r);

        for (unsigned i = 0; i < _USAGE_MAX; i++) {
                uint64_t before = u->last.values[i], value = r->values[i];

                if (u->since == 0) {
                        u->sum.values[i] = value == ABSENT ? ABSENT : 0;
                        continue;
                }
                if (value == ABSENT)
                        continue; /* the unit does not run now */
                if (u->sum.values[i] == ABSENT)
                        u->sum.values[i] = 0;
                /* A control group that is a new one has begun with 0, as what was not there before */
                u->sum.values[i] += before != ABSENT && r->group == u->last.group && value >= before ? value - before : value;
        }
        if (u->since == 0)
                u->since = r->at;
        u->last = *r;
        u->sum.at = r->at;

        if (u->n_fine == 0 || r->at >= u->fine[(u->n_fine - 1) % USAGE_FINE].at + FINE_AGE_NSEC)
                u->fine[u->n_fine++ % USAGE_FINE] = u->sum;
        if (u->n_coarse == 0 || r->at >= u->coarse[(u->n_coarse - 1) % USAGE_COARSE].at + COARSE_AGE_NSEC)
                u->coarse[u->n_coarse++ % USAGE_COARSE] = u->sum;
}

static uint64_t distance(uint64_t a, uint64_t b) {
        return a > b ? a - b : b - a;
}

static const UsageSum* nearest(const UsageSum *sums, unsigned n, uint64_t at, const UsageSum *best) {
        for (unsigned i = 0; i < n; i++)
                if (!best || distance(sums[i].at, at) < distance(best->at, at))
                        best = sums + i;
        return best;
}

int usage_get(const Usage *u, uint64_t window, UsageSum *ret) {
        static const UsageSum zero = {};
        const UsageSum *from;
        uint64_t begin;

        assert(u);
        assert(ret);

        if (u->since == 0)
                return -ENODATA;

        *ret = u->sum;
        ret->at = u->sum.at - u->since;
        if (window == WINDOW_TOTAL)
                return 0;

        begin = u->sum.at - MIN(window, u->sum.at);
        if (begin <= u->since)
                from = &zero; /* all of it */
        else {
                from = nearest(u->fine, MIN(u->n_fine, USAGE_FINE), begin, NULL);
                from = nearest(u->coarse, MIN(u->n_coarse, USAGE_COARSE), begin, from);
                if (distance(from->at, begin) > window / 6)
                        return -ENODATA;
                ret->at = u->sum.at - from->at;
        }

        for (unsigned i = 0; i < _USAGE_MAX; i++)
                if (ret->values[i] != ABSENT && from->values[i] != ABSENT)
                        ret->values[i] -= from->values[i];
        return 0;
}
