/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A unit with its snapshot over the requested window and, where that has too few samples for a quantile,
 * snapshots over longer windows. */

#include "client.h"
#include "table.h"

/* Longer windows, in this order: 60 s, 5 min, since attach. */
#define READING_WIDER_MAX 3U

typedef struct Reading {
        sd_json_variant *item;          /* reply to List: unit, attached, holds, degraded, snapshot */
        sd_json_variant *snapshot;      /* within item; NULL if the unit is not attached */
        const char *unit;               /* within item */
        struct {
                sd_json_variant *snapshot;      /* NULL if it could not be read */
                uint64_t at;                    /* CLOCK_MONOTONIC, us; 0: not read yet */
        } wider[READING_WIDER_MAX];
} Reading;

/* Replaces item by a newer reply. */
void reading_set(Reading *r, sd_json_variant *item);
void reading_done(Reading *r);

/* Value of a metric over the requested window. */
bool reading_unsigned(const Reading *r, const char *metric, uint64_t *ret);
bool reading_real(const Reading *r, const char *metric, double *ret);
/* Sum of requests.server.errors.*: events in the window, and events per second. */
bool reading_errors(const Reading *r, uint64_t *ret_count, double *ret_rate);

/* Quantile of a distribution ("requests.server.latency", "p99") over the shortest window known with enough
 * samples, and that window, 0 for since attach. */
bool reading_quantile(const Reading *r, const char *distribution, const char *quantile, uint64_t *ret,
                      uint64_t *ret_window);
/* Whether reading a longer window, not read yet or outdated, may provide the quantile. */
bool reading_wants(const Reading *r, const char *distribution, const char *quantile, uint64_t now,
                   size_t *ret_wider);
uint64_t reading_wider_window(size_t wider);
void reading_set_wider(Reading *r, size_t wider, sd_json_variant *snapshot, uint64_t now);
/* Reads the longer windows that the quantile needs. */
int reading_complete(Reading *r, Client *c, const char *distribution, const char *quantile);

/* Top wait: the thread state with the largest share of the service time of requests with known states. If
 * these are too few (of_service: false), of the time that threads were not idle while requests were in
 * flight. False: none, or unknown. */
bool reading_worst_wait(const Reading *r, const char **ret_state, double *ret_share, bool *ret_of_service);

/* Paragraphs of the status page on requests, and on phases. */
void reading_print_requests(const Reading *r);
int reading_print_phases(Reading *r, Client *c);

/* Columns of a unit's row in "list" and "top". */
extern const Column unit_columns[];
extern const size_t n_unit_columns;
/* Sort keys of "top" */
enum {
        UNIT_COLUMN_UNIT,
        UNIT_COLUMN_ACTIVE,
        UNIT_COLUMN_RATE,
        UNIT_COLUMN_ERRORS,
        UNIT_COLUMN_P50,
        UNIT_COLUMN_P99,
        UNIT_COLUMN_IN_FLIGHT,
};
void reading_add_row(const Reading *r, Table *t);
Color active_state_color(const char *state);
