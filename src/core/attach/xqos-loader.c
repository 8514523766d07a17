/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>

#include "hold.h"
#include "log.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "unit-file.h"
#include "unit-name.h"
#include "xqos-loader.h"
#include "xqos-section.h"

/* Limit of queries per scan. More than the limit of units, as aliases and masked units are included. */
#define QUERIES_MAX 1024U

/* Limit of units matching patterns that are queried when loaded, per period. Sockets may start hundreds of
 * instances per second; others are found by the next scan. */
#define NEW_UNITS_MAX 64U
#define NEW_UNITS_NSEC (10 * NSEC_PER_SEC)

typedef enum QueryType {
        QUERY_UNIT,          /* properties of a unit */
        QUERY_PATTERN,       /* loaded units that match a pattern */
        QUERY_GONE,          /* whether a unit is still loaded */
} QueryType;

/* Query of a unit, then its attach. */
typedef struct Query {
        XqosLoader *loader;
        struct Query *next;
        char *name;
        QueryType type;
        bool named;                     /* there are files of the unit itself, or of an alias */
        ServiceManagerCall *call;
        XqosSection section;
        bool gone;                      /* the unit was unloaded during the query */
} Query;

struct XqosLoader {
        Manager *manager;
        ManagerObserver observer;
        Query *queries;
        unsigned n_queries;
        bool scanning;
        bool again;                     /* unit files have changed during the scan */
        bool failed;                    /* the scan is incomplete: no settings may be dropped */
        uint64_t began;                 /* CLOCK_MONOTONIC ns of the start of the current scan */
        uint64_t read;                  /* CLOCK_MONOTONIC ns of the start of the last completed scan */
        char **patterns;                /* of units to be queried when loaded */
        size_t n_patterns;
        uint64_t new_since;             /* CLOCK_MONOTONIC ns: start of the period */
        unsigned n_new;                 /* queries in it */
};

/* ---- files -------------------------------------------------------------------------------------------- */

static bool file_has_xqos_section(int at, const char *path) {
        _cleanup_free_ char *text = NULL;
        size_t size;

        return unit_file_read(at, path, &text, &size) >= 0 && text_has_xqos_section(text, size);
}

static bool directory_has_xqos_section(int at, const char *name) {
        bool found = false;
        DIR *d;
        int fd;

        fd = openat(at, name, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd < 0)
                return false;
        d = fdopendir(fd);
        if (!d) {
                close_fd(fd);
                return false;
        }
        for (struct dirent *de; !found && (de = readdir(d)); )
                found = endswith(de->d_name, ".conf") && file_has_xqos_section(dirfd(d), de->d_name);
        (void) closedir(d);
        return found;
}

int xqos_read_files(const char *unit, char **files, XqosSection *s, const char **ret_origin) {
        const char *origin = NULL;
        int r = 0;

        for (char **file = files; file && *file && r >= 0; file++) {
                _cleanup_free_ char *text = NULL;
                size_t size;

                r = unit_file_read(AT_FDCWD, *file, &text, &size);
                if (r >= 0 && text_has_xqos_section(text, size))
                        r = xqos_section_read(s, *file, text, size);
                else if (r < 0 && r != -ENOMEM) {
                        if (r != -EINVAL) /* also for /dev/null */
                                log_unit_warning_errno(unit, r, "Failed to read '%s', ignoring: %m", *file);
                        r = 0;
                }
                if (!origin && !xqos_section_is_empty(s))
                        origin = *file;
        }
        if (ret_origin)
                *ret_origin = origin;
        return r;
}

/* ---- queries ------------------------------------------------------------------------------------------ */

static void query_free(Query *q) {
        XqosLoader *l = q->loader;

        for (Query **p = &l->queries; *p; p = &(*p)->next)
                if (*p == q) {
                        *p = q->next;
                        l->n_queries--;
                        break;
                }
        service_manager_call_free(q->call);
        xqos_section_done(&q->section);
        free(q->name);
        free(q);
}

static void xqos_loader_commit(XqosLoader *l);

static void query_end(Query *q) {
        XqosLoader *l = q->loader;

        query_free(q);
        xqos_loader_commit(l);
}

static void unit_apply(Unit *u, const XqosSection *section, bool named) {
        Hold *hold = unit_find_file_hold(u);

        if (hold) {
                hold->seen = true;
                hold->named = hold->named || named;
                hold->seen_named = hold->seen_named || named;
                for (XqosEvent e = 0; e < _XQOS_EVENT_MAX; e++)
                        hold->starts[e] = section->n_starts[e] > 0;
        }
        for (size_t i = 0; i < section->n_thresholds; i++) {
                const XqosThreshold *t = section->thresholds + i;
                _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
                int r;

                r = threshold_set(u->manager, &(ThresholdRequest) {
                                .unit = u->name,
                                .threshold = t->line,
                                .source = THRESHOLD_SOURCE_FILE,
                                .origin = t->origin,
                        }, NULL, &e);
                if (r < 0)
                        log_unit_warning_errno(u->name, r, "%s: %s, ignoring.", t->origin,
                                               e.message ?: strerror(-r));
        }
}

static Query* xqos_loader_query(XqosLoader *l, const char *name, size_t length, QueryType type);

static void on_xqos_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Query *q = ASSERT_PTR(userdata);

        if (error < 0) {
                log_unit_warning_errno(q->name, error, "Failed to attach '%s' by its unit file: %s.",
                                       q->name, e && e->message ? e->message : strerror(-error));
                /* May be a temporary failure */
                q->loader->failed = q->loader->failed || !e ||
                                      e->code == QOS_ERROR_SERVICE_MANAGER_FAILED ||
                                      e->code == QOS_ERROR_NONE;
        } else
                unit_apply(u, &q->section, q->named);
        if (q->gone && !q->named)
                xqos_loader_query(q->loader, q->name, strlen(q->name), QUERY_GONE);
        query_end(q);
}

static void on_xqos_loaded(int error, const char *message, const UnitInfo *info, void *userdata) {
        Query *q = ASSERT_PTR(userdata);
        Manager *m = q->loader->manager;
        const char *origin = NULL; /* the first file with a setting */
        AttachRequest request;
        int r = 0;

        q->call = NULL;
        if (error == -ENOENT) {
                log_warning("'%s' has [X-QoS], but is not a unit, ignoring: %s", q->name,
                            strempty(message));
                query_end(q);
                return;
        }
        if (error < 0) {
                log_debug("Failed to query '%s': %s", q->name,
                          strempty(message));
                q->loader->failed = true;
                query_end(q);
                return;
        }

        if (streq(info->load_state, "loaded"))
                r = xqos_read_files(info->id, info->files, &q->section, &origin);
        if (r < 0) {
                (void) log_oom();
                q->loader->failed = true;
        }
        if (r < 0 || xqos_section_is_empty(&q->section)) {
                query_end(q);
                return;
        }

        request = (AttachRequest) {
                .name = info->id,
                .probes = q->section.probes,
                .excludes = q->section.excludes,
                .type = HOLD_FILE,
                .owner = origin,
                .duration_usec = USEC_INFINITY,
        };
        /* May complete synchronously, and free the query */
        r = manager_attach(m, &request, on_xqos_attached, q, NULL);
        if (r < 0) {
                (void) log_oom();
                q->loader->failed = true;
                query_end(q);
        }
}

/* Reply for a unit matching a pattern that was unloaded: drops its settings, as there may be any number of
 * such units over time. */
static void on_xqos_gone(int error, const char *names, void *userdata) {
        Query *q = ASSERT_PTR(userdata);
        Unit *u = manager_get_unit(q->loader->manager, q->name, NULL);
        Hold *h = unit_find_file_hold(u);

        q->call = NULL;
        if (error >= 0 && h && !h->named && !names_contain(names, q->name)) {
                h->seen = false;
                for (Threshold *t = u->thresholds; t; t = t->next)
                        t->seen = false;
                unit_drop_file_settings(u);
        }
        query_end(q);
}

static void on_xqos_listed(int error, const char *names, void *userdata) {
        Query *q = ASSERT_PTR(userdata);
        size_t l;

        q->call = NULL;
        if (error < 0) {
                (void) log_debug_errno(error, "Failed to list '%s': %m",
                                       q->name);
                q->loader->failed = true;
        }
        for (const char *s = names; *s; s += l, s += strspn(s, " ")) {
                l = strcspn(s, " ");
                xqos_loader_query(q->loader, s, l, QUERY_UNIT);
        }
        query_end(q);
}

/* Returns the new or pending query of this name and type; NULL: failed, logged. */
static Query* xqos_loader_query(XqosLoader *l, const char *name, size_t length, QueryType type) {
        Query *q;
        int r;

        for (q = l->queries; q; q = q->next)
                if (q->type == type && strncmp(q->name, name, length) == 0 && q->name[length] == 0)
                        return q;
        if (l->n_queries >= QUERIES_MAX) {
                log_warning("More than %u units have unit files with [X-QoS], ignoring '%.*s'.",
                            QUERIES_MAX, (int) length, name);
                l->failed = true;
                return NULL;
        }

        q = new0(Query, 1);
        if (!q) {
                (void) log_oom();
                l->failed = true;
                return NULL;
        }
        q->loader = l;
        q->type = type;
        q->name = strndup(name, length);
        q->next = l->queries;
        l->queries = q;
        l->n_queries++;
        r = !q->name ? -ENOMEM :
            type == QUERY_PATTERN ?
                    service_manager_list_loaded(l->manager->service_manager, q->name, on_xqos_listed, q,
                                                &q->call) :
            type == QUERY_GONE    ?
                    service_manager_list_loaded(l->manager->service_manager, q->name, on_xqos_gone, q,
                                                &q->call) :
                                       service_manager_load(l->manager->service_manager, q->name,
                                                            on_xqos_loaded, q, &q->call);
        if (r < 0) {
                (void) log_debug_errno(r, "Failed to query '%.*s': %m", (int) length, name);
                l->failed = true;
                query_free(q);
                return NULL;
        }
        return q;
}

static void on_xqos_unit(const char *name, bool loaded, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        XqosLoader *l = ASSERT_PTR(userdata);
        bool matches = false;
        const Hold *held;

        for (size_t i = 0; i < l->n_patterns && !matches; i++)
                matches = fnmatch(l->patterns[i], name, FNM_NOESCAPE) == 0;
        if (!matches)
                return;

        held = unit_find_file_hold(manager_get_unit(l->manager, name, NULL));
        if (!loaded) {
                for (Query *q = l->queries; q; q = q->next)
                        if (q->type == QUERY_UNIT && streq(q->name, name))
                                q->gone = true;
                if (held && !held->named)
                        xqos_loader_query(l, name, strlen(name), QUERY_GONE);
                return;
        }
        if (held)
                return; /* its files were scanned */
        if (now > l->new_since + NEW_UNITS_NSEC) {
                l->new_since = now;
                l->n_new = 0;
        }
        /* List the unit first: a query would load a unit that is already unloaded again, and thereby trigger
         * itself */
        if (l->n_new++ < NEW_UNITS_MAX)
                xqos_loader_query(l, name, strlen(name), QUERY_PATTERN);
        else if (l->n_new == NEW_UNITS_MAX + 1)
                log_warning("More than %u units with [X-QoS] were loaded in %u s, ignoring '%s' and others "
                            "until the next daemon-reload.", NEW_UNITS_MAX,
                            (unsigned) (NEW_UNITS_NSEC / NSEC_PER_SEC), name);
}

static void xqos_loader_forget_patterns(XqosLoader *l) {
        for (size_t i = 0; i < l->n_patterns; i++)
                free(l->patterns[i]);
        free(l->patterns);
        l->patterns = NULL;
        l->n_patterns = 0;
}

/* Queries units matching the pattern, now and when they are loaded. */
static int xqos_loader_add_pattern(XqosLoader *l, const char *pattern) {
        char **p;
        int r;

        for (size_t i = 0; i < l->n_patterns; i++)
                if (streq(l->patterns[i], pattern))
                        return 0;
        p = realloc(l->patterns, (l->n_patterns + 1) * sizeof(char*));
        if (!p)
                return -ENOMEM;
        l->patterns = p;
        l->patterns[l->n_patterns] = strdup(pattern);
        if (!l->patterns[l->n_patterns])
                return -ENOMEM;
        l->n_patterns++;

        /* Listen before listing, to miss none */
        r = service_manager_listen_loaded(l->manager->service_manager, on_xqos_unit, l);
        xqos_loader_query(l, pattern, strlen(pattern), QUERY_PATTERN);
        return r;
}

/* Queries the unit of a file or drop-in directory with the section. */
static void xqos_loader_found(XqosLoader *l, const char *name) {
        char pattern[NAME_MAX + 2];
        Query *q;
        int r;

        for (const char *const *suffix = unit_observed_suffixes; *suffix; suffix++) {
                const char *end = endswith(name, *suffix);

                /* "service.d" applies to all services, "foo-.service.d" to those with the prefix,
                 * "foo@.service" to its instances */
                if (streq(name, *suffix + 1) || (end && end > name && (end[-1] == '-' || end[-1] == '@'))) {
                        (void) snprintf(pattern, sizeof(pattern), "%.*s*%s", end ? (int) (end - name) : 0,
                                        name, *suffix);
                        r = xqos_loader_add_pattern(l, pattern);
                        if (r < 0) {
                                log_warning_errno(r, "Failed to subscribe to units matching '%s': %m",
                                                  pattern);
                                l->failed = true;
                        }
                        return;
                }
                if (end && end > name) {
                        q = xqos_loader_query(l, name, strlen(name), QUERY_UNIT);
                        if (q)
                                q->named = true;
                        return;
                }
        }
}

static void xqos_loader_scan(XqosLoader *l);

/* At the end of the last query, drops settings that are no longer in any file. */
static void xqos_loader_commit(XqosLoader *l) {
        Manager *m = l->manager;

        if (l->queries || !l->scanning)
                return;
        l->scanning = false;
        l->read = l->began;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT && !l->failed; i++) {
                Hold *h = unit_find_file_hold(m->units.slots[i]);

                if (h)
                        h->named = h->seen_named;
                if (m->units.slots[i])
                        unit_drop_file_settings(m->units.slots[i]);
        }
        if (l->again) {
                l->again = false;
                xqos_loader_scan(l);
        } else
                manager_emit_unit_files_loaded(m);
}

/* Scans all unit files. */
static void xqos_loader_scan(XqosLoader *l) {
        Manager *m = l->manager;

        if (l->scanning) {
                l->again = true;
                return;
        }

        l->scanning = true;
        l->began = now_nsec(CLOCK_MONOTONIC);
        l->failed = false;
        xqos_loader_forget_patterns(l);
        FOREACH_UNIT(u, m) {
                for (Hold *h = u->holds; h; h = h->next)
                        h->seen = h->seen_named = false;
                for (Threshold *t = u->thresholds; t; t = t->next)
                        t->seen = false;
        }

        /* Includes files that others override: properties of the service manager list the effective ones */
        for (const char *const *directory = unit_file_directories; *directory; directory++) {
                DIR *dir = opendir(*directory);

                for (struct dirent *de; dir && (de = readdir(dir)); ) {
                        const char *end = endswith(de->d_name, ".d");

                        if (de->d_name[0] == '.')
                                continue;
                        if (end && directory_has_xqos_section(dirfd(dir), de->d_name)) {
                                char name[NAME_MAX + 1];

                                (void) snprintf(name, sizeof(name), "%.*s", (int) (end - de->d_name),
                                                de->d_name);
                                xqos_loader_found(l, name);
                        } else if (!end && de->d_type != DT_DIR &&
                                   file_has_xqos_section(dirfd(dir), de->d_name))
                                xqos_loader_found(l, de->d_name);
                }
                if (dir)
                        (void) closedir(dir);
        }
        if (l->n_patterns == 0)
                (void) service_manager_listen_loaded(l->manager->service_manager, NULL, NULL);
        xqos_loader_commit(l);
}

uint64_t xqos_loader_get_read(const XqosLoader *l) {
        return l->read;
}

/* ---- loader ------------------------------------------------------------------------------------------- */

static void on_units_reloaded(Manager *m, void *userdata) {
        xqos_loader_scan(ASSERT_PTR(userdata));
}

int xqos_loader_new(Manager *m, XqosLoader **ret) {
        XqosLoader *l;

        l = new0(XqosLoader, 1);
        if (!l)
                return -ENOMEM;
        l->manager = m;
        l->observer = (ManagerObserver) {
                .units_reloaded = on_units_reloaded,
                .userdata = l,
        };
        manager_add_observer(m, &l->observer);
        *ret = l;
        return 0;
}

XqosLoader* xqos_loader_free(XqosLoader *l) {
        if (!l)
                return NULL;

        manager_remove_observer(l->manager, &l->observer);
        if (l->manager->service_manager)
                (void) service_manager_listen_loaded(l->manager->service_manager, NULL, NULL);
        while (l->queries)
                query_free(l->queries);
        xqos_loader_forget_patterns(l);
        free(l);
        return NULL;
}
