/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* What units have counted, in the text formats of Prometheus. */

#include <stdio.h>

#include "replies.h"

typedef enum Exposition {
        EXPOSITION_OPENMETRICS,         /* OpenMetrics 1.0 */
        EXPOSITION_PROMETHEUS,          /* Prometheus text 0.0.4 */
        _EXPOSITION_MAX,
} Exposition;

/* Writes the replies to ListMetrics(), to Export() without the last one, and to Probes(), which may be none.
 * The end of an OpenMetrics text is left to the caller, which may have families of its own. Errors of writing
 * are those of the stream. Returns -EBADMSG if a reply is invalid, or -ENOMEM. */
int exposition_write(FILE *file, Exposition format, const Replies *catalogue, const Replies *units,
                     const Replies *programs);
