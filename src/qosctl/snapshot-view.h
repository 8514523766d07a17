/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A unit with its snapshot over the requested window, and with snapshots over longer windows for quantiles
 * that have too few samples in that. */

#include "client.h"
#include "table.h"

/* Number of longer windows: 60 s, 5 min, since the attach. */
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

/* Replaces the item by a newer reply, to which it takes a reference. */
void reading_set(Reading *r, sd_json_variant *item);
void reading_done(Reading *r);

/* Return the value of a metric over the requested window. False: it has no value. */
bool reading_unsigned(const Reading *r, const char *metric, uint64_t *ret);
bool reading_real(const Reading *r, const char *metric, double *ret);
/* Returns the sum of requests.server.errors.*, and the same per second. False: not measured. */
bool reading_errors(const Reading *r, uint64_t *ret_count, double *ret_rate);

/* Returns the quantile of a distribution ("requests.server.latency", "p99") over the shortest window that
 * was read and has enough samples. ret_window: this window in ns; 0: since the attach. */
bool reading_quantile(const Reading *r, const char *distribution, const char *quantile, uint64_t *ret,
                      uint64_t *ret_window);
/* Whether a longer window, which was not read yet or is outdated, may provide the quantile. now:
 * CLOCK_MONOTONIC us. ret_wider: index of the window to read. */
bool reading_wants(const Reading *r, const char *distribution, const char *quantile, uint64_t now,
                   size_t *ret_wider);
uint64_t reading_wider_window(size_t wider);
void reading_set_wider(Reading *r, size_t wider, sd_json_variant *snapshot, uint64_t now);
/* Reads longer windows until there is a value of the quantile. Returns a negative errno, which is logged. */
int reading_complete(Reading *r, Client *c, const char *distribution, const char *quantile);

/* Returns the top wait: the thread state with the largest share in the service time of requests with known
 * states or, if these are too few (of_service: false), in the time that threads were not idle while requests
 * were in flight. False: none, or unknown. */
bool reading_worst_wait(const Reading *r, const char **ret_state, double *ret_share, bool *ret_of_service);

/* Print the paragraphs of the status page on requests and on their phases. */
void reading_print_requests(const Reading *r);
int reading_print_phases(Reading *r, Client *c);

/* Columns of reading_add_row(). */
extern const Column unit_columns[];
extern const size_t n_unit_columns;
/* Sort keys of "top": indexes in unit_columns. */
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
