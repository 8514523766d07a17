/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "util-bus.h"

#define PID1_NAME "org.freedesktop.systemd1"
#define PID1_PATH "/org/freedesktop/systemd1"

static bool other_user = false;
void (*test_on_idle)(void);

static bool write_file(const char *path, const char *s) {
        _cleanup_close_ int fd = open(path, O_WRONLY|O_CLOEXEC);

        return fd >= 0 && write(fd, s, strlen(s)) == (ssize_t) strlen(s);
}

bool test_become_plain_root(void) {
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = {};
        char map[64];

        if (geteuid() == 0)
                /* Another user's connection must still be possible */
                data[0].effective = data[0].permitted = (1U << CAP_SETUID);
        else {
                (void) snprintf(map, sizeof(map), "0 %u 1\n", (unsigned) geteuid());
                if (unshare(CLONE_NEWUSER) < 0 || !write_file("/proc/self/uid_map", map))
                        return false;
        }

        if (syscall(SYS_capset, &header, data) < 0)
                return false;
        other_user = data[0].effective != 0;
        return true;
}

bool test_has_other_user(void) {
        return other_user;
}

void test_bus_pair(sd_event *event, uid_t uid, sd_bus **ret_a, sd_bus **ret_b) {
        sd_id128_t id;
        int fds[2];

        check(sd_id128_randomize(&id) >= 0);

        /* The kernel records the user that makes them for both */
        check(uid == 0 || seteuid(uid) >= 0);
        check(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fds) >= 0);
        check(uid == 0 || seteuid(0) >= 0);

        check(sd_bus_new(ret_a) >= 0);
        check(sd_bus_set_fd(*ret_a, fds[0], fds[0]) >= 0);
        check(sd_bus_set_server(*ret_a, true, id) >= 0);
        check(sd_bus_start(*ret_a) >= 0);
        check(sd_bus_attach_event(*ret_a, event, 0) >= 0);

        check(sd_bus_new(ret_b) >= 0);
        check(sd_bus_set_fd(*ret_b, fds[1], fds[1]) >= 0);
        check(sd_bus_start(*ret_b) >= 0);
        check(sd_bus_attach_event(*ret_b, event, 0) >= 0);

        /* A message that arrives together with the end of the handshake would only be looked at with the
         * next one */
        test_wait(event, sd_bus_is_ready(*ret_a) > 0 && sd_bus_is_ready(*ret_b) > 0);
}

void test_run(sd_event *event) {
        unsigned n = 0;
        int r;

        while ((r = sd_event_run(event, test_on_idle ? 0 : 10 * USEC_PER_SEC)) == 0) {
                check(test_on_idle && n++ < 10000);
                test_on_idle();
        }
        check(r > 0);
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        *(sd_bus_message**) userdata = sd_bus_message_ref(m);
        return 0;
}

sd_bus_message* test_call_message(sd_bus *bus, sd_bus_message *m, sd_bus_error *ret_error) {
        sd_bus_message *reply = NULL;

        check(sd_bus_call_async(bus, NULL, m, on_reply, &reply, 0) >= 0);
        test_wait(sd_bus_get_event(bus), reply);

        if (!sd_bus_message_is_method_error(reply, NULL))
                return reply;

        if (!ret_error) {
                fprintf(stderr, "%s failed: %s\n", sd_bus_message_get_member(m),
                        sd_bus_message_get_error(reply)->message);
                exit(EXIT_FAILURE);
        }
        sd_bus_error_free(ret_error);
        /* returns the error itself */
        check(sd_bus_error_copy(ret_error, sd_bus_message_get_error(reply)) < 0);
        sd_bus_message_unref(reply);
        return NULL;
}

sd_bus_message* test_call(sd_bus *bus, const char *path, const char *interface, const char *member,
                          sd_bus_error *ret_error, const char *types, ...) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        va_list ap;

        check(sd_bus_message_new_method_call(bus, &m, "org.qosd1", path, interface, member) >= 0);
        if (types) {
                va_start(ap, types);
                check(sd_bus_message_appendv(m, types, ap) >= 0);
                va_end(ap);
        }
        return test_call_message(bus, m, ret_error);
}

/* ---- a service manager -------------------------------------------------------------------------------- */

static FakeUnit* find_by_name(FakeServiceManager *f, const char *name) {
        for (FakeUnit *u = f->units; u->id; u++)
                if (streq(u->id, name) || (u->alias && streq(u->alias, name)))
                        return u;
        return NULL;
}

static int method_load_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        FakeServiceManager *f = ASSERT_PTR(userdata);
        _cleanup_free_ char *path = NULL;
        const char *name;
        FakeUnit *u;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        u = find_by_name(f, name);
        r = sd_bus_path_encode(PID1_PATH "/unit", u ? u->id : name, &path);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, "o", path);
}

static int method_list_units(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return sd_bus_reply_method_return(m, "a(ssssssouso)", 0);
}

static int method_subscribe(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        FakeServiceManager *f = ASSERT_PTR(userdata);

        f->subscribed = streq(sd_bus_message_get_member(m), "Subscribe");
        return sd_bus_reply_method_return(m, NULL);
}

static int names_append(sd_bus_message *reply, const char *const *names, size_t n) {
        check(sd_bus_message_open_container(reply, 'a', "s") >= 0);
        for (size_t i = 0; i < n && names[i]; i++)
                check(sd_bus_message_append(reply, "s", names[i]) >= 0);
        return sd_bus_message_close_container(reply);
}

static int property_get(sd_bus *bus, const char *path, const char *interface, const char *property,
                        sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        FakeServiceManager *f = ASSERT_PTR(userdata);
        _cleanup_free_ char *name = NULL;
        FakeUnit missing = {}, *u;

        check(sd_bus_path_decode(path, PID1_PATH "/unit", &name) > 0);
        u = find_by_name(f, name);
        if (!u) {
                missing = (FakeUnit) { .id = name, .load_state = "not-found", .active_state = "inactive",
                                       .sub_state = "dead" };
                u = &missing;
        }

        if (streq(property, "Id"))
                return sd_bus_message_append(reply, "s", u->id);
        if (streq(property, "Names"))
                return u->alias ? sd_bus_message_append(reply, "as", 2, u->id, u->alias) :
                       sd_bus_message_append(reply, "as", 1, u->id);
        if (streq(property, "LoadState"))
                return sd_bus_message_append(reply, "s", u->load_state ?: "loaded");
        if (streq(property, "ActiveState"))
                return sd_bus_message_append(reply, "s", u->active_state);
        if (streq(property, "SubState"))
                return sd_bus_message_append(reply, "s", u->sub_state);
        if (streq(property, "ControlGroup"))
                return sd_bus_message_append(reply, "s", strempty(u->control_group));
        if (streq(property, "Slice"))
                return sd_bus_message_append(reply, "s", strempty(u->slice));
        if (streq(property, "Triggers"))
                return names_append(reply, u->triggers, ELEMENTSOF(u->triggers));
        if (streq(property, "TriggeredBy"))
                return names_append(reply, u->triggered_by, ELEMENTSOF(u->triggered_by));
        if (streq(property, "Accept"))
                return sd_bus_message_append(reply, "b", u->accept);
        if (streq(property, "Listen")) {
                check(sd_bus_message_open_container(reply, 'a', "(ss)") >= 0);
                for (size_t i = 0; i < ELEMENTSOF(u->listen) && u->listen[i][0]; i++)
                        check(sd_bus_message_append(reply, "(ss)", u->listen[i][0], u->listen[i][1]) >= 0);
                return sd_bus_message_close_container(reply);
        }
        return sd_bus_message_append_array(reply, 'y', NULL, 0); /* InvocationID */
}

static const sd_bus_vtable manager_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("LoadUnit", "s", "o", method_load_unit, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("ListUnitsByPatterns", "asas", "a(ssssssouso)", method_list_units,
                      SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Subscribe", NULL, NULL, method_subscribe, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_METHOD("Unsubscribe", NULL, NULL, method_subscribe, SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END
};

static const sd_bus_vtable unit_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("Id", "s", property_get, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("Names", "as", property_get, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("LoadState", "s", property_get, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("ActiveState", "s", property_get, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("SubState", "s", property_get, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("InvocationID", "ay", property_get, 0, SD_BUS_VTABLE_PROPERTY_EMITS_CHANGE),
        SD_BUS_PROPERTY("Triggers", "as", property_get, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_PROPERTY("TriggeredBy", "as", property_get, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_VTABLE_END
};

static const sd_bus_vtable service_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("ControlGroup", "s", property_get, 0, 0),
        SD_BUS_PROPERTY("Slice", "s", property_get, 0, 0),
        SD_BUS_VTABLE_END
};

static const sd_bus_vtable socket_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_PROPERTY("ControlGroup", "s", property_get, 0, 0),
        SD_BUS_PROPERTY("Slice", "s", property_get, 0, 0),
        SD_BUS_PROPERTY("Listen", "a(ss)", property_get, 0, 0),
        SD_BUS_PROPERTY("Accept", "b", property_get, 0, 0),
        SD_BUS_VTABLE_END
};

static int find_service(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret,
                        sd_bus_error *error) {
        FakeServiceManager *f = ASSERT_PTR(userdata);
        _cleanup_free_ char *name = NULL;
        FakeUnit *u;

        if (sd_bus_path_decode(path, PID1_PATH "/unit", &name) <= 0)
                return 0;
        u = find_by_name(f, name);
        *ret = f;
        return u && u->slice && !endswith(u->id, ".socket");
}

static int find_socket(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret,
                       sd_bus_error *error) {
        FakeServiceManager *f = ASSERT_PTR(userdata);
        _cleanup_free_ char *name = NULL;

        *ret = f;
        return sd_bus_path_decode(path, PID1_PATH "/unit", &name) > 0 && find_by_name(f, name) &&
               endswith(name, ".socket");
}

static int find_any(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret,
                    sd_bus_error *error) {
        *ret = userdata;
        return 1;
}

void fake_service_manager_start(FakeServiceManager *f, sd_bus *bus, FakeUnit *units) {
        *f = (FakeServiceManager) {
                .bus = bus,
                .units = units,
        };
        check(sd_bus_add_object_vtable(bus, NULL, PID1_PATH, PID1_NAME ".Manager", manager_vtable, f) >= 0);
        check(sd_bus_add_fallback_vtable(bus, NULL, PID1_PATH "/unit", PID1_NAME ".Unit", unit_vtable,
                                         find_any, f) >= 0);
        check(sd_bus_add_fallback_vtable(bus, NULL, PID1_PATH "/unit", PID1_NAME ".Service", service_vtable,
                                         find_service, f) >= 0);
        check(sd_bus_add_fallback_vtable(bus, NULL, PID1_PATH "/unit", PID1_NAME ".Socket", socket_vtable,
                                         find_socket, f) >= 0);
}

void fake_service_manager_changed(FakeServiceManager *f, const char *id) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        _cleanup_free_ char *path = NULL;

        check(sd_bus_path_encode(PID1_PATH "/unit", id, &path) >= 0);
        check(sd_bus_message_new_signal(f->bus, &m, path, "org.freedesktop.DBus.Properties",
                                        "PropertiesChanged") >= 0);
        check(sd_bus_message_append(m, "sa{sv}as", PID1_NAME ".Unit", 0, 1, "ActiveState") >= 0);
        /* A broker would do that */
        if (sd_bus_is_bus_client(f->bus) == 0)
                check(sd_bus_message_set_sender(m, PID1_NAME) >= 0);
        check(sd_bus_send(f->bus, m, NULL) >= 0);
}
