/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* OnViolated= and OnCleared= of unit files: sends state changes of thresholds to qosd-actions, which starts
 * the units. The daemon itself is not permitted to start units. */

#include "manager.h"

typedef struct EventActions EventActions;

int event_actions_new(Manager *m, EventActions **ret);
EventActions* event_actions_free(EventActions *a);
