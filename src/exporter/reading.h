/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Asynchronous readings of qosd by Export(), and by ListMetrics() for the first one on a connection, as its
 * replies do not change while qosd runs. The connection is kept open between readings. */

#include <systemd/sd-event.h>

#include "replies.h"

typedef struct Reader Reader;

/* Called from the event loop at the end of a reading. error: 0, or a negative errno if qosd has not replied
 * in time or with an error. Replies to Export() are freed afterwards. */
typedef void (*reading_done_t)(Reader *reader, int error, void *userdata);

/* address has to be valid as long as the reader. tables: whether to read endpoints and devices of units. */
int reader_new(sd_event *event, const char *address, bool tables, reading_done_t done, void *userdata,
               Reader **ret);
Reader* reader_free(Reader *reader);

/* Begins a reading. None may be in progress. Returns a negative errno if connecting fails. */
int reader_begin(Reader *reader);
bool reader_is_busy(const Reader *reader);

const Replies* reader_get_catalogue(const Reader *reader);
const Replies* reader_get_exports(const Reader *reader);
