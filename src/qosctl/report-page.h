/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The page of a report: HTML without anything from elsewhere. */

#include <stdio.h>
#include <systemd/sd-json.h>

#include "history-charts.h"
#include "util.h"

/* Windows of the table of figures. */
#define REPORT_WINDOWS 3

typedef struct Report {
        char *unit;                     /* owned by the caller, as the rest */
        const char *host;               /* NULL: hidden */
        uint64_t now, since, until;     /* ns since 1970 */
        bool redacted;
        /* Replies of qosd; NULL: there is none */
        sd_json_variant *status;        /* of GetStatus */
        sd_json_variant *snapshots[REPORT_WINDOWS]; /* of Get: 10 s, 5 min, since the attach */
        sd_json_variant *history;       /* of all metrics */
        sd_json_variant *buckets;       /* history of requests.server.latency */
        sd_json_variant *diagnosis;
        const char *diagnosis_error;    /* why there is none */
        sd_json_variant *thresholds;    /* array of ListThresholds */
        sd_json_variant *crossings;     /* array, see crossings.h; NULL: not of this host */
} Report;

/* Returns a negative errno if the page cannot be drawn. */
int report_print(FILE *f, const Report *r);
