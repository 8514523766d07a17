/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* With a real message broker: the daemon finds callers by their names, queries polkit about them, notices
 * when they leave, and survives a restart of the broker. Runs its own dbus-daemon (the argument) with
 * stand-ins for PID 1 and polkit. */

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "dbus-manager.h"
#include "util-bus.h"

#define MANAGER "org.qosd1.Manager"

/* As in the daemon: waiting calls of one user other than root */
#define CALLS_PER_UID_MAX 32

static sd_event *event;
static Manager *manager;
static BusServer *bus_server;
static const char *dbus_daemon;
static char directory[] = "/tmp/test-dbus-broker-XXXXXX";
static char *address;
static pid_t broker;

static FakeUnit units[] = {
        { .id = "a.service", .active_state = "active", .sub_state = "running", .control_group =
          "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "active", .sub_state = "running", .control_group =
          "/system.slice/b.service", .slice = "system.slice" },
        {}
};

/* ---- broker ------------------------------------------------------------------------------------------- */

static void broker_start(void) {
        _cleanup_free_ char *config = NULL, *file = NULL, *print = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        posix_spawn_file_actions_t actions;
        int fds[2];
        char c;

        check(asprintf(&file, "%s/config", directory) > 0);
        check(asprintf(&config, "--config-file=%s", file) > 0);
        f = fopen(file, "we");
        check(f);
        fprintf(f,
                "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN\""
                " \"https://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n"
                "<busconfig><type>system</type><listen>%s</listen><auth>EXTERNAL</auth>"
                "<policy context=\"default\"><allow user=\"*\"/><allow own=\"*\"/><allow "
                "send_destination=\"*\"/>"
                "<allow receive_sender=\"*\"/></policy></busconfig>\n", address);
        check(fflush(f) == 0);

        /* It prints its address when it listens */
        check(pipe2(fds, O_CLOEXEC) >= 0);
        check(asprintf(&print, "--print-address=%i", 3) > 0);
        check(posix_spawn_file_actions_init(&actions) == 0);
        check(posix_spawn_file_actions_adddup2(&actions, fds[1], 3) == 0);
        check(posix_spawn(&broker, dbus_daemon, &actions, NULL,
                          (char*[]) { (char*) "dbus-daemon", (char*) "--nofork", (char*) "--nopidfile",
                                      config, print, NULL }, environ) == 0);
        posix_spawn_file_actions_destroy(&actions);
        close_fd(fds[1]);
        check(read(fds[0], &c, 1) == 1);
        close_fd(fds[0]);
}

static void broker_stop(void) {
        if (broker <= 0)
                return;
        check(kill(broker, SIGKILL) >= 0);
        check(waitpid(broker, NULL, 0) == broker);
        broker = 0;
}

static void cleanup(void) {
        static const char *const files[] = { "config", "bus" };

        if (broker > 0)
                (void) kill(broker, SIGKILL);
        for (size_t i = 0; i < ELEMENTSOF(files); i++) {
                _cleanup_free_ char *path = NULL;

                if (asprintf(&path, "%s/%s", directory, files[i]) > 0)
                        (void) unlink(path);
        }
        (void) rmdir(directory);
}

static sd_bus* connect_as(uid_t uid) {
        sd_bus *bus;

        check(sd_bus_new(&bus) >= 0);
        check(sd_bus_set_address(bus, address) >= 0);
        check(sd_bus_set_bus_client(bus, true) >= 0);
        check(uid == 0 || seteuid(uid) >= 0);
        check(sd_bus_start(bus) >= 0);
        check(uid == 0 || seteuid(0) >= 0);
        check(sd_bus_attach_event(bus, event, 0) >= 0);
        test_wait(event, sd_bus_is_ready(bus) > 0);
        return bus;
}

static void disconnect(sd_bus *bus) {
        sd_bus_flush_close_unref(bus);
}

/* ---- polkit ------------------------------------------------------------------------------------------- */

#define CHECKS_MAX 64

static struct {
        enum { POLKIT_YES, POLKIT_NO, POLKIT_CHALLENGE, POLKIT_SILENT } mode;
        char *subject, *action, *ids[CHECKS_MAX];
        uint32_t flags;
        unsigned n_checks, n_cancelled;
} polkit;

static int method_check(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *kind, *key, *name, *action, *id;

        check(sd_bus_message_enter_container(m, 'r', "sa{sv}") > 0);
        check(sd_bus_message_read(m, "s", &kind) > 0);
        check(sd_bus_message_read(m, "a{sv}", 1, &key, "s", &name) > 0);
        check(sd_bus_message_exit_container(m) > 0);
        check(sd_bus_message_read(m, "s", &action) > 0);
        check(sd_bus_message_skip(m, "a{ss}") > 0);
        check(sd_bus_message_read(m, "us", &polkit.flags, &id) > 0);

        check(streq(kind, "system-bus-name") && streq(key, "name"));
        check(free_and_strdup(&polkit.subject, name) >= 0);
        check(free_and_strdup(&polkit.action, action) >= 0);
        check(polkit.n_checks < CHECKS_MAX);
        check(!isempty(id));
        for (unsigned i = 0; i < polkit.n_checks; i++)
                check(!streq(polkit.ids[i], id));
        check(free_and_strdup(&polkit.ids[polkit.n_checks++], id) >= 0);

        switch (polkit.mode) {
        case POLKIT_YES:
                return sd_bus_reply_method_return(m, "(bba{ss})", 1, 0, 0);
        case POLKIT_NO:
                return sd_bus_reply_method_return(m, "(bba{ss})", 0, 0, 0);
        case POLKIT_CHALLENGE:
                /* A password is required. With flag 1 it is entered */
                return sd_bus_reply_method_return(m, "(bba{ss})", polkit.flags & 1 ? 1 : 0,
                                                  polkit.flags & 1 ? 0 : 1, 0);
        default:
                return 1;
        }
}

static int method_cancel(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *id;
        bool known = false;

        check(sd_bus_message_read(m, "s", &id) > 0);
        for (unsigned i = 0; i < polkit.n_checks; i++)
                known = known || streq(polkit.ids[i], id);
        check(known);
        polkit.n_cancelled++;
        return sd_bus_reply_method_return(m, NULL);
}

static const sd_bus_vtable polkit_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})", method_check,
                      SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("CancelCheckAuthorization", "s", NULL, method_cancel, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END
};

static void polkit_reset(int mode) {
        for (unsigned i = 0; i < polkit.n_checks; i++)
                free(polkit.ids[i]);
        memset(polkit.ids, 0, sizeof(polkit.ids));
        polkit.mode = mode;
        polkit.n_checks = polkit.n_cancelled = 0;
}

/* ---- calls -------------------------------------------------------------------------------------------- */

static void own_name(sd_bus *bus, const char *name) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        uint32_t owner;

        check(sd_bus_message_new_method_call(bus, &m, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                             "org.freedesktop.DBus", "RequestName") >= 0);
        check(sd_bus_message_append(m, "su", name, 0) >= 0);
        reply = test_call_message(bus, m, NULL);
        check(sd_bus_message_read(reply, "u", &owner) > 0 && owner == 1);
}

static bool has_owner(sd_bus *bus, const char *name) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        int owned;

        check(sd_bus_message_new_method_call(bus, &m, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                             "org.freedesktop.DBus", "NameHasOwner") >= 0);
        check(sd_bus_message_append(m, "s", name) >= 0);
        reply = test_call_message(bus, m, NULL);
        check(sd_bus_message_read(reply, "b", &owned) > 0);
        return owned;
}

static sd_bus_message* new_call(sd_bus *bus, const char *method, bool interactive, const char *unit,
                                bool lease) {
        sd_bus_message *m;

        check(sd_bus_message_new_method_call(bus, &m, "org.qosd1", "/org/qosd1", MANAGER, method) >= 0);
        check(streq(method, "AttachUnit") ?
              sd_bus_message_append(m, "sastb", unit, 0, UINT64_C(0), lease) >= 0 :
              sd_bus_message_append(m, "sb", unit, lease) >= 0);
        check(sd_bus_message_set_allow_interactive_authorization(m, interactive) >= 0);
        return m;
}

/* expected: name of the error; NULL: success */
static void call(sd_bus *bus, const char *method, bool interactive, const char *unit, bool lease,
                 const char *expected) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = new_call(bus, method, interactive, unit, lease),
                *reply = NULL;
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        reply = test_call_message(bus, m, expected ? &error : NULL);
        if (expected && !sd_bus_error_has_name(&error, expected)) {
                fprintf(stderr, "%s: error %s (%s) instead of %s\n", method, strempty(error.name),
                        strempty(error.message), expected);
                exit(EXIT_FAILURE);
        }
}

static void simple(sd_bus *bus, const char *method, const char *expected) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        sd_bus_message_unref(test_call(bus, "/org/qosd1", MANAGER, method, expected ? &error : NULL, NULL));
        check(!expected || sd_bus_error_has_name(&error, expected));
}

/* ---- tests -------------------------------------------------------------------------------------------- */

static void test_leases(void) {
        sd_bus *a = connect_as(0), *b = connect_as(0);

        call(a, "AttachUnit", false, "a", true, NULL);
        call(b, "AttachUnit", false, "a", true, NULL);
        call(b, "AttachUnit", false, "b", true, NULL);
        check(manager->units.n == 2);
        check(manager_count_leases(manager, 0) == 3);
        check(streq(manager->units.slots[1]->holds->owner, manager->units.slots[0]->holds->owner)); /* b's */

        /* Each has its own */
        disconnect(a);
        test_wait(event, manager_count_leases(manager, 0) == 2);
        check(manager->units.n == 2);
        call(b, "DetachUnit", false, "a", true, NULL);
        check(manager->units.n == 1);
        disconnect(b);
        test_wait(event, manager->units.n == 0);
}

static unsigned n_changed;

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        n_changed++;
        return 0;
}

static void test_subscribers(void) {
        sd_bus *a = connect_as(0), *b = connect_as(0);

        check(sd_bus_match_signal(b, NULL, NULL, "/org/qosd1", "org.freedesktop.DBus.Properties",
                                  "PropertiesChanged", on_changed, NULL) >= 0);
        simple(a, "Subscribe", NULL);
        simple(b, "Subscribe", NULL);
        simple(a, "Subscribe", "org.qosd1.Error.AlreadySubscribed");
        simple(b, "Unsubscribe", NULL);

        /* a is still attached, so that signals are sent */
        call(b, "AttachUnit", false, "a", false, NULL);
        test_wait(event, n_changed > 0);

        /* Once the daemon has seen that a has left: the broker sends that in order with these calls */
        disconnect(a);
        for (unsigned i = 0; i == 0 || n_changed > 0; i++) {
                check(i < 1000);
                n_changed = 0;
                call(b, "AttachUnit", false, "b", false, NULL);
                call(b, "DetachUnit", false, "b", false, NULL);
                check(!has_owner(b, "no.such.name")); /* what was sent before is here now */
        }
        call(b, "DetachUnit", false, "a", false, NULL);
        check(manager->units.n == 0);
        disconnect(b);
}

/* A user other than root, with each result of polkit. */
static void test_polkit(sd_bus *services) {
        sd_bus *user = connect_as(TEST_OTHER_UID);
        const char *name;

        check(sd_bus_get_unique_name(user, &name) >= 0);

        /* No polkit */
        call(user, "AttachUnit", true, "a", false, SD_BUS_ERROR_ACCESS_DENIED);

        check(sd_bus_add_object_vtable(services, NULL, "/org/freedesktop/PolicyKit1/Authority",
                                       "org.freedesktop.PolicyKit1.Authority", polkit_vtable, NULL) >= 0);
        own_name(services, "org.freedesktop.PolicyKit1");

        polkit_reset(POLKIT_NO);
        call(user, "AttachUnit", true, "a", false, SD_BUS_ERROR_ACCESS_DENIED);
        check(polkit.n_checks == 1);
        check(streq(polkit.subject, name) && streq(polkit.action, "org.qosd1.attach") && polkit.flags == 1);

        polkit_reset(POLKIT_CHALLENGE);
        call(user, "AttachUnit", false, "a", false, SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED);
        check(polkit.flags == 0);
        check(manager->units.n == 0);
        call(user, "AttachUnit", true, "a", false, NULL);
        check(manager->units.n == 1 && manager->units.slots[0]->holds->uid == TEST_OTHER_UID);

        /* Detaching needs the same permission, an own lease none */
        polkit_reset(POLKIT_NO);
        call(user, "DetachUnit", true, "a", false, SD_BUS_ERROR_ACCESS_DENIED);
        check(polkit.n_checks == 1);
        call(user, "DetachUnit", true, "b", false, "org.qosd1.Error.NotAttached");
        call(user, "AttachUnit", true, "a b", false, "org.qosd1.Error.InvalidUnitName");
        check(polkit.n_checks == 1);
        polkit_reset(POLKIT_YES);
        call(user, "AttachUnit", false, "b", true, NULL);
        polkit_reset(POLKIT_NO);
        call(user, "DetachUnit", false, "b", true, NULL);
        check(polkit.n_checks == 0);

        /* polkit is not queried about root */
        {
                sd_bus *root = connect_as(0);

                call(root, "DetachUnit", false, "a", false, NULL);
                check(polkit.n_checks == 0);
                disconnect(root);
        }

        /* Waits for the user without a limit; the query about a caller that leaves is cancelled */
        polkit_reset(POLKIT_SILENT);
        for (unsigned i = 0; i < CALLS_PER_UID_MAX; i++) {
                _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = new_call(user, "AttachUnit", true, "a",
                                                                              i % 2);

                check(sd_bus_call_async(user, NULL, m, NULL, NULL, UINT64_MAX) >= 0);
        }
        test_wait(event, polkit.n_checks == CALLS_PER_UID_MAX);
        call(user, "AttachUnit", true, "a", false, SD_BUS_ERROR_LIMITS_EXCEEDED);
        {
                /* Other callers do not wait */
                sd_bus *root = connect_as(0);

                call(root, "AttachUnit", false, "a", false, NULL);
                call(root, "DetachUnit", false, "a", false, NULL);
                disconnect(root);
        }
        disconnect(user);
        test_wait(event, polkit.n_cancelled == CALLS_PER_UID_MAX);
        check(manager->units.n == 0);
        polkit_reset(POLKIT_NO);
}

/* The name has another owner: the daemon logs it and continues. */
static void test_name_taken(void) {
        sd_bus *thief;

        thief = connect_as(0);
        own_name(thief, "org.qosd1");
        check(manager_connect_bus(manager) >= 0);
        check(has_owner(thief, "org.qosd1"));
        check(manager_set_bus(manager, NULL) >= 0);
        disconnect(thief);
}

int main(int argc, char **argv) {
        sd_bus *services, *client;
        FakeServiceManager pid1;

        check(argc == 2);
        dbus_daemon = argv[1];
        if (!test_become_plain_root())
                return 77;

        check(mkdtemp(directory));
        check(chmod(directory, 0755) >= 0);
        check(atexit(cleanup) == 0);
        check(asprintf(&address, "unix:path=%s/bus", directory) > 0);
        check(setenv("DBUS_SYSTEM_BUS_ADDRESS", address, 1) >= 0);

        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        check(bus_server_new(manager, &bus_server) >= 0);
        broker_start();

        test_name_taken();

        services = connect_as(0);
        fake_service_manager_start(&pid1, services, units);
        own_name(services, "org.freedesktop.systemd1");

        check(manager_connect_bus(manager) >= 0);
        test_wait(event, has_owner(services, "org.qosd1"));

        test_leases();
        test_subscribers();
        if (test_has_other_user())
                test_polkit(services);

        /* The broker ends, with all of its state, at an arbitrary moment */
        client = connect_as(0);
        simple(client, "Subscribe", NULL);
        call(client, "AttachUnit", false, "a", true, NULL);
        call(client, "AttachUnit", false, "b", false, NULL);
        check(manager->units.n == 2);
        broker_stop();
        test_wait(event, manager->units.n == 1);
        check(streq(manager->units.slots[1]->name, "b.service"));
        disconnect(client);
        disconnect(services);

        /* and is started again */
        broker_start();
        services = connect_as(0);
        fake_service_manager_start(&pid1, services, units);
        own_name(services, "org.freedesktop.systemd1");
        test_wait(event, has_owner(services, "org.qosd1"));
        client = connect_as(0);
        call(client, "AttachUnit", false, "a", true, NULL);
        check(manager->units.n == 2);
        disconnect(client);
        test_wait(event, manager->units.n == 1);

        bus_server_free(bus_server);
        manager_free(manager);
        disconnect(services);
        broker_stop();
        polkit_reset(POLKIT_NO);
        free(polkit.subject);
        free(polkit.action);
        sd_event_unref(event);
        free(address);
        return EXIT_SUCCESS;
}
