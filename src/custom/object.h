/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Checks the object file of a custom probe, which may be hostile, before anything of it is loaded: types of
 * programs, the helpers that they call, and the memory of its maps. Loads nothing, needs no privileges. */

#include <systemd/sd-json.h>

#include "custom-names.h"
#include "util.h"

/* Limit of the memory of all maps of a probe, other than those of qosd. */
#define OBJECT_MAPS_SIZE_MAX (4U << 20)

/* Returns its programs and its hash. -EINVAL: it is invalid, for a reason in ret_message. */
int object_check(const void *elf, size_t size, char **ret_message, sd_json_variant **ret);
