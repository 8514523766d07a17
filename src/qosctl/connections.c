/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* TCP connections of units. */

#include "format.h"
#include "qosctl.h"
#include "replies.h"
#include "table.h"
#include "terminal.h"
#include "unit-names.h"
#include "value.h"

/* Connections in a table; the others are summed up. */
#define ROWS_MAX 100U

static const char *const sums[] = { "inFlightBytes", "unsentBytes", "retransmits", "bytesSent",
                                    "bytesReceived" };

static void add_count(Table *t, uint64_t n, bool bytes, Color color) {
        char buf[FORMAT_MAX];

        table_add(t, n > 0 ? color : COLOR_NONE, "%s", bytes ? format_bytes(buf, n) : format_count(buf, n));
}

static void add_value(Table *t, sd_json_variant *connection, const char *key, bool duration) {
        char buf[FORMAT_MAX];
        uint64_t n;

        if (value_unsigned(connection, key, &n))
                table_add(t, COLOR_NONE, "%s", duration ? format_duration(buf, n) : format_bytes(buf, n));
        else
                table_add_absent(t);
}

static void add_connection(Table *t, sd_json_variant *connection) {
        static const struct {
                const char *name, *label;
        } labels[] = {
                { "application", "application"   },
                { "peerWindow",  "peer's window" },
                { "sendBuffer",  "send buffer"   },
                { "network",     "network"       },
        };
        const char *limit = value_string(connection, "limitedBy");
        uint64_t n;

        table_add(t, COLOR_NONE, "%s", value_string(connection, "peer") ?: "?");
        table_add(t, COLOR_NONE, "%s", value_string(connection, "local") ?: "?");
        table_add(t, COLOR_NONE, "%s", value_string(connection, "role") ?: "?");
        table_add(t, COLOR_NONE, "%s", value_string(connection, "state") ?: "?");
        add_value(t, connection, "age", /* duration= */ true);
        add_value(t, connection, "rtt", /* duration= */ true);
        add_value(t, connection, "peerWindow", /* duration= */ false);
        for (size_t i = 0; i < ELEMENTSOF(sums); i++)
                if (value_unsigned(connection, sums[i], &n))
                        add_count(t, n, !streq(sums[i], "retransmits"),
                                  streq(sums[i], "retransmits") ? COLOR_YELLOW : COLOR_NONE);
                else
                        table_add_absent(t);
        for (size_t i = 0; limit && i < ELEMENTSOF(labels); i++)
                if (streq(limit, labels[i].name))
                        limit = labels[i].label;
        table_add(t, COLOR_NONE, "%s", limit ?: "?");
}

/* Those of the reply that the table has no room for, and the rest of the daemon. */
static void add_rest(Table *t, sd_json_variant *connections, sd_json_variant *rest) {
        size_t all = sd_json_variant_elements(connections);
        uint64_t values[ELEMENTSOF(sums)] = {}, n = 0, v;

        for (size_t i = ROWS_MAX; i < all; i++, n++)
                for (size_t k = 0; k < ELEMENTSOF(sums); k++)
                        if (value_unsigned(sd_json_variant_by_index(connections, i), sums[k], &v))
                                values[k] += v;
        if (value_unsigned(rest, "connections", &v))
                n += v;
        for (size_t k = 0; k < ELEMENTSOF(sums); k++)
                if (value_unsigned(rest, sums[k], &v))
                        values[k] += v;
        if (n == 0)
                return;
        table_add(t, COLOR_GREY, "(%" PRIu64 " others)", n);
        for (size_t i = 0; i < 6; i++)
                table_add_absent(t);
        for (size_t k = 0; k < ELEMENTSOF(sums); k++)
                add_count(t, values[k], !streq(sums[k], "retransmits"), COLOR_NONE);
        table_add_absent(t);
}

static int print_connections(sd_json_variant *reply) {
        static const Column columns[] = {
                { "PEER", .minimum = 18 },
                { "LOCAL", .minimum = 18, .rank = 5 },
                { "ROLE", .rank = 8 },
                { "STATE", .rank = 7 },
                { "AGE", .right = true, .rank = 4 },
                { "RTT", .right = true },
                { "WINDOW", .right = true, .rank = 6 },
                { "INFLIGHT", .right = true, .rank = 2 },
                { "UNSENT", .right = true, .rank = 1 },
                { "RETRANS", .right = true },
                { "SENT", .right = true, .rank = 9 },
                { "RECEIVED", .right = true, .rank = 10 },
                { "LIMITED BY", .rank = 3 },
        };
        sd_json_variant *connections = value_find(reply, "connections");
        size_t n = connections ? sd_json_variant_elements(connections) : 0;
        _cleanup_(table_freep) Table *t = NULL;

        if (n == 0) {
                (void) printf("No connections\n");
                return 0;
        }
        t = table_new(columns, ELEMENTSOF(columns));
        if (!t)
                return log_out_of_memory();
        for (size_t i = 0; i < n && i < ROWS_MAX; i++)
                add_connection(t, sd_json_variant_by_index(connections, i));
        add_rest(t, connections, value_find(reply, "rest"));
        return table_print(t, stdout, terminal_style(), arg_legend, 0) < 0 ? log_out_of_memory() : 0;
}

static int connections_unit(Client *c, const char *unit, bool first) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        const Style *style = terminal_style();
        int r;

        r = client_callbo(c, QOS_METHOD("ListConnections"), &replies,
                          SD_JSON_BUILD_PAIR_STRING("unit", unit),
                          SD_JSON_BUILD_PAIR_CONDITION(!!arg_sort, "sort", SD_JSON_BUILD_STRING(arg_sort)),
                          SD_JSON_BUILD_PAIR_BOOLEAN("allowInteractiveAuthentication", arg_ask_password));
        if (r != 0)
                return unit_read_fail(r, &replies, unit);
        if (arg_json != JSON_OFF)
                return json_print(replies.items[0]);
        (void) printf("%s%s%s%s\n", first ? "" : "\n", color_on(style, COLOR_BOLD), unit, color_off(style));
        return print_connections(replies.items[0]);
}

int verb_connections(int argc, char **argv) {
        _cleanup_client_ Client *c = NULL;
        _cleanup_names_ Names names = NAMES_INIT;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;
        status = names_expand_attached(c, argc, argv, &names);
        if (status < 0)
                return status;

        polkit_agent_open();
        for (size_t i = 0; i < names.n; i++)
                status = status_combine(status, connections_unit(c, names.items[i], i == 0));
        polkit_agent_close();
        return status;
}
