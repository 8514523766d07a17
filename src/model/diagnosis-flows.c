/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rules for what TCP counts of all connections of the unit, with the probe "network". */

#include <math.h>

#include "diagnosis-internal.h"

/* Minimum bytes sent, and received: with less, the share of what is lost depends on single segments. */
#define BYTES_MIN 100e3
/* Minimum share of bytes that are retransmitted: some clients have lossy paths at any time. */
#define RETRANSMITTED_MIN 0.02
/* Minimum share of packets that this machine discards, and per second. */
#define DROPS_MIN 0.01
#define DROPS_RATE_MIN 1.0
/* Approximate payload of a packet. */
#define PACKET_BYTES 1400.0
/* Minimum share of the time of connections in which they have data to send, and of that time with one
 * cause. */
#define BUSY_MIN 0.5
#define LIMIT_MIN 0.5
/* Minimum round-trip time of a path whose length limits sending: within a machine it is less. */
#define RTT_MIN (1.0 * NSEC_PER_MSEC)

typedef struct LimitRule {
        FindingKind kind;
        const char *rule, *what, *remedy;
} LimitRule;

static const LimitRule limit_rules[] = {
        {
                FINDING_RECEIVE_WINDOW,
                "connections have data to send for half of their time or more, and for half of that their "
                "peers' receive windows are full",
                "peers read too slowly, and their receive windows are full",
                "the peers, or what they write to, have to be faster",
        },
        {
                FINDING_SEND_BUFFER,
                "connections have data to send for half of their time or more, and for half of that their "
                "send buffers are full",
                "the send buffers are smaller than what the path and the peers take",
                "leave SO_SNDBUF unset, or raise net.ipv4.tcp_wmem",
        },
        {
                FINDING_NETWORK,
                "connections have data to send for half of their time or more, for half of that their data "
                "is on its way or waits for the congestion window, and round trips take 1 ms or more",
                "the path is slow, and data waits for acknowledgements",
                "less data, or servers closer to their peers, help",
        },
};

static void diagnose_limit_of_sending(const DiagnosisFlows *n, const LimitRule *rule, double share,
                                      Diagnosis *d) {
        double busy = n->by_peer_window + n->by_send_buffer + n->by_network;

        if (!(busy >= BUSY_MIN) || share < LIMIT_MIN * busy || diagnosis_has(d, rule->kind))
                return;
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = rule->kind, .certainty = CERTAINTY_LIKELY, .share = NAN, .time = NAN,
                        .rule = rule->rule,
                }, "%s for %s of the time of connections, which have data to send for %s of it; %s",
                rule->what, PERCENT(share), PERCENT(busy), rule->remedy);
}

/* Whether this machine discards packets. What accept queues discard has a kind of its own. */
static bool is_dropping(const DiagnosisFlows *n) {
        return n->drops >= DROPS_RATE_MIN && strcmp(n->reason, "TCP_LISTEN_OVERFLOW") != 0 &&
                n->drops >= DROPS_MIN * (n->bytes_sent + n->bytes_received) / PACKET_BYTES;
}

static void diagnose_loss(const DiagnosisFlows *n, Diagnosis *d) {
        double lost = n->bytes_sent * n->covered >= BYTES_MIN * NSEC_PER_SEC ?
                n->bytes_retransmitted / n->bytes_sent : 0;
        bool dropping = is_dropping(n);

        if (diagnosis_has(d, FINDING_NETWORK))
                return;
        if (dropping)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_NETWORK, .certainty = CERTAINTY_CERTAIN, .share = NAN,
                                .time = NAN,
                                .rule = "this machine discards 1 % of the unit's packets or more, and one "
                                        "per second",
                        }, "this machine discards packets of the unit, %s/s%s%s; %s of the bytes sent are "
                        "retransmitted", RATE(n->drops), *n->reason ? ", mostly for the reason " : "",
                        n->reason, PERCENT(lost));
        else if (lost >= RETRANSMITTED_MIN)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_NETWORK, .certainty = CERTAINTY_LIKELY, .share = NAN,
                                .time = NAN,
                                .rule = "2 % of the bytes that the unit sends, or more, are retransmitted",
                        }, "segments are lost on the path: %s of the bytes sent are retransmitted, %s "
                        "segments/s, %s timeouts/s", PERCENT(lost), RATE(n->retransmits),
                        RATE(n->timeouts));
}

void diagnose_flows(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFlows *n = &e->flows;

        if (!(n->covered > 0))
                return;
        diagnose_loss(n, d);
        diagnose_limit_of_sending(n, limit_rules, n->by_peer_window, d);
        diagnose_limit_of_sending(n, limit_rules + 1, n->by_send_buffer, d);
        if (n->rtt >= RTT_MIN)
                diagnose_limit_of_sending(n, limit_rules + 2, n->by_network, d);
}
