/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A program that reads with libqosd, as others do: one verb, one line of JSON for what it got.
 *
 *   view UNIT READS WINDOW    opens a view, says so, and waits for a line. Then reads so often, and looks
 *                             whether what it gets can be
 *   follow UNIT               opens a view and says what becomes of it with each line that it is given
 *   write UNIT                tries to write to what a view is made of
 *   read WINDOW UNIT...       a reading of all units
 *   around UNIT               marks, and with each line says what happened since
 *   attach UNIT               holds it until its input ends
 *   watch UNIT...             what becomes of their thresholds
 */

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <systemd/sd-varlink.h>
#include <time.h>
#include <unistd.h>

#include <qosd.h>

static qosd *q;

static const char* error_name(int r) {
        return r >= 0 ? "" : strerrorname_np(-r);
}

static int say_error(const char *what, int r) {
        printf("{\"failed\":\"%s\",\"error\":\"%s\",\"message\":\"%s\"}\n", what, error_name(r),
               q ? qosd_get_error(q) : "");
        return EXIT_FAILURE;
}

static int next_line(void) {
        char line[256];

        (void) fflush(stdout);
        return fgets(line, sizeof(line), stdin) != NULL;
}

static uint64_t now(void) {
        struct timespec ts;

        (void) clock_gettime(CLOCK_MONOTONIC, &ts);
        return (uint64_t) ts.tv_sec * 1000000000 + (uint64_t) ts.tv_nsec;
}

static uint64_t buckets(qosd_view *v) {
        uint64_t count, sum = 0;

        for (size_t i = 0; qosd_view_get_bucket(v, i, NULL, NULL, &count) > 0; i++)
                sum += count;
        return sum;
}

static int verb_view(char **argv) {
        static uint32_t times[1 << 16]; /* of reads, in steps of 10 ns */
        unsigned long n = strtoul(argv[1], NULL, 10), torn = 0, backward = 0, quantiles = 0, again = 0,
                seen = 0;
        uint64_t window = strtoull(argv[2], NULL, 10), last = 0, p99 = 0, median = 0;
        qosd_view *v;
        int r;

        r = qosd_view_open(q, argv[0], &v);
        if (r < 0)
                return say_error("open", r);
        puts("{\"ready\":true}");
        next_line();

        for (unsigned long i = 0; i < n; i++) {
                uint64_t value, begin = now(), took;

                r = qosd_view_read(v, QOSD_FIRST_BYTE, window);
                if (r == -EAGAIN) {
                        again++;
                        continue;
                }
                if (r < 0)
                        return say_error("read", r);
                if (qosd_view_get_quantile(v, 0.99, &value) >= 0)
                        quantiles++;
                took = (now() - begin) / 10;
                times[took < (1 << 16) ? took : (1 << 16) - 1]++;

                if (buckets(v) != qosd_view_get_count(v))
                        torn++;
                if (window == QOSD_WINDOW_TOTAL && qosd_view_get_count(v) < last)
                        backward++;
                last = qosd_view_get_count(v);
        }
        for (uint32_t i = 0; i < (1 << 16); i++) {
                seen += times[i];
                if (median == 0 && seen * 2 >= n)
                        median = i * 10;
                if (p99 == 0 && seen * 100 >= n * 99)
                        p99 = i * 10;
        }
        printf("{\"reads\":%lu,\"again\":%lu,\"torn\":%lu,\"backward\":%lu,\"quantiles\":%lu,\"count\":%"
               PRIu64 ",\"medianTime\":%" PRIu64
               ",\"p99Time\":%" PRIu64 "}\n", n, again, torn, backward, quantiles, last, median, p99);
        qosd_view_unref(v);
        return EXIT_SUCCESS;
}

static int verb_follow(char **argv) {
        qosd_view *v;
        int r;

        r = qosd_view_open(q, argv[0], &v);
        if (r < 0)
                return say_error("open", r);
        do {
                r = qosd_view_read(v, QOSD_LATENCY, QOSD_WINDOW_TOTAL);
                printf("{\"error\":\"%s\",\"count\":%" PRIu64 "}\n", error_name(r), qosd_view_get_count(v));
        } while (next_line());
        qosd_view_unref(v);
        return EXIT_SUCCESS;
}

/* Not with the library, which has no way to. */
static int verb_write(char **argv) {
        sd_json_variant *reply;
        union bpf_attr attr = {};
        sd_varlink *link;
        const char *id;
        uint32_t key = 0;
        char value[8];
        void *p;
        int fd, r;

        r = sd_varlink_connect_address(&link, "/run/qosd/org.qosd.QoS");
        if (r >= 0)
                r = sd_varlink_set_allow_fd_passing_input(link, 1);
        if (r >= 0)
                r = sd_varlink_callbo(link, "org.qosd.QoS.GetView", &reply, &id,
                                      SD_JSON_BUILD_PAIR_STRING("unit", argv[0]));
        if (r < 0)
                return say_error("call", r);
        fd = sd_varlink_take_fd(link, 0);
        if (fd < 0)
                return say_error("descriptor", fd);

        p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        printf("{\"read\":\"%s\"", p == MAP_FAILED ? error_name(-errno) : "");
        printf(",\"protect\":\"%s\"", p != MAP_FAILED && mprotect(p, 4096, PROT_READ|PROT_WRITE) < 0 ?
               error_name(-errno) : "");
        p = mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, fd, 0);
        printf(",\"map\":\"%s\"", p == MAP_FAILED ? error_name(-errno) : "");
        attr.map_fd = fd;
        attr.key = (uint64_t) (uintptr_t) &key;
        attr.value = (uint64_t) (uintptr_t) value;
        printf(",\"update\":\"%s\"", syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, &attr, sizeof(attr)) < 0 ?
               error_name(-errno) : "");
        printf(",\"delete\":\"%s\"}\n", syscall(SYS_bpf, BPF_MAP_DELETE_ELEM, &attr, sizeof(attr)) < 0 ?
               error_name(-errno) : "");
        return EXIT_SUCCESS;
}

static void say_snapshot(qosd_snapshot *s) {
        uint64_t n = 0, absent;
        double rate = -1;

        (void) qosd_snapshot_get_integer(s, "requests.server.count", &n);
        (void) qosd_snapshot_get_real(s, "requests.server.rate", &rate);
        printf("{\"unit\":\"%s\",\"timestamp\":%" PRIu64 ",\"covered\":%" PRIu64 ",\"count\":%" PRIu64
               ",\"rate\":%f,\"nonsense\":\"%s\",\"word\":\"%s\"}",
               qosd_snapshot_get_unit(s), qosd_snapshot_get_timestamp(s), qosd_snapshot_get_covered(s), n,
               rate, error_name(qosd_snapshot_get_integer(s, "requests.server.nonsense", &absent)),
               error_name(qosd_snapshot_get_integer(s, "activeState", &absent)));
}

static int verb_read(char **argv) {
        uint64_t window = strtoull(argv[0], NULL, 10);
        qosd_snapshot *snapshots[256];
        size_t n = 0;
        int r;

        while (argv[1 + n])
                n++;
        r = qosd_read(q, (const char *const *) argv + 1, n, window, snapshots);
        if (r < 0)
                return say_error("read", r);
        printf("[");
        for (size_t i = 0; i < n; i++) {
                if (i > 0)
                        printf(",");
                say_snapshot(snapshots[i]);
                qosd_snapshot_unref(snapshots[i]);
        }
        printf("]\n");
        return EXIT_SUCCESS;
}

static int verb_around(char **argv) {
        qosd_snapshot *s;
        int r;

        r = qosd_since(q, argv[0], &s);
        if (r != -ENXIO)
                return say_error("since what", r);
        r = qosd_mark(q, argv[0]);
        if (r < 0)
                return say_error("mark", r);
        puts("{\"ready\":true}");
        while (next_line()) {
                r = qosd_since(q, argv[0], &s);
                if (r < 0)
                        return say_error("since", r);
                say_snapshot(s);
                puts("");
                qosd_snapshot_unref(s);
        }
        return EXIT_SUCCESS;
}

static int verb_attach(char **argv) {
        int r;

        r = qosd_attach(q, argv[0], NULL);
        if (r < 0)
                return say_error("attach", r);
        puts("{\"ready\":true}");
        next_line();
        return EXIT_SUCCESS;
}

static void on_event(qosd_monitor *m, qosd_event *e, uint64_t lost, void *userdata) {
        static const char *const states[] = { "unknown", "ok", "violated" };
        double value;

        if (!e)
                printf("{\"missed\":%" PRIu64 "}\n", lost);
        else
                printf("{\"unit\":\"%s\",\"name\":\"%s\",\"state\":\"%s\",\"initial\":%s,\"seq\":%" PRIu64
                       ",\"value\":%f}\n",
                       qosd_event_get_unit(e), qosd_event_get_name(e), states[qosd_event_get_state(e)],
                       qosd_event_is_initial(e) ? "true" : "false", qosd_event_get_seq(e),
                       qosd_event_get_value(e, &value) < 0 ? -1 : value);
        (void) fflush(stdout);
}

static int on_input(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        return sd_event_exit(sd_event_source_get_event(s), 0);
}

static int verb_watch(char **argv) {
        qosd_monitor *m;
        sd_event *event;
        int r;

        r = sd_event_default(&event);
        if (r >= 0)
                r = sd_event_add_io(event, NULL, STDIN_FILENO, 1 /* EPOLLIN */, on_input, NULL);
        if (r >= 0)
                r = qosd_monitor_new(NULL, event, argv[0] ? (const char *const *) argv : NULL, on_event,
                                     NULL, &m);
        if (r < 0)
                return say_error("watch", r);
        r = sd_event_loop(event);
        qosd_monitor_unref(m);
        sd_event_unref(event);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
        static const struct {
                const char *name;
                int arguments;
                int (*verb)(char **argv);
        } verbs[] = {
                { "view",   3, verb_view   },
                { "follow", 1, verb_follow },
                { "write",  1, verb_write  },
                { "read",   2, verb_read   },
                { "around", 1, verb_around },
                { "attach", 1, verb_attach },
                { "watch",  0, verb_watch  },
        };
        int r;

        for (size_t i = 0; argc >= 2 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
                if (strcmp(argv[1], verbs[i].name) != 0 || argc - 2 < verbs[i].arguments)
                        continue;
                r = qosd_connect(NULL, &q);
                if (r < 0)
                        return say_error("connect", r);
                r = verbs[i].verb(argv + 2);
                qosd_unref(q);
                return r;
        }
        return 2;
}
