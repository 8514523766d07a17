/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What is known of one unit: the reading over the window that was asked for, and, where that has too few requests
 * for a quantile, readings over longer ones. */

#include "client.h"
#include "table.h"

/* Longer windows to look into, one after the other: 60s, 5min, since attach. */
#define READING_WIDER_MAX 3U

typedef struct Reading {
        sd_json_variant *item;          /* a reply to List: unit, attached, holds, degraded, snapshot */
        sd_json_variant *snapshot;      /* the one in it, NULL if the unit is not attached; not a reference */
        const char *unit;               /* in item as well */
        struct {
                sd_json_variant *snapshot;      /* NULL if the attempt to get it failed */
                uint64_t at;                    /* CLOCK_MONOTONIC, us; 0: nobody tried */
        } wider[READING_WIDER_MAX];
} Reading;

/* Takes over a new reply about the same unit. */
void reading_set(Reading *r, sd_json_variant *item);
void reading_done(Reading *r);

/* The value of a metric over the window that was asked for. */
bool reading_unsigned(const Reading *r, const char *metric, uint64_t *ret);
bool reading_real(const Reading *r, const char *metric, double *ret);
/* requests.server.errors.*: events in the window, and per second of the time covered. */
bool reading_errors(const Reading *r, uint64_t *ret_count, double *ret_rate);

/* The quantile of a distribution ("requests.server.latency", "p99") over the shortest window that carries it and is
 * known, and that window, 0 for since attach. */
bool reading_quantile(const Reading *r, const char *distribution, const char *quantile, uint64_t *ret, uint64_t *ret_window);
/* Whether a longer window, not known yet or known for too long, may carry it. */
bool reading_wants(const Reading *r, const char *distribution, const char *quantile, uint64_t now, size_t *ret_wider);
uint64_t reading_wider_window(size_t wider);
void reading_set_wider(Reading *r, size_t wider, sd_json_variant *snapshot, uint64_t now);
/* Gets the longer windows that the quantile needs. */
int reading_complete(Reading *r, Client *c, const char *distribution, const char *quantile);

/* What held requests back most: the state of a thread, and its share of the service time of those requests whose states are known. Where these are
 * few (of_service: 0): of the time in which threads could have gone on while requests were in flight. False: nothing did, or it is not known. */
bool reading_worst_wait(const Reading *r, const char **ret_state, double *ret_share, bool *ret_of_service);

/* The paragraphs of the status page on requests, and on how long they took and in which phases. */
void reading_print_requests(const Reading *r);
int reading_print_phases(Reading *r, Client *c);

/* The table of units that "list" and "top" show: the columns of one row. */
extern const Column unit_columns[];
extern const size_t n_unit_columns;
/* Those that "top" sorts by */
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
