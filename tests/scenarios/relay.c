/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A bad cable between two network namespaces: reads IPv4 and IPv6 packets from a TUN device in one and
 * writes them to a TUN device in the other, and on the way drops, duplicates, reorders and delays them.
 * Deterministic by seed for one sequence of packets. Prints what it did when it gets SIGTERM.
 *
 *     relay [OPTIONS] NETNS-A TUN-A NETNS-B TUN-B
 *
 * The devices are made and configured by the caller (ip tuntap). Rates are in packets of a thousand. */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define PACKET_MAX 2048
#define HELD_MAX 8192
#define NSEC_PER_SEC UINT64_C(1000000000)

typedef struct Held {
        uint64_t due;
        uint64_t order; /* ties are sent in the order in which they came */
        int to;
        size_t size;
        char data[PACKET_MAX];
} Held;

typedef struct Side {
        int fd;
        uint64_t seen, data, dropped, duplicated, reordered, handshake_dropped;
} Side;

static unsigned arg_drop = 0, arg_duplicate = 0, arg_reorder = 0, arg_drop_handshake = 0;
static uint64_t arg_delay_us = 0, arg_delay_back_us = UINT64_MAX, arg_seed = 1;
static bool arg_drop_back = true;

static Side sides[2];
static Held *held[HELD_MAX];
static size_t n_held = 0;
static uint64_t order = 0, overflow = 0;
static volatile sig_atomic_t stopped = 0;

/* SYNs seen, to know the bare ACK that completes a handshake. Keyed by the client's port. */
static struct { uint32_t seq; bool open; } handshakes[65536];

static void fail(const char *what) {
        fprintf(stderr, "relay: %s: %m\n", what);
        exit(1);
}

static uint64_t now_ns(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* xorshift64 */
static bool chance(unsigned per_thousand) {
        static uint64_t x = 0;

        if (x == 0)
                x = arg_seed * UINT64_C(0x9E3779B97F4A7C15) | 1;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        return (x >> 32) % 1000 < per_thousand;
}

static int open_tun(const char *netns, const char *name) {
        struct ifreq ifr = { .ifr_flags = IFF_TUN|IFF_NO_PI };
        char path[256];
        int ns, fd;

        snprintf(path, sizeof(path), "/run/netns/%s", netns);
        ns = open(path, O_RDONLY|O_CLOEXEC);
        if (ns < 0 || setns(ns, CLONE_NEWNET) < 0)
                fail(path);
        close(ns);
        fd = open("/dev/net/tun", O_RDWR|O_CLOEXEC|O_NONBLOCK);
        if (fd < 0)
                fail("/dev/net/tun");
        snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
        if (ioctl(fd, TUNSETIFF, &ifr) < 0)
                fail(name);
        return fd;
}

static const struct tcphdr *find_tcp(const char *p, size_t n, size_t *ret_payload) {
        size_t header, total;

        if (n < sizeof(struct iphdr))
                return NULL;
        if ((p[0] & 0xf0) == 0x40) {
                const struct iphdr *ip = (const struct iphdr*) p;

                if (ip->protocol != IPPROTO_TCP)
                        return NULL;
                header = ip->ihl * 4u;
                total = ntohs(ip->tot_len);
        } else {
                const struct ip6_hdr *ip = (const struct ip6_hdr*) p;

                if (n < sizeof(*ip) || ip->ip6_nxt != IPPROTO_TCP)
                        return NULL;
                header = sizeof(*ip);
                total = sizeof(*ip) + ntohs(ip->ip6_plen);
        }
        if (n < header + sizeof(struct tcphdr) || total > n)
                return NULL;
        *ret_payload = total - header - ((const struct tcphdr*) (p + header))->doff * 4u;
        return (const struct tcphdr*) (p + header);
}

/* The third packet of a handshake. Losing it makes the request itself complete the handshake. */
static bool completes_handshake(int from, const struct tcphdr *tcp, size_t payload) {
        uint16_t port = ntohs(tcp->source);

        if (from != 0)
                return false;
        if (tcp->syn) {
                handshakes[port].seq = ntohl(tcp->seq);
                handshakes[port].open = true;
                return false;
        }
        if (!handshakes[port].open || payload > 0 || tcp->fin || tcp->rst)
                return false;
        handshakes[port].open = false;
        return ntohl(tcp->seq) == handshakes[port].seq + 1;
}

static void hold(int to, const char *p, size_t n, uint64_t delay_ns) {
        Held *h;

        if (n_held == HELD_MAX) {
                overflow++;
                return;
        }
        h = malloc(sizeof(Held));
        if (!h)
                fail("malloc");
        *h = (Held) { .due = now_ns() + delay_ns, .order = order++, .to = to, .size = n };
        memcpy(h->data, p, n);
        held[n_held++] = h;
}

static void forward(int from) {
        char p[PACKET_MAX];
        Side *s = sides + from;
        uint64_t delay_us = from == 0 || arg_delay_back_us == UINT64_MAX ? arg_delay_us : arg_delay_back_us;

        for (;;) {
                const struct tcphdr *tcp;
                size_t payload = 0;
                ssize_t n = read(s->fd, p, sizeof(p));
                bool hit = from == 0 || arg_drop_back;

                if (n <= 0)
                        return;
                tcp = find_tcp(p, n, &payload);
                s->seen++;
                if (tcp && completes_handshake(from, tcp, payload) && chance(arg_drop_handshake)) {
                        s->handshake_dropped++;
                        continue;
                }
                if (!tcp || payload == 0) {
                        hold(!from, p, n, delay_us * 1000);
                        continue;
                }
                s->data++;
                if (hit && chance(arg_drop)) {
                        s->dropped++;
                        continue;
                }
                if (hit && chance(arg_duplicate)) {
                        s->duplicated++;
                        hold(!from, p, n, delay_us * 1000);
                }
                if (hit && chance(arg_reorder)) {
                        /* Long enough for several later packets to overtake it. */
                        s->reordered++;
                        hold(!from, p, n, delay_us * 1000 + 3000000);
                } else
                        hold(!from, p, n, delay_us * 1000);
        }
}

static int compare(const void *a, const void *b) {
        const Held *x = *(Held* const*) a, *y = *(Held* const*) b;

        if (x->due != y->due)
                return x->due < y->due ? -1 : 1;
        return x->order < y->order ? -1 : 1;
}

static void deliver(void) {
        uint64_t now = now_ns();
        size_t k = 0;

        qsort(held, n_held, sizeof(held[0]), compare);
        while (k < n_held && held[k]->due <= now) {
                /* A full queue of the device is a loss like any other. */
                if (write(sides[held[k]->to].fd, held[k]->data, held[k]->size) < 0)
                        overflow++;
                free(held[k++]);
        }
        memmove(held, held + k, (n_held - k) * sizeof(held[0]));
        n_held -= k;
}

static void arm(int fd) {
        struct itimerspec it = {};
        uint64_t due;

        if (n_held > 0) {
                due = UINT64_MAX;
                for (size_t i = 0; i < n_held; i++)
                        if (held[i]->due < due)
                                due = held[i]->due;
                it.it_value.tv_sec = due / NSEC_PER_SEC;
                it.it_value.tv_nsec = due % NSEC_PER_SEC + 1;
        }
        if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &it, NULL) < 0)
                fail("timerfd_settime");
}

static void on_term(int signal) {
        (void) signal;
        stopped = 1;
}

int main(int argc, char *argv[]) {
        static const struct option options[] = {
                { "drop",           required_argument, NULL, 'd' },
                { "duplicate",      required_argument, NULL, 'u' },
                { "reorder",        required_argument, NULL, 'r' },
                { "delay-us",       required_argument, NULL, 'l' },
                { "delay-back-us",  required_argument, NULL, 'b' },
                { "seed",           required_argument, NULL, 's' },
                { "drop-handshake", required_argument, NULL, 'h' },
                { "only-forth",     no_argument,       NULL, 'o' },
                {}
        };
        struct sigaction sa = { .sa_handler = on_term };
        int c, timer;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 'd': arg_drop = atoi(optarg); break;
                case 'u': arg_duplicate = atoi(optarg); break;
                case 'r': arg_reorder = atoi(optarg); break;
                case 'l': arg_delay_us = strtoull(optarg, NULL, 10); break;
                case 'b': arg_delay_back_us = strtoull(optarg, NULL, 10); break;
                case 's': arg_seed = strtoull(optarg, NULL, 10); break;
                case 'h': arg_drop_handshake = atoi(optarg); break;
                case 'o': arg_drop_back = false; break;
                default: return 2;
                }
        if (argc - optind != 4)
                return 2;

        sides[0].fd = open_tun(argv[optind], argv[optind + 1]);
        sides[1].fd = open_tun(argv[optind + 2], argv[optind + 3]);
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC|TFD_NONBLOCK);
        if (timer < 0)
                fail("timerfd");
        sigaction(SIGTERM, &sa, NULL);
        sigaction(SIGINT, &sa, NULL);
        printf("ready\n");
        fflush(stdout);

        while (!stopped) {
                struct pollfd p[3] = {
                        { .fd = sides[0].fd, .events = POLLIN },
                        { .fd = sides[1].fd, .events = POLLIN },
                        { .fd = timer,       .events = POLLIN },
                };
                uint64_t ticks;

                if (poll(p, 3, -1) < 0)
                        continue;
                if (read(timer, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
                        fail("read");
                for (int i = 0; i < 2; i++)
                        if (p[i].revents & POLLIN)
                                forward(i);
                deliver();
                arm(timer);
        }

        printf("{");
        for (int i = 0; i < 2; i++)
                printf("\"%s\":{\"seen\":%llu,"
                       "\"data\":%llu,\"dropped\":%llu,\"duplicated\":%llu,\"reordered\":%llu,"
                       "\"handshakeDropped\":%llu},", i == 0 ? "forth" : "back",
                       (unsigned long long) sides[i].seen, (unsigned long long) sides[i].data,
                       (unsigned long long) sides[i].dropped, (unsigned long long) sides[i].duplicated,
                       (unsigned long long) sides[i].reordered,
                       (unsigned long long) sides[i].handshake_dropped);
        printf("\"overflow\":%llu}\n", (unsigned long long) overflow);
        return 0;
}
