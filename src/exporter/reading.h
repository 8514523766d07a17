/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Asynchronous readings of qosd: Export(), and ListMetrics() before the first one on a connection, the
 * replies of which do not change while qosd runs. The connection is kept between readings. */

#include <systemd/sd-event.h>

#include "replies.h"

typedef struct Reader Reader;

/* Called from the event loop at the end of each reading: with 0 when it is complete, with a negative errno
 * if qosd has not replied in time, or refused. Replies of Export() are freed afterwards. */
typedef void (*reading_done_t)(Reader *reader, int error, void *userdata);

/* address has to stay valid. tables: with endpoints and devices of units. */
int reader_new(sd_event *event, const char *address, bool tables, reading_done_t done, void *userdata,
               Reader **ret);
Reader* reader_free(Reader *reader);

/* Begins a reading, unless one is in progress, which is a bug. Returns a negative errno if the connection
 * fails. */
int reader_begin(Reader *reader);
bool reader_is_busy(const Reader *reader);

const Replies* reader_get_catalogue(const Reader *reader);
const Replies* reader_get_exports(const Reader *reader);
