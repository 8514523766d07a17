/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "declaration.h"
#include "log.h"
#include "threshold.h"

#define SECTION "[X-QoS]"

/* No setting of ours needs more; as much as the service manager allows for a line is 1 MiB. */
#define LINE_MAX_BYTES 4096U

static void threshold_done(DeclaredThreshold *t) {
        free(t->line);
        free(t->name);
        free(t->origin);
        *t = (DeclaredThreshold) {};
}

void declaration_done(Declaration *d) {
        for (size_t i = 0; i < d->n_thresholds; i++)
                threshold_done(d->thresholds + i);
        *d = (Declaration) {};
}

bool declaration_is_empty(const Declaration *d) {
        return d->probes == 0 && d->excludes.n == 0 && d->n_thresholds == 0;
}

bool text_has_declaration(const char *text, size_t size) {
        return memmem(text, size, SECTION, strlen(SECTION));
}

static const char* excerpt_of(const char *s) {
        static char buffer[EXCERPT_MAX + 1];

        return excerpt(s, buffer);
}

/* Words, each of which is read as one of the list's. */
static void set_observe(Declaration *d, const char *path, unsigned line, char *value) {
        char *state;

        for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
                ProbeMask probe = probe_from_string(word);

                if (probe == 0)
                        log_warning("%s:%u: Observe= has names of probes ('requests', 'tls', 'cpu'), got '%s', ignoring it.", path, line, excerpt_of(word));
                d->probes |= probe;
        }
}

static void set_exclude(Declaration *d, const char *path, unsigned line, char *value) {
        char *state;
        int r;

        for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
                r = exclude_list_add(&d->excludes, word);
                if (r == -E2BIG)
                        log_warning("%s:%u: Exclude= has more than %u things, ignoring '%s'.", path, line, EXCLUDES_MAX, excerpt_of(word));
                else if (r < 0)
                        log_warning("%s:%u: Exclude= has things like 'port:9100', 'http:/healthz' or 'redis:BRPOP', got '%s', ignoring it.",
                                    path, line, excerpt_of(word));
        }
}

static int set_threshold(Declaration *d, const char *path, unsigned line, const char *value) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        DeclaredThreshold new = {}, *t = NULL;
        ThresholdRule rule;
        int r;

        r = threshold_parse(value, WINDOW_DEFAULT_NSEC, &rule, &e);
        if (r == -ENOMEM)
                return r;
        if (r < 0) {
                log_warning("%s:%u: %s, ignoring.", path, line, e.message);
                return 0;
        }

        for (size_t i = 0; i < d->n_thresholds && !t; i++)
                if (streq(d->thresholds[i].name, rule.name))
                        t = d->thresholds + i;
        if (!t && d->n_thresholds >= DECLARED_THRESHOLDS_MAX) {
                log_warning("%s:%u: more than %u thresholds, ignoring '%s'.", path, line, DECLARED_THRESHOLDS_MAX, rule.name);
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

static char* strip(char *s) {
        s += strspn(s, " \t");
        for (size_t l = strlen(s); l > 0 && strchr(" \t\r", s[l - 1]); l--)
                s[l - 1] = 0;
        return s;
}

static int set(Declaration *d, const char *path, unsigned line, char *s) {
        char *equals = strchr(s, '='), *value;

        if (!equals) {
                log_warning("%s:%u: expected 'Name=value' in " SECTION ", got '%s', ignoring.", path, line, excerpt_of(s));
                return 0;
        }
        *equals = 0;
        s = strip(s);
        value = strip(equals + 1);

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
                log_warning("%s:%u: there is no setting '%s' in " SECTION ", expected Observe=, Exclude= or Threshold=, ignoring.", path, line, excerpt_of(s));
        return 0;
}

/* A line, with those that continue it. */
typedef struct Line {
        char text[LINE_MAX_BYTES];
        size_t used;
        unsigned number;        /* of the first one */
        bool overlong;
        bool ours;              /* in our section */
} Line;

static int line_end(Line *l, Declaration *d, const char *path) {
        char *s;

        l->text[l->used] = 0;
        s = strip(l->text);
        if (*s == '[')
                l->ours = streq(s, SECTION);
        else if (l->ours && l->overlong)
                log_warning("%s:%u: the line is longer than %u bytes, ignoring.", path, l->number, LINE_MAX_BYTES - 2);
        else if (l->ours && *s)
                return set(d, path, l->number, s);
        return 0;
}

int declaration_read(Declaration *d, const char *path, const char *text, size_t size) {
        bool continued = false;
        Line line = {};
        unsigned n = 0;
        int r;

        for (size_t i = 0; i < size; ) {
                const char *end = memchr(text + i, '\n', size - i);
                size_t l = end ? (size_t) (end - text) - i : size - i, blank = 0;
                const char *s = text + i;

                i += l + 1;
                n++;
                while (l > 0 && s[l - 1] == '\r')
                        l--;
                while (blank < l && (s[blank] == ' ' || s[blank] == '\t'))
                        blank++;
                /* Comments also within a continued line, as in systemd */
                if (blank < l && (s[blank] == '#' || s[blank] == ';'))
                        continue;

                if (!continued) {
                        line.number = n;
                        line.used = 0;
                        line.overlong = false;
                }
                continued = l > 0 && s[l - 1] == '\\';
                if (continued)
                        l--;
                if (line.used + l + 2 > sizeof(line.text)) {
                        line.overlong = true;
                        l = 0;
                }
                /* Whatever else it is, it is not the end of a string, and fit to be shown */
                for (size_t k = 0; k < l; k++)
                        line.text[line.used++] = (unsigned char) s[k] < ' ' || s[k] == 0x7f ? ' ' : s[k];
                if (continued) {
                        if (!line.overlong)
                                line.text[line.used++] = ' ';
                        continue;
                }
                r = line_end(&line, d, path);
                if (r < 0)
                        return r;
        }
        return continued ? line_end(&line, d, path) : 0;
}
