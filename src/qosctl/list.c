/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fnmatch.h>

#include "format.h"
#include "hosts.h"
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

/* Lists a unit, or, for NULL, the attached units that match the patterns. Returns an exit status. */
static int list_attached(Client *c, const char *unit, int argc, char **argv, Replies *items) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        int r;

        r = client_call_morebo(c, QOS_METHOD("List"), &replies,
                               SD_JSON_BUILD_PAIR_CONDITION(!!unit, "unit", SD_JSON_BUILD_STRING(unit)),
                               SD_JSON_BUILD_PAIR_CONDITION(arg_window != WINDOW_UNSET, "window",
                                                            SD_JSON_BUILD_UNSIGNED(arg_window)));
        /* Units that are not attached are omitted, but unknown names are errors, as with systemctl */
        if (unit && unit_is_detached(r, &replies))
                return STATUS_OK;
        if (r != 0)
                return unit ? unit_read_fail(r, &replies, unit) : client_fail(r, &replies, "list units");

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

/* hosts: name of the host by reading; NULL: only one host. n_hosts: number of different hosts */
static void print_legend(const Reading *readings, size_t n, const char *const *hosts, size_t n_hosts) {
        size_t attached = 0, degraded = 0;
        bool longer = false;
        const Style *style = terminal_style();
        _cleanup_free_ char *summary = NULL;
        uint64_t window = WINDOW_UNSET;
        char buf[FORMAT_MAX];
        size_t size = 0;
        FILE *f;

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

                        _cleanup_free_ char *note = NULL;

                        if (asprintf(&note, "%s%s%s%s%s: %s", color_on(style, COLOR_YELLOW),
                                     hosts ? hosts[i] : "", hosts ? " " : "", readings[i].unit,
                                     color_off(style), strempty(clean)) < 0) {
                                note = NULL;
                                continue;
                        }
                        if (degraded++ == 0)
                                (void) printf("\n");
                        print_colored("", note);
                }
        }

        f = open_memstream(&summary, &size);
        if (!f)
                return;
        (void) fprintf(f, "%s%zu unit%s attached", color_on(style, COLOR_BOLD), attached,
                       attached == 1 ? "" : "s");
        if (hosts)
                (void) fprintf(f, " on %zu host%s", n_hosts, n_hosts == 1 ? "" : "s");
        if (arg_all)
                (void) fprintf(f, ", %zu more listening", n - attached);
        (void) fprintf(f, ".%s", color_off(style));
        if (window == 0)
                (void) fprintf(f, " Window: since attached.");
        else if (window != WINDOW_UNSET)
                (void) fprintf(f, " Window: last %s%s.", format_window(buf, window),
                               longer ? " unless noted in parentheses" : "");
        if (attached == 0 && !arg_all)
                (void) fprintf(f, " To attach a unit: qosctl attach UNIT");
        if (fclose(f) != 0)
                return;
        if (n > 0)
                (void) printf("\n");
        print_colored("", summary);
}

/* Prints the table, with a column HOST unless hosts is NULL. */
static int print_table(const Reading *readings, size_t n, const char *const *hosts, size_t n_hosts) {
        _cleanup_(table_freep) Table *table = NULL;
        _cleanup_free_ Column *columns = NULL;
        unsigned width = terminal_style()->width;
        bool narrow = width > 0 && width < 80;
        int r;

        columns = new0(Column, n_unit_columns + 1);
        if (!columns)
                return log_out_of_memory();
        /* Names of hosts and units are more important than the last columns. On a narrow terminal the names
         * are shortened, and requests in flight are dropped at last */
        columns[0] = (Column) { "HOST", .minimum = narrow ? 5 : 16 };
        for (size_t i = 0; i < n_unit_columns; i++) {
                columns[i + 1] = unit_columns[i];
                if (columns[i + 1].rank > 0 || i == UNIT_COLUMN_IN_FLIGHT)
                        columns[i + 1].rank++;
        }
        columns[UNIT_COLUMN_UNIT + 1].minimum = narrow ? 13 : 18;
        table = hosts ? table_new(columns, n_unit_columns + 1) : table_new(unit_columns, n_unit_columns);
        if (!table)
                return log_out_of_memory();

        for (size_t i = 0; i < n; i++) {
                if (hosts)
                        table_add(table, COLOR_NONE, "%s", hosts[i]);
                reading_add_row(&readings[i], table);
        }

        pager_open();
        if (n > 0) {
                r = table_print(table, stdout, terminal_style(), arg_legend, 0);
                if (r < 0)
                        return log_out_of_memory();
        }
        if (arg_legend)
                print_legend(readings, n, hosts, n_hosts);
        return 0;
}

/* Lists the units with the names, or that match the patterns; all without arguments. Returns an exit
 * status. */
static int list_units(Client *c, int argc, char **argv, Replies *items) {
        bool patterns = argc == 0;
        int status = STATUS_OK;

        /* One call per name, as qosd resolves names; one more for all patterns */
        for (int i = 0; i < argc; i++)
                if (is_glob(argv[i]))
                        patterns = true;
                else
                        status = status_combine(status, list_attached(c, argv[i], 0, NULL, items));
        if (patterns)
                status = status_combine(status, list_attached(c, NULL, argc, argv, items));
        return status;
}

static int complete_reading(Reading *r, Client *c) {
        int k;

        k = reading_complete(r, c, "requests.server.latency", "p50");
        return k < 0 ? k : reading_complete(r, c, "requests.server.latency", "p99");
}

static int check_all(void) {
        if (!arg_all || !arg_hosts)
                return STATUS_OK;

        (void) log_failure(-EOPNOTSUPP, "Listening units can only be listed on the local host, --all cannot "
                                        "be combined with --host=.");
        return STATUS_USAGE;
}

int verb_list(int argc, char **argv) {
        _cleanup_replies_ Replies items = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        Reading *readings;
        int r, status;

        r = check_all();
        if (r != STATUS_OK)
                return r;

        r = client_connect(&c);
        if (r < 0)
                return r;

        status = list_units(c, argc, argv, &items);
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
        r = 0;
        for (size_t i = 0; i < items.n && r >= 0; i++) {
                reading_set(&readings[i], items.items[i]);
                r = complete_reading(&readings[i], c);
        }
        if (r >= 0)
                r = print_table(readings, items.n, NULL, 0);

        for (size_t i = 0; i < items.n; i++)
                reading_done(&readings[i]);
        free(readings);
        return status_combine(status, r);
}

/* ---- several hosts ----------------------------------------------------------------------------------- */

/* Serializes a reading with its longer windows. */
static int pack_reading(const Reading *r, sd_json_variant **ret) {
        _cleanup_json_ sd_json_variant *wider = NULL;
        int k = 0;

        for (size_t i = 0; i < READING_WIDER_MAX && k >= 0; i++)
                k = r->wider[i].snapshot ? sd_json_variant_append_array(&wider, r->wider[i].snapshot) :
                                           sd_json_variant_append_arrayb(&wider, SD_JSON_BUILD_NULL);
        if (k >= 0)
                k = sd_json_buildo(ret, SD_JSON_BUILD_PAIR_VARIANT("item", r->item),
                                   SD_JSON_BUILD_PAIR_VARIANT("wider", wider));
        return k < 0 ? log_out_of_memory() : 0;
}

static void unpack_reading(Reading *r, sd_json_variant *v) {
        sd_json_variant *wider = value_find(v, "wider");

        reading_set(r, value_find(v, "item"));
        for (size_t i = 0; wider && i < MIN(sd_json_variant_elements(wider), (size_t) READING_WIDER_MAX);
             i++) {
                sd_json_variant *snapshot = sd_json_variant_by_index(wider, i);

                if (!sd_json_variant_is_null(snapshot))
                        reading_set_wider(r, i, snapshot, 1);
        }
}

static int collect_units(int argc, char **argv, Replies *ret) {
        _cleanup_replies_ Replies items = REPLIES_INIT;
        _cleanup_client_ Client *c = NULL;
        int r, status;

        r = client_connect(&c);
        if (r < 0)
                return r;

        status = list_units(c, argc, argv, &items);
        for (size_t i = 0; i < items.n; i++) {
                _cleanup_(reading_done) Reading reading = {};
                _cleanup_json_ sd_json_variant *v = NULL;

                reading_set(&reading, items.items[i]);
                r = arg_json == JSON_OFF ? complete_reading(&reading, c) : 0;
                if (r >= 0)
                        r = pack_reading(&reading, &v);
                if (r >= 0 && replies_add(ret, v, NULL) < 0)
                        r = log_out_of_memory();
                if (r < 0)
                        return r;
        }
        return status;
}

static int print_json_of_hosts(const Host *hosts, size_t n) {
        for (const Host *h = hosts; h < hosts + n; h++)
                for (size_t i = 0; i < h->replies.n; i++) {
                        _cleanup_json_ sd_json_variant *v = sd_json_variant_ref(
                                value_find(h->replies.items[i], "item"));
                        int r;

                        r = host_add_name(h, &v);
                        if (r >= 0)
                                r = json_print(v);
                        if (r < 0)
                                return r;
                }
        return 0;
}

static int print_table_of_hosts(const Host *hosts, size_t n) {
        size_t n_readings = 0, i = 0, responding = 0;
        _cleanup_free_ const char **names = NULL;
        Reading *readings;
        int r;

        for (const Host *h = hosts; h < hosts + n; h++)
                n_readings += h->replies.n;
        readings = new0(Reading, n_readings);
        names = new0(const char*, n_readings);
        if (!readings || !names) {
                free(readings);
                return log_out_of_memory();
        }

        for (const Host *h = hosts; h < hosts + n; h++) {
                responding += h->status == STATUS_OK || h->replies.n > 0;
                for (size_t k = 0; k < h->replies.n; k++, i++) {
                        names[i] = h->name;
                        unpack_reading(&readings[i], h->replies.items[k]);
                }
        }
        r = responding > 0 ? print_table(readings, n_readings, names, responding) : 0;

        for (i = 0; i < n_readings; i++)
                reading_done(&readings[i]);
        free(readings);
        return r;
}

int verb_list_hosts(int argc, char **argv) {
        int r, status;
        Host *hosts;
        size_t n;

        r = check_all();
        if (r != STATUS_OK)
                return r;

        status = hosts_collect(collect_units, argc, argv, 0, &hosts, &n);
        if (status < 0)
                return status;

        r = arg_json != JSON_OFF ? print_json_of_hosts(hosts, n) : print_table_of_hosts(hosts, n);
        hosts_done(hosts, n);
        return status_combine(status, r);
}
