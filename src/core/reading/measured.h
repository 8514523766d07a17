/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Which values the attached programs measure. */

#include "manager.h"
#include "snapshot-fill.h"

/* Bits of Measured. */
uint64_t manager_get_measured(Manager *m);
