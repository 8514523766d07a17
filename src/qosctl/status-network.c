/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* What TCP counts of connections. */

#include "format.h"
#include "qosctl.h"
#include "status-internal.h"
#include "value.h"

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

static void add_limits(const Reading *r) {
        static const struct {
                const char *metric, *label;
        } limits[] = {
                { NETWORK "limitedBy.application", "application"   },
                { NETWORK "limitedBy.peerWindow",  "peer's window" },
                { NETWORK "limitedBy.sendBuffer",  "send buffer"   },
                { NETWORK "limitedBy.network",     "network"       },
        };
        char buf[FORMAT_MAX];
        bool some = false;
        double share;

        for (size_t i = 0; i < ELEMENTSOF(limits); i++) {
                if (!reading_real(r, limits[i].metric, &share) || share <= 0)
                        continue;
                if (!some)
                        print_key("Limited by");
                line_add("%s%s %s", some ? ", " : "", limits[i].label, format_percent(buf, share));
                some = true;
        }
        if (some)
                line_end();
}

/* Bytes per second; false: not known. */
static bool get_rate(const Reading *r, const char *metric, double seconds, char buf[static FORMAT_MAX]) {
        uint64_t n;

        if (!reading_unsigned(r, metric, &n))
                return false;
        (void) format_bytes(buf, (uint64_t) ((double) n / seconds));
        return true;
}

static void print_distribution(const Reading *r, const char *path, const char *key, const char *what) {
        static const struct {
                const char *name, *label;
        } shown[] = { { "mean", "mean" }, { "p50", "P50" }, { "p99", "P99" }, { "max", "max" } };
        char metric[64], buf[FORMAT_MAX];
        uint64_t n, nsec;

        (void) snprintf(metric, sizeof(metric), NETWORK "%s.count", path);
        if (!reading_unsigned(r, metric, &n))
                return;
        print_key(key);
        line_add("%s %s", format_count(buf, n), what);
        for (size_t i = 0; i < ELEMENTSOF(shown) && n > 0; i++) {
                (void) snprintf(metric, sizeof(metric), NETWORK "%s.%s", path, shown[i].name);
                if (reading_unsigned(r, metric, &nsec))
                        line_add(", %s %s", shown[i].label, format_duration(buf, nsec));
        }
        line_end();
}

static void print_connecting(const Reading *r) {
        uint64_t retransmits, exhausted, searches;
        char buf[FORMAT_MAX];

        print_distribution(r, "connecting.handshake", "Connecting", "handshakes");
        if (reading_unsigned(r, NETWORK "connecting.ports.count", &searches) && searches > 0)
                print_distribution(r, "connecting.ports", "", "searches for a port");
        if (!reading_unsigned(r, NETWORK "connecting.synRetransmits", &retransmits) ||
            !reading_unsigned(r, NETWORK "connecting.portsExhausted", &exhausted) ||
            retransmits + exhausted == 0)
                return;
        print_key("");
        line_add("SYN retransmitted %s", format_count(buf, retransmits));
        line_add(", without local port %s", format_count(buf, exhausted));
        line_end();
}

/* Mean of each layer; total with its quantiles. */
static void print_receiving(const Reading *r) {
        static const struct {
                const char *name, *label;
        } layers[] = {
                { "driver", "driver" }, { "ip", "IP" }, { "backlog", "backlog" }, { "socket", "socket" },
        };
        char metric[64], buf[FORMAT_MAX];
        uint64_t n, nsec;
        bool any = false;

        for (size_t i = 0; i < ELEMENTSOF(layers); i++) {
                (void) snprintf(metric, sizeof(metric), NETWORK "receiving.%s.count", layers[i].name);
                if (!reading_unsigned(r, metric, &n) || n == 0)
                        continue;
                (void) snprintf(metric, sizeof(metric), NETWORK "receiving.%s.mean", layers[i].name);
                if (!reading_unsigned(r, metric, &nsec))
                        continue;
                if (!any)
                        print_key("Receiving");
                line_add(any ? ", %s mean %s" : "%s mean %s", layers[i].label, format_duration(buf, nsec));
                any = true;
        }
        if (any)
                line_end();
        if (reading_unsigned(r, NETWORK "receiving.total.count", &n) && n > 0)
                print_distribution(r, "receiving.total", "", "segments");
}

/* Reasons that are shown by name. */
#define REASONS_SHOWN 8U

static void print_drops(const Reading *r) {
        sd_json_variant *reasons = value_find(r->snapshot, NETWORK "dropReasons");
        size_t n = reasons ? sd_json_variant_elements(reasons) : 0;
        uint64_t drops, count, others = 0;
        char buf[FORMAT_MAX];

        if (!reading_unsigned(r, NETWORK "drops", &drops) || drops == 0)
                return;
        print_key("Discarded");
        line_add("%s packets", format_count(buf, drops));
        for (size_t i = 0; i < n; i++) {
                sd_json_variant *row = sd_json_variant_by_index(reasons, i);
                const char *reason = value_string(row, "reason");

                if (!value_unsigned(row, "count", &count))
                        continue;
                if (i < REASONS_SHOWN && reason)
                        line_add("%s %s %s", i == 0 ? ":" : ",", reason, format_count(buf, count));
                else
                        others += count;
        }
        if (others > 0)
                line_add(", others %s", format_count(buf, others));
        line_end();
}

static void print_transmitting(const Reading *r) {
        uint64_t n, ip, qdisc;
        char buf[FORMAT_MAX];

        if (reading_unsigned(r, NETWORK "transmitting.ip.mean", &ip) &&
            reading_unsigned(r, NETWORK "transmitting.qdisc", &qdisc)) {
                print_key("Transmitting");
                line_add("IP mean %s", format_duration(buf, ip));
                line_add(", qdisc mean %s", format_duration(buf, qdisc));
                line_end();
        }
        if (reading_unsigned(r, NETWORK "transmitting.total.count", &n) && n > 0)
                print_distribution(r, "transmitting.total", "", "segments");
        if (reading_unsigned(r, NETWORK "transmitting.pacing.count", &n) && n > 0)
                print_distribution(r, "transmitting.pacing", "Paced", "segments");
}

bool network_print(const Reading *r, bool all) {
        char sent[FORMAT_MAX], received[FORMAT_MAX], read[FORMAT_MAX], written[FORMAT_MAX];
        uint64_t covered;
        double seconds;

        if (!reading_unsigned(r, NETWORK "covered", &covered) || covered == 0)
                return false;
        seconds = (double) covered / (double) NSEC_PER_SEC;
        if (!get_rate(r, NETWORK "bytesSent", seconds, sent) ||
            !get_rate(r, NETWORK "bytesReceived", seconds, received) ||
            !get_rate(r, NETWORK "bytesRead", seconds, read) ||
            !get_rate(r, NETWORK "bytesWritten", seconds, written))
                return false;

        if (all) {
                print_line("Written", "%s/s, sent %s/s", written, sent);
                print_line("Received", "%s/s, read %s/s", received, read);
                print_key("Loss");
        } else {
                print_line("TCP", "%s/s sent, %s/s received", sent, received);
                print_key("");
        }
        add_loss(r, seconds);
        line_end();
        add_limits(r);
        print_drops(r);
        if (!all)
                return true;
        print_distribution(r, "rtt", "Round trips", "samples");
        print_distribution(r, "rttKernel", "Own kernel", "samples");
        print_distribution(r, "rttWire", "Wire and peer", "samples");
        print_connecting(r);
        print_receiving(r);
        print_transmitting(r);
        print_distribution(r, "duration", "Ended", "connections");
        return true;
}

int reading_print_network(const Reading *r) {
        uint64_t sent;

        if (!reading_unsigned(r, NETWORK "bytesSent", &sent))
                return 0;
        line_end();
        (void) network_print(r, /* all= */ false);
        return 0;
}
