/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Replies of PID 1 about services and their sockets, as service-manager.c reads them. */

#include <arpa/inet.h>

#include "hierarchy.h"
#include "manager.h"
#include "service-manager.h"
#include "unit-map.h"
#include "util-bus.h"

static void address(const char *s, int family, const char *host, unsigned port) {
        struct qos_address a, want = { .family = family, .port = port };

        check(inet_pton(family, host, want.address) == 1);
        check(listen_address_parse(s, &a) >= 0);
        check(memcmp(&a, &want, sizeof(a)) == 0);
}

static void test_addresses(void) {
        static const char *const others[] = {
                "", ":", ":80", "80", "/run/x", "/run/a:80", "@a:80", "@a", "vsock::80", "vsock:2:80",
                        "[::]", "[::]:",
                "[::]80", "[::", "[", "]:80", "[]:80", "[127.0.0.1]:80", "::1:80", "127.0.0.1",
                "127.0.0.1:", "127.0.0.1:0",
                "127.0.0.1:65536", "127.0.0.1:99999999999999999999", "127.0.0.1:+80", "127.0.0.1: 80",
                "127.0.0.1:80 ",
                "127.0.0.1:80x", "127.0.0.1.1:80", "kobject-uevent 1",
                "[1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa]:80",
        };
        struct qos_address a;

        address("127.0.0.1:80", AF_INET, "127.0.0.1", 80);
        address("0.0.0.0:65535", AF_INET, "0.0.0.0", 65535);
        address("[::]:1", AF_INET6, "::", 1);
        address("[fe80::1]:80%eth0", AF_INET6, "fe80::1", 80);
        address("[::ffff:1.2.3.4]:80", AF_INET6, "::ffff:1.2.3.4", 80);
        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                if (listen_address_parse(others[i], &a) != -EAFNOSUPPORT) {
                        fprintf(stderr, "'%s' was taken for an address\n", others[i]);
                        exit(EXIT_FAILURE);
                }
}

static void test_names(void) {
        check(!names_contain(NULL, "a"));
        check(!names_contain("", "a"));
        check(names_contain("a", "a"));
        check(!names_contain("aa a.b", "a"));
        check(names_contain("aa a", "a"));
        check(names_contain("x.a a b", "a"));
        check(!names_contain("b.service a.servicex", "a.service"));
}

typedef struct Response {
        bool done;
        int error;
        char *id, *groups, *instances, *triggers;
        size_t n_listen;
        struct qos_address listen[8];
        bool accept;
} Response;

static void on_loaded(int error, const char *message, const UnitInfo *info, void *userdata) {
        Response *a = userdata;

        a->done = true;
        a->error = error;
        if (error < 0)
                return;
        a->id = strdup(info->id);
        a->groups = strdup(strempty(info->socket_groups));
        a->instances = strdup(strempty(info->instances));
        a->triggers = strdup(strempty(info->triggers));
        a->accept = info->accept;
        a->n_listen = info->n_listen;
        check(info->n_listen <= ELEMENTSOF(a->listen));
        if (info->n_listen > 0)
                memcpy(a->listen, info->listen, info->n_listen * sizeof(struct qos_address));
}

static void response_done(Response *a) {
        free(a->id);
        free(a->groups);
        free(a->instances);
        free(a->triggers);
}

static void load(sd_event *event, Manager *m, const char *name, Response *ret) {
        *ret = (Response) {};
        check(service_manager_load(m->service_manager, name, on_loaded, ret, NULL) >= 0);
        test_wait(event, ret->done);
        check(ret->error == 0);
        check(streq(ret->id, name));
}

static void on_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        if (error >= 0)
                *(int*) userdata = 1;
        else if (e->code == QOS_ERROR_NO_CONTROL_GROUP)
                *(int*) userdata = strstr(e->message, "a.service") ? 2 : -2;
        else
                *(int*) userdata = -3;
}

static int attach(sd_event *event, Manager *m, const char *name) {
        int r = 0;

        check(manager_attach(m, &(AttachRequest) { .name = name, .type = HOLD_ADMINISTRATOR,
                                                   .duration_usec = USEC_INFINITY },
                             on_attached, &r, NULL) >= 0);
        test_wait(event, r != 0);
        return r;
}

int main(int argc, char **argv) {
        FakeUnit units[] = {
                /* Only its own name */
                { .id = "plain.service", .active_state = "active", .sub_state = "running",
                  .slice = "system.slice" },
                /* Its socket, another one, and one shared with another service */
                { .id = "a.service", .active_state = "inactive", .sub_state = "dead", .slice =
                  "system.slice",
                  .triggered_by = { "b.socket", "a.timer", "shared.socket" } },
                { .id = "a.socket", .active_state = "active", .sub_state = "listening",
                  .slice = "system.slice",
                  .triggers = { "a.service" },
                  .listen = { { "Stream", "127.0.0.1:80" }, { "Stream", "/run/a" },
                              { "Datagram", "127.0.0.1:53" }, { "Stream", "[::1]:80" } } },
                { .id = "b.socket", .active_state = "active", .sub_state = "listening", .slice = "b-c.slice",
                  .control_group = "/elsewhere/b.socket", .triggers = { "a.service" },
                  .listen = { { "Stream", "[::]:81" } } },
                { .id = "shared.socket", .active_state = "active", .sub_state = "listening",
                  .slice = "system.slice",
                  .triggers = { "other.service", "a.service" }, .listen = { { "Stream", "0.0.0.0:82" } } },
                /* A socket of the same name that activates another service, and one with Accept=yes */
                { .id = "c.service", .active_state = "active", .sub_state = "running", .slice =
                  "system.slice" },
                { .id = "c.socket", .active_state = "active", .sub_state = "listening",
                  .slice = "system.slice",
                  .triggers = { "cc.service" }, .listen = { { "Stream", "127.0.0.1:83" } } },
                { .id = "d.service", .active_state = "active", .sub_state = "running", .slice =
                  "system.slice" },
                { .id = "d.socket", .active_state = "inactive", .sub_state = "dead", .slice =
                  "system.slice", .accept = true,
                  .listen = { { "Stream", "127.0.0.1:84" } } },
                { .id = "d@0.service", .active_state = "inactive", .sub_state = "dead",
                  .slice = "system-d.slice" },
                { .id = "e@x.socket", .active_state = "inactive", .sub_state = "dead", .slice =
                  "system.slice", .accept = true },
                { .id = "e@0.service", .active_state = "inactive", .sub_state = "dead",
                  .slice = "of-it.slice" },
                /* Its instances cannot be listed */
                { .id = "f.socket", .active_state = "inactive", .sub_state = "dead", .slice =
                  "system.slice", .accept = true },
                {}
        };
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        Response many[300] = {};
        ServiceManagerCall *calls[ELEMENTSOF(many)];
        sd_bus *daemon_side, *client;
        FakeServiceManager pid1;
        Manager *m;
        Response a;

        test_addresses();
        test_names();

        (void) test_become_plain_root();
        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &m) >= 0);
        test_bus_pair(event, 0, &daemon_side, &client);
        fake_service_manager_start(&pid1, client, units);
        check(manager_set_bus(m, daemon_side) >= 0);

        load(event, m, "plain.service", &a);
        check(a.n_listen == 0 && isempty(a.groups) && isempty(a.instances) && isempty(a.triggers) &&
              !a.accept);
        response_done(&a);

        load(event, m, "a.service", &a);
        check(a.n_listen == 4);
        check(a.listen[0].port == 80 && a.listen[0].family == AF_INET);
        check(a.listen[1].port == 80 && a.listen[1].family == AF_INET6);
        check(a.listen[2].port == 81);
        check(a.listen[3].port == 82);
        /* The control group of a socket that activates two services belongs to neither */
        check(streq(a.groups, "/system.slice/a.socket /elsewhere/b.socket"));
        response_done(&a);

        load(event, m, "c.service", &a);
        check(a.n_listen == 0 && isempty(a.groups));
        response_done(&a);
        load(event, m, "d.service", &a);
        check(a.n_listen == 0 && isempty(a.groups));
        response_done(&a);

        load(event, m, "d.socket", &a);
        check(a.accept && a.n_listen == 1 && a.listen[0].port == 84);
        check(streq(a.instances, "/system.slice/system-d.slice/d@"));
        response_done(&a);
        load(event, m, "e@x.socket", &a);
        check(streq(a.instances, "/of.slice/of-it.slice/e@"));
        response_done(&a);
        load(event, m, "f.socket", &a);
        check(a.accept && isempty(a.instances));
        response_done(&a);

        /* More than the limit of concurrent queries; one is cancelled while it waits */
        for (size_t i = 0; i < ELEMENTSOF(many); i++)
                check(service_manager_load(m->service_manager, i % 2 ? "a.service" : "plain.service",
                                           on_loaded, many + i, calls + i) >= 0);
        service_manager_call_free(calls[150]);
        test_wait(event, many[ELEMENTSOF(many) - 1].done);
        for (size_t i = 0; i < ELEMENTSOF(many); i++) {
                check(many[i].done == (i != 150) && many[i].error == 0);
                check(i == 150 || streq(many[i].id, i % 2 ? "a.service" : "plain.service"));
                response_done(many + i);
        }

        /* The socket unit serves only if it stands for its instances */
        check(attach(event, m, "a.socket") == 2);
        check(attach(event, m, "d.socket") == 1);
        check(attach(event, m, "d@0.service") == 1);
        check(attach(event, m, "a.service") == 1);
        check(m->units.n == 3);
        /* An instance belongs to its socket, whose control group is elsewhere */
        check(unit_find_ancestor(manager_get_unit(m, "d@0.service", NULL)) == manager_get_unit(m, "d.socket",
                        NULL));
        check(!unit_find_ancestor(manager_get_unit(m, "d.socket", NULL)));
        check(!unit_find_ancestor(manager_get_unit(m, "a.service", NULL)));

        /* Shutdown during a query to PID 1 */
        fake_service_manager_changed(&pid1, "a.service");
        test_wait(event, manager_get_unit(m, "a.service", NULL)->refresh);
        manager_free(m);

        sd_bus_flush_close_unref(client);
        sd_bus_unref(daemon_side);
        return EXIT_SUCCESS;
}
