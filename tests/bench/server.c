/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A server with known times: it reads a request of a fixed size, sleeps for exactly the given time, and
 * sends a response of a fixed size. It keeps the time at which each request was read whole, so that
 * together with a capture every phase of the request is known. */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC UINT64_C(1000000000)
#define RECORDS_MAX (1U << 20)
#define PARTS_MAX 16

typedef struct Record {
        uint64_t read; /* CLOCK_REALTIME, when the last byte of the request had been read */
        uint32_t port; /* of the client */
        uint32_t index; /* of the request on its connection */
} Record;

typedef struct Connection {
        int fd;
        uint16_t port;
        uint32_t index;
        size_t got;
} Connection;

static bool arg_threads = false;
static struct in_addr arg_address;
static uint16_t arg_port = 0;
static size_t arg_request = 64, arg_answer = 64;
static uint64_t arg_delay = 0, arg_slow_delay = 0, arg_gap = 0;
static unsigned arg_slow_percent = 0, arg_parts = 1;
static const char *arg_output = NULL;

static char *answer = NULL;
static Record *records = NULL;
static uint32_t n_records = 0;

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        fprintf(stderr, "server: ");
        vfprintf(stderr, format, ap);
        fprintf(stderr, "\n");
        va_end(ap);
        _exit(EXIT_FAILURE);
}

static void sleep_exactly(uint64_t nsec) {
        struct timespec ts;
        uint64_t t;

        if (nsec == 0)
                return;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        t = (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec + nsec;
        ts.tv_sec = (time_t) (t / NSEC_PER_SEC);
        ts.tv_nsec = (long) (t % NSEC_PER_SEC);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
                ;
}

/* Every n-th request of a fixed sequence is slow, whatever thread it comes to */
static uint64_t delay_of(uint32_t i) {
        uint32_t h = i * UINT32_C(2654435761);

        return (h >> 16) % 100 < arg_slow_percent ? arg_slow_delay : arg_delay;
}

/* Reads once, and responds if the request is complete; false when the client has closed. */
static bool connection_serve(Connection *c) {
        char buffer[65536];
        struct timespec ts;
        size_t done = 0;
        ssize_t n;
        uint32_t i;

        n = recv(c->fd, buffer, arg_request - c->got < sizeof(buffer) ? arg_request - c->got :
                 sizeof(buffer), 0);
        if (n <= 0)
                return false;
        c->got += (size_t) n;
        if (c->got < arg_request)
                return true;

        clock_gettime(CLOCK_REALTIME, &ts);
        i = __atomic_fetch_add(&n_records, 1, __ATOMIC_RELAXED);
        if (i >= RECORDS_MAX)
                die("more requests than there is room for");
        records[i] = (Record) {
                .read = (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec,
                .port = c->port,
                .index = c->index++,
        };
        c->got = 0;

        sleep_exactly(delay_of(i));
        for (unsigned part = 1; part <= arg_parts; part++) {
                size_t end = arg_answer * part / arg_parts;

                if (part > 1)
                        sleep_exactly(arg_gap);
                while (done < end) {
                        n = send(c->fd, answer + done, end - done, MSG_NOSIGNAL);
                        if (n < 0)
                                return false;
                        done += (size_t) n;
                }
        }
        return true;
}

static void connection_end(Connection *c) {
        close(c->fd);
        free(c);
}

static void* connection_run(void *userdata) {
        Connection *c = userdata;

        prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
        while (connection_serve(c))
                ;
        connection_end(c);
        return NULL;
}

static Connection* connection_accept(int listener) {
        struct sockaddr_in peer;
        socklen_t length = sizeof(peer);
        Connection *c;
        int yes = 1;

        c = calloc(1, sizeof(*c));
        if (!c)
                die("out of memory");
        c->fd = accept4(listener, (struct sockaddr*) &peer, &length, SOCK_CLOEXEC);
        if (c->fd < 0)
                die("accept: %m");
        if (setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) < 0)
                die("TCP_NODELAY: %m");
        c->port = ntohs(peer.sin_port);
        return c;
}

static int epoll_add(int epoll, int fd, void *ptr) {
        struct epoll_event event = {
                .events = EPOLLIN,
                .data.ptr = ptr,
        };

        return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* One thread for everything (or, with threads, for all but the connections): what comes meanwhile waits */
static void run(int listener, int stop, bool threads) {
        int epoll;

        epoll = epoll_create1(EPOLL_CLOEXEC);
        if (epoll < 0 || epoll_add(epoll, listener, &listener) < 0 ||
            epoll_add(epoll, stop, &stop) < 0)
                die("epoll: %m");
        for (;;) {
                struct epoll_event event;
                Connection *c;
                pthread_t thread;

                if (epoll_wait(epoll, &event, 1, -1) < 0)
                        die("epoll_wait: %m");
                if (event.data.ptr == &stop)
                        return;
                if (event.data.ptr == &listener) {
                        c = connection_accept(listener);
                        if (threads) {
                                if (pthread_create(&thread, NULL, connection_run, c) != 0)
                                        die("cannot make a thread");
                                pthread_detach(thread);
                        } else if (epoll_add(epoll, c->fd, c) < 0)
                                die("epoll: %m");
                        continue;
                }
                c = event.data.ptr;
                if (!connection_serve(c))
                        connection_end(c);
        }
}

static void parse(int argc, char *argv[]) {
        static const struct option options[] = {
                { "address",      required_argument, NULL, 'A' },
                { "port",         required_argument, NULL, 'p' },
                { "threads",      no_argument,       NULL, 't' }, /* one per connection instead of one for
                                                                   * all */
                { "request",      required_argument, NULL, 'r' }, /* bytes */
                { "answer",       required_argument, NULL, 'a' }, /* bytes */
                { "delay",        required_argument, NULL, 'd' }, /* ns */
                { "slow-delay",   required_argument, NULL, 'D' }, /* ns */
                { "slow-percent", required_argument, NULL, 'P' }, /* of the requests take that */
                { "parts",        required_argument, NULL, 's' }, /* that a response is sent in */
                { "gap",          required_argument, NULL, 'g' }, /* between these, ns */
                { "output",       required_argument, NULL, 'o' }, /* the records, as they are in memory */
                {}
        };
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 'A':
                        if (inet_pton(AF_INET, optarg, &arg_address) != 1)
                                die("\"%s\" is not an address", optarg);
                        break;
                case 'p': arg_port = (uint16_t) strtoul(optarg, NULL, 10); break;
                case 't': arg_threads = true; break;
                case 'r': arg_request = strtoul(optarg, NULL, 10); break;
                case 'a': arg_answer = strtoul(optarg, NULL, 10); break;
                case 'd': arg_delay = strtoull(optarg, NULL, 10); break;
                case 'D': arg_slow_delay = strtoull(optarg, NULL, 10); break;
                case 'P': arg_slow_percent = (unsigned) strtoul(optarg, NULL, 10); break;
                case 's': arg_parts = (unsigned) strtoul(optarg, NULL, 10); break;
                case 'g': arg_gap = strtoull(optarg, NULL, 10); break;
                case 'o': arg_output = optarg; break;
                default: exit(2);
                }
        if (optind != argc || arg_request == 0 || arg_answer == 0 || arg_parts < 1 || arg_parts > PARTS_MAX)
                exit(2);
}

int main(int argc, char *argv[]) {
        struct sockaddr_in sa;
        int listener, stop, yes = 1;
        sigset_t signals;
        FILE *f;

        parse(argc, argv);

        /* Before there are threads, so that none of them takes it */
        sigemptyset(&signals);
        sigaddset(&signals, SIGTERM);
        sigprocmask(SIG_BLOCK, &signals, NULL);
        stop = signalfd(-1, &signals, SFD_CLOEXEC);
        if (stop < 0)
                die("signalfd: %m");

        prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
        answer = calloc(1, arg_answer);
        records = calloc(RECORDS_MAX, sizeof(*records));
        if (!answer || !records)
                die("out of memory");

        sa = (struct sockaddr_in) {
                .sin_family = AF_INET,
                .sin_port = htons(arg_port),
                .sin_addr = arg_address,
        };
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
            bind(listener, (struct sockaddr*) &sa, sizeof(sa)) < 0 || listen(listener, 512) < 0)
                die("cannot listen on port %u: %m", arg_port);

        run(listener, stop, arg_threads);

        f = fopen(arg_output, "we");
        if (!f || fwrite(records, sizeof(*records), n_records, f) != n_records || fclose(f) != 0)
                die("cannot write %s: %m", arg_output);
        return EXIT_SUCCESS;
}
