/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "config.h"
#include "log.h"
#include "parse.h"

/* Longer lines are invalid. */
#define LINE_MAX_BYTES 4096U

/* In all directories together. */
#define DROPINS_MAX 256U

static const char *const directories[] = { "/etc", "/run", "/usr/lib" }; /* in descending priority */

void config_set_defaults(Config *c) {
        *c = (Config) {
                .units_max = 256,
                .default_probes = PROBE_REQUESTS | PROBE_CPU,
                .default_window_nsec = WINDOW_DEFAULT_NSEC,
                .connections_per_uid_max = 128,
                .leases_per_uid_max = 64,
                .units_per_uid_max = 32,
                .interval_min_usec = 100 * USEC_PER_MSEC,
                .minimum_samples = 5,
        };
}

/* ---- values ------------------------------------------------------------------------------------------- */

static int parse_number(const char *s, unsigned min, unsigned max, unsigned *ret) {
        char *end;
        unsigned long n;

        if (s[0] < '0' || s[0] > '9')
                return -EINVAL;
        errno = 0;
        n = strtoul(s, &end, 10);
        if (errno != 0 || *end != 0 || n < min || n > max)
                return -EINVAL;

        *ret = n;
        return 0;
}

/* Setters return NULL on success, or what was expected. An empty value resets to the default. */
static const char* set_units_max(Config *c, const char *value) {
        return parse_number(value, 1, 256, &c->units_max) < 0 ? "a number from 1 to 256" : NULL;
}

static const char* set_default_probes(Config *c, const char *value) {
        _cleanup_free_ char *copy = strdup(value);
        ProbeMask mask = 0;
        char *state;

        for (char *word = copy ? strtok_r(copy, " \t", &state) : NULL; word;
             word = strtok_r(NULL, " \t", &state)) {
                ProbeMask probe = probe_mask_from_name(word);

                if (probe == 0)
                        return "names of probes " PROBES_LISTED;
                mask |= probe;
        }
        if (mask == 0)
                return "names of probes " PROBES_LISTED;

        c->default_probes = mask;
        return NULL;
}

static const char* set_default_window(Config *c, const char *value) {
        uint64_t nsec;

        if (parse_time(value, &nsec) < 0 || nsec == WINDOW_TOTAL || !window_is_valid(nsec))
                return "a multiple of 100ms up to 1s, of 1s up to 10s, 60s or 5min";
        c->default_window_nsec = nsec;
        return NULL;
}

static const char* set_connections(Config *c, const char *value) {
        return parse_number(value, 1, 4096, &c->connections_per_uid_max) < 0 ? "a number from 1 to 4096" :
               NULL;
}

static const char* set_leases(Config *c, const char *value) {
        return parse_number(value, 0, 4096, &c->leases_per_uid_max) < 0 ? "a number from 0 to 4096" : NULL;
}

static const char* set_units_per_uid(Config *c, const char *value) {
        return parse_number(value, 0, 256, &c->units_per_uid_max) < 0 ? "a number from 0 to 256" : NULL;
}

static const char* set_interval_min(Config *c, const char *value) {
        uint64_t nsec;

        if (parse_time(value, &nsec) < 0 || nsec < 10 * NSEC_PER_MSEC || nsec > 3600 * NSEC_PER_SEC)
                return "a time from 10ms to 1h";
        c->interval_min_usec = nsec / NSEC_PER_USEC;
        return NULL;
}

static const char* set_minimum_samples(Config *c, const char *value) {
        return parse_number(value, 5, 100000, &c->minimum_samples) < 0 ? "a number from 5 to 100000" : NULL;
}

#define SETTING(name, set, field) { name, set, offsetof(Config, field), sizeof(((Config*) NULL)->field) }

static const struct {
        const char *name;
        const char* (*set)(Config *c, const char *value);
        size_t offset, size;            /* of the field, for resetting it */
} settings[] = {
        SETTING("UnitsMax",              set_units_max,       units_max),
        SETTING("DefaultProbes",         set_default_probes,  default_probes),
        SETTING("DefaultWindow",         set_default_window,  default_window_nsec),
        SETTING("ConnectionsPerUserMax", set_connections,     connections_per_uid_max),
        SETTING("LeasesPerUserMax",      set_leases,          leases_per_uid_max),
        SETTING("UnitsPerUserMax",       set_units_per_uid,   units_per_uid_max),
        SETTING("IntervalMinSec",        set_interval_min,    interval_min_usec),
        SETTING("MinimumSamples",        set_minimum_samples, minimum_samples),
};

/* ---- files -------------------------------------------------------------------------------------------- */

static char* strip(char *s) {
        s += strspn(s, " \t");
        for (size_t l = strlen(s); l > 0 && strchr(" \t\r", s[l - 1]); l--)
                s[l - 1] = 0;
        return s;
}

typedef struct Parser {
        const char *path;
        enum {
                SECTION_NONE,           /* before the first section */
                SECTION_OURS,
                SECTION_OTHER,          /* unknown or invalid, already logged */
        } section;
} Parser;

static void parse_line(Parser *p, unsigned line, char *s, Config *c) {
        char *equals;

        s = strip(s);
        if (*s == 0)
                return;

        if (*s == '[') {
                p->section = streq(s, "[QoS]") ? SECTION_OURS : SECTION_OTHER;
                if (p->section == SECTION_OTHER && !startswith(s, "[X-"))
                        log_warning("%s:%u: unknown section '%s', expected '[QoS]', ignoring it.", p->path,
                                    line, s);
                return;
        }
        if (p->section == SECTION_OTHER)
                return;
        equals = strchr(s, '=');
        if (!equals) {
                log_warning("%s:%u: expected 'Name=value', got '%s', ignoring.", p->path, line, s);
                return;
        }
        if (p->section == SECTION_NONE) {
                log_warning("%s:%u: '%s' is not in section '[QoS]', ignoring.", p->path, line, s);
                return;
        }

        *equals = 0;
        s = strip(s);
        for (size_t i = 0; i < ELEMENTSOF(settings); i++)
                if (streq(s, settings[i].name)) {
                        const char *value = strip(equals + 1), *expected;
                        Config defaults;

                        if (*value == 0) {
                                config_set_defaults(&defaults);
                                memcpy((char*) c + settings[i].offset,
                                       (const char*) &defaults + settings[i].offset, settings[i].size);
                                return;
                        }
                        expected = settings[i].set(c, value);
                        if (expected)
                                log_warning("%s:%u: %s= must be %s, got '%s', ignoring.", p->path, line, s,
                                            expected, value);
                        return;
                }

        log_warning("%s:%u: unknown setting '%s', ignoring.", p->path, line, s);
}

static int parse_file(const char *path, Config *c) {
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_free_ char *buffer = NULL, *joined = NULL;
        size_t size = 0, used = 0;
        Parser p = { .path = path };
        unsigned line = 0, first = 0;
        ssize_t n;

        f = fopen(path, "re");
        if (!f) {
                if (errno != ENOENT)
                        (void) log_warning_errno(-errno, "Failed to read '%s', ignoring: %m", path);
                return 0;
        }
        joined = new0(char, LINE_MAX_BYTES + 1);
        if (!joined)
                return -ENOMEM;

        while ((n = getline(&buffer, &size, f)) >= 0) {
                bool more;

                line++;
                while (n > 0 && (buffer[n - 1] == '\n' || buffer[n - 1] == '\r'))
                        n--;
                buffer[n] = 0;
                if (used == 0)
                        first = line;

                if (!text_is_valid(buffer, n)) {
                        log_warning("%s:%u: not UTF-8 text, ignoring the line.", path, line);
                        used = 0;
                        continue;
                }

                /* Comments also within a continued line, as systemd does */
                if (strchr("#;", buffer[strspn(buffer, " \t")]) && buffer[strspn(buffer, " \t")] != 0)
                        continue;

                more = n > 0 && buffer[n - 1] == '\\';
                if (more)
                        buffer[--n] = 0;
                if (used + n + 2 > LINE_MAX_BYTES) {
                        log_warning("%s:%u: longer than %u bytes, ignoring the line.", path, first,
                                    LINE_MAX_BYTES);
                        used = 0;
                        continue;
                }
                if (used > 0)
                        joined[used++] = ' ';
                memcpy(joined + used, buffer, n + 1);
                used += n;
                if (more && used > 0)
                        continue;

                parse_line(&p, first, joined, c);
                used = 0;
        }
        if (ferror(f)) /* for instance a directory */
                (void) log_warning_errno(-errno, "Failed to read '%s', ignoring: %m", path);
        if (used > 0)
                parse_line(&p, first, joined, c);
        return 0;
}

static int compare_names(const void *a, const void *b) {
        return strcmp(*(char *const*) a, *(char *const*) b);
}

int config_load(const char *root, Config *ret) {
        char *names[DROPINS_MAX];
        size_t n_names = 0;
        char path[512];
        Config c;
        int r = 0;

        config_set_defaults(&c);

        for (size_t i = 0; i < ELEMENTSOF(directories); i++) {
                (void) snprintf(path, sizeof(path), "%s%s/qosd.conf", root, directories[i]);
                if (access(path, F_OK) >= 0) {
                        r = parse_file(path, &c);
                        break;
                }
        }

        for (size_t i = 0; i < ELEMENTSOF(directories) && r >= 0; i++) {
                DIR *d;

                (void) snprintf(path, sizeof(path), "%s%s/qosd.conf.d", root, directories[i]);
                d = opendir(path);
                if (!d)
                        continue;
                for (struct dirent *de; r >= 0 && (de = readdir(d)); ) {
                        bool known = false;

                        if (!endswith(de->d_name, ".conf") || de->d_name[0] == '.')
                                continue;
                        for (size_t k = 0; k < n_names; k++)
                                known = known || streq(names[k], de->d_name);
                        if (known)
                                continue;
                        if (n_names >= DROPINS_MAX) {
                                log_warning("More than %u drop-ins, ignoring '%s/%s'.", DROPINS_MAX, path,
                                            de->d_name);
                                continue;
                        }
                        names[n_names] = strdup(de->d_name);
                        if (!names[n_names])
                                r = -ENOMEM;
                        else
                                n_names++;
                }
                (void) closedir(d);
        }

        qsort(names, n_names, sizeof(names[0]), compare_names);
        for (size_t k = 0; k < n_names; k++) {
                for (size_t i = 0; i < ELEMENTSOF(directories) && r >= 0; i++) {
                        (void) snprintf(path, sizeof(path), "%s%s/qosd.conf.d/%s", root, directories[i],
                                        names[k]);
                        if (access(path, F_OK) >= 0) {
                                r = parse_file(path, &c);
                                break;
                        }
                }
                free(names[k]);
        }

        if (r < 0)
                return r;
        *ret = c;
        return 0;
}
