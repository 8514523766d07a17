/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Calls over D-Bus with any arguments: each call has one reply, and the daemon keeps nothing of it. A
 * line of the input is a call, in words with a blank in between: object, interface, method, signature and
 * the arguments, as busctl has them (an array begins with the number of its elements, a variant with its
 * signature; "-" is an empty word). Nothing is loaded into the kernel. */

#include "check.h"
#include "dbus-manager.h"
#include "fuzz.h"
#include "log.h"
#include "util-bus.h"

/* Limit of iterations of one input: more would be an endless loop. */
#define STEPS_MAX 100000U

#define SIZE_MAX_BYTES 16384U
#define DEPTH_MAX 16U

static FakeUnit units[] = {
        { .id = "a.service", .active_state = "active", .sub_state = "running", .control_group =
          "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "inactive", .sub_state = "dead", .slice = "system.slice" },
        {}
};

static sd_event *event;
static Manager *manager;
static BusServer *bus_server;
static sd_bus *daemon_side, *client;
static FakeServiceManager pid1;
static unsigned n_sent, n_responded;

static void clean_up(void) {
        manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(client);
        sd_event_unref(event);
}

static bool set_up(void) {
        if (manager)
                return true;
        if (!test_become_plain_root())
                return false;

        log_set_max_level(LOG_CRIT);
        check(unsetenv("RUNTIME_DIRECTORY") >= 0);
        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &client);
        fake_service_manager_start(&pid1, client, units);
        check(manager_set_bus(manager, daemon_side) >= 0);
        check(atexit(clean_up) == 0);
        return true;
}

/* Until only timers are left. */
static void settle(void) {
        for (unsigned i = 0; i < STEPS_MAX; i++) {
                int r = sd_event_run(event, 0);

                check(r >= 0);
                if (r == 0)
                        return;
        }
        check(false);
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        n_responded++;
        return 0;
}

static const char* next_word(char **text) {
        const char *word = strsep(text, " ");

        return !word ? "0" : streq(word, "-") ? "" : word;
}

/* How long the first type of a signature is; 0: it is none. */
static size_t type_size(const char *signature, unsigned depth) {
        size_t n = 1;

        if (depth > DEPTH_MAX || !*signature)
                return 0;
        if (*signature == 'a') {
                n = type_size(signature + 1, depth + 1);
                return n == 0 ? 0 : n + 1;
        }
        if (!strchr("({", *signature))
                return strchr("ybnqiuxtdsogv", *signature) ? 1 : 0;
        while (signature[n] && !strchr(")}", signature[n])) {
                size_t l = type_size(signature + n, depth + 1);

                if (l == 0)
                        return 0;
                n += l;
        }
        return signature[n] ? n + 1 : 0;
}

static int append(sd_bus_message *m, const char *signature, char **words, unsigned depth);

static int append_container(sd_bus_message *m, char type, const char *contents, unsigned n, char **words,
                            unsigned depth) {
        int r;

        r = sd_bus_message_open_container(m, type, contents);
        for (unsigned i = 0; i < n && r >= 0; i++)
                r = append(m, contents, words, depth + 1);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int append_one(sd_bus_message *m, const char *type, size_t size, char **words, unsigned depth) {
        char contents[256];
        const char *word;
        union {
                uint8_t y;
                int b;
                uint16_t q;
                uint32_t u;
                uint64_t t;
                double d;
        } number = {};

        if (size > sizeof(contents))
                return -EINVAL;
        switch (type[0]) {
        case 'a':
                (void) snprintf(contents, sizeof(contents), "%.*s", (int) size - 1, type + 1);
                return append_container(m, 'a', contents, MIN((unsigned) strtoul(next_word(words), NULL, 10),
                                                              1000U), words, depth);
        case '(':
        case '{':
                (void) snprintf(contents, sizeof(contents), "%.*s", (int) size - 2, type + 1);
                return append_container(m, type[0] == '(' ? 'r' : 'e', contents, 1, words, depth);
        case 'v':
                (void) snprintf(contents, sizeof(contents), "%s", next_word(words));
                return append_container(m, 'v', contents, 1, words, depth);
        case 's':
        case 'o':
        case 'g':
                return sd_bus_message_append_basic(m, type[0], next_word(words));
        }

        word = next_word(words);
        if (type[0] == 'd')
                number.d = strtod(word, NULL);
        else if (type[0] == 'b')
                number.b = strtoul(word, NULL, 10) & 1;
        else if (type[0] == 'y')
                number.y = (uint8_t) strtoul(word, NULL, 10);
        else if (strchr("nq", type[0]))
                number.q = (uint16_t) strtoul(word, NULL, 10);
        else if (strchr("iu", type[0]))
                number.u = (uint32_t) strtoul(word, NULL, 10);
        else
                number.t = strtoull(word, NULL, 10);
        return sd_bus_message_append_basic(m, type[0], &number);
}

static int append(sd_bus_message *m, const char *signature, char **words, unsigned depth) {
        while (*signature) {
                size_t size = type_size(signature, depth);
                int r;

                if (size == 0)
                        return -EINVAL;
                r = append_one(m, signature, size, words, depth);
                if (r < 0)
                        return r;
                signature += size;
        }
        return 0;
}

static void call(char *line) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        const char *object = next_word(&line), *interface = next_word(&line), *method = next_word(&line),
                *signature;

        if (sd_bus_message_new_method_call(client, &m, "org.qosd1", object, interface, method) < 0)
                return;
        signature = next_word(&line);
        if (append(m, signature, &line, 0) < 0)
                return; /* it cannot be sent */
        if (sd_bus_call_async(client, NULL, m, on_reply, NULL, UINT64_MAX) < 0)
                return;
        n_sent++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = NULL;
        char *rest;

        if (!set_up())
                exit(77);
        if (size > SIZE_MAX_BYTES)
                return 0;
        text = new0(char, size + 1);
        check(text);
        if (size > 0)
                memcpy(text, data, size);

        n_sent = n_responded = 0;
        check(bus_server_new_peer(manager, daemon_side, &bus_server) >= 0);
        rest = text;
        for (char *line; (line = strsep(&rest, "\n")); )
                call(line);
        settle();
        check(n_responded == n_sent);

        bus_server = bus_server_free(bus_server);
        check(manager_count_leases(manager, 0) == 0);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (manager->units.slots[i])
                        check(manager_detach(manager, manager->units.slots[i]->name, NULL, 0, NULL) >= 0);
        check(manager->units.n == 0);
        log_set_max_level(LOG_CRIT);
        settle();
        return 0;
}
