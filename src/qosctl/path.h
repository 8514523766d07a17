/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Latency between two hosts, from the times at which both have seen the same bytes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A byte of a stream, as ListSegments() has it. */
typedef struct Segment {
        unsigned kind;                  /* enum qos_stamp_kind */
        uint16_t local_port, peer_port;
        uint32_t position;
        int64_t at;                     /* ns since 1970, by the clock of its host */
} Segment;

/* One direction: differences of the time of arrival and that of departure, by two clocks. */
typedef struct Way {
        int64_t *differences;           /* ascending */
        size_t n;
} Way;

/* Joins the departures of a host with the arrivals of the other one. What one of them has retransmitted is
 * left out: it is not known which of both has arrived. */
int way_join(const Segment *leaving, size_t n_leaving, const Segment *arriving, size_t n_arriving, Way *ret);
void way_done(Way *w);
int64_t way_quantile(const Way *w, double q);

/* By how much the clock of the other host is ahead of this one: no segment arrives before it has left. Both
 * ways have some. Returns whether there is such an offset: not if a clock was set meanwhile. */
bool ways_get_offset(const Way *there, const Way *back, int64_t *ret_lowest, int64_t *ret_highest);
