/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Notifications about units: the core calls no server by name.
 *
 * Observers are called in the order of registration, from within functions of the core, and must not attach
 * or detach units. Handlers may be NULL. */

#include <systemd/sd-bus.h>

typedef struct Manager Manager;
typedef struct Unit Unit;
typedef struct ThresholdEvent ThresholdEvent;
typedef struct ManagerObserver ManagerObserver;

struct ManagerObserver {
        void (*unit_attached)(Unit *u, void *userdata);
        /* State, control group, invocation, holds, thresholds, hierarchy or degraded state have changed */
        void (*unit_changed)(Unit *u, void *userdata);
        /* Its control groups have been assigned, in several turns */
        void (*unit_claimed)(Unit *u, void *userdata);
        /* About to be detached: still found by name; last events of its thresholds have been emitted */
        void (*unit_detaching)(Unit *u, void *userdata);
        void (*threshold_event)(Unit *u, const ThresholdEvent *e, void *userdata);
        /* All thresholds of the unit were evaluated, with events: queued data should be sent now, not after
         * the evaluation of all other units */
        void (*unit_evaluated)(Unit *u, void *userdata);
        /* All observers have received the events of this round, and may start slow operations.
         * threshold_monitor_foreach_event() iterates over the events */
        void (*round_end)(Manager *m, void *userdata);
        /* Connected to the system bus. NULL: about to be disconnected. The handler may add and remove other
         * observers */
        void (*bus_changed)(sd_bus *bus, void *userdata);
        /* The contents of the state file have changed. It is written before this returns */
        void (*state_changed)(Manager *m, void *userdata);
        /* A unit was detached. The state file lists it without holds already, so that the next run would
         * detach it: writing it may be deferred */
        void (*unit_detached)(Manager *m, void *userdata);
        /* Loading programs beside the event loop has ended: all attached units were started, or have no
         * metrics. Control groups of some may still be being assigned (unit_claimed), and custom probes be
         * loaded, after each of which it is called again */
        void (*programs_loaded)(Manager *m, void *userdata);
        /* Unit files may have changed: PID 1 has read them, at startup or at a daemon-reload */
        void (*units_reloaded)(Manager *m, void *userdata);
        /* The settings of all unit files are in effect */
        void (*unit_files_loaded)(Manager *m, void *userdata);
        void *userdata;
        ManagerObserver *next;
};

/* The caller owns the observer, which has to stay valid until removed. */
void manager_add_observer(Manager *m, ManagerObserver *o);
void manager_remove_observer(Manager *m, ManagerObserver *o);

/* To be called by the core only. */
void manager_emit_unit_attached(Unit *u);
void manager_emit_unit_changed(Unit *u);
void manager_emit_unit_claimed(Unit *u);
void manager_emit_unit_detaching(Unit *u);
void manager_emit_threshold_event(Unit *u, const ThresholdEvent *e);
void manager_emit_unit_evaluated(Unit *u);
void manager_emit_round_end(Manager *m);
void manager_emit_bus_changed(Manager *m, sd_bus *bus);
void manager_emit_state_changed(Manager *m);
void manager_emit_unit_detached(Manager *m);
void manager_emit_programs_loaded(Manager *m);
void manager_emit_units_reloaded(Manager *m);
void manager_emit_unit_files_loaded(Manager *m);
