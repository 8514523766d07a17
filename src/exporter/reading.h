/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Readings of qosd, without waiting for them: Export(), and before the first one on a connection
 * ListMetrics(), the replies of which are the same for as long as a qosd lives. The connection stays between
 * readings. */

#include <systemd/sd-event.h>

#include "replies.h"

typedef struct Reader Reader;

/* Called for each reading that has begun, from the event loop: with 0 when all has been read, with a
 * negative errno when qosd did not reply in time, or refused. Replies of Export() are freed behind it. */
typedef void (*reading_done_t)(Reader *reader, int error, void *userdata);

/* The address has to stay. tables: with endpoints and devices of units. */
int reader_new(sd_event *event, const char *address, bool tables, reading_done_t done, void *userdata,
               Reader **ret);
Reader* reader_free(Reader *reader);

/* Begins a reading, unless one is in progress, which is a bug. Returns a negative errno if the connection
 * fails. */
int reader_begin(Reader *reader);
bool reader_is_busy(const Reader *reader);

const Replies* reader_get_catalogue(const Reader *reader);
const Replies* reader_get_exports(const Reader *reader);
