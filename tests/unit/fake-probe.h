/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A stand-in for src/probe that needs no kernel: the maps of units are memory, in which tests record
 * requests with the code that the BPF programs run. It has the probe "requests" alone. */

#include <stdint.h>

#include "unit-map.h"

/* n requests to the unit in this slot, which end now and have taken so long. */
void fake_requests(unsigned slot, unsigned n, uint64_t nsec);
/* n more, or less, are in flight. */
void fake_in_flight(unsigned slot, int n);
/* n requests of the unit to a peer. */
void fake_peer_requests(unsigned slot, const struct qos_address *peer, unsigned n, uint64_t nsec);

/* How many units have a map. */
unsigned fake_count_maps(void);
