/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* For tests of the daemon on D-Bus: connections without a broker, a fake service manager, and calls that
 * run the event loop of both sides. */

#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>

#include "check.h"
#include "util.h"

/* Continues as root without capabilities, so that no program is loaded; in a user namespace if necessary.
 * Returns false if that is not permitted here. */
bool test_become_plain_root(void);

/* Whether another user than root is available, too. */
bool test_has_other_user(void);
#define TEST_OTHER_UID 65534

/* Two connected ends. Each sees the other as a process of uid. */
void test_bus_pair(sd_event *event, uid_t uid, sd_bus **ret_a, sd_bus **ret_b);

/* Runs the event loop once; fails when nothing happens for ten seconds. */
void test_run(sd_event *event);
/* With stopped clocks: called instead of waiting when the event loop is idle. */
extern void (*test_on_idle)(void);
#define test_wait(event, condition)                                                                     \
        while (!(condition))                                                                            \
                test_run(event)

/* Calls, and waits for the reply. Returns it, or NULL with ret_error (NULL: it must not fail). */
sd_bus_message* test_call_message(sd_bus *bus, sd_bus_message *m, sd_bus_error *ret_error);
sd_bus_message* test_call(sd_bus *bus, const char *path, const char *interface, const char *member,
                          sd_bus_error *ret_error, const char *types, ...);

/* ---- a service manager -------------------------------------------------------------------------------- */

typedef struct FakeUnit {
        const char *id;
        const char *alias;              /* NULL: none */
        const char *load_state;         /* NULL: "loaded" */
        const char *active_state;
        const char *sub_state;
        const char *control_group;      /* empty without a control group */
        const char *slice;              /* NULL: a kind of unit without control groups */
        const char *triggers[3], *triggered_by[3];
        const char *listen[5][2];       /* of a socket: kind and address, for instance "Stream", "[::]:80" */
        bool accept;
} FakeUnit;

typedef struct FakeServiceManager {
        sd_bus *bus;
        FakeUnit *units;                /* the last has no id */
        bool subscribed;
} FakeServiceManager;

/* Adds the objects of PID 1 to a connection; units that are not listed are "not-found". */
void fake_service_manager_start(FakeServiceManager *f, sd_bus *bus, FakeUnit *units);
void fake_service_manager_changed(FakeServiceManager *f, const char *id);
