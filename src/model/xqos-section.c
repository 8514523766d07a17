/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdarg.h>

#include "log.h"
#include "parse.h"
#include "threshold.h"
#include "unit-file.h"
#include "unit-name.h"
#include "xqos-section.h"

static const char *const event_table[_XQOS_EVENT_MAX] = {
        [XQOS_VIOLATED] = "violated",
        [XQOS_CLEARED]  = "cleared",
};

const char* xqos_event_to_string(XqosEvent e) {
        return event_table[e];
}

XqosEvent xqos_event_from_string(const char *s) {
        XqosEvent e = 0;

        while (e < _XQOS_EVENT_MAX && !streq(event_table[e], s))
                e++;
        return e;
}

static void threshold_done(XqosThreshold *t) {
        free(t->line);
        free(t->name);
        free(t->origin);
        *t = (XqosThreshold) {};
}

static void starts_clear(XqosSection *s, XqosEvent e) {
        while (s->n_starts[e] > 0)
                free(s->starts[e][--s->n_starts[e]]);
}

void xqos_section_done(XqosSection *s) {
        for (XqosEvent e = 0; e < _XQOS_EVENT_MAX; e++)
                starts_clear(s, e);
        for (size_t i = 0; i < s->n_thresholds; i++)
                threshold_done(s->thresholds + i);
        *s = (XqosSection) {};
}

bool xqos_section_is_empty(const XqosSection *s) {
        return s->probes == 0 && s->excludes.n == 0 && s->n_thresholds == 0;
}

static const char* excerpt_of(const char *s) {
        static char buffer[EXCERPT_MAX + 1];

        return excerpt(s, buffer);
}

/* Logs something invalid in a line, which is ignored. */
static void _printf_(4, 5) section_ignore(XqosSection *s, const char *path, unsigned line,
                                          const char *format, ...) {
        _cleanup_free_ char *text = NULL;
        va_list ap;

        va_start(ap, format);
        if (vasprintf(&text, format, ap) < 0)
                text = NULL;
        va_end(ap);
        log_warning("%s:%u: %s", path, line, text ?: "invalid, ignoring.");
        s->n_ignored++;
}

/* Parses a list of words. */
static void set_observe(XqosSection *s, const char *path, unsigned line, char *value) {
        char *state;

        s->never = streq(value, "no");
        if (isempty(value) || s->never) {
                s->probes = 0;
                return;
        }
        for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
                ProbeMask probe = probe_mask_from_name(word);

                if (probe == 0)
                        section_ignore(s, path, line, "Observe= expects probes " PROBES_LISTED
                                       ", or 'no', got '%s', ignoring it.", excerpt_of(word));
                s->probes |= probe;
        }
}

static void set_exclude(XqosSection *s, const char *path, unsigned line, char *value) {
        char *state;
        int r;

        for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
                r = exclude_list_add(&s->excludes, word);
                if (r == -E2BIG)
                        section_ignore(s, path, line,
                                       "Exclude= has more than %u exclusions, ignoring '%s'.",
                                       EXCLUDES_MAX, excerpt_of(word));
                else if (r < 0)
                        section_ignore(s, path, line,
                                       "Exclude= expects exclusions like 'port:9100', 'http:/healthz' or "
                                       "'redis:BRPOP', got '%s', ignoring it.", excerpt_of(word));
        }
}

static int set_threshold(XqosSection *s, const char *path, unsigned line, const char *value) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        XqosThreshold new = {}, *t = NULL;
        ThresholdRule rule;
        int r;

        r = threshold_rule_parse(value, WINDOW_DEFAULT_NSEC, &rule, &e);
        if (r == -ENOMEM)
                return r;
        if (r < 0) {
                section_ignore(s, path, line, "%s, ignoring.", e.message);
                return 0;
        }

        for (size_t i = 0; i < s->n_thresholds && !t; i++)
                if (streq(s->thresholds[i].name, rule.name))
                        t = s->thresholds + i;
        if (!t && s->n_thresholds >= XQOS_THRESHOLDS_MAX) {
                section_ignore(s, path, line, "more than %u thresholds, ignoring '%s'.",
                               XQOS_THRESHOLDS_MAX, rule.name);
                return 0;
        }

        new.line = strdup(value);
        new.name = strdup(rule.name);
        if (!new.line || !new.name || asprintf(&new.origin, "%s:%u", path, line) < 0) {
                new.origin = NULL;
                threshold_done(&new);
                return -ENOMEM;
        }
        if (t)
                threshold_done(t);
        else
                t = s->thresholds + s->n_thresholds++;
        *t = new;
        return 0;
}

/* Parses a list of units. name: of the setting. */
static int set_starts(XqosSection *s, XqosEvent e, const char *name, const char *path, unsigned line,
                      char *value) {
        char *state;

        if (isempty(value))
                starts_clear(s, e);
        for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
                _cleanup_free_ char *expanded = NULL;
                int r;

                /* Validates the word by expanding it for any unit with an instance */
                r = unit_name_expand(word, "a@a.service", &expanded);
                if (r == -ENOMEM)
                        return r;
                if (r < 0)
                        section_ignore(s, path, line,
                                       "%s= expects units with a suffix like 'notify@%%n.service', and the "
                                       "specifiers %%n, %%N, %%p, %%i or %%%%, got '%s', ignoring it.", name,
                                       excerpt_of(word));
                else if (s->n_starts[e] >= XQOS_STARTS_MAX)
                        section_ignore(s, path, line, "%s= has more than %u units, ignoring '%s'.", name,
                                       XQOS_STARTS_MAX, excerpt_of(word));
                else {
                        s->starts[e][s->n_starts[e]] = strdup(word);
                        if (!s->starts[e][s->n_starts[e]])
                                return -ENOMEM;
                        s->n_starts[e]++;
                }
        }
        return 0;
}

static int set(XqosSection *s, const char *path, unsigned line, char *name) {
        char *value = unit_file_split(&name);

        if (!value) {
                section_ignore(s, path, line,
                               "expected 'Name=value' in " UNIT_FILE_SECTION ", got '%s', ignoring.",
                               excerpt_of(name));
                return 0;
        }
        if (streq(name, "Observe"))
                set_observe(s, path, line, value);
        else if (streq(name, "Exclude")) {
                if (isempty(value))
                        s->excludes = (ExcludeList) {};
                set_exclude(s, path, line, value);
        } else if (streq(name, "Threshold")) {
                if (!isempty(value))
                        return set_threshold(s, path, line, value);
                while (s->n_thresholds > 0)
                        threshold_done(s->thresholds + --s->n_thresholds);
        } else if (streq(name, "OnViolated"))
                return set_starts(s, XQOS_VIOLATED, name, path, line, value);
        else if (streq(name, "OnCleared"))
                return set_starts(s, XQOS_CLEARED, name, path, line, value);
        else
                section_ignore(s, path, line, "there is no setting '%s' in " UNIT_FILE_SECTION
                               ", expected Observe=, Exclude=, Threshold=, OnViolated= or OnCleared=, "
                               "ignoring.", excerpt_of(name));
        return 0;
}

typedef struct Reading {
        XqosSection *section;
        const char *path;
} Reading;

static int on_line(const char *section, char *line, unsigned number, void *userdata) {
        Reading *r = ASSERT_PTR(userdata);

        if (!streq(section, UNIT_FILE_SECTION))
                return 0;
        if (!line) {
                section_ignore(r->section, r->path, number,
                               "the line is longer than %u bytes, ignoring.", UNIT_FILE_LINE_MAX);
                return 0;
        }
        if (!text_is_valid(line, strlen(line))) {
                section_ignore(r->section, r->path, number, "not UTF-8 text, ignoring the line.");
                return 0;
        }
        return set(r->section, r->path, number, line);
}

int xqos_section_read(XqosSection *s, const char *path, const char *text, size_t size) {
        return unit_file_foreach_line(text, size, on_line, &(Reading) { .section = s, .path = path });
}
