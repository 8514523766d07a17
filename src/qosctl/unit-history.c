/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "qosctl.h"
#include "unit-history.h"
#include "unit-names.h"
#include "value.h"

/* More than a day of 10 s: the clock was set. */
#define SLOTS_MAX 16384U

static int steps_end_until(sd_json_variant **reply, uint64_t until) {
        _cleanup_json_ sd_json_variant *kept = NULL;
        sd_json_variant *steps = value_find(*reply, "steps");
        int r;

        if (!steps || !sd_json_variant_is_array(steps))
                return -EBADMSG;
        r = sd_json_variant_new_array(&kept, NULL, 0);
        for (size_t i = 0; r >= 0 && i < sd_json_variant_elements(steps); i++) {
                sd_json_variant *s = sd_json_variant_by_index(steps, i);
                uint64_t at;

                if (value_time(s, "timestamp", &at) && at < until)
                        r = sd_json_variant_append_array(&kept, s);
        }
        return r < 0 ? r : sd_json_variant_set_field(reply, "steps", kept);
}

int history_get(Client *c, const char *unit, char **metrics, Replies *ret) {
        int r;

        r = client_callbo(c, QOS_METHOD("History"), ret,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(!!metrics, "metrics", SD_JSON_BUILD_STRV(metrics)),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_since != SINCE_UNSET, "since",
                                                       SD_JSON_BUILD_UNSIGNED(arg_since / NSEC_PER_USEC)));
        if (r != 0)
                return unit_read_fail(r, ret, unit);
        if (arg_until == SINCE_UNSET)
                return STATUS_OK;
        r = steps_end_until(&ret->items[0], arg_until);
        return r < 0 ? client_fail(r, ret, "read the history of '%s'", unit) : STATUS_OK;
}

void history_time_done(HistoryTime *t) {
        free(t->observed);
        t->observed = NULL;
}

static size_t find_slot(const HistoryTime *t, sd_json_variant *step) {
        uint64_t at = t->begin;

        (void) value_time(step, "timestamp", &at);
        return MIN((size_t) ((at - t->begin + t->step / 2) / t->step), t->slots - 1);
}

int history_time_make(sd_json_variant *reply, HistoryTime *ret) {
        sd_json_variant *steps = value_find(reply, "steps");
        HistoryTime t;
        uint64_t begin = UINT64_MAX, end = 0, step = 0;

        if (!steps || !sd_json_variant_is_array(steps) || !value_unsigned(reply, "step", &step) || step == 0)
                return -EBADMSG;
        if (sd_json_variant_elements(steps) == 0)
                return -ENODATA;
        for (size_t i = 0; i < sd_json_variant_elements(steps); i++) {
                uint64_t at;

                if (!value_time(sd_json_variant_by_index(steps, i), "timestamp", &at))
                        return -EBADMSG;
                begin = MIN(begin, at);
                end = MAX(end, at);
        }
        if ((end - begin) / step >= SLOTS_MAX)
                return -ERANGE;
        t = (HistoryTime) { .begin = begin, .step = step };
        t.slots = (size_t) ((end - begin + step / 2) / step) + 1;
        t.observed = new0(bool, t.slots);
        if (!t.observed)
                return -ENOMEM;
        for (size_t i = 0; i < sd_json_variant_elements(steps); i++)
                t.observed[find_slot(&t, sd_json_variant_by_index(steps, i))] = true;
        *ret = t;
        return 0;
}

/* What is read of each step; NAN: nothing. */
typedef double (*StepValue)(sd_json_variant *step, const char *metric);

static double* collect(sd_json_variant *reply, const HistoryTime *time, StepValue get, const char *metric) {
        sd_json_variant *steps = value_find(reply, "steps");
        double *values;

        values = new0(double, time->slots);
        if (!values)
                return NULL;
        for (size_t i = 0; i < time->slots; i++)
                values[i] = NAN;
        for (size_t i = 0; i < sd_json_variant_elements(steps); i++) {
                sd_json_variant *s = sd_json_variant_by_index(steps, i);

                values[find_slot(time, s)] = get(s, metric);
        }
        return values;
}

static double step_get_value(sd_json_variant *step, const char *metric) {
        sd_json_variant *values = value_find(step, "values"), *v;
        double d;

        if (value_real(step, metric, &d))
                return d;
        /* Of a file system or a custom probe */
        v = values ? sd_json_variant_by_key(values, metric) : NULL;
        return v && sd_json_variant_is_number(v) ? sd_json_variant_real(v) : NAN;
}

double* history_get_series(sd_json_variant *reply, const HistoryTime *time, const char *metric) {
        return collect(reply, time, step_get_value, metric);
}

double history_step_get_errors(sd_json_variant *step) {
        sd_json_variant *errors = value_find(step, "requests.server.errors");
        uint64_t n = 0, covered = 0;

        if (!errors || !value_unsigned(step, "covered", &covered) || covered == 0)
                return NAN;
        for (size_t i = 1; i < sd_json_variant_elements(errors); i += 2) {
                sd_json_variant *v = sd_json_variant_by_index(errors, i);

                n += sd_json_variant_is_unsigned(v) ? sd_json_variant_unsigned(v) : 0;
        }
        return (double) n * (double) NSEC_PER_SEC / (double) covered;
}

static double step_get_errors(sd_json_variant *step, const char *metric) {
        return history_step_get_errors(step);
}

double* history_get_errors(sd_json_variant *reply, const HistoryTime *time) {
        return collect(reply, time, step_get_errors, NULL);
}
