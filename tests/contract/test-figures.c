/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What clients see of requests over time: windows, thresholds, durations of holds, and the users that see
 * peers. The daemon is in this process, with a stand-in for what is in the kernel, and clocks that go on as
 * the test lets them. */

#include <arpa/inet.h>

#include <systemd/sd-varlink.h>

#include "fake-probe.h"
#include "log.h"
#include "manager.h"
#include "util-bus.h"
#include "util-clock.h"
#include "util-varlink.h"

static Manager *manager;

static FakeUnit units[] = {
        { .id = "a.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/a.service", .slice = "system.slice" },
        { .id = "b.service", .active_state = "active", .sub_state = "running",
          .control_group = "/system.slice/b.service", .slice = "system.slice" },
        {}
};

static void on_idle(void) {
        clock_advance(NSEC_PER_MSEC);
}

/* Lets so much time pass, in steps in which the daemon does what is due. */
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

static void expect_count(Client *c, uint64_t window, uint64_t count) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = get(c, "a.service", window);
        sd_json_variant *server = BY_PATH(v, "parameters", "requests", "server");
        uint64_t got = sd_json_variant_unsigned(BY_PATH(server, "count"));

        check(sd_json_variant_unsigned(BY_PATH(server, "latency", "count")) == got);
        check(!BY_PATH(server, "latency", "p50") == (got == 0));
        if (got != count) {
                fprintf(stderr, "%" PRIu64 " requests in %" PRIu64 " ns instead of %" PRIu64 "\n", got,
                        window, count);
                exit(EXIT_FAILURE);
        }
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

/* A hold with a duration ends by itself, another one of the unit does not, and keeps its totals. */
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
        /* To a minute */
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

/* So many seconds of load, at the end of each of which the threshold is in this state. NULL: in any. */
static void expect_seconds(Client *c, unsigned n, uint64_t nsec, const char *state) {
        while (n-- > 0) {
                fake_requests(slot_of("a.service"), 1000, nsec);
                pass(NSEC_PER_SEC);
                if (state)
                        expect_state(c, state);
        }
}

/* Violated when the figure was above the limit for as long as it says, and not ok again before the figure
 * was below the other limit for as long as it says. */
static void test_threshold(void) {
        _cleanup_client_ Client *c = client_new(0);

        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"probes\":[\"requests\"]}");
        call_succeeds(c, "SetThreshold",
                      "{\"unit\":\"a\",\"threshold\":\"slow: requests.server.firstByte.p99 > 10ms over 10s "
                      "for 5s, clear 5ms for 20s\"}");
        /* A second more or less, which evaluations may take */
        expect_seconds(c, 19, 2 * NSEC_PER_MSEC, "unknown");
        expect_seconds(c, 2, 2 * NSEC_PER_MSEC, NULL);
        expect_seconds(c, 3, 2 * NSEC_PER_MSEC, "ok");
        expect_seconds(c, 4, 20 * NSEC_PER_MSEC, "ok");
        expect_seconds(c, 2, 20 * NSEC_PER_MSEC, NULL);
        expect_seconds(c, 2, 20 * NSEC_PER_MSEC, "violated");
        /* Between the limits */
        expect_seconds(c, 60, 7 * NSEC_PER_MSEC, "violated");
        /* The window of 10 s has the last of these for 9 s at least, and then it takes 20 s */
        expect_seconds(c, 28, 2 * NSEC_PER_MSEC, "violated");
        expect_seconds(c, 3, 2 * NSEC_PER_MSEC, NULL);
        expect_seconds(c, 3, 2 * NSEC_PER_MSEC, "ok");
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* Peers are for root, and for the user that owns the control group. */
static void test_peers(void) {
        struct qos_address address = { .address = { 127, 0, 0, 9 }, .port = 6379, .family = AF_INET };
        _cleanup_client_ Client *c = client_new(0), *nobody = client_new(TEST_OTHER_UID);
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

        /* It sees all others */
        v = get(nobody, "a.service", 0);
        check(sd_json_variant_unsigned(BY_PATH(v, "parameters", "requests", "server", "count")) == 30);
        check(!BY_PATH(v, "parameters", "requests", "client", "peers"));
        sd_json_variant_unref(v);
        call_fails(nobody, NULL, "Get",
                   "{\"unit\":\"a\",\"metrics\":[\"requests.client[127.0.0.9:6379].count\"]}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);
        call_fails(nobody, NULL, "Detach", "{\"unit\":\"a\"}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

int main(int argc, char **argv) {
        sd_bus *daemon_side, *system_side;
        FakeServiceManager pid1;

        if (!test_become_plain_root())
                return 77;

        check(unsetenv("RUNTIME_DIRECTORY") >= 0);
        test_on_idle = on_idle;
        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &system_side);
        fake_service_manager_start(&pid1, system_side, units);
        check(manager_set_bus(manager, daemon_side) >= 0);
        check(varlink_server_new_peer(manager, &varlink_server) >= 0);

        test_burst_and_silence();
        test_durations();
        test_threshold();
        if (test_has_other_user())
                test_peers();

        varlink_server_free(varlink_server);
        manager_free(manager);
        sd_bus_unref(daemon_side);
        sd_bus_flush_close_unref(system_side);
        sd_event_unref(event);
        return EXIT_SUCCESS;
}
