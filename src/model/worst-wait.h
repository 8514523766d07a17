/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The state in which a unit loses most time, in a word: for lists and user interfaces. Pure. */

#include "snapshot.h"

/* of_service: shares are those of the time of requests, else of the time of threads with requests in flight.
 * Absent ones are NaN. Returns false if no wait is worth mentioning. */
bool worst_wait_find(const double shares[static QOS_STATES], bool of_service, enum qos_state *ret_state,
                     double *ret_share);

/* Whether so large a share of the requests has known states that these stand for all. */
bool worst_wait_is_of_service(double attributed);
