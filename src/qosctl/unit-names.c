/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fnmatch.h>

#include <systemd/sd-bus.h>

#include "parse.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-name.h"
#include "unit-names.h"
#include "value.h"

void names_done(Names *n) {
        for (size_t i = 0; i < n->n; i++)
                free(n->items[i]);
        free(n->items);
        *n = NAMES_INIT;
}

int names_add(Names *n, const char *name) {
        char **items, *copy;

        /* Patterns may overlap */
        for (size_t i = 0; i < n->n; i++)
                if (streq(n->items[i], name))
                        return 0;

        items = reallocarray(n->items, n->n + 1, sizeof(char*));
        if (!items)
                return log_out_of_memory();
        n->items = items;

        copy = strdup(name);
        if (!copy)
                return log_out_of_memory();
        n->items[n->n++] = copy;
        return 1;
}

bool is_glob(const char *s) {
        return strpbrk(s, "*?[");
}

int names_expand_attached(Client *c, int argc, char **argv, Names *ret) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        bool listed = false;
        int r, status = STATUS_OK;

        for (int i = 0; i < argc; i++) {
                bool found = false;

                if (!is_glob(argv[i])) {
                        r = names_add(ret, argv[i]);
                        if (r < 0)
                                return r;
                        continue;
                }

                if (!listed) {
                        r = client_call_more(c, QOS_METHOD("List"), 0, NULL, &replies);
                        if (r != 0)
                                return client_fail(r, &replies, "list units");
                        listed = true;
                }

                for (size_t j = 0; j < replies.n; j++) {
                        const char *unit = value_string(replies.items[j], "unit");

                        if (!unit || !value_boolean(replies.items[j], "attached") ||
                            fnmatch(argv[i], unit, FNM_NOESCAPE) != 0)
                                continue;
                        r = names_add(ret, unit);
                        if (r < 0)
                                return r;
                        found = true;
                }

                if (!found) {
                        (void) log_failure(-ENOENT, "No attached unit matches '%s'.", argv[i]);
                        status = STATUS_NOT_ATTACHED;
                }
        }

        return status;
}

/* Without a suffix, a pattern matches services and scopes only, so that "*" does not attach all slices. */
static bool loaded_unit_matches(const char *pattern, const char *unit) {
        const char *suffix = strrchr(unit, '.');

        return endswith(unit, ".service") || endswith(unit, ".scope") ||
               (suffix && endswith(pattern, suffix));
}

int names_expand_one(Client *c, char *pattern, Names *ret) {
        int r;

        r = names_expand_attached(c, 1, &pattern, ret);
        if (r != STATUS_OK)
                return r;
        if (ret->n != 1) {
                (void) log_failure(-EINVAL, "Expected one unit, but '%s' matches %zu.", pattern, ret->n);
                return STATUS_USAGE;
        }
        return STATUS_OK;
}

int names_expand_loaded(int argc, char **argv, Names *ret) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        int r, status = STATUS_OK;

        for (int i = 0; i < argc; i++) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
                const char *unit, *load;
                bool found = false;

                if (!is_glob(argv[i])) {
                        r = names_add(ret, argv[i]);
                        if (r < 0)
                                return r;
                        continue;
                }

                if (arg_host) {
                        (void) log_failure(-EOPNOTSUPP, "Patterns cannot be attached on a remote host, "
                                           "expected a unit name instead of '%s'.", argv[i]);
                        return STATUS_USAGE;
                }

                if (!bus) {
                        r = sd_bus_open_system(&bus);
                        if (r < 0)
                                return log_failure(r,
                                                   "Failed to connect to the system bus to expand '%s': %m",
                                                   argv[i]);
                }

                r = sd_bus_message_new_method_call(bus, &m, PID1_NAME, PID1_PATH, PID1_NAME ".Manager",
                                                   "ListUnitsByPatterns");
                if (r >= 0)
                        r = sd_bus_message_append(m, "asas", 0, 1, argv[i]);
                if (r < 0)
                        return log_failure(r, "Failed to list units matching '%s': %m", argv[i]);
                r = sd_bus_call(bus, m, 0, &error, &reply);
                if (r < 0)
                        return log_failure(r, "Failed to list units matching '%s': %s", argv[i],
                                               error.message ?: strerror(-r));

                r = sd_bus_message_enter_container(reply, 'a', "(ssssssouso)");
                while (r >= 0 && (r = sd_bus_message_read(reply, "(ssssssouso)", &unit, NULL, &load, NULL,
                                                          NULL, NULL, NULL, NULL, NULL, NULL)) > 0) {
                        if (!streq(load, "loaded") || !loaded_unit_matches(argv[i], unit))
                                continue;
                        r = names_add(ret, unit);
                        if (r < 0)
                                return r;
                        found = true;
                }
                if (r < 0)
                        return log_failure(r, "Failed to read the list of units: %m");

                if (!found) {
                        (void) log_failure(-ENOENT, "No loaded service or scope matches '%s'.", argv[i]);
                        status = status_combine(status, STATUS_NO_SUCH_UNIT);
                }
        }

        return status;
}

/* Updates the most similar name with those of a method of the service manager, which returns names of units
 * or paths of unit files. */
static void suggest_from(sd_bus *bus, const char *method, const char *type, const char *name, size_t *best,
                         char **found) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        const char *unit;

        if (sd_bus_message_new_method_call(bus, &m, PID1_NAME, PID1_PATH, PID1_NAME ".Manager",
                                           method) < 0 ||
            sd_bus_message_append(m, "asas", 0, 0) < 0 || sd_bus_call(bus, m, 0, NULL, &reply) < 0 ||
            sd_bus_message_enter_container(reply, 'a', type) < 0)
                return;
        while (sd_bus_message_enter_container(reply, 'r', NULL) > 0 &&
               sd_bus_message_read(reply, "s", &unit) > 0) {
                const char *slash = strrchr(unit, '/');
                size_t distance = text_distance(name, slash ? slash + 1 : unit);

                if (distance > 0 && distance < *best &&
                    free_and_strdup(found, slash ? slash + 1 : unit) >= 0)
                        *best = distance;
                if (sd_bus_message_skip(reply, NULL) < 0 || sd_bus_message_exit_container(reply) < 0)
                        return;
        }
}

static void unit_suggest(const char *name) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_free_ char *mangled = NULL, *found = NULL;
        size_t best = text_distance_of_typo(name) + 1;

        /* Not for names of templates */
        if (arg_host || unit_name_mangle(name, &mangled) < 0 || strstr(mangled, "@.") ||
            sd_bus_open_system(&bus) < 0)
                return;
        suggest_from(bus, "ListUnitsByPatterns", "(ssssssouso)", mangled, &best, &found);
        suggest_from(bus, "ListUnitFilesByPatterns", "(ss)", mangled, &best, &found);
        if (found)
                (void) log_failure(0, "Did you mean '%s'?", found);
}

int unit_load(sd_bus *bus, const char *name, char **ret_path, char **ret_id) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *mangled = NULL, *state = NULL, *copy = NULL;
        const char *path;
        int r;

        if (*name == '/') {
                (void) log_failure(-EINVAL,
                                   "Control groups have no unit file, expected a unit name instead of '%s'.",
                                   name);
                return STATUS_USAGE;
        }
        r = unit_name_mangle(name, &mangled);
        if (r == -ENOMEM)
                return log_out_of_memory();
        if (r < 0) {
                (void) log_failure(r, "Invalid unit name '%s'.", name);
                return STATUS_USAGE;
        }

        r = sd_bus_call_method(bus, PID1_NAME, PID1_PATH, PID1_NAME ".Manager", "LoadUnit", &error, &reply,
                               "s", mangled);
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &path);
        if (r >= 0)
                r = sd_bus_get_property_string(bus, PID1_NAME, path, PID1_NAME ".Unit", "LoadState", &error,
                                               &state);
        if (r < 0)
                return log_failure(r, "Failed to load unit '%s': %s", mangled,
                                   error.message ?: strerror(-r));
        if (!streq(state, "loaded")) {
                (void) log_failure(-ENOENT, "Unit '%s' not found (%s).", mangled, state);
                unit_suggest(name);
                return STATUS_NO_SUCH_UNIT;
        }

        copy = strdup(path);
        if (!copy)
                return log_out_of_memory();
        r = sd_bus_get_property_string(bus, PID1_NAME, path, PID1_NAME ".Unit", "Id", &error, ret_id);
        if (r < 0)
                return log_failure(r, "Failed to load unit '%s': %s", mangled,
                                   error.message ?: strerror(-r));
        *ret_path = TAKE_PTR(copy);
        return STATUS_OK;
}

int unit_type_fail(const char *unit) {
        (void) log_failure(-EOPNOTSUPP,
                           "Units of the type of '%s' have no processes, expected a service, scope, slice "
                           "or socket.",
                           unit);
        return STATUS_USAGE;
}

/* True if it cannot be determined. */
static bool unit_exists(const char *unit) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_free_ char *state = NULL;
        const char *path;

        /* Control groups and units of other hosts are unknown to the local service manager */
        if (arg_host || *unit == '/')
                return true;

        return sd_bus_open_system(&bus) < 0 ||
               sd_bus_call_method(bus, PID1_NAME, PID1_PATH, PID1_NAME ".Manager", "LoadUnit", NULL, &reply,
                                  "s", unit) < 0 ||
               sd_bus_message_read(reply, "o", &path) < 0 ||
               sd_bus_get_property_string(bus, PID1_NAME, path, PID1_NAME ".Unit", "LoadState", NULL,
                                          &state) < 0 ||
               !streq(state, "not-found");
}

bool unit_is_detached(int r, const Replies *replies) {
        return r > 0 && streq(replies->error, QOS_METHOD("NotAttached")) &&
                unit_exists(value_string(replies->parameters, "unit") ?: "/");
}

int unit_fail(int r, const Replies *replies, const char *what, const char *unit) {
        if (r <= 0 || !streq(replies->error, QOS_METHOD("NotAttached")) || unit_is_detached(r, replies))
                r = client_fail(r, replies, "%s '%s'", what, unit);
        else {
                (void) log_failure(-ENOENT, "Failed to %s '%s': there is no unit '%s'.", what, unit,
                                   strempty(value_string(replies->parameters, "unit")));
                r = STATUS_NO_SUCH_UNIT;
        }
        if (r == STATUS_NO_SUCH_UNIT)
                unit_suggest(unit);
        return r;
}

int unit_read_fail(int r, const Replies *replies, const char *unit) {
        return unit_fail(r, replies, "read", unit);
}
