/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Notifies the service manager of readiness, and of the status text. */

#include <stdbool.h>

#include "observer.h"

typedef struct ServiceNotify {
        bool ready;                     /* readiness was notified */
        unsigned n_units;               /* in the last status text */
        ManagerObserver observer;
} ServiceNotify;

/* Updates the status text, and notifies readiness when unit files are in effect. */
void service_notify_init(Manager *m);
void service_notify_done(Manager *m);

/* Notifies readiness, once: units ordered after qosd may start. To be called when the settings of unit files
 * are in effect, or cannot be loaded yet. */
void manager_notify_ready(Manager *m);
void manager_notify_status(Manager *m);
