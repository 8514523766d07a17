/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* why */

#include <math.h>

#include "chain.h"
#include "client.h"
#include "diagnose.h"
#include "format.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Default interval for each unit. Shorter than the one of a diagnosis, as several units are observed. */
#define WHY_NSEC (5 * NSEC_PER_SEC)

typedef struct Walk {
        Client *client;
        uint64_t interval;
        bool interrupted;
        int error;                      /* negative errno if the connection was lost */
} Walk;

/* Finds the unit of a peer if qosd does not know it. */
static ChainEnd step_find_unit(ChainStep *s) {
        int r;

        if (s->unit)
                return CHAIN_END_NONE;
        /* Sockets of other hosts are unknown */
        if (arg_host)
                return CHAIN_END_NO_UNIT;
        r = listener_find_unit(s->address, &s->unit);
        return r == -EREMOTE ? CHAIN_END_OTHER_HOST : r < 0 ? CHAIN_END_NO_UNIT : CHAIN_END_NONE;
}

static int step_observe(Walk *w, ChainStep *s);

static int steps_observe(Walk *w, ChainStep *s) {
        int r;

        r = chain_add_steps(s);
        if (r < 0)
                return log_out_of_memory();
        for (size_t i = 0; i < s->n_steps; i++) {
                ChainStep *step = s->steps[i];

                step->end = step_find_unit(step);
                if (step->end == CHAIN_END_NONE)
                        step->end = chain_check(step);
                if (step->end == CHAIN_END_NONE && (w->interrupted || w->error < 0))
                        step->end = CHAIN_END_INTERRUPTED;
                if (step->end != CHAIN_END_NONE)
                        continue;
                r = step_observe(w, step);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Sets the diagnosis of a step and observes its peers, or sets the error. r, reply: result of
 * unit_diagnose(). */
static int step_take(Walk *w, ChainStep *s, int r, Replies *reply) {
        if (r == 0) {
                const char *unit = value_string(reply->items[0], "unit");

                s->diagnosis = sd_json_variant_ref(reply->items[0]);
                /* May have been an alias */
                if (unit && !streq(unit, s->unit)) {
                        free(s->unit);
                        s->unit = strdup(unit);
                        if (!s->unit)
                                return log_out_of_memory();
                }
                return steps_observe(w, s);
        }
        s->end = CHAIN_END_FAILED;
        s->message = client_error_message(r, reply->error, reply->parameters);
        if (r < 0)
                w->error = r;
        return s->message ? 0 : log_out_of_memory();
}

static int step_observe(Walk *w, ChainStep *s) {
        _cleanup_replies_ Replies reply = REPLIES_INIT;
        int r;

        r = unit_diagnose(w->client, s->unit, &(DiagnoseOptions) { .interval = w->interval, .keep = true },
                          &w->interrupted, &reply);
        return step_take(w, s, r, &reply);
}

/* ---- text -------------------------------------------------------------------------------------------- */

static void step_format_end(const ChainStep *s, char *buf, size_t size) {
        switch (s->end) {

        case CHAIN_END_CYCLE:
                (void) snprintf(buf, size, "a cycle: it is above");
                break;

        case CHAIN_END_SEEN:
                (void) snprintf(buf, size, "it is elsewhere in the tree");
                break;

        case CHAIN_END_DEPTH:
                (void) snprintf(buf, size, "not followed: %u steps are the limit. To go on: qosctl why %s",
                                CHAIN_DEPTH_MAX, s->unit);
                break;

        case CHAIN_END_UNITS:
                (void) snprintf(buf, size, "not followed: %u units are the limit. To go on: qosctl why %s",
                                CHAIN_UNITS_MAX, s->unit);
                break;

        case CHAIN_END_NO_UNIT:
                if (arg_host)
                        (void) snprintf(buf, size, "no attached unit of %s is known to listen there",
                                        arg_host);
                else
                        (void) snprintf(buf, size, "no unit of this host is known to listen there%s",
                                        geteuid() != 0 ? "; root sees more" : "");
                break;

        case CHAIN_END_OTHER_HOST:
                (void) snprintf(buf, size, "not an address of this host");
                break;

        case CHAIN_END_FAILED:
                (void) snprintf(buf, size, "not observed: %s", strempty(s->message));
                break;

        case CHAIN_END_INTERRUPTED:
                (void) snprintf(buf, size, "not observed: interrupted");
                break;

        case CHAIN_END_NONE:
        case _CHAIN_END_MAX:
                *buf = 0;
                break;
        }
}

/* "95% pyweb.service (127.0.0.1:8001): 1.23k requests/s, 44.1ms to the first byte" */
static char* step_format(const ChainStep *s) {
        char share[FORMAT_MAX] = "", figures[3 * FORMAT_MAX] = "", end[512];
        double rate, first;
        char *text;

        step_format_end(s, end, sizeof(end));
        if (s->above && isnan(s->share))
                (void) snprintf(share, sizeof(share), "fails: ");
        else if (s->above)
                (void) snprintf(share, sizeof(share), "%.0f%% ", 100 * s->share);
        if (s->diagnosis && value_real(s->diagnosis, "figures.rate", &rate)) {
                char buf[FORMAT_MAX];

                (void) format_rate(buf, rate);
                (void) snprintf(figures, sizeof(figures), ": %.*s requests/s", (int) strcspn(buf, "/"), buf);
                if (value_real(s->diagnosis, "figures.firstByte", &first) && first > 0)
                        (void) snprintf(figures + strlen(figures), sizeof(figures) - strlen(figures),
                                        ", %s to the first byte", format_duration(buf, (uint64_t) first));
        }
        if (asprintf(&text, "%s%s%s%s%s%s%s%s", share, strempty(s->unit), s->unit && s->address ? " (" : "",
                     strempty(s->address), s->unit && s->address ? ")" : "", figures, *end ? ": " : "",
                     end) < 0)
                return NULL;
        return text;
}

/* Prints wrapped text beside the branches of the tree. first, rest: branches of the first line, and of the
 * others. */
static void print_branch(const char *first, const char *rest, const char *words, Color color) {
        const Style *style = terminal_style();
        size_t indent = text_width(first), width = style->width > indent ? style->width - indent : SIZE_MAX;
        _cleanup_free_ char *clean = text_clean(words, style->utf8);

        for (const char *text = strempty(clean), *branch = first; *text;
             text += strspn(text, " "), branch = rest) {
                size_t n = text_wrap(text, width);

                (void) printf("%s%s%.*s%s\n", branch, color_on(style, color), (int) n, text,
                              color_off(style));
                text += n;
        }
}

/* Returns the number of findings that are printed: those of the unit itself. */
static size_t findings_count(const ChainStep *s) {
        sd_json_variant *findings = value_find(s->diagnosis, "findings");
        size_t n = 0;

        for (size_t i = 0; findings && i < sd_json_variant_elements(findings); i++)
                n += !streq_ptr(value_string(sd_json_variant_by_index(findings, i), "kind"), "dependency") ||
                     s->n_steps == 0;
        return n;
}

/* Prints findings and peers of a step. above: branches of these lines. */
static int print_step(const ChainStep *s, const char *above) {
        const Style *style = terminal_style();
        const char *tee = style->utf8 ? "├─ " : "|- ", *last = style->utf8 ? "└─ " : "`- ",
                   *bar = style->utf8 ? "│  " : "|  ";
        sd_json_variant *findings = value_find(s->diagnosis, "findings");
        size_t left = findings_count(s) + s->n_steps,
               n = s->diagnosis && findings ? sd_json_variant_elements(findings) : 0;

        if (s->diagnosis && left == 0) {
                _cleanup_free_ char *first = NULL, *rest = NULL;

                if (asprintf(&first, "%s%s", above, last) < 0 || asprintf(&rest, "%s   ", above) < 0)
                        return log_out_of_memory();
                print_branch(first, rest, strempty(value_string(s->diagnosis, "summary")), COLOR_NONE);
        }

        for (size_t i = 0; i < n + s->n_steps; i++) {
                sd_json_variant *finding = i < n ? sd_json_variant_by_index(findings, i) : NULL;
                _cleanup_free_ char *first = NULL, *rest = NULL, *text = NULL;
                const ChainStep *step = finding ? NULL : s->steps[i - n];
                int r;

                if (finding && streq_ptr(value_string(finding, "kind"), "dependency") && s->n_steps > 0)
                        continue;
                left--;
                if (asprintf(&first, "%s%s", above, left > 0 ? tee : last) < 0)
                        first = NULL;
                if (asprintf(&rest, "%s%s", above, left > 0 ? bar : "   ") < 0)
                        rest = NULL;
                text = step ? step_format(step) : strdup(strempty(value_string(finding, "text")));
                if (!first || !rest || !text)
                        return log_out_of_memory();
                print_branch(first, rest, text, step ? COLOR_BOLD : COLOR_NONE);
                r = step ? print_step(step, rest) : 0;
                if (r < 0)
                        return r;
        }
        return 0;
}

/* "nginx.service -> pyweb.service: disk: 88% of each request is disk wait (vda)" */
static int print_summary(const ChainStep *s, sd_json_variant *finding) {
        const char *arrow = terminal_style()->utf8 ? " → " : " -> ",
                   *verdict = value_string(s->diagnosis, "verdict");
        sd_json_variant *findings = value_find(s->diagnosis, "findings");
        const char *words = value_string(s->diagnosis, "summary");
        _cleanup_free_ char *names = NULL, *text = NULL;

        for (const ChainStep *i = s; i; i = i->above) {
                char *more;

                if (asprintf(&more, "%s%s%s", i->unit, names ? arrow : "", strempty(names)) < 0)
                        return log_out_of_memory();
                free(names);
                names = more;
        }
        /* The summary of a diagnosis is about its first finding */
        if (finding && !sd_json_variant_equal(finding, sd_json_variant_by_index(findings, 0)))
                words = value_string(finding, "text");
        if (asprintf(&text, "%s: %s", names, strempty(words)) < 0) {
                text = NULL;
                return log_out_of_memory();
        }
        print_branch("", "", text,
                     streq_ptr(verdict, "unknown") ? COLOR_YELLOW :
                     finding                       ? COLOR_RED :
                                                     COLOR_GREEN);
        return 0;
}

/* Returns the share of the cause in the time of the first unit, 0 ... 1; NaN: the cause is not a wait. */
static double cause_get_share(const ChainStep *s, sd_json_variant *finding) {
        double share;

        return finding && value_real(finding, "share", &share) ? share * s->whole : NAN;
}

static int print_chain(const ChainStep *first) {
        _cleanup_free_ char *root = NULL, *label = NULL;
        sd_json_variant *finding;
        char of[512] = "";
        const ChainStep *s;
        double share;
        int r;

        s = chain_find_cause(first, &finding);
        r = print_summary(s, finding);
        if (r < 0)
                return r;

        (void) printf("\n");
        root = step_format(first);
        if (!root)
                return log_out_of_memory();
        print_branch("", "", root, COLOR_BOLD);
        r = print_step(first, "");
        if (r < 0 || !finding)
                return r;

        share = cause_get_share(s, finding);
        if (s->above && !isnan(share))
                (void) snprintf(of, sizeof(of), ": %.0f%% of each request of %s", 100 * share, first->unit);
        if (asprintf(&label, "%s (%s), %s%s", strempty(value_string(finding, "kind")),
                     strempty(value_string(finding, "certainty")), s->unit, of) < 0) {
                label = NULL;
                return log_out_of_memory();
        }
        (void) printf("\n");
        print_branch("", "", label, COLOR_BOLD);
        finding_print(finding, false);
        return 0;
}

static int chain_print_json(const ChainStep *first, uint64_t interval) {
        _cleanup_json_ sd_json_variant *v = NULL, *cause = NULL;
        sd_json_variant *finding;
        const ChainStep *s;
        double share;
        int r;

        s = chain_find_cause(first, &finding);
        share = cause_get_share(s, finding);
        r = chain_to_json(first, &v);
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&v, "interval", interval);
        if (r >= 0 && finding)
                r = sd_json_buildo(&cause, SD_JSON_BUILD_PAIR_STRING("unit", s->unit),
                                   SD_JSON_BUILD_PAIR_CONDITION(!isnan(share), "wholeShare",
                                                                SD_JSON_BUILD_REAL(share)),
                                   SD_JSON_BUILD_PAIR_VARIANT("finding", finding));
        if (r >= 0 && cause)
                r = sd_json_variant_set_field(&v, "cause", cause);
        return r < 0 ? log_out_of_memory() : json_print(v);
}

int verb_why(int argc, char **argv) {
        Walk w = { .interval = arg_for > 0 ? arg_for : WHY_NSEC };
        _cleanup_replies_ Replies reply = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        _cleanup_chain_ ChainStep *first = NULL;
        sd_json_variant *finding;
        const ChainStep *s;
        int r;

        /* There are peers for windows of up to 10 s only */
        if (w.interval % NSEC_PER_SEC != 0 || w.interval > 10 * NSEC_PER_SEC) {
                (void) log_failure(-EINVAL, "Invalid --for=%s, expected 1s to 10s in whole seconds.",
                                   arg_for_text);
                return STATUS_USAGE;
        }
        first = chain_new(argv[0]);
        if (!first)
                return log_out_of_memory();
        r = client_connect(&c);
        if (r < 0)
                return r;

        w.client = c;
        r = unit_diagnose(c, argv[0], &(DiagnoseOptions) { .interval = w.interval, .keep = true },
                          &w.interrupted, &reply);
        if (r != 0)
                return unit_fail(r, &reply, "diagnose", argv[0]);
        r = step_take(&w, first, r, &reply);
        if (r < 0)
                return r;

        if (arg_json != JSON_OFF)
                r = chain_print_json(first, w.interval);
        else {
                pager_open();
                r = print_chain(first);
        }
        if (r < 0)
                return r;
        s = chain_find_cause(first, &finding);
        return w.error < 0 || streq_ptr(value_string(s->diagnosis, "verdict"), "unknown") ? STATUS_FAILED :
                                                                                            STATUS_OK;
}
