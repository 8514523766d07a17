/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Metrics of requests over time, as clients read them: windows, thresholds, durations of holds, and the
 * users that may see peers. The daemon runs in this process, with a stand-in for maps and programs, and with
 * clocks that the test advances. */

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <systemd/sd-varlink.h>

#include "fake-probe.h"
#include "log.h"
#include "manager.h"
#include "threshold-monitor.h"
#include "util-bus.h"
#include "util-clock.h"
#include "util-varlink.h"

static char directory[] = "/tmp/test-figures-XXXXXX";
static Manager *manager;
static sd_bus *daemon_side, *system_side;
static FakeServiceManager pid1;

static FakeUnit units[] = {
        { .id = "a.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/b.service", .slice = "system.slice" },
        { .id = "outer.slice", .active_state = "active", .sub_state = "active",
          .control_group = "/outer.slice", .slice = "-.slice" },
        { .id = "inner.service", .active_state = "active", .sub_state = "running",
          .control_group = "/outer.slice/inner.service", .slice = "outer.slice" },
        {}
};

static void daemon_start(void) {
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &system_side);
        fake_service_manager_start(&pid1, system_side, units);
        check(manager_set_bus(manager, daemon_side) >= 0);
        check(varlink_server_new_peer(manager, &varlink_server) >= 0);
        settle();
}

static void daemon_stop(void) {
        varlink_server = varlink_server_free(varlink_server);
        manager = manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(system_side);
        clock_advance(100 * NSEC_PER_MSEC);
}

/* Returns the messages that are logged meanwhile. */
static char* daemon_start_logged(void) {
        _cleanup_close_ int before = dup(STDERR_FILENO), fd = memfd_create("log", MFD_CLOEXEC);
        char *said = new0(char, 65536);

        check(before >= 0 && fd >= 0 && said && dup2(fd, STDERR_FILENO) >= 0);
        daemon_start();
        check(dup2(before, STDERR_FILENO) >= 0);
        check(pread(fd, said, 65535, 0) >= 0);
        fputs(said, stderr);
        return said;
}

static void on_idle(void) {
        clock_advance(NSEC_PER_MSEC);
}

/* Advances the clocks in steps, after each of which the daemon handles the events that are due. */
static void pass(uint64_t nsec) {
        for (uint64_t step; nsec > 0; nsec -= step) {
                step = MIN(nsec, 100 * NSEC_PER_MSEC);
                clock_advance(step);
                settle();
        }
}

static unsigned slot_of(const char *name) {
        Unit *u = manager_get_unit(manager, name, NULL);

        check(u);
        return u->index;
}

static sd_json_variant* by_path(sd_json_variant *v, const char *const *path) {
        for (; v && *path; path++)
                v = sd_json_variant_by_key(v, *path);
        return v;
}
#define BY_PATH(v, ...) by_path(v, (const char *const[]) { __VA_ARGS__, NULL })

/* window in ns, 0 for the total */
static sd_json_variant* get(Client *c, const char *unit, uint64_t window) {
        char parameters[128];

        (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\",\"window\":%" PRIu64 "}", unit,
                        window);
        return client_call(c, "Get", parameters);
}

/* Number of a reading. */
static uint64_t get_seq(Client *c) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = get(c, "a.service", 0);

        return sd_json_variant_unsigned(message_parameter(v, "seq"));
}

static void expect_count_of(Client *c, const char *unit, uint64_t window, uint64_t count) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = get(c, unit, window);
        sd_json_variant *server = BY_PATH(v, "parameters", "requests", "server");
        uint64_t got = sd_json_variant_unsigned(BY_PATH(server, "count"));

        check(sd_json_variant_unsigned(BY_PATH(server, "latency", "count")) == got);
        check(!BY_PATH(server, "latency", "p50") == (got == 0));
        if (got != count) {
                fprintf(stderr, "%" PRIu64 " requests of %s in %" PRIu64 " ns instead of %" PRIu64 "\n", got,
                        unit, window, count);
                exit(EXIT_FAILURE);
        }
}

static void expect_count(Client *c, uint64_t window, uint64_t count) {
        expect_count_of(c, "a.service", window, count);
}

/* After a burst, windows that no longer cover it are empty, the total remains, and later requests are in
 * both. */
static void test_burst_and_silence(void) {
        static const uint64_t windows[] = { NSEC_PER_SEC / 10, NSEC_PER_SEC, 10 * NSEC_PER_SEC,
                                            60 * NSEC_PER_SEC, 300 * NSEC_PER_SEC };
        _cleanup_client_ Client *c = client_new(0);
        uint64_t since;

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        pass(NSEC_PER_SEC);
        fake_requests(slot_of("a.service"), 5000, 2 * NSEC_PER_MSEC);
        since = now_nsec(CLOCK_MONOTONIC);
        for (size_t i = 1; i < ELEMENTSOF(windows); i++)
                expect_count(c, windows[i], 5000);

        /* A window goes on in steps of at most a sixth of it */
        for (unsigned n = 0; n < 400; n++) {
                for (size_t i = 0; i < ELEMENTSOF(windows); i++) {
                        uint64_t silence = now_nsec(CLOCK_MONOTONIC) - since;

                        if (silence + 50 * NSEC_PER_MSEC < windows[i] * 5 / 6)
                                expect_count(c, windows[i], 5000);
                        else if (silence > windows[i])
                                expect_count(c, windows[i], 0);
                }
                expect_count(c, 0, 5000);
                pass(NSEC_PER_SEC);
        }

        fake_requests(slot_of("a.service"), 100, 2 * NSEC_PER_MSEC);
        for (size_t i = 1; i < ELEMENTSOF(windows); i++)
                expect_count(c, windows[i], 100);
        expect_count(c, 0, 5100);
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        check(fake_count_maps() == 0);
}

/* A hold with a duration ends by itself; another hold of the unit does not, and keeps the totals. */
static void test_durations(void) {
        _cleanup_client_ Client *c = client_new(0), *other = client_new(0);

        call_succeeds(c, "Attach",
                      "{\"unit\":\"a\",\"probes\":[\"requests\"],\"duration\":3600000000000}");
        call_succeeds(c, "Attach",
                      "{\"unit\":\"b\",\"probes\":[\"requests\"],\"duration\":3600000000000}");
        call_succeeds(other, "Attach", "{\"unit\":\"b\",\"probes\":[\"requests\"],\"lease\":true}");
        fake_requests(slot_of("b.service"), 3, NSEC_PER_MSEC);
        pass(UINT64_C(3590) * NSEC_PER_SEC);
        check(manager_get_unit(manager, "a.service", NULL) && manager_get_unit(manager, "b.service", NULL));
        check(fake_count_maps() == 2);
        /* Precise to a minute */
        pass(70 * NSEC_PER_SEC);
        check(!manager_get_unit(manager, "a.service", NULL) && manager_get_unit(manager, "b.service", NULL));
        check(fake_count_maps() == 1);

        /* The lease has kept the total */
        fake_requests(slot_of("b.service"), 4, NSEC_PER_MSEC);
        {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = get(c, "b.service", 0);

                check(sd_json_variant_unsigned(BY_PATH(v, "parameters", "requests", "server", "count")) ==
                      7);
        }
        other = client_free(other);
        settle();
        check(!manager_get_unit(manager, "b.service", NULL) && fake_count_maps() == 0);
}

static void expect_state(Client *c, const char *state) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

        client_send(c, "more", "ListThresholds", "{\"unit\":\"a.service\"}");
        v = client_expect_reply(c, "ListThresholds");
        check(!message_continues(v));
        if (!streq_ptr(sd_json_variant_string(BY_PATH(v, "parameters", "threshold", "state")), state)) {
                fprintf(stderr, "not %s: ", state);
                (void) sd_json_variant_dump(v, SD_JSON_FORMAT_NEWLINE, stderr, NULL);
                exit(EXIT_FAILURE);
        }
}

/* Load for some seconds, after each of which the threshold has to be in this state. NULL: in any. */
static void expect_seconds(Client *c, unsigned n, uint64_t nsec, const char *state) {
        while (n-- > 0) {
                fake_requests(slot_of("a.service"), 1000, nsec);
                pass(NSEC_PER_SEC);
                if (state)
                        expect_state(c, state);
        }
}

/* A threshold is violated when its metric was beyond the limit for the duration of the rule, and ok again
 * when the metric was within the limit of "clear" for the duration there. */
static void test_threshold(void) {
        _cleanup_client_ Client *c = client_new(0);

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        call_succeeds(c, "SetThreshold",
                      "{\"unit\":\"a\",\"threshold\":\"slow: requests.server.firstByte.p99 > 10ms over 10s "
                      "for 5s, clear 5ms for 20s\"}");
        /* Evaluations may be a second late */
        expect_seconds(c, 19, 2 * NSEC_PER_MSEC, "unknown");
        expect_seconds(c, 2, 2 * NSEC_PER_MSEC, NULL);
        expect_seconds(c, 3, 2 * NSEC_PER_MSEC, "ok");
        expect_seconds(c, 4, 20 * NSEC_PER_MSEC, "ok");
        expect_seconds(c, 2, 20 * NSEC_PER_MSEC, NULL);
        expect_seconds(c, 2, 20 * NSEC_PER_MSEC, "violated");
        /* Between the limits */
        expect_seconds(c, 60, 7 * NSEC_PER_MSEC, "violated");
        /* The window of 10 s has the last of these for at least 9 s, and "clear" takes 20 s more */
        expect_seconds(c, 28, 2 * NSEC_PER_MSEC, "violated");
        expect_seconds(c, 3, 2 * NSEC_PER_MSEC, NULL);
        expect_seconds(c, 3, 2 * NSEC_PER_MSEC, "ok");
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

#define BUSY 32U

/* States of the thresholds by the events that a client has received. */
typedef struct Events {
        uint64_t sent, suppressed;
        const char *states[BUSY];
} Events;

/* Reads the events that have been sent. */
static void events_read(Client *c, Events *k) {
        char next;

        while (c->size > 0 || recv(c->fd, &next, 1, MSG_PEEK|MSG_DONTWAIT) > 0) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(c, "Monitor");
                sd_json_variant *e = message_parameter(v, "event");
                const char *name = startswith(sd_json_variant_string(BY_PATH(e, "name")), "busy");
                unsigned i = name ? (unsigned) atoi(name) : BUSY;

                check(i < BUSY);
                /* Events that were suppressed since */
                check(streq_ptr(sd_json_variant_string(BY_PATH(e, "previous")), k->states[i]));
                k->states[i] = streq(sd_json_variant_string(BY_PATH(e, "state")), "ok") ? "ok" : "violated";
                k->sent++;
                k->suppressed += sd_json_variant_unsigned(BY_PATH(e, "suppressed"));
        }
}

/* Events of a user with thresholds that change all the time are limited: later ones have the number of
 * suppressed ones, and the last one of each threshold has its final state. */
static void test_many_events(void) {
        _cleanup_client_ Client *c = client_new(0), *monitor = client_new(0);
        uint64_t changes = 0;
        Events e = {};

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        for (unsigned i = 0; i < BUSY; i++) {
                char text[64];
                Threshold *t;

                (void) snprintf(text, sizeof(text), "busy%u: requests.server.inFlight > 0 over 100ms", i);
                check(threshold_set(manager, &(ThresholdRequest) {
                                        .unit = "a.service", .threshold = text, .uid = TEST_OTHER_UID,
                                        .source = THRESHOLD_SOURCE_ADMINISTRATOR }, &t, NULL) >= 0);
                e.states[i] = "ok";
        }
        /* The limit is for ten seconds */
        pass(12 * NSEC_PER_SEC);
        client_send(monitor, "more", "Monitor", "{}");
        sd_json_variant_unref(client_expect_reply(monitor, "Monitor"));

        for (unsigned i = 0; i < 9; i++) {
                /* The next interval; the next event has the number of suppressed ones */
                if (i == 8)
                        pass(12 * NSEC_PER_SEC);
                for (int n = 1; n >= -1; n -= 2) {
                        fake_in_flight(slot_of("a.service"), n);
                        pass(500 * NSEC_PER_MSEC);
                        changes += BUSY;
                        events_read(monitor, &e);
                }
        }
        check(e.sent + e.suppressed == changes && e.suppressed > 0 && e.sent <= 2 * CROSSINGS_PER_UID_MAX);
        for (unsigned i = 0; i < BUSY; i++)
                check(streq(e.states[i], "ok"));
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* A threshold on a peer, and its state, are shown to all users; the metric names the peer as this client may
 * see it. */
static void expect_peer_threshold(Client *c, Client *monitor, const char *metric) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *next = NULL;
        sd_json_variant *t, *e;
        _cleanup_free_ char *rule = NULL;

        check(asprintf(&rule, "few: %s < 1000 over 10s", metric) > 0);
        client_send(c, "more", "ListThresholds", "{\"unit\":\"a.service\"}");
        v = client_expect_reply(c, "ListThresholds");
        t = BY_PATH(v, "parameters", "threshold");
        check(!message_continues(v) && streq_ptr(sd_json_variant_string(BY_PATH(t, "name")), "few"));
        check(streq_ptr(sd_json_variant_string(BY_PATH(t, "metric")), metric));
        check(startswith(sd_json_variant_string(BY_PATH(t, "threshold")), rule));
        check(streq_ptr(sd_json_variant_string(BY_PATH(t, "state")), "violated"));

        do {
                sd_json_variant_unref(next);
                next = client_expect_reply(monitor, "Monitor");
                e = message_parameter(next, "event");
                check(!e || streq_ptr(sd_json_variant_string(BY_PATH(e, "metric")), metric));
        } while (!e || !streq_ptr(sd_json_variant_string(BY_PATH(e, "state")), "violated"));
}

/* Peers are for root, and for the user that owns the control group. */
static void test_peers(void) {
        struct qos_address address = { .address = { 127, 0, 0, 9 }, .port = 6379, .family = AF_INET };
        _cleanup_client_ Client *c = client_new(0), *nobody = client_new(TEST_OTHER_UID);
        _cleanup_client_ Client *all = client_new(0), *some = client_new(TEST_OTHER_UID);
        sd_json_variant *v, *peers;

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        fake_peer_requests(slot_of("a.service"), &address, 30, 3 * NSEC_PER_MSEC);
        fake_requests(slot_of("a.service"), 30, 5 * NSEC_PER_MSEC);

        v = get(c, "a.service", 0);
        peers = BY_PATH(v, "parameters", "requests", "client", "peers");
        check(sd_json_variant_elements(peers) == 1);
        check(streq_ptr(sd_json_variant_string(sd_json_variant_by_key(sd_json_variant_by_index(peers, 0),
                                                                      "peer")), "127.0.0.9:6379"));
        check(sd_json_variant_unsigned(sd_json_variant_by_key(sd_json_variant_by_index(peers, 0), "count"))
              == 30);
        sd_json_variant_unref(v);

        /* It may see all others */
        v = get(nobody, "a.service", 0);
        check(sd_json_variant_unsigned(BY_PATH(v, "parameters", "requests", "server", "count")) == 30);
        check(!BY_PATH(v, "parameters", "requests", "client", "peers"));
        sd_json_variant_unref(v);
        call_fails(nobody, NULL, "Get",
                   "{\"unit\":\"a\",\"metrics\":[\"requests.client[127.0.0.9:6379].count\"]}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);
        call_fails(nobody, NULL, "Detach", "{\"unit\":\"a\"}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);

        call_succeeds(c, "SetThreshold",
                      "{\"unit\":\"a\",\"threshold\":"
                      "\"few: requests.client[127.0.0.9:6379].count < 1000 over 10s\"}");
        client_send(all, "more", "Monitor", "{}");
        client_send(some, "more", "Monitor", "{}");
        pass(15 * NSEC_PER_SEC);
        expect_peer_threshold(c, all, "requests.client[127.0.0.9:6379].count");
        expect_peer_threshold(nobody, some, "requests.client[...].count");
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* ---- history ------------------------------------------------------------------------------------------ */

#define STEP (10 * NSEC_PER_SEC)

static void next_step(void) {
        pass(STEP - now_nsec(CLOCK_MONOTONIC) % STEP + NSEC_PER_SEC);
}

static sd_json_variant* history(Client *c, const char *unit) {
        char parameters[64];

        (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\"}", unit);
        return client_call(c, "History", parameters);
}

static uint64_t step_count(sd_json_variant *step) {
        return sd_json_variant_unsigned(BY_PATH(step, "requests", "server", "count"));
}

/* Sum over all steps. */
static uint64_t history_count(Client *c, const char *unit) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = history(c, unit);
        sd_json_variant *steps = message_parameter(v, "steps");
        uint64_t n = 0;

        for (size_t i = 0; i < sd_json_variant_elements(steps); i++)
                n += step_count(sd_json_variant_by_index(steps, i));
        return n;
}

/* Each step has the requests of its time, also after a restart of the daemon. */
static void test_steps(void) {
        static const unsigned sent[] = { 14, 0, 500, 62 };
        _cleanup_client_ Client *c = client_new(0);
        uint64_t before = 0, seq;

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        next_step();
        for (size_t i = 0; i < ELEMENTSOF(sent); i++) {
                if (sent[i] > 0)
                        fake_requests(slot_of("a.service"), sent[i], 2 * NSEC_PER_MSEC);
                next_step();
        }

        for (unsigned n = 0; n < 2; n++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = history(c, "a.service");
                sd_json_variant *steps = message_parameter(v, "steps");

                check(sd_json_variant_elements(steps) == ELEMENTSOF(sent) + 1);
                for (size_t i = 0; i < ELEMENTSOF(sent); i++) {
                        sd_json_variant *step = sd_json_variant_by_index(steps, i + 1);
                        sd_json_variant *latency = BY_PATH(step, "requests", "server", "latency");
                        uint64_t begin = sd_json_variant_unsigned(BY_PATH(step, "timestamp"));

                        check(step_count(step) == sent[i]);
                        check(sd_json_variant_unsigned(BY_PATH(latency, "count")) == sent[i]);
                        check(sd_json_variant_unsigned(BY_PATH(step, "covered")) == STEP);
                        check(before == 0 || i == 0 || begin - before == STEP / NSEC_PER_USEC);
                        before = begin;
                        /* A quantile needs enough requests */
                        check(!BY_PATH(latency, "p99") == (sent[i] < 500));
                        check(!BY_PATH(latency, "p50") == (sent[i] == 0));
                        check(!BY_PATH(latency, "mean") == (sent[i] == 0));
                        check(fabs(sd_json_variant_real(BY_PATH(step, "requests", "server", "rate")) * 10 -
                                   sent[i]) < 1e-6);
                }

                seq = get_seq(c);
                c = client_free(c);
                daemon_stop();
                daemon_start();
                c = client_new(0);
                check(get_seq(c) > seq);
                expect_count(c, 0, 14 + 500 + 62);
        }

        /* A detach drops the history */
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        check(history_count(c, "a.service") == 0);
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* A step has the requests in flight at its end, whenever the history is read. */
static void test_in_flight_at_the_end(void) {
        _cleanup_client_ Client *c = client_new(0);

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        next_step();
        fake_in_flight(slot_of("a.service"), 3);
        next_step();
        fake_in_flight(slot_of("a.service"), -3);
        fake_requests(slot_of("a.service"), 3, 11 * NSEC_PER_SEC);
        for (unsigned n = 1; n < 4; n++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
                sd_json_variant *steps;

                next_step();
                v = history(c, "a.service");
                steps = message_parameter(v, "steps");
                check(sd_json_variant_elements(steps) == 2 + n);
                for (size_t i = 0; i < 2 + n; i++) {
                        sd_json_variant *server =
                                BY_PATH(sd_json_variant_by_index(steps, i), "requests", "server");

                        check(sd_json_variant_unsigned(BY_PATH(server, "inFlight")) == (i == 1 ? 3 : 0));
                        check(sd_json_variant_unsigned(BY_PATH(server, "count")) == (i == 2 ? 3 : 0));
                }
        }
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* A file of the history that ends in the middle is discarded, which is logged once, and does not concern
 * other units. */
static void test_broken_history(void) {
        _cleanup_free_ char *path = NULL, *said = NULL, *later = NULL;
        Client *c = client_new(0);
        struct stat st;

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        call_succeeds(c, "Attach", "{\"unit\":\"b\",\"probes\":[\"requests\"]}");
        check(asprintf(&path, "%s/history-%u", directory, slot_of("a.service")) > 0);
        next_step();
        fake_requests(slot_of("a.service"), 10, 2 * NSEC_PER_MSEC);
        fake_requests(slot_of("b.service"), 20, 2 * NSEC_PER_MSEC);
        next_step();
        check(history_count(c, "a.service") == 10 && history_count(c, "b.service") == 20);
        /* Steps that the map of the unit still has are read from there */
        for (unsigned i = 0; i < 8; i++)
                next_step();
        c = client_free(c);

        daemon_stop();
        check(stat(path, &st) >= 0 && st.st_size <= 65536);
        check(truncate(path, st.st_size / 2) >= 0);
        said = daemon_start_logged();
        c = client_new(0);
        check(history_count(c, "a.service") == 0 && history_count(c, "b.service") == 20);
        expect_count(c, 0, 10);
        check(strstr(said, "istory"));
        check(strstr(strstr(said, "istory"), "a.service") && !strstr(strstr(said, "istory") + 1, "istory"));
        c = client_free(c);

        daemon_stop();
        later = daemon_start_logged();
        check(!strstr(later, "istory"));
        c = client_new(0);
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
        client_free(c);
}

/* ---- units in units ----------------------------------------------------------------------------------- */

static uint64_t get_longest(Client *c, const char *unit, uint64_t window) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = get(c, unit, window);

        return sd_json_variant_unsigned(BY_PATH(v, "parameters", "requests", "server", "latency", "max"));
}

/* The metrics of a slice include those of an attached service in it from the attach of the slice on: in the
 * total, in each window, since a mark and in the history, also after the service is detached. */
static void test_nested(void) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_client_ Client *c = client_new(0);

        call_succeeds(c, "Attach", "{\"unit\":\"inner.service\",\"probes\":[\"requests\"]}");
        fake_requests(slot_of("inner.service"), 100, 2 * NSEC_PER_MSEC);
        pass(NSEC_PER_SEC);
        call_succeeds(c, "Attach", "{\"unit\":\"outer.slice\",\"probes\":[\"requests\"]}");
        fake_requests(slot_of("inner.service"), 200, 4 * NSEC_PER_MSEC);
        fake_requests(slot_of("outer.slice"), 70, 2 * NSEC_PER_MSEC);
        expect_count_of(c, "inner.service", 0, 300);
        expect_count_of(c, "outer.slice", 0, 270);
        expect_count_of(c, "outer.slice", 300 * NSEC_PER_SEC, 270);

        /* Windows that begin long after both attaches */
        for (unsigned n = 1; n <= 3; n++) {
                pass(20 * NSEC_PER_SEC);
                expect_count_of(c, "inner.service", NSEC_PER_SEC, 0);
                expect_count_of(c, "outer.slice", NSEC_PER_SEC, 0);
                fake_requests(slot_of("inner.service"), 20, 8 * NSEC_PER_MSEC);
                fake_requests(slot_of("outer.slice"), 10, 2 * NSEC_PER_MSEC);
                expect_count_of(c, "inner.service", NSEC_PER_SEC, 20);
                expect_count_of(c, "outer.slice", NSEC_PER_SEC, 30);
                expect_count_of(c, "outer.slice", 0, 270 + 30 * n);
                check(get_longest(c, "outer.slice", NSEC_PER_SEC) ==
                      get_longest(c, "inner.service", NSEC_PER_SEC));
        }

        call_succeeds(c, "Mark", "{\"unit\":\"outer.slice\"}");
        next_step();
        fake_requests(slot_of("inner.service"), 40, 2 * NSEC_PER_MSEC);
        call_succeeds(c, "Detach", "{\"unit\":\"inner.service\"}");
        fake_requests(slot_of("outer.slice"), 5, 2 * NSEC_PER_MSEC);
        call_succeeds(c, "Attach", "{\"unit\":\"inner.service\",\"probes\":[\"requests\"]}");
        fake_requests(slot_of("inner.service"), 10, 2 * NSEC_PER_MSEC);
        expect_count_of(c, "inner.service", 0, 10);
        expect_count_of(c, "outer.slice", 0, 270 + 90 + 55);
        v = client_call(c, "Get", "{\"unit\":\"outer.slice\",\"sinceMark\":true}");
        check(sd_json_variant_unsigned(BY_PATH(v, "parameters", "requests", "server", "count")) == 55);
        next_step();
        check(history_count(c, "inner.service") == 10);
        check(history_count(c, "outer.slice") == 270 + 90 + 55);

        /* After a restart of the daemon as well */
        c = client_free(c);
        daemon_stop();
        daemon_start();
        c = client_new(0);
        expect_count_of(c, "inner.service", 0, 10);
        expect_count_of(c, "outer.slice", 0, 270 + 90 + 55);
        fake_requests(slot_of("inner.service"), 1, 2 * NSEC_PER_MSEC);
        expect_count_of(c, "outer.slice", 0, 270 + 90 + 56);
        call_succeeds(c, "Detach", "{\"unit\":\"inner.service\"}");
        expect_count_of(c, "outer.slice", 0, 270 + 90 + 56);
        check(fake_count_maps() > 1);
        /* The requests of the service are in no window any more, but in the total */
        pass(700 * NSEC_PER_SEC);
        check(fake_count_maps() == 1);
        expect_count_of(c, "outer.slice", 300 * NSEC_PER_SEC, 0);
        expect_count_of(c, "outer.slice", 0, 270 + 90 + 56);
        call_succeeds(c, "Detach", "{\"unit\":\"outer.slice\"}");
        check(fake_count_maps() == 0);
}

int main(int argc, char **argv) {
        _cleanup_free_ char *state = NULL;

        if (!test_become_plain_root())
                return 77;

        /* Deadline of the whole test */
        (void) alarm(100);
        check(mkdtemp(directory) && setenv("RUNTIME_DIRECTORY", directory, true) >= 0);
        test_on_idle = on_idle;
        check(sd_event_new(&event) >= 0);
        daemon_start();

        test_burst_and_silence();
        test_durations();
        test_threshold();
        test_many_events();
        if (test_has_other_user())
                test_peers();
        test_steps();
        test_in_flight_at_the_end();
        test_broken_history();
        test_nested();

        daemon_stop();
        sd_event_unref(event);
        check(asprintf(&state, "%s/units", directory) > 0 && unlink(state) >= 0);
        /* A unit that is not attached has no file */
        check(rmdir(directory) >= 0);
        return EXIT_SUCCESS;
}
