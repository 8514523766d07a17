/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* verify: checks sections [X-QoS], which the service manager ignores, and of which qosd reports errors in
 * the journal only. */

#include <fcntl.h>

#include "custom-names.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-file.h"
#include "unit-names.h"
#include "xqos-section.h"

/* Reads the section of a file. Returns whether the file has one. */
static int section_add_file(XqosSection *s, const char *path) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        int r;

        r = unit_file_read(AT_FDCWD, path, &text, &size);
        if (r < 0)
                return log_failure(r, "Failed to read '%s': %s", path,
                                   r == -EINVAL ? "not a regular file, or too large" : strerror(-r));
        if (!text_has_xqos_section(text, size))
                return false;
        r = xqos_section_read(s, path, text, size);
        return r < 0 ? log_out_of_memory() : true;
}

static int section_finish(const XqosSection *s, const char *name, bool found) {
        if (!found)
                (void) log_failure(0, "'%s' has no section " UNIT_FILE_SECTION ".", name);
        return s->n_ignored > 0 ? STATUS_FAILED : STATUS_OK;
}

static int verify_file(const char *path) {
        XqosSection s = {};
        int r;

        r = section_add_file(&s, path);
        if (r >= 0)
                r = section_finish(&s, path, r > 0);
        xqos_section_done(&s);
        return r;
}

/* Reads the files of a unit in the order of the service manager. */
static int verify_unit(sd_bus *bus, const char *name) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *path = NULL, *unit = NULL, *fragment = NULL;
        _cleanup_(strv_freep) char **drop_ins = NULL;
        bool found = false;
        XqosSection s = {};
        int changed = 0, r;

        r = unit_load(bus, name, &path, &unit);
        if (r != STATUS_OK)
                return r;
        r = sd_bus_get_property_string(bus, PID1_NAME, path, PID1_NAME ".Unit", "FragmentPath", &error,
                                       &fragment);
        if (r >= 0)
                r = sd_bus_get_property_strv(bus, PID1_NAME, path, PID1_NAME ".Unit", "DropInPaths", &error,
                                             &drop_ins);
        if (r >= 0)
                r = sd_bus_get_property_trivial(bus, PID1_NAME, path, PID1_NAME ".Unit", "NeedDaemonReload",
                                                &error, 'b', &changed);
        if (r < 0)
                return log_failure(r, "Failed to get the unit files of '%s': %s", unit,
                                   error.message ?: strerror(-r));
        if (changed)
                (void) log_failure(0,
                                   "Files of '%s' have changed on disk, run \"systemctl daemon-reload\" to "
                                   "load them.",
                                   unit);

        /* Units without a fragment may have drop-ins */
        r = isempty(fragment) ? 0 : section_add_file(&s, fragment);
        found = r > 0;
        for (char **file = drop_ins; file && *file && r >= 0; file++) {
                r = section_add_file(&s, *file);
                found = found || r > 0;
        }
        if (r >= 0)
                r = section_finish(&s, unit, found);
        xqos_section_done(&s);
        return r;
}

int verb_verify(int argc, char **argv) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        int r, status = STATUS_OK;

        if (arg_host) {
                (void) log_failure(-EOPNOTSUPP, "Unit files can only be checked on the local host, --host= "
                                                "is not supported.");
                return STATUS_USAGE;
        }

        custom_names_scan(/* used= */ 0);
        for (int i = 0; i < argc; i++) {
                /* Names of units have no slash */
                if (strchr(argv[i], '/'))
                        r = verify_file(argv[i]);
                else {
                        r = bus ? 0 : sd_bus_open_system(&bus);
                        if (r < 0)
                                return log_failure(r, "Failed to connect to the system bus: %m");
                        r = verify_unit(bus, argv[i]);
                }
                status = status_combine(status, r < 0 ? STATUS_FAILED : r);
        }
        return status;
}
