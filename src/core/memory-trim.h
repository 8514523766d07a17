/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Returns memory to the system that the C library keeps after free(): replies of all clients together may
 * have taken many MiB. Deferred while clients have turns, which would allocate it again at once. */

#include <systemd/sd-event.h>

#include "turns.h"

typedef struct MemoryTrim MemoryTrim;

int memory_trim_new(sd_event *event, TurnQueue *turns, MemoryTrim **ret);
MemoryTrim* memory_trim_free(MemoryTrim *t);

/* handler: frees caches before memory is returned; true: there is more to free. NULL: no caches. */
void memory_trim_set_cache(MemoryTrim *t, bool (*handler)(void *userdata), void *userdata);

/* Schedules a trim in one second. */
void memory_trim_schedule(MemoryTrim *t);
/* Trims immediately if the last trim was at least one second ago, so that no timer wakes up an idle daemon;
 * otherwise one second after that. */
void memory_trim_request(MemoryTrim *t);
