/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/resource.h>

#include "util-varlink-daemon.h"
#include "varlink-server.h"

Manager *manager;
sd_bus *daemon_side, *system_side;
FakeServiceManager pid1;

char many_names[MANY_UNITS][32];

FakeUnit units[6 + MANY_UNITS + 1] = {
        { .id = "a.service", .alias = "alias.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "inactive", .sub_state = "dead", .slice = "system.slice" },
        { .id = "c.service", .active_state = "inactive", .sub_state = "dead", .slice = "system.slice" },
        { .id = "exited.service", .active_state = "active", .sub_state = "exited", .slice = "system.slice" },
        { .id = "x.target", .active_state = "active", .sub_state = "active" },
        { .id = "inner.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service/inner.service", .slice = "system.slice" },
};

/* ---- polkit ------------------------------------------------------------------------------------------- */

unsigned polkit_mood, polkit_calls;
bool polkit_interactive;

static int method_check_authorization(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *kind, *key, *action;
        uint32_t flags;
        int pidfd, uid;

        check(sd_bus_message_enter_container(m, 'r', "sa{sv}") > 0);
        check(sd_bus_message_read(m, "s", &kind) > 0 && streq(kind, "unix-process"));
        check(sd_bus_message_enter_container(m, 'a', "{sv}") > 0);
        check(sd_bus_message_read(m, "{sv}", &key, "h", &pidfd) > 0 && streq(key, "pidfd") && pidfd >= 0);
        check(sd_bus_message_read(m, "{sv}", &key, "i", &uid) > 0 && streq(key, "uid") &&
              uid == TEST_OTHER_UID);
        check(sd_bus_message_exit_container(m) >= 0 && sd_bus_message_exit_container(m) >= 0);
        check(sd_bus_message_read(m, "s", &action) > 0 && streq(action, "org.qosd1.attach"));
        check(sd_bus_message_skip(m, "a{ss}") > 0);
        check(sd_bus_message_read(m, "u", &flags) > 0);

        polkit_calls++;
        polkit_interactive = flags & 1;
        if (polkit_mood == POLKIT_SILENT)
                return 1;
        return sd_bus_reply_method_return(m, "(bba{ss})", polkit_mood == POLKIT_YES,
                                          polkit_mood == POLKIT_CHALLENGE, 0);
}

static int method_cancel(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(m, NULL);
}

static const sd_bus_vtable polkit_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})", method_check_authorization,
                      SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("CancelCheckAuthorization", "s", "", method_cancel, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END
};

/* ---- daemon ------------------------------------------------------------------------------------------- */

bool daemon_start(unsigned seconds) {
        struct rlimit limit;

        if (!test_become_plain_root())
                return false;

        (void) alarm(seconds);
        check(getrlimit(RLIMIT_NOFILE, &limit) >= 0);
        limit.rlim_cur = MIN(limit.rlim_max, 4096U);
        check(setrlimit(RLIMIT_NOFILE, &limit) >= 0);
        check(unsetenv("RUNTIME_DIRECTORY") >= 0);

        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &system_side);
        for (unsigned i = 0; i < MANY_UNITS; i++) {
                (void) snprintf(many_names[i], sizeof(many_names[i]), "many-%u.service", i);
                units[6 + i] = (FakeUnit) { .id = many_names[i], .active_state = "inactive",
                                            .sub_state = "dead", .slice = "system.slice" };
        }
        fake_service_manager_start(&pid1, system_side, units);
        check(sd_bus_add_object_vtable(system_side, NULL, "/org/freedesktop/PolicyKit1/Authority",
                                       "org.freedesktop.PolicyKit1.Authority",
                                       polkit_vtable, NULL) >= 0);
        check(manager_set_bus(manager, daemon_side) >= 0);
        /* The limit of connections follows from that of descriptors at startup */
        check(setrlimit(RLIMIT_NOFILE, &(struct rlimit) { .rlim_cur = 1024, .rlim_max = limit.rlim_max }) >=
              0);
        check(varlink_server_new_peer(manager, &varlink_server) >= 0);
        check(setrlimit(RLIMIT_NOFILE, &limit) >= 0);
        return true;
}

void daemon_stop(void) {
        varlink_server_free(varlink_server);
        manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(system_side);
        sd_event_unref(event);
}
