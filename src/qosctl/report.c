/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A report of a unit in one file. */

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crossings.h"
#include "diagnose.h"
#include "qosctl.h"
#include "redact.h"
#include "report-page.h"
#include "terminal.h"
#include "thresholds.h"
#include "unit-history.h"
#include "unit-names.h"
#include "value.h"

/* Of the history without --since=, as qosd has it. */
#define SINCE_DEFAULT (3600 * NSEC_PER_SEC)

static const uint64_t windows[REPORT_WINDOWS] = { 10 * NSEC_PER_SEC, 300 * NSEC_PER_SEC, 0 };

static void report_done(Report *r) {
        free(r->unit);
        (void) sd_json_variant_unref(r->status);
        for (size_t i = 0; i < REPORT_WINDOWS; i++)
                (void) sd_json_variant_unref(r->snapshots[i]);
        (void) sd_json_variant_unref(r->history);
        (void) sd_json_variant_unref(r->buckets);
        (void) sd_json_variant_unref(r->diagnosis);
        (void) sd_json_variant_unref(r->thresholds);
        (void) sd_json_variant_unref(r->crossings);
}

static sd_json_variant* take_reply(const Replies *replies) {
        return sd_json_variant_ref(replies->items[0]);
}

/* Returns an exit status. */
static int read_snapshots(Client *c, const char *unit, Report *ret) {
        for (size_t i = 0; i < REPORT_WINDOWS; i++) {
                _cleanup_replies_ Replies reply = REPLIES_INIT;
                int r;

                r = client_callbo(c, QOS_METHOD("Get"), &reply, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("window", windows[i]));
                if (r != 0)
                        return unit_read_fail(r, &reply, unit);
                ret->snapshots[i] = take_reply(&reply);
        }
        return STATUS_OK;
}

/* Without the right to attach units, the report has none. */
static int read_diagnosis(Client *c, const char *unit, Report *ret, char **ret_error) {
        _cleanup_replies_ Replies reply = REPLIES_INIT;
        bool interrupted;
        int r;

        r = unit_diagnose(c, unit, &(DiagnoseOptions) { .interval = diagnose_get_interval() }, &interrupted,
                          &reply);
        if (r == 0) {
                ret->diagnosis = take_reply(&reply);
                return 0;
        }
        *ret_error = client_error_message(r, reply.error, reply.parameters);
        ret->diagnosis_error = *ret_error;
        return *ret_error ? 0 : log_out_of_memory();
}

static int read_history(Client *c, const char *unit, char **metrics, sd_json_variant **ret) {
        _cleanup_replies_ Replies reply = REPLIES_INIT;
        int r;

        r = history_get(c, unit, metrics, &reply);
        if (r == STATUS_OK)
                *ret = take_reply(&reply);
        return r;
}

static int read_thresholds(Client *c, const char *unit, Report *ret) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        r = thresholds_list(c, unit, &replies);
        if (r != 0)
                return client_fail(r, &replies, "list the thresholds of '%s'", unit);
        r = sd_json_variant_new_array(&ret->thresholds, replies.items, replies.n);
        return r < 0 ? log_out_of_memory() : STATUS_OK;
}

static int read_all(Client *c, const char *unit, Report *ret, char **ret_error) {
        char *latency[] = { (char*) "requests.server.latency", NULL };
        _cleanup_replies_ Replies status = REPLIES_INIT;
        int r;

        r = client_call(c, QOS_METHOD("GetStatus"), 0, NULL, &status);
        if (r != 0)
                return client_fail(r, &status, "get the status of qosd");
        ret->status = take_reply(&status);

        /* First, as it takes time: all others are then of its end */
        r = read_diagnosis(c, unit, ret, ret_error);
        if (r < 0)
                return r;
        r = read_snapshots(c, unit, ret);
        if (r != STATUS_OK)
                return r;
        ret->unit = strdup(value_string(ret->snapshots[0], "unit") ?: unit);
        if (!ret->unit)
                return log_out_of_memory();
        r = read_history(c, unit, NULL, &ret->history);
        if (r == STATUS_OK)
                r = read_history(c, unit, latency, &ret->buckets);
        if (r != STATUS_OK)
                return r;
        r = read_thresholds(c, unit, ret);
        if (r != STATUS_OK)
                return r;

        ret->now = now_nsec(CLOCK_REALTIME);
        ret->since = arg_since != SINCE_UNSET ? arg_since : ret->now - SINCE_DEFAULT;
        ret->until = arg_until != SINCE_UNSET ? arg_until : ret->now;
        if (!arg_host) {
                r = crossings_read(ret->unit, ret->since, ret->until, &ret->crossings);
                if (r < 0)
                        return log_failure(r, "Failed to read the journal: %m");
        }
        return STATUS_OK;
}

/* Twice: texts may have names that only a later reply has as such. */
static int redact_all(Report *r) {
        _cleanup_json_ sd_json_variant *thresholds = sd_json_variant_ref(r->thresholds); /* owns the names */
        size_t n = sd_json_variant_elements(thresholds);
        _cleanup_free_ const char **kept = NULL;
        _cleanup_redaction_ Redaction redaction = {};
        sd_json_variant **replies[] = {
                &r->status, &r->snapshots[0], &r->snapshots[1], &r->snapshots[2], &r->history, &r->buckets,
                &r->diagnosis, &r->thresholds, &r->crossings,
        };

        kept = new0(const char*, n + 2);
        if (!kept)
                return -ENOMEM;
        kept[0] = r->unit;
        for (size_t i = 0; i < n; i++)
                kept[i + 1] = strempty(value_string(sd_json_variant_by_index(thresholds, i),
                                                    "threshold.name"));
        redaction.kept = kept;

        for (unsigned pass = 0; pass < 2; pass++)
                for (size_t i = 0; i < ELEMENTSOF(replies); i++) {
                        _cleanup_json_ sd_json_variant *v = sd_json_variant_ref(*replies[i]);
                        int k;

                        if (!v)
                                continue;
                        k = redact_json(&redaction, &v);
                        if (k < 0)
                                return k;
                        if (pass == 0)
                                continue;
                        (void) sd_json_variant_unref(*replies[i]);
                        *replies[i] = TAKE_PTR(v);
                }
        r->redacted = true;
        return 0;
}

/* A file that exists is replaced as a whole, and not at all if the report fails. */
static int write_page(const Report *report, const char *path) {
        _cleanup_free_ char *temporary = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        struct stat st;
        int fd, r;

        if (!path || (stat(path, &st) >= 0 && !S_ISREG(st.st_mode))) {
                f = path ? fopen(path, "we") : NULL;
                if (path && !f)
                        return log_failure(errno, "Failed to write '%s': %m", path);
                r = report_print(f ?: stdout, report);
                if (r >= 0 && fflush(f ?: stdout) != 0)
                        r = -errno;
                return r < 0 ? log_failure(r, "Failed to write the report: %m") : 0;
        }

        if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
                temporary = NULL;
                return log_out_of_memory();
        }
        fd = mkostemp(temporary, O_CLOEXEC);
        if (fd < 0)
                return log_failure(errno, "Failed to write '%s': %m", path);
        f = fdopen(fd, "w");
        if (!f) {
                (void) close(fd);
                r = -ENOMEM;
        } else
                r = report_print(f, report);
        /* It may have names of peers: readable by its owner alone, as mkostemp() makes it */
        if (r >= 0 && fflush(f) != 0)
                r = -errno;
        if (r >= 0 && rename(temporary, path) < 0)
                r = -errno;
        if (r < 0) {
                (void) unlink(temporary);
                return log_failure(r, "Failed to write '%s': %m", path);
        }
        return 0;
}

int verb_report(int argc, char **argv) {
        _cleanup_(report_done) Report report = {};
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        _cleanup_free_ char *error = NULL;
        char host[256] = "";
        int r;

        if (!arg_output && terminal_is_tty()) {
                (void) log_failure(-EINVAL, "A report is not for a terminal, expected --output=FILE.");
                return STATUS_USAGE;
        }
        if (arg_since != SINCE_UNSET && arg_until != SINCE_UNSET && arg_until <= arg_since) {
                (void) log_failure(-EINVAL, "--until= is not after --since=.");
                return STATUS_USAGE;
        }
        r = diagnose_check_interval();
        if (r != STATUS_OK)
                return r;

        r = client_connect(&c);
        if (r < 0)
                return r;
        r = names_expand_one(c, argv[0], &names);
        if (r != STATUS_OK)
                return r;
        r = read_all(c, names.items[0], &report, &error);
        if (r != STATUS_OK)
                return r;

        if (!arg_redact) {
                (void) gethostname(host, sizeof(host) - 1);
                report.host = arg_host ?: host;
        } else {
                r = redact_all(&report);
                if (r < 0)
                        return log_failure(r, "Failed to replace names: %m");
        }
        r = write_page(&report, arg_output);
        return r < 0 ? r : STATUS_OK;
}
