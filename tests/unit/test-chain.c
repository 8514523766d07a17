/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which peers a chain of diagnoses follows, where it ends, and what it finds. */

#include <math.h>

#include "chain.h"
#include "check.h"
#include "value.h"

/* The share of the dependency, and of each of its peers in the time of all; the unit of a peer may be "". */
static void diagnosed(ChainStep *s, const char *findings, const char *peers) {
        char text[4096];

        (void) snprintf(text, sizeof(text),
                        "{\"unit\":\"%s\",\"verdict\":\"found\",\"summary\":\"a summary\","
                        "\"findings\":[%s],\"peers\":[%s],"
                        "\"figures\":{\"rate\":100,\"clientRate\":200,\"clientLatency\":1000000}}",
                        s->unit, findings, peers);
        s->diagnosis = sd_json_variant_unref(s->diagnosis);
        check(sd_json_parse(text, 0, &s->diagnosis, NULL, NULL) >= 0);
        check(chain_add_steps(s) >= 0);
}

#define DEPENDENCY(share) "{\"kind\":\"dependency\",\"share\":" share ",\"resource\":\"127.0.0.1:1\"}"

static bool equal(double a, double b) {
        return fabs(a - b) < 1e-9;
}

/* Peers have their parts of the share; what takes less than a fifth is not followed, unless the finding is
 * about it. */
static void test_steps(void) {
        _cleanup_chain_ ChainStep *first = chain_new("a.service");

        diagnosed(first, DEPENDENCY("0.9"),
                  "{\"name\":\"127.0.0.1:1\",\"unit\":\"b.service\",\"time\":1500000,\"rate\":80},"
                  "{\"name\":\"127.0.0.1:2\",\"time\":1000000,\"rate\":50},"
                  "{\"name\":\"127.0.0.1:3\",\"time\":1000000,\"rate\":30}");
        check(first->n_steps == 2);
        check(streq(first->steps[0]->unit, "b.service") && streq(first->steps[0]->address, "127.0.0.1:1"));
        check(equal(first->steps[0]->share, 0.54) && equal(first->steps[0]->whole, 0.54));
        check(!first->steps[1]->unit && streq(first->steps[1]->address, "127.0.0.1:2"));
        check(equal(first->steps[1]->share, 0.225));

        first->steps[1]->unit = strdup("c.service");
        diagnosed(first->steps[1], DEPENDENCY("0.5"), "");
        check(first->steps[1]->n_steps == 1 && equal(first->steps[1]->steps[0]->share, 0.5));
        check(equal(first->steps[1]->steps[0]->whole, 0.1125));
}

/* A unit without the finding is not followed, whatever peers it has; one that fails is, without a share. */
static void test_failing(void) {
        _cleanup_chain_ ChainStep *none = chain_new("a.service");
        _cleanup_chain_ ChainStep *fails = chain_new("a.service");
        sd_json_variant *finding;

        diagnosed(none, "{\"kind\":\"cpu\",\"share\":0.3}",
                  "{\"name\":\"127.0.0.1:1\",\"time\":1000000,\"rate\":200}");
        check(none->n_steps == 0);

        diagnosed(fails,
                  "{\"kind\":\"errors\",\"share\":1},"
                  "{\"kind\":\"dependency\",\"resource\":\"127.0.0.1:1\",\"unit\":\"b.service\"}",
                  "{\"name\":\"127.0.0.1:2\",\"time\":1000000,\"rate\":200}");
        check(fails->n_steps == 1 && isnan(fails->steps[0]->share) && isnan(fails->steps[0]->whole));
        /* The errors are those of the peer */
        diagnosed(fails->steps[0], "{\"kind\":\"down\"}", "");
        check(chain_find_cause(fails, &finding) == fails->steps[0]);
        check(streq(value_string(finding, "kind"), "down"));
        /* The peer has no finding of its own */
        diagnosed(fails->steps[0], "", "");
        check(chain_find_cause(fails, &finding) == fails);
        check(streq(value_string(finding, "kind"), "dependency"));
        /* They precede what the peer waits for, unless it does not run */
        diagnosed(fails->steps[0], "{\"kind\":\"cpu\",\"share\":0.8},{\"kind\":\"errors\",\"share\":1}", "");
        check(chain_find_cause(fails, &finding) == fails->steps[0]);
        check(streq(value_string(finding, "kind"), "errors"));
        diagnosed(fails->steps[0], "{\"kind\":\"down\"},{\"kind\":\"errors\",\"share\":1}", "");
        check(chain_find_cause(fails, &finding) == fails->steps[0]);
        check(streq(value_string(finding, "kind"), "down"));
}

static void test_ends(void) {
        _cleanup_chain_ ChainStep *first = chain_new("unit-0.service");
        ChainStep *s = first;
        char name[32];

        diagnosed(s, DEPENDENCY("1"),
                  "{\"name\":\"127.0.0.1:1\",\"time\":1000000,\"rate\":100},"
                  "{\"name\":\"127.0.0.1:9\",\"time\":1000000,\"rate\":100}");
        check(s->n_steps == 2);
        for (unsigned i = 1; i <= CHAIN_DEPTH_MAX; i++) {
                s = s->steps[0];
                (void) snprintf(name, sizeof(name), "unit-%u.service", i);
                s->unit = strdup(name);
                check(chain_check(s) == CHAIN_END_NONE);
                diagnosed(s, DEPENDENCY("1"), "");
        }
        s = s->steps[0];
        s->unit = strdup("other.service");
        check(chain_check(s) == CHAIN_END_DEPTH);
        free(s->unit);
        s->unit = strdup("unit-3.service");
        check(chain_check(s) == CHAIN_END_CYCLE);

        /* In another branch it is no cycle */
        first->steps[1]->unit = strdup("unit-3.service");
        check(chain_check(first->steps[1]) == CHAIN_END_SEEN);
        check(streq(chain_end_to_string(CHAIN_END_SEEN), "seen"));
}

static void test_units(void) {
        _cleanup_chain_ ChainStep *first = chain_new("unit.service");
        char peers[4096] = "";

        for (unsigned i = 1; i <= 3; i++)
                (void) snprintf(peers + strlen(peers), sizeof(peers) - strlen(peers),
                                "%s{\"name\":\"127.0.0.1:%u\",\"unit\":\"a%u.service\","
                                "\"time\":1000000,\"rate\":66}",
                                i > 1 ? "," : "", i, i);
        diagnosed(first, DEPENDENCY("1"), peers);
        check(first->n_steps == 3);
        /* Sixteen of them: each has three, and four of these have three */
        for (unsigned i = 0; i < 3; i++) {
                free(first->steps[i]->unit);
                first->steps[i]->unit = strdup((const char*[]) { "a", "b", "c" }[i]);
                diagnosed(first->steps[i], DEPENDENCY("1"), peers);
        }
        for (unsigned i = 0, n = 4; i < 3; i++)
                for (unsigned k = 0; k < 3; k++, n++) {
                        ChainStep *s = first->steps[i]->steps[k];

                        free(s->unit);
                        check(asprintf(&s->unit, "%u", n) > 0);
                        check(chain_check(s) == CHAIN_END_NONE);
                        diagnosed(s, DEPENDENCY("1"), peers);
                }
        for (unsigned k = 0; k < 3; k++) {
                ChainStep *s = first->steps[0]->steps[0]->steps[k];

                check(chain_check(s) == CHAIN_END_NONE);
                free(s->unit);
                check(asprintf(&s->unit, "last-%u", k) > 0);
                diagnosed(s, "", "");
        }
        check(chain_check(first->steps[2]->steps[2]->steps[2]) == CHAIN_END_UNITS);
}

/* The way of most time; a unit's own wait that weighs more ends it. */
static void test_cause(void) {
        _cleanup_chain_ ChainStep *first = chain_new("a.service");
        _cleanup_chain_ ChainStep *fails = chain_new("a.service");
        sd_json_variant *finding;
        ChainStep *s;

        diagnosed(first, "{\"kind\":\"cpu\",\"share\":0.25}," DEPENDENCY("0.6"),
                  "{\"name\":\"127.0.0.1:1\",\"unit\":\"b.service\",\"time\":1000000,\"rate\":80},"
                  "{\"name\":\"127.0.0.1:2\",\"unit\":\"c.service\",\"time\":1000000,\"rate\":120}");
        check(chain_find_cause(first, &finding) == first);
        check(streq(value_string(finding, "kind"), "dependency"));

        s = first->steps[1];
        check(streq(s->unit, "c.service"));
        diagnosed(s, "{\"kind\":\"disk\",\"share\":0.8}", "");
        check(chain_find_cause(first, &finding) == s && streq(value_string(finding, "kind"), "disk"));
        diagnosed(s, "", "");
        check(chain_find_cause(first, &finding) == first);
        check(streq(value_string(finding, "kind"), "dependency"));

        diagnosed(first, "{\"kind\":\"cpu\",\"share\":0.7}", "");
        check(chain_find_cause(first, &finding) == first && streq(value_string(finding, "kind"), "cpu"));

        /* It waits for a peer without a finding, and fails for reasons of its own */
        diagnosed(fails, "{\"kind\":\"errors\",\"share\":1}," DEPENDENCY("0.6"),
                  "{\"name\":\"127.0.0.1:1\",\"unit\":\"b.service\",\"time\":1000000,\"rate\":200}");
        check(chain_find_cause(fails, &finding) == fails);
        check(streq(value_string(finding, "kind"), "errors"));
        diagnosed(fails->steps[0], "", "");
        check(chain_find_cause(fails, &finding) == fails);
        check(streq(value_string(finding, "kind"), "errors"));
}

static void test_json(void) {
        _cleanup_chain_ ChainStep *first = chain_new("a.service");
        sd_json_variant *v = NULL, *step;

        diagnosed(first, DEPENDENCY("0.5"), "");
        first->steps[0]->end = CHAIN_END_OTHER_HOST;
        check(chain_to_json(first, &v) >= 0);
        check(streq(value_string(v, "unit"), "a.service"));
        check(value_find(v, "diagnosis") && !value_find(v, "address"));
        step = sd_json_variant_by_index(value_find(v, "steps"), 0);
        check(streq(value_string(step, "address"), "127.0.0.1:1"));
        check(streq(value_string(step, "end"), "otherHost"));
        check(!value_find(step, "unit") && !value_find(step, "diagnosis") && value_find(step, "share"));
        sd_json_variant_unref(v);
}

int main(void) {
        test_steps();
        test_failing();
        test_ends();
        test_units();
        test_cause();
        test_json();
        return 0;
}
