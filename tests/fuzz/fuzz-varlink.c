/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Any input of a client: the daemon continues, and keeps none of it. Ends of lines become ends of messages,
 * so that the corpus is text. No programs are loaded. */

#include <sys/socket.h>

#include "check.h"
#include "fuzz.h"
#include "log.h"
#include "manager.h"
#include "util-bus.h"
#include "varlink-server.h"

/* Limit of iterations of one input: more would be an endless loop. */
#define STEPS_MAX 100000U

static FakeUnit units[] = {
        { .id = "a.service", .active_state = "active", .sub_state = "running", .control_group =
          "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "inactive", .sub_state = "dead", .slice = "system.slice" },
        {}
};

static sd_event *event;
static Manager *manager;
static VarlinkServer *varlink_server;
static sd_bus *daemon_side, *system_side;
static FakeServiceManager pid1;

static void clean_up(void) {
        varlink_server_free(varlink_server);
        manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(system_side);
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
        test_bus_pair(event, 0, &daemon_side, &system_side);
        fake_service_manager_start(&pid1, system_side, units);
        check(manager_set_bus(manager, daemon_side) >= 0);
        check(varlink_server_new_peer(manager, &varlink_server) >= 0);
        check(atexit(clean_up) == 0);
        return true;
}

/* Until only timers are left. */
static void settle(int fd) {
        char buffer[4096];

        for (unsigned i = 0; i < STEPS_MAX; i++) {
                int r = sd_event_run(event, 0);

                check(r >= 0);
                if (r == 0 && (fd < 0 || recv(fd, buffer, sizeof(buffer), 0) <= 0))
                        return;
        }
        check(false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        _cleanup_free_ char *text = NULL;
        size_t sent = 0;
        int fds[2];

        if (!set_up())
                exit(77);

        text = new0(char, size);
        check(text);
        for (size_t i = 0; i < size; i++)
                text[i] = data[i] == '\n' ? 0 : data[i];

        check(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fds) >= 0);
        check(varlink_server_add_connection(varlink_server, fds[0]) >= 0);

        while (sent < size) {
                ssize_t n = send(fds[1], text + sent, size - sent, MSG_NOSIGNAL);

                if (n < 0)
                        break; /* disconnected, or not readable because of a stream */
                sent += n;
                settle(fds[1]);
        }
        check(shutdown(fds[1], SHUT_WR) >= 0 || errno == ENOTCONN);
        settle(fds[1]);
        (void) close(fds[1]);
        settle(-EBADF);

        check(manager_count_leases(manager, 0) == 0);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (manager->units.slots[i])
                        check(manager_detach(manager, manager->units.slots[i]->name, NULL, 0, NULL) >= 0);
        check(manager->units.n == 0);
        return 0;
}
