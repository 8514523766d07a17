/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Names of figures, findings and verdicts, and formats of numbers in sentences. */

#include <math.h>

#include "diagnosis-internal.h"
#include "util.h"

#define STATE(name, state) { "threads." name, offsetof(DiagnosisFigures, threads) + \
                             (state) * sizeof(double) }

#define SEND(name, wait) { "send" name, offsetof(DiagnosisFigures, sends) + (wait) * sizeof(double) }

const DiagnosisFigure diagnosis_figures[] = {
        { "covered",     offsetof(DiagnosisFigures, covered)      },
        { "rate",        offsetof(DiagnosisFigures, rate)         },
        { "status4xx",   offsetof(DiagnosisFigures, status4xx)    },
        { "status5xx",   offsetof(DiagnosisFigures, status5xx)    },
        { "grpcErrors",  offsetof(DiagnosisFigures, grpc_errors)  },
        { "errorReplies", offsetof(DiagnosisFigures, error_replies) },
        { "resets",      offsetof(DiagnosisFigures, resets)       },
        { "timeouts",    offsetof(DiagnosisFigures, timeouts)     },
        { "clientAborts", offsetof(DiagnosisFigures, client_aborts) },
        { "firstByte",   offsetof(DiagnosisFigures, first_byte)   },
        { "receive",     offsetof(DiagnosisFigures, receive)      },
        { "queue",       offsetof(DiagnosisFigures, queue)        },
        { "service",     offsetof(DiagnosisFigures, service)      },
        { "answer",      offsetof(DiagnosisFigures, answer)       },
        { "bytesIn",     offsetof(DiagnosisFigures, bytes_in)     },
        { "bytesOut",    offsetof(DiagnosisFigures, bytes_out)    },
        { "inFlight",    offsetof(DiagnosisFigures, in_flight)    },
        { "oldestInFlight", offsetof(DiagnosisFigures, oldest)    },
        { "waiting",     offsetof(DiagnosisFigures, waiting)      },
        { "oldestWaiting", offsetof(DiagnosisFigures, oldest_waiting) },
        { "serving",     offsetof(DiagnosisFigures, serving)      },
        { "retransmits", offsetof(DiagnosisFigures, retransmits)  },
        SEND("Nagle",      QOS_SEND_WAIT_NAGLE),
        SEND("Cork",       QOS_SEND_WAIT_CORK),
        SEND("Window",     QOS_SEND_WAIT_WINDOW),
        SEND("WindowFull", QOS_SEND_WAIT_WINDOW_FULL),
        SEND("Buffer",     QOS_SEND_WAIT_BUFFER),
        SEND("Path",       QOS_SEND_WAIT_PATH),
        SEND("Other",      QOS_SEND_WAIT_OTHER),
        { "sendRtt",     offsetof(DiagnosisFigures, send_rtt)     },
        { "listenDrops", offsetof(DiagnosisFigures, listen_drops) },
        { "clientRate",  offsetof(DiagnosisFigures, client_rate)    },
        { "clientLatency", offsetof(DiagnosisFigures, client_latency) },
        { "peerErrors",  offsetof(DiagnosisFigures, peer_errors)  },
        { "peerStatus5xx", offsetof(DiagnosisFigures, peer_status5xx) },
        { "peerErrorReplies", offsetof(DiagnosisFigures, peer_error_replies) },
        { "blockedByRequests",        offsetof(DiagnosisFigures, blocked_by_requests)         },
        { "serviceRunQueue", offsetof(DiagnosisFigures, service_run_queue) },
        { "serviceLock", offsetof(DiagnosisFigures, service_lock) },
        { "runQueueWait", offsetof(DiagnosisFigures, run_queue_wait) },
        { "runQueueOwn", offsetof(DiagnosisFigures, run_queue_own) },
        { "runQueueOthers", offsetof(DiagnosisFigures, run_queue_others) },
        { "cpus",        offsetof(DiagnosisFigures, cpus)         },
        { "idleCpus",    offsetof(DiagnosisFigures, idle_cpus)    },
        { "busiestProcess", offsetof(DiagnosisFigures, busiest_process) },
        { "busiestThread", offsetof(DiagnosisFigures, busiest_thread) },
        { "throttled",   offsetof(DiagnosisFigures, throttled)    },
        { "reads",       offsetof(DiagnosisFigures, reads)        },
        { "majorFaults", offsetof(DiagnosisFigures, major_faults) },
        { "refaults",    offsetof(DiagnosisFigures, refaults)     },
        { "oomKills",    offsetof(DiagnosisFigures, oom_kills)    },
        STATE("running",   QOS_STATE_RUNNING),
        STATE("runQueue",  QOS_STATE_RUN_QUEUE),
        STATE("throttled", QOS_STATE_THROTTLED),
        STATE("lock",      QOS_STATE_LOCK),
        STATE("park",      QOS_STATE_PARK),
        STATE("disk",      QOS_STATE_DISK),
        STATE("socket",    QOS_STATE_SOCKET),
        STATE("poll",      QOS_STATE_POLL),
        STATE("pipe",      QOS_STATE_PIPE),
        STATE("sleep",     QOS_STATE_SLEEP),
        STATE("memory",    QOS_STATE_MEMORY),
        STATE("child",     QOS_STATE_CHILD),
        STATE("stopped",   QOS_STATE_STOPPED),
        STATE("other",     QOS_STATE_OTHER),
};
const size_t diagnosis_n_figures = ELEMENTSOF(diagnosis_figures);
_Static_assert(ELEMENTSOF(diagnosis_figures) == sizeof(DiagnosisFigures) / sizeof(double) - 1,
               "each figure has a name, but that of QOS_STATE_NONE");

const char* finding_kind_to_string(FindingKind k) {
        static const char *const table[_FINDING_KIND_MAX] = {
                [FINDING_NAGLE]      = "nagle",
                [FINDING_SEND_BUFFER] = "sendBuffer",
                [FINDING_RECEIVE_WINDOW] = "receiveWindow",
                [FINDING_CPU]        = "cpu",
                [FINDING_QUOTA]      = "quota",
                [FINDING_DISK]       = "disk",
                [FINDING_LOCK]       = "lock",
                [FINDING_DEPENDENCY] = "dependency",
                [FINDING_MEMORY]     = "memory",
                [FINDING_NETWORK]    = "network",
                [FINDING_LIMIT]      = "limit",
                [FINDING_WORKLOAD]   = "workload",
                [FINDING_DOWN]       = "down",
                [FINDING_RESTARTS]   = "restarts",
                [FINDING_STOPPED]    = "stopped",
                [FINDING_DROPPED]    = "dropped",
                [FINDING_ERRORS]     = "errors",
                [FINDING_IDLE]       = "idle",
        };

        return table[k];
}

const char* certainty_to_string(Certainty c) {
        static const char *const table[_CERTAINTY_MAX] = {
                [CERTAINTY_POSSIBLE] = "possible",
                [CERTAINTY_LIKELY]   = "likely",
                [CERTAINTY_CERTAIN]  = "certain",
        };

        return table[c];
}

const char* verdict_to_string(Verdict v) {
        static const char *const table[_VERDICT_MAX] = {
                [VERDICT_NOTHING] = "nothing",
                [VERDICT_FOUND]   = "found",
                [VERDICT_UNKNOWN] = "unknown",
        };

        return table[v];
}

void diagnosis_figures_set_absent(DiagnosisFigures *f) {
        for (size_t i = 0; i < sizeof(*f) / sizeof(double); i++)
                ((double*) f)[i] = NAN;
}

static void format_scaled(char buf[static NUMBER_MAX], double n, const char *unit) {
        (void) snprintf(buf, NUMBER_MAX, "%.*f%s", n < 9.995 ? 2 : n < 99.95 ? 1 : 0, n, unit);
}

static void format_long(char buf[static NUMBER_MAX], double nsec) {
        static const struct {
                double sec;
                const char *unit;
        } table[] = { { 86400, "d" }, { 3600, "h" }, { 60, "min" }, { 1, "s" } };
        double sec = floor(nsec / NSEC_PER_SEC);

        for (size_t i = 0; i + 1 < ELEMENTSOF(table); i++)
                if (sec >= table[i].sec) {
                        double rest = floor(fmod(sec, table[i].sec) / table[i + 1].sec);

                        (void) snprintf(buf, NUMBER_MAX, rest > 0 ? "%.0f%s %.0f%s" : "%.0f%s",
                                        floor(sec / table[i].sec), table[i].unit, rest, table[i + 1].unit);
                        return;
                }
}

char* diagnosis_format_span(char buf[static NUMBER_MAX], double nsec) {
        static const struct {
                double nsec;
                const char *unit;
        } table[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" } };

        if (!(nsec >= 1)) {
                (void) snprintf(buf, NUMBER_MAX, "0us");
                return buf;
        }
        if (nsec >= 60e9) {
                format_long(buf, nsec);
                return buf;
        }
        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (nsec >= table[i].nsec || i + 1 == ELEMENTSOF(table)) {
                        format_scaled(buf, nsec / table[i].nsec, table[i].unit);
                        break;
                }
        return buf;
}

char* diagnosis_format_rate(char buf[static NUMBER_MAX], double rate) {
        if (!(rate > 0))
                (void) snprintf(buf, NUMBER_MAX, "0");
        else if (rate >= 999.5e3)
                format_scaled(buf, rate / 1e6, "M");
        else if (rate >= 999.5)
                format_scaled(buf, rate / 1e3, "k");
        else
                (void) snprintf(buf, NUMBER_MAX,
                                rate < 0.995 ? "%.2f" :
                                rate < 9.95  ? "%.1f" :
                                               "%.0f",
                                rate);
        return buf;
}

char* diagnosis_format_share(char buf[static NUMBER_MAX], double share) {
        if (share > 0 && share < 0.01)
                (void) snprintf(buf, NUMBER_MAX, "<1%%");
        else
                (void) snprintf(buf, NUMBER_MAX, "%.0f%%", share > 0 ? 100 * share : 0);
        return buf;
}

char* diagnosis_format_limit(char ret[static LIMIT_MAX], double share, double share_min, double time,
                             double time_min) {
        ret[0] = 0;
        if (share < share_min)
                (void) snprintf(ret, LIMIT_MAX, ", limit %s", PERCENT(share_min));
        else if (time < time_min)
                (void) snprintf(ret, LIMIT_MAX, ", limit %s", SPAN(time_min));
        return ret;
}
