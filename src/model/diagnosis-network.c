/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Rules for responses delayed by TCP, and requests that arrive slowly. */

#include <math.h>

#include "diagnosis-internal.h"

/* Maximum share of the time with responses in flight, relative to their duration, for responses that the
 * unit sends in parts: messages to subscribers are hardly ever in flight. */
#define PACED_MAX 0.1
/* Minimum share of retransmitted segments: paths without loss have none. */
#define RETRANSMITS_MIN 0.01
/* Share of retransmitted segments above what is usual with distant clients, some of which have lossy paths
 * at any time. */
#define RETRANSMITS_MOST 0.02
/* Approximate payload of a segment, less than the maximum. Each response takes at least one. */
#define SEGMENT_BYTES 1400.0
/* Minimum number of samples with a waiting connection: with fewer, the share varies by half or more. */
#define SENDS_MIN 5.0

/* ---- what responses wait for in TCP ------------------------------------------------------------------- */

/* Time in which a response waits, ns per request. */
static double send_time(const DiagnosisFigures *f, enum qos_send_wait w) {
        if (!(f->sends[w] > 0))
                return 0;
        return fmin(f->sends[w] / f->rate * NSEC_PER_SEC, f->first_byte + f->answer);
}

/* Whether there are enough samples of connections with a response in progress to know what these wait
 * for. */
static bool sends_are_known(const DiagnosisEvidence *e) {
        return e->n_sends * e->now.rate * e->now.answer / NSEC_PER_SEC >= SENDS_MIN;
}

typedef struct SendRule {
        FindingKind kind;
        enum qos_send_wait wait;
        double share_min;               /* minimum share of the latency; larger for causes that the unit
                                         * itself cannot avoid */
        const char *rule, *what, *remedy;
} SendRule;

static const SendRule send_rules[] = {
        {
                FINDING_NAGLE, QOS_SEND_WAIT_NAGLE, SHARE_MIN,
                "the last segment of a response waits for the acknowledgement of the one before it for a "
                "fifth or more of the latency, and 1 ms or more, while it fits into the windows",
                "the unit writes responses in parts, and the last part waits until the client acknowledges "
                "the one before, which clients delay (Nagle's algorithm)",
                "set TCP_NODELAY, or write head and body at once",
        },
        {
                FINDING_SEND_BUFFER, QOS_SEND_WAIT_BUFFER, SHARE_MIN,
                "responses wait for space in the send buffer, of which nothing is unsent, for a fifth or "
                "more of the latency, and 1 ms or more, while the windows take more",
                "the send buffers are smaller than what the path and the clients take, and the unit waits "
                "to write on",
                "leave SO_SNDBUF unset, or raise net.ipv4.tcp_wmem",
        },
        {
                FINDING_RECEIVE_WINDOW, QOS_SEND_WAIT_WINDOW, SHARE_MOST,
                "responses wait for closed receive windows for half of the latency or more, and 1 ms or "
                "more, while nothing is on the way to the client",
                "clients read too slowly, and responses wait for their closed receive windows",
                "the clients, or what they write to, have to be faster",
        },
};

static void diagnose_send(const DiagnosisEvidence *e, const SendRule *rule, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double time = send_time(f, rule->wait), share = time / (f->first_byte + f->answer);

        if (!(time > 0))
                return;
        if (share < rule->share_min || time < WAIT_MIN_NSEC ||
            e->n_sends * f->sends[rule->wait] < SENDS_MIN) {
                diagnosis_exclude(d, rule->kind, share, "%s: %s per response (%s of the latency)%s",
                                  rule->what, SPAN(time), PERCENT(share),
                                  LIMIT(share, rule->share_min, time, WAIT_MIN_NSEC));
                return;
        }
        if (e->normal && f->answer < WORSE * e->normal->answer) {
                diagnosis_exclude(d, rule->kind, share, "%s: %s per response (%s of the latency), as in the "
                                  "baseline", rule->what, SPAN(time), PERCENT(share));
                return;
        }
        (void) diagnosis_add(d, &(FindingCause) {
                        .kind = rule->kind,
                        .certainty = share >= SHARE_MOST ? CERTAINTY_CERTAIN : CERTAINTY_LIKELY,
                        .share = share, .time = time, .rule = rule->rule,
                }, "%s: %s per response (%s of the latency); %s", rule->what, SPAN(time), PERCENT(share),
                rule->remedy);
}

/* ---- the network -------------------------------------------------------------------------------------- */

/* Waits of responses caused neither by the unit nor by its clients. */
static double network_time(const DiagnosisFigures *f) {
        double sum = 0;

        for (enum qos_send_wait w = 0; w < QOS_SEND_WAITS; w++)
                if (w == QOS_SEND_WAIT_WINDOW_FULL || w == QOS_SEND_WAIT_PATH || w == QOS_SEND_WAIT_OTHER)
                        sum += send_time(f, w);
        return fmin(sum, f->answer);
}

/* All waits of a response. */
static double sends_time(const DiagnosisFigures *f) {
        double sum = 0;

        for (enum qos_send_wait w = 0; w < QOS_SEND_WAITS; w++)
                sum += send_time(f, w);
        return fmin(sum, f->answer);
}

/* Adds a finding on the transfer of responses, or else of requests. known: waits of responses are known. */
static void diagnose_transfer(const DiagnosisEvidence *e, bool responses, bool known, bool losing,
                              double time, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        double share = time / (f->first_byte + f->answer);
        double full = send_time(f, QOS_SEND_WAIT_WINDOW_FULL), path = send_time(f, QOS_SEND_WAIT_PATH),
               other = send_time(f, QOS_SEND_WAIT_OTHER);
        const char *rule = "half of the time of a request or more, and 1 ms or more, goes by while its "
                           "bytes are on their way",
                   *again = losing ? "; segments are retransmitted" : "";

        if (!responses)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_NETWORK,
                                .certainty = losing ? CERTAINTY_CERTAIN : CERTAINTY_LIKELY, .share = share,
                                .time = time, .rule = rule,
                        }, "requests take %s to arrive (%s of the latency): clients, or the path from them, "
                        "are slow%s", SPAN(time), PERCENT(share), again);
        else if (!known || other > full + path)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_NETWORK,
                                .certainty = losing ? CERTAINTY_CERTAIN : CERTAINTY_POSSIBLE, .share = share,
                                .time = time, .rule = rule,
                        }, "responses take %s from the first byte to the last (%s of the latency); what "
                        "they wait for is not known%s", SPAN(time), PERCENT(share), again);
        else if (full > path)
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_NETWORK,
                                .certainty = losing ? CERTAINTY_CERTAIN : CERTAINTY_LIKELY, .share = share,
                                .time = time, .rule = rule,
                        }, "receive windows of clients are full of data on the way: responses wait for %s "
                        "(%s of the latency), acknowledgements take %s%s; larger receive buffers "
                        "(SO_RCVBUF, net.ipv4.tcp_rmem) of clients help", SPAN(time), PERCENT(share),
                        SPAN(f->send_rtt), again);
        else
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_NETWORK,
                                .certainty = losing ? CERTAINTY_CERTAIN : CERTAINTY_LIKELY, .share = share,
                                .time = time, .rule = rule,
                        }, "the path to clients is slow: responses wait for %s (%s of the latency), "
                        "acknowledgements take %s%s; smaller responses, or servers closer to clients, help",
                        SPAN(time), PERCENT(share), SPAN(f->send_rtt), again);
}

static void diagnose_path(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;
        const bool known = sends_are_known(e);
        double whole = f->first_byte + f->answer, held = known ? network_time(f) : f->answer,
                worst = MAX(f->receive, held), share = worst / whole;
        double lost = f->retransmits / (f->rate * MAX(f->bytes_out / SEGMENT_BYTES, 1.0)),
                leaving = f->rate * f->answer / NSEC_PER_SEC;
        bool responses = held >= f->receive;
        bool compared = e->normal && !isnan(e->normal->retransmits) && e->normal->rate > 0, losing, usual,
             paced;

        losing = lost >= RETRANSMITS_MIN && f->retransmits >= 1 &&
                (!compared || f->retransmits / f->rate >= WORSE * e->normal->retransmits / e->normal->rate);
        usual = e->normal && worst < WORSE * MAX(e->normal->receive, e->normal->answer);
        if (usual)
                worst = 0;
        /* Responses that wait for clients are in flight; those that the unit is still producing have no
         * unsent data */
        paced = known ? f->answer >= WAIT_MIN_NSEC && f->answer >= SHARE_MOST * whole &&
                        sends_time(f) < SHARE_MOST * f->answer :
                responses && worst >= WAIT_MIN_NSEC && f->serving > 0 &&
                f->serving < PACED_MAX * MIN(leaving, 1.0);
        if (paced && responses)
                worst = 0;

        if (worst >= SHARE_MOST * whole && worst >= WAIT_MIN_NSEC)
                diagnose_transfer(e, responses, known, losing, worst, d);
        else if (losing && (compared || lost >= RETRANSMITS_MOST || d->n_findings > 0))
                /* Without a baseline, losses that are usual with distant clients are not a finding */
                (void) diagnosis_add(d, &(FindingCause) {
                                .kind = FINDING_NETWORK,
                                .certainty = compared || lost >= RETRANSMITS_MOST ? CERTAINTY_LIKELY :
                                CERTAINTY_POSSIBLE,
                                .share = NAN, .time = NAN,
                                .rule = "1 % of the segments or more are retransmitted, and 1.5 times the "
                                "usual share; without a baseline 2 % or more",
                        }, "segments are lost on the path to clients: %s retransmits/s (%s)",
                        RATE(f->retransmits), PERCENT(lost));
        else if (losing)
                diagnosis_exclude(d, FINDING_NETWORK, NAN,
                                  "%s retransmits/s (%s), which may be usual for its clients",
                                  RATE(f->retransmits), PERCENT(lost));
        else if (paced)
                diagnosis_exclude(
                        d, FINDING_NETWORK, NAN,
                        "responses last %s as the unit sends them in parts, each of which leaves at "
                        "once",
                        SPAN(f->answer));
        else
                diagnosis_exclude(d, FINDING_NETWORK, share,
                                  "requests arrive in %s, responses leave in %s (%s of the latency)%s",
                                  SPAN(f->receive), SPAN(f->answer), PERCENT(share),
                                  usual ? ", as in the baseline" :
                                  LIMIT(share, SHARE_MOST, worst, WAIT_MIN_NSEC));
}

void diagnose_network(const DiagnosisEvidence *e, Diagnosis *d) {
        const DiagnosisFigures *f = &e->now;

        if (isnan(f->first_byte + f->answer) || isnan(f->receive))
                return;
        for (size_t i = 0; i < ELEMENTSOF(send_rules); i++)
                diagnose_send(e, send_rules + i, d);
        diagnose_path(e, d);
}
