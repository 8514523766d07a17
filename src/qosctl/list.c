/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fnmatch.h>

#include "format.h"
#include "qosctl.h"
#include "snapshot-view.h"
#include "unit-names.h"
#include "value.h"

static bool matches(int argc, char **argv, const char *unit) {
        for (int i = 0; i < argc; i++)
                if (is_glob(argv[i]) && fnmatch(argv[i], unit, FNM_NOESCAPE) == 0)
                        return true;
        return argc == 0;
}

static bool has_item(const Replies *items, const char *unit) {
        for (size_t i = 0; i < items->n; i++)
                if (streq(value_string(items->items[i], "unit"), unit))
                        return true;
        return false;
}

/* Adds a unit, unless it is already in the list. */
static int add_item(Replies *items, sd_json_variant *item) {
        const char *unit = value_string(item, "unit");

        return unit && !has_item(items, unit) && replies_add(items, item, NULL) < 0
                ? log_out_of_memory() : 0;
}

/* Whether the unit is the socket of a service in the list. */
static int is_socket_of_item(const Replies *items, const char *unit) {
        _cleanup_free_ char *service = NULL;

        if (!endswith(unit, ".socket"))
                return false;
        if (asprintf(&service, "%.*s.service", (int) (strlen(unit) - strlen(".socket")), unit) < 0) {
                service = NULL;
                return -ENOMEM;
        }
        return has_item(items, service);
}

/* Lists a unit, or (NULL) the attached units that match the patterns. Returns an exit status. */
static int list_attached(Client *c, const char *unit, int argc, char **argv, Replies *items) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        r = client_call_morebo(c, QOS_METHOD("List"), &replies,
                               SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)),
                               SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window", SD_JSON_BUILD_UNSIGNED(arg_window)));
        /* Units that are not attached are omitted, as with systemctl */
        if (unit && r > 0 && streq(replies.error, QOS_METHOD("NotAttached")))
                return STATUS_OK;
        if (r != 0)
                return unit ? client_fail(r, &replies, "list '%s'", unit) : client_fail(r, &replies, "list units");

        for (size_t i = 0; i < replies.n; i++) {
                const char *name = value_string(replies.items[i], "unit");

                if (!name || (!unit && !matches(argc, argv, name)))
                        continue;
                r = add_item(items, replies.items[i]);
                if (r < 0)
                        return r;
        }

        return STATUS_OK;
}

/* Lists listening units of this host in the format of qosd's replies. */
static int list_listening(int argc, char **argv, Replies *items) {
        _cleanup_names_ Names names = NAMES_INIT;
        int r;

        r = names_find_listening(&names);
        if (r < 0)
                return r;

        for (size_t i = 0; i < names.n; i++) {
                _cleanup_json_ sd_json_variant *v = NULL;
                bool wanted = matches(argc, argv, names.items[i]);

                for (int j = 0; j < argc && !wanted; j++) {
                        const char *rest = startswith(names.items[i], argv[j]);

                        wanted = rest && (isempty(rest) || streq(rest, ".service"));
                }
                if (!wanted)
                        continue;

                r = is_socket_of_item(items, names.items[i]);
                if (r < 0)
                        return log_out_of_memory();
                if (r > 0)
                        continue;

                r = sd_json_buildo(&v, SD_JSON_BUILD_PAIR_BOOLEAN("attached", false),
                                   SD_JSON_BUILD_PAIR_STRING("unit", names.items[i]));
                if (r < 0)
                        return log_out_of_memory();
                r = add_item(items, v);
                if (r < 0)
                        return r;
        }

        return 0;
}

static void print_legend(const Reading *readings, size_t n) {
        size_t attached = 0, degraded = 0;
        bool longer = false;
        const Style *style = terminal_style();
        uint64_t window = WINDOW_UNSET;
        char buf[FORMAT_MAX];

        for (size_t i = 0; i < n; i++) {
                const char *reason = value_string(readings[i].item, "degraded");

                if (!readings[i].snapshot)
                        continue;
                if (attached++ == 0 && !reading_unsigned(&readings[i], "window", &window))
                        window = 0;
                for (size_t w = 0; w < READING_WIDER_MAX; w++)
                        longer = longer || readings[i].wider[w].snapshot;
                if (reason) {
                        _cleanup_free_ char *clean = text_clean(reason, style->utf8);

                        (void) printf("%s%s%s%s: %s\n", degraded++ == 0 ? "\n" : "", color_on(style, COLOR_YELLOW),
                                      readings[i].unit, color_off(style), strempty(clean));
                }
        }

        (void) printf("%s%s%zu unit%s attached", n > 0 ? "\n" : "", color_on(style, COLOR_BOLD), attached, attached == 1 ? "" : "s");
        if (arg_all)
                (void) printf(", %zu more listening", n - attached);
        (void) printf(".%s", color_off(style));
        if (window == 0)
                (void) printf(" Window: since attached.");
        else if (window != WINDOW_UNSET)
                (void) printf(" Window: last %s%s.", format_window(buf, window), longer ? " unless noted in parentheses" : "");
        if (attached == 0 && !arg_all)
                (void) printf(" To attach a unit: qosctl attach UNIT");
        (void) printf("\n");
}

static int print_table(Client *c, Reading *readings, size_t n) {
        _cleanup_(table_freep) Table *table = NULL;
        int r;

        table = table_new(unit_columns, n_unit_columns);
        if (!table)
                return log_out_of_memory();

        for (size_t i = 0; i < n; i++) {
                r = reading_complete(&readings[i], c, "requests.server.latency", "p50");
                if (r >= 0)
                        r = reading_complete(&readings[i], c, "requests.server.latency", "p99");
                if (r < 0)
                        return r;
                reading_add_row(&readings[i], table);
        }

        pager_open();
        if (n > 0) {
                r = table_print(table, stdout, terminal_style(), arg_legend, 0);
                if (r < 0)
                        return log_out_of_memory();
        }
        if (arg_legend)
                print_legend(readings, n);
        return 0;
}

int verb_list(int argc, char **argv) {
        _cleanup_replies_ Replies items = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        Reading *readings;
        int r, status = STATUS_OK;
        bool patterns = argc == 0;

        if (arg_all && arg_host) {
                (void) log_failure(-EOPNOTSUPP, "Listening units can only be listed on the local host, --all cannot be combined with --host=.");
                return STATUS_USAGE;
        }

        r = client_connect(&c);
        if (r < 0)
                return r;

        /* One call per name, as qosd resolves names; one more for all patterns */
        for (int i = 0; i < argc; i++)
                if (is_glob(argv[i]))
                        patterns = true;
                else
                        status = status_combine(status, list_attached(c, argv[i], 0, NULL, &items));
        if (patterns)
                status = status_combine(status, list_attached(c, NULL, argc, argv, &items));
        if (arg_all)
                status = status_combine(status, list_listening(argc, argv, &items));
        if (status != STATUS_OK && items.n == 0)
                return status;

        if (arg_json != JSON_OFF) {
                for (size_t i = 0; i < items.n; i++) {
                        r = json_print(items.items[i]);
                        if (r < 0)
                                return r;
                }
                return status;
        }

        readings = new0(Reading, items.n);
        if (!readings)
                return log_out_of_memory();
        for (size_t i = 0; i < items.n; i++)
                reading_set(&readings[i], items.items[i]);

        status = status_combine(status, print_table(c, readings, items.n));

        for (size_t i = 0; i < items.n; i++)
                reading_done(&readings[i]);
        free(readings);
        return status;
}
