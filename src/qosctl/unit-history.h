/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The recorded history of a unit, and its metrics as series of numbers. */

#include "client.h"

/* Gets the steps between --since= and --until=; metrics NULL: all of them. Returns an exit status, and
 * logs. */
int history_get(Client *c, const char *unit, char **metrics, Replies *ret);

/* The time from the first step to the last one, in slots of the length of a step. */
typedef struct HistoryTime {
        uint64_t begin, step;   /* ns since 1970, ns */
        size_t slots;
        bool *observed;         /* by slot */
} HistoryTime;

void history_time_done(HistoryTime *t);
/* -ENODATA: there is no step; -EBADMSG: the reply is invalid; -ERANGE: the clock was set by more than a day
 * meanwhile. */
int history_time_make(sd_json_variant *reply, HistoryTime *ret);

/* The numbers of a metric by slot; NAN: absent. The caller frees them. NULL: out of
 * memory. */
double* history_get_series(sd_json_variant *reply, const HistoryTime *time, const char *metric);

/* Sum of requests.server.errors.*, per second; NAN: absent. */
double history_step_get_errors(sd_json_variant *step);
double* history_get_errors(sd_json_variant *reply, const HistoryTime *time);
