/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Shared by the files of the history. */

#include "history.h"
#include "util.h"
#include "window.h"

/* Upper bound of a record: 6 and HISTORY_VALUES_MAX numbers, three bitmaps, the amounts, for each
 * distribution two numbers plus count, run and gap per bin, the file systems, and custom metrics. */
#define RECORD_MAX (10 * (6 + HISTORY_VALUES_MAX + HISTORY_DISTRIBUTIONS * (3 + 3 * WINDOW_BINS_MAX)) + 1 + \
                    2 * BITMAP_SIZE + \
                    10 + AMOUNTS_BITMAP_SIZE + 2 * _HISTORY_AMOUNT_MAX + 1 + \
                    HISTORY_MOUNTS_MAX * MOUNT_SIZE_MAX + 1 + HISTORY_CUSTOM_MAX * CUSTOM_SIZE_MAX)
#define AMOUNTS_BITMAP_SIZE ((_HISTORY_AMOUNT_MAX + 7) / 8)

/* Of bins, without their sum and maximum: a number for each, and for the gap and the length of runs, which
 * are apart by two bins or more and so take less than all bins in one run. */
#define BINS_SIZE_MAX(n) (10 * ((n) + 1))

/* Of a file system: identity, bitmap, numbers and bins. */
#define MOUNT_NUMBERS (QOS_MOUNT_WORDS + QOS_MOUNT_TIMED)
#define MOUNT_BITMAP_SIZE ((MOUNT_NUMBERS + 7) / 8)
#define MOUNT_SIZE_MAX (8 + MOUNT_BITMAP_SIZE + \
                        10 * MOUNT_NUMBERS + BINS_SIZE_MAX(QOS_MOUNT_TIMED * QOS_MOUNT_BINS))

/* Of a custom metric: identity, type, numbers, bins, number of entries, and of each identity, number and
 * bins. */
#define CUSTOM_SIZE_MAX (8 + 1 + 10 * 2 + BINS_SIZE_MAX(WINDOW_BINS_MAX) + 1 + \
                         HISTORY_ENTRIES_MAX * (8 + 10 + BINS_SIZE_MAX(QOS_CUSTOM_OCTAVES)))

/* Flags in the schema byte: amounts, file systems, metrics of custom probes follow. The last is a bit of the
 * schema to earlier versions, which no longer accept the file then. */
#define RECORD_AMOUNTS 0x80U
#define RECORD_MOUNTS 0x10U
#define RECORD_CUSTOM 0x08U

#define RECORD_SCHEMA 0x07U
#define BITMAP_SIZE ((HISTORY_VALUES_MAX + HISTORY_DISTRIBUTIONS + 7) / 8)

struct History {
        uint8_t *data;                  /* records of 10 s, then those of 5 min, each oldest first */
        size_t allocated;
        size_t size[_HISTORY_LEVEL_MAX];
        uint64_t bare[_HISTORY_LEVEL_MAX]; /* no step before this one has entries of custom metrics */
};

/* Of the file. */
typedef struct HistoryHeader {
        uint64_t magic;
        uint64_t checksum;              /* of everything that follows */
        uint64_t catalogue;             /* hash of the catalogue: values are stored in its order */
        uint32_t generation;
        uint32_t size[_HISTORY_LEVEL_MAX];
        uint32_t _padding;
} HistoryHeader;

/* The same in all versions, as files of other ones may be full. */
#define DATA_MAX (HISTORY_SIZE_MAX - sizeof(HistoryHeader) - offsetof(History, bare))

#define HASH_INIT UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t size) {
        for (const uint8_t *p = data; size > 0; p++, size--)
                h = (h ^ *p) * UINT64_C(0x100000001b3); /* FNV-1a */
        return h;
}

typedef struct Parser {
        const uint8_t *p, *end;
        bool failed;
} Parser;

/* history-step.c */
void amounts_keep(uint64_t *amounts, const uint64_t *before);
void mounts_keep(HistoryStep *s, const HistoryStep *before);
bool metric_is_kept(const Metric *metric);
uint64_t catalogue_hash(void);
void step_coarsen(HistoryStep *s);
void step_add(HistoryStep *s, const HistoryStep *later);

/* history-custom.c */
void custom_keep(HistoryStep *s, const HistoryStep *before);
void custom_merge(HistoryStep *s, const HistoryStep *later);
/* Returns false if there are none. */
bool custom_forget_entries(HistoryStep *s);

/* history-record.c */
uint64_t get_number(Parser *in);
size_t record_write(const HistoryStep *s, HistoryLevel level, uint8_t *ret);
size_t record_length(const uint8_t *data, size_t size, const uint8_t **ret_rest);
int record_read(const uint8_t *rest, size_t size, HistoryLevel level, HistoryStep *ret);

/* history.c */
size_t history_size(const History *h);
/* Replaces length bytes at the offset, among the records of the level, by others. */
int history_splice(History *h, HistoryLevel level, size_t offset, size_t length, const uint8_t *data,
                   size_t size);
