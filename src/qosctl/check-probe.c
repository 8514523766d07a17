/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* check-probe: checks manifests of custom probes, by a process that has the parser of XML. */

#include <fcntl.h>
#include <sys/wait.h>

#include "config-build.h"
#include "qosctl.h"
#include "table.h"
#include "value.h"

/* Runs qosd-probe-check, whose errors go to standard error. Returns what it has written. */
static int probe_check_run(const char *path, FILE **ret, pid_t *ret_pid) {
        const char *program = secure_getenv("QOSD_PROBE_CHECK") ?: QOSD_PROBE_CHECK;
        int fds[2], r;
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        pid = fork();
        if (pid == 0) {
                if (dup2(fds[1], STDOUT_FILENO) >= 0)
                        (void) execl(program, program, path, NULL);
                (void) log_failure(-errno, "Failed to run '%s': %m", program);
                _exit(STATUS_FAILED);
        }
        r = pid < 0 ? -errno : 0;
        (void) close(fds[1]);
        *ret = r < 0 ? NULL : fdopen(fds[0], "re");
        if (!*ret) {
                r = r < 0 ? r : -errno;
                (void) close(fds[0]);
                if (pid > 0)
                        (void) waitpid(pid, NULL, 0);
                return r;
        }
        *ret_pid = pid;
        return 0;
}

static int print_metrics(sd_json_variant *manifest) {
        static const Column columns[] = {
                { "METRIC"                                          },
                { "TYPE"                                            },
                { "UNIT"                                            },
                { "LABELS",                              .rank = 1  },
                { "DESCRIPTION", .minimum = 24, .wrap = true        },
        };
        sd_json_variant *metrics = value_find(manifest, "metrics");
        const char *probe = value_string(manifest, "name");
        _cleanup_(table_freep) Table *t = NULL;

        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; metrics && i < sd_json_variant_elements(metrics); i++) {
                sd_json_variant *m = sd_json_variant_by_index(metrics, i), *labels = value_find(m, "labels");
                char names[128] = "";
                size_t n = labels ? sd_json_variant_elements(labels) : 0;

                for (size_t k = 0; k < n; k++)
                        (void) snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                                        k > 0 ? ", " : "",
                                        value_string(sd_json_variant_by_index(labels, k), "name"));
                table_add(t, COLOR_NONE, "custom.%s.%s", probe, value_string(m, "name"));
                table_add(t, COLOR_NONE, "%s", value_string(m, "type"));
                table_add(t, COLOR_NONE, "%s", value_string(m, "unit"));
                if (n > 0)
                        table_add(t, COLOR_NONE, "%s", names);
                else
                        table_add_absent(t);
                table_add(t, COLOR_NONE, "%s", value_string(m, "description"));
        }
        return table_print(t, stdout, terminal_style(), arg_legend, 0);
}

static int check_file(const char *path) {
        _cleanup_json_ sd_json_variant *manifest = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        int r, status;
        pid_t pid = -1;

        r = probe_check_run(path, &f, &pid);
        if (r < 0)
                return log_failure(r, "Failed to check '%s': %s", path, strerror(-r));
        r = sd_json_parse_file(f, NULL, 0, &manifest, NULL, NULL);
        if (waitpid(pid, &status, 0) < 0 || status != 0)
                return STATUS_FAILED;
        if (r < 0)
                return log_failure(r, "Failed to check '%s': %s", path, strerror(-r));
        r = arg_json != JSON_OFF ? json_print(manifest) : print_metrics(manifest);
        return r < 0 ? r : STATUS_OK;
}

int verb_check_probe(int argc, char **argv) {
        int status = STATUS_OK;

        if (arg_host) {
                (void) log_failure(-EOPNOTSUPP,
                                   "Probes can only be checked on the local host, --host= is not "
                                   "supported.");
                return STATUS_USAGE;
        }
        for (int i = 0; i < argc; i++) {
                int r = check_file(argv[i]);

                status = status_combine(status, r < 0 ? STATUS_FAILED : r);
        }
        return status;
}
