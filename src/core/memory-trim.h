/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Returns free memory to the system, which the C library keeps between allocations: replies of all clients
 * together may have taken many MiB. Not while clients have turns: it would be allocated again at once. */

#include <systemd/sd-event.h>

#include "turns.h"

typedef struct MemoryTrim MemoryTrim;

int memory_trim_new(sd_event *event, TurnQueue *turns, MemoryTrim **ret);
MemoryTrim* memory_trim_free(MemoryTrim *t);

/* handler: frees caches before memory is returned; true: there is more to free. NULL: no caches. */
void memory_trim_set_cache(MemoryTrim *t, bool (*handler)(void *userdata), void *userdata);

/* Returns memory in a second. */
void memory_trim_schedule(MemoryTrim *t);
/* The same at once, if the last time was a second ago or more: no timer wakes up an idle daemon then.
 * Otherwise a second after the last time. */
void memory_trim_request(MemoryTrim *t);
