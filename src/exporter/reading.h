/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* One scrape of qosd, without waiting for it: Export(), ListMetrics() and Probes() on one connection. */

#include <systemd/sd-event.h>

#include "replies.h"

typedef struct Reading Reading;

/* Called once, from the event loop: with 0 when all has been read, with a negative errno when qosd could not
 * be reached, did not reply in time, or refused. The reading may be freed in it. */
typedef void (*reading_done_t)(Reading *reading, int error, void *userdata);

/* Begins a reading of the qosd that listens at the address, which has to stay. Returns a negative errno if
 * nobody listens there. */
int reading_new(sd_event *event, const char *address, reading_done_t done, void *userdata, Reading **ret);
Reading* reading_free(Reading *reading);

const Replies* reading_get_catalogue(const Reading *reading);
const Replies* reading_get_units(const Reading *reading);
const Replies* reading_get_programs(const Reading *reading);
