/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* JSON of holds, as in the varlink interface. */

#include <stdint.h>

#include "json-writer.h"

typedef struct Hold Hold;

/* Adds "holds". now: CLOCK_BOOTTIME us. */
void holds_write(const Hold *holds, uint64_t now, JsonWriter *w);
