/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "diagnosis-json.h"
#include "state-label.h"
#include "util.h"

/* Rounds values of 1000 and more, which sd-json would format as "1.363348000000000000000e+06"; the fraction
 * is insignificant in all of these figures. */
static int real_to_json(const char *name, double value, sd_json_variant **v) {
        if (!isfinite(value))
                return 0;
        return value >= 1000 ?
               sd_json_variant_set_fieldb(v, name, SD_JSON_BUILD_UNSIGNED((uint64_t) llround(value))) :
               sd_json_variant_set_fieldb(v, name, SD_JSON_BUILD_REAL(value));
}

static int diagnosis_figures_to_json(const DiagnosisFigures *f, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *threads = NULL;
        int r = 0;

        for (size_t i = 0; i < diagnosis_n_figures && r >= 0; i++) {
                const DiagnosisFigure *figure = diagnosis_figures + i;
                const char *state = startswith(figure->name, "threads.");
                double value = *diagnosis_figure(f, figure);

                r = real_to_json(state ?: figure->name, value, state ? &threads : &v);
        }
        if (r >= 0 && threads)
                r = sd_json_variant_set_field(&v, "threads", threads);
        if (r >= 0 && !v)
                r = sd_json_variant_new_object(&v, NULL, 0);
        if (r < 0)
                return r;

        *ret = TAKE_PTR(v);
        return 0;
}

int diagnosis_figures_from_json(sd_json_variant *v, DiagnosisFigures *ret, const char **ret_bad) {
        sd_json_variant *threads;

        diagnosis_figures_set_absent(ret);
        *ret_bad = "threads";
        threads = sd_json_variant_by_key(v, "threads");
        if (threads && !sd_json_variant_is_object(threads))
                return -EINVAL;

        for (size_t i = 0; i < diagnosis_n_figures; i++) {
                const char *name = diagnosis_figures[i].name, *state = startswith(name, "threads.");
                sd_json_variant *one = state ? sd_json_variant_by_key(threads, state) :
                                       sd_json_variant_by_key(v, name);
                double value;

                if (!one)
                        continue;
                *ret_bad = name;
                if (!sd_json_variant_is_number(one))
                        return -EINVAL;
                value = sd_json_variant_real(one);
                if (!isfinite(value) || value < 0)
                        return -EINVAL;
                *diagnosis_figure(ret, diagnosis_figures + i) = value;
        }
        return 0;
}

static int finding_to_json(const Finding *f, sd_json_variant **ret) {
        const char *state = qos_state_to_string(f->state);
        int r;

        r = sd_json_buildo(ret,
                           SD_JSON_BUILD_PAIR_STRING("kind", finding_kind_to_string(f->kind)),
                           SD_JSON_BUILD_PAIR_STRING("text", f->text),
                           SD_JSON_BUILD_PAIR_STRING("certainty", certainty_to_string(f->certainty)),
                           SD_JSON_BUILD_PAIR_STRING("rule", f->rule),
                           SD_JSON_BUILD_PAIR_CONDITION(!isempty(f->next), "next",
                                                        SD_JSON_BUILD_STRING(f->next)),
                           SD_JSON_BUILD_PAIR_CONDITION(!!state, "state", SD_JSON_BUILD_STRING(state)),
                           SD_JSON_BUILD_PAIR_CONDITION(!isempty(f->resource), "resource",
                                                        SD_JSON_BUILD_STRING(f->resource)),
                           SD_JSON_BUILD_PAIR_CONDITION(!isempty(f->unit), "unit",
                                                        SD_JSON_BUILD_STRING(f->unit)),
                           SD_JSON_BUILD_PAIR_CONDITION(!isempty(f->mount), "mount",
                                                        SD_JSON_BUILD_STRING(f->mount)),
                           SD_JSON_BUILD_PAIR_CONDITION(isfinite(f->time), "time",
                                                        SD_JSON_BUILD_UNSIGNED(isfinite(f->time) ?
                                                                               (uint64_t) f->time : 0)));
        return r < 0 ? r : real_to_json("share", f->share, ret);
}

static int excluded_to_json(const Excluded *e, sd_json_variant **ret) {
        int r;

        r = sd_json_buildo(ret,
                           SD_JSON_BUILD_PAIR_STRING("kind", finding_kind_to_string(e->kind)),
                           SD_JSON_BUILD_PAIR_STRING("text", e->text));
        return r < 0 ? r : real_to_json("share", e->share, ret);
}

/* Appends the rows to an array. value: name of the field for their values. */
static int named_to_json(const DiagnosisNamed *table, size_t n, const char *value, sd_json_variant **ret) {
        int r = 0;

        for (size_t i = 0; i < n && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                r = sd_json_buildo(&v,
                                   SD_JSON_BUILD_PAIR_STRING("name", table[i].name),
                                   SD_JSON_BUILD_PAIR_CONDITION(!isempty(table[i].unit), "unit",
                                                                SD_JSON_BUILD_STRING(table[i].unit)),
                                   SD_JSON_BUILD_PAIR_CONDITION(!isempty(table[i].holder), "holder",
                                                                SD_JSON_BUILD_STRING(table[i].holder)));
                if (r >= 0)
                        r = real_to_json(value, table[i].value, &v);
                if (r >= 0)
                        r = real_to_json("rate", table[i].rate, &v);
                if (r >= 0 && table[i].errors > 0)
                        r = real_to_json("errors", table[i].errors, &v);
                if (r >= 0 && table[i].status5xx > 0)
                        r = real_to_json("status5xx", table[i].status5xx, &v);
                if (r >= 0 && table[i].error_replies > 0)
                        r = real_to_json("errorReplies", table[i].error_replies, &v);
                if (r >= 0 && table[i].aborts > 0)
                        r = real_to_json("aborts", table[i].aborts, &v);
                if (r >= 0)
                        r = sd_json_variant_append_array(ret, v);
        }
        return r;
}

int diagnosis_to_json(const Unit *u, const DiagnosisEvidence *e, const Baseline *by_history,
                      const Diagnosis *d, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *findings = NULL, *excluded = NULL,
                *figures = NULL, *normal = NULL, *from = NULL, *users = NULL, *peers = NULL, *devices = NULL,
                *locks = NULL, *blocked = NULL;
        int r;

        r = sd_json_variant_new_array(&findings, NULL, 0);
        if (r >= 0)
                r = sd_json_variant_new_array(&excluded, NULL, 0);
        for (size_t i = 0; i < d->n_findings && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                r = finding_to_json(d->findings + i, &v);
                if (r >= 0)
                        r = sd_json_variant_append_array(&findings, v);
        }
        for (size_t i = 0; i < d->n_excluded && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                r = excluded_to_json(d->excluded + i, &v);
                if (r >= 0)
                        r = sd_json_variant_append_array(&excluded, v);
        }
        if (r >= 0)
                r = diagnosis_figures_to_json(&e->now, &figures);
        if (r >= 0 && e->normal)
                r = diagnosis_figures_to_json(e->normal, &normal);
        if (r >= 0 && by_history)
                r = sd_json_buildo(&from,
                                   SD_JSON_BUILD_PAIR_UNSIGNED("since", by_history->since / NSEC_PER_USEC),
                                   SD_JSON_BUILD_PAIR_UNSIGNED("until", by_history->until / NSEC_PER_USEC),
                                   SD_JSON_BUILD_PAIR_UNSIGNED("covered", by_history->covered));
        if (r >= 0)
                r = named_to_json(e->users, e->n_users, "threads", &users);
        if (r >= 0)
                r = named_to_json(e->peers, e->n_peers, "time", &peers);
        if (r >= 0)
                r = named_to_json(e->devices, e->n_devices, "share", &devices);
        if (r >= 0)
                r = named_to_json(e->locks, e->n_locks, "threads", &locks);
        if (r >= 0)
                r = named_to_json(e->blocked, e->n_blocked, "threads", &blocked);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                              SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", now_usec(CLOCK_REALTIME)),
                              SD_JSON_BUILD_PAIR_STRING("verdict", verdict_to_string(d->verdict)),
                              SD_JSON_BUILD_PAIR_STRING("summary", d->summary),
                              SD_JSON_BUILD_PAIR_STRING("text", d->text),
                              SD_JSON_BUILD_PAIR_VARIANT("findings", findings),
                              SD_JSON_BUILD_PAIR_VARIANT("excluded", excluded),
                              SD_JSON_BUILD_PAIR_VARIANT("figures", figures),
                              SD_JSON_BUILD_PAIR_CONDITION(!!normal, "baseline",
                                                           SD_JSON_BUILD_VARIANT(normal)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!from, "baselineSource",
                                                           SD_JSON_BUILD_VARIANT(from)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!users, "users", SD_JSON_BUILD_VARIANT(users)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!peers, "peers", SD_JSON_BUILD_VARIANT(peers)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!devices, "devices",
                                                           SD_JSON_BUILD_VARIANT(devices)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!locks, "locks", SD_JSON_BUILD_VARIANT(locks)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!blocked, "blockedByRequests",
                                                           SD_JSON_BUILD_VARIANT(blocked)));
}
