# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes of the code that tests have to notice.

Each replaces text that is in its file once. MUTANT in the new text is 1 while this mutation is on trial, and 0
otherwise. The tests that link the code are tried first, then all unit and contract tests. What runs in the kernel alone
is not here: the same headers are, where tests compile them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    old: str
    new: str
    tests: tuple
    # Why no test can see it; a mutation without a reason that survives is a failure
    survives: str = ""


MUTATIONS = [
    Mutation("a retransmission counts as new data", "bpf/protocols/exchange.h",
             "if (exchange_distance(end, x->in_end) <= 0) {", "if (exchange_distance(end, x->in_end) < 1 - MUTANT) {",
             ("test-exchange",)),
    Mutation("pipelined requests that are aborted count as one", "bpf/protocols/exchange.h",
             "= pending > 0 ? pending : 1;", "= pending > 0 && !MUTANT ? pending : 1;",
             ("test-exchange", "test-pipeline")),
    Mutation("the last arrival is the first one", "bpf/protocols/exchange.h",
             "last_at = x->n_marks == 1 ? x->tail_at : x->mark_at[0];",
             "last_at = x->n_marks == 1 && !MUTANT ? x->tail_at : x->mark_at[0];",
             ("test-exchange",)),
    Mutation("304 has a body", "bpf/protocols/http1.h",
             "code == 204 || code == 304 ||", "code == 204 || (code == 304 && !MUTANT) ||",
             ("test-http1", "test-pipeline")),
    Mutation("a null reply of Redis does not end", "bpf/protocols/resp.h",
             "if (p->flags & RESP_NEGATIVE) /* null */", "if (p->flags & RESP_NEGATIVE && !MUTANT) /* null */",
             ("test-pipeline",)),
    Mutation("the longest TLS record is refused", "bpf/protocols/tls-record.h",
             "if (major != 3 || length == 0 || length > TLS_RECORD_MAX)",
             "if (major != 3 || length == 0 || length > TLS_RECORD_MAX - MUTANT)",
             ("test-tls-record",)),
    Mutation("the sum of equal samples has one of them", "bpf/core/window-record.h",
             "__sync_fetch_and_add(&u->sums[distribution], nsec * n);",
             "__sync_fetch_and_add(&u->sums[distribution], nsec * (MUTANT ? 1 : n));",
             ("test-window",)),
    Mutation("a checkpoint is not corrected", "bpf/core/window-record.h",
             "__sync_fetch_and_add(&c->sums[distribution], -nsec);",
             "__sync_fetch_and_add(&c->sums[distribution], MUTANT ? 0 : -nsec);",
             ("test-window",)),
    Mutation("the rank of a quantile is one more", "src/model/distribution.c",
             "return MAX((uint64_t) ceil(n * q - 1e-9), UINT64_C(1));",
             "return MAX((uint64_t) ceil(n * q - 1e-9) + MUTANT, UINT64_C(1));",
             ("test-window",)),
    Mutation("a merged step of the history forgets missed runs", "src/model/history-step.c",
             "s->missed = s->missed || later->missed;", "s->missed = s->missed || (later->missed && !MUTANT);",
             ("test-history-merge", "test-history-steps")),
    Mutation("a threshold is clear within its cooldown", "src/model/threshold.c",
             "(m->violated_since != 0 && now < m->violated_since + rule->stay_nsec)))",
             "(m->violated_since != 0 && !MUTANT && now < m->violated_since + rule->stay_nsec)))",
             ("test-threshold",)),
    Mutation("a threshold has no hysteresis", "src/model/threshold.c",
             "(!is_clear(rule, value) ||", "((!is_clear(rule, value) && !MUTANT) ||",
             ("test-threshold",)),
    Mutation("one request is enough for a verdict", "src/model/diagnosis.c",
             "enough = f->rate * f->covered >= 10.0 * NSEC_PER_SEC;",
             "enough = f->rate * f->covered >= (MUTANT ? 1.0 : 10.0) * NSEC_PER_SEC;",
             ("test-diagnosis",)),
    Mutation("one unit more than UnitsMax= is attached", "src/core/attach/attach.c",
             "if (m->units.n >= m->config.units_max ||", "if (m->units.n >= m->config.units_max + MUTANT ||",
             ("test-dbus-methods", "test-varlink-clients")),
    Mutation("probes of a released hold stay", "src/core/unit/hold.c",
             "        u->probes = 0;\n", "        u->probes = MUTANT ? u->probes : 0;\n",
             ("test-varlink-clients", "test-dbus-methods")),
    Mutation("half a state file replaces the good one", "src/core/attach/state-file.c",
             "if (fflush(f) != 0 || ferror(f))", "if ((fflush(f) != 0 || ferror(f)) && !MUTANT)",
             ("test-state",)),
    Mutation("readings begin at 0 after a restart", "src/core/attach/state-file.c",
             "u->cache.seq = now_usec(CLOCK_BOOTTIME);", "u->cache.seq = MUTANT ? 0 : now_usec(CLOCK_BOOTTIME);",
             ("test-figures",)),
    Mutation("the history stays after a detach", "src/core/reading/history-collector.c",
             "(void) unlink(path);", "(void) (MUTANT || unlink(path));",
             ("test-figures",)),
    Mutation("suppressed events are not counted", "src/core/threshold/threshold-events.c",
             "suppressed = t->suppressed;", "suppressed = MUTANT ? 0 : t->suppressed;",
             ("test-figures",)),
    Mutation("a user may have any number of events", "src/core/threshold/threshold-events.c",
             "(l && t->n >= CROSSINGS_PER_UID_MAX))", "(l && t->n >= CROSSINGS_PER_UID_MAX && !MUTANT))",
             ("test-figures",)),
    Mutation("a broken file of the history is not reported", "src/core/reading/history-collector.c",
             "else if (r != -ENOENT)", "else if (r != -ENOENT && !MUTANT)",
             ("test-figures",)),
    Mutation("what was counted before a restart is not taken over", "src/core/attach/state-file.c",
             "adopted = r >= 0 && same && units;", "adopted = r >= 0 && same && units && !MUTANT;",
             ("test-figures",)),
    Mutation("everybody sees peers", "src/server/varlink-connection.c",
             "return c->uid == 0 || manager_uid_owns_attached(",
             "return MUTANT || c->uid == 0 || manager_uid_owns_attached(",
             ("test-varlink-clients",)),
    Mutation("a user may have any number of views", "src/server/varlink-get.c",
             "if (v->n >= VIEWS_PER_USER_MAX)", "if (v->n >= VIEWS_PER_USER_MAX && !MUTANT)",
             ("test-varlink-clients",), survives="a view is a map in the kernel: the scenario libqosd.limit_of_views"),
    Mutation("an attach lasts a thousand times as long", "src/server/varlink-attach.c",
             "USEC_INFINITY : p.duration / NSEC_PER_USEC;",
             "USEC_INFINITY : p.duration / (MUTANT ? 1 : NSEC_PER_USEC);",
             ("test-varlink-clients",)),
    Mutation("the exit status of the measured command is lost", "src/qosctl/measure.c",
             "return WIFEXITED(status) ? WEXITSTATUS(status) :",
             "return WIFEXITED(status) ? (MUTANT ? 0 : WEXITSTATUS(status)) :",
             ("test-qosctl",)),
    Mutation("equal rows of top are in no order", "src/qosctl/top.c",
             "c = c ?: strverscmp(x->unit, y->unit);", "c = c ?: MUTANT ? 0 : strverscmp(x->unit, y->unit);",
             ("test-qosctl",)),
    Mutation("--for shows totals", "src/qosctl/value.c",
             "(void) value_unsigned(before, path, &a);", "(void) (MUTANT || value_unsigned(before, path, &a));",
             ("test-qosctl",)),
]
