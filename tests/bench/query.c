/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Queries qosd for a unit's snapshot repeatedly, over varlink or D-Bus, and prints the nanoseconds until
 * each reply, one per line. The varlink side is a bare socket: a client library's own time is not the
 * daemon's. */

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <systemd/sd-bus.h>

#define NSEC_PER_SEC UINT64_C(1000000000)
#define SOCKET "/run/qosd/org.qosd.QoS"

static uint64_t now(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

static void __attribute__((noreturn)) die(const char *what) {
        fprintf(stderr, "query: %s\n", what);
        exit(EXIT_FAILURE);
}

static void query_varlink(int fd, const char *unit) {
        static char reply[1 << 20];
        char call[512];
        size_t size, got = 0;
        int r;

        r = snprintf(call, sizeof(call),
                     "{\"method\":\"org.qosd.QoS.Get\",\"parameters\":{\"unit\":\"%s\"}}", unit);
        if (r < 0 || (size_t) r >= sizeof(call))
                die("unit name too long");
        size = (size_t) r + 1;

        if (send(fd, call, size, MSG_NOSIGNAL) != (ssize_t) size)
                die("cannot send");
        do {
                ssize_t n = recv(fd, reply + got, sizeof(reply) - got, 0);
                if (n <= 0)
                        die("no reply");
                got += (size_t) n;
        } while (reply[got - 1] != 0);
        if (strstr(reply, "\"error\""))
                die(reply);
}

static void query_dbus(sd_bus *bus, const char *unit) {
        sd_bus_error error = SD_BUS_ERROR_NULL;
        sd_bus_message *reply = NULL;

        if (sd_bus_call_method(bus, "org.qosd1", "/org/qosd1", "org.qosd1.Manager", "Snapshot",
                               &error, &reply, "st", unit, UINT64_C(0)) < 0)
                die(error.message ?: "cannot call");
        sd_bus_message_unref(reply);
}

int main(int argc, char *argv[]) {
        struct sockaddr_un sa = {
                .sun_family = AF_UNIX,
                .sun_path = SOCKET,
        };
        sd_bus *bus = NULL;
        bool varlink;
        unsigned n;
        int fd = -1;

        if (argc != 4) {
                fprintf(stderr, "usage: query varlink|dbus UNIT NUMBER\n");
                return 2;
        }
        varlink = strcmp(argv[1], "varlink") == 0;
        n = (unsigned) strtoul(argv[3], NULL, 10);

        if (varlink) {
                fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (fd < 0 || connect(fd, (struct sockaddr*) &sa, sizeof(sa)) < 0)
                        die("cannot connect to " SOCKET);
        } else if (sd_bus_default_system(&bus) < 0)
                die("cannot connect to the system bus");

        for (unsigned i = 0; i < n; i++) {
                uint64_t t = now();

                if (varlink)
                        query_varlink(fd, argv[2]);
                else
                        query_dbus(bus, argv[2]);
                printf("%" PRIu64 "\n", now() - t);
        }

        sd_bus_flush_close_unref(bus);
        if (fd >= 0)
                close(fd);
        return EXIT_SUCCESS;
}
