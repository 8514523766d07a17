/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <inttypes.h>
#include <math.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "actions-socket.h"
#include "event-journal.h"
#include "evidence.h"
#include "journal-queue.h"
#include "log.h"
#include "message-id.h"
#include "observer.h"
#include "snapshot-json.h"
#include "state-label.h"
#include "threshold-monitor.h"

/* Limit of findings in a verdict, which are the most important ones. */
#define VERDICT_FINDINGS_MAX 3U

/* Limit of verdicts in a round, as making one reads the unit's history, which blocks the daemon for some
 * tenths of a millisecond. If more units suffer at once, the cause is likely the same for all. */
#define VERDICTS_MAX 8U

struct EventJournal {
        Manager *manager;
        ManagerObserver observer;
        uint64_t logged;                /* number of the last event that was logged */
        Journal *journal;               /* NULL: stderr is used */
        int fd;                         /* socket for qosd-actions */

        /* Fields of the last reading, which serve all events of the round with the same unit, window and
         * state */
        char *snapshot, *verdict;
        char *unit;                     /* NULL: none yet */
        uint64_t window;
        ThresholdState state;
        unsigned n_verdicts;
};

/* "; CPU run queue 31% (usually 2%), lock 5% (usually 1%)" */
static void shares_format(const ThresholdEvent *e, char *buffer, size_t size) {
        size_t l = 0;

        buffer[0] = 0;
        for (size_t i = 0; i < e->n_shares && l < size; i++)
                l += (size_t) snprintf(buffer + l, size - l, "%s %s %.0f%% (usually %.0f%%)",
                                       i == 0 ? ";" : ",",
                                       thread_state_label(state_share_name(e->shares + i)),
                                       e->shares[i].share * 100, e->shares[i].usual * 100);
}

/* The reading without peers, which not all readers of the journal may see, and without totals, as journalctl
 * does not show fields of more than 4 KiB by default. */
static int snapshot_format(Unit *u, const Snapshot *s, char **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_free_ char *text = NULL;
        UnitIdentity identity;
        int r;

        unit_get_identity(u, &identity);
        r = snapshot_to_json(&identity, s, false, &v);
        if (r >= 0)
                r = sd_json_variant_filter(&v, (char*[]) { (char*) "totals", NULL });
        if (r >= 0)
                r = sd_json_variant_format(v, 0, &text);
        if (r < 0)
                return r;
        if (asprintf(ret, "QOS_SNAPSHOT=%s", text) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int snapshot_format_verdict(Unit *u, const Snapshot *s, char **ret) {
        char text[(VERDICT_FINDINGS_MAX + 1) * (DIAGNOSIS_TEXT_MAX + 32)];
        Diagnosis d;
        size_t l;

        unit_diagnose_snapshot(u, s, &d);
        l = (size_t) snprintf(text, sizeof(text), "%s", d.text);
        for (size_t i = 0; i < MIN(d.n_findings, (size_t) VERDICT_FINDINGS_MAX) && l < sizeof(text); i++)
                l += (size_t) snprintf(text + l, sizeof(text) - l, "; %s (%s): %s",
                                       finding_kind_to_string(d.findings[i].kind),
                                       certainty_to_string(d.findings[i].certainty), d.findings[i].text);
        if (asprintf(ret, "QOS_VERDICT=%s", text) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

/* Whether the threshold was set by the administrator or by a file. Events of leases, which any client may
 * have, are not copied to the log of the unit. */
static bool event_is_lasting(const EventJournal *j, const ThresholdEvent *e) {
        Unit *u = manager_get_unit(j->manager, e->unit, NULL);

        for (Threshold *t = u ? threshold_next(u, NULL) : NULL; t; t = threshold_next(u, t))
                if ((t->source == THRESHOLD_SOURCE_FILE || t->source == THRESHOLD_SOURCE_ADMINISTRATOR) &&
                    streq(t->rule.name, e->rule.name))
                        return true;
        return false;
}

/* Has qosd-actions log a copy as root, as "journalctl -u UNIT" shows entries of others about a unit only if
 * they are of root. fields: NULL-terminated. */
static void send_copy(const EventJournal *j, const char *unit, const char *const fields[]) {
        static const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = ACTIONS_SOCKET };
        char text[ACTIONS_MESSAGE_MAX + 1];
        int l;

        if (unit[0] == '/')
                return;
        l = snprintf(text, sizeof(text), ACTIONS_LOG " %s", unit);
        for (size_t i = 0; fields[i] && l < (int) sizeof(text); i++)
                l += snprintf(text + l, sizeof(text) - l, "\n%s", fields[i]);
        /* Without qosd-actions, or if it is overloaded, there is no copy */
        if (l >= (int) sizeof(text) || sendto(j->fd, text, (size_t) l, MSG_NOSIGNAL|MSG_DONTWAIT,
                                              (const struct sockaddr*) &address, sizeof(address)) < 0)
                log_debug("Failed to have a change of a threshold of '%s' logged for the unit: %m", unit);
}

static void event_log(const EventJournal *j, const ThresholdEvent *e) {
        int level = e->state == THRESHOLD_VIOLATED ? LOG_WARNING : LOG_NOTICE;
        char name[THRESHOLD_NAME_MAX + 32], metric[THRESHOLD_METRIC_MAX + 32], state[64], value[64],
                limit[64], seq[64], priority[64], shares[SHARE_CHANGES_MAX * 64],
                value_text[THRESHOLD_VALUE_MAX], limit_text[THRESHOLD_VALUE_MAX];
        _cleanup_free_ char *text = NULL, *rule = NULL, *message = NULL, *unit = NULL;
        const char *named;
        size_t n = 0;

        if (level > log_get_max_level() || threshold_rule_format(&e->rule, /* named= */ false, &text) < 0)
                return;
        shares_format(e, shares, sizeof(shares));
        (void) snprintf(metric, sizeof(metric), "QOS_METRIC=%s",
                        threshold_rule_format_metric(&e->rule, /* named= */ false,
                                                     (char[THRESHOLD_METRIC_MAX]) {}));
        named = metric + strlen("QOS_METRIC=");
        threshold_rule_format_value(e->rule.metric, e->rule.limit, limit_text);
        /* The value of a violated threshold is beyond the limit, of others it may be on either side */
        if (asprintf(&message, "MESSAGE=%s: '%s' %s: %s %s%s%s%s", e->unit, e->rule.name,
                     threshold_state_to_string(e->state), named,
                     isnan(e->value) ? "has no value" :
                     threshold_rule_format_value(e->rule.metric, e->value, value_text),
                     e->state != THRESHOLD_VIOLATED ? ", limit " :
                     e->rule.below ? e->rule.inclusive ? " <= " : " < " : e->rule.inclusive ? " >= " : " > ",
                     limit_text, shares) < 0)
                message = NULL;
        if (asprintf(&unit, "UNIT=%s", e->unit) < 0)
                unit = NULL;
        if (asprintf(&rule, "QOS_RULE=%s", text) < 0)
                rule = NULL;
        if (!message || !unit || !rule) {
                (void) log_oom();
                return;
        }
        if (!j->journal) {
                fprintf(stderr, "%s\n", message + strlen("MESSAGE="));
                return;
        }

        (void) snprintf(priority, sizeof(priority), "PRIORITY=%i", level);
        (void) snprintf(name, sizeof(name), "QOS_THRESHOLD=%s", e->rule.name);
        (void) snprintf(state, sizeof(state), "QOS_STATE=%s", threshold_state_to_string(e->state));
        (void) snprintf(limit, sizeof(limit), "QOS_LIMIT=%.15g", e->rule.limit);
        (void) snprintf(seq, sizeof(seq), "QOS_SEQ=%" PRIu64, e->seq);
        (void) snprintf(value, sizeof(value), "QOS_VALUE=%.15g", e->value);

        const char *fields[] = { message, priority, "SYSLOG_IDENTIFIER=qosd",
                                 "MESSAGE_ID=" MESSAGE_ID_CROSSED, unit, name, rule, metric, state, limit,
                                 seq, NULL, NULL };
        n = ELEMENTSOF(fields) - 2;
        if (!isnan(e->value))
                fields[n++] = value;
        if (j->verdict)
                fields[n++] = j->verdict;
        journal_send(j->journal, fields, n, j->snapshot);
        if (j->fd >= 0 && event_is_lasting(j, e))
                send_copy(j, e->unit, (const char *[]) { message, priority, name, rule, metric, state, limit,
                                                         isnan(e->value) ? NULL : value, NULL });
}

static void readings_clear(EventJournal *j) {
        free(j->snapshot);
        free(j->verdict);
        free(j->unit);
        j->snapshot = j->verdict = j->unit = NULL;
}

static int on_event(const ThresholdEvent *e, void *userdata) {
        EventJournal *j = ASSERT_PTR(userdata);

        if (j->journal && (!j->unit || !streq(j->unit, e->unit) || j->window != e->rule.window_nsec ||
                           j->state != e->state)) {
                bool suffers = e->state == THRESHOLD_VIOLATED;
                Snapshot s;
                Unit *u;

                readings_clear(j);
                u = manager_get_unit(j->manager, e->unit, NULL);
                if (u) {
                        unit_get_snapshot(u, e->rule.window_nsec, &s);
                        if (snapshot_format(u, &s, &j->snapshot) < 0 ||
                            (suffers && j->n_verdicts++ < VERDICTS_MAX &&
                             snapshot_format_verdict(u, &s, &j->verdict) < 0))
                                (void) log_oom();
                }
                j->unit = strdup(e->unit);
                j->window = e->rule.window_nsec;
                j->state = e->state;
        }
        event_log(j, e);
        return 0;
}

/* Logs the events of a round, after all other observers, as this takes longest. */
static void on_round_end(Manager *m, void *userdata) {
        EventJournal *j = ASSERT_PTR(userdata);

        j->n_verdicts = 0;
        (void) threshold_monitor_foreach_event(m, j->logged, on_event, j);
        j->logged = threshold_monitor_get_seq(m);
        readings_clear(j);
}

int event_journal_new(Manager *m, EventJournal **ret) {
        EventJournal *j;
        int r;

        j = new0(EventJournal, 1);
        if (!j)
                return -ENOMEM;
        *j = (EventJournal) {
                .manager = m,
                .observer = {
                        .round_end = on_round_end,
                        .userdata = j,
                },
                .logged = threshold_monitor_get_seq(m),
                .fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0),
        };
        r = log_is_journal() ? journal_new(m->event, JOURNAL_SOCKET, &j->journal) : 0;
        if (r < 0) {
                close_fd(j->fd);
                free(j);
                return r;
        }
        manager_add_observer(m, &j->observer);

        *ret = j;
        return 0;
}

EventJournal* event_journal_free(EventJournal *j) {
        if (!j)
                return NULL;

        manager_remove_observer(j->manager, &j->observer);
        journal_free(j->journal);
        close_fd(j->fd);
        free(j);
        return NULL;
}
