/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <ctype.h>
#include <unistd.h>

#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "user-units.h"

/* Connects to the private socket of the service manager, as not every user has a bus. */
static int manager_connect(sd_bus **ret) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_free_ char *address = NULL;
        const char *directory = secure_getenv("XDG_RUNTIME_DIR");
        int r;

        if (directory)
                r = asprintf(&address, "unix:path=%s/systemd/private", directory);
        else
                r = asprintf(&address, "unix:path=/run/user/%u/systemd/private", (unsigned) getuid());
        if (r < 0)
                return log_out_of_memory();

        r = sd_bus_new(&bus);
        if (r >= 0)
                r = sd_bus_set_address(bus, address);
        if (r >= 0)
                r = sd_bus_start(bus);
        if (r < 0)
                return log_failure(r, "Failed to connect to the service manager of the user (%s): %m",
                                   address);

        *ret = TAKE_PTR(bus);
        return 0;
}

/* Appends the path of a slice to that of the manager: a.slice/a-b.slice. */
static int append_slice(char **path, const char *slice) {
        for (const char *dash = slice; *slice != '-' && (dash = strpbrk(dash, "-.")); dash++) {
                char *longer;

                if (asprintf(&longer, "%s/%.*s.slice", *path, (int) (dash - slice), slice) < 0)
                        return log_out_of_memory();
                free(*path);
                *path = longer;
                if (*dash == '.')
                        break;
        }
        return 0;
}

/* Returns the control group of a unit; without one, the one that it would have, or, if running is set, an
 * error. Returns an exit status, or a negative errno that is logged. */
static int unit_get_control_group(sd_bus *bus, const char *root, const char *name, bool running,
                                  char **ret) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *path = NULL, *id = NULL, *interface = NULL, *group = NULL, *slice = NULL;
        char *longer;
        const char *type;
        int r;

        r = unit_load(bus, name, &path, &id);
        if (r != STATUS_OK)
                return r;

        type = strrchr(id, '.') + 1;
        if (asprintf(&interface, "%s.%c%s", PID1_NAME, toupper((unsigned char) *type), type + 1) < 0)
                return log_out_of_memory();
        r = sd_bus_get_property_string(bus, PID1_NAME, path, interface, "ControlGroup", &error, &group);
        if (r >= 0)
                r = sd_bus_get_property_string(bus, PID1_NAME, path, interface, "Slice", &error, &slice);
        if (sd_bus_error_has_name(&error, SD_BUS_ERROR_UNKNOWN_PROPERTY))
                return unit_type_fail(id);
        if (r < 0)
                return log_failure(r, "Failed to read the control group of '%s': %s", id,
                                   error.message ?: strerror(-r));
        if (*group) {
                *ret = TAKE_PTR(group);
                return STATUS_OK;
        }
        if (running) {
                (void) log_failure(-ENOENT,
                                   "'%s' is not running: a unit of a user is known by its control group, "
                                   "which it has while it runs.",
                                   id);
                return STATUS_NO_SUCH_UNIT;
        }

        free(group);
        group = strdup(root);
        if (!group)
                return log_out_of_memory();
        r = append_slice(&group, slice);
        if (r < 0)
                return r;
        if (asprintf(&longer, "%s/%s", group, id) < 0)
                return log_out_of_memory();
        *ret = longer;
        return STATUS_OK;
}

static bool is_unit(Candidates c) {
        return c == CANDIDATES_ATTACHED || c == CANDIDATES_UNITS;
}

static int make_pattern(const char *root, const char *pattern, char **ret) {
        return asprintf(ret, "%s/*%s", root, pattern) < 0 ? log_out_of_memory() : STATUS_OK;
}

int user_units_resolve(const Verb *verb, int argc, char **argv, char ***ret) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *root = NULL;
        _cleanup_(strv_freep) char **list = NULL;
        int r;

        r = manager_connect(&bus);
        if (r < 0)
                return r;
        r = sd_bus_get_property_string(bus, PID1_NAME, PID1_PATH, PID1_NAME ".Manager", "ControlGroup",
                                       &error, &root);
        if (r < 0)
                return log_failure(r,
                                   "Failed to read the control group of the service manager of the user: %s",
                                   error.message ?: strerror(-r));

        list = new0(char*, (size_t) argc + 2);
        if (!list)
                return log_out_of_memory();
        if (argc == 0 && is_unit(verb->first)) {
                r = make_pattern(root, "", list);
                if (r < 0)
                        return r;
        }

        for (int i = 0; i < argc; i++) {
                if (!is_unit(i == 0 ? verb->first : verb->others) || *argv[i] == '/') {
                        list[i] = strdup(argv[i]);
                        r = list[i] ? STATUS_OK : log_out_of_memory();
                } else if (is_glob(argv[i]))
                        r = make_pattern(root, argv[i], list + i);
                else
                        r = unit_get_control_group(bus, root, argv[i], verb->first == CANDIDATES_UNITS,
                                                   list + i);
                if (r != STATUS_OK)
                        return r;
        }

        *ret = TAKE_PTR(list);
        return STATUS_OK;
}
