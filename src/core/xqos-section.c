/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "parse.h"
#include "threshold.h"
#include "unit-file.h"
#include "xqos-section.h"

static void threshold_done(XqosThreshold *t) {
        free(t->line);
        free(t->name);
        free(t->origin);
        *t = (XqosThreshold) {};
}

void xqos_section_done(XqosSection *d) {
        for (size_t i = 0; i < d->n_thresholds; i++)
                threshold_done(d->thresholds + i);
        *d = (XqosSection) {};
}

bool xqos_section_is_empty(const XqosSection *d) {
        return d->probes == 0 && d->excludes.n == 0 && d->n_thresholds == 0;
}

static const char* excerpt_of(const char *s) {
        static char buffer[EXCERPT_MAX + 1];

        return excerpt(s, buffer);
}

/* Parses a list of words. */
static void set_observe(XqosSection *d, const char *path, unsigned line, char *value) {
        char *state;

        for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
                ProbeMask probe = probe_mask_from_name(word);

                if (probe == 0)
                        log_warning("%s:%u: Observe= expects probes " PROBES_LISTED
                                    ", got '%s', ignoring it.", path, line, excerpt_of(word));
                d->probes |= probe;
        }
}

static void set_exclude(XqosSection *d, const char *path, unsigned line, char *value) {
        char *state;
        int r;

        for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
                r = exclude_list_add(&d->excludes, word);
                if (r == -E2BIG)
                        log_warning("%s:%u: Exclude= has more than %u exclusions, ignoring '%s'.",
                                    path, line, EXCLUDES_MAX, excerpt_of(word));
                else if (r < 0)
                        log_warning("%s:%u: Exclude= expects exclusions like 'port:9100', "
                                    "'http:/healthz' or 'redis:BRPOP', got '%s', ignoring it.",
                                    path, line, excerpt_of(word));
        }
}

static int set_threshold(XqosSection *d, const char *path, unsigned line, const char *value) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        XqosThreshold new = {}, *t = NULL;
        ThresholdRule rule;
        int r;

        r = threshold_rule_parse(value, WINDOW_DEFAULT_NSEC, &rule, &e);
        if (r == -ENOMEM)
                return r;
        if (r < 0) {
                log_warning("%s:%u: %s, ignoring.", path, line, e.message);
                return 0;
        }

        for (size_t i = 0; i < d->n_thresholds && !t; i++)
                if (streq(d->thresholds[i].name, rule.name))
                        t = d->thresholds + i;
        if (!t && d->n_thresholds >= XQOS_THRESHOLDS_MAX) {
                log_warning("%s:%u: more than %u thresholds, ignoring '%s'.", path, line,
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
                t = d->thresholds + d->n_thresholds++;
        *t = new;
        return 0;
}

static int set(XqosSection *d, const char *path, unsigned line, char *s) {
        char *value = unit_file_split(&s);

        if (!value) {
                log_warning("%s:%u: expected 'Name=value' in " UNIT_FILE_SECTION ", got '%s', ignoring.",
                            path, line, excerpt_of(s));
                return 0;
        }
        if (streq(s, "Observe")) {
                if (isempty(value))
                        d->probes = 0;
                set_observe(d, path, line, value);
        } else if (streq(s, "Exclude")) {
                if (isempty(value))
                        d->excludes = (ExcludeList) {};
                set_exclude(d, path, line, value);
        } else if (streq(s, "Threshold")) {
                if (!isempty(value))
                        return set_threshold(d, path, line, value);
                while (d->n_thresholds > 0)
                        threshold_done(d->thresholds + --d->n_thresholds);
        } else
                log_warning("%s:%u: there is no setting '%s' in " UNIT_FILE_SECTION
                            ", expected Observe=, Exclude= or Threshold=, ignoring.", path, line,
                            excerpt_of(s));
        return 0;
}

typedef struct Reading {
        XqosSection *declaration;
        const char *path;
} Reading;

static int on_line(const char *section, char *line, unsigned number, void *userdata) {
        Reading *r = ASSERT_PTR(userdata);

        if (!streq(section, UNIT_FILE_SECTION))
                return 0;
        if (!line) {
                log_warning("%s:%u: the line is longer than %u bytes, ignoring.", r->path, number,
                            UNIT_FILE_LINE_MAX);
                return 0;
        }
        if (!text_is_valid(line, strlen(line))) {
                log_warning("%s:%u: not UTF-8 text, ignoring the line.", r->path, number);
                return 0;
        }
        return set(r->declaration, r->path, number, line);
}

int xqos_section_read(XqosSection *d, const char *path, const char *text, size_t size) {
        return unit_file_foreach_line(text, size, on_line, &(Reading) { .declaration = d, .path = path });
}
