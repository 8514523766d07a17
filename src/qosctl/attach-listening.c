/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* attach --listening */

#include <inttypes.h>

#include "attach-listening.h"
#include "format.h"
#include "qosctl.h"
#include "terminal.h"
#include "value.h"

/* Adds a listening unit. Instead of a socket unit it adds the service that the socket unit triggers, unless
 * that is started per connection (Accept=yes). */
static int add_server(sd_bus *bus, const char *unit, Names *ret) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *path = NULL, *id = NULL;
        char **triggers = NULL;
        int r, accept;

        if (!endswith(unit, ".socket"))
                return names_add(ret, unit);

        r = unit_load(bus, unit, &path, &id);
        if (r != STATUS_OK)
                return r < 0 ? r : -ENOENT;
        r = sd_bus_get_property_trivial(bus, PID1_NAME, path, PID1_NAME ".Socket", "Accept", &error, 'b',
                                        &accept);
        if (r >= 0 && !accept)
                r = sd_bus_get_property_strv(bus, PID1_NAME, path, PID1_NAME ".Unit", "Triggers", &error,
                                             &triggers);
        if (r < 0)
                return log_failure(r, "Failed to read the service of '%s': %s", unit,
                                   error.message ?: strerror(-r));

        r = names_add(ret, triggers && triggers[0] ? triggers[0] : id);
        for (char **i = triggers; i && *i; i++)
                free(*i);
        free(triggers);
        return r;
}

static int find_servers(Names *ret) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_names_ Names listening = NAMES_INIT;
        int r;

        r = names_find_listening(&listening);
        for (size_t i = 0; i < listening.n && r >= 0; i++) {
                if (!bus && endswith(listening.items[i], ".socket")) {
                        r = sd_bus_open_system(&bus);
                        if (r < 0)
                                return log_failure(r, "Failed to connect to the system bus: %m");
                }
                r = add_server(bus, listening.items[i], ret);
        }
        return r;
}

static bool is_attached(const Replies *units, const char *unit) {
        for (size_t i = 0; i < units->n; i++)
                if (streq_ptr(value_string(units->items[i], "unit"), unit))
                        return true;
        return false;
}

/* Returns an exit status. */
static int print_plan(Client *c, const Names *names) {
        _cleanup_replies_ Replies status = REPLIES_INIT;
        char a[FORMAT_MAX], b[FORMAT_MAX];
        uint64_t attached, max, memory, socket;
        int r;

        r = client_call(c, QOS_METHOD("GetStatus"), 0, NULL, &status);
        if (r != 0)
                return client_fail(r, &status, "read the state of qosd");

        if (value_unsigned(status.items[0], "units", &attached) &&
            value_unsigned(status.items[0], "unitsMax", &max) && attached + names->n > max) {
                (void) log_failure(-E2BIG,
                                   "%zu units listen and are not attached, but only %" PRIu64 " more may be "
                                                                                              "(UnitsMax=).",
                                   names->n, max > attached ? max - attached : 0);
                return STATUS_FAILED;
        }
        if (arg_json != JSON_OFF)
                return STATUS_OK;

        (void) printf("%zu unit%s listen%s and %s not attached:\n\n", names->n, names->n == 1 ? "" : "s",
                      names->n == 1 ? "s" : "", names->n == 1 ? "is" : "are");
        for (size_t i = 0; i < names->n; i++)
                (void) printf("  %s\n", names->items[i]);
        if (value_unsigned(status.items[0], "mapMemoryPerUnit", &memory))
                (void) printf("\nMemory: at least %s for %zu unit%s", format_bytes(a, memory * names->n),
                              names->n, names->n == 1 ? "" : "s");
        if (value_unsigned(status.items[0], "mapMemoryPerUnit", &memory) &&
            value_unsigned(status.items[0], "memoryPerSocket", &socket))
                (void) printf(", %s for each open connection", format_bytes(b, socket));
        (void) puts(".");
        return STATUS_OK;
}

/* Returns an exit status. */
static int confirm(void) {
        _cleanup_free_ char *line = NULL;
        size_t size = 0;

        if (arg_yes)
                return STATUS_OK;
        if (arg_json != JSON_OFF || isatty(STDIN_FILENO) <= 0 || !terminal_is_tty()) {
                (void) log_failure(-EINVAL, "To attach them, --yes is required without a terminal.");
                return STATUS_USAGE;
        }
        (void) printf("Attach them? [y/N] ");
        (void) fflush(stdout);
        if (getline(&line, &size, stdin) > 0 &&
            (strcasecmp(line, "y\n") == 0 || strcasecmp(line, "yes\n") == 0))
                return STATUS_OK;
        (void) log_failure(0, "Nothing was attached.");
        return STATUS_FAILED;
}

int attach_find_listening(Client *c, Names *ret) {
        _cleanup_names_ Names servers = NAMES_INIT;
        _cleanup_replies_ Replies units = REPLIES_INIT;
        int r;

        if (arg_host) {
                (void) log_failure(-EOPNOTSUPP, "--listening requires the local host.");
                return STATUS_USAGE;
        }
        r = find_servers(&servers);
        if (r < 0)
                return r;
        r = client_call_more(c, QOS_METHOD("List"), 0, NULL, &units);
        if (r != 0)
                return client_fail(r, &units, "list units");
        for (size_t i = 0; i < servers.n; i++) {
                if (is_attached(&units, servers.items[i]))
                        continue;
                r = names_add(ret, servers.items[i]);
                if (r < 0)
                        return r;
        }

        if (ret->n == 0) {
                (void) log_failure(0, "No unit listens that is not attached.");
                return STATUS_OK;
        }
        r = print_plan(c, ret);
        return r != STATUS_OK ? r : confirm();
}
