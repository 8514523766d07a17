/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sys/stat.h>

#include "evidence.h"
#include "journal-queue.h"
#include "json.h"
#include "log.h"
#include "threshold-monitor.h"

/* The journal's mark for a threshold whose state has changed, see qosd(8). */
#define MESSAGE_ID_CROSSED "8272b84be6e04d7c8c0a0281c76e711d"

/* Of what holds a unit back, so much is in the journal: what explains most. */
#define VERDICT_FINDINGS_MAX 3U

/* Verdicts at a time: each reads a unit's history, for some tenths of a millisecond in which nothing else is done. Where more units suffer
 * at once, it is something that these have in common with the others. */
#define VERDICTS_MAX 8U

/* A user whose thresholds change. */
typedef struct Talker {
        struct Talker *next;
        uid_t uid;
        uint64_t since;                 /* CLOCK_MONOTONIC ns: since then … */
        unsigned n;                     /* … so many changes were told */
        uint64_t left_out;              /* that were not, and nobody knows of yet */
} Talker;

struct Alarms {
        Manager *manager;
        Talker *talkers;
        sd_event_source *timer;
        bool saving;                    /* something is to be kept after this round */
        unsigned n;
        uint64_t seq;                   /* of the newest event */
        uint64_t seq_begin;             /* before the first */
        AlarmEvent events[ALARM_EVENTS_MAX]; /* by seq, modulo */
        uint64_t logged;                /* number of the last event that was given to the journal */
        Journal *journal;               /* NULL: nobody reads fields */
        char *directory;                /* of the files of violated thresholds; NULL: nowhere */
};

const char* alarm_source_to_string(AlarmSource s) {
        static const char *const table[_ALARM_SOURCE_MAX] = {
                [ALARM_ADMINISTRATOR] = "administrator",
                [ALARM_LEASE]         = "lease",
                [ALARM_FILE]          = "unitFile",
                [ALARM_CONDITION]     = "condition",
        };

        return table[s];
}

/* ---- files of what is violated -------------------------------------------------------------------------------- */

/* The name of a unit as that of a directory; that of a control group's path as systemd-escape --path has it. */
static int level_directory(const Alarms *alarms, const char *unit, char **ret) {
        char name[NAME_MAX + 1];
        size_t n = 0;

        for (const char *s = unit + (*unit == '/'); *s; s++) {
                char c[5] = { *s };

                if (*unit == '/' && *s == '/')
                        c[0] = '-';
                else if (*unit == '/' && !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.", *s))
                        (void) snprintf(c, sizeof(c), "\\x%02x", (unsigned char) *s);
                if (n + strlen(c) >= sizeof(name))
                        return -ENAMETOOLONG;
                n += strlen(strcpy(name + n, c));
        }
        name[n] = 0;

        if (asprintf(ret, "%s/%s", alarms->directory, name) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int level_create(const char *directory, const Alarm *a) {
        _cleanup_free_ char *path = NULL, *rule = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (asprintf(&path, "%s/%s", directory, a->rule.name) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        /* For everybody, as thresholds are */
        r = threshold_format(&a->rule, /* named= */ false, &rule);
        if (r < 0)
                return r;

        if (mkdir(directory, 0755) < 0 && errno != EEXIST)
                return -errno;
        if (chmod(directory, 0755) < 0)
                return -errno;
        fd = open(path, O_WRONLY|O_CREAT|O_EXCL|O_NOFOLLOW|O_CLOEXEC, 0644);
        if (fd < 0 && errno == EEXIST)
                return 0; /* still: who watches it would take it for news */
        if (fd < 0 || fchmod(fd, 0644) < 0 || dprintf(fd, "%s\n", rule) < 0)
                return -errno;
        return 0;
}

static void level_remove(const char *directory, const char *name) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/%s", directory, name) < 0) {
                path = NULL;
                (void) log_oom();
                return;
        }
        (void) unlink(path);
        (void) rmdir(directory); /* with the last one */
}

/* There is a file if, and only if, the threshold is violated. */
static void alarm_show_level(const Alarm *a, bool violated) {
        Alarms *alarms = a->unit->manager->alarms;
        _cleanup_free_ char *directory = NULL;
        int r;

        if (!alarms->directory || a->source == ALARM_CONDITION)
                return;
        r = level_directory(alarms, a->unit->name, &directory);
        if (r >= 0 && violated)
                r = level_create(directory, a);
        else if (r >= 0)
                level_remove(directory, a->rule.name);
        if (r < 0)
                log_unit_warning_errno(a->unit->name, r, "Failed to make the file that says that '%s' of '%s' is violated: %m",
                                       a->rule.name, a->unit->name);
}

/* Takes away those of before that are no longer right. */
static void directory_prune(const Alarms *alarms) {
        DIR *d;

        d = opendir(alarms->directory);
        if (!d)
                return;
        for (struct dirent *de; (de = readdir(d)); ) {
                _cleanup_close_ int fd = -EBADF;
                DIR *files;

                if (de->d_type != DT_DIR || de->d_name[0] == '.')
                        continue;
                fd = openat(dirfd(d), de->d_name, O_RDONLY|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                files = fd >= 0 ? fdopendir(fd) : NULL;
                if (!files)
                        continue;
                (void) TAKE_FD(fd);
                for (struct dirent *file; (file = readdir(files)); ) {
                        bool right = false;

                        if (file->d_type != DT_REG)
                                continue;
                        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                                _cleanup_free_ char *directory = NULL;
                                Unit *u = alarms->manager->units[i];

                                if (!u || level_directory(alarms, u->name, &directory) < 0 || !streq(strrchr(directory, '/') + 1, de->d_name))
                                        continue;
                                for (Alarm *a = alarm_next(u, NULL); a; a = alarm_next(u, a))
                                        right = right || (a->machine.state == THRESHOLD_VIOLATED && streq(a->rule.name, file->d_name));
                        }
                        if (!right)
                                (void) unlinkat(dirfd(files), file->d_name, 0);
                }
                (void) closedir(files);
                (void) unlinkat(dirfd(d), de->d_name, AT_REMOVEDIR); /* if nothing is left */
        }
        (void) closedir(d);
}

void alarms_restored(Manager *m) {
        Alarms *alarms = m->alarms;

        if (!alarms->directory)
                return;
        directory_prune(alarms);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                for (Alarm *a = m->units[i] ? alarm_next(m->units[i], NULL) : NULL; a; a = alarm_next(m->units[i], a))
                        if (a->machine.state == THRESHOLD_VIOLATED)
                                alarm_show_level(a, true);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

const char* alarm_share_name(const ShareChange *c) {
        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (m->offset == offsetof(Metrics, contention.shares[c->state]))
                        return m->name + strlen("contention.shares.");
        abort();
}

/* ", runQueue 31% (mostly 2%)" */
static void shares_format(const AlarmEvent *e, char *buffer, size_t size) {
        size_t l = 0;

        buffer[0] = 0;
        for (size_t i = 0; i < e->n_shares && l < size; i++)
                l += (size_t) snprintf(buffer + l, size - l, ", %s %.0f%% (mostly %.0f%%)", alarm_share_name(e->shares + i),
                                       e->shares[i].share * 100, e->shares[i].usual * 100);
}

/* The reading, without the unit's peers, which are not for all who may read the journal, and without totals: journalctl shows no value
 * of more than 4 KiB unless it is asked to. */
static int snapshot_format(Unit *u, const Snapshot *s, char **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_free_ char *text = NULL;
        int r;

        r = snapshot_to_json(u, s, false, &v);
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

/* What holds the unit back as far as the reading tells, against what its history says is normal: for more there is "qosctl diagnose",
 * which looks at the machine, too, and takes its time. */
static int snapshot_format_verdict(Unit *u, const Snapshot *s, char **ret) {
        char text[(VERDICT_FINDINGS_MAX + 1) * (DIAGNOSIS_TEXT_MAX + 32)];
        DiagnosisEvidence evidence;
        Diagnosis d;
        Normal normal;
        size_t l;

        snapshot_get_evidence(s, &evidence);
        if (unit_get_normal(u, now_nsec(CLOCK_MONOTONIC) - s->window, evidence.now.rate, &normal) >= 0) {
                evidence.usual = normal.usual;
                evidence.normal = &normal.figures;
        }
        diagnosis_make(&evidence, &d);

        l = (size_t) snprintf(text, sizeof(text), "%s", d.text);
        for (size_t i = 0; i < MIN(d.n_findings, (size_t) VERDICT_FINDINGS_MAX) && l < sizeof(text); i++)
                l += (size_t) snprintf(text + l, sizeof(text) - l, "; %s (%s): %s", finding_kind_to_string(d.findings[i].kind),
                                       certainty_to_string(d.findings[i].certainty), d.findings[i].text);
        if (asprintf(ret, "QOS_VERDICT=%s", text) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static void alarm_log(const Alarms *alarms, const AlarmEvent *e, const char *snapshot, const char *verdict) {
        int level = e->state == THRESHOLD_VIOLATED ? LOG_WARNING : LOG_NOTICE;
        char name[THRESHOLD_NAME_MAX + 32], metric[THRESHOLD_METRIC_MAX + 32], state[64], value[64], limit[64], seq[64], priority[64],
             shares[SHARE_CHANGES_MAX * 64], value_text[THRESHOLD_VALUE_MAX];
        _cleanup_free_ char *rule = NULL, *message = NULL, *unit = NULL;
        size_t n = 0;

        if (level > log_get_max_level() || threshold_format(&e->rule, /* named= */ false, &rule) < 0)
                return;
        shares_format(e, shares, sizeof(shares));
        if (asprintf(&message, "MESSAGE='%s' of '%s' is %s: %s%s (%s)", e->rule.name, e->unit, threshold_state_to_string(e->state),
                     isnan(e->value) ? "no value" : threshold_format_value(e->rule.metric, e->value, value_text), shares, rule) < 0)
                message = NULL;
        if (asprintf(&unit, "UNIT=%s", e->unit) < 0)
                unit = NULL;
        if (!message || !unit) {
                (void) log_oom();
                return;
        }
        if (!alarms->journal) {
                fprintf(stderr, "%s\n", message + strlen("MESSAGE="));
                return;
        }

        (void) snprintf(priority, sizeof(priority), "PRIORITY=%i", level);
        (void) snprintf(name, sizeof(name), "QOS_THRESHOLD=%s", e->rule.name);
        (void) snprintf(metric, sizeof(metric), "QOS_METRIC=%s", threshold_format_metric(&e->rule, /* named= */ false, (char[THRESHOLD_METRIC_MAX]) {}));
        (void) snprintf(state, sizeof(state), "QOS_STATE=%s", threshold_state_to_string(e->state));
        (void) snprintf(limit, sizeof(limit), "QOS_LIMIT=%.15g", e->rule.limit);
        (void) snprintf(seq, sizeof(seq), "QOS_SEQ=%" PRIu64, e->seq);
        (void) snprintf(value, sizeof(value), "QOS_VALUE=%.15g", e->value);

        const char *fields[] = { message, priority, "SYSLOG_IDENTIFIER=qosd", "MESSAGE_ID=" MESSAGE_ID_CROSSED, unit, name, metric, state, limit, seq, NULL, NULL };
        n = ELEMENTSOF(fields) - 2;
        if (!isnan(e->value))
                fields[n++] = value;
        if (verdict)
                fields[n++] = verdict;
        journal_send(alarms->journal, fields, n, snapshot);
}

/* Those who have not said anything for long, and of whom nothing is left out, are forgotten. NULL: memory ran out. */
static Talker* alarms_get_talker(Alarms *alarms, uid_t uid, uint64_t now) {
        Talker *t;

        for (Talker **p = &alarms->talkers; (t = *p); ) {
                if (t->uid == uid)
                        break;
                if (t->left_out == 0 && now >= t->since + CROSSINGS_NSEC) {
                        *p = t->next;
                        free(t);
                } else
                        p = &t->next;
        }
        if (!t) {
                t = new0(Talker, 1);
                if (!t)
                        return NULL;
                t->uid = uid;
                t->next = alarms->talkers;
                alarms->talkers = t;
        }
        if (now >= t->since + CROSSINGS_NSEC) {
                t->since = now;
                t->n = 0;
        }
        return t;
}

/* The state has changed. l: what was looked at; NULL: nothing. */
static void alarm_tell(Alarm *a, uint64_t left_out, const UnitLook *l) {
        Manager *m = a->unit->manager;
        Alarms *alarms = m->alarms;
        AlarmEvent *e = alarms->events + (alarms->seq + 1) % ALARM_EVENTS_MAX;
        char *unit;

        alarms->seq++;
        unit = strdup(a->unit->name);
        if (!unit)
                (void) log_oom(); /* the event is lost, and alarms_foreach_event() says so */
        free(e->unit);
        *e = (AlarmEvent) {
                .seq = alarms->seq,
                .timestamp = a->since,
                .unit = unit,
                .rule = a->rule,
                .state = a->machine.state,
                .previous = a->told,
                .value = a->value,
                .samples = a->samples,
                .left_out = left_out,
        };
        a->told = a->machine.state;
        alarms->saving = true;
        if (l)
                e->n_shares = unit_get_share_changes(a->unit, l->now, l->window, e->shares);
        if (!unit)
                return;
        bus_server_threshold_crossed(m->bus_server, a->unit, e);
        varlink_server_threshold_crossed(m->varlink_server, e);
}

/* Tells what the state has become, if that is news and its user has not had too much to say. Returns true if it was told. */
static bool alarm_settle(Alarm *a, ThresholdState previous, uint64_t now, const UnitLook *l) {
        bool changed = a->machine.state != previous, waited = previous != a->told, news = a->machine.state != a->told;
        Alarms *alarms = a->unit->manager->alarms;
        uint64_t left_out = 0;

        if (changed)
                alarm_show_level(a, a->machine.state == THRESHOLD_VIOLATED);
        else if (!news)
                return false;

        if (a->uid != 0) {
                Talker *t = alarms_get_talker(alarms, a->uid, now);

                if (!t && l)
                        return false;
                /* What it was before will not be told any more; nor that it has become what everybody thinks it is */
                if (t && changed && waited)
                        t->left_out += 1 + !news;
                /* Its end, when nobody looks any more, is always told: there is no other chance, and one told before it for each */
                if (!news || (l && t->n >= CROSSINGS_PER_UID_MAX))
                        return false;
                if (t) {
                        t->n++;
                        left_out = t->left_out;
                        t->left_out = 0;
                }
        }
        alarm_tell(a, left_out, l);
        return true;
}

uint64_t alarms_get_seq(const Manager *m) {
        return m->alarms->seq;
}

uint64_t alarms_get_seq_begin(const Manager *m) {
        return m->alarms->seq_begin;
}

void alarms_set_seq(Manager *m, uint64_t seq, uint64_t begin) {
        m->alarms->seq = seq;
        m->alarms->seq_begin = MIN(begin, seq);
        m->alarms->logged = seq;
}

/* NULL: it is no longer known, or was of a run before this one. */
static const AlarmEvent* alarms_get_event(const Alarms *alarms, uint64_t seq) {
        const AlarmEvent *e = alarms->events + seq % ALARM_EVENTS_MAX;

        return e->seq == seq && e->unit ? e : NULL;
}

uint64_t alarms_count_lost(const Manager *m, uint64_t since) {
        const Alarms *alarms = m->alarms;
        uint64_t n = alarms->seq - since, lost = n - MIN(n, (uint64_t) ALARM_EVENTS_MAX);

        for (uint64_t seq = since + lost + 1; seq <= alarms->seq; seq++)
                if (!alarms_get_event(alarms, seq))
                        lost++;
        return lost;
}

int alarms_foreach_event(Manager *m, uint64_t since, int (*f)(const AlarmEvent *e, void *userdata), void *userdata) {
        const Alarms *alarms = m->alarms;
        uint64_t n = MIN(alarms->seq - since, (uint64_t) ALARM_EVENTS_MAX);

        for (uint64_t seq = alarms->seq - n + 1; seq <= alarms->seq; seq++) {
                const AlarmEvent *e = alarms_get_event(alarms, seq);
                int r = e ? f(e, userdata) : 0;

                if (r < 0)
                        return r;
        }
        return 0;
}

/* What has happened since this was done last, with the readings of now. After all others were told: it takes the longest. */
static void alarms_log(Alarms *alarms) {
        _cleanup_free_ char *snapshot = NULL, *verdict = NULL;
        const AlarmEvent *before = NULL;
        unsigned n_verdicts = 0;

        while (alarms->logged < alarms->seq) {
                const AlarmEvent *e = alarms_get_event(alarms, ++alarms->logged);
                Unit *u;

                if (!e)
                        continue;
                /* One for all that are about the same unit and window */
                if (alarms->journal && (!before || !streq(before->unit, e->unit) || before->rule.window_nsec != e->rule.window_nsec ||
                                        before->state != e->state)) {
                        bool suffers = e->state == THRESHOLD_VIOLATED;
                        Snapshot s;

                        free(snapshot);
                        free(verdict);
                        snapshot = verdict = NULL;
                        u = manager_get_unit(alarms->manager, e->unit, NULL);
                        if (u) {
                                unit_get_snapshot(u, e->rule.window_nsec, &s);
                                if (snapshot_format(u, &s, &snapshot) < 0 ||
                                    (suffers && n_verdicts++ < VERDICTS_MAX && snapshot_format_verdict(u, &s, &verdict) < 0))
                                        (void) log_oom();
                        }
                }
                before = e;
                alarm_log(alarms, e, snapshot, verdict);
        }
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

Alarm* alarm_next(const Unit *u, const Alarm *a) {
        Alarm *i = a ? a->next : u->alarms;

        while (i && i->source == ALARM_CONDITION)
                i = i->next;
        return i;
}

/* True if that was news for somebody, who may have done anything to the unit's thresholds. */
static bool alarm_look(Alarm *a, const UnitLook *l) {
        ThresholdState previous = a->machine.state;

        a->due_at = (l->now / a->period + 1) * a->period;
        a->value = unit_get_threshold_value(a->unit, l, &a->rule, &a->samples);
        if (threshold_step(&a->rule, &a->machine, l->now, a->value))
                a->since = l->timestamp;
        if (a->source != ALARM_CONDITION && a->machine.state == THRESHOLD_VIOLATED)
                unit_note_violation(a->unit, l->now - MIN(l->now, a->rule.window_nsec + a->rule.enter_nsec), a->due_at);
        if (a->source != ALARM_CONDITION)
                return alarm_settle(a, previous, l->now, l);
        if (a->machine.state == previous)
                return false;
        if (a->machine.state == THRESHOLD_VIOLATED) {
                a->handler(a, NULL, a->userdata);
                alarm_free(a);
        }
        return true;
}

/* The first that is due of those that are looked at so often or more: these come first. */
static Alarm* unit_find_due(const Unit *u, uint64_t now, uint64_t period) {
        Alarm *a = u->alarms;

        while (a && a->period <= period && now < a->due_at)
                a = a->next;
        return a && a->period <= period ? a : NULL;
}

/* One reading for all that are due and have the window. Returns true if there was news for somebody. */
static bool unit_look_at_alarms(Unit *u, uint64_t now, uint64_t period) {
        bool news = false;

        for (;;) {
                Alarm *due = unit_find_due(u, now, period);
                UnitLook l;

                if (!due)
                        return news;
                unit_look_begin(&l, due->rule.window_nsec);
                for (Alarm *a = due; a && a->period <= period; a = a->next)
                        if (a->rule.window_nsec == l.window && now >= a->due_at)
                                unit_look_need(&l, &a->rule);
                unit_look(u, now, &l);
                for (Alarm *a = due; a && a->period <= period; a = a->next)
                        if (a->rule.window_nsec == l.window && now >= a->due_at && alarm_look(a, &l)) {
                                news = true;
                                break;
                        }
        }
}

/* At the next multiple of the shortest period that is needed; not at all while there is no threshold. */
static void alarms_arm(Manager *m, bool at_once) {
        uint64_t period = 0, now = now_nsec(CLOCK_MONOTONIC);
        Alarms *alarms = m->alarms;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && m->units[i]->alarms)
                        period = MIN(period - 1, m->units[i]->alarms->period - 1) + 1; /* 0: none yet */
        if (period == 0) {
                (void) sd_event_source_set_enabled(alarms->timer, SD_EVENT_OFF);
                return;
        }
        (void) sd_event_source_set_time(alarms->timer, at_once ? 0 : (now / period + 1) * period / NSEC_PER_USEC);
        (void) sd_event_source_set_enabled(alarms->timer, SD_EVENT_ONESHOT);
}

static void alarms_save(Alarms *alarms) {
        if (!alarms->saving)
                return;
        alarms->saving = false;
        manager_save(alarms->manager);
}

static int on_look(sd_event_source *source, uint64_t usec, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        Alarms *alarms = ASSERT_PTR(userdata);
        Manager *m = alarms->manager;

        /* Those of all units that cannot wait before those that can: the readings of longer windows take ten times as long */
        for (int slow = 0; slow < 2; slow++)
                for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                        Unit *u = m->units[i];

                        if (!u || !u->alarms || (slow && now < u->alarms_slow_at))
                                continue;
                        if (slow)
                                u->alarms_slow_at = (now / THRESHOLD_PERIOD_MAX_NSEC + 1) * THRESHOLD_PERIOD_MAX_NSEC;
                        if (!unit_look_at_alarms(u, now, slow ? THRESHOLD_PERIOD_MAX_NSEC : THRESHOLD_PERIOD_MIN_NSEC))
                                continue;
                        /* Not when all others have been looked at, too */
                        varlink_server_flush(m->varlink_server);
                        /* Before the first ones are overwritten */
                        if (alarms->seq - alarms->logged > ALARM_EVENTS_MAX - ALARMS_PER_UNIT_MAX)
                                alarms_log(alarms);
                }
        alarms_log(alarms);
        alarms_save(alarms);
        alarms_arm(m, false);
        return 0;
}

static double alarm_get_burn(const Alarm *a, uint64_t window, double q) {
        uint64_t good, total;

        if (!unit_count_within(a->unit, a->rule.metric, window, a->rule.limit, &good, &total) || total == 0)
                return NAN;
        return (double) (total - good) / (double) total / (1 - q);
}

bool alarm_get_account(const Alarm *a, AlarmAccount *ret) {
        uint64_t good, total;
        const char *name;
        size_t length;
        double q;

        if (a->rule.below || *a->rule.selector || !threshold_get_quantile(a->rule.metric, &name, &length, &q) || q >= 1 ||
            !unit_count_within(a->unit, a->rule.metric, WINDOW_TOTAL, a->rule.limit, &good, &total))
                return false;

        /* An answer that is still leaving may turn out to be beyond the limit after all; and totals may have begun anew */
        *ret = (AlarmAccount) {
                .total = total - MIN(total, a->total_before),
                .burn_short = alarm_get_burn(a, ALARM_BURN_SHORT_NSEC, q),
                .burn_long = alarm_get_burn(a, ALARM_BURN_LONG_NSEC, q),
        };
        good -= MIN(good, a->good_before);
        ret->good = MIN(good, ret->total);
        return true;
}

/* ---- setting and clearing ------------------------------------------------------------------------------------- */

void alarm_free(Alarm *a) {
        Alarms *alarms = a->unit->manager->alarms;

        for (Alarm **p = &a->unit->alarms; *p; p = &(*p)->next)
                if (*p == a) {
                        *p = a->next;
                        break;
                }
        if (alarms)
                alarms->n--;
        free(a->origin);
        free(a);
}

/* Who acts on it would go on for ever: what is no longer looked at is unknown, and that is told as any other change. */
static void alarm_end(Alarm *a) {
        ThresholdState previous = a->machine.state;

        if (a->source != ALARM_CONDITION && (previous != THRESHOLD_UNKNOWN || previous != a->told)) {
                a->machine.state = THRESHOLD_UNKNOWN;
                a->since = now_nsec(CLOCK_REALTIME);
                a->value = NAN;
                a->samples = ABSENT;
                (void) alarm_settle(a, previous, now_nsec(CLOCK_MONOTONIC), NULL);
                alarms_log(a->unit->manager->alarms);
        }
        alarm_free(a);
}

static Alarm* unit_find_alarm(const Unit *u, const char *name) {
        for (Alarm *a = alarm_next(u, NULL); a; a = alarm_next(u, a))
                if (streq(a->rule.name, name))
                        return a;
        return NULL;
}

static int alarm_new(Unit *u, const ThresholdRule *rule, AlarmSource source, uid_t uid, uid_t owner_uid, void *lease_key, const char *origin, Alarm **ret) {
        uint64_t period = threshold_get_period(rule);
        Alarm **p = &u->alarms, *a;

        a = new0(Alarm, 1);
        if (!a)
                return -ENOMEM;
        while (*p && (*p)->period < period)
                p = &(*p)->next;
        *a = (Alarm) {
                .unit = u,
                .next = *p,
                .period = period,
                .rule = *rule,
                .source = source,
                .uid = uid,
                .owner_uid = owner_uid,
                .lease_key = lease_key,
                .origin = origin ? strdup(origin) : NULL,
                .since = now_nsec(CLOCK_REALTIME),
                .value = NAN,
                .samples = ABSENT,
        };
        if (origin && !a->origin) {
                free(a);
                return -ENOMEM;
        }
        *p = a;
        u->alarms_slow_at = 0;
        u->manager->alarms->n++;
        *ret = a;
        return 0;
}

static bool rule_equal(const ThresholdRule *a, const ThresholdRule *b) {
        return streq(a->name, b->name) && a->metric == b->metric && streq(a->selector, b->selector) && a->below == b->below && !(a->limit < b->limit) && !(a->limit > b->limit) &&
                !(a->clear < b->clear) && !(a->clear > b->clear) && a->window_nsec == b->window_nsec &&
                a->enter_nsec == b->enter_nsec && a->leave_nsec == b->leave_nsec && a->stay_nsec == b->stay_nsec;
}

static int too_many(unsigned max, const char *whose, QosError *e) {
        char limit[16];

        (void) snprintf(limit, sizeof(limit), "%u", max);
        return qos_error_set(e, QOS_ERROR_TOO_MANY_THRESHOLDS, limit, "%s %s thresholds, more are not allowed", whose, limit);
}

static int alarm_check_limits(const Unit *u, uid_t uid, QosError *e) {
        unsigned of_unit = 0, of_uid = 0, of_others = 0;
        Manager *m = u->manager;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                for (Alarm *a = m->units[i] ? m->units[i]->alarms : NULL; a; a = a->next) {
                        if (a->unit == u && a->source != ALARM_CONDITION)
                                of_unit++;
                        if (a->uid == uid)
                                of_uid++;
                        if (a->uid != 0)
                                of_others++;
                }
        if (of_unit >= ALARMS_PER_UNIT_MAX)
                return too_many(ALARMS_PER_UNIT_MAX, "the unit has", e);
        if (uid != 0 && of_uid >= ALARMS_PER_UID_MAX)
                return too_many(ALARMS_PER_UID_MAX, "the user has", e);
        if (uid != 0 && of_others >= without_reserve(ALARMS_MAX))
                return too_many(without_reserve(ALARMS_MAX), "there are", e);
        if (m->alarms->n >= ALARMS_MAX)
                return too_many(ALARMS_MAX, "there are", e);
        return 0;
}

/* Who owns the control group may not change what the administrator has set. */
static bool alarm_is_for(const Alarm *a, uid_t owner_uid) {
        return owner_uid == 0 || a->owner_uid == owner_uid;
}

int alarm_set(Manager *m, const AlarmRequest *request, Alarm **ret, QosError *e) {
        Alarm *a = NULL, *old;
        ThresholdRule rule;
        Unit *u;
        int r;

        r = request->source == ALARM_CONDITION ? threshold_parse_condition(request->threshold, m->config.default_window_nsec, &rule, e) :
                                                 threshold_parse(request->threshold, m->config.default_window_nsec, &rule, e);
        if (r < 0)
                return r;
        u = manager_get_unit(m, request->unit, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;

        if (request->source != ALARM_CONDITION)
                a = unit_find_alarm(u, rule.name);
        if (a && (a->source != request->source || a->lease_key != request->lease_key || !alarm_is_for(a, request->owner_uid)))
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, rule.name, "'%s' has a threshold '%s' already, %s%s", u->name, rule.name,
                                     a->source == ALARM_FILE ? "from " : a->source == ALARM_LEASE ? "for as long as another client is connected" :
                                                                                                   "set by the administrator",
                                     strempty(a->origin));
        if (a && rule_equal(&a->rule, &rule)) {
                /* The same once more changes nothing */
                a->seen = true;
                (void) free_and_strdup(&a->origin, request->origin);
                if (ret)
                        *ret = a;
                return 0;
        }

        if (!a) {
                r = alarm_check_limits(u, request->uid, e);
                if (r < 0)
                        return r;
        }
        old = a;
        r = alarm_new(u, &rule, request->source, request->uid, request->owner_uid, request->lease_key, request->origin, &a);
        if (r < 0)
                return r;
        if (old)
                alarm_end(old);
        a->seen = true;
        a->handler = request->handler;
        a->userdata = request->userdata;
        if (*rule.selector || !unit_count_within(u, rule.metric, WINDOW_TOTAL, rule.limit, &a->good_before, &a->total_before))
                a->good_before = a->total_before = 0;

        if (request->source != ALARM_CONDITION) {
                bus_server_unit_changed(m->bus_server, u);
                manager_save(m);
        }
        alarms_arm(m, true);
        if (ret)
                *ret = a;
        return 0;
}

int alarm_clear(Manager *m, const char *unit, const char *name, void *lease_key, uid_t owner_uid, QosError *e) {
        Alarm *a;
        Unit *u;

        u = manager_get_unit(m, unit, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;
        a = unit_find_alarm(u, name);
        if (!a)
                return qos_error_set(e, QOS_ERROR_NO_SUCH_THRESHOLD, name, "'%s' has no threshold '%s'", u->name,
                                     excerpt(name, (char[EXCERPT_MAX + 1]) {}));
        if (a->source == ALARM_FILE)
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, name, "'%s' of '%s' comes from %s, it goes when it is taken out there", name, u->name,
                                     strempty(a->origin));
        if (a->lease_key != lease_key || !alarm_is_for(a, owner_uid))
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, name, "'%s' of '%s' is somebody else's", name, u->name);

        alarm_end(a);
        bus_server_unit_changed(m->bus_server, u);
        manager_save(m);
        alarms_arm(m, false);
        return 0;
}

void alarms_forget_files(Unit *u) {
        Manager *m = u->manager;
        bool any = false;

        for (Alarm *a = u->alarms, *next; a; a = next) {
                next = a->next;
                if (a->source != ALARM_FILE || a->seen)
                        continue;
                any = true;
                alarm_end(a);
        }
        if (!any)
                return;
        bus_server_unit_changed(m->bus_server, u);
        manager_save(m);
        alarms_arm(m, false);
}

void alarms_release(Manager *m, const void *lease_key) {
        bool any = false;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                bool changed = false;

                for (Alarm *a = m->units[i] ? m->units[i]->alarms : NULL, *next; a; a = next) {
                        next = a->next;
                        if (!lease_key || a->lease_key != lease_key)
                                continue;
                        changed = changed || a->source != ALARM_CONDITION;
                        any = true;
                        alarm_end(a);
                }
                if (changed)
                        bus_server_unit_changed(m->bus_server, m->units[i]);
        }
        if (!any)
                return;
        alarms_save(m->alarms);
        alarms_arm(m, false);
}

bool alarms_have_lease(const Manager *m, const void *lease_key) {
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                for (Alarm *a = m->units[i] ? m->units[i]->alarms : NULL; a; a = a->next)
                        if (a->lease_key == lease_key)
                                return true;
        return false;
}

void alarms_unit_detached(Unit *u) {
        Manager *m = u->manager;

        while (u->alarms) {
                Alarm *a = u->alarms;

                if (a->source == ALARM_CONDITION) {
                        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

                        (void) qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, u->name, "'%s' is no longer attached", u->name);
                        a->handler(a, &e, a->userdata);
                }
                alarm_end(a);
        }
        alarms_arm(m, false);
}

/* ---- over a restart of qosd ----------------------------------------------------------------------------------- */

int alarms_to_json(const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        for (Alarm *a = alarm_next(u, NULL); a; a = alarm_next(u, a)) {
                _cleanup_free_ char *rule = NULL;

                /* Those who hold leases will have lost their connections */
                if (a->source == ALARM_LEASE)
                        continue;
                r = threshold_format(&a->rule, /* named= */ true, &rule);
                if (r >= 0)
                        r = sd_json_variant_append_arraybo(&array,
                                SD_JSON_BUILD_PAIR_STRING("threshold", rule),
                                /* If that is not what it is, it is still to be told */
                                SD_JSON_BUILD_PAIR_STRING("state", threshold_state_to_string(a->told)),
                                SD_JSON_BUILD_PAIR_UNSIGNED("since", a->since),
                                SD_JSON_BUILD_PAIR_UNSIGNED("violatedSince", a->machine.violated_since),
                                SD_JSON_BUILD_PAIR_UNSIGNED("goodBefore", a->good_before),
                                SD_JSON_BUILD_PAIR_UNSIGNED("totalBefore", a->total_before),
                                SD_JSON_BUILD_PAIR_UNSIGNED("uid", a->uid),
                                SD_JSON_BUILD_PAIR_CONDITION(a->owner_uid != 0, "ownerUid", SD_JSON_BUILD_UNSIGNED(a->owner_uid)),
                                SD_JSON_BUILD_PAIR_CONDITION(!!a->origin, "origin", SD_JSON_BUILD_STRING(a->origin)));
                /* The others are */
                if (r < 0 && !a->unsaved)
                        log_unit_warning_errno(u->name, r, "The threshold '%s' of '%s' cannot be kept over a restart of qosd: %m", a->rule.name, u->name);
                a->unsaved = r < 0;
        }

        *ret = TAKE_PTR(array);
        return 0;
}

typedef struct SavedAlarm {
        const char *threshold, *state, *origin;
        uint64_t since, violated_since, good_before, total_before;
        uid_t uid, owner_uid;
} SavedAlarm;

static int alarm_from_json(Unit *u, sd_json_variant *v) {
        static const sd_json_dispatch_field table[] = {
                { "threshold",     SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedAlarm, threshold),      SD_JSON_MANDATORY },
                { "state",         SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedAlarm, state),          SD_JSON_MANDATORY },
                { "since",         SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedAlarm, since),          SD_JSON_MANDATORY },
                { "violatedSince", SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedAlarm, violated_since), SD_JSON_MANDATORY },
                { "goodBefore",    SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedAlarm, good_before),    0                 },
                { "totalBefore",   SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedAlarm, total_before),   0                 },
                { "uid",           SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid,      offsetof(SavedAlarm, uid),            SD_JSON_MANDATORY },
                { "ownerUid",      SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid,      offsetof(SavedAlarm, owner_uid),      0                 },
                { "origin",        SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedAlarm, origin),         0                 },
                {}
        };
        SavedAlarm saved = {};
        ThresholdState state;
        ThresholdRule rule;
        Alarm *a;
        int r;

        r = sd_json_dispatch(v, table, SD_JSON_ALLOW_EXTENSIONS, &saved);
        if (r >= 0)
                r = threshold_parse(saved.threshold, WINDOW_DEFAULT_NSEC, &rule, NULL);
        if (r < 0)
                return r;
        state = threshold_state_from_string(saved.state);
        if (state == _THRESHOLD_STATE_MAX)
                return -EBADMSG;

        r = alarm_new(u, &rule, saved.origin ? ALARM_FILE : ALARM_ADMINISTRATOR, saved.uid, saved.owner_uid, NULL, saved.origin, &a);
        if (r < 0)
                return r;
        a->since = saved.since;
        a->machine.state = a->told = state;
        a->machine.violated_since = saved.violated_since;
        a->good_before = saved.good_before;
        a->total_before = saved.total_before;
        alarms_arm(u->manager, true);
        return 0;
}

void alarms_from_json(Unit *u, sd_json_variant *v) {
        for (size_t i = 0; v && i < sd_json_variant_elements(v); i++) {
                int r = alarm_from_json(u, sd_json_variant_by_index(v, i));

                if (r < 0)
                        log_unit_warning_errno(u->name, r, "A threshold of '%s' that was kept makes no sense, ignoring: %m", u->name);
        }
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

int alarms_new(Manager *m, Alarms **ret) {
        const char *directories;
        Alarms *alarms;
        int r;

        alarms = new0(Alarms, 1);
        if (!alarms)
                return -ENOMEM;
        alarms->manager = m;
        /* If nothing is known of a run before: beyond all that it may have given, which come less often than this counts */
        alarms->seq = alarms->seq_begin = now_nsec(CLOCK_REALTIME) / NSEC_PER_USEC;

        alarms->logged = alarms->seq;

        r = log_is_journal() ? journal_new(m->event, JOURNAL_SOCKET, &alarms->journal) : 0;
        if (r >= 0)
                r = sd_event_add_time(m->event, &alarms->timer, CLOCK_MONOTONIC, 0, USEC_PER_MSEC, on_look, alarms);
        /* Before clients, who could keep the loop so busy that what has to be so for a while never was */
        if (r >= 0)
                r = sd_event_source_set_priority(alarms->timer, SD_EVENT_PRIORITY_IMPORTANT);
        if (r >= 0)
                r = sd_event_source_set_enabled(alarms->timer, SD_EVENT_OFF);

        /* The second one of RuntimeDirectory= */
        directories = getenv("RUNTIME_DIRECTORY");
        directories = directories ? strchr(directories, ':') : NULL;
        if (r >= 0 && directories) {
                alarms->directory = strdup(directories + 1);
                if (!alarms->directory)
                        r = -ENOMEM;
                else
                        (void) chmod(alarms->directory, 0755);
        }
        if (r < 0) {
                alarms_free(alarms);
                return r;
        }

        *ret = alarms;
        return 0;
}

/* The files stay: they are right when the next run begins, and a stop of the service takes their directory away. */
Alarms* alarms_free(Alarms *alarms) {
        if (!alarms)
                return NULL;

        sd_event_source_disable_unref(alarms->timer);
        for (size_t i = 0; i < ALARM_EVENTS_MAX; i++)
                free(alarms->events[i].unit);
        while (alarms->talkers) {
                Talker *t = alarms->talkers;

                alarms->talkers = t->next;
                free(t);
        }
        journal_free(alarms->journal);
        free(alarms->directory);
        free(alarms);
        return NULL;
}
