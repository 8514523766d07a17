/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroup-stat.h"
#include "check.h"
#include "util.h"

static UsageReading reading(uint64_t at) {
        UsageReading r;

        usage_read(&(UsageFiles) {}, NULL, false, at, &r);
        return r;
}

static void test_parse(void) {
        UsageReading r = reading(1);

        for (unsigned i = 0; i < _USAGE_MAX; i++)
                check(r.values[i] == ABSENT);

        usage_parse("memory.pressure",
                    "some avg10=12.50 avg60=0.10 avg300=100.00 total=987654321\nfull avg10=0.00 avg60=0.00 "
                    "avg300=0.00 total=5\n", &r);
        check(r.values[USAGE_MEMORY_SOME] == 987654321 && r.values[USAGE_MEMORY_FULL] == 5);
        check(fabs(r.averages[USAGE_MEMORY_SOME][0] - 0.125) < 1e-9 &&
              fabs(r.averages[USAGE_MEMORY_SOME][2] - 1) < 1e-9);
        check(r.values[USAGE_CPU_SOME] == ABSENT && isnan(r.averages[USAGE_CPU_SOME][0]));

        usage_parse("cpu.stat",
                    "usage_usec 1\nnr_periods 7\nnr_throttled 3\nthrottled_usec 4000\nnr_throttled_more 9",
                    &r);
        check(r.values[USAGE_QUOTA_PERIODS] == 7 && r.values[USAGE_QUOTA_THROTTLED_PERIODS] == 3 &&
              r.values[USAGE_QUOTA_THROTTLED_TIME] == 4000);

        /* Names of other files, and what is no line of either kind */
        usage_parse("memory.stat", "nr_periods 100\npswpin 8\nworkingset_refault_file\n\nsome total=4", &r);
        check(r.values[USAGE_QUOTA_PERIODS] == 7 && r.values[USAGE_SWAP_INS] == 8 &&
              r.values[USAGE_REFAULTS] == ABSENT);
}

static void test_windows(void) {
        Usage u = {};
        UsageSum s;

        check(usage_get(&u, WINDOW_TOTAL, &s) == -ENODATA);

        /* Each second for an hour: 10 periods in each, on top of what there was before */
        for (uint64_t i = 0; i <= 3600; i++) {
                UsageReading r = reading((1000 + i) * NSEC_PER_SEC - NSEC_PER_SEC / 2);

                /* Somebody looks more often now and then */
                r.values[USAGE_QUOTA_PERIODS] = 5000 + 10 * (i - (i > 0));
                if (i > 0)
                        usage_add(&u, &r);
                r.at += NSEC_PER_SEC / 2;

                check(usage_is_old(&u, r.at));
                r.values[USAGE_QUOTA_PERIODS] = 5000 + 10 * i;
                usage_add(&u, &r);
                check(!usage_is_old(&u, r.at + NSEC_PER_SEC / 20));

                if (i == 5) { /* younger than the window: all of it */
                        check(usage_get(&u, 10 * NSEC_PER_SEC, &s) >= 0);
                        check(s.values[USAGE_QUOTA_PERIODS] == 50 && s.at == 5 * NSEC_PER_SEC);
                }
        }
        check(usage_get(&u, WINDOW_TOTAL, &s) >= 0);
        check(s.values[USAGE_QUOTA_PERIODS] == 36000 && s.at == 3600 * NSEC_PER_SEC);
        check(s.values[USAGE_CPU_SOME] == ABSENT);
        for (uint64_t window = 1; window <= 300; window = window == 1 ? 10 : window == 10 ? 60 :
             window * 5) {
                check(usage_get(&u, window * NSEC_PER_SEC, &s) >= 0);
                check(s.at >= window * NSEC_PER_SEC * 5 / 6 && s.at <= window * NSEC_PER_SEC * 7 / 6);
                check(s.values[USAGE_QUOTA_PERIODS] == s.at / NSEC_PER_SEC * 10);
        }
}

/* Nobody looks for a while: what is not known is not said. */
static void test_gap(void) {
        UsageReading r = reading(1000 * NSEC_PER_SEC);
        Usage u = {};
        UsageSum s;

        r.values[USAGE_CPU_SOME] = 100;
        usage_add(&u, &r);
        r.at += 200 * NSEC_PER_SEC;
        r.values[USAGE_CPU_SOME] = 700;
        usage_add(&u, &r);
        check(usage_get(&u, 10 * NSEC_PER_SEC, &s) == -ENODATA);
        check(usage_get(&u, 60 * NSEC_PER_SEC, &s) == -ENODATA);
        check(usage_get(&u, 300 * NSEC_PER_SEC, &s) >= 0 && s.values[USAGE_CPU_SOME] == 600);
        r.at += 10 * NSEC_PER_SEC;
        r.values[USAGE_CPU_SOME] = 705;
        usage_add(&u, &r);
        check(usage_get(&u, 10 * NSEC_PER_SEC, &s) >= 0 && s.values[USAGE_CPU_SOME] == 5);
}

/* A unit that is restarted has a new control group, and one that does not run has none. */
static void test_restart(void) {
        UsageReading r = reading(1000 * NSEC_PER_SEC);
        Usage u = {};
        UsageSum s;

        r.group = 7;
        r.values[USAGE_CPU_SOME] = 100;
        usage_add(&u, &r);
        r = reading(1001 * NSEC_PER_SEC);
        r.group = 8;                            /* another one, of which there is more already */
        r.values[USAGE_CPU_SOME] = 130;
        r.values[USAGE_REFAULTS] = 4;           /* there only now */
        usage_add(&u, &r);
        r = reading(1002 * NSEC_PER_SEC);       /* stopped */
        usage_add(&u, &r);
        r = reading(1003 * NSEC_PER_SEC);
        r.group = 9;
        r.values[USAGE_CPU_SOME] = 50;          /* started */
        usage_add(&u, &r);
        check(usage_get(&u, WINDOW_TOTAL, &s) >= 0);
        check(s.values[USAGE_CPU_SOME] == 180 && s.values[USAGE_REFAULTS] == 4);
}

/* Files that are open while their control group is removed, and another one gets its path. */
static void test_made_again(void) {
        char line[PATH_MAX + 8], own[PATH_MAX] = "", group[PATH_MAX + 64], path[PATH_MAX + 128];
        FILE *f = fopen("/proc/self/cgroup", "re");
        UsageReading before, gone, after;
        UsageFiles files = {};
        struct stat st;

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "0::%4095s", own) == 1)
                        break;
        if (f)
                (void) fclose(f);
        (void) snprintf(group, sizeof(group), "%s/test-cgroup-stat-%d", streq(own, "/") ? "" : own,
                        (int) getpid());
        (void) snprintf(path, sizeof(path), "/sys/fs/cgroup%s", group);
        if (isempty(own) || mkdir(path, 0755) < 0) {
                fprintf(stderr, "Control groups cannot be made here, what happens when they are removed is "
                                "not tested.\n");
                return;
        }

        check(stat(path, &st) == 0);
        usage_read(&files, group, true, 1, &before);
        check(before.group == st.st_ino);
        check(rmdir(path) == 0);
        check(mkdir(path, 0755) == 0);
        check(stat(path, &st) == 0 && st.st_ino != before.group);
        usage_read(&files, group, true, 2, &after);
        check(after.group == st.st_ino);
        for (unsigned i = 0; i < _USAGE_MAX; i++)
                check((after.values[i] == ABSENT) == (before.values[i] == ABSENT));

        check(rmdir(path) == 0);
        usage_read(&files, group, true, 3, &gone);
        check(gone.group == 0 && gone.values[USAGE_CPU_SOME] == ABSENT);
        usage_read(&files, NULL, true, 4, &gone);
}

int main(void) {
        test_parse();
        test_windows();
        test_gap();
        test_restart();
        test_made_again();
        return EXIT_SUCCESS;
}
