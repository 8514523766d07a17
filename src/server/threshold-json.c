/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "objective.h"
#include "snapshot-json.h"
#include "threshold-json.h"

/* Fields that thresholds and events have in common. */
static int threshold_rule_to_json(const char *unit, const ThresholdRule *rule, bool peers,
                                  ThresholdState state, double value, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *limit_json = NULL, *value_json = NULL;
        double slack = threshold_rule_get_slack(rule, value);
        char metric[THRESHOLD_METRIC_MAX];
        _cleanup_free_ char *whole = NULL;
        int r;

        r = threshold_rule_format(rule, peers, &whole);
        if (r >= 0)
                r = threshold_value_to_json(rule->metric, rule->limit, &limit_json);
        if (r >= 0 && !isnan(value))
                r = threshold_value_to_json(rule->metric, value, &value_json);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("unit", unit),
                              SD_JSON_BUILD_PAIR_STRING("name", rule->name),
                              SD_JSON_BUILD_PAIR_STRING("threshold", whole),
                              SD_JSON_BUILD_PAIR_STRING("metric",
                                                        threshold_rule_format_metric(rule, peers, metric)),
                              SD_JSON_BUILD_PAIR_STRING("state", threshold_state_to_string(state)),
                              SD_JSON_BUILD_PAIR_VARIANT("limit", limit_json),
                              SD_JSON_BUILD_PAIR_CONDITION(!!value_json, "value",
                                                           SD_JSON_BUILD_VARIANT(value_json)),
                              SD_JSON_BUILD_PAIR_CONDITION(!isnan(slack), "slack",
                                                           SD_JSON_BUILD_REAL(slack)));
}

static int set_real(sd_json_variant **v, const char *key, double value) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *real = NULL;
        int r;

        if (isnan(value))
                return 0;
        r = sd_json_variant_new_real(&real, value);
        return r < 0 ? r : sd_json_variant_set_field(v, key, real);
}

int threshold_to_json(const Threshold *t, bool peers, bool budgets, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        ErrorBudget budget;
        int r;

        r = threshold_rule_to_json(t->unit->name, &t->rule, peers, t->machine.state, t->value, &v);
        if (r >= 0 && t->samples != ABSENT)
                r = sd_json_variant_set_field_unsigned(&v, "samples", t->samples);
        if (r >= 0)
                r = sd_json_variant_set_field_string(&v, "source", threshold_source_to_string(t->source));
        if (r >= 0 && t->origin)
                r = sd_json_variant_set_field_string(&v, "origin", t->origin);
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "since", t->since / NSEC_PER_USEC);
        if (r >= 0 && budgets && threshold_get_error_budget(t, &budget)) {
                r = sd_json_variant_set_field_unsigned(&v, "good", budget.counts.good);
                if (r >= 0)
                        r = sd_json_variant_set_field_unsigned(&v, "total", budget.counts.total);
                for (BurnPeriod i = 0; i < BURN_PERIODS && r >= 0; i++)
                        r = set_real(&v, burn_period_table[i].key, budget.burn_rates[i]);
        }
        if (r >= 0)
                *ret = TAKE_PTR(v);
        return r;
}

int threshold_event_to_json(const ThresholdEvent *e, bool peers, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *shares = NULL;
        int r;

        r = threshold_rule_to_json(e->unit, &e->rule, peers, e->state, e->value, &v);
        if (r >= 0 && e->samples != ABSENT)
                r = sd_json_variant_set_field_unsigned(&v, "samples", e->samples);
        if (r >= 0)
                r = sd_json_variant_set_field_string(&v, "previous", threshold_state_to_string(e->previous));
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "seq", e->seq);
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "timestamp", e->timestamp / NSEC_PER_USEC);
        for (size_t i = 0; i < e->n_shares && r >= 0; i++)
                r = sd_json_variant_append_arraybo(&shares,
                                SD_JSON_BUILD_PAIR_STRING("state", state_share_name(e->shares + i)),
                                SD_JSON_BUILD_PAIR_REAL("share", e->shares[i].share),
                                SD_JSON_BUILD_PAIR_REAL("usual", e->shares[i].usual));
        if (r >= 0 && e->suppressed > 0)
                r = sd_json_variant_set_field_unsigned(&v, "suppressed", e->suppressed);
        if (r >= 0 && shares)
                r = sd_json_variant_set_field(&v, "shares", shares);
        if (r >= 0)
                *ret = TAKE_PTR(v);
        return r;
}
