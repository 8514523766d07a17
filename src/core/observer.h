/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What happens to units, for all that want to know: the core calls no server by name.
 *
 * Observers are called in the order in which they were added, from within the core's own functions: they may
 * not attach or detach units. Handlers that are NULL are not called. */

#include <systemd/sd-bus.h>

typedef struct Manager Manager;
typedef struct Unit Unit;
typedef struct ThresholdEvent ThresholdEvent;
typedef struct ManagerObserver ManagerObserver;

struct ManagerObserver {
        void (*unit_attached)(Unit *u, void *userdata);
        /* Its state, control group, invocation, holds, thresholds, relatives, or whether it is degraded */
        void (*unit_changed)(Unit *u, void *userdata);
        /* It can still be found by its name; its thresholds have had their last events */
        void (*unit_detaching)(Unit *u, void *userdata);
        void (*threshold_event)(Unit *u, const ThresholdEvent *e, void *userdata);
        /* All thresholds of a unit were evaluated, and there were events: what is queued should leave now,
         * not when those of all other units were evaluated, too */
        void (*unit_evaluated)(Unit *u, void *userdata);
        /* There were events, and all observers have been told of each: what takes long is done now.
         * threshold_monitor_foreach_event() has them */
        void (*round_end)(Manager *m, void *userdata);
        /* The system bus was connected to. NULL: it is about to be disconnected from. The handler may add
         * and remove other observers */
        void (*bus_changed)(sd_bus *bus, void *userdata);
        void *userdata;
        ManagerObserver *next;
};

/* The observer is the caller's, and has to stay until it is removed. */
void manager_add_observer(Manager *m, ManagerObserver *o);
void manager_remove_observer(Manager *m, ManagerObserver *o);

/* For the core. */
void manager_emit_unit_attached(Unit *u);
void manager_emit_unit_changed(Unit *u);
void manager_emit_unit_detaching(Unit *u);
void manager_emit_threshold_event(Unit *u, const ThresholdEvent *e);
void manager_emit_unit_evaluated(Unit *u);
void manager_emit_round_end(Manager *m);
void manager_emit_bus_changed(Manager *m, sd_bus *bus);
