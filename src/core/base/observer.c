/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "manager.h"
#include "observer.h"

/* Reads the next pointer after the call: handlers may add and remove observers. */
#define EMIT(m, handler, ...)                                                                           \
        for (const ManagerObserver *_o = (m)->observers; _o; _o = _o->next)                             \
                if (_o->handler)                                                                        \
                        _o->handler(__VA_ARGS__, _o->userdata)

void manager_add_observer(Manager *m, ManagerObserver *o) {
        ManagerObserver **end = &m->observers;

        while (*end)
                end = &(*end)->next;
        o->next = NULL;
        *end = o;
}

void manager_remove_observer(Manager *m, ManagerObserver *o) {
        for (ManagerObserver **p = &m->observers; *p; p = &(*p)->next)
                if (*p == o) {
                        *p = o->next;
                        return;
                }
}

void manager_emit_unit_attached(Unit *u) {
        EMIT(u->manager, unit_attached, u);
}

void manager_emit_unit_changed(Unit *u) {
        EMIT(u->manager, unit_changed, u);
}

void manager_emit_unit_claimed(Unit *u) {
        EMIT(u->manager, unit_claimed, u);
}

void manager_emit_unit_detaching(Unit *u) {
        EMIT(u->manager, unit_detaching, u);
}

void manager_emit_threshold_event(Unit *u, const ThresholdEvent *e) {
        EMIT(u->manager, threshold_event, u, e);
}

void manager_emit_unit_evaluated(Unit *u) {
        EMIT(u->manager, unit_evaluated, u);
}

void manager_emit_round_end(Manager *m) {
        EMIT(m, round_end, m);
}

void manager_emit_bus_changed(Manager *m, sd_bus *bus) {
        EMIT(m, bus_changed, bus);
}

void manager_emit_state_changed(Manager *m) {
        EMIT(m, state_changed, m);
}

void manager_emit_unit_detached(Manager *m) {
        EMIT(m, unit_detached, m);
}

void manager_emit_programs_loaded(Manager *m) {
        EMIT(m, programs_loaded, m);
}

void manager_emit_units_reloaded(Manager *m) {
        EMIT(m, units_reloaded, m);
}

void manager_emit_unit_files_loaded(Manager *m) {
        EMIT(m, unit_files_loaded, m);
}
