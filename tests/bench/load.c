/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Puts load on a server and keeps the times of each request: when it was passed to the kernel, and when
 * the first and the last byte of the response were read. One thread per connection with blocking calls,
 * so that nothing but the kernel is between the clock and the socket. With --rate, arrivals are a Poisson
 * process that does not wait for responses as long as a connection is free; without, each connection has
 * its next request at once. */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC UINT64_C(1000000000)
#define CONNECTIONS_MAX 256
#define PARTS_MAX 16
#define HEAD_MAX 4096

/* Of HTTP/2 */
#define FRAME_HEADER 9
#define FRAME_DATA 0
#define FRAME_HEADERS 1
#define FRAME_RST_STREAM 3
#define FRAME_SETTINGS 4
#define FRAME_PING 6
#define FRAME_GOAWAY 7
#define FRAME_WINDOW_UPDATE 8
#define FLAG_END_STREAM 0x1
#define FLAG_ACK 0x1
#define FLAG_END_HEADERS 0x4

typedef enum Protocol {
        PROTOCOL_HTTP,
        PROTOCOL_REDIS,
        PROTOCOL_RAW, /* requests and responses of fixed sizes */
        PROTOCOL_GRPC,
} Protocol;

typedef struct Sample {
        uint64_t sent, first, last; /* CLOCK_REALTIME, as captures have it */
} Sample;

typedef struct Connection {
        int fd;
        unsigned asked;
        /* Of HTTP/2: what was read and is not understood yet. Servers with larger frames are not what this
         * is for. */
        uint8_t frames[65536];
        size_t n_frames;
} Connection;

static Protocol arg_protocol = PROTOCOL_HTTP;
static struct in_addr arg_address;
static uint16_t arg_port = 0;
static unsigned arg_connections = 1, arg_per_connection = 0, arg_parts = 1;
static uint64_t arg_requests = 1, arg_gap = 0;
static double arg_rate = 0;
static size_t arg_answer = 0;
static const char *arg_output = NULL;

static char *request = NULL;
static size_t request_size = 0;
static uint8_t grpc_headers[256];
static size_t grpc_headers_size = 0;
static Sample *samples = NULL;

static pthread_mutex_t schedule_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t schedule_next = 0, schedule_index = 0;

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        fprintf(stderr, "load: ");
        vfprintf(stderr, format, ap);
        fprintf(stderr, "\n");
        va_end(ap);
        /* Other threads run: leave without their cleanup */
        _exit(EXIT_FAILURE);
}

static uint64_t now(clockid_t clock) {
        struct timespec ts;

        clock_gettime(clock, &ts);
        return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

static void sleep_until(uint64_t t) {
        struct timespec ts = {
                .tv_sec = (time_t) (t / NSEC_PER_SEC),
                .tv_nsec = (long) (t % NSEC_PER_SEC),
        };

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
                ;
}

/* Says which request is to be sent next, and when; false when all were taken. */
static bool schedule_take(uint64_t *ret_index, uint64_t *ret_time) {
        static unsigned short seed[3] = { 1, 2, 3 };
        bool more;

        pthread_mutex_lock(&schedule_lock);
        more = schedule_index < arg_requests;
        if (more) {
                *ret_index = schedule_index++;
                *ret_time = schedule_next;
                if (arg_rate > 0)
                        schedule_next += (uint64_t) (-log(1 - erand48(seed)) / arg_rate * NSEC_PER_SEC);
        }
        pthread_mutex_unlock(&schedule_lock);
        return more;
}

static int connect_server(void) {
        struct sockaddr_in sa = {
                .sin_family = AF_INET,
                .sin_port = htons(arg_port),
                .sin_addr = arg_address,
        };
        int fd, yes = 1;

        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                die("socket: %m");
        if (connect(fd, (struct sockaddr*) &sa, sizeof(sa)) < 0)
                die("connect to port %u: %m", arg_port);
        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) < 0)
                die("TCP_NODELAY: %m");
        return fd;
}

static void send_all(int fd, const void *data, size_t size) {
        const char *p = data;

        while (size > 0) {
                ssize_t n = send(fd, p, size, MSG_NOSIGNAL);
                if (n < 0)
                        die("send: %m");
                p += n;
                size -= (size_t) n;
        }
}

static void send_request(int fd) {
        size_t done = 0;

        for (unsigned part = 1; part <= arg_parts; part++) {
                size_t end = request_size * part / arg_parts;

                if (part > 1)
                        sleep_until(now(CLOCK_MONOTONIC) + arg_gap);
                send_all(fd, request + done, end - done);
                done = end;
        }
}

/* The size of the whole response, from its beginning; 0 as long as it is not known. */
static size_t answer_size(const char *head) {
        const char *end, *p;

        switch (arg_protocol) {

        case PROTOCOL_HTTP:
                end = strstr(head, "\r\n\r\n");
                p = strstr(head, "Content-Length: ");
                if (!end)
                        return 0;
                if (strncmp(head, "HTTP/1.1 200 ", 13) != 0 || !p || p > end)
                        die("response not understood: %s", head);
                return (size_t) (end + 4 - head) + strtoul(p + 16, NULL, 10);

        case PROTOCOL_REDIS:
                end = strstr(head, "\r\n");
                if (!end)
                        return 0;
                if (head[0] != '$' || head[1] == '-')
                        die("response not understood: %s", head);
                return (size_t) (end + 2 - head) + strtoul(head + 1, NULL, 10) + 2;

        case PROTOCOL_RAW:
                return arg_answer;

        default:
                abort();
        }
}

static void take_answer(int fd, Sample *s) {
        char head[HEAD_MAX], buffer[65536];
        size_t got = 0, size = 0;

        do {
                bool in_head = got < sizeof(head) - 1;
                ssize_t n;

                n = in_head ? recv(fd, head + got, sizeof(head) - 1 - got, 0) :
                    recv(fd, buffer, sizeof(buffer), 0);
                if (n < 0)
                        die("recv: %m");
                if (n == 0)
                        die("connection closed by the server, %zu of %zu bytes into a response", got, size);
                s->last = now(CLOCK_REALTIME);
                if (got == 0)
                        s->first = s->last;
                got += (size_t) n;
                if (in_head)
                        head[got] = 0;
                if (size == 0)
                        size = answer_size(head);
        } while (size == 0 || got < size);
        if (got > size)
                die("%zu bytes more than the response has", got - size);
}

static void append_frame(uint8_t *buffer, size_t *size, unsigned type, unsigned flags, uint32_t stream,
                         const void *payload, size_t length) {
        uint8_t *p = buffer + *size;

        *size += FRAME_HEADER + length;
        if (*size > HEAD_MAX)
                die("a request of more than %u bytes", HEAD_MAX);
        memcpy(p, (const uint8_t[]) { (uint8_t) (length >> 16), (uint8_t) (length >> 8), (uint8_t) length,
                                      (uint8_t) type, (uint8_t) flags, (uint8_t) (stream >> 24),
                                      (uint8_t) (stream >> 16), (uint8_t) (stream >> 8), (uint8_t) stream },
                                      FRAME_HEADER);
        memcpy(p + FRAME_HEADER, payload, length);
}

/* A call on a stream of its own. The first one brings what begins a connection. */
static void send_call(Connection *c) {
        static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        uint8_t buffer[HEAD_MAX];
        size_t size = 0;

        if (c->asked == 1) {
                size = sizeof(preface) - 1;
                memcpy(buffer, preface, size);
                append_frame(buffer, &size, FRAME_SETTINGS, 0, 0, NULL, 0);
                /* As much as there can be: responses must not wait for more */
                append_frame(buffer, &size, FRAME_WINDOW_UPDATE, 0, 0, "\x7f\xff\x00\x00", 4);
        }
        append_frame(buffer, &size, FRAME_HEADERS, FLAG_END_HEADERS, 2 * c->asked - 1, grpc_headers,
                     grpc_headers_size);
        append_frame(buffer, &size, FRAME_DATA, FLAG_END_STREAM, 2 * c->asked - 1, request, request_size);
        send_all(c->fd, buffer, size);
}

static void take_call(Connection *c, Sample *s) {
        bool data = false, end = false;

        while (!end) {
                size_t done = 0;
                ssize_t n;

                n = recv(c->fd, c->frames + c->n_frames, sizeof(c->frames) - c->n_frames, 0);
                if (n <= 0)
                        die(n < 0 ? "recv: %m" :
                            "connection closed by the server, or a frame larger than there is room for");
                s->last = now(CLOCK_REALTIME);
                c->n_frames += (size_t) n;

                while (c->n_frames - done >= FRAME_HEADER) {
                        const uint8_t *f = c->frames + done;
                        size_t length = (size_t) f[0] << 16 | (size_t) f[1] << 8 | f[2];
                        uint32_t stream = (uint32_t) (f[5] & 0x7f) << 24 | (uint32_t) f[6] << 16 |
                                          (uint32_t) f[7] << 8 | f[8];
                        uint8_t reply[HEAD_MAX];
                        size_t size = 0;

                        if (c->n_frames - done < FRAME_HEADER + length)
                                break;
                        done += FRAME_HEADER + length;

                        if (stream == 2 * c->asked - 1) {
                                if (s->first == 0)
                                        s->first = s->last;
                                /* A call that failed has none */
                                data = data || f[3] == FRAME_DATA;
                                end = f[4] & FLAG_END_STREAM;
                                if (f[3] == FRAME_RST_STREAM || (end && !data))
                                        die("a call failed");
                        } else if (f[3] == FRAME_SETTINGS && !(f[4] & FLAG_ACK))
                                append_frame(reply, &size, FRAME_SETTINGS, FLAG_ACK, 0, NULL, 0);
                        else if (f[3] == FRAME_PING && !(f[4] & FLAG_ACK))
                                append_frame(reply, &size, FRAME_PING, FLAG_ACK, 0, f + FRAME_HEADER,
                                             length);
                        else if (f[3] == FRAME_GOAWAY)
                                die("the server says goodbye");
                        send_all(c->fd, reply, size);
                }
                c->n_frames -= done;
                memmove(c->frames, c->frames + done, c->n_frames);
        }
}

static void* connection_run(void *userdata) {
        Connection *c = userdata;
        uint64_t index, when;

        /* Else each wake-up is late by 50 us */
        prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);

        while (schedule_take(&index, &when)) {
                sleep_until(when);

                if (c->fd < 0)
                        c->fd = connect_server();

                c->asked++;
                samples[index].sent = now(CLOCK_REALTIME);
                if (arg_protocol == PROTOCOL_GRPC) {
                        send_call(c);
                        take_call(c, samples + index);
                } else {
                        send_request(c->fd);
                        take_answer(c->fd, samples + index);
                }

                if (c->asked == arg_per_connection) {
                        close(c->fd);
                        c->fd = -1;
                        c->asked = 0;
                        c->n_frames = 0;
                }
        }

        if (c->fd >= 0)
                close(c->fd);
        return NULL;
}

/* The headers of a call are the same each time, and in no table. Its message requests success. */
static void make_call(const char *method) {
        static char message[] = "\0\0\0\0\x03" "0 0";
        static const uint8_t begin[] = {
                0x83, 0x86,                     /* :method POST, :scheme http */
                0x01, 1, 'x',                   /* :authority */
                /* content-type */
                0x0f, 0x10, 16, 'a', 'p', 'p', 'l', 'i', 'c', 'a', 't', 'i', 'o', 'n', '/', 'g', 'r', 'p',
                        'c',
                0x00, 2, 't', 'e', 8, 't', 'r', 'a', 'i', 'l', 'e', 'r', 's',
                0x04, 0,                        /* :path */
        };
        size_t length = strlen(method);

        if (length >= 127 || sizeof(begin) + length > sizeof(grpc_headers))
                die("\"%s\" is too long for a method", method);
        memcpy(grpc_headers, begin, sizeof(begin));
        grpc_headers[sizeof(begin) - 1] = (uint8_t) length;
        memcpy(grpc_headers + sizeof(begin), method, length);
        grpc_headers_size = sizeof(begin) + length;

        request = message;
        request_size = sizeof(message) - 1;
}

static void make_request(const char *what) {
        int r = 0;

        switch (arg_protocol) {

        case PROTOCOL_HTTP:
                r = asprintf(&request, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", what);
                break;

        case PROTOCOL_REDIS:
                r = asprintf(&request, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(what), what);
                break;

        case PROTOCOL_RAW:
                r = (int) strtoul(what, NULL, 10);
                request = calloc(1, (size_t) r);
                break;

        case PROTOCOL_GRPC:
                make_call(what);
                return;
        }
        if (r <= 0 || !request)
                die("cannot make a request of \"%s\"", what);
        request_size = (size_t) r;
}

static void parse(int argc, char *argv[]) {
        static const struct option options[] = {
                { "address",        required_argument, NULL, 'A' },
                { "port",           required_argument, NULL, 'p' },
                { "connections",    required_argument, NULL, 'c' },
                { "requests",       required_argument, NULL, 'n' },
                { "rate",           required_argument, NULL, 'r' }, /* per second, all connections
                                                                     * together */
                { "per-connection", required_argument, NULL, 'k' }, /* a new one after as many requests */
                { "answer",         required_argument, NULL, 'a' }, /* bytes, for raw */
                { "parts",          required_argument, NULL, 's' }, /* that a request is sent in */
                { "gap",            required_argument, NULL, 'g' }, /* between these, ns */
                { "output",         required_argument, NULL, 'o' }, /* the samples, as they are in memory */
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
                case 'c': arg_connections = (unsigned) strtoul(optarg, NULL, 10); break;
                case 'n': arg_requests = strtoull(optarg, NULL, 10); break;
                case 'r': arg_rate = strtod(optarg, NULL); break;
                case 'k': arg_per_connection = (unsigned) strtoul(optarg, NULL, 10); break;
                case 'a': arg_answer = strtoul(optarg, NULL, 10); break;
                case 's': arg_parts = (unsigned) strtoul(optarg, NULL, 10); break;
                case 'g': arg_gap = strtoull(optarg, NULL, 10); break;
                case 'o': arg_output = optarg; break;
                default: exit(2);
                }

        if (argc - optind != 2 || arg_connections < 1 || arg_connections > CONNECTIONS_MAX ||
            arg_parts < 1 || arg_parts > PARTS_MAX) {
                fprintf(stderr, "usage: load [OPTIONS] http PATH | redis KEY | raw BYTES | grpc METHOD\n");
                exit(2);
        }
        if (strcmp(argv[optind], "redis") == 0)
                arg_protocol = PROTOCOL_REDIS;
        else if (strcmp(argv[optind], "raw") == 0)
                arg_protocol = PROTOCOL_RAW;
        else if (strcmp(argv[optind], "grpc") == 0)
                arg_protocol = PROTOCOL_GRPC;
        make_request(argv[optind + 1]);
}

int main(int argc, char *argv[]) {
        static Connection connections[CONNECTIONS_MAX];
        pthread_t threads[CONNECTIONS_MAX];
        uint64_t started, ended;

        parse(argc, argv);

        samples = calloc(arg_requests, sizeof(*samples));
        if (!samples)
                die("out of memory");

        /* The connections exist before the first request, except where making them is part of the load */
        for (unsigned i = 0; i < arg_connections; i++)
                connections[i].fd = arg_per_connection > 0 ? -1 : connect_server();

        schedule_next = started = now(CLOCK_MONOTONIC);
        for (unsigned i = 0; i < arg_connections; i++)
                if (pthread_create(threads + i, NULL, connection_run, connections + i) != 0)
                        die("cannot make a thread");
        for (unsigned i = 0; i < arg_connections; i++)
                pthread_join(threads[i], NULL);
        ended = now(CLOCK_MONOTONIC);

        if (arg_output) {
                FILE *f = fopen(arg_output, "we");
                if (!f || fwrite(samples, sizeof(*samples), arg_requests, f) != arg_requests ||
                    fclose(f) != 0)
                        die("cannot write %s: %m", arg_output);
        }
        printf("%.6f\n", (double) (ended - started) / (double) NSEC_PER_SEC);
        return EXIT_SUCCESS;
}
