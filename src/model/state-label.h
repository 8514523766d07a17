/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "unit-map.h"

/* Names of thread states in JSON, on D-Bus and in metrics, such as "runQueue". NULL: QOS_STATE_NONE. */
const char* qos_state_to_string(enum qos_state s);

/* Word for a state in all texts, tables and sentences alike, such as "CPU run queue" for "runQueue". It is
 * short, as it stands in columns. Unknown names, from a newer qosd, are returned as they are. */
const char* thread_state_label(const char *name);
