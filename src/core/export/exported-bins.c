/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "exported-bins.h"
#include "rising-bins.h"

struct ExportedBins {
        uint64_t attached_since;        /* of the unit */
        uint64_t latency[QOS_DISTRIBUTION_BINS(QOS_LATENCY)];
        uint64_t receive[QOS_DISTRIBUTION_BINS(QOS_RECEIVE)]; /* moves only while it is being recorded */
        uint64_t answer[QOS_DISTRIBUTION_BINS(QOS_ANSWER)];
        uint64_t client[HISTOGRAM_COARSE_BINS];
};

int exported_bins_raise(ExportedBins **e, uint64_t attached_since, TotalReading *total) {
        ExportedBins *b = *e;

        if (!b) {
                b = *e = new0(ExportedBins, 1);
                if (!b)
                        return -ENOMEM;
        }
        if (b->attached_since != attached_since)
                *b = (ExportedBins) { .attached_since = attached_since };

        bins_raise(b->latency, total->requests.cells + QOS_DISTRIBUTION_FIRST_COUNTER(QOS_LATENCY),
                   ELEMENTSOF(b->latency));
        bins_raise(b->receive, total->requests.cells + QOS_DISTRIBUTION_FIRST_COUNTER(QOS_RECEIVE),
                   ELEMENTSOF(b->receive));
        bins_raise(b->answer, total->requests.cells + QOS_DISTRIBUTION_FIRST_COUNTER(QOS_ANSWER),
                   ELEMENTSOF(b->answer));
        bins_raise(b->client, total->client.cells, ELEMENTSOF(b->client));
        return 0;
}
