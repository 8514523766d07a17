/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-json.h>

#include "unit.h"

/* Returns the reply of SlowOperations. -ENODATA: the unit is not observed with "storage". */
int unit_get_slow_operations(Unit *u, sd_json_variant **ret);
