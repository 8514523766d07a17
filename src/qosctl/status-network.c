/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What TCP counts of connections. */

#include "format.h"
#include "qosctl.h"
#include "status-internal.h"

#define NETWORK "network."

static void add_loss(const Reading *r, double seconds) {
        uint64_t segments, bytes, sent, recoveries, timeouts;
        char a[FORMAT_MAX], b[FORMAT_MAX];

        if (!reading_unsigned(r, NETWORK "retransmits", &segments) ||
            !reading_unsigned(r, NETWORK "retransmittedBytes", &bytes) ||
            !reading_unsigned(r, NETWORK "bytesSent", &sent) ||
            !reading_unsigned(r, NETWORK "timeouts", &timeouts))
                return;
        line_add("retransmits %s", format_rate(a, (double) segments / seconds));
        if (segments == 0)
                return;
        if (sent > 0)
                line_add(", %s of bytes sent", format_percent(b, (double) bytes / (double) sent));
        if (reading_unsigned(r, NETWORK "recoveries", &recoveries))
                line_add(", recoveries %s", format_count(a, recoveries));
        line_add(", timeouts %s", format_count(b, timeouts));
}

int reading_print_network(const Reading *r) {
        static const struct {
                const char *metric, *label;
        } limits[] = {
                { NETWORK "limitedBy.application", "application"   },
                { NETWORK "limitedBy.peerWindow",  "peer's window" },
                { NETWORK "limitedBy.sendBuffer",  "send buffer"   },
                { NETWORK "limitedBy.network",     "network"       },
        };
        uint64_t covered, sent, received;
        char a[FORMAT_MAX], b[FORMAT_MAX];
        double seconds, share;
        bool some = false;

        if (!reading_unsigned(r, NETWORK "covered", &covered) || covered == 0 ||
            !reading_unsigned(r, NETWORK "bytesSent", &sent) ||
            !reading_unsigned(r, NETWORK "bytesReceived", &received))
                return 0;
        seconds = (double) covered / (double) NSEC_PER_SEC;

        line_end();
        print_line("TCP", "%s/s sent, %s/s received",
                   format_bytes(a, (uint64_t) ((double) sent / seconds)),
                   format_bytes(b, (uint64_t) ((double) received / seconds)));
        print_key("");
        add_loss(r, seconds);
        line_end();
        for (size_t i = 0; i < ELEMENTSOF(limits); i++) {
                if (!reading_real(r, limits[i].metric, &share) || share <= 0)
                        continue;
                if (!some)
                        print_key("Limited by");
                line_add("%s%s %s", some ? ", " : "", limits[i].label, format_percent(a, share));
                some = true;
        }
        if (some)
                line_end();
        return 0;
}
