/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* OnViolated= and OnCleared= of unit files: state changes of thresholds are sent to qosd-actions, which
 * starts the units. The daemon itself has no right to start anything. */

#include "manager.h"

typedef struct EventActions EventActions;

int event_actions_new(Manager *m, EventActions **ret);
EventActions* event_actions_free(EventActions *a);
