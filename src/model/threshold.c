/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "custom-metric.h"
#include "mounts.h"
#include "parse.h"
#include "peers.h"
#include "threshold.h"
#include "window.h"

/* Maximum distance of consecutive evaluations, in periods. If it is exceeded, the daemon or the system was
 * suspended, and values in between are unknown. */
#define PERIODS_MAX 3U

/* Larger integers are not exact as double, and thus in JSON. */
#define LIMIT_MAX ((double) (UINT64_C(1) << 53))

static const char *const state_table[_THRESHOLD_STATE_MAX] = {
        [THRESHOLD_UNKNOWN]  = "unknown",
        [THRESHOLD_OK]       = "ok",
        [THRESHOLD_VIOLATED] = "violated",
};

const char* threshold_state_to_string(ThresholdState s) {
        return state_table[s];
}

ThresholdState threshold_state_from_string(const char *s) {
        ThresholdState i;

        for (i = 0; i < _THRESHOLD_STATE_MAX; i++)
                if (streq(s, state_table[i]))
                        break;
        return i;
}

/* ---- rules -------------------------------------------------------------------------------------------- */

bool threshold_name_is_valid(const char *name) {
        size_t l = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

        return l > 0 && l <= THRESHOLD_NAME_MAX && name[l] == 0 && name[0] != '-';
}

typedef struct Parser {
        char buffer[THRESHOLD_LINE_MAX];
        char *rest;             /* next character in buffer */
        const char *line;
        QosError *e;
} Parser;

static bool is_blank(char c) {
        return c == ' ' || c == '\t';
}

static void skip_blanks(Parser *p) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): parser_fail() is negative */
        while (is_blank(*p->rest))
                p->rest++;
}

/* Consumes the next word if it is this one. */
static bool next_is(Parser *p, const char *word) {
        const char *s;

        skip_blanks(p);
        s = startswith(p->rest, word);
        if (!s || (*s && !is_blank(*s)))
                return false;
        p->rest += strlen(word);
        return true;
}

/* Consumes text up to a comma or a keyword, stripped of blanks. */
static char* take_value(Parser *p, char buffer[static THRESHOLD_LINE_MAX]) {
        static const char *const words[] = { "over", "for", "clear", "cooldown" };
        size_t n = 0;
        bool begins = true;

        skip_blanks(p);
        while (*p->rest && *p->rest != ',') {
                bool ends = false;

                for (size_t i = 0; i < ELEMENTSOF(words) && begins; i++) {
                        const char *s = startswith(p->rest, words[i]);

                        ends = ends || (s && (*s == 0 || *s == ',' || is_blank(*s)));
                }
                if (ends)
                        break;
                begins = is_blank(*p->rest);
                buffer[n++] = begins ? ' ' : *p->rest;
                p->rest++;
        }
        while (n > 0 && buffer[n - 1] == ' ')
                n--;
        buffer[n] = 0;
        return buffer;
}

static int _printf_(2, 3) parser_fail(const Parser *p, const char *format, ...) {
        _cleanup_free_ char *what = NULL;
        va_list ap;
        int r;

        va_start(ap, format);
        r = vasprintf(&what, format, ap);
        va_end(ap);
        if (r < 0) {
                what = NULL;
                return -ENOMEM;
        }
        return qos_error_set(p->e, QOS_ERROR_INVALID_THRESHOLD, p->line, "threshold '%s': %s",
                             excerpt(p->line, (char[EXCERPT_MAX + 1]) {}), what);
}

/* In descending order. */
static const struct {
        const char *unit;
        double factor;
} sizes[] = {
        { "T", 1099511627776. },
        { "G", 1073741824.    },
        { "M", 1048576.       },
        { "K", 1024.          },
        { "B", 1              },
};

static bool has_unit(const char *s) {
        return s[strspn(s, "0123456789. ")] != 0 || streq(s, "0");
}

/* what: position for messages, such as "after 'for'". */
static int parse_duration(const Parser *p, const char *s, const char *what, uint64_t *ret) {
        char b[EXCERPT_MAX + 1];
        uint64_t nsec;

        if (!has_unit(s) || parse_time(s, &nsec) < 0)
                return parser_fail(p, "expected a time like '2s' or '500ms' %s, got '%s'", what,
                                   excerpt(s, b));
        if (nsec > THRESHOLD_DURATION_MAX_NSEC)
                return parser_fail(p, "expected a time of up to 24h %s, got '%s'", what, excerpt(s, b));
        *ret = nsec;
        return 0;
}

/* Formats without loss in the largest unit possible. */
static char* format_exact(char buffer[static 32], uint64_t nsec) {
        if (nsec % NSEC_PER_SEC == 0)
                (void) snprintf(buffer, 32, "%" PRIu64 "s", nsec / NSEC_PER_SEC);
        else if (nsec % NSEC_PER_MSEC == 0)
                (void) snprintf(buffer, 32, "%" PRIu64 "ms", nsec / NSEC_PER_MSEC);
        else if (nsec % NSEC_PER_USEC == 0)
                (void) snprintf(buffer, 32, "%" PRIu64 "us", nsec / NSEC_PER_USEC);
        else
                (void) snprintf(buffer, 32, "%" PRIu64 "ns", nsec);
        return buffer;
}

/* Formats values other than durations, without exponent. Fifteen digits are exact for doubles up to
 * LIMIT_MAX; below 0.0001, where an exponent would be used, 19 decimals are at most as many. */
static char* format_number(char buffer[static 32], double value) {
        (void) snprintf(buffer, 32, "%.15g", value);
        if (strpbrk(buffer, "eE"))
                (void) snprintf(buffer, 32, value >= 1 ? "%.0f" : "%.19f", value);
        return buffer;
}

/* Rounds the limit to its formatted value, so that a rule survives formatting and parsing: "1.1%" is
 * 0.011000000000000001, formatted as 0.011. */
static int limit_settle(const Parser *p, const Metric *metric, const char *s, double value, double *ret) {
        char b[EXCERPT_MAX + 1];
        const char *end;

        if (!(value <= LIMIT_MAX))
                return parser_fail(p, "expected at most %.0f for '%s', got '%s'", LIMIT_MAX, metric->name,
                                   excerpt(s, b));
        return parse_decimal(format_number((char[32]) {}, value), &end, ret);
}

/* Parses "20ms", "1.5M", "100" or "5%", by the unit of the metric. */
static int parse_limit(const Parser *p, const Metric *metric, const char *s, double *ret) {
        char b[EXCERPT_MAX + 1];
        const char *end;
        uint64_t nsec;
        double value;

        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): parser_fail() is negative */
        if (streq(metric->unit, "ns")) {
                if (!has_unit(s) || parse_time(s, &nsec) < 0)
                        return parser_fail(p, "expected a time like '20ms' for '%s', got '%s'", metric->name,
                                           excerpt(s, b));
                *ret = nsec;
                return 0;
        }

        if (streq(metric->unit, "bytes")) {
                if (parse_decimal(s, &end, &value) >= 0)
                        for (size_t i = 0; i < ELEMENTSOF(sizes); i++)
                                if (streq(*end ? end : "B", sizes[i].unit))
                                        return limit_settle(p, metric, s, value * sizes[i].factor, ret);
                return parser_fail(p, "expected a size like '512K' or '10M' for '%s', got '%s'",
                                   metric->name, excerpt(s, b));
        }

        if (streq(metric->unit, "1/s")) {
                if (parse_decimal(s, &end, &value) < 0 || !(*end == 0 || streq(end, "/s")))
                        return parser_fail(p, "expected a rate like '100' or '100/s' for '%s', got '%s'",
                                           metric->name, excerpt(s, b));
                return limit_settle(p, metric, s, value, ret);
        }

        /* A plain number; shares may be given in percent */
        if (parse_decimal(s, &end, &value) >= 0) {
                bool share = metric->type == METRIC_REAL && streq(end, "%");

                if (*end == 0 || share)
                        return limit_settle(p, metric, s, share ? value / 100 : value, ret);
        }
        return parser_fail(p, metric->type == METRIC_REAL ?
                           "expected a number like '0.2', or percent like '20%%', for '%s', got '%s'" :
                           "expected a number like '20' for '%s', got '%s'", metric->name, excerpt(s, b));
}

/* Whether endpoints, peers or file systems have the metric: tries a row with all values. */
static bool metric_is_of_rows(const Metric *metric, const Selector *s) {
        Metrics values;

        if (s->type == SELECTOR_MOUNT)
                mount_get_metrics(&(Mount) {}, &values);
        else
                row_get_metrics(&(Row) { .kind = s->client ? ROW_PEER : ROW_ENDPOINT, .measured = true },
                                &values);
        return metric_is_present(metric, &values);
}

static bool is_distribution(const char *name) {
        char median[SELECTOR_METRIC_MAX + sizeof(".p50")];

        (void) snprintf(median, sizeof(median), "%s.p50", name);
        return !!metric_find(median);
}

/* Files of custom probes may change: which metrics there are is known when they are measured. */
static int parse_custom_metric(const Parser *p, ThresholdRule *rule) {
        char b[EXCERPT_MAX + 1];
        const char *path;
        size_t l;

        rule->metric = custom_metric_parse(p->rest, &path, &l);
        if (!rule->metric)
                return parser_fail(
                        p,
                        "'%s' is no metric of a custom probe, expected 'custom.PROBE.METRIC.' and count, "
                        "rate, value, sum, mean or a quantile like p99",
                        excerpt(p->rest, b));
        assert(l <= THRESHOLD_SELECTOR_MAX);
        memcpy(rule->selector, path, l);
        rule->selector[l] = 0;
        return 0;
}

static int parse_metric(Parser *p, ThresholdRule *rule) {
        char b[EXCERPT_MAX + 1], name[SELECTOR_METRIC_MAX], c;
        const Metric *suggested;
        const char *end;
        Selector s;
        size_t l;
        int r;

        /* Brackets may contain any path */
        skip_blanks(p);
        l = strcspn(p->rest, "[ \t<>=,");
        end = p->rest[l] == '[' ? strchr(p->rest + l, ']') : NULL;
        if (end)
                l = end - p->rest;
        l += strcspn(p->rest + l, " \t<>=,");
        c = p->rest[l];
        p->rest[l] = 0;
        if (l == 0)
                return parser_fail(p, "expected a metric like 'requests.server.firstByte.p99'");
        if (startswith(p->rest, "custom.")) {
                r = parse_custom_metric(p, rule);
                p->rest += l;
                *p->rest = c;
                return r;
        }
        r = selector_parse(p->rest, &s, name);
        if (r == -EINVAL)
                return parser_fail(p, "'%s' does not say which part of the unit, expected in brackets "
                                   SELECTOR_EXPECTED, excerpt(p->rest, b));
        rule->metric = r < 0 ? NULL : metric_find(name);
        if (!rule->metric && r >= 0 && is_distribution(name))
                return parser_fail(p, "'%s' is a distribution, expected one of its quantiles, like '%s.p99'",
                                   excerpt(p->rest, b), name);
        suggested = rule->metric || r < 0 ? NULL : metric_suggest(name);
        if (suggested)
                return parser_fail(p, "there is no metric '%s', did you mean '%s'?", excerpt(p->rest, b),
                                   suggested->name);
        if (!rule->metric)
                return parser_fail(p, "there is no metric '%s', see 'qosctl list-metrics'",
                                   excerpt(p->rest, b));
        if (rule->metric->type == METRIC_QUALITY)
                return parser_fail(p, "'%s' is a word, expected a metric that is a number",
                                   rule->metric->name);
        if (s.type != SELECTOR_NONE) {
                const char *begin = strchr(p->rest, '[') + 1;

                if (!metric_is_of_rows(rule->metric, &s))
                        return parser_fail(p, "'%s' is known of the whole unit alone, not of %s",
                                           rule->metric->name, s.type == SELECTOR_MOUNT ? "a file system" :
                                           s.client ? "a peer" : "an endpoint");
                l = strrchr(p->rest, ']') - begin;
                if (l > THRESHOLD_SELECTOR_MAX)
                        return parser_fail(p, "'%s' is longer in its brackets than %u bytes",
                                           excerpt(p->rest, b), THRESHOLD_SELECTOR_MAX);
                memcpy(rule->selector, begin, l);
                rule->selector[l] = 0;
        }
        l = strlen(p->rest);
        p->rest[l] = c;
        p->rest += l;
        return 0;
}

/* Parses the value of "good". */
static int parse_good(Parser *p, ThresholdRule *rule) {
        char value[THRESHOLD_LINE_MAX], b[EXCERPT_MAX + 1];
        double target;

        if (!threshold_rule_is_objective(rule, &target))
                return parser_fail(p, "'good' is for upper limits of quantiles of requests.server.latency "
                                      "and .firstByte");
        if (!streq(take_value(p, value), "success"))
                return parser_fail(p, "expected 'success' after 'good', got '%s'", excerpt(value, b));
        if (*rule->selector)
                return parser_fail(p, "errors are known of the whole unit alone, not of an endpoint");
        rule->good = GOOD_SUCCESS;
        return 0;
}

/* Parses "> 20ms over 10s for 2s, clear 15ms for 5s, cooldown 1min, good success". */
static int parse_rest(Parser *p, uint64_t window_nsec, ThresholdRule *rule) {
        bool has_clear = false, has_leave = false, has_stay = false;
        char value[THRESHOLD_LINE_MAX], b[EXCERPT_MAX + 1];
        int r;

        /* Words need no quoting on a command line */
        if (next_is(p, "below"))
                rule->below = true;
        else if (next_is(p, "above"))
                rule->below = false;
        else if (*p->rest == '>' || *p->rest == '<') {
                rule->below = *p->rest++ == '<';
                rule->inclusive = *p->rest == '=';
                p->rest += rule->inclusive;
        } else {
                /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the same */
                const char *metric = rule->metric->name;

                return parser_fail(p, "expected '>', '<', '>=', '<=', 'above' or 'below' behind '%s', "
                                      "got '%s'", metric, excerpt(p->rest, b));
        }
        r = parse_limit(p, rule->metric, take_value(p, value), &rule->limit);
        if (r < 0)
                return r;

        rule->window_nsec = window_nsec;
        if (next_is(p, "over")) {
                take_value(p, value);
                if (!has_unit(value) || parse_time(value, &rule->window_nsec) < 0 ||
                    rule->window_nsec == WINDOW_TOTAL || !window_is_valid(rule->window_nsec))
                        return parser_fail(p, "expected a window after 'over', a multiple of 100ms up to "
                                              "1s, of 1s up to 10s, 60s or 5min, got '%s'",
                                           excerpt(value, b));
        }
        if (next_is(p, "for")) {
                r = parse_duration(p, take_value(p, value), "after 'for'", &rule->enter_nsec);
                if (r < 0)
                        return r;
        }

        for (skip_blanks(p); *p->rest == ','; skip_blanks(p)) {
                p->rest++;
                if (!has_clear && next_is(p, "clear")) {
                        has_clear = true;
                        r = parse_limit(p, rule->metric, take_value(p, value), &rule->clear);
                        if (r >= 0 && next_is(p, "for")) {
                                has_leave = true;
                                r = parse_duration(p, take_value(p, value), "after 'for'",
                                                   &rule->leave_nsec);
                        }
                } else if (!has_stay && next_is(p, "cooldown")) {
                        has_stay = true;
                        r = parse_duration(p, take_value(p, value), "after 'cooldown'", &rule->stay_nsec);
                } else if (rule->good == GOOD_RESPONSE && next_is(p, "good"))
                        r = parse_good(p, rule);
                else {
                        skip_blanks(p);
                        r = parser_fail(p, "expected 'clear', 'cooldown' or 'good' once each behind the "
                                           "comma, got '%s'", excerpt(p->rest, b));
                }
                if (r < 0)
                        return r;
        }
        if (*p->rest)
                return parser_fail(p, "expected 'over', 'for', ', clear' or the end, got '%s'",
                                   excerpt(p->rest, b));

        if (!has_clear)
                rule->clear = rule->limit;
        if (!has_leave)
                rule->leave_nsec = rule->enter_nsec;
        if (rule->below ? rule->clear < rule->limit : rule->clear > rule->limit)
                return parser_fail(p, "what clears it must not be beyond its limit");
        if (!metric_is_custom(rule->metric) &&
            (*rule->selector || startswith(rule->metric->name, "requests.client.")) &&
            !window_is_for_rows(rule->window_nsec))
                return parser_fail(p, "'%s' is known over windows of 2s to 10s",
                                   threshold_rule_format_metric(rule, /* named= */ true,
                                                                (char[THRESHOLD_METRIC_MAX]) {}));
        return 0;
}

static int parser_init(Parser *p, const char *line, QosError *e) {
        *p = (Parser) { .line = line, .e = e };

        if (strlen(line) >= sizeof(p->buffer))
                return parser_fail(p, "it is longer than %zu bytes", sizeof(p->buffer) - 1);
        strcpy(p->buffer, line);
        p->rest = p->buffer;
        return 0;
}

int threshold_rule_parse_condition(const char *s, uint64_t window_nsec, ThresholdRule *ret, QosError *e) {
        ThresholdRule rule = {};
        Parser p;
        int r;

        r = parser_init(&p, s, e);
        if (r >= 0)
                r = parse_metric(&p, &rule);
        if (r >= 0)
                r = parse_rest(&p, window_nsec, &rule);
        if (r < 0)
                return r;

        *ret = rule;
        return 0;
}

int threshold_rule_parse(const char *line, uint64_t window_nsec, ThresholdRule *ret, QosError *e) {
        ThresholdRule rule = {};
        char b[EXCERPT_MAX + 1];
        char *colon, *name;
        Parser p;
        int r;

        r = parser_init(&p, line, e);
        if (r < 0)
                return r;

        skip_blanks(&p);
        name = p.rest;
        colon = strchr(name, ':');
        if (!colon)
                return parser_fail(&p, "expected a name and a colon in front, as in 'slow: "
                                       "requests.server.firstByte.p99 > 20ms'");
        p.rest = colon + 1;
        do
                *colon = 0;
        while (colon > name && is_blank(*--colon));
        if (!threshold_name_is_valid(name))
                return parser_fail(&p, "expected a name of letters, digits, '_' and '-' of at most %u, got "
                                       "'%s'", THRESHOLD_NAME_MAX, excerpt(name, b));
        strcpy(rule.name, name);

        r = parse_metric(&p, &rule);
        if (r >= 0)
                r = parse_rest(&p, window_nsec, &rule);
        if (r < 0)
                return r;

        *ret = rule;
        return 0;
}

/* Formats without loss in the largest unit possible, as clients format values of the metric. */
static char* format_size(char buffer[static 32], double value) {
        size_t i = 0;

        while (i + 1 < ELEMENTSOF(sizes) && (value < sizes[i].factor || fmod(value, sizes[i].factor) > 0))
                i++;
        return strcat(format_number(buffer, value / sizes[i].factor), sizes[i].unit);
}

static char* format_limit(char buffer[static 32], const Metric *metric, double value) {
        if (streq(metric->unit, "ns"))
                return format_exact(buffer, (uint64_t) llround(value));
        return streq(metric->unit, "bytes") ? format_size(buffer, value) : format_number(buffer, value);
}

void threshold_rule_get_selector(const ThresholdRule *rule, Selector *ret) {
        char metric[THRESHOLD_METRIC_MAX], name[SELECTOR_METRIC_MAX];

        assert(*rule->selector);

        /* Validated when the rule was parsed */
        if (selector_parse(threshold_rule_format_metric(rule, /* named= */ true, metric), ret, name) < 0)
                abort();
        if (ret->text)
                ret->text = rule->selector;
}

bool threshold_rule_is_for_all(const ThresholdRule *rule) {
        Selector s;

        if (!*rule->selector || metric_is_custom(rule->metric))
                return true;
        threshold_rule_get_selector(rule, &s);
        return !selector_is_private(&s);
}

const char* threshold_rule_format_metric(const ThresholdRule *rule, bool named,
                                         char buffer[static THRESHOLD_METRIC_MAX]) {
        bool mount = startswith(rule->metric->name, "storage.");
        /* Names of both roles have the same length */
        int l = *rule->selector ? (int) strlen(mount ? "storage" : "requests.server") : 0;

        if (metric_is_custom(rule->metric)) {
                (void) snprintf(buffer, THRESHOLD_METRIC_MAX, "custom.%s.%s", rule->selector,
                                rule->metric->name + strlen("custom."));
                return buffer;
        }
        (void) snprintf(buffer, THRESHOLD_METRIC_MAX, "%.*s%s%s%s%s", l, rule->metric->name,
                        l == 0 ? "" : mount ? ".mounts[" : "[",
                        named || threshold_rule_is_for_all(rule) ? rule->selector : "...", l > 0 ? "]" : "",
                        rule->metric->name + l);
        return buffer;
}

int threshold_rule_format(const ThresholdRule *rule, bool named, char **ret) {
        char metric[THRESHOLD_METRIC_MAX], limit[32], clear[32], window[32], enter[32], leave[32], stay[32];

        if (asprintf(ret, "%s%s%s %c%s %s over %s for %s, clear %s for %s%s%s%s",
                     rule->name, *rule->name ? ": " : "", threshold_rule_format_metric(rule, named, metric),
                     rule->below ? '<' : '>', rule->inclusive ? "=" : "",
                     format_limit(limit, rule->metric, rule->limit),
                     format_exact(window, rule->window_nsec), format_exact(enter, rule->enter_nsec),
                     format_limit(clear, rule->metric, rule->clear), format_exact(leave, rule->leave_nsec),
                     rule->stay_nsec > 0 ? ", cooldown " : "",
                     rule->stay_nsec > 0 ? format_exact(stay, rule->stay_nsec) : "",
                     rule->good == GOOD_SUCCESS ? ", good success" : "") < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

const char* threshold_rule_format_value(const Metric *metric, double value,
                                        char buffer[static THRESHOLD_VALUE_MAX]) {
        static const struct {
                double factor;
                const char *unit;
        } times[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" }, { 1, "ns" } };
        size_t i = 0;

        if (streq(metric->unit, "ns")) {
                while (i + 1 < ELEMENTSOF(times) && value < times[i].factor)
                        i++;
                (void) snprintf(buffer, THRESHOLD_VALUE_MAX, "%.4g%s", value / times[i].factor,
                                times[i].unit);
        } else if (streq(metric->unit, "bytes")) {
                while (i + 1 < ELEMENTSOF(sizes) && value < sizes[i].factor)
                        i++;
                (void) snprintf(buffer, THRESHOLD_VALUE_MAX, "%.4g%s", value / sizes[i].factor,
                                sizes[i].unit);
        } else
                (void) snprintf(buffer, THRESHOLD_VALUE_MAX, value < 1e6 ? "%.4g%s" : "%.0f%s", value,
                                streq(metric->unit, "1/s") ? "/s" : "");
        return buffer;
}

/* ---- state machine ------------------------------------------------------------------------------------ */

uint64_t threshold_rule_get_period(const ThresholdRule *rule) {
        return rule->window_nsec <= NSEC_PER_SEC ? THRESHOLD_PERIOD_MIN_NSEC : THRESHOLD_PERIOD_MAX_NSEC;
}

double threshold_rule_get_good_limit(const ThresholdRule *rule) {
        return rule->inclusive ? nextafter(rule->limit, 0) : rule->limit;
}

bool threshold_rule_is_beyond(const ThresholdRule *rule, double value) {
        if (rule->inclusive)
                return rule->below ? value <= rule->limit : value >= rule->limit;
        return rule->below ? value < rule->limit : value > rule->limit;
}

static bool is_clear(const ThresholdRule *rule, double value) {
        if (rule->inclusive)
                return rule->below ? value > rule->clear : value < rule->clear;
        return rule->below ? value >= rule->clear : value <= rule->clear;
}

bool threshold_machine_hold(ThresholdMachine *m, uint64_t now) {
        if (m->state != THRESHOLD_VIOLATED)
                return false;
        m->looked_at = now;
        m->next_since = m->unknown_since = 0;
        return true;
}

bool threshold_machine_step(const ThresholdRule *rule, ThresholdMachine *m, uint64_t now, double value) {
        ThresholdState next = isnan(value) ? THRESHOLD_UNKNOWN : threshold_rule_is_beyond(rule, value) ?
                              THRESHOLD_VIOLATED : THRESHOLD_OK;
        bool late = m->looked_at != 0 && now > m->looked_at + PERIODS_MAX * threshold_rule_get_period(rule);

        /* Evaluations were missed: durations restart */
        if (late)
                m->next_since = m->unknown_since = 0;
        m->looked_at = now;

        if (m->state == THRESHOLD_VIOLATED && next == THRESHOLD_OK &&
            (!is_clear(rule, value) ||
             (m->violated_since != 0 && now < m->violated_since + rule->stay_nsec)))
                next = THRESHOLD_VIOLATED;

        if (next == THRESHOLD_UNKNOWN) {
                /* A value that is absent now and then, near the minimum number of samples, neither changes
                 * the state nor interrupts a pending change, unless it stays absent */
                if (m->unknown_since == 0)
                        m->unknown_since = now;
                if (now - m->unknown_since < MAX(rule->enter_nsec, rule->leave_nsec))
                        return false;
        } else {
                m->unknown_since = 0;
                if (next != m->state) {
                        if (next != m->next || m->next_since == 0) {
                                m->next = next;
                                m->next_since = now;
                        }
                        if (now - m->next_since < (next == THRESHOLD_VIOLATED ? rule->enter_nsec :
                                                   rule->leave_nsec))
                                return false;
                }
        }

        m->next_since = 0;
        if (next == m->state)
                return false;
        m->state = next;
        m->violated_since = next == THRESHOLD_VIOLATED ? now : 0;
        return true;
}

double threshold_rule_get_slack(const ThresholdRule *rule, double value) {
        if (isnan(value) || rule->limit <= 0)
                return NAN;
        return (rule->below ? value - rule->limit : rule->limit - value) / rule->limit;
}

bool threshold_rule_get_quantile(const Metric *metric, const char **ret_distribution, size_t *ret_length,
                                 double *ret_q) {
        const char *end = strrchr(metric->name, '.');
        double q = end && streq(end, ".max") ? 1 : NAN;

        for (const Quantile *i = quantile_table; end && i < quantile_table + QUANTILES; i++)
                if (streq(end + 1, i->name))
                        q = i->q;
        if (isnan(q))
                return false;
        *ret_distribution = metric->name;
        *ret_length = end - metric->name;
        *ret_q = q;
        return true;
}

bool threshold_rule_is_objective(const ThresholdRule *rule, double *ret_target) {
        const char *name;
        size_t length;

        return !rule->below && threshold_rule_get_quantile(rule->metric, &name, &length, ret_target) &&
                *ret_target < 1 &&
                (startswith(name, "requests.server.latency.") ||
                 startswith(name, "requests.server.firstByte."));
}
