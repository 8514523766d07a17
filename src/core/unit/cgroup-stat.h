/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Statistics of a control group from the kernel's files: pressure, CPU quota and memory. The files have
 * totals; windows are differences to stored readings. Files are read along with snapshots and the history,
 * without a timer of their own. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot.h"

typedef enum UsageCounter {
        USAGE_CPU_SOME,                 /* pressure, us */
        USAGE_CPU_FULL,
        USAGE_MEMORY_SOME,
        USAGE_MEMORY_FULL,
        USAGE_IO_SOME,
        USAGE_IO_FULL,
        USAGE_QUOTA_PERIODS,
        USAGE_QUOTA_THROTTLED_PERIODS,
        USAGE_QUOTA_THROTTLED_TIME,     /* us */
        USAGE_SWAP_INS,
        USAGE_REFAULTS,
        _USAGE_MAX,
        _USAGE_PRESSURES = USAGE_QUOTA_PERIODS,
        _USAGE_MEMORY = USAGE_SWAP_INS, /* counters from here on are expensive for the kernel to sum up */
} UsageCounter;

/* The kernel's averages of pressure: 10 s, 60 s, 5 min. */
#define USAGE_AVERAGES 3U

/* ABSENT: not provided by the kernel, or controller not enabled. */
typedef struct UsageReading {
        uint64_t at;                    /* CLOCK_MONOTONIC ns; 0: none */
        uint64_t group;                 /* inode number of the control group; 0: none */
        uint64_t values[_USAGE_MAX];
        double averages[_USAGE_PRESSURES][USAGE_AVERAGES]; /* 0 … 1; NaN: none */
} UsageReading;

/* Counters since the first reading, summed over restarts of the unit. */
typedef struct UsageSum {
        uint64_t at;
        uint64_t values[_USAGE_MAX];
} UsageSum;

/* Readings about one second apart for short windows, about ten seconds apart for those of 60 s and 5 min. */
#define USAGE_FINE 16U
#define USAGE_COARSE 40U

/* Files that are kept open, as opening takes three times as long as reading. */
#define USAGE_FILES 5U
typedef struct UsageFiles {
        char *control_group;            /* NULL: not open */
        uint64_t group;                 /* as in UsageReading */
        int fds[USAGE_FILES];           /* negative: does not exist */
} UsageFiles;

typedef struct Usage {
        UsageFiles files;
        uint64_t since;                 /* of the first reading */
        UsageReading last;
        UsageSum sum;
        UsageSum fine[USAGE_FINE], coarse[USAGE_COARSE];
        unsigned n_fine, n_coarse;      /* number ever stored */
} Usage;

/* Parses the contents of a file. */
void usage_parse(const char *file, const char *text, UsageReading *r);

/* Reads the files; memory: including expensive ones. */
void usage_read(UsageFiles *files, const char *control_group, bool memory, uint64_t now, UsageReading *ret);

Usage* usage_free(Usage *u);

/* Whether the last reading is too old. */
bool usage_is_old(const Usage *u, uint64_t now);
void usage_add(Usage *u, const UsageReading *r);

/* Counters over a window, and in ret->at the time covered in ns, which may differ by a sixth. -ENODATA: no
 * reading from the beginning of the window. */
int usage_get(const Usage *u, uint64_t window, UsageSum *ret);
