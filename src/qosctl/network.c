/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What TCP counts on the connections of units. */

#include "qosctl.h"
#include "replies.h"
#include "status-internal.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

static int network_unit(Client *c, const char *unit, bool first) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        const Style *style = terminal_style();
        sd_json_variant *network;
        const char *name;
        Reading reading;
        int r;

        r = client_callbo(c, QOS_METHOD("Get"), &replies, SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                       SD_JSON_BUILD_UNSIGNED(arg_window)));
        if (r != 0)
                return unit_read_fail(r, &replies, unit);

        name = value_string(replies.items[0], "unit") ?: unit;
        network = value_find(replies.items[0], "network");
        if (arg_json != JSON_OFF) {
                _cleanup_json_ sd_json_variant *v = NULL;

                r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_STRING("unit", name),
                                   SD_JSON_BUILD_PAIR_CONDITION(!!network, "network",
                                                                SD_JSON_BUILD_VARIANT(network)));
                return r < 0 ? log_out_of_memory() : json_print(v);
        }

        (void) printf("%s%s%s%s\n", first ? "" : "\n", color_on(style, COLOR_BOLD), name, color_off(style));
        reading = (Reading) { .snapshot = replies.items[0], .unit = name };
        if (!network)
                (void) printf("Not observed with the probe network (to do so: qosctl attach "
                              "--probes=network %s)\n", name);
        else if (!network_print(&reading, /* all= */ true))
                (void) printf("Connections are not measured on this kernel, see 'qosctl probes'\n");
        return 0;
}

int verb_network(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;
        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        pager_open();
        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, network_unit(c, names.items[i], i == 0));
        return status;
}
