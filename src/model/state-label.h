/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "unit-map.h"

/* Names of thread states in JSON, on D-Bus and in metrics, such as "runQueue". NULL: QOS_STATE_NONE. */
const char* qos_state_to_string(enum qos_state s);

/* Label of a state in texts and tables, such as "CPU run queue" for "runQueue". Short, for columns. Unknown
 * names, from a newer qosd, are returned unchanged. */
const char* thread_state_label(const char *name);
