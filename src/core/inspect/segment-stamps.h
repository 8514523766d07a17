/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-json.h>

#include "unit.h"

/* Longest time for which segments are recorded after a request: a ring that nobody reads is of no use. */
#define SEGMENTS_NSEC_MAX (60 * NSEC_PER_SEC)

/* Returns the reply of ListSegments, and has the programs record segments for so long from now on; 0: as
 * before. -ENODATA: the unit is not observed with "network". */
int unit_get_segments(Unit *u, uint64_t duration, sd_json_variant **ret);
