/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Requests and responses over UDP on the loopback interface. The server responds to each request, and keeps
 * the number of its responses in a file; the client has a request in flight on each of its sockets. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS 16
#define REQUEST 64
#define RESPONSE 200

static void __attribute__((noreturn)) die(const char *what) {
        fprintf(stderr, "datagrams: %s: %s\n", what, strerror(errno));
        exit(EXIT_FAILURE);
}

static void __attribute__((noreturn)) serve(const struct sockaddr_in *address, const char *path) {
        char buffer[RESPONSE] = {};
        volatile uint64_t *count;
        int s, f;

        f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (f < 0 || ftruncate(f, sizeof(*count)) < 0)
                die(path);
        count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
        if (count == MAP_FAILED)
                die(path);
        s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (s < 0 || bind(s, (const struct sockaddr*) address, sizeof(*address)) < 0)
                die("opening a socket");
        for (;;) {
                struct sockaddr_in client;
                socklen_t length = sizeof(client);

                if (recvfrom(s, buffer, sizeof(buffer), 0, (struct sockaddr*) &client, &length) < 0)
                        die("receiving");
                if (sendto(s, buffer, RESPONSE, 0, (struct sockaddr*) &client, length) < 0)
                        die("sending");
                (*count)++;
        }
}

static void __attribute__((noreturn)) request(const struct sockaddr_in *address) {
        char buffer[RESPONSE] = {};
        int e;

        e = epoll_create1(EPOLL_CLOEXEC);
        if (e < 0)
                die("epoll");
        for (unsigned i = 0; i < CLIENTS; i++) {
                struct epoll_event event = { .events = EPOLLIN };

                event.data.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
                if (event.data.fd < 0 ||
                    connect(event.data.fd, (const struct sockaddr*) address, sizeof(*address)) < 0 ||
                    epoll_ctl(e, EPOLL_CTL_ADD, event.data.fd, &event) < 0)
                        die("opening a socket");
                if (send(event.data.fd, buffer, REQUEST, 0) < 0)
                        die("sending");
        }
        for (;;) {
                struct epoll_event events[CLIENTS];
                int n;

                n = epoll_wait(e, events, CLIENTS, -1);
                if (n < 0)
                        die("epoll");
                for (int i = 0; i < n; i++)
                        if (recv(events[i].data.fd, buffer, sizeof(buffer), 0) < 0 ||
                            send(events[i].data.fd, buffer, REQUEST, 0) < 0)
                                die("a request");
        }
}

int main(int argc, char *argv[]) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

        if (argc >= 3)
                address.sin_port = htons((uint16_t) atoi(argv[2]));
        if (argc == 4 && strcmp(argv[1], "serve") == 0)
                serve(&address, argv[3]);
        if (argc == 3 && strcmp(argv[1], "request") == 0)
                request(&address);
        fprintf(stderr, "usage: datagrams serve PORT FILE | request PORT\n");
        return 2;
}
