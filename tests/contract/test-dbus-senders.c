/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The daemon on a slow message bus: until the bus has named the user of a sender, only calls of that sender
 * wait, and calls of senders that have left are dropped. The other end of a socket pair stands in for the
 * bus, with the methods of org.freedesktop.DBus that the daemon calls. */

#include <sys/socket.h>

#include "dbus-manager.h"
#include "log.h"
#include "util-bus.h"
#include "util-objects.h"

#define DBUS_NAME "org.freedesktop.DBus"
#define DBUS_PATH "/org/freedesktop/DBus"
#define MANAGER "org.qosd1.Manager"

/* As in the daemon: clients of one user other than root, and calls that wait for their turn */
#define CLIENTS_PER_UID_MAX 64
#define CALLS_PER_UID_MAX 32
#define QUEUED_CALLS_MAX 2048

#define REQUESTS_MAX 512

/* Units whose objects need more than one turn */
#define OBJECTS 200
#define OBJECTS_GONE 8U

static sd_event *event;
static Manager *manager;
static BusServer *bus_server;
static sd_bus *daemon_side, *broker;

static FakeUnit units[2 + OBJECTS + 1] = {
        { .id = "a.service", .active_state = "active", .sub_state = "running", .control_group =
          "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "active", .sub_state = "running", .control_group =
          "/system.slice/b.service", .slice = "system.slice" },
        /* main() adds more */
};

/* ---- the bus ------------------------------------------------------------------------------------------ */

static bool delays = false;
static uid_t sender_uid = 0;            /* of all senders without a delay */
static const char *gone = NULL;         /* the name has left the bus */
static sd_bus_message *requests[REQUESTS_MAX];
static unsigned n_requests = 0, n_received = 0, n_matches = 0;

static int method_hello(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(m, "s", ":1.1");
}

static int method_match(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *rule;

        check(sd_bus_message_read(m, "s", &rule) > 0);
        if (strstr(rule, "arg0=':"))
                n_matches += streq(sd_bus_message_get_member(m), "AddMatch") ? 1U : -1U;
        return sd_bus_reply_method_return(m, NULL);
}

static int method_has_owner(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;

        check(sd_bus_message_read(m, "s", &name) > 0);
        return sd_bus_reply_method_return(m, "b", !streq_ptr(name, gone));
}

static int method_get_owner(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;

        check(sd_bus_message_read(m, "s", &name) > 0);
        return sd_bus_reply_method_return(m, "s", name);
}

/* from: sender of the reply; NULL: the bus */
static int reply_user(sd_bus_message *m, uid_t uid, const char *error, const char *from) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;

        if (error)
                check(sd_bus_message_new_method_errorf(m, &reply, error, "%s", error) >= 0);
        else {
                check(sd_bus_message_new_method_return(m, &reply) >= 0);
                check(sd_bus_message_append(reply, "u", (uint32_t) uid) >= 0);
        }
        check(sd_bus_message_set_sender(reply, from ?: DBUS_NAME) >= 0);
        return sd_bus_send(broker, reply, NULL);
}

static int method_get_user(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        n_received++;
        if (!delays)
                return reply_user(m, sender_uid, NULL, NULL);

        check(n_requests < REQUESTS_MAX);
        requests[n_requests++] = sd_bus_message_ref(m);
        return 1;
}

static const sd_bus_vtable broker_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("Hello", NULL, "s", method_hello, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("AddMatch", "s", NULL, method_match, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("RemoveMatch", "s", NULL, method_match, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("NameHasOwner", "s", "b", method_has_owner, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("GetNameOwner", "s", "s", method_get_owner, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("GetConnectionUnixUser", "s", "u", method_get_user, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END
};

/* Replies to the delayed queries, for this sender or all. */
static void reply_as(const char *sender, uid_t uid, const char *error, const char *from) {
        unsigned n = 0;

        for (unsigned i = 0; i < n_requests; i++) {
                const char *name;

                check(sd_bus_message_rewind(requests[i], true) >= 0);
                check(sd_bus_message_read(requests[i], "s", &name) > 0);
                if (sender && !streq(name, sender)) {
                        requests[n++] = requests[i];
                        continue;
                }
                check(reply_user(requests[i], uid, error, from) >= 0);
                sd_bus_message_unref(requests[i]);
        }
        check(n < n_requests);
        n_requests = n;
}

static void reply_to(const char *sender, uid_t uid, const char *error) {
        reply_as(sender, uid, error, NULL);
}

static void leave(const char *sender) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        check(sd_bus_message_new_signal(broker, &m, DBUS_PATH, DBUS_NAME, "NameOwnerChanged") >= 0);
        check(sd_bus_message_append(m, "sss", sender, sender, "") >= 0);
        check(sd_bus_message_set_sender(m, DBUS_NAME) >= 0);
        check(sd_bus_send(broker, m, NULL) >= 0);
}

/* ---- calls -------------------------------------------------------------------------------------------- */

typedef struct Reply {
        sd_bus_message *message;
        unsigned order;         /* 1 is the first one */
} Reply;

static unsigned n_replies = 0;

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Reply *r = userdata;

        r->message = sd_bus_message_ref(m);
        r->order = ++n_replies;
        return 0;
}

static sd_bus_message* new_call(const char *sender, const char *method) {
        sd_bus_message *m;

        check(sd_bus_message_new_method_call(broker, &m, "org.qosd1", "/org/qosd1", MANAGER, method) >= 0);
        check(sd_bus_message_set_sender(m, sender) >= 0);
        if (streq(method, "AttachUnit"))
                check(sd_bus_message_append(m, "sastb", "a", 0, UINT64_C(0), 1) >= 0);
        return m;
}

static void send_message(sd_bus_message *m, Reply *reply) {
        *reply = (Reply) {};
        check(sd_bus_call_async(broker, NULL, m, on_reply, reply, UINT64_MAX) >= 0);
}

static void send_call(const char *sender, const char *method, Reply *reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = new_call(sender, method);

        send_message(m, reply);
}

static const char* reply_error(const Reply *r) {
        const sd_bus_error *e = sd_bus_message_get_error(r->message);

        return e ? e->name : NULL;
}

/* expected: name of the error; NULL: success */
static void expect(Reply *r, const char *expected) {
        test_wait(event, r->message);
        if (!streq_ptr(reply_error(r), expected)) {
                fprintf(stderr, "Error %s instead of %s\n", strempty(reply_error(r)), strempty(expected));
                exit(EXIT_FAILURE);
        }
        r->message = sd_bus_message_unref(r->message);
}

/* Another sender is served, so that all messages before are read. */
static void expect_served(const char *sender) {
        Reply attached, listed;

        send_call(sender, "AttachUnit", &attached);
        send_call(sender, "ListUnits", &listed);
        expect(&listed, NULL);
        expect(&attached, NULL);
}

/* ---- tests -------------------------------------------------------------------------------------------- */

static void test_delay(void) {
        Reply calls[5];
        unsigned received;

        expect_served(":1.10");
        check(manager_count_leases(manager, 0) == 1);
        check(n_received == 1 && n_matches == 1);

        delays = true;
        send_call(":1.11", "Subscribe", calls + 0);
        send_call(":1.11", "Subscribe", calls + 1);
        send_call(":1.11", "Unsubscribe", calls + 2);
        send_call(":1.11", "Unsubscribe", calls + 3);
        send_call(":1.11", "AttachUnit", calls + 4);
        received = n_received;
        expect_served(":1.10");
        check(n_received == received + 1); /* :1.11 is queried once, :1.10 is known */
        for (size_t i = 0; i < ELEMENTSOF(calls); i++)
                check(!calls[i].message);
        check(manager_count_leases(manager, 0) == 1);
        check(n_matches == 1);

        reply_to(":1.11", 0, NULL);
        expect(calls + 0, NULL);
        expect(calls + 1, "org.qosd1.Error.AlreadySubscribed");
        expect(calls + 2, NULL);
        expect(calls + 3, "org.qosd1.Error.NotSubscribed");
        expect(calls + 4, NULL);
        for (size_t i = 1; i < ELEMENTSOF(calls); i++)
                check(calls[i].order > calls[i - 1].order);
        check(manager_count_leases(manager, 0) == 2);

        /* Known users are not queried again until the sender leaves: names on the bus are never reused */
        received = n_received;
        send_call(":1.11", "Subscribe", calls + 0);
        expect(calls + 0, NULL);
        check(n_received == received);
        leave(":1.11");
        test_wait(event, n_matches == 1);
        delays = false;
}

static void test_gone(void) {
        Reply attached, again;

        /* Before its user was known */
        delays = true;
        send_call(":1.20", "AttachUnit", &attached);
        send_call(":1.20", "AttachUnit", &again);
        expect_served(":1.10");
        reply_to(":1.20", 0, "org.freedesktop.DBus.Error.NameHasNoOwner");
        expect(&attached, SD_BUS_ERROR_ACCESS_DENIED);
        expect(&again, SD_BUS_ERROR_ACCESS_DENIED);
        check(manager_count_leases(manager, 0) == 1);
        delays = false;

        /* Before the match for its name was added */
        gone = ":1.21";
        send_call(":1.21", "Subscribe", &attached);
        expect(&attached, NULL);
        test_wait(event, n_matches == 1);
        gone = NULL;

        /* While it waits for polkit or the service manager */
        send_call(":1.22", "AttachUnit", &attached);
        test_wait(event, n_matches == 2);
        leave(":1.22");
        test_wait(event, n_matches == 1);
        check(manager_count_leases(manager, 0) == 1);
        sd_bus_message_unref(attached.message);
}

static void send_change(const char *sender, const char *method, const char *unit, Reply *reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = new_call(sender, method);

        check(sd_bus_message_append(m, "s", unit) >= 0);
        if (!streq(method, "DetachUnit"))
                check(sd_bus_message_append(m, "s", streq(method, "SetThreshold") ?
                                            "slow: requests.server.firstByte.p99 > 20ms" : "slow") >= 0);
        check(sd_bus_message_append(m, "b", 1) >= 0);
        send_message(m, reply);
}

/* The reply about the user of a sender counts only if the bus itself has sent it. */
static void test_forged(void) {
        Reply attached;

        delays = true;
        send_call(":1.23", "AttachUnit", &attached);
        test_wait(event, n_requests == 1);
        reply_as(":1.23", 0, NULL, ":1.23");
        expect(&attached, SD_BUS_ERROR_ACCESS_DENIED);

        /* The bus is queried again */
        send_call(":1.23", "AttachUnit", &attached);
        test_wait(event, n_requests == 1);
        reply_to(":1.23", 0, NULL);
        expect(&attached, NULL);
        delays = false;
        leave(":1.23");
        test_wait(event, n_matches == 1);
}

/* Calls that depend on an earlier one, which waits for the bus or the service manager. */
static void test_order(void) {
        Reply calls[7];

        leave(":1.10");
        test_wait(event, manager->units.n == 0);

        for (unsigned known = 0; known < 2; known++) {
                delays = !known;
                send_change(":1.30", "DetachUnit", "a", calls + 0);
                send_call(":1.30", "AttachUnit", calls + 1);
                send_change(":1.30", "SetThreshold", "a", calls + 2);
                send_change(":1.30", "ClearThreshold", "a", calls + 3);
                send_change(":1.30", "ClearThreshold", "a.service", calls + 4);
                send_change(":1.30", "DetachUnit", "a", calls + 5);
                send_change(":1.30", "SetThreshold", "a", calls + 6);
                if (!known) {
                        test_wait(event, n_requests == 1);
                        reply_to(":1.30", 0, NULL);
                }
                expect(calls + 0, "org.qosd1.Error.NotAttached");
                expect(calls + 1, NULL);
                expect(calls + 2, NULL);
                expect(calls + 3, NULL);
                expect(calls + 4, "org.qosd1.Error.NoSuchThreshold");
                expect(calls + 5, NULL);
                expect(calls + 6, "org.qosd1.Error.NotAttached");
                for (size_t i = 1; i < ELEMENTSOF(calls); i++)
                        check(calls[i].order > calls[i - 1].order);
                check(manager->units.n == 0);
                test_wait(event, n_matches == 0);
        }
        expect_served(":1.10");
}

/* Arguments with empty containers. */
static void send_empty_arrays(const char *sender, unsigned n, Reply *reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = new_call(sender, "ListUnits");

        check(sd_bus_message_open_container(m, 'a', "as") >= 0);
        for (unsigned i = 0; i < n; i++)
                check(sd_bus_message_append(m, "as", 0) >= 0);
        check(sd_bus_message_close_container(m) >= 0);
        send_message(m, reply);
}

/* Calls behind another call have the same limits of size and number. */
static void test_order_limits(void) {
        static Reply calls[CALLS_PER_UID_MAX + 8];
        static char name[8 * 1024], long_name[64 * 1024];
        Reply attached, detached, set, too_long;

        delays = true;
        memset(name, 'a', sizeof(name) - 1);
        memset(long_name, 'a', sizeof(long_name) - 1);
        send_call(":1.31", "AttachUnit", &attached);
        send_change(":1.31", "DetachUnit", name, &detached);
        send_change(":1.31", "SetThreshold", name, &set);
        send_change(":1.31", "SetThreshold", long_name, &too_long);
        expect(&too_long, SD_BUS_ERROR_LIMITS_EXCEEDED);
        send_empty_arrays(":1.31", 4096, &too_long);
        expect(&too_long, SD_BUS_ERROR_LIMITS_EXCEEDED);
        check(!attached.message && !detached.message && !set.message);

        for (size_t i = 0; i < ELEMENTSOF(calls); i++)
                send_change(":1.31", "SetThreshold", "b", calls + i);
        expect_served(":1.10");
        reply_to(":1.31", 1000, NULL);
        expect(&attached, SD_BUS_ERROR_ACCESS_DENIED); /* there is no polkit */
        expect(&detached, "org.qosd1.Error.InvalidUnitName");
        expect(&set, "org.qosd1.Error.InvalidUnitName");
        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                test_wait(event, calls[i].message);
                /* Behind the attach, up to the limit, or after it has failed */
                if (!streq_ptr(reply_error(calls + i), SD_BUS_ERROR_LIMITS_EXCEEDED))
                        check(streq_ptr(reply_error(calls + i), "org.qosd1.Error.NotAttached"));
                sd_bus_message_unref(calls[i].message);
        }
        delays = false;
        test_wait(event, n_matches == 1);
}

/* Limits by user apply when the user is known. */
static void test_limits(void) {
        static Reply subscribed[CLIENTS_PER_UID_MAX + 8];
        unsigned granted = 0;
        char name[32];

        delays = true;
        for (size_t i = 0; i < ELEMENTSOF(subscribed); i++) {
                (void) snprintf(name, sizeof(name), ":1.%zu", 100 + i);
                send_call(name, "Subscribe", subscribed + i);
        }
        expect_served(":1.10");
        check(n_requests == ELEMENTSOF(subscribed));
        reply_to(NULL, 1000, NULL);
        for (size_t i = 0; i < ELEMENTSOF(subscribed); i++) {
                test_wait(event, subscribed[i].message);
                granted += !reply_error(subscribed + i);
                expect(subscribed + i, reply_error(subscribed + i) ? SD_BUS_ERROR_LIMITS_EXCEEDED : NULL);
        }
        check(granted == CLIENTS_PER_UID_MAX);
        delays = false;

        for (size_t i = 0; i < ELEMENTSOF(subscribed); i++) {
                (void) snprintf(name, sizeof(name), ":1.%zu", 100 + i);
                leave(name);
        }
        test_wait(event, n_matches == 1);
}

/* A sender with many calls does not take the places of others. */
static void test_flood(void) {
        static Reply calls[QUEUED_CALLS_MAX + 8];
        unsigned refused = 0;
        Reply attached;

        delays = true;
        for (size_t i = 0; i < ELEMENTSOF(calls); i++)
                send_call(":1.300", "Subscribe", calls + i);
        expect_served(":1.10");
        send_call(":1.301", "AttachUnit", &attached);
        test_wait(event, n_requests == 2);
        reply_to(":1.301", 0, NULL);
        expect(&attached, NULL);

        reply_to(":1.300", 1000, NULL);
        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                test_wait(event, calls[i].message);
                refused += streq_ptr(reply_error(calls + i), SD_BUS_ERROR_LIMITS_EXCEEDED);
                sd_bus_message_unref(calls[i].message);
        }
        check(refused == ELEMENTSOF(calls) - QUEUED_CALLS_MAX + 1);
        delays = false;
        leave(":1.300");
        leave(":1.301");
        test_wait(event, n_matches == 1);
}

static unsigned count_replies(const Reply *calls, size_t n) {
        unsigned k = 0;

        for (size_t i = 0; i < n; i++)
                k += !!calls[i].message;
        return k;
}

/* Calls of users wait for their turns, those of root do not; those of senders that have left are dropped. */
static void test_turns(void) {
        static Reply calls[1000];
        Reply listed;
        unsigned n;

        delays = true;
        for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
                _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

                check(sd_bus_message_new_method_call(broker, &m, "org.qosd1", "/org/qosd1",
                                                     "org.freedesktop.DBus.ObjectManager",
                                                     "GetManagedObjects") >= 0);
                check(sd_bus_message_set_sender(m, ":1.310") >= 0);
                send_message(m, calls + i);
        }
        test_wait(event, n_requests == 1);
        reply_to(":1.310", 1000, NULL);
        delays = false;
        send_call(":1.10", "ListUnits", &listed);
        expect(&listed, NULL);
        n = count_replies(calls, ELEMENTSOF(calls));
        check(n < ELEMENTSOF(calls) / 2);

        leave(":1.310");
        /* Later calls are served later */
        send_call(":1.10", "ListUnits", &listed);
        expect(&listed, NULL);
        n = count_replies(calls, ELEMENTSOF(calls));
        check(n < ELEMENTSOF(calls) / 2);
        for (unsigned i = 0; i < 1000; i++) {
                send_call(":1.10", "ListUnits", &listed);
                expect(&listed, NULL);
        }
        check(count_replies(calls, ELEMENTSOF(calls)) == n);
        for (size_t i = 0; i < ELEMENTSOF(calls); i++)
                sd_bus_message_unref(calls[i].message);

        /* Others are served, too, and get the same replies as root */
        delays = true;
        send_call(":1.311", "ListUnits", &listed);
        test_wait(event, n_requests == 1);
        reply_to(":1.311", 1000, NULL);
        delays = false;
        expect(&listed, NULL);
}

/* ---- GetManagedObjects -------------------------------------------------------------------------------- */

static void send_to_objects(const char *sender, Reply *reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        check(sd_bus_message_new_method_call(broker, &m, "org.qosd1", "/org/qosd1",
                                             "org.freedesktop.DBus.ObjectManager",
                                             "GetManagedObjects") >= 0);
        if (sender)
                check(sd_bus_message_set_sender(m, sender) >= 0);
        send_message(m, reply);
}

static void send_for_object(const char *sender, const char *method, unsigned i, Reply *reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char name[32];

        (void) snprintf(name, sizeof(name), "o-%u.service", i);
        check(sd_bus_message_new_method_call(broker, &m, "org.qosd1", "/org/qosd1", MANAGER, method) >= 0);
        check(sd_bus_message_set_sender(m, sender) >= 0);
        check(sd_bus_message_append(m, "s", name) >= 0);
        if (streq(method, "AttachUnit"))
                check(sd_bus_message_append(m, "astb", 0, UINT64_C(0), 1) >= 0);
        else
                check(sd_bus_message_append(m, "b", 1) >= 0);
        send_message(m, reply);
}

static bool has_object(const Lines *l, unsigned i) {
        char line[80];

        (void) snprintf(line, sizeof(line), "/org/qosd1/unit/o_2d%u_2eservice org.qosd1.Unit", i);
        for (size_t k = 0; k < l->n; k++)
                if (streq(l->lines[k], line))
                        return true;
        return false;
}

/* The reply is made in turns, and equals that of sd-bus itself, which calls without a sender get. */
static void test_objects(void) {
        Reply attached, of_user, of_root, of_sd_bus, set;
        Lines *user, *root, *sd_bus;

        for (unsigned i = 0; i < OBJECTS; i++) {
                send_for_object(":1.340", "AttachUnit", i, &attached);
                expect(&attached, NULL);
        }
        send_change(":1.340", "SetThreshold", "o-7", &set);
        expect(&set, NULL);
        delays = true;
        send_to_objects(":1.341", &of_user);
        test_wait(event, n_requests == 1);
        reply_to(":1.341", 1000, NULL);
        delays = false;
        test_wait(event, of_user.message);
        send_to_objects(":1.340", &of_root);
        test_wait(event, of_root.message);
        send_to_objects(NULL, &of_sd_bus);
        test_wait(event, of_sd_bus.message);

        user = read_objects(of_user.message);
        root = read_objects(of_root.message);
        sd_bus = read_objects(of_sd_bus.message);
        check(sd_bus->n > (size_t) OBJECTS * 100);
        check(user->n == sd_bus->n && root->n == sd_bus->n);
        for (size_t i = 0; i < sd_bus->n; i++)
                if (!streq(user->lines[i], sd_bus->lines[i]) || !streq(root->lines[i], sd_bus->lines[i])) {
                        fprintf(stderr, "%s\n%s\n%s\n", user->lines[i], root->lines[i], sd_bus->lines[i]);
                        exit(EXIT_FAILURE);
                }
        lines_free(user);
        lines_free(root);
        lines_free(sd_bus);
        sd_bus_message_unref(of_user.message);
        sd_bus_message_unref(of_root.message);
        sd_bus_message_unref(of_sd_bus.message);
}

static void send_list_thresholds(const char *sender, const char *unit, Reply *reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        check(sd_bus_message_new_method_call(broker, &m, "org.qosd1", "/org/qosd1", MANAGER,
                                             "ListThresholds") >= 0);
        if (sender)
                check(sd_bus_message_set_sender(m, sender) >= 0);
        check(sd_bus_message_append(m, "s", unit) >= 0);
        send_message(m, reply);
}

static char* reply_to_text(Reply *r) {
        char *text = NULL;
        size_t size;
        FILE *f;

        test_wait(event, r->message);
        check(!reply_error(r));
        f = open_memstream(&text, &size);
        check(f);
        print_value(r->message, f);
        check(fclose(f) == 0);
        r->message = sd_bus_message_unref(r->message);
        return text;
}

/* The same as the objects. */
static void test_thresholds(void) {
        const char *const senders[] = { ":1.340", ":1.341", NULL };
        char *texts[ELEMENTSOF(senders)];
        Reply set, listed;

        for (unsigned i = 0; i < 2; i++) {
                send_change(":1.340", "SetThreshold", i == 0 ? "o-0" : "o-199", &set);
                expect(&set, NULL);
        }
        for (size_t i = 0; i < ELEMENTSOF(senders); i++) {
                send_list_thresholds(senders[i], "", &listed);
                texts[i] = reply_to_text(&listed);
                check(streq(texts[i], texts[0]));
        }
        check(strstr(texts[0], "o-0.service") && strstr(texts[0], "o-7.service") &&
              strstr(texts[0], "o-199.service"));
        for (size_t i = 0; i < ELEMENTSOF(senders); i++)
                free(texts[i]);

        /* Of one unit, or of a missing one */
        send_list_thresholds(":1.341", "o-7.service", &listed);
        texts[0] = reply_to_text(&listed);
        check(strstr(texts[0], "o-7.service") && !strstr(texts[0], "o-0.service"));
        free(texts[0]);
        send_list_thresholds(":1.341", "o", &listed);
        expect(&listed, "org.qosd1.Error.NotAttached");
}

/* Units are attached and detached during the reply: it has no unit whose InterfacesRemoved was sent
 * before. */
static void test_objects_that_change(void) {
        Reply objects, second, detached, attached, listed;
        Lines *l;

        send_to_objects(":1.341", &objects);
        for (unsigned i = 0; i < OBJECTS_GONE; i++) {
                /* Some turns later */
                for (unsigned k = 0; k < 4; k++) {
                        send_call(":1.340", "ListUnits", &listed);
                        expect(&listed, NULL);
                }
                send_for_object(":1.340", "DetachUnit", i, &detached);
                expect(&detached, NULL);
                check(!objects.message);
        }
        test_wait(event, objects.message);
        l = read_objects(objects.message);
        for (unsigned i = 0; i < OBJECTS; i++)
                check(has_object(l, i) == (i >= OBJECTS_GONE));
        lines_free(l);
        sd_bus_message_unref(objects.message);

        send_to_objects(":1.341", &objects);
        send_for_object(":1.340", "AttachUnit", 0, &attached);
        expect(&attached, NULL);
        check(!objects.message);
        /* A second reply to the user waits for the first one, until its sender leaves */
        delays = true;
        send_to_objects(":1.342", &second);
        test_wait(event, n_requests == 1);
        reply_to(":1.342", 1000, NULL);
        delays = false;
        check(!objects.message);
        leave(":1.341");
        test_wait(event, second.message);
        check(!objects.message);
        l = read_objects(second.message);
        check(has_object(l, 0) && has_object(l, OBJECTS - 1));
        lines_free(l);
        sd_bus_message_unref(second.message);
        sd_bus_message_unref(objects.message);

        leave(":1.340");
        leave(":1.342");
        test_wait(event, n_matches == 1);
        check(manager->units.n == 1);
}

static void send_without_reply(const char *sender, const char *interface, const char *method) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        check(sd_bus_message_new_method_call(broker, &m, "org.qosd1", "/org/qosd1", interface,
                                             method) >= 0);
        check(sd_bus_message_set_sender(m, sender) >= 0);
        check(sd_bus_message_set_expect_reply(m, false) >= 0);
        check(sd_bus_send(broker, m, NULL) >= 0);
}

/* A call that changes nothing and expects no reply is dropped, without a query for its sender. */
static void test_without_reply(void) {
        unsigned received = n_received, matches = n_matches;

        send_without_reply(":1.320", "org.freedesktop.DBus.ObjectManager", "GetManagedObjects");
        send_without_reply(":1.320", "org.freedesktop.DBus.Introspectable", "Introspect");
        send_without_reply(":1.320", "org.freedesktop.DBus.Peer", "Ping");
        send_without_reply(":1.320", MANAGER, "ListUnits");
        expect_served(":1.10");
        check(n_received == received);

        /* Others are made */
        send_without_reply(":1.320", MANAGER, "Subscribe");
        test_wait(event, n_matches == matches + 1);
        check(n_received == received + 1);
        leave(":1.320");
        test_wait(event, n_matches == matches);
}

/* A user that sends calls with many MB of arguments is not read for a while, small calls included. */
static void test_large(void) {
        static char name[16 * 1024 * 1024];
        bool refused = false;
        Reply large, small;

        memset(name, 'a', sizeof(name) - 1);
        while (!refused) {
                send_change(":1.330", "DetachUnit", name, &large);
                send_call(":1.330", "ListUnits", &small);
                expect_served(":1.10");
                expect(&large, SD_BUS_ERROR_LIMITS_EXCEEDED);
                test_wait(event, small.message);
                refused = reply_error(&small);
                expect(&small, refused ? SD_BUS_ERROR_LIMITS_EXCEEDED : NULL);
        }
        while (refused) {
                send_call(":1.330", "ListUnits", &small);
                test_wait(event, small.message);
                refused = reply_error(&small);
                expect(&small, refused ? SD_BUS_ERROR_LIMITS_EXCEEDED : NULL);
        }
        leave(":1.330");
}

static void send_log_level(const char *sender, const char *level, Reply *reply) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        check(sd_bus_message_new_method_call(broker, &m, "org.qosd1", "/org/freedesktop/LogControl1",
                                             "org.freedesktop.DBus.Properties", "Set") >= 0);
        check(sd_bus_message_append(m, "ssv", "org.freedesktop.LogControl1", "LogLevel", "s", level) >= 0);
        check(sd_bus_message_set_sender(m, sender) >= 0);
        send_message(m, reply);
}

static void test_log_level(void) {
        int before = log_get_max_level();
        Reply user, root;

        delays = true;
        send_log_level(":1.400", "debug", &user);
        send_log_level(":1.401", "err", &root);
        expect_served(":1.10");
        check(!user.message && !root.message);
        check(log_get_max_level() == before);

        reply_to(":1.400", 1000, NULL);
        expect(&user, SD_BUS_ERROR_ACCESS_DENIED);
        check(log_get_max_level() == before);
        reply_to(":1.401", 0, NULL);
        expect(&root, NULL);
        check(log_get_max_level() == LOG_ERR);
        log_set_max_level(before);
        delays = false;
        test_wait(event, n_matches == 1);
}

static void test_disconnect(void) {
        Reply attached;

        delays = true;
        send_call(":1.500", "AttachUnit", &attached);
        test_wait(event, n_requests == 1);
        check(manager_set_bus(manager, NULL) >= 0);
        check(manager->units.n == 0);
        for (unsigned i = 0; i < n_requests; i++)
                sd_bus_message_unref(requests[i]);
}

int main(void) {
        static char names[OBJECTS][32];
        FakeServiceManager pid1;
        sd_id128_t id;
        int fds[2];

        for (unsigned i = 0; i < OBJECTS; i++) {
                (void) snprintf(names[i], sizeof(names[i]), "o-%u.service", i);
                units[2 + i] = (FakeUnit) { .id = names[i], .active_state = "inactive", .sub_state = "dead",
                                            .control_group = "", .slice = "system.slice" };
        }

        if (!test_become_plain_root())
                return 77;

        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);

        check(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fds) >= 0);
        check(sd_id128_randomize(&id) >= 0);
        check(sd_bus_new(&broker) >= 0);
        check(sd_bus_set_fd(broker, fds[0], fds[0]) >= 0);
        check(sd_bus_set_server(broker, true, id) >= 0);
        check(sd_bus_start(broker) >= 0);
        check(sd_bus_add_object_vtable(broker, NULL, DBUS_PATH, DBUS_NAME, broker_vtable, NULL) >= 0);
        fake_service_manager_start(&pid1, broker, units);
        check(sd_bus_attach_event(broker, event, 0) >= 0);

        check(sd_bus_new(&daemon_side) >= 0);
        check(sd_bus_set_fd(daemon_side, fds[1], fds[1]) >= 0);
        check(sd_bus_set_bus_client(daemon_side, true) >= 0);
        check(sd_bus_start(daemon_side) >= 0);
        check(sd_bus_attach_event(daemon_side, event, 0) >= 0);
        test_wait(event, sd_bus_is_ready(daemon_side) > 0);

        check(manager_set_bus(manager, daemon_side) >= 0);
        check(bus_server_new_peer(manager, daemon_side, &bus_server) >= 0);

        test_delay();
        test_gone();
        test_forged();
        test_order();
        test_order_limits();
        test_limits();
        test_flood();
        test_turns();
        test_objects();
        test_thresholds();
        test_objects_that_change();
        test_without_reply();
        test_large();
        test_log_level();
        test_disconnect();

        bus_server_free(bus_server);
        manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(broker);
        sd_event_unref(event);
        return EXIT_SUCCESS;
}
