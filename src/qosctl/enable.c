/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* enable, disable: attach units at boot by a drop-in with [X-QoS]. */

#include <fcntl.h>
#include <sys/stat.h>

#include <systemd/sd-bus.h>

#include "client.h"
#include "exclude.h"
#include "probe-name.h"
#include "progress.h"
#include "custom-names.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-name.h"
#include "unit-names.h"
#include "value.h"

#define SYSTEM_DIRECTORY "/etc/systemd/system"
#define FILE_NAME "50-qos.conf"

/* Timeout for qosd to load the unit files, of which there may be some hundred. */
#define NOW_USEC (10 * USEC_PER_SEC)

/* Whether the unit can be ordered after qosd without an ordering cycle: it is not part of early boot. */
static bool unit_starts_late(sd_bus *bus, const char *path, const char *unit) {
        static const char *const early[] = { "basic.target", "sysinit.target", "sockets.target",
                                             "qosd.service" };
        _cleanup_(strv_freep) char **before = NULL;
        int defaults = 0;

        if (!endswith(unit, ".service") || streq(unit, "dbus.service") ||
            streq(unit, "dbus-broker.service") || streq(unit, "qosd.service") ||
            sd_bus_get_property_trivial(bus, PID1_NAME, path, PID1_NAME ".Unit", "DefaultDependencies", NULL,
                                        'b', &defaults) < 0 ||
            !defaults ||
            sd_bus_get_property_strv(bus, PID1_NAME, path, PID1_NAME ".Unit", "Before", NULL, &before) < 0)
                return false;
        for (char **i = before; i && *i; i++)
                for (size_t k = 0; k < ELEMENTSOF(early); k++)
                        if (streq(*i, early[k]))
                                return false;
        return true;
}

/* Validates the settings, which qosd would otherwise do when it loads the file, with errors in the journal.
 * Returns an exit status. */
static int check_request(int argc, char **argv, ProbeMask *ret_probes, ExcludeList *ret_excludes) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        custom_names_scan(/* used= */ 0);
        r = probe_mask_parse(arg_probes, ret_probes, &e);
        if (r >= 0)
                r = exclude_list_parse(arg_excludes, ret_excludes, &e);
        if (r == -ENOMEM)
                return log_out_of_memory();
        if (r < 0) {
                (void) log_failure(r, "Failed to enable: %s.", e.message);
                return STATUS_USAGE;
        }

        for (int i = 0; i < argc; i++) {
                _cleanup_free_ char *unit = NULL;
                bool observed = false;

                /* Invalid names are reported when the unit is looked up */
                r = unit_name_mangle(argv[i], &unit);
                if (r == -ENOMEM)
                        return log_out_of_memory();
                for (const char *const *suffix = unit_observed_suffixes; r >= 0 && *suffix && !observed;
                     suffix++)
                        observed = endswith(unit, *suffix);
                if (r >= 0 && !observed)
                        return unit_type_fail(unit);
        }
        return STATUS_OK;
}

/* Returns an exit status. */
static int find_unit(sd_bus *bus, const char *name, char **ret, bool *ret_late) {
        _cleanup_free_ char *path = NULL;
        int r;

        r = unit_load(bus, name, &path, ret);
        if (r == STATUS_OK)
                *ret_late = unit_starts_late(bus, path, *ret);
        return r;
}

static int drop_in_path(const char *unit, char **ret_directory, char **ret_path) {
        if (asprintf(ret_directory, SYSTEM_DIRECTORY "/%s.d", unit) < 0) {
                *ret_directory = NULL;
                return log_out_of_memory();
        }
        if (asprintf(ret_path, "%s/" FILE_NAME, *ret_directory) < 0) {
                *ret_path = NULL;
                return log_out_of_memory();
        }
        return 0;
}

static void write_list(FILE *f, const char *setting, char **list) {
        if (!list)
                return;
        (void) fprintf(f, "%s=", setting);
        for (char **i = list; *i; i++)
                (void) fprintf(f, "%s%s", i == list ? "" : " ", *i);
        (void) fprintf(f, "\n");
}

/* Reports a created or removed file. */
static int report(const char *unit, const char *path, const char *what) {
        _cleanup_json_ sd_json_variant *v = NULL;

        if (arg_json == JSON_OFF) {
                (void) log_failure(0, "%s '%s'.", what, path);
                return 0;
        }
        if (sd_json_buildo(&v, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                           SD_JSON_BUILD_PAIR_STRING("file", path)) < 0)
                return log_out_of_memory();
        return json_print(v);
}

static int enable_unit(const char *unit, bool late) {
        _cleanup_free_ char *directory = NULL, *path = NULL, *temporary = NULL;
        /* A section without Observe= does not attach the unit */
        char *default_probes[] = { (char*) "requests", (char*) "cpu", NULL };
        _cleanup_fclose_ FILE *f = NULL;
        int r;

        r = drop_in_path(unit, &directory, &path);
        if (r < 0)
                return r;
        if (asprintf(&temporary, "%s/.#" FILE_NAME, directory) < 0) {
                temporary = NULL;
                return log_out_of_memory();
        }

        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): log_failure() is negative */
        if (mkdir(directory, 0755) < 0 && errno != EEXIST)
                return log_failure(errno, "Failed to create directory '%s': %m", directory);
        f = fopen(temporary, "we");
        if (!f)
                return log_failure(errno, "Failed to write '%s': %m", temporary);
        (void) fprintf(f, "# Created by \"qosctl enable\", removed by \"qosctl disable\"\n");
        /* Attach before the first request after a boot */
        if (late)
                (void) fprintf(f, "[Unit]\nAfter=qosd.service\n\n");
        /* For services that shed load themselves */
        if (endswith(unit, ".service"))
                (void) fprintf(f, "[Service]\nEnvironment=QOS_VIOLATED=/run/qosd/violated/%%n\n\n");
        (void) fprintf(f, "[X-QoS]\n");
        write_list(f, "Observe", arg_probes ?: default_probes);
        write_list(f, "Exclude", arg_excludes);
        if (fchmod(fileno(f), 0644) < 0 || fflush(f) != 0 || rename(temporary, path) < 0) {
                r = log_failure(errno, "Failed to write '%s': %m", path);
                (void) unlink(temporary);
                return r;
        }
        return report(unit, path, "Created");
}

/* Returns 1 if a file was removed. */
static int disable_unit(const char *unit) {
        _cleanup_free_ char *directory = NULL, *path = NULL;
        int r;

        r = drop_in_path(unit, &directory, &path);
        if (r < 0)
                return r;
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): log_failure() is negative */
        if (unlink(path) < 0)
                return errno == ENOENT ? 0 : log_failure(errno, "Failed to remove '%s': %m", path);
        (void) rmdir(directory); /* fails if there are other drop-ins */
        r = report(unit, path, "Removed");
        return r < 0 ? r : 1;
}

/* Waits until qosd has loaded the unit files since the given time (CLOCK_MONOTONIC ns). */
static int wait_read(Client *c, uint64_t since) {
        uint64_t until = now_usec(CLOCK_MONOTONIC) + NOW_USEC;

        for (;;) {
                _cleanup_replies_ Replies replies = REPLIES_INIT;
                uint64_t read;
                int r;

                r = client_call(c, QOS_METHOD("GetStatus"), 0, NULL, &replies);
                if (r != 0)
                        return client_fail(r, &replies, "check whether unit files are loaded");
                if (replies.n > 0 && value_unsigned(replies.items[0], "unitFilesLoaded", &read) &&
                    read >= since)
                        return STATUS_OK;
                if (now_usec(CLOCK_MONOTONIC) > until)
                        return log_failure(-ETIMEDOUT,
                                           "Timed out after %llu s waiting for qosd to load the unit files.",
                                           (unsigned long long) (NOW_USEC / USEC_PER_SEC));
                progress_draw();
                (void) usleep(20 * USEC_PER_MSEC);
        }
}

/* Checks that the unit is attached by its unit files, with the requested probes and exclusions: a later
 * drop-in may override them, and other holds do not count. */
static int check_attached(Client *c, const char *unit, ProbeMask probes, const ExcludeList *excludes) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        sd_json_variant *holds, *hold = NULL;
        const char *name, *missing;
        int r;

        r = client_call_morebo(c, QOS_METHOD("List"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", unit));
        if (r != 0)
                return client_fail(r, &replies, "observe '%s' (see 'journalctl -u qosd')", unit);

        holds = replies.n > 0 ? value_find(replies.items[0], "holds") : NULL;
        for (size_t i = 0; holds && i < sd_json_variant_elements(holds) && !hold; i++)
                if (streq_ptr(value_string(sd_json_variant_by_index(holds, i), "type"), "unitFile"))
                        hold = sd_json_variant_by_index(holds, i);
        missing = hold ? NULL : "[X-QoS]";
        for (unsigned i = 0; !missing && (name = probe_mask_name(i)); i++)
                if (probes & 1U << i && !value_contains(value_find(hold, "probes"), name))
                        missing = name;
        for (size_t i = 0; !missing && i < excludes->n; i++)
                if (!value_contains(value_find(hold, "exclude"), excludes->list[i].text))
                        missing = excludes->list[i].text;
        if (!missing)
                return STATUS_OK;
        return log_failure(-ENOENT,
                           "Failed to observe '%s': '%s' is not in effect (see 'journalctl -u qosd' and the "
                           "other drop-ins of the unit).",
                           unit, missing);
}

/* Waits until the drop-ins of all units are in effect. */
static int wait_in_force(int argc, char **argv, ProbeMask probes, const ExcludeList *excludes,
                         uint64_t since) {
        _cleanup_client_ Client *c = NULL;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;
        progress_begin(0, /* interruptible= */ false, "Waiting until qosd has loaded the unit files");
        status = wait_read(c, since);
        progress_end();
        for (int i = 0; i < argc && status == STATUS_OK; i++)
                status = check_attached(c, argv[i], probes, excludes);
        return status;
}

static int change_files(int argc, char **argv, bool enable) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r, status = STATUS_OK;
        ExcludeList excludes = {};
        ProbeMask probes = 0;
        bool changed = false;
        uint64_t since;

        if (arg_host) {
                (void) log_failure(-EOPNOTSUPP, "Unit files can only be changed on the local host, --host= "
                                                "is not supported.");
                return STATUS_USAGE;
        }
        if (enable) {
                r = check_request(argc, argv, &probes, &excludes);
                if (r != STATUS_OK)
                        return r;
        }
        r = sd_bus_open_system(&bus);
        if (r < 0)
                return log_failure(r, "Failed to connect to the system bus: %m");

        for (int i = 0; i < argc; i++) {
                _cleanup_free_ char *unit = NULL;
                bool late = false;

                r = find_unit(bus, argv[i], &unit, &late);
                if (r == STATUS_OK) {
                        r = enable ? enable_unit(unit, late) : disable_unit(unit);
                        changed = changed || enable || r != 0; /* even if only the report has failed */
                        r = r < 0 ? r : STATUS_OK;
                }
                status = status_combine(status, r);
        }

        since = now_usec(CLOCK_MONOTONIC) * NSEC_PER_USEC;
        if (changed) {
                r = sd_bus_call_method(bus, PID1_NAME, PID1_PATH, PID1_NAME ".Manager", "Reload", &error,
                                       NULL, NULL);
                if (r < 0)
                        return log_failure(r, "Failed to reload the service manager: %s",
                                           error.message ?: strerror(-r));
        }
        return arg_now && status == STATUS_OK ? wait_in_force(argc, argv, probes, &excludes, since) : status;
}

int verb_enable(int argc, char **argv) {
        return change_files(argc, argv, true);
}

int verb_disable(int argc, char **argv) {
        return change_files(argc, argv, false);
}
