/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The state in which a unit loses most time, for lists and user interfaces. Pure. */

#include "snapshot.h"

/* shares: NaN: absent; of_service: of the service time of requests, otherwise of the time of threads while
 * requests are in flight. Returns false if all waits are insignificant. */
bool worst_wait_find(const double shares[static QOS_STATES], bool of_service, enum qos_state *ret_state,
                     double *ret_share);

/* Whether states are known for enough requests to represent all. attributed: share of requests. */
bool worst_wait_is_of_service(double attributed);
