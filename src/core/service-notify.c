/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <systemd/sd-daemon.h>

#include "log.h"
#include "manager.h"
#include "service-notify.h"
#include "startup.h"

void manager_notify_ready(Manager *m) {
        if (m->notify.ready)
                return;
        m->notify.ready = true;
        if (!ready_notify())
                log_notice("Startup exceeded the ordering timeout, the first requests of units "
                           "started meanwhile may be missed.");
}

void manager_notify_status(Manager *m) {
        m->notify.n_units = m->units.n;
        if (m->units.n == 0)
                (void) sd_notify(false, "STATUS=Nothing is attached.");
        else
                (void) sd_notifyf(false, "STATUS=Observing %u unit%s.", m->units.n,
                                  m->units.n == 1 ? "" : "s");
}

static void on_state_changed(Manager *m, void *userdata) {
        if (m->units.n != m->notify.n_units)
                manager_notify_status(m);
}

static void on_unit_files_loaded(Manager *m, void *userdata) {
        manager_notify_ready(m);
}

void service_notify_init(Manager *m) {
        m->notify.observer = (ManagerObserver) {
                .state_changed = on_state_changed,
                .unit_detached = on_state_changed,
                .unit_files_loaded = on_unit_files_loaded,
        };
        manager_add_observer(m, &m->notify.observer);
}

void service_notify_done(Manager *m) {
        manager_remove_observer(m, &m->notify.observer);
}
