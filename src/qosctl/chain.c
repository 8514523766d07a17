/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "chain.h"
#include "value.h"

/* Minimum share of a peer in the unit's time to first byte, as of the rules of diagnoses. */
#define SHARE_MIN 0.2

static const char *const end_names[_CHAIN_END_MAX] = {
        [CHAIN_END_CYCLE]       = "cycle",
        [CHAIN_END_SEEN]        = "seen",
        [CHAIN_END_DEPTH]       = "depth",
        [CHAIN_END_UNITS]       = "units",
        [CHAIN_END_NO_UNIT]     = "noUnit",
        [CHAIN_END_OTHER_HOST]  = "otherHost",
        [CHAIN_END_FAILED]      = "failed",
        [CHAIN_END_INTERRUPTED] = "interrupted",
};

const char* chain_end_to_string(ChainEnd e) {
        return end_names[e];
}

ChainStep* chain_new(const char *unit) {
        ChainStep *s = new0(ChainStep, 1);

        if (!s)
                return NULL;
        s->share = s->whole = 1;
        s->unit = strdup(unit);
        return s->unit ? s : chain_free(s);
}

ChainStep* chain_free(ChainStep *s) {
        if (!s)
                return NULL;

        for (size_t i = 0; i < s->n_steps; i++)
                chain_free(s->steps[i]);
        free(s->steps);
        (void) sd_json_variant_unref(s->diagnosis);
        free(s->message);
        free(s->address);
        free(s->unit);
        free(s);
        return NULL;
}

static int step_add(ChainStep *s, const char *address, const char *unit, double share) {
        ChainStep **steps, *step;

        for (size_t i = 0; i < s->n_steps; i++)
                if (streq_ptr(s->steps[i]->address, address))
                        return 0;

        steps = reallocarray(s->steps, s->n_steps + 1, sizeof(ChainStep*));
        if (!steps)
                return -ENOMEM;
        s->steps = steps;
        step = new0(ChainStep, 1);
        if (!step)
                return -ENOMEM;
        step->above = s;
        step->share = share;
        step->whole = share * s->whole;
        step->address = strdup(address);
        step->unit = unit ? strdup(unit) : NULL;
        s->steps[s->n_steps++] = step;
        return step->address && (step->unit || !unit) ? 1 : -ENOMEM;
}

static sd_json_variant* finding_get(sd_json_variant *diagnosis, const char *kind) {
        sd_json_variant *findings = value_find(diagnosis, "findings");

        for (size_t i = 0; findings && i < sd_json_variant_elements(findings); i++)
                if (streq_ptr(value_string(sd_json_variant_by_index(findings, i), "kind"), kind))
                        return sd_json_variant_by_index(findings, i);
        return NULL;
}

int chain_add_steps(ChainStep *s) {
        sd_json_variant *finding = finding_get(s->diagnosis, "dependency"),
                        *peers = value_find(s->diagnosis, "peers");
        double share, rate = 0, latency = 0;
        const char *first;
        bool timed;
        int r;

        first = finding ? value_string(finding, "resource") : NULL;
        if (!first)
                return 0;

        /* The peer of the finding is added regardless of its share */
        timed = value_real(finding, "share", &share);
        (void) value_real(s->diagnosis, "figures.clientRate", &rate);
        (void) value_real(s->diagnosis, "figures.clientLatency", &latency);
        for (size_t i = 0; peers && i < sd_json_variant_elements(peers); i++) {
                sd_json_variant *peer = sd_json_variant_by_index(peers, i);
                const char *name = value_string(peer, "name");
                double time = 0, n = 0, part;

                (void) value_real(peer, "time", &time);
                (void) value_real(peer, "rate", &n);
                part = rate * latency > 0 ? MIN(time * n / (rate * latency), 1.0) : 1;
                if (!name || (!streq(name, first) && !(timed && part * share >= SHARE_MIN)))
                        continue;
                r = step_add(s, name, value_string(peer, "unit"), timed ? part * share : NAN);
                if (r < 0)
                        return r;
        }
        r = step_add(s, first, value_string(finding, "unit"), timed ? share : NAN);
        return r < 0 ? r : 0;
}

static const ChainStep* step_find(const ChainStep *s, const char *unit) {
        const ChainStep *found = s->diagnosis && streq_ptr(s->unit, unit) ? s : NULL;

        for (size_t i = 0; i < s->n_steps && !found; i++)
                found = step_find(s->steps[i], unit);
        return found;
}

static unsigned steps_count(const ChainStep *s) {
        unsigned n = !!s->diagnosis;

        for (size_t i = 0; i < s->n_steps; i++)
                n += steps_count(s->steps[i]);
        return n;
}

ChainEnd chain_check(const ChainStep *s) {
        const ChainStep *first = s;
        unsigned depth = 0;

        for (; first->above; first = first->above, depth++)
                if (streq_ptr(first->above->unit, s->unit))
                        return CHAIN_END_CYCLE;
        if (step_find(first, s->unit))
                return CHAIN_END_SEEN;
        if (depth > CHAIN_DEPTH_MAX)
                return CHAIN_END_DEPTH;
        return steps_count(first) >= CHAIN_UNITS_MAX ? CHAIN_END_UNITS : CHAIN_END_NONE;
}

/* Returns the finding with the highest weight that is about the unit itself, not a peer. Failures of the
 * unit as a whole outweigh all shares. Errors of its own replace all others but these, although they have no
 * weight, as a slow peer may cause them. ret_weight: -1 if there is no finding */
static sd_json_variant* own_finding(const ChainStep *s, double *ret_weight) {
        sd_json_variant *findings = value_find(s->diagnosis, "findings"), *most = NULL, *errors = NULL;

        *ret_weight = -1;
        for (size_t i = 0; findings && i < sd_json_variant_elements(findings); i++) {
                sd_json_variant *finding = sd_json_variant_by_index(findings, i);
                static const char *const failures[] = { "down", "restarts", "stopped", "dropped" };
                const char *kind = strempty(value_string(finding, "kind"));
                double weight = 0;
                bool fails = false;

                if (streq(kind, "dependency"))
                        continue;
                for (size_t k = 0; k < ELEMENTSOF(failures); k++)
                        fails = fails || streq(kind, failures[k]);
                if (fails)
                        weight = INFINITY;
                else if (!streq(kind, "errors"))
                        (void) value_real(finding, "share", &weight);
                else if (!value_find(finding, "resource"))
                        errors = finding;
                if (weight > *ret_weight) {
                        *ret_weight = weight;
                        most = finding;
                }
        }
        return errors && !isinf(*ret_weight) ? errors : most;
}

/* A failing peer outweighs all findings of the unit itself except failures as a whole. */
static double step_weight(const ChainStep *s) {
        return isnan(s->share) ? 2 : s->share;
}

/* Returns the finding for a unit with peers that are not known to have a cause: the one about its peers, or
 * errors of its own if it only waits for the peers. */
static sd_json_variant* last_finding(const ChainStep *s) {
        sd_json_variant *dependency = finding_get(s->diagnosis, "dependency"), *own;
        double weight;

        own = own_finding(s, &weight);
        return streq_ptr(value_string(own, "kind"), "errors") && value_real(dependency, "share", &weight) ?
               own : dependency;
}

const ChainStep* chain_find_cause(const ChainStep *first, sd_json_variant **ret_finding) {
        const ChainStep *s = first;

        for (;;) {
                const ChainStep *most = NULL;
                sd_json_variant *own;
                double weight;

                own = own_finding(s, &weight);
                for (size_t i = 0; i < s->n_steps; i++)
                        if (!most || step_weight(s->steps[i]) > step_weight(most))
                                most = s->steps[i];
                if (!most || (own && weight > step_weight(most))) {
                        if (!own && s->above &&
                            !streq_ptr(value_string(s->diagnosis, "verdict"), "unknown")) {
                                s = s->above;
                                own = last_finding(s);
                        }
                        *ret_finding = own;
                        return s;
                }
                if (!most->diagnosis) {
                        *ret_finding = last_finding(s);
                        return s;
                }
                s = most;
        }
}

int chain_to_json(const ChainStep *s, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *steps = NULL;
        int r;

        r = sd_json_variant_new_array(&steps, NULL, 0);
        for (size_t i = 0; i < s->n_steps && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                r = chain_to_json(s->steps[i], &v);
                if (r >= 0)
                        r = sd_json_variant_append_array(&steps, v);
        }
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_CONDITION(!!s->unit, "unit", SD_JSON_BUILD_STRING(s->unit)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!s->address, "address",
                                                           SD_JSON_BUILD_STRING(s->address)),
                              SD_JSON_BUILD_PAIR_CONDITION(!isnan(s->share), "share",
                                                           SD_JSON_BUILD_REAL(s->share)),
                              SD_JSON_BUILD_PAIR_CONDITION(!isnan(s->whole), "wholeShare",
                                                           SD_JSON_BUILD_REAL(s->whole)),
                              SD_JSON_BUILD_PAIR_CONDITION(s->end != CHAIN_END_NONE, "end",
                                                           SD_JSON_BUILD_STRING(
                                                                   chain_end_to_string(s->end))),
                              SD_JSON_BUILD_PAIR_CONDITION(!!s->message, "message",
                                                           SD_JSON_BUILD_STRING(s->message)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!s->diagnosis, "diagnosis",
                                                           SD_JSON_BUILD_VARIANT(s->diagnosis)),
                              SD_JSON_BUILD_PAIR_VARIANT("steps", steps));
}
