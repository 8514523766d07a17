/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

#include "log.h"
#include "observer.h"
#include "threshold-monitor.h"

/* A user whose thresholds change. */
typedef struct UserRateLimit {
        struct UserRateLimit *next;
        uid_t uid;
        uint64_t since;                 /* CLOCK_MONOTONIC ns: since then … */
        unsigned n;                     /* … so many changes were told */
        uint64_t left_out;              /* that were not, and nobody knows of yet */
} UserRateLimit;

struct ThresholdMonitor {
        Manager *manager;
        UserRateLimit *rate_limits;
        sd_event_source *timer;
        bool saving;                    /* something is to be kept after this round */
        unsigned n;
        uint64_t seq;                   /* of the newest event */
        uint64_t seq_begin;             /* before the first */
        ThresholdEvent events[THRESHOLD_EVENTS_MAX]; /* by seq, modulo */
        uint64_t ended;                 /* the newest event when a round ended last */
        char *directory;                /* of the files of violated thresholds; NULL: nowhere */
};

const char* threshold_source_to_string(ThresholdSource s) {
        static const char *const table[_THRESHOLD_SOURCE_MAX] = {
                [THRESHOLD_SOURCE_ADMINISTRATOR] = "administrator",
                [THRESHOLD_SOURCE_LEASE]         = "lease",
                [THRESHOLD_SOURCE_FILE]          = "unitFile",
                [THRESHOLD_SOURCE_CONDITION]     = "condition",
        };

        return table[s];
}

/* ---- files of what is violated -------------------------------------------------------------------------------- */

/* The name of a unit as that of a directory; that of a control group's path as systemd-escape --path has it. */
static int level_directory(const ThresholdMonitor *thresholds, const char *unit, char **ret) {
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

        if (asprintf(ret, "%s/%s", thresholds->directory, name) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int level_create(const char *directory, const Threshold *a) {
        _cleanup_free_ char *path = NULL, *rule = NULL;
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (asprintf(&path, "%s/%s", directory, a->rule.name) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        /* For everybody, as thresholds are */
        r = threshold_rule_format(&a->rule, /* named= */ false, &rule);
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
static void threshold_update_flag(const Threshold *a, bool violated) {
        ThresholdMonitor *thresholds = a->unit->manager->thresholds;
        _cleanup_free_ char *directory = NULL;
        int r;

        if (!thresholds->directory || a->source == THRESHOLD_SOURCE_CONDITION)
                return;
        r = level_directory(thresholds, a->unit->name, &directory);
        if (r >= 0 && violated)
                r = level_create(directory, a);
        else if (r >= 0)
                level_remove(directory, a->rule.name);
        if (r < 0)
                log_unit_warning_errno(a->unit->name, r, "Failed to make the file that says that '%s' of '%s' is violated: %m",
                                       a->rule.name, a->unit->name);
}

/* Takes away those of before that are no longer right. */
static void directory_prune(const ThresholdMonitor *thresholds) {
        DIR *d;

        d = opendir(thresholds->directory);
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
                                Unit *u = thresholds->manager->units[i];

                                if (!u || level_directory(thresholds, u->name, &directory) < 0 || !streq(strrchr(directory, '/') + 1, de->d_name))
                                        continue;
                                for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a))
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

void threshold_monitor_restored(Manager *m) {
        ThresholdMonitor *thresholds = m->thresholds;

        if (!thresholds->directory)
                return;
        directory_prune(thresholds);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                for (Threshold *a = m->units[i] ? threshold_next(m->units[i], NULL) : NULL; a; a = threshold_next(m->units[i], a))
                        if (a->machine.state == THRESHOLD_VIOLATED)
                                threshold_update_flag(a, true);
}

/* ---- events --------------------------------------------------------------------------------------------------- */

const char* state_share_name(const ShareChange *c) {
        for (const Metric *m = metric_table; m < metric_table + metric_table_size; m++)
                if (m->offset == offsetof(Metrics, contention.shares[c->state]))
                        return m->name + strlen("contention.shares.");
        abort();
}

/* Those who have not said anything for long, and of whom nothing is left out, are forgotten. NULL: memory ran out. */
static UserRateLimit* monitor_get_rate_limit(ThresholdMonitor *thresholds, uid_t uid, uint64_t now) {
        UserRateLimit *t;

        for (UserRateLimit **p = &thresholds->rate_limits; (t = *p); ) {
                if (t->uid == uid)
                        break;
                if (t->left_out == 0 && now >= t->since + CROSSINGS_NSEC) {
                        *p = t->next;
                        free(t);
                } else
                        p = &t->next;
        }
        if (!t) {
                t = new0(UserRateLimit, 1);
                if (!t)
                        return NULL;
                t->uid = uid;
                t->next = thresholds->rate_limits;
                thresholds->rate_limits = t;
        }
        if (now >= t->since + CROSSINGS_NSEC) {
                t->since = now;
                t->n = 0;
        }
        return t;
}

/* The state has changed. l: what was looked at; NULL: nothing. */
static void threshold_notify(Threshold *a, uint64_t left_out, const ThresholdSample *l) {
        Manager *m = a->unit->manager;
        ThresholdMonitor *thresholds = m->thresholds;
        ThresholdEvent *e = thresholds->events + (thresholds->seq + 1) % THRESHOLD_EVENTS_MAX;
        char *unit;

        thresholds->seq++;
        unit = strdup(a->unit->name);
        if (!unit)
                (void) log_oom(); /* the event is lost, and threshold_monitor_foreach_event() says so */
        free(e->unit);
        *e = (ThresholdEvent) {
                .seq = thresholds->seq,
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
        thresholds->saving = true;
        if (l)
                e->n_shares = unit_get_state_share_changes(a->unit, l->now, l->window, e->shares);
        if (!unit)
                return;
        manager_emit_threshold_event(a->unit, e);
}

/* Tells what the state has become, if that is news and its user has not had too much to say. Returns true if it was told. */
static bool threshold_notify_if_changed(Threshold *a, ThresholdState previous, uint64_t now,
                const ThresholdSample *l) {
        bool changed = a->machine.state != previous, waited = previous != a->told, news = a->machine.state != a->told;
        ThresholdMonitor *thresholds = a->unit->manager->thresholds;
        uint64_t left_out = 0;

        if (changed)
                threshold_update_flag(a, a->machine.state == THRESHOLD_VIOLATED);
        else if (!news)
                return false;

        if (a->uid != 0) {
                UserRateLimit *t = monitor_get_rate_limit(thresholds, a->uid, now);

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
        threshold_notify(a, left_out, l);
        return true;
}

uint64_t threshold_monitor_get_seq(const Manager *m) {
        return m->thresholds->seq;
}

uint64_t threshold_monitor_get_seq_begin(const Manager *m) {
        return m->thresholds->seq_begin;
}

void threshold_monitor_set_seq(Manager *m, uint64_t seq, uint64_t begin) {
        m->thresholds->seq = seq;
        m->thresholds->seq_begin = MIN(begin, seq);
        m->thresholds->ended = seq;
}

/* NULL: it is no longer known, or was of a run before this one. */
static const ThresholdEvent* threshold_monitor_get_event(const ThresholdMonitor *thresholds, uint64_t seq) {
        const ThresholdEvent *e = thresholds->events + seq % THRESHOLD_EVENTS_MAX;

        return e->seq == seq && e->unit ? e : NULL;
}

uint64_t threshold_monitor_count_lost(const Manager *m, uint64_t since) {
        const ThresholdMonitor *thresholds = m->thresholds;
        uint64_t n = thresholds->seq - since, lost = n - MIN(n, (uint64_t) THRESHOLD_EVENTS_MAX);

        for (uint64_t seq = since + lost + 1; seq <= thresholds->seq; seq++)
                if (!threshold_monitor_get_event(thresholds, seq))
                        lost++;
        return lost;
}

int threshold_monitor_foreach_event(Manager *m, uint64_t since, int (*f)(const ThresholdEvent *e, void *userdata), void *userdata) {
        const ThresholdMonitor *thresholds = m->thresholds;
        uint64_t n = MIN(thresholds->seq - since, (uint64_t) THRESHOLD_EVENTS_MAX);

        for (uint64_t seq = thresholds->seq - n + 1; seq <= thresholds->seq; seq++) {
                const ThresholdEvent *e = threshold_monitor_get_event(thresholds, seq);
                int r = e ? f(e, userdata) : 0;

                if (r < 0)
                        return r;
        }
        return 0;
}

/* After all others were told what has happened: observers that take long do it now. */
static void threshold_monitor_end_round(ThresholdMonitor *thresholds) {
        if (thresholds->ended == thresholds->seq)
                return;
        thresholds->ended = thresholds->seq;
        manager_emit_round_end(thresholds->manager);
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

Threshold* threshold_next(const Unit *u, const Threshold *a) {
        Threshold *i = a ? a->next : u->thresholds;

        while (i && i->source == THRESHOLD_SOURCE_CONDITION)
                i = i->next;
        return i;
}

/* True if that was news for somebody, who may have done anything to the unit's thresholds. */
static bool threshold_evaluate(Threshold *a, const ThresholdSample *l) {
        ThresholdState previous = a->machine.state;

        a->next_evaluation = (l->now / a->period + 1) * a->period;
        a->value = unit_get_threshold_value(a->unit, l, &a->rule, &a->samples);
        if (threshold_machine_step(&a->rule, &a->machine, l->now, a->value))
                a->since = l->timestamp;
        if (a->source != THRESHOLD_SOURCE_CONDITION && a->machine.state == THRESHOLD_VIOLATED)
                unit_note_violation(a->unit, l->now - MIN(l->now, a->rule.window_nsec + a->rule.enter_nsec), a->next_evaluation);
        if (a->source != THRESHOLD_SOURCE_CONDITION)
                return threshold_notify_if_changed(a, previous, l->now, l);
        if (a->machine.state == previous)
                return false;
        if (a->machine.state == THRESHOLD_VIOLATED) {
                a->handler(a, NULL, a->userdata);
                threshold_free(a);
        }
        return true;
}

/* The first that is due of those that are looked at so often or more: these come first. */
static Threshold* unit_find_due(const Unit *u, uint64_t now, uint64_t period) {
        Threshold *a = u->thresholds;

        while (a && a->period <= period && now < a->next_evaluation)
                a = a->next;
        return a && a->period <= period ? a : NULL;
}

/* One reading for all that are due and have the window. Returns true if there was news for somebody. */
static bool unit_evaluate_thresholds(Unit *u, uint64_t now, uint64_t period) {
        bool news = false;

        for (;;) {
                Threshold *due = unit_find_due(u, now, period);
                ThresholdSample l;

                if (!due)
                        return news;
                threshold_sample_init(&l, due->rule.window_nsec);
                for (Threshold *a = due; a && a->period <= period; a = a->next)
                        if (a->rule.window_nsec == l.window && now >= a->next_evaluation)
                                threshold_sample_require(&l, &a->rule);
                threshold_sample_read(u, now, &l);
                for (Threshold *a = due; a && a->period <= period; a = a->next)
                        if (a->rule.window_nsec == l.window && now >= a->next_evaluation &&
                                        threshold_evaluate(a, &l)) {
                                news = true;
                                break;
                        }
        }
}

/* At the next multiple of the shortest period that is needed; not at all while there is no threshold. */
static void monitor_arm_timer(Manager *m, bool at_once) {
        uint64_t period = 0, now = now_nsec(CLOCK_MONOTONIC);
        ThresholdMonitor *thresholds = m->thresholds;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i] && m->units[i]->thresholds)
                        period = MIN(period - 1, m->units[i]->thresholds->period - 1) + 1; /* 0: none yet */
        if (period == 0) {
                (void) sd_event_source_set_enabled(thresholds->timer, SD_EVENT_OFF);
                return;
        }
        (void) sd_event_source_set_time(thresholds->timer, at_once ? 0 : (now / period + 1) * period / NSEC_PER_USEC);
        (void) sd_event_source_set_enabled(thresholds->timer, SD_EVENT_ONESHOT);
}

static void threshold_monitor_save(ThresholdMonitor *thresholds) {
        if (!thresholds->saving)
                return;
        thresholds->saving = false;
        manager_save(thresholds->manager);
}

static int on_threshold_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        ThresholdMonitor *thresholds = ASSERT_PTR(userdata);
        Manager *m = thresholds->manager;

        /* Those of all units that cannot wait before those that can: the readings of longer windows take ten times as long */
        for (int slow = 0; slow < 2; slow++)
                for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                        Unit *u = m->units[i];

                        if (!u || !u->thresholds || (slow && now < u->threshold_monitor_slow_at))
                                continue;
                        if (slow)
                                u->threshold_monitor_slow_at = (now / THRESHOLD_PERIOD_MAX_NSEC + 1) * THRESHOLD_PERIOD_MAX_NSEC;
                        if (!unit_evaluate_thresholds(u, now, slow ? THRESHOLD_PERIOD_MAX_NSEC : THRESHOLD_PERIOD_MIN_NSEC))
                                continue;
                        /* Not when all others have been looked at, too */
                        manager_emit_unit_evaluated(u);
                        /* Before the first ones are overwritten */
                        if (thresholds->seq - thresholds->ended > THRESHOLD_EVENTS_MAX - THRESHOLDS_PER_UNIT_MAX)
                                threshold_monitor_end_round(thresholds);
                }
        threshold_monitor_end_round(thresholds);
        threshold_monitor_save(thresholds);
        monitor_arm_timer(m, false);
        return 0;
}

static double threshold_get_burn_rate(const Threshold *a, uint64_t window, double q) {
        uint64_t good, total;

        if (!unit_count_within(a->unit, a->rule.metric, window, a->rule.limit, &good, &total) || total == 0)
                return NAN;
        return (double) (total - good) / (double) total / (1 - q);
}

bool threshold_get_error_budget(const Threshold *a, ErrorBudget *ret) {
        uint64_t good, total;
        const char *name;
        size_t length;
        double q;

        if (a->rule.below || *a->rule.selector || !threshold_rule_get_quantile(a->rule.metric, &name, &length, &q) || q >= 1 ||
            !unit_count_within(a->unit, a->rule.metric, WINDOW_TOTAL, a->rule.limit, &good, &total))
                return false;

        /* An answer that is still leaving may turn out to be beyond the limit after all; and totals may have begun anew */
        *ret = (ErrorBudget) {
                .total = total - MIN(total, a->total_before),
                .burn_short = threshold_get_burn_rate(a, BURN_RATE_SHORT_NSEC, q),
                .burn_long = threshold_get_burn_rate(a, BURN_RATE_LONG_NSEC, q),
        };
        good -= MIN(good, a->good_before);
        ret->good = MIN(good, ret->total);
        return true;
}

/* ---- setting and clearing ------------------------------------------------------------------------------------- */

void threshold_free(Threshold *a) {
        ThresholdMonitor *thresholds = a->unit->manager->thresholds;

        for (Threshold **p = &a->unit->thresholds; *p; p = &(*p)->next)
                if (*p == a) {
                        *p = a->next;
                        break;
                }
        if (thresholds)
                thresholds->n--;
        free(a->origin);
        free(a);
}

/* Who acts on it would go on for ever: what is no longer looked at is unknown, and that is told as any other change. */
static void threshold_remove(Threshold *a) {
        ThresholdState previous = a->machine.state;

        if (a->source != THRESHOLD_SOURCE_CONDITION &&
                        (previous != THRESHOLD_UNKNOWN || previous != a->told)) {
                a->machine.state = THRESHOLD_UNKNOWN;
                a->since = now_nsec(CLOCK_REALTIME);
                a->value = NAN;
                a->samples = ABSENT;
                (void) threshold_notify_if_changed(a, previous, now_nsec(CLOCK_MONOTONIC), NULL);
                threshold_monitor_end_round(a->unit->manager->thresholds);
        }
        threshold_free(a);
}

static Threshold* unit_find_threshold(const Unit *u, const char *name) {
        for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a))
                if (streq(a->rule.name, name))
                        return a;
        return NULL;
}

static int threshold_new(Unit *u, const ThresholdRule *rule, ThresholdSource source, uid_t uid, uid_t owner_uid, void *lease_key, const char *origin, Threshold **ret) {
        uint64_t period = threshold_rule_get_period(rule);
        Threshold **p = &u->thresholds, *a;

        a = new0(Threshold, 1);
        if (!a)
                return -ENOMEM;
        while (*p && (*p)->period < period)
                p = &(*p)->next;
        *a = (Threshold) {
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
        u->threshold_monitor_slow_at = 0;
        u->manager->thresholds->n++;
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

static int threshold_check_limits(const Unit *u, uid_t uid, QosError *e) {
        unsigned of_unit = 0, of_uid = 0, of_others = 0;
        Manager *m = u->manager;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                for (Threshold *a = m->units[i] ? m->units[i]->thresholds : NULL; a; a = a->next) {
                        if (a->unit == u && a->source != THRESHOLD_SOURCE_CONDITION)
                                of_unit++;
                        if (a->uid == uid)
                                of_uid++;
                        if (a->uid != 0)
                                of_others++;
                }
        if (of_unit >= THRESHOLDS_PER_UNIT_MAX)
                return too_many(THRESHOLDS_PER_UNIT_MAX, "the unit has", e);
        if (uid != 0 && of_uid >= THRESHOLDS_PER_UID_MAX)
                return too_many(THRESHOLDS_PER_UID_MAX, "the user has", e);
        if (uid != 0 && of_others >= limit_for_unprivileged(THRESHOLDS_MAX))
                return too_many(limit_for_unprivileged(THRESHOLDS_MAX), "there are", e);
        if (m->thresholds->n >= THRESHOLDS_MAX)
                return too_many(THRESHOLDS_MAX, "there are", e);
        return 0;
}

/* Who owns the control group may not change what the administrator has set. */
static bool threshold_is_for(const Threshold *a, uid_t owner_uid) {
        return owner_uid == 0 || a->owner_uid == owner_uid;
}

int threshold_set(Manager *m, const ThresholdRequest *request, Threshold **ret, QosError *e) {
        Threshold *a = NULL, *old;
        ThresholdRule rule;
        Unit *u;
        int r;

        r = request->source == THRESHOLD_SOURCE_CONDITION ? threshold_rule_parse_condition(request->threshold, m->config.default_window_nsec, &rule, e) :
                                                 threshold_rule_parse(request->threshold, m->config.default_window_nsec, &rule, e);
        if (r < 0)
                return r;
        u = manager_get_unit(m, request->unit, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;

        if (request->source != THRESHOLD_SOURCE_CONDITION)
                a = unit_find_threshold(u, rule.name);
        if (a && (a->source != request->source || a->lease_key != request->lease_key || !threshold_is_for(a, request->owner_uid)))
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, rule.name, "'%s' has a threshold '%s' already, %s%s", u->name, rule.name,
                                     a->source == THRESHOLD_SOURCE_FILE ? "from " : a->source == THRESHOLD_SOURCE_LEASE ? "for as long as another client is connected" :
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
                r = threshold_check_limits(u, request->uid, e);
                if (r < 0)
                        return r;
        }
        old = a;
        r = threshold_new(u, &rule, request->source, request->uid, request->owner_uid, request->lease_key, request->origin, &a);
        if (r < 0)
                return r;
        if (old)
                threshold_remove(old);
        a->seen = true;
        a->handler = request->handler;
        a->userdata = request->userdata;
        if (*rule.selector || !unit_count_within(u, rule.metric, WINDOW_TOTAL, rule.limit, &a->good_before, &a->total_before))
                a->good_before = a->total_before = 0;

        if (request->source != THRESHOLD_SOURCE_CONDITION) {
                manager_emit_unit_changed(u);
                manager_save(m);
        }
        monitor_arm_timer(m, true);
        if (ret)
                *ret = a;
        return 0;
}

int threshold_clear(Manager *m, const char *unit, const char *name, void *lease_key, uid_t owner_uid, QosError *e) {
        Threshold *a;
        Unit *u;

        u = manager_get_unit(m, unit, e);
        if (!u)
                return e && e->code == QOS_ERROR_INVALID_UNIT_NAME ? -EINVAL : -ENXIO;
        a = unit_find_threshold(u, name);
        if (!a)
                return qos_error_set(e, QOS_ERROR_NO_SUCH_THRESHOLD, name, "'%s' has no threshold '%s'", u->name,
                                     excerpt(name, (char[EXCERPT_MAX + 1]) {}));
        if (a->source == THRESHOLD_SOURCE_FILE)
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, name, "'%s' of '%s' comes from %s, it goes when it is taken out there", name, u->name,
                                     strempty(a->origin));
        if (a->lease_key != lease_key || !threshold_is_for(a, owner_uid))
                return qos_error_set(e, QOS_ERROR_THRESHOLD_EXISTS, name, "'%s' of '%s' is somebody else's", name, u->name);

        threshold_remove(a);
        manager_emit_unit_changed(u);
        manager_save(m);
        monitor_arm_timer(m, false);
        return 0;
}

void threshold_monitor_forget_files(Unit *u) {
        Manager *m = u->manager;
        bool any = false;

        for (Threshold *a = u->thresholds, *next; a; a = next) {
                next = a->next;
                if (a->source != THRESHOLD_SOURCE_FILE || a->seen)
                        continue;
                any = true;
                threshold_remove(a);
        }
        if (!any)
                return;
        manager_emit_unit_changed(u);
        manager_save(m);
        monitor_arm_timer(m, false);
}

void threshold_monitor_release(Manager *m, const void *lease_key) {
        bool any = false;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                bool changed = false;

                for (Threshold *a = m->units[i] ? m->units[i]->thresholds : NULL, *next; a; a = next) {
                        next = a->next;
                        if (!lease_key || a->lease_key != lease_key)
                                continue;
                        changed = changed || a->source != THRESHOLD_SOURCE_CONDITION;
                        any = true;
                        threshold_remove(a);
                }
                if (changed)
                        manager_emit_unit_changed(m->units[i]);
        }
        if (!any)
                return;
        threshold_monitor_save(m->thresholds);
        monitor_arm_timer(m, false);
}

bool threshold_monitor_have_lease(const Manager *m, const void *lease_key) {
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                for (Threshold *a = m->units[i] ? m->units[i]->thresholds : NULL; a; a = a->next)
                        if (a->lease_key == lease_key)
                                return true;
        return false;
}

void threshold_monitor_unit_detached(Unit *u) {
        Manager *m = u->manager;

        while (u->thresholds) {
                Threshold *a = u->thresholds;

                if (a->source == THRESHOLD_SOURCE_CONDITION) {
                        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

                        (void) qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, u->name, "'%s' is no longer attached", u->name);
                        a->handler(a, &e, a->userdata);
                }
                threshold_remove(a);
        }
        monitor_arm_timer(m, false);
}

/* ---- over a restart of qosd ----------------------------------------------------------------------------------- */

int thresholds_list_to_json(const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a)) {
                _cleanup_free_ char *rule = NULL;

                /* Those who hold leases will have lost their connections */
                if (a->source == THRESHOLD_SOURCE_LEASE)
                        continue;
                r = threshold_rule_format(&a->rule, /* named= */ true, &rule);
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

typedef struct SavedThreshold {
        const char *threshold, *state, *origin;
        uint64_t since, violated_since, good_before, total_before;
        uid_t uid, owner_uid;
} SavedThreshold;

static int threshold_from_json(Unit *u, sd_json_variant *v) {
        static const sd_json_dispatch_field table[] = {
                { "threshold",     SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedThreshold, threshold),      SD_JSON_MANDATORY },
                { "state",         SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedThreshold, state),          SD_JSON_MANDATORY },
                { "since",         SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedThreshold, since),          SD_JSON_MANDATORY },
                { "violatedSince", SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedThreshold, violated_since), SD_JSON_MANDATORY },
                { "goodBefore",    SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedThreshold, good_before),    0                 },
                { "totalBefore",   SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,       offsetof(SavedThreshold, total_before),   0                 },
                { "uid",           SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid,      offsetof(SavedThreshold, uid),            SD_JSON_MANDATORY },
                { "ownerUid",      SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid,      offsetof(SavedThreshold, owner_uid),      0                 },
                { "origin",        SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string, offsetof(SavedThreshold, origin),         0                 },
                {}
        };
        SavedThreshold saved = {};
        ThresholdState state;
        ThresholdRule rule;
        Threshold *a;
        int r;

        r = sd_json_dispatch(v, table, SD_JSON_ALLOW_EXTENSIONS, &saved);
        if (r >= 0)
                r = threshold_rule_parse(saved.threshold, WINDOW_DEFAULT_NSEC, &rule, NULL);
        if (r < 0)
                return r;
        state = threshold_state_from_string(saved.state);
        if (state == _THRESHOLD_STATE_MAX)
                return -EBADMSG;

        r = threshold_new(u, &rule, saved.origin ? THRESHOLD_SOURCE_FILE : THRESHOLD_SOURCE_ADMINISTRATOR, saved.uid, saved.owner_uid, NULL, saved.origin, &a);
        if (r < 0)
                return r;
        a->since = saved.since;
        a->machine.state = a->told = state;
        a->machine.violated_since = saved.violated_since;
        a->good_before = saved.good_before;
        a->total_before = saved.total_before;
        monitor_arm_timer(u->manager, true);
        return 0;
}

void threshold_monitor_from_json(Unit *u, sd_json_variant *v) {
        for (size_t i = 0; v && i < sd_json_variant_elements(v); i++) {
                int r = threshold_from_json(u, sd_json_variant_by_index(v, i));

                if (r < 0)
                        log_unit_warning_errno(u->name, r, "A threshold of '%s' that was kept makes no sense, ignoring: %m", u->name);
        }
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

int threshold_monitor_new(Manager *m, ThresholdMonitor **ret) {
        const char *directories;
        ThresholdMonitor *thresholds;
        int r;

        thresholds = new0(ThresholdMonitor, 1);
        if (!thresholds)
                return -ENOMEM;
        thresholds->manager = m;
        /* If nothing is known of a run before: beyond all that it may have given, which come less often than this counts */
        thresholds->seq = thresholds->seq_begin = now_nsec(CLOCK_REALTIME) / NSEC_PER_USEC;
        thresholds->ended = thresholds->seq;

        r = sd_event_add_time(m->event, &thresholds->timer, CLOCK_MONOTONIC, 0, USEC_PER_MSEC, on_threshold_timer, thresholds);
        /* Before clients, who could keep the loop so busy that what has to be so for a while never was */
        if (r >= 0)
                r = sd_event_source_set_priority(thresholds->timer, SD_EVENT_PRIORITY_IMPORTANT);
        if (r >= 0)
                r = sd_event_source_set_enabled(thresholds->timer, SD_EVENT_OFF);

        /* The second one of RuntimeDirectory= */
        directories = getenv("RUNTIME_DIRECTORY");
        directories = directories ? strchr(directories, ':') : NULL;
        if (r >= 0 && directories) {
                thresholds->directory = strdup(directories + 1);
                if (!thresholds->directory)
                        r = -ENOMEM;
                else
                        (void) chmod(thresholds->directory, 0755);
        }
        if (r < 0) {
                threshold_monitor_free(thresholds);
                return r;
        }

        *ret = thresholds;
        return 0;
}

/* The files stay: they are right when the next run begins, and a stop of the service takes their directory away. */
ThresholdMonitor* threshold_monitor_free(ThresholdMonitor *thresholds) {
        if (!thresholds)
                return NULL;

        sd_event_source_disable_unref(thresholds->timer);
        for (size_t i = 0; i < THRESHOLD_EVENTS_MAX; i++)
                free(thresholds->events[i].unit);
        while (thresholds->rate_limits) {
                UserRateLimit *t = thresholds->rate_limits;

                thresholds->rate_limits = t->next;
                free(t);
        }
        free(thresholds->directory);
        free(thresholds);
        return NULL;
}
