/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What the kernel itself counts for a unit's control group, in its files: pressure, CPU quota, and some of
 * its memory. The files have totals; what a window had is the difference to a reading of when it began, of
 * which some are kept. They are read when somebody looks at the unit, and when its history is collected:
 * nobody is woken for them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot.h"

typedef enum UsageCounter {
        USAGE_CPU_SOME,                 /* pressure: microseconds */
        USAGE_CPU_FULL,
        USAGE_MEMORY_SOME,
        USAGE_MEMORY_FULL,
        USAGE_IO_SOME,
        USAGE_IO_FULL,
        USAGE_QUOTA_PERIODS,
        USAGE_QUOTA_THROTTLED_PERIODS,
        USAGE_QUOTA_THROTTLED_TIME,     /* microseconds */
        USAGE_SWAP_INS,
        USAGE_REFAULTS,
        _USAGE_MAX,
        _USAGE_PRESSURES = USAGE_QUOTA_PERIODS,
        _USAGE_MEMORY = USAGE_SWAP_INS, /* from here on: what takes the kernel a while to add up */
} UsageCounter;

/* The kernel's own averages of pressure: 10 s, 60 s, 5 min. */
#define USAGE_AVERAGES 3U

/* ABSENT: the kernel has not got it, or it is not switched on for the unit. */
typedef struct UsageReading {
        uint64_t at;                    /* CLOCK_MONOTONIC ns; 0: none */
        uint64_t group;                 /* the control group, as its inode; 0: none */
        uint64_t values[_USAGE_MAX];
        double averages[_USAGE_PRESSURES][USAGE_AVERAGES]; /* 0 … 1; NaN: none */
} UsageReading;

/* What was counted since the first reading, over restarts of the unit. */
typedef struct UsageSum {
        uint64_t at;
        uint64_t values[_USAGE_MAX];
} UsageSum;

/* Sums of about each second for the short windows, of about each ten for those of 60 s and 5 min. */
#define USAGE_FINE 16U
#define USAGE_COARSE 40U

/* The files, which are kept open: to find them by their paths takes three times as long as to read them. */
#define USAGE_FILES 5U
typedef struct UsageFiles {
        char *control_group;            /* NULL: none is open */
        uint64_t group;                 /* as in UsageReading */
        int fds[USAGE_FILES];           /* negative: not there */
} UsageFiles;

typedef struct Usage {
        UsageFiles files;
        uint64_t since;                 /* of the first reading */
        UsageReading last;
        UsageSum sum;
        UsageSum fine[USAGE_FINE], coarse[USAGE_COARSE];
        unsigned n_fine, n_coarse;      /* that were written in all */
} Usage;

/* Takes over what a file says. */
void usage_parse(const char *file, const char *text, UsageReading *r);

/* Reads the files; memory: also those that take long. */
void usage_read(UsageFiles *files, const char *control_group, bool memory, uint64_t now, UsageReading *ret);

Usage* usage_free(Usage *u);

/* Whether it is time for another reading. */
bool usage_is_old(const Usage *u, uint64_t now);
void usage_add(Usage *u, const UsageReading *r);

/* What was counted in the window, and in ret->at over how many ns: up to a sixth more or less. -ENODATA:
 * nobody looked when the window began. */
int usage_get(const Usage *u, uint64_t window, UsageSum *ret);
