/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Thresholds in the state file. */

#include "log.h"
#include "threshold-internal.h"

int thresholds_list_to_json(const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t)) {
                _cleanup_free_ char *rule = NULL;

                /* Leases end with their connections */
                if (t->source == THRESHOLD_SOURCE_LEASE)
                        continue;
                r = threshold_rule_format(&t->rule, /* named= */ true, &rule);
                if (r >= 0)
                        r = sd_json_variant_append_arraybo(&array,
                                SD_JSON_BUILD_PAIR_STRING("threshold", rule),
                                /* state last reported: a difference is reported after the restart */
                                SD_JSON_BUILD_PAIR_STRING("state", threshold_state_to_string(t->reported)),
                                SD_JSON_BUILD_PAIR_UNSIGNED("since", t->since),
                                SD_JSON_BUILD_PAIR_UNSIGNED("violatedSince", t->machine.violated_since),
                                SD_JSON_BUILD_PAIR_UNSIGNED("goodBefore", t->before.good),
                                SD_JSON_BUILD_PAIR_UNSIGNED("totalBefore", t->before.total),
                                SD_JSON_BUILD_PAIR_UNSIGNED("uid", t->uid),
                                SD_JSON_BUILD_PAIR_CONDITION(t->owner_uid != 0, "ownerUid",
                                                             SD_JSON_BUILD_UNSIGNED(t->owner_uid)),
                                SD_JSON_BUILD_PAIR_CONDITION(!!t->origin, "origin",
                                                             SD_JSON_BUILD_STRING(t->origin)));
                /* Continue with the others */
                if (r < 0 && !t->unsaved)
                        log_unit_warning_errno(u->name, r,
                                               "Failed to save threshold '%s' of '%s', a restart of "
                                               "qosd will forget it: %m", t->rule.name, u->name);
                t->unsaved = r < 0;
        }

        *ret = TAKE_PTR(array);
        return 0;
}

typedef struct SavedThreshold {
        const char *threshold, *state, *origin;
        uint64_t since, violated_since, good_before, total_before;
        uid_t uid, owner_uid;
} SavedThreshold;

static int threshold_from_json(Unit *u, sd_json_variant *v, bool totals) {
        static const sd_json_dispatch_field table[] = {
                { "threshold",     SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string,
                  offsetof(SavedThreshold, threshold),      SD_JSON_MANDATORY },
                { "state",         SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string,
                  offsetof(SavedThreshold, state),          SD_JSON_MANDATORY },
                { "since",         SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
                  offsetof(SavedThreshold, since),          SD_JSON_MANDATORY },
                { "violatedSince", SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
                  offsetof(SavedThreshold, violated_since), SD_JSON_MANDATORY },
                { "goodBefore",    SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
                  offsetof(SavedThreshold, good_before),    0                 },
                { "totalBefore",   SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
                  offsetof(SavedThreshold, total_before),   0                 },
                { "uid",           SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid,
                  offsetof(SavedThreshold, uid),            SD_JSON_MANDATORY },
                { "ownerUid",      SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid,
                  offsetof(SavedThreshold, owner_uid),      0                 },
                { "origin",        SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string,
                  offsetof(SavedThreshold, origin),         0                 },
                {}
        };
        SavedThreshold saved = {};
        ThresholdState state;
        ThresholdRule rule;
        Threshold *t;
        int r;

        r = sd_json_dispatch(v, table, SD_JSON_ALLOW_EXTENSIONS, &saved);
        if (r >= 0)
                r = threshold_rule_parse(saved.threshold, WINDOW_DEFAULT_NSEC, &rule, NULL);
        if (r < 0)
                return r;
        state = threshold_state_from_string(saved.state);
        if (state == _THRESHOLD_STATE_MAX)
                return -EBADMSG;

        r = threshold_new(u, &rule, &(ThresholdRequest) {
                .source = saved.origin ? THRESHOLD_SOURCE_FILE : THRESHOLD_SOURCE_ADMINISTRATOR,
                .uid = saved.uid,
                .owner_uid = saved.owner_uid,
                .origin = saved.origin,
        }, &t);
        if (r < 0)
                return r;
        t->since = saved.since;
        t->machine.state = t->reported = state;
        t->machine.violated_since = saved.violated_since;
        /* Offsets must not be subtracted from totals that restart from 0 */
        if (totals)
                t->before = (ObjectiveCounts) { saved.good_before, saved.total_before };
        monitor_arm_timer(u->manager, true);
        return 0;
}

void threshold_monitor_from_json(Unit *u, sd_json_variant *v, bool totals) {
        for (size_t i = 0; v && i < sd_json_variant_elements(v); i++) {
                int r = threshold_from_json(u, sd_json_variant_by_index(v, i), totals);

                if (r < 0)
                        log_unit_warning_errno(u->name, r,
                                               "Invalid saved threshold of '%s', ignoring: %m", u->name);
        }
}
