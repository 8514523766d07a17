/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A client that counts its responses, with their times. Its server is server.c: a request of a fixed
 * size, a response of a fixed size. One thread per connection with blocking calls, so that pacing,
 * half-closing and aborting need no state machine. Prints one JSON object per run. With --interactive it
 * reads commands from standard input: "run N" (N more requests on every connection), "send" (a request on
 * every connection, without waiting for the response), "take" (wait for that response), "close", "reset";
 * each is acknowledged by a line, and the connections stay open. */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 4096
#define SAMPLES_MAX (1 << 21)
#define RETRY_US 1000
#define NSEC_PER_SEC UINT64_C(1000000000)

static const char *arg_address = "127.0.0.1";
static int arg_port = 0, arg_rcvbuf = 0, arg_sndbuf = 0, arg_timeout_ms = 20000;
static unsigned arg_connections = 1, arg_segments = 1;
static uint64_t arg_number = 1, arg_per_connection = 0, arg_think_us = 0, arg_segment_us = 0;
static uint64_t arg_send_rate = 0, arg_read_rate = 0, arg_duration_ms = 0;
static size_t arg_request = 64, arg_response = 128, arg_greet = 0, arg_abort_at = 0;
static bool arg_until_eof = false, arg_retry = false, arg_keepalive = false, arg_interactive = false;
static bool arg_abort_waiting = false, arg_cork = false, arg_fastopen = false, arg_zerocopy = false;

typedef struct Sample {
        uint64_t first_byte;
        uint64_t latency;
} Sample;

typedef struct Conn {
        int fd;
        uint64_t served; /* on this connection, since it was made */
        uint64_t started;
} Conn;

static Sample *samples = NULL;
static atomic_ullong n_samples, n_started, n_answered, n_partial, n_failed, n_connects, n_refused, bytes_in,
        bytes_out;
static uint64_t deadline = UINT64_MAX;
static atomic_bool stopped;

static uint64_t now_ns(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void sleep_until(uint64_t t) {
        struct timespec ts = { .tv_sec = t / NSEC_PER_SEC, .tv_nsec = t % NSEC_PER_SEC };

        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
                ;
}

static void pause_us(uint64_t us) {
        if (us > 0)
                sleep_until(now_ns() + us * 1000);
}

static void fail(const char *what) {
        fprintf(stderr, "client: %s: %m\n", what);
        exit(1);
}

static int conn_open(Conn *c) {
        struct timeval tv = { .tv_sec = arg_timeout_ms / 1000, .tv_usec = arg_timeout_ms % 1000 * 1000 };
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(arg_port) };
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(arg_port) };
        bool v6 = strchr(arg_address, ':');
        int fd, one = 1;

        fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
        if (fd < 0)
                fail("socket");
        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
        if (arg_rcvbuf > 0)
                (void) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &arg_rcvbuf, sizeof(int));
        if (arg_sndbuf > 0)
                (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &arg_sndbuf, sizeof(int));
        if (arg_keepalive) {
                (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
                (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
                (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
        }
        if (arg_zerocopy && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) < 0)
                fail("SO_ZEROCOPY");
        if (arg_cork)
                (void) setsockopt(fd, IPPROTO_TCP, TCP_CORK, &one, sizeof(one));
        /* The handshake waits for the first write, and takes that along */
        if (arg_fastopen && setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof(one)) < 0)
                fail("TCP_FASTOPEN_CONNECT");
        if (v6 ? inet_pton(AF_INET6, arg_address, &in6.sin6_addr) != 1 :
            inet_pton(AF_INET, arg_address, &in.sin_addr) != 1)
                fail("address");
        if (connect(fd, v6 ? (struct sockaddr*) &in6 : (struct sockaddr*) &in,
                    v6 ? sizeof(in6) : sizeof(in)) < 0) {
                n_refused++;
                close(fd);
                return -ECONNREFUSED;
        }
        n_connects++;
        *c = (Conn) { .fd = fd };
        return 0;
}

static void conn_close(Conn *c, bool reset) {
        struct linger l = { .l_onoff = 1 };

        if (c->fd < 0)
                return;
        if (reset)
                (void) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
        close(c->fd);
        c->fd = -1;
}

/* Reads @n bytes, at most at @rate bytes a second. Returns how many came. */
static size_t read_n(int fd, size_t n, uint64_t rate, uint64_t *ret_first) {
        static __thread char buf[1 << 16];
        uint64_t t0 = 0;
        size_t got = 0;

        while (got < n) {
                /* With a rate: pieces of a 200th of a second, read when they are due. */
                size_t piece = rate > 0 ? rate / 200 : sizeof(buf);
                ssize_t k;

                if (piece > sizeof(buf))
                        piece = sizeof(buf);
                if (rate > 0 && got > 0)
                        sleep_until(t0 + (got + piece) * NSEC_PER_SEC / rate);
                if (piece > n - got)
                        piece = n - got;
                k = recv(fd, buf, piece, rate > 0 && got > 0 ? MSG_WAITALL : 0);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        break;
                if (got == 0) {
                        t0 = now_ns();
                        if (ret_first)
                                *ret_first = t0;
                }
                got += k;
        }
        bytes_in += got;
        return got;
}

/* Reads back the completions, which are charged to the socket. */
static void reap_zerocopy(int fd) {
        char control[256];
        struct msghdr m = { .msg_control = control };

        do
                m.msg_controllen = sizeof(control);
        while (recvmsg(fd, &m, MSG_ERRQUEUE|MSG_DONTWAIT) >= 0);
}

static int write_n(int fd, size_t n, uint64_t rate) {
        static char data[1 << 16];
        uint64_t t0 = now_ns();
        size_t done = 0;

        if (data[0] == 0)
                memset(data, 'q', sizeof(data));
        while (done < n) {
                size_t piece = rate > 0 ? rate / 200 : sizeof(data);
                ssize_t k;

                if (piece > sizeof(data))
                        piece = sizeof(data);
                if (piece > n - done)
                        piece = n - done;
                if (rate > 0)
                        sleep_until(t0 + done * NSEC_PER_SEC / rate);
                k = send(fd, data, piece, MSG_NOSIGNAL|(arg_zerocopy ? MSG_ZEROCOPY : 0));
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return -EPIPE;
                if (arg_zerocopy)
                        reap_zerocopy(fd);
                done += k;
                bytes_out += k;
        }
        return 0;
}

static int request_send(Conn *c) {
        size_t total = arg_abort_at > 0 ? arg_abort_at : arg_request, done = 0;

        c->started = now_ns();
        for (unsigned i = 0; i < arg_segments; i++) {
                size_t n = i + 1 == arg_segments ? total - done : total / arg_segments;

                if (i > 0)
                        pause_us(arg_segment_us);
                if (write_n(c->fd, n, arg_send_rate) < 0)
                        return -EPIPE;
                done += n;
        }
        if (arg_until_eof && shutdown(c->fd, SHUT_WR) < 0)
                return -errno;
        return 0;
}

static int answer_take(Conn *c) {
        uint64_t first = 0, end;
        size_t got, i;

        got = read_n(c->fd, arg_response, arg_read_rate, &first);
        end = now_ns();
        if (got < arg_response) {
                if (got > 0)
                        n_partial++;
                return -EPIPE;
        }
        n_answered++;
        c->served++;
        i = n_samples++;
        if (i < SAMPLES_MAX)
                samples[i] = (Sample) { .first_byte = first - c->started, .latency = end - c->started };
        return 0;
}

static bool take_number(void) {
        if (atomic_load(&stopped) || now_ns() >= deadline)
                return false;
        if (arg_duration_ms > 0)
                return true;
        return n_started++ < arg_number;
}

static void *conn_thread(void *p) {
        Conn c = { .fd = -1 };

        (void) p;
        while (take_number()) {
                bool ok = false;

                /* A failed request is repeated on a new connection only if that is requested. */
                do {
                        if (c.fd < 0) {
                                if (conn_open(&c) < 0) {
                                        pause_us(RETRY_US);
                                        continue;
                                }
                                if (arg_greet > 0 && read_n(c.fd, arg_greet, 0, NULL) < arg_greet) {
                                        conn_close(&c, false);
                                        continue;
                                }
                        }
                        if (request_send(&c) >= 0) {
                                if (arg_abort_at > 0 || arg_abort_waiting) {
                                        if (arg_abort_waiting)
                                                pause_us(arg_think_us);
                                        conn_close(&c, true);
                                        ok = true;
                                        break;
                                }
                                ok = answer_take(&c) >= 0;
                        }
                        if (!ok) {
                                n_failed++;
                                conn_close(&c, false);
                                pause_us(RETRY_US);
                        }
                } while (!ok && arg_retry && !atomic_load(&stopped) && now_ns() < deadline);

                if (c.fd >= 0 &&
                    ((arg_per_connection > 0 && c.served >= arg_per_connection) || arg_until_eof))
                        conn_close(&c, false);
                pause_us(arg_think_us);
        }
        conn_close(&c, false);
        return NULL;
}

static int compare(const void *a, const void *b) {
        uint64_t x = *(const uint64_t*) a, y = *(const uint64_t*) b;

        return x < y ? -1 : x > y;
}

static void print_distribution(const char *name, size_t offset) {
        static const struct { const char *name; double q; } quantiles[] = {
                { "p50", 0.5 }, { "p90", 0.9 }, { "p95", 0.95 }, { "p99", 0.99 }, { "p999", 0.999 }
        };
        size_t n = n_samples < SAMPLES_MAX ? n_samples : SAMPLES_MAX;
        uint64_t *v, sum = 0;

        v = malloc((n + 1) * sizeof(uint64_t));
        if (!v)
                fail("malloc");
        for (size_t i = 0; i < n; i++) {
                v[i] = *(const uint64_t*) ((const char*) (samples + i) + offset);
                sum += v[i];
        }
        qsort(v, n, sizeof(uint64_t), compare);
        printf(",\"%s\":{\"count\":%zu", name, n);
        if (n > 0) {
                printf(",\"mean\":%llu,\"max\":%llu", (unsigned long long) (sum / n),
                       (unsigned long long) v[n - 1]);
                for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
                        size_t rank = (size_t) (quantiles[i].q * n + 0.999999);

                        printf(",\"%s\":%llu", quantiles[i].name,
                               (unsigned long long) v[rank > 0 ? rank - 1 : 0]);
                }
        }
        printf("}");
        free(v);
}

static void print_result(uint64_t elapsed) {
        printf("{\"answered\":%llu,\"partial\":%llu,\"failed\":%llu,\"connects\":%llu,\"refused\":%llu,"
               "\"bytesIn\":%llu,\"bytesOut\":%llu,\"elapsed\":%llu",
               (unsigned long long) n_answered, (unsigned long long) n_partial,
               (unsigned long long) n_failed,
               (unsigned long long) n_connects, (unsigned long long) n_refused,
               (unsigned long long) bytes_in, (unsigned long long) bytes_out, (unsigned long long) elapsed);
        print_distribution("latency", offsetof(Sample, latency));
        print_distribution("firstByte", offsetof(Sample, first_byte));
        printf("}\n");
        fflush(stdout);
}

static void acknowledge(int r) {
        printf("{\"ok\":%s,\"answered\":%llu}\n", r < 0 ? "false" : "true", (unsigned long long) n_answered);
        fflush(stdout);
}

static int interactive(void) {
        static Conn conns[CONNECTIONS_MAX];
        char line[128];
        int r = 0;

        for (unsigned i = 0; i < arg_connections && r >= 0; i++) {
                r = conn_open(conns + i);
                if (r >= 0 && arg_greet > 0 && read_n(conns[i].fd, arg_greet, 0, NULL) < arg_greet)
                        r = -EPIPE;
        }
        acknowledge(r);

        while (fgets(line, sizeof(line), stdin)) {
                unsigned long n = 1;

                r = 0;
                (void) sscanf(line, "%*s %lu", &n);
                for (unsigned i = 0; i < arg_connections && r >= 0; i++) {
                        Conn *c = conns + i;

                        if (strncmp(line, "run", 3) == 0)
                                for (unsigned long k = 0; k < n && r >= 0; k++) {
                                        r = request_send(c);
                                        if (r >= 0)
                                                r = answer_take(c);
                                }
                        else if (strncmp(line, "send", 4) == 0)
                                r = request_send(c);
                        else if (strncmp(line, "part", 4) == 0)
                                r = write_n(c->fd, n, 0);
                        else if (strncmp(line, "take", 4) == 0)
                                r = answer_take(c);
                        else if (strncmp(line, "close", 5) == 0)
                                conn_close(c, false);
                        else if (strncmp(line, "reset", 5) == 0)
                                conn_close(c, true);
                        else
                                r = -EINVAL;
                }
                acknowledge(r);
        }
        return 0;
}

static void on_term(int signal) {
        (void) signal;
        atomic_store(&stopped, true);
}

static void parse(int argc, char *argv[]) {
        enum {
                ARG_ADDRESS = 256, ARG_PORT, ARG_CONNECTIONS, ARG_NUMBER, ARG_PER_CONNECTION, ARG_THINK,
                              ARG_SEGMENTS,
                ARG_SEGMENT_US, ARG_SEND_RATE, ARG_READ_RATE, ARG_DURATION, ARG_REQUEST, ARG_RESPONSE,
                ARG_GREET,
                ARG_ABORT_AT, ARG_ABORT_WAITING, ARG_UNTIL_EOF, ARG_RETRY, ARG_KEEPALIVE, ARG_INTERACTIVE,
                ARG_RCVBUF, ARG_SNDBUF, ARG_TIMEOUT, ARG_CORK, ARG_FASTOPEN, ARG_ZEROCOPY,
        };
        static const struct option options[] = {
                { "address",        required_argument, NULL, ARG_ADDRESS        },
                { "port",           required_argument, NULL, ARG_PORT           },
                { "connections",    required_argument, NULL, ARG_CONNECTIONS    },
                { "number",         required_argument, NULL, ARG_NUMBER         },
                { "per-connection", required_argument, NULL, ARG_PER_CONNECTION },
                { "think-us",       required_argument, NULL, ARG_THINK          },
                { "segments",       required_argument, NULL, ARG_SEGMENTS       },
                { "segment-us",     required_argument, NULL, ARG_SEGMENT_US     },
                { "send-rate",      required_argument, NULL, ARG_SEND_RATE      },
                { "read-rate",      required_argument, NULL, ARG_READ_RATE      },
                { "duration-ms",    required_argument, NULL, ARG_DURATION       },
                { "request",        required_argument, NULL, ARG_REQUEST        },
                { "response",       required_argument, NULL, ARG_RESPONSE       },
                { "greet",          required_argument, NULL, ARG_GREET          },
                { "abort-at",       required_argument, NULL, ARG_ABORT_AT       },
                { "abort-waiting",  no_argument,       NULL, ARG_ABORT_WAITING  },
                { "until-eof",      no_argument,       NULL, ARG_UNTIL_EOF      },
                { "retry",          no_argument,       NULL, ARG_RETRY          },
                { "keepalive",      no_argument,       NULL, ARG_KEEPALIVE      },
                { "interactive",    no_argument,       NULL, ARG_INTERACTIVE    },
                { "rcvbuf",         required_argument, NULL, ARG_RCVBUF         },
                { "sndbuf",         required_argument, NULL, ARG_SNDBUF         },
                { "timeout-ms",     required_argument, NULL, ARG_TIMEOUT        },
                { "cork",           no_argument,       NULL, ARG_CORK           },
                { "fastopen",       no_argument,       NULL, ARG_FASTOPEN       },
                { "zerocopy",       no_argument,       NULL, ARG_ZEROCOPY       },
                {}
        };
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case ARG_ADDRESS:        arg_address = optarg; break;
                case ARG_PORT:           arg_port = atoi(optarg); break;
                case ARG_CONNECTIONS:    arg_connections = atoi(optarg); break;
                case ARG_NUMBER:         arg_number = strtoull(optarg, NULL, 10); break;
                case ARG_PER_CONNECTION: arg_per_connection = strtoull(optarg, NULL, 10); break;
                case ARG_THINK:          arg_think_us = strtoull(optarg, NULL, 10); break;
                case ARG_SEGMENTS:       arg_segments = atoi(optarg); break;
                case ARG_SEGMENT_US:     arg_segment_us = strtoull(optarg, NULL, 10); break;
                case ARG_SEND_RATE:      arg_send_rate = strtoull(optarg, NULL, 10); break;
                case ARG_READ_RATE:      arg_read_rate = strtoull(optarg, NULL, 10); break;
                case ARG_DURATION:       arg_duration_ms = strtoull(optarg, NULL, 10); break;
                case ARG_REQUEST:        arg_request = strtoull(optarg, NULL, 10); break;
                case ARG_RESPONSE:       arg_response = strtoull(optarg, NULL, 10); break;
                case ARG_GREET:          arg_greet = strtoull(optarg, NULL, 10); break;
                case ARG_ABORT_AT:       arg_abort_at = strtoull(optarg, NULL, 10); break;
                case ARG_ABORT_WAITING:  arg_abort_waiting = true; break;
                case ARG_UNTIL_EOF:      arg_until_eof = true; break;
                case ARG_RETRY:          arg_retry = true; break;
                case ARG_KEEPALIVE:      arg_keepalive = true; break;
                case ARG_INTERACTIVE:    arg_interactive = true; break;
                case ARG_RCVBUF:         arg_rcvbuf = atoi(optarg); break;
                case ARG_SNDBUF:         arg_sndbuf = atoi(optarg); break;
                case ARG_TIMEOUT:        arg_timeout_ms = atoi(optarg); break;
                case ARG_CORK:           arg_cork = true; break;
                case ARG_FASTOPEN:       arg_fastopen = true; break;
                case ARG_ZEROCOPY:       arg_zerocopy = true; break;
                default:                 exit(2);
                }
        if (optind < argc || arg_connections < 1 || arg_connections > CONNECTIONS_MAX || arg_segments < 1)
                exit(2);
}

int main(int argc, char *argv[]) {
        static pthread_t threads[CONNECTIONS_MAX];
        pthread_attr_t a;
        uint64_t t0;

        parse(argc, argv);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGTERM, on_term);
        (void) prctl(PR_SET_TIMERSLACK, 1);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);

        samples = calloc(SAMPLES_MAX, sizeof(Sample));
        if (!samples)
                fail("calloc");
        if (arg_interactive)
                return interactive();

        t0 = now_ns();
        if (arg_duration_ms > 0)
                deadline = t0 + arg_duration_ms * 1000000;
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 256 * 1024);
        for (unsigned i = 0; i < arg_connections; i++)
                if (pthread_create(threads + i, &a, conn_thread, NULL) != 0)
                        fail("thread");
        for (unsigned i = 0; i < arg_connections; i++)
                pthread_join(threads[i], NULL);
        print_result(now_ns() - t0);
        return 0;
}
