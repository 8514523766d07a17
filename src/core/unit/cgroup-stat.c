/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup-stat.h"
#include "util.h"

/* Maximum age of the last reading: the kernel sums up memory.stat over all CPUs each time. */
#define AGE_NSEC (100 * NSEC_PER_MSEC)
/* Intervals of stored readings: one second, and ten, minus a tolerance for early timers. */
#define FINE_AGE_NSEC (900 * NSEC_PER_MSEC)
#define COARSE_AGE_NSEC (9 * NSEC_PER_SEC)

static const char *const file_table[USAGE_FILES] = { "cpu.pressure", "memory.pressure", "io.pressure",
                                                     "cpu.stat", "memory.stat" };

/* Sorted by file. */
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

static bool skip(const char **p, const char *prefix) {
        const char *rest = startswith(*p, prefix);

        if (rest)
                *p = rest;
        return rest;
}

static bool parse_number(const char **p, uint64_t *ret) {
        const char *begin = *p;

        for (*ret = 0; **p >= '0' && **p <= '9'; (*p)++)
                *ret = *ret * 10 + (uint64_t) (**p - '0');
        return *p > begin;
}

/* Parses "12.50". Numerator and denominator are exact, so that the quotient equals the result of strtod(),
 * in a tenth of the time. */
static bool parse_decimal(const char **p, double *ret) {
        uint64_t n, scale = 1;

        if (!parse_number(p, &n))
                return false;
        if (**p == '.')
                for ((*p)++; **p >= '0' && **p <= '9' && scale < 1000000; (*p)++, scale *= 10)
                        n = n * 10 + (uint64_t) (**p - '0');
        *ret = (double) n / (double) scale;
        return true;
}

/* Parses "some avg10=1.00 avg60=0.50 avg300=0.10 total=12345" or "nr_periods 5". */
static void line_parse(const char *file, const char *line, UsageReading *r) {
        size_t l = strcspn(line, " \n");
        const char *p = line + l;
        double averages[USAGE_AVERAGES];
        uint64_t value;
        bool pressure;

        pressure = skip(&p, " avg10=");
        if (pressure ? !parse_decimal(&p, averages) || !skip(&p, " avg60=") ||
            !parse_decimal(&p, averages + 1) || !skip(&p, " avg300=") ||
                       !parse_decimal(&p, averages + 2) || !skip(&p, " total=") ||
                       !parse_number(&p, &value) :
                       !skip(&p, " ") || !parse_number(&p, &value))
                return;

        for (unsigned i = 0; i < _USAGE_MAX; i++) {
                if (strncmp(counter_table[i].name, line, l) != 0 || counter_table[i].name[l] ||
                    !streq(counter_table[i].file, file) ||
                    pressure != (i < _USAGE_PRESSURES))
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
                line_parse(file, text, r);
                text += strcspn(text, "\n");
                text += *text == '\n';
        }
}

static void files_close(UsageFiles *f) {
        for (unsigned i = 0; i < USAGE_FILES && f->control_group; i++)
                if (f->fds[i] >= 0)
                        (void) close(f->fds[i]);
        free(f->control_group);
        f->control_group = NULL;
}

/* Fails if the control group does not exist. */
static int files_open(UsageFiles *f, const char *control_group) {
        char path[PATH_MAX];
        struct stat st;

        if (snprintf(path, sizeof(path), "/sys/fs/cgroup%s", control_group) >= (int) sizeof(path))
                return -ENAMETOOLONG;
        if (stat(path, &st) < 0)
                return -errno;
        f->control_group = strdup(control_group);
        if (!f->control_group)
                return -ENOMEM;
        f->group = st.st_ino;
        for (unsigned i = 0; i < USAGE_FILES; i++)
                f->fds[i] = -EBADF;
        return 0;
}

/* -ENODEV: the control group was removed, even if another one has its path. */
static int file_read(UsageFiles *f, unsigned i, UsageReading *ret) {
        /* memory.stat is the largest, with some 2 KiB */
        char path[PATH_MAX], text[8192];
        ssize_t n;

        if (f->fds[i] < 0) {
                if (snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", f->control_group,
                             file_table[i]) >= (int) sizeof(path))
                        return -ENAMETOOLONG;
                f->fds[i] = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY);
                if (f->fds[i] < 0)
                        return 0;
        }
        n = pread(f->fds[i], text, sizeof(text) - 1, 0); /* fails if pressure is disabled */
        if (n < 0)
                return errno == ENODEV ? -ENODEV : 0;
        text[n] = 0;
        usage_parse(file_table[i], text, ret);
        return 0;
}

void usage_read(UsageFiles *f, const char *control_group, bool memory, uint64_t now, UsageReading *ret) {
        assert(f);
        assert(ret);

        if (f->control_group && !streq_ptr(f->control_group, control_group))
                files_close(f);

        /* Reopen once if the path belongs to another control group now */
        for (unsigned try = 0; try < 2; try++) {
                int r = 0;

                reading_clear(ret, now);
                if (!control_group || (!f->control_group && files_open(f, control_group) < 0))
                        return;
                ret->group = f->group;
                for (unsigned i = 0; i < USAGE_FILES - !memory && r >= 0; i++)
                        r = file_read(f, i, ret);
                if (r >= 0)
                        return;
                files_close(f);
        }
        reading_clear(ret, now);
}

Usage* usage_free(Usage *u) {
        if (u)
                files_close(&u->files);
        free(u);
        return NULL;
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
                        continue; /* the unit is inactive */
                if (u->sum.values[i] == ABSENT)
                        u->sum.values[i] = 0;
                /* Counters of a new control group, and new counters, start from 0 */
                u->sum.values[i] += before != ABSENT && r->group == u->last.group &&
                                    value >= before ? value - before : value;
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
                from = &zero; /* since the first reading */
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
