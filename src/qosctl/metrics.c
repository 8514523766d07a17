/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* metrics */

#include "client.h"
#include "exposition-report.h"
#include "format.h"
#include "qosctl.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

static int export_units(Client *c, const char *unit, Replies *ret) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        bool tables;
        int r;

        /* The report counts the series of all scopes */
        tables = arg_scope == EXPOSITION_EVERYTHING || arg_verbose;
        r = client_call_morebo(c, QOS_METHOD("Export"), &replies,
                               SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)),
                               SD_JSON_BUILD_PAIR_CONDITION(tables, "tables", SD_JSON_BUILD_BOOLEAN(true)));
        if (r != 0)
                return unit ? unit_read_fail(r, &replies, unit) : client_fail(r, &replies, "export units");
        for (size_t i = 0; i < replies.n; i++) {
                r = replies_add(ret, replies.items[i], NULL);
                if (r < 0)
                        return log_out_of_memory();
        }
        return STATUS_OK;
}

static int exposition_fail(int r) {
        if (r == -EBADMSG)
                return log_failure(r, "Failed to read metrics: qosd sent an invalid reply.");
        return log_out_of_memory();
}

int verb_metrics(int argc, char **argv) {
        _cleanup_replies_ Replies catalogue = REPLIES_INIT, exports = REPLIES_INIT;
        _cleanup_names_ Names names = NAMES_INIT;
        const ExpositionOptions options = {
                .format = arg_exposition,
                .scope = arg_scope,
                .buckets_max = arg_buckets_max,
                .series_max = arg_series_max,
        };
        _cleanup_client_ Client *c = NULL;
        int r, status = STATUS_OK;

        if (arg_exposition == EXPOSITION_PROTOBUF && arg_json == JSON_OFF && isatty(STDOUT_FILENO))
                return log_failure(-EINVAL, "Refusing to write the binary format 'protobuf' to a terminal.");
        if (arg_verbose && arg_json != JSON_OFF) {
                (void) log_failure(-EINVAL, "Option --verbose is about the formats of --format=, and not "
                                            "supported with JSON output.");
                return STATUS_USAGE;
        }

        r = client_connect(&c);
        if (r < 0)
                return r;

        if (argc > 0) {
                status = names_expand_attached(c, argc, argv, &names);
                if (status < 0)
                        return status;
                for (size_t i = 0; i < names.n; i++) {
                        r = export_units(c, names.items[i], &exports);
                        if (r < 0)
                                return r;
                        status = status_combine(status, r);
                }
                if (status != STATUS_OK && exports.n == 0)
                        return status;
        } else {
                r = export_units(c, NULL, &exports);
                if (r != STATUS_OK)
                        return r;
        }

        if (arg_json != JSON_OFF) {
                for (size_t i = 0; i < exports.n; i++) {
                        sd_json_variant *unit = value_find(exports.items[i], "unit");

                        r = unit ? json_print(unit) : 0;
                        if (r < 0)
                                return r;
                }
                return status;
        }

        r = client_call_more(c, QOS_METHOD("ListMetrics"), 0, NULL, &catalogue);
        if (r != 0)
                return client_fail(r, &catalogue, "list metrics");
        /* On standard error, as standard output must have the format only */
        if (arg_verbose) {
                r = exposition_report(stderr, arg_legend, &options, &catalogue, &exports);
                if (r < 0)
                        return exposition_fail(r);
        }
        r = exposition_write(stdout, &options, &catalogue, &exports);
        if (r < 0)
                return exposition_fail(r);
        exposition_end(stdout, arg_exposition);
        return status;
}
