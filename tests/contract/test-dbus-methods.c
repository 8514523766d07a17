/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Every method, property and signal of org.qosd1 over a connection without a broker: one end is the daemon,
 * with the real manager, the other is PID 1 and the client. Nothing gets into the kernel, units are attached
 * without figures. */

#include <math.h>
#include <time.h>

#include "dbus-manager.h"
#include "unit-map.h"
#include "util-bus.h"

#define MANAGER "org.qosd1.Manager"
#define PROPERTIES "org.freedesktop.DBus.Properties"

static sd_event *event;
static Manager *manager;
static BusServer *bus_server;
static sd_bus *daemon_side, *client;
static FakeServiceManager pid1;

static FakeUnit units[] = {
        { .id = "a.service", .alias = "alias.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "inactive", .sub_state = "dead", .slice = "system.slice" },
        { .id = "c@1.service", .active_state = "active", .sub_state = "running",
          .control_group = "/c.slice/c@1.service", .slice = "c.slice" },
        { .id = "exited.service", .active_state = "active", .sub_state = "exited", .slice = "system.slice" },
        { .id = "x.target", .active_state = "active", .sub_state = "active" },
        { .id = "inner.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service/inner.service",
          .slice = "system.slice" },
        {}
};

/* ---- signals that the client received ----------------------------------------------------------------- */

#define SIGNALS_MAX 64

typedef struct Signal {
        char *path, *interface, *member;
        char *what;     /* unit, interface with the changed properties, or object */
} Signal;

static Signal signals[SIGNALS_MAX];
static uint64_t signalled_window;       /* of the last signal that has it */
static unsigned n_signals;
static unsigned n_overviews;    /* units in signals Overview, which come every second */

static void signals_forget(void) {
        for (; n_signals > 0; n_signals--) {
                Signal *s = signals + n_signals - 1;

                free(s->path);
                free(s->interface);
                free(s->member);
                free(s->what);
        }
}

/* Each unit has its name, its object and the number of its reading, and nothing is NaN. */
static void read_overview(sd_bus_message *m) {
        const char *key, *type, *unit = NULL, *path = NULL;
        uint64_t seq = 0;
        double d;

        check(sd_bus_message_enter_container(m, 'a', "a{sv}") > 0);
        while (sd_bus_message_enter_container(m, 'a', "{sv}") > 0) {
                while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                        check(sd_bus_message_read(m, "s", &key) > 0);
                        check(sd_bus_message_peek_type(m, NULL, &type) > 0);
                        if (streq(key, "unit"))
                                check(sd_bus_message_read(m, "v", "s", &unit) > 0);
                        else if (streq(key, "path"))
                                check(sd_bus_message_read(m, "v", "o", &path) > 0);
                        else if (streq(key, "seq"))
                                check(sd_bus_message_read(m, "v", "t", &seq) > 0);
                        else if (streq(type, "d")) {
                                check(sd_bus_message_read(m, "v", "d", &d) > 0);
                                check(!isnan(d));
                        } else
                                check(sd_bus_message_skip(m, "v") > 0);
                        check(sd_bus_message_exit_container(m) >= 0);
                }
                check(unit && path && startswith(path, "/org/qosd1/unit/") && seq > 0);
                check(sd_bus_message_exit_container(m) >= 0);
                n_overviews++;
        }
        check(sd_bus_message_exit_container(m) >= 0);
}

static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Signal *s = signals + n_signals;
        const char *first, *name;
        uint8_t type;

        if (sd_bus_message_get_type(m, &type) < 0 || type != SD_BUS_MESSAGE_SIGNAL ||
            !startswith(sd_bus_message_get_path(m), "/org/qosd1"))
                return 0;
        if (streq(sd_bus_message_get_member(m), "Overview")) {
                read_overview(m);
                return 0;
        }

        check(n_signals < SIGNALS_MAX);
        n_signals++;
        s->path = strdup(sd_bus_message_get_path(m));
        s->interface = strdup(sd_bus_message_get_interface(m));
        s->member = strdup(sd_bus_message_get_member(m));

        check(sd_bus_message_read_basic(m, sd_bus_message_get_signature(m, false)[0], &first) > 0);
        s->what = strdup(first);
        if (streq(s->member, "PropertiesChanged")) {
                check(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
                while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                        char *longer;

                        check(sd_bus_message_read(m, "s", &name) > 0);
                        if (streq(name, "WindowNSec"))
                                check(sd_bus_message_read(m, "v", "t", &signalled_window) > 0);
                        else
                                check(sd_bus_message_skip(m, "v") > 0);
                        check(sd_bus_message_exit_container(m) > 0);
                        check(asprintf(&longer, "%s %s", s->what, name) > 0);
                        free(s->what);
                        s->what = longer;
                }
        }
        check(s->path && s->interface && s->member && s->what);
        return 0;
}

static unsigned count_signals(const char *member, const char *what) {
        unsigned n = 0;

        for (unsigned i = 0; i < n_signals; i++)
                n += streq(signals[i].member, member) && (!what || streq(signals[i].what, what));
        return n;
}

static void expect_signal(const char *member, const char *what) {
        if (count_signals(member, what) == 1)
                return;

        fprintf(stderr, "Expected one %s of '%s' among:\n", member, what);
        for (unsigned i = 0; i < n_signals; i++)
                fprintf(stderr, "  %s %s.%s '%s'\n", signals[i].path, signals[i].interface,
                        signals[i].member, signals[i].what);
        exit(EXIT_FAILURE);
}

/* ---- calls -------------------------------------------------------------------------------------------- */

static sd_bus_message* call(const char *method, const char *types, ...) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        va_list ap;

        check(sd_bus_message_new_method_call(client, &m, "org.qosd1", "/org/qosd1", MANAGER, method) >= 0);
        if (types) {
                va_start(ap, types);
                check(sd_bus_message_appendv(m, types, ap) >= 0);
                va_end(ap);
        }
        return test_call_message(client, m, NULL);
}

static void call_void(const char *method, const char *types, ...) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        va_list ap;

        check(sd_bus_message_new_method_call(client, &m, "org.qosd1", "/org/qosd1", MANAGER, method) >= 0);
        if (types) {
                va_start(ap, types);
                check(sd_bus_message_appendv(m, types, ap) >= 0);
                va_end(ap);
        }
        sd_bus_message_unref(test_call_message(client, m, NULL));
}

static void expect_error_on(sd_bus *bus, const char *expected, const char *method, const char *types, ...) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        va_list ap;

        check(sd_bus_message_new_method_call(bus, &m, "org.qosd1", "/org/qosd1", MANAGER, method) >= 0);
        if (types) {
                va_start(ap, types);
                check(sd_bus_message_appendv(m, types, ap) >= 0);
                va_end(ap);
        }
        reply = test_call_message(bus, m, &error);
        if (reply || !sd_bus_error_has_name(&error, expected)) {
                fprintf(stderr, "%s: error %s (%s) instead of %s\n", method, strempty(error.name),
                        strempty(error.message), expected);
                exit(EXIT_FAILURE);
        }
        check(!isempty(error.message) && strlen(error.message) < 1000);
}

#define expect_error(...) expect_error_on(client, __VA_ARGS__)

static sd_bus_message* get_all(const char *path, const char *interface) {
        sd_bus_message *reply = test_call(client, path, PROPERTIES, "GetAll", NULL, "s", interface);

        check(sd_bus_message_enter_container(reply, 'a', "{sv}") > 0);
        return reply;
}

/* Positions the message at the variant of a key of a{sv}. */
static bool find_key(sd_bus_message *m, const char *key) {
        const char *name;

        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                check(sd_bus_message_read(m, "s", &name) > 0);
                if (streq(name, key))
                        return true;
                check(sd_bus_message_skip(m, "v") > 0);
                check(sd_bus_message_exit_container(m) > 0);
        }
        return false;
}

static uint64_t get_integer(const char *path, const char *interface, const char *property) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = get_all(path, interface);
        uint64_t n;

        check(find_key(reply, property));
        check(sd_bus_message_read(reply, "v", "t", &n) > 0);
        return n;
}

static uint32_t get_n_units(void) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = get_all("/org/qosd1", MANAGER);
        uint32_t n;

        check(find_key(reply, "NUnits"));
        check(sd_bus_message_read(reply, "v", "u", &n) > 0);
        return n;
}

static void attach(const char *name, const char *expected_path) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = call("AttachUnit", "sastb", name, 0,
                                                                      UINT64_C(0), 0);
        const char *path;

        check(sd_bus_message_read(reply, "o", &path) > 0);
        check(streq(path, expected_path));
}

/* Waits until all messages sent before have arrived: there is one connection. */
static void settle(void) {
        sd_bus_message_unref(test_call(client, "/org/qosd1", "org.freedesktop.DBus.Peer", "Ping", NULL,
                                       NULL));
}

#define PORTS_4 "port:1", "port:1", "port:1", "port:1"
#define PORTS_16 PORTS_4, PORTS_4, PORTS_4, PORTS_4

static void expect_excludes(const char *unit, const char *expected) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        char path[64], words[256] = "";
        const char *word;

        (void) snprintf(path, sizeof(path), "/org/qosd1/unit/%s", unit);
        reply = get_all(path, "org.qosd1.Unit");
        check(find_key(reply, "Exclude"));
        check(sd_bus_message_enter_container(reply, 'v', "as") > 0);
        check(sd_bus_message_enter_container(reply, 'a', "s") > 0);
        while (sd_bus_message_read(reply, "s", &word) > 0)
                (void) snprintf(words + strlen(words), sizeof(words) - strlen(words), "%s%s",
                                isempty(words) ? "" : " ", word);
        check(streq(words, expected));
}

/* ---- tests -------------------------------------------------------------------------------------------- */

static void test_attach(void) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *path, *name, *group, *state, *degraded, *probe, *second;
        uint64_t since;

        check(get_n_units() == 0);
        settle();
        check(pid1.subscribed); /* unit files may be reloaded */

        attach("a", "/org/qosd1/unit/a_2eservice");
        settle();
        check(get_n_units() == 1);
        check(pid1.subscribed);
        expect_signal("UnitAttached", "a.service");
        expect_signal("InterfacesAdded", "/org/qosd1/unit/a_2eservice");
        check(count_signals("PropertiesChanged", NULL) == 0); /* no subscriber */

        /* The same hold again, by aliases */
        attach("a.service", "/org/qosd1/unit/a_2eservice");
        attach("alias", "/org/qosd1/unit/a_2eservice");
        check(get_n_units() == 1);
        expect_signal("UnitAttached", "a.service");

        reply = call("GetUnit", "s", "alias");
        check(sd_bus_message_read(reply, "o", &path) > 0);
        check(streq(path, "/org/qosd1/unit/a_2eservice"));
        sd_bus_message_unref(reply);

        reply = call("ListUnits", NULL);
        check(sd_bus_message_enter_container(reply, 'a', "(ssstasso)") > 0);
        check(sd_bus_message_enter_container(reply, 'r', "ssstasso") > 0);
        check(sd_bus_message_read(reply, "ssst", &name, &group, &state, &since) > 0);
        check(sd_bus_message_read(reply, "as", 2, &probe, &second) > 0);
        check(sd_bus_message_read(reply, "so", &degraded, &path) > 0);
        check(streq(name, "a.service") && streq(group, "/system.slice/a.service") && streq(state, "active"));
        check(since == manager->units.slots[0]->attached_since / NSEC_PER_USEC && since < UINT64_C(1) << 53);
        check(streq(probe, "requests") && streq(second, "cpu"));
        check(startswith(degraded, "requests: ")); /* could not be loaded */
        check(streq(path, "/org/qosd1/unit/a_2eservice"));

        /* The same hold with options; the old method removes them */
        sd_bus_message_unref(reply);
        reply = call("AttachUnitWithOptions", "sa{sv}", "a", 3, "duration_nsec", "t", UINT64_C(0), "probes",
                     "as", 1, "requests",
                     "exclude", "as", 3, "redis:brpop", "http:/healthz", "port:9100");
        check(sd_bus_message_read(reply, "o", &path) > 0 && streq(path, "/org/qosd1/unit/a_2eservice"));
        expect_excludes("a_2eservice", "http:/healthz port:9100 redis:BRPOP");
        attach("a", "/org/qosd1/unit/a_2eservice");
        expect_excludes("a_2eservice", "");
        check(get_n_units() == 1);

        attach("c@1", "/org/qosd1/unit/c_401_2eservice");
        attach("b.service", "/org/qosd1/unit/b_2eservice");
        check(get_n_units() == 3);
        signals_forget();
}

static void test_objects(void) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *name;
        unsigned n = 0;

        reply = test_call(client, "/org/qosd1", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects",
                          NULL, NULL);
        check(sd_bus_message_enter_container(reply, 'a', "{oa{sa{sv}}}") > 0);
        while (sd_bus_message_enter_container(reply, 'e', "oa{sa{sv}}") > 0) {
                check(sd_bus_message_read(reply, "o", &name) > 0);
                n += !!startswith(name, "/org/qosd1/unit/");
                check(sd_bus_message_skip(reply, "a{sa{sv}}") > 0);
                check(sd_bus_message_exit_container(reply) > 0);
        }
        check(n == 3);

        /* There is one object per unit: none for aliases, short names and units that are not attached */
        check(!test_call(client, "/org/qosd1/unit/a", PROPERTIES, "GetAll", &error, "s", "org.qosd1.Unit"));
        check(!test_call(client, "/org/qosd1/unit/alias_2eservice", PROPERTIES, "GetAll", &error, "s",
                         "org.qosd1.Unit"));
        check(!test_call(client, "/org/qosd1/unit/zzz_2eservice", PROPERTIES, "GetAll", &error, "s",
                         "org.qosd1.Unit"));
        check(sd_bus_error_has_name(&error, SD_BUS_ERROR_UNKNOWN_OBJECT));
}

static void test_unit_properties(void) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *type, *probe, *second, *owner;
        uint64_t expires;
        uint32_t uid;

        reply = get_all("/org/qosd1/unit/a_2eservice", "org.qosd1.Unit");
        check(find_key(reply, "Holds"));
        check(sd_bus_message_enter_container(reply, 'v', "a(sasust)") > 0);
        check(sd_bus_message_enter_container(reply, 'a', "(sasust)") > 0);
        check(sd_bus_message_enter_container(reply, 'r', "sasust") > 0);
        check(sd_bus_message_read(reply, "s", &type) > 0);
        check(sd_bus_message_read(reply, "as", 2, &probe, &second) > 0);
        check(sd_bus_message_read(reply, "ust", &uid, &owner, &expires) > 0);
        check(streq(type, "administrator") && streq(probe, "requests") && streq(second, "cpu") && uid == 0 &&
              streq(owner, "") && expires == UINT64_MAX);

        check(get_integer("/org/qosd1/unit/a_2eservice", "org.qosd1.Unit",
                          "AttachTimestamp") == manager->units.slots[0]->attached_since / NSEC_PER_USEC);
        check(get_integer("/org/qosd1/unit/a_2eservice", "org.qosd1.Unit", "Drops") == 0);
}

static void expect_text(const char *property, const char *expected) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = get_all("/org/qosd1/unit/a_2eservice",
                                                                         "org.qosd1.Unit");
        const char *text;

        check(find_key(reply, property));
        check(sd_bus_message_read(reply, "v", "s", &text) > 0);
        check(streq(text, expected));
}

static double get_real(const char *interface, const char *property) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = get_all("/org/qosd1/unit/a_2eservice",
                                                                         interface);
        double d;

        check(find_key(reply, property));
        check(sd_bus_message_read(reply, "v", "d", &d) > 0);
        return d;
}

/* The overview of a unit without any metrics. */
static void test_overview(void) {
        static const char *const path = "/org/qosd1/unit/a_2eservice";

        check(isnan(get_real("org.qosd1.Unit", "Rate")) && isnan(get_real("org.qosd1.Unit", "ErrorRate")));
        check(get_integer(path, "org.qosd1.Unit", "LatencyP50NSec") == UINT64_MAX);
        check(get_integer(path, "org.qosd1.Unit", "LatencyP99NSec") == UINT64_MAX);
        check(get_integer(path, "org.qosd1.Unit", "InFlight") == UINT64_MAX);
        expect_text("State", "unknown");
        expect_text("WorstWait", "");
        expect_text("Verdict", "unknown");
}

/* The probe could not be loaded: all metrics are absent, none is 0. */
static void test_absent(void) {
        static const char *const always[] = {
                "unit", "controlGroup", "activeState", "attachedSince", "seq", "timestamp", "window",
                        "covered", "drops",
        };
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        unsigned n = 0;

        check(get_integer("/org/qosd1/unit/a_2eservice", "org.qosd1.Requests",
                          "ServerLatencyP99NSec") == UINT64_MAX);
        check(get_integer("/org/qosd1/unit/a_2eservice", "org.qosd1.Requests", "ServerCount") == UINT64_MAX);
        check(get_integer("/org/qosd1/unit/a_2eservice", "org.qosd1.Requests",
                          "WindowNSec") == manager->config.default_window_nsec);

        for (size_t i = 0; i < ELEMENTSOF(always); i++) {
                sd_bus_message_unref(reply);
                reply = call("Snapshot", "st", "a", UINT64_MAX);
                check(sd_bus_message_enter_container(reply, 'a', "{sv}") > 0);
                check(find_key(reply, always[i]));
        }
        sd_bus_message_unref(reply);
        reply = call("Snapshot", "st", "a", UINT64_C(0));
        check(sd_bus_message_enter_container(reply, 'a', "{sv}") > 0);
        check(!find_key(reply, "window")); /* since attach */

        sd_bus_message_unref(reply);
        reply = call("SnapshotMounts", "st", "a", UINT64_C(0));
        check(sd_bus_message_enter_container(reply, 'a', "a{sv}") > 0 &&
              sd_bus_message_at_end(reply, false) > 0);

        sd_bus_message_unref(reply);
        reply = call("SnapshotDrops", "st", "a", UINT64_MAX);
        check(sd_bus_message_enter_container(reply, 'a', "(st)") > 0 &&
              sd_bus_message_at_end(reply, false) > 0);

        sd_bus_message_unref(reply);
        reply = call("Snapshot", "st", "a", 60 * NSEC_PER_SEC);
        check(sd_bus_message_enter_container(reply, 'a', "{sv}") > 0);
        while (sd_bus_message_enter_container(reply, 'e', "sv") > 0) {
                const char *name;

                check(sd_bus_message_read(reply, "s", &name) > 0);
                check(!startswith(name, "requests."));
                check(sd_bus_message_skip(reply, "v") > 0);
                check(sd_bus_message_exit_container(reply) > 0);
                n++;
        }
        check(n == ELEMENTSOF(always));
}

static void test_errors(void) {
        static const char invalid_args[] = "org.freedesktop.DBus.Error.InvalidArgs";
        static const char *const invalid_names[] = {
                "", ".", "..", "../x", "a b", "a/b", "ä.service", "a\nb", "@.service", "/", "//", "/a//b",
                        "/a/", "/a/../b", "/./a", "/a\tb",
        };
        static const char *const missing[] = { "zzz", "c@.service", "/no/such/group" };
        static const uint64_t invalid_windows[] = {
                1, 99999999, 150000000, 1500000000, 11 * NSEC_PER_SEC, 61 * NSEC_PER_SEC, 301 * NSEC_PER_SEC,
                UINT64_MAX - 1, UINT64_MAX / 1000, UINT64_MAX / 1000 + 1,
        };
        char longest[258], *huge;

        for (size_t i = 0; i < ELEMENTSOF(invalid_names); i++) {
                expect_error("org.qosd1.Error.InvalidUnitName", "AttachUnit", "sastb", invalid_names[i], 0,
                             UINT64_C(0), 0);
                expect_error("org.qosd1.Error.InvalidUnitName", "DetachUnit", "sb", invalid_names[i], 0);
                expect_error("org.qosd1.Error.InvalidUnitName", "GetUnit", "s", invalid_names[i]);
                expect_error("org.qosd1.Error.InvalidUnitName", "Snapshot", "st", invalid_names[i],
                             UINT64_C(0));
        }

        /* 255 bytes are a valid name, 256 are not */
        memset(longest, 'a', sizeof(longest));
        strcpy(longest + 255 - strlen(".service"), ".service");
        expect_error("org.qosd1.Error.NoSuchUnit", "AttachUnit", "sastb", longest, 0, UINT64_C(0), 0);
        memset(longest, 'a', sizeof(longest));
        strcpy(longest + 256 - strlen(".service"), ".service");
        expect_error("org.qosd1.Error.InvalidUnitName", "AttachUnit", "sastb", longest, 0, UINT64_C(0), 0);
        huge = malloc(1024 * 1024);
        check(huge);
        memset(huge, 'a', 1024 * 1024);
        huge[1024 * 1024 - 1] = 0;
        expect_error("org.qosd1.Error.InvalidUnitName", "AttachUnit", "sastb", huge, 0, UINT64_C(0), 0);
        expect_error("org.qosd1.Error.NoSuchProbe", "AttachUnit", "sastb", "a", 1, huge, UINT64_C(0), 0);
        free(huge);

        expect_error("org.qosd1.Error.NoSuchUnit", "AttachUnit", "sastb", "zzz", 0, UINT64_C(0), 0);
        expect_error("org.qosd1.Error.NoSuchUnit", "AttachUnit", "sastb", "c@.service", 0, UINT64_C(0), 0);
        expect_error("org.qosd1.Error.NoSuchUnit", "AttachUnit", "sastb", "/no/such/group", 0, UINT64_C(0),
                     0);
        expect_error("org.qosd1.Error.NoControlGroup", "AttachUnit", "sastb", "x.target", 0, UINT64_C(0), 0);
        expect_error("org.qosd1.Error.NoControlGroup", "AttachUnit", "sastb", "exited", 0, UINT64_C(0), 0);
        expect_error("org.qosd1.Error.NoSuchProbe", "AttachUnit", "sastb", "a", 2, "requests", "nonsense",
                     UINT64_C(0), 0);
        expect_error(invalid_args, "AttachUnit", "sastb", "a", 0, UINT64_C(1), 1);
        expect_error("org.qosd1.Error.InvalidUnitName", "AttachUnitWithOptions", "sa{sv}", "a b", 0);
        expect_error("org.qosd1.Error.NoSuchUnit", "AttachUnitWithOptions", "sa{sv}", "zzz", 0);
        expect_error("org.qosd1.Error.NoSuchProbe", "AttachUnitWithOptions", "sa{sv}", "a", 1, "probes",
                     "as", 1, "nonsense");
        expect_error("org.qosd1.Error.InvalidExclude", "AttachUnitWithOptions", "sa{sv}", "a", 1, "exclude",
                     "as", 2, "port:1", "http:healthz");
        expect_error("org.qosd1.Error.InvalidExclude", "AttachUnitWithOptions", "sa{sv}", "a", 1, "exclude",
                     "as", 1, "redis:");
        expect_error(invalid_args, "AttachUnitWithOptions", "sa{sv}", "a", 1, "excludes", "as", 0);
        /* Repetitions, of which one is kept */
        expect_error(invalid_args, "AttachUnitWithOptions", "sa{sv}", "a", 1, "exclude", "as", 65, PORTS_16,
                     PORTS_16, PORTS_16, PORTS_16, "port:1");
        expect_error(invalid_args, "AttachUnitWithOptions", "sa{sv}", "a", 1, "exclude", "s", "port:1");
        expect_error(invalid_args, "AttachUnitWithOptions", "sa{sv}", "a", 1, "lease", "t", UINT64_C(1));
        expect_error(invalid_args, "AttachUnitWithOptions", "sa{sv}", "a", 2, "lease", "b", 1,
                     "duration_nsec", "t", UINT64_C(1));
        expect_error("org.qosd1.Error.NotAttached", "DetachUnit", "sb", "zzz", 0);
        expect_error("org.qosd1.Error.NotAttached", "DetachUnit", "sb", "a", 1); /* no lease */
        for (size_t i = 0; i < ELEMENTSOF(missing); i++) {
                expect_error("org.qosd1.Error.NoSuchUnit", "GetUnit", "s", missing[i]);
                expect_error("org.qosd1.Error.NoSuchUnit", "Snapshot", "st", missing[i], UINT64_C(0));
        }
        expect_error("org.qosd1.Error.NotAttached", "GetUnit", "s", "exited");
        expect_error("org.qosd1.Error.NotAttached", "Snapshot", "st", "exited", UINT64_C(0));
        expect_error("org.qosd1.Error.NotAttached", "SnapshotMounts", "st", "exited", UINT64_C(0));
        expect_error(invalid_args, "SnapshotMounts", "st", "a", UINT64_C(1));
        expect_error("org.qosd1.Error.NotAttached", "SnapshotDrops", "st", "exited", UINT64_C(0));
        expect_error(invalid_args, "SnapshotDrops", "st", "a", UINT64_C(1));
        expect_error("org.qosd1.Error.NotSubscribed", "Unsubscribe", NULL);
        for (size_t i = 0; i < ELEMENTSOF(invalid_windows); i++)
                expect_error(invalid_args, "Snapshot", "st", "a", invalid_windows[i]);
        for (size_t i = 0; i < ELEMENTSOF(invalid_windows); i++)
                expect_error(invalid_args, "Diagnose", "st", "a", invalid_windows[i]);
        expect_error(invalid_args, "Diagnose", "st", "a", UINT64_C(0));
        expect_error(invalid_args, "Diagnose", "st", "a", UINT64_C(900000000));
        expect_error(invalid_args, "Diagnose", "st", "a", UINT64_MAX);
        expect_error("org.qosd1.Error.InvalidUnitName", "Diagnose", "st", "a b", NSEC_PER_SEC);
        expect_error("org.qosd1.Error.NoSuchUnit", "Diagnose", "st", "zzz", NSEC_PER_SEC);

        /* Missing and surplus arguments, and other types */
        expect_error(invalid_args, "AttachUnit", "s", "a");
        expect_error(invalid_args, "AttachUnit", "sastbs", "a", 0, UINT64_C(0), 0, "b");
        expect_error(invalid_args, "GetUnit", "u", 5);
        expect_error(invalid_args, "Subscribe", "b", 1);
        expect_error(SD_BUS_ERROR_UNKNOWN_METHOD, "Nonsense", NULL);

        /* More words than allowed */
        {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

                check(sd_bus_message_new_method_call(client, &m, "org.qosd1", "/org/qosd1", MANAGER,
                                                     "AttachUnit") >= 0);
                check(sd_bus_message_append(m, "s", "a") >= 0);
                check(sd_bus_message_open_container(m, 'a', "s") >= 0);
                for (unsigned i = 0; i < 1000; i++)
                        check(sd_bus_message_append(m, "s", "requests") >= 0);
                check(sd_bus_message_close_container(m) >= 0);
                check(sd_bus_message_append(m, "tb", UINT64_C(0), 0) >= 0);
                check(!test_call_message(client, m, &error));
                check(sd_bus_error_has_name(&error, invalid_args));
        }

        /* The invalid calls have changed nothing */
        check(get_n_units() == 3);
        settle();
        check(n_signals == 0);
}

/* Other users are denied without polkit. */
static void test_other_user(void) {
        sd_bus *other_daemon_side, *other;
        BusServer *server;

        if (!test_has_other_user())
                return;

        test_bus_pair(event, TEST_OTHER_UID, &other_daemon_side, &other);
        check(bus_server_new_peer(manager, other_daemon_side, &server) >= 0);

        expect_error_on(other, SD_BUS_ERROR_ACCESS_DENIED, "AttachUnit", "sastb", "b", 0, UINT64_C(0), 0);
        expect_error_on(other, SD_BUS_ERROR_ACCESS_DENIED, "AttachUnit", "sastb", "b", 0, UINT64_C(0), 1);
        expect_error_on(other, SD_BUS_ERROR_ACCESS_DENIED, "DetachUnit", "sb", "a", 0);
        /* polkit is not queried for calls that fail anyway */
        expect_error_on(other, "org.qosd1.Error.InvalidUnitName", "AttachUnit", "sastb", "a b", 0,
                        UINT64_C(0), 0);
        expect_error_on(other, "org.qosd1.Error.NotAttached", "DetachUnit", "sb", "zzz", 0);
        /* Reading needs no privileges */
        sd_bus_message_unref(test_call(other, "/org/qosd1", MANAGER, "Snapshot", NULL, "st", "a",
                                       UINT64_C(0)));
        sd_bus_message_unref(test_call(other, "/org/qosd1", MANAGER, "Subscribe", NULL, NULL));

        bus_server_free(server);
        sd_bus_close_unref(other_daemon_side);
        sd_bus_flush_close_unref(other);
        check(get_n_units() == 3);
        signals_forget();
}

static void test_subscribe(void) {
        Unit *u = manager->units.slots[0];
        struct timespec now;
        uint64_t ns;

        /* Not subscribed: no signal for a change of state */
        units[0].active_state = "deactivating";
        fake_service_manager_changed(&pid1, "a.service");
        test_wait(event, streq(u->active_state, "deactivating"));
        settle();
        check(count_signals("PropertiesChanged", NULL) == 0);

        check(n_overviews == 0);
        call_void("Subscribe", NULL);
        expect_error("org.qosd1.Error.AlreadySubscribed", "Subscribe", NULL);

        /* Only what has changed */
        units[0].active_state = "inactive";
        fake_service_manager_changed(&pid1, "a.service");
        test_wait(event, count_signals("PropertiesChanged", NULL) > 0);
        expect_signal("PropertiesChanged", "org.qosd1.Unit ActiveState");
        signals_forget();

        /* A second hold */
        call_void("AttachUnit", "sastb", "a", 0, UINT64_C(0), 1);
        settle();
        expect_signal("PropertiesChanged", "org.qosd1.Unit Holds");
        signals_forget();
        call_void("DetachUnit", "sb", "a", 1);
        settle();
        expect_signal("PropertiesChanged", "org.qosd1.Unit Holds");
        signals_forget();

        /* A descendant, and only the property that lists it */
        attach("inner", "/org/qosd1/unit/inner_2eservice");
        settle();
        expect_signal("PropertiesChanged", "org.qosd1.Unit DescendantUnits");
        signals_forget();
        {
                _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = get_all(
                        "/org/qosd1/unit/inner_2eservice", "org.qosd1.Unit");
                const char *outer;

                check(find_key(reply, "ParentUnit"));
                check(sd_bus_message_read(reply, "v", "s", &outer) > 0);
                check(streq(outer, "a.service"));
        }
        call_void("DetachUnit", "sb", "inner", 0);
        settle();
        expect_signal("PropertiesChanged", "org.qosd1.Unit DescendantUnits");
        signals_forget();

        /* All units, also without a change */
        n_overviews = 0;
        test_wait(event, n_overviews == manager->units.n);

        /* With constant metrics only the covered time changes: the other interfaces emit no signal */
        check(clock_gettime(CLOCK_MONOTONIC, &now) >= 0);
        ns = (uint64_t) now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
        u->view = calloc(1, sizeof(struct qos_unit_map));
        check(u->view);
        u->attached_since_monotonic = ns;
        test_wait(event, count_signals("PropertiesChanged", NULL) > 1);
        for (unsigned i = 0; i < n_signals; i++) {
                check(streq(signals[i].path, "/org/qosd1/unit/a_2eservice"));
                check(startswith(signals[i].what, "org.qosd1.Requests "));
                check(strstr(signals[i].what, " CoveredNSec"));
                check(strstr(signals[i].what, " Seq"));
                check(!strstr(signals[i].what, " WindowNSec"));
                check(!strstr(signals[i].what, " ServerLatencyP99NSec"));
        }
        signals_forget();

        /* If a client reads another value in between, a signal is needed even if the value equals the last
         * one sent */
        {
                uint64_t before = manager->config.default_window_nsec;

                manager->config.default_window_nsec = NSEC_PER_SEC;
                check(get_integer("/org/qosd1/unit/b_2eservice", "org.qosd1.Requests",
                                  "WindowNSec") == NSEC_PER_SEC);
                manager->config.default_window_nsec = before;
                signals_forget();
                for (bool seen = false; !seen; ) {
                        test_run(event);
                        for (unsigned i = 0; i < n_signals; i++)
                                seen = seen || (streq(signals[i].path, "/org/qosd1/unit/b_2eservice") &&
                                                strstr(signals[i].what, " WindowNSec"));
                }
                check(signalled_window == before);
        }

        free((void*) u->view);
        u->view = NULL;

        call_void("Unsubscribe", NULL);
        signals_forget();
        units[0].active_state = "active";
        fake_service_manager_changed(&pid1, "a.service");
        test_wait(event, streq(u->active_state, "active"));
        settle();
        check(n_signals == 0);
        expect_error("org.qosd1.Error.NotSubscribed", "Unsubscribe", NULL);
}

static void test_detach(void) {
        call_void("Subscribe", NULL);

        call_void("DetachUnit", "sb", "alias", 0);
        settle();
        check(get_n_units() == 2);
        expect_signal("UnitDetached", "a.service");
        expect_signal("InterfacesRemoved", "/org/qosd1/unit/a_2eservice");
        expect_signal("PropertiesChanged", "org.qosd1.Manager NUnits");
        expect_error("org.qosd1.Error.NotAttached", "DetachUnit", "sb", "a", 0);

        /* Expires after its duration */
        call_void("AttachUnit", "sastb", "b", 1, "requests", UINT64_C(1), 0);
        test_wait(event, manager->units.n == 1);
        call_void("Unsubscribe", NULL);
        signals_forget();
}

static void test_lease(void) {
        call_void("AttachUnit", "sastb", "a", 0, UINT64_C(0), 1);
        check(get_n_units() == 2);
        check(manager_count_leases(manager, 0) == 1);

        /* Not the administrator's */
        expect_error("org.qosd1.Error.NotAttached", "DetachUnit", "sb", "a", 0);
        call_void("DetachUnit", "sb", "a", 1);
        check(get_n_units() == 1);
        expect_error("org.qosd1.Error.NotAttached", "DetachUnit", "sb", "a", 1);

        /* Two holds: the unit is detached with the last one */
        call_void("AttachUnit", "sastb", "a", 0, UINT64_C(0), 1);
        call_void("AttachUnit", "sastb", "a", 0, UINT64_C(0), 0);
        call_void("DetachUnit", "sb", "a", 1);
        check(get_n_units() == 2);
        call_void("AttachUnit", "sastb", "a", 0, UINT64_C(0), 1);
        call_void("DetachUnit", "sb", "a", 0);
        check(get_n_units() == 2);
        signals_forget();
}

static void test_limits(void) {
        manager->config.units_max = 2;
        expect_error("org.qosd1.Error.TooManyUnits", "AttachUnit", "sastb", "b", 0, UINT64_C(0), 0);
        manager->config.units_max = UNITS_MAX_LIMIT;
}

static void test_log_control(void) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        static const char path[] = "/org/freedesktop/LogControl1", interface[] =
                "org.freedesktop.LogControl1";
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *level;

        sd_bus_message_unref(test_call(client, path, PROPERTIES, "Set", NULL, "ssv", interface, "LogLevel",
                                       "s", "debug"));
        reply = test_call(client, path, PROPERTIES, "Get", NULL, "ss", interface, "LogLevel");
        check(sd_bus_message_read(reply, "v", "s", &level) > 0);
        check(streq(level, "debug"));
        sd_bus_message_unref(test_call(client, path, PROPERTIES, "Set", NULL, "ssv", interface, "LogLevel",
                                       "s", "info"));

        check(!test_call(client, path, PROPERTIES, "Set", &error, "ssv", interface, "LogLevel", "s",
                         "loud"));
        check(sd_bus_error_has_name(&error, SD_BUS_ERROR_INVALID_ARGS));
}

/* When the connection ends, leases are dropped, holds of the administrator are kept, and no handler is
 * called any more. */
static void test_disconnect(void) {
        check(manager->units.n == 2); /* c@1 is held by the administrator, a by the lease */
        call_void("Subscribe", NULL);
        /* A call without a reply */
        check(sd_bus_call_method_async(client, NULL, "org.qosd1", "/org/qosd1", MANAGER, "AttachUnit", NULL,
                                       NULL,
                                       "sastb", "b", 0, UINT64_C(0), 1) >= 0);
        check(sd_bus_flush(client) >= 0);

        check(manager_set_bus(manager, NULL) >= 0);
        check(manager->units.n == 1);
        check(manager_count_leases(manager, 0) == 0);
        check(streq(manager->units.slots[1]->name, "c@1.service"));
}

int main(void) {
        if (!test_become_plain_root())
                return 77;

        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &client);
        fake_service_manager_start(&pid1, client, units);
        check(sd_bus_add_filter(client, NULL, on_signal, NULL) >= 0);
        check(manager_set_bus(manager, daemon_side) >= 0);
        check(bus_server_new_peer(manager, daemon_side, &bus_server) >= 0);

        test_attach();
        test_objects();
        test_unit_properties();
        test_overview();
        test_absent();
        test_errors();
        test_other_user();
        test_subscribe();
        test_detach();
        test_lease();
        test_limits();
        test_log_control();
        test_disconnect();

        bus_server_free(bus_server);
        manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(client);
        sd_event_unref(event);
        signals_forget();
        return EXIT_SUCCESS;
}
