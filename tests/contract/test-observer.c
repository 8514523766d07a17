/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Events for observers of the core, and their order. */

#include "manager.h"
#include "observer.h"
#include "threshold-monitor.h"
#include "util-bus.h"

/* One word for each event, with the name of the observer in front. */
static char events[4096];
static Manager *manager;

static void note(const char *observer, const char *event, const char *of) {
        (void) snprintf(events + strlen(events), sizeof(events) - strlen(events), "%s%s:%s:%s",
                        *events ? " " : "", observer, event, of);
}

static void on_attached(Unit *u, void *userdata) {
        check(manager_get_unit(manager, u->name, NULL) == u);
        note(userdata, "attached", u->name);
}

static void on_changed(Unit *u, void *userdata) {
        check(manager_get_unit(manager, u->name, NULL) == u);
        note(userdata, "changed", u->name);
}

static void on_detaching(Unit *u, void *userdata) {
        check(manager_get_unit(manager, u->name, NULL) == u);
        check(!u->thresholds);
        note(userdata, "detaching", u->name);
}

static void on_event(Unit *u, const ThresholdEvent *e, void *userdata) {
        check(streq(e->unit, u->name));
        check(manager_get_unit(manager, u->name, NULL) == u);
        note(userdata, threshold_state_to_string(e->state), e->rule.name);
}

static void on_round_end(Manager *m, void *userdata) {
        check(m == manager);
        note(userdata, "round", "end");
}

static void on_bus(sd_bus *bus, void *userdata) {
        check(manager->system_bus.bus);
        note(userdata, "bus", bus ? "connected" : "lost");
}

static void on_state(Manager *m, void *userdata) {
        check(m == manager);
        note(userdata, "state", "changed");
}

static void on_detached(Manager *m, void *userdata) {
        check(m == manager);
        note(userdata, "state", "detached");
}

#define OBSERVER(name)                                                                                  \
        {                                                                                               \
                .unit_attached = on_attached,                                                           \
                .unit_changed = on_changed,                                                             \
                .unit_detaching = on_detaching,                                                         \
                .threshold_event = on_event,                                                            \
                .round_end = on_round_end,                                                              \
                .bus_changed = on_bus,                                                                  \
                .state_changed = on_state,                                                              \
                .unit_detached = on_detached,                                                           \
                .userdata = (void*) name,                                                               \
        }

/* The state file is to be written. */
#define SAVED "1:state:changed 2:state:changed"

/* All that has happened since the last time. */
static void expect(const char *what) {
        if (!streq(events, what)) {
                fprintf(stderr, "expected '%s', not '%s'\n", what, events);
                exit(EXIT_FAILURE);
        }
        events[0] = 0;
}

static void on_result(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        check(error >= 0);
        *(bool*) userdata = true;
}

static Unit* attach(sd_event *event, const char *name) {
        bool done = false;

        check(manager_attach(manager, &(AttachRequest) { .name = name, .type = HOLD_ADMINISTRATOR,
                                                         .duration_usec = USEC_INFINITY },
                             on_result, &done, NULL) >= 0);
        test_wait(event, done);
        return manager_get_unit(manager, name, NULL);
}

int main(int argc, char **argv) {
        FakeUnit units[] = {
                { .id = "a.service", .active_state = "inactive", .sub_state = "dead", .slice =
                  "system.slice" },
                { .id = "system.slice", .active_state = "active", .sub_state = "active",
                  .control_group = "/system.slice" },
                {}
        };
        ManagerObserver first = OBSERVER("1"), second = OBSERVER("2"), silent = {};
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        sd_bus *daemon_side, *client, *other_side, *other_client;
        FakeServiceManager pid1;
        Threshold *threshold;
        Unit *a;

        (void) test_become_plain_root();
        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &client);
        fake_service_manager_start(&pid1, client, units);
        check(manager_set_bus(manager, daemon_side) >= 0);

        manager_add_observer(manager, &first);
        manager_add_observer(manager, &silent); /* it need not want to know anything */
        manager_add_observer(manager, &second);

        a = attach(event, "a.service");
        expect("1:attached:a.service 2:attached:a.service " SAVED);
        /* Its hold is renewed */
        check(attach(event, "a.service") == a);
        expect("1:changed:a.service 2:changed:a.service " SAVED);

        /* Units in it change, too: their ancestors have */
        check(attach(event, "system.slice"));
        expect("1:attached:system.slice 2:attached:system.slice 1:changed:a.service 2:changed:a.service "
               SAVED);

        units[0].active_state = "active";
        units[0].control_group = "/system.slice/a.service";
        fake_service_manager_changed(&pid1, "a.service");
        test_wait(event, streq(a->active_state, "active") && !a->refresh);
        expect("1:changed:a.service 2:changed:a.service " SAVED);

        check(threshold_set(manager, &(ThresholdRequest) { .unit = "a.service", .threshold =
                                                           "slow: requests.server.latency.p99 > 10ms over "
                                                           "10s",
                            .source = THRESHOLD_SOURCE_ADMINISTRATOR }, &threshold, NULL) >= 0);
        expect("1:changed:a.service 2:changed:a.service " SAVED);

        /* The last event of a threshold that is violated, then that its unit goes, which is known until
         * then, and its relatives. Saved before, for a crash in between, and later again */
        threshold->machine.state = threshold->reported = THRESHOLD_VIOLATED;
        check(manager_detach(manager, "a.service", NULL, 0, NULL) >= 0);
        expect(SAVED " 1:unknown:slow 2:unknown:slow 1:round:end 2:round:end 1:detaching:a.service "
               "2:detaching:a.service 1:changed:system.slice 2:changed:system.slice 1:state:detached "
               "2:state:detached");

        check(manager_set_bus(manager, NULL) >= 0);
        expect("1:bus:lost 2:bus:lost");
        test_bus_pair(event, 0, &other_side, &other_client);
        check(manager_set_bus(manager, other_side) >= 0);
        expect("1:bus:connected 2:bus:connected");

        manager_remove_observer(manager, &first);
        check(manager_detach(manager, "system.slice", NULL, 0, NULL) >= 0);
        expect("2:state:changed 2:detaching:system.slice 2:state:detached");

        manager_remove_observer(manager, &silent);
        manager_remove_observer(manager, &second);
        manager_free(manager);
        sd_bus_flush_close_unref(client);
        sd_bus_flush_close_unref(other_client);
        sd_bus_unref(daemon_side);
        sd_bus_unref(other_side);
        return EXIT_SUCCESS;
}
