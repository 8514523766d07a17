/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Keeps a quantile of the time to first byte of a unit below a target by throttling batch units, and
 * releases them when there is headroom. Uses only public interfaces: libqosd and those of the service
 * manager. The control law is in rules.h. */

#include <signal.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "arguments.h"
#include "qosd.h"
#include "quantiles.h"
#include "rules.h"

#define DESTINATION "org.freedesktop.systemd1", "/org/freedesktop/systemd1", \
        "org.freedesktop.systemd1.Manager"

/* Levels per batch unit. */
#define LEVELS 10U

/* Period in which a partially frozen unit is frozen and thawed once. It is short relative to the evaluated
 * windows. The service manager takes some hundred microseconds for each operation. */
#define PERIOD_USEC (200 * USEC_PER_MSEC)
#define TICK_USEC (PERIOD_USEC / LEVELS)

/* Evaluation interval: the step of the shortest windows. */
#define REFRESH_USEC (100 * USEC_PER_MSEC)

/* Short and longer window. Windows may begin up to one step earlier. */
#define WINDOW_NOW (300 * NSEC_PER_MSEC)
#define WINDOW_LONG NSEC_PER_SEC
/* Window that is used if the others have too few requests for the quantile */
#define WINDOW_LONGER (10 * NSEC_PER_SEC)

/* Release: number and interval of consecutive checks in which a unit has to be running, and timeout, shorter
 * than the stop timeout of a service. */
#define RELEASE_GOOD_MIN 3U
#define RELEASE_POLL_USEC (20 * USEC_PER_MSEC)
#define RELEASE_USEC (20 * USEC_PER_SEC)

/* Timeout of calls of qosd, during which nothing is thawed. Under load calls take up to 100 ms. After the
 * timeout, everything is released. */
#define READ_TIMEOUT_NSEC (3 * NSEC_PER_SEC)

/* Interval of reconnects to qosd. */
#define CONNECT_AGAIN_USEC USEC_PER_SEC

typedef struct Batch {
        const char *name;
        bool freeze;            /* desired state */
        bool frozen;            /* state requested from the service manager, if known */
        bool known, pending;
        bool complained;        /* a failure to freeze it was reported */
        uint64_t again_at;      /* CLOCK_MONOTONIC us of the next attempt to freeze it */
        struct Balance *balance;
} Batch;

typedef struct Balance {
        Arguments arguments;
        Batch *batch;                   /* one per argument */

        sd_event *event;
        sd_bus *bus;
        qosd *qosd;                     /* connected and attached */
        qosd_view *view;                /* NULL: no view, snapshots are used */
        uint64_t connect_at;    /* CLOCK_MONOTONIC us */
        uint64_t refresh_at;
        unsigned tick;

        Rules rules;                    /* level: tenths of all batch units */
} Balance;

/* ---- service manager ---------------------------------------------------------------------------------- */

static int on_freezer_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);
        Batch *u = ASSERT_PTR(userdata);

        u->pending = false;
        /* Inactive units cannot be frozen, and units being frozen cannot be thawed yet: try again */
        u->known = !e;
        if (e && u->freeze) {
                u->again_at = now_usec(CLOCK_MONOTONIC) + USEC_PER_SEC;
                if (!u->complained)
                        fprintf(stderr, "'%s' cannot be frozen: %s\n", u->name, e->message);
        }
        u->complained = e && u->freeze;
        return 0;
}

static void batch_apply(Batch *u) {
        int r;

        if (u->pending || (u->known && u->frozen == u->freeze) ||
            (u->freeze && now_usec(CLOCK_MONOTONIC) < u->again_at))
                return;
        r = sd_bus_call_method_async(u->balance->bus, NULL, DESTINATION, u->freeze ? "FreezeUnit" :
                                     "ThawUnit", on_freezer_reply, u, "s", u->name);
        if (r < 0)
                return;
        u->frozen = u->freeze;
        u->pending = true;
}

static int batch_set_quota(Batch *u, uint64_t quota) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r;

        r = sd_bus_call_method(u->balance->bus, DESTINATION, "SetUnitProperties", &error, NULL, "sba(sv)",
                               u->name, true, 1,
                               "CPUQuotaPerSecUSec", "t", quota);
        if (r < 0)
                fprintf(stderr, "Failed to set the CPU quota of '%s': %s\n", u->name,
                        error.message ?: strerror(-r));
        return r;
}

/* Thaws a unit, and waits until several checks have found it running. A freeze that a killed run has
 * requested may still be in progress, during which a unit cannot be thawed. */
static int batch_thaw(Batch *u, uint64_t until) {
        _cleanup_free_ char *path = NULL, *state = NULL;
        unsigned good = 0;
        int r;

        r = sd_bus_path_encode("/org/freedesktop/systemd1/unit", u->name, &path);
        if (r < 0)
                return r;

        for (;;) {
                _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

                free(state);
                state = NULL;
                r = sd_bus_get_property_string(u->balance->bus, "org.freedesktop.systemd1", path,
                                               "org.freedesktop.systemd1.Unit",
                                               "FreezerState", &error, &state);
                if (r < 0) {
                        fprintf(stderr, "Failed to query '%s': %s\n", u->name,
                                error.message ?: strerror(-r));
                        return r;
                }
                good = streq(state, "running") ? good + 1 : 0;
                if (good >= RELEASE_GOOD_MIN) {
                        u->freeze = u->frozen = false;
                        u->known = true;
                        return 0;
                }
                if (good == 0)
                        (void) sd_bus_call_method(u->balance->bus, DESTINATION, "ThawUnit", NULL, NULL, "s",
                                                  u->name);
                if (now_usec(CLOCK_MONOTONIC) >= until) {
                        fprintf(stderr, "Failed to thaw '%s', it is %s.\n", u->name, state);
                        return -ETIMEDOUT;
                }
                (void) usleep(RELEASE_POLL_USEC);
        }
}

/* Releases all batch units synchronously. */
static int batch_release_all(Balance *b) {
        uint64_t until = now_usec(CLOCK_MONOTONIC) + RELEASE_USEC;
        int r = 0, q;

        /* First without waiting for each, so that none is delayed by the others */
        for (size_t i = 0; i < b->arguments.n_batch; i++)
                (void) sd_bus_call_method(b->bus, DESTINATION, "ThawUnit", NULL, NULL, "s",
                                          b->batch[i].name);
        for (size_t i = 0; i < b->arguments.n_batch; i++) {
                q = batch_thaw(b->batch + i, until);
                r = r < 0 ? r : q;
                if (b->arguments.means == MEANS_QUOTA) {
                        q = batch_set_quota(b->batch + i, USEC_INFINITY);
                        r = r < 0 ? r : q;
                }
        }
        return r;
}

/* ---- levels ------------------------------------------------------------------------------------------- */

/* Lets as many units run as the level has whole units, and one more for a part of each period. */
static void level_apply_freezer(Balance *b) {
        unsigned whole = b->rules.level / LEVELS, part = b->rules.level % LEVELS;

        for (size_t i = 0; i < b->arguments.n_batch; i++) {
                b->batch[i].freeze = i > whole || (i == whole && b->tick % LEVELS >= part);
                batch_apply(b->batch + i);
        }
}

static void level_apply_quota(Balance *b) {
        uint64_t all = (uint64_t) sysconf(_SC_NPROCESSORS_ONLN) * USEC_PER_SEC;

        for (size_t i = 0; i < b->arguments.n_batch; i++)
                (void) batch_set_quota(b->batch + i, b->rules.level == b->rules.max ? USEC_INFINITY :
                                       /* The kernel's minimum is 1 % */
                                       MAX(all * b->rules.level / b->rules.max, USEC_PER_SEC / 100));
}

/* ---- metrics ------------------------------------------------------------------------------------------ */

/* Returns the next higher quantile of snapshots, as reacting too early is better than too late. */
static const char* quantile_metric(double q) {
        static const struct {
                double quantile;
                const char *metric;
        } table[] = {
#define QUANTILE_METRIC(name, label, quantile) { quantile, "requests.server.firstByte." #name },
                QUANTILE_LIST(QUANTILE_METRIC)
        };
        size_t i = 0;

        while (i < ELEMENTSOF(table) - 1 && q > table[i].quantile)
                i++;
        return table[i].metric;
}

static int read_window(Balance *b, uint64_t window, uint64_t *ret) {
        _cleanup_(qosd_snapshot_unrefp) qosd_snapshot *s = NULL;
        int r;

        if (b->view) {
                r = qosd_view_read(b->view, QOSD_FIRST_BYTE, window);
                return r < 0 ? r : qosd_view_get_quantile(b->view, b->arguments.quantile, ret);
        }
        r = qosd_read(b->qosd, &b->arguments.unit, 1, window, &s);
        return r < 0 ? r : qosd_snapshot_get_integer(s, quantile_metric(b->arguments.quantile), ret);
}

/* Reads the quantile over the first window with enough requests. */
static int read_quantile(Balance *b, uint64_t window, uint64_t or_window, uint64_t *ret) {
        int r;

        r = read_window(b, window, ret);
        return r == -ENODATA ? read_window(b, or_window, ret) : r;
}

/* To be called if there are no responses: there are no requests, or they hang. */
static int read_waiting(Balance *b, double *ret_slack) {
        _cleanup_(qosd_snapshot_unrefp) qosd_snapshot *s = NULL;
        uint64_t age = 0;
        int r;

        r = qosd_read(b->qosd, &b->arguments.unit, 1, WINDOW_LONG, &s);
        if (r < 0)
                return r;
        (void) qosd_snapshot_get_integer(s, "requests.server.oldestWaiting", &age);
        *ret_slack = age > b->arguments.target ? -1 : 1;
        return 0;
}

static int read_slack(Balance *b, double *ret_now, double *ret_long) {
        uint64_t now = 0, sec = 0;
        int r;

        r = read_quantile(b, WINDOW_NOW, WINDOW_LONG, &now);
        if (r >= 0)
                r = read_quantile(b, WINDOW_LONG, WINDOW_LONGER, &sec);
        if (r == -ENODATA) {
                r = read_waiting(b, ret_now);
                *ret_long = *ret_now;
                return r;
        }
        if (r < 0)
                return r;
        *ret_now = ((double) b->arguments.target - now) / b->arguments.target;
        *ret_long = ((double) b->arguments.target - sec) / b->arguments.target;
        return 0;
}

static void balance_decide(Balance *b, uint64_t now, double slack_now, double slack_long) {
        static const char *const table[] = {
                [ACTION_KEEP] = "keep",
                [ACTION_TAKE] = "take",
                [ACTION_GIVE] = "give",
        };
        Action action;

        action = rules_decide(&b->rules, now, slack_now, slack_long);
        if (action != ACTION_KEEP && b->arguments.means == MEANS_QUOTA)
                level_apply_quota(b);
        if (!b->arguments.verbose)
                return;
        printf("%.1f %s level=%u/%u slack=%.3f,%.3f backoff=%.0fs\n", (double) now / USEC_PER_SEC,
               table[action], b->rules.level, b->rules.max, slack_now, slack_long,
               (double) b->rules.back_off / USEC_PER_SEC);
        (void) fflush(stdout);
}

/* ---- the loop ----------------------------------------------------------------------------------------- */

/* Releases all batch units, as nothing may be throttled without metrics. */
static void balance_lose(Balance *b, uint64_t now, const char *step, int error) {
        fprintf(stderr, "No metrics of '%s' (%s: %s), releasing all batch units.\n",
                b->arguments.unit, step, strerror(-error));
        b->view = qosd_view_unref(b->view);
        b->qosd = qosd_unref(b->qosd);
        b->connect_at = now + CONNECT_AGAIN_USEC;
        rules_reset(&b->rules, now);
        if (b->arguments.means == MEANS_QUOTA)
                level_apply_quota(b);
}

/* Whether snapshots have metrics, if views are not available. */
static int balance_can_read(Balance *b) {
        _cleanup_(qosd_snapshot_unrefp) qosd_snapshot *s = NULL;
        uint64_t n;
        int r;

        r = qosd_read(b->qosd, &b->arguments.unit, 1, WINDOW_LONG, &s);
        return r < 0 ? r : qosd_snapshot_get_integer(s, "requests.server.count", &n);
}

static void balance_connect(Balance *b, uint64_t now) {
        const char *step = "connecting";
        int r;

        r = qosd_connect(NULL, &b->qosd);
        if (r >= 0) {
                step = "attaching";
                r = qosd_attach(b->qosd, b->arguments.unit, (const char *const[]) { "requests", NULL });
        }
        if (r >= 0)
                /* Not before, as attaching may take longer while programs are loaded. Nothing is throttled
                 * meanwhile */
                r = qosd_set_timeout(b->qosd, READ_TIMEOUT_NSEC);
        if (r >= 0) {
                step = "opening the view";
                r = qosd_view_open(b->qosd, b->arguments.unit, &b->view);
                /* The unit contains or has contained others. This may also occur after a reconnect */
                if (r == -EOPNOTSUPP)
                        r = balance_can_read(b);
        }
        if (r < 0)
                balance_lose(b, now, step, r);
        else
                (void) sd_notifyf(false, "READY=1\nSTATUS=Controlling %s.", b->arguments.unit);
}

static int on_tick(sd_event_source *s, uint64_t usec, void *userdata) {
        Balance *b = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        double slack_now, slack_long;
        int r;

        if (!b->qosd && now >= b->connect_at)
                balance_connect(b, now);
        if (b->qosd && now >= b->refresh_at) {
                b->refresh_at = now + REFRESH_USEC;
                r = read_slack(b, &slack_now, &slack_long);
                if (r < 0 && r != -EAGAIN)
                        balance_lose(b, now, "reading", r);
                else if (r >= 0)
                        balance_decide(b, now, slack_now, slack_long);
        }

        b->tick++;
        if (b->arguments.means == MEANS_FREEZE) {
                /* Once a second the state is requested again, as units may have been restarted */
                if (b->tick % (USEC_PER_SEC / TICK_USEC) == 0)
                        for (size_t i = 0; i < b->arguments.n_batch; i++)
                                b->batch[i].known = false;
                level_apply_freezer(b);
        }

        /* Relative to now, so that missed ticks are dropped */
        r = sd_event_source_set_time(s, now + TICK_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        return sd_event_exit(sd_event_source_get_event(s), 0);
}

/* Whether the service manager starts a unit that releases the batch units if this process is killed.
 * ExecStopPost= of the same service would not suffice, as its processes may be killed along with the others
 * of the control group. */
static bool is_guarded(Balance *b) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *unit = NULL;
        char **units = NULL;
        const char *path;
        bool guarded;
        int r;

        r = sd_bus_call_method(b->bus, DESTINATION, "GetUnitByPID", NULL, &unit, "u", (uint32_t) getpid());
        if (r >= 0)
                r = sd_bus_message_read(unit, "o", &path);
        if (r >= 0)
                r = sd_bus_get_property_strv(b->bus, "org.freedesktop.systemd1", path,
                                             "org.freedesktop.systemd1.Unit", "OnFailure", NULL, &units);
        guarded = r >= 0 && units && units[0];
        strv_free(units);
        return guarded;
}

static int balance_run(Balance *b) {
        static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
        sigset_t mask;
        int r;

        if (!is_guarded(b)) {
                fprintf(stderr, "qos-balance has to run as a service with OnFailure= set to a unit that "
                                "calls 'qos-balance --release', to release batch units if it is killed. "
                                "See qos-balance(1).\n");
                return -EPERM;
        }

        (void) sigemptyset(&mask);
        for (size_t i = 0; i < ELEMENTSOF(signals); i++)
                (void) sigaddset(&mask, signals[i]);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);

        r = sd_event_default(&b->event);
        if (r >= 0)
                r = sd_bus_set_close_on_exit(b->bus, false); /* it is flushed at exit */
        /* Without the connection nothing can be thawed: exit with failure, so that OnFailure= does it */
        if (r >= 0)
                r = sd_bus_set_exit_on_disconnect(b->bus, true);
        if (r >= 0)
                r = sd_bus_attach_event(b->bus, b->event, SD_EVENT_PRIORITY_NORMAL);
        for (size_t i = 0; i < ELEMENTSOF(signals) && r >= 0; i++)
                r = sd_event_add_signal(b->event, NULL, signals[i], on_signal, NULL);
        if (r >= 0)
                r = sd_event_add_time(b->event, NULL, CLOCK_MONOTONIC, 0, 1 /* usec */, on_tick, b);
        if (r >= 0)
                r = sd_event_loop(b->event);
        (void) sd_bus_detach_event(b->bus);
        b->view = qosd_view_unref(b->view);
        b->qosd = qosd_unref(b->qosd);
        sd_event_unref(b->event);
        return r;
}

/* Resolves aliases and missing suffixes. */
static int unit_get_id(sd_bus *bus, const char *name, char **ret) {
        static const char *const suffixes[] = { ".service", ".scope", ".slice", ".socket" };
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *full = NULL, *path = NULL;
        bool is_full = false;
        int r;

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++)
                is_full = is_full || endswith(name, suffixes[i]);
        if (asprintf(&full, "%s%s", name, is_full ? "" : ".service") < 0) {
                full = NULL;
                return -ENOMEM;
        }
        r = sd_bus_path_encode("/org/freedesktop/systemd1/unit", full, &path);
        if (r >= 0)
                r = sd_bus_get_property_string(bus, "org.freedesktop.systemd1", path,
                                               "org.freedesktop.systemd1.Unit", "Id", &error, ret);
        if (r < 0)
                fprintf(stderr, "Failed to query '%s': %s\n", full, error.message ?: strerror(-r));
        return r;
}

/* Checks the canonical names. */
static int balance_check_names(const Balance *b) {
        _cleanup_free_ char *unit = NULL;
        int r;

        /* May be the path of a control group */
        if (*b->arguments.unit != '/') {
                r = unit_get_id(b->bus, b->arguments.unit, &unit);
                if (r < 0)
                        return r;
        }
        for (unsigned i = 0; i < b->arguments.n_batch; i++) {
                _cleanup_free_ char *id = NULL;

                r = unit_get_id(b->bus, b->batch[i].name, &id);
                if (r < 0)
                        return r;
                if (!may_be_held_back(id, unit ?: b->arguments.unit))
                        return -EPERM;
        }
        return 0;
}

static void help(void) {
        printf("%s --unit=UNIT --target=TIME [OPTIONS...] BATCH-UNIT...\n\n"
               "Keep the time to first byte of UNIT below TIME by throttling batch units.\n\n"
               "  -u --unit=UNIT        Unit to be protected\n"
               "  -t --target=TIME      Target of the time to first byte: 500us, 5ms\n"
               "  -q --quantile=Q       Quantile of requests that has to meet it (0.99)\n"
               "  -b --by=freeze|quota  How to throttle (freeze); quota requires the cpu controller\n"
               "  -r --release          Release all batch units, and exit\n"
               "  -v --verbose          Print state and actions, ten times a second\n",
               program_invocation_short_name);
}

int main(int argc, char **argv) {
        Balance b = {};
        int r, q;

        if (arguments_parse(argc, argv, &b.arguments) < 0)
                return 2;
        if (b.arguments.help) {
                help();
                return EXIT_SUCCESS;
        }
        b.batch = new0(Batch, b.arguments.n_batch);
        if (!b.batch)
                return EXIT_FAILURE;
        for (unsigned i = 0; i < b.arguments.n_batch; i++)
                b.batch[i] = (Batch) { .name = b.arguments.batch[i], .balance = &b };
        /* Increment: a tenth of each unit */
        rules_init(&b.rules, b.arguments.n_batch * LEVELS, b.arguments.n_batch);

        r = sd_bus_default_system(&b.bus);
        if (r < 0) {
                fprintf(stderr, "Failed to connect to the system bus: %s\n", strerror(-r));
                free(b.batch);
                return EXIT_FAILURE;
        }

        /* Release what a previous run may have left */
        r = batch_release_all(&b);
        if (!b.arguments.release) {
                r = balance_check_names(&b);
                if (r >= 0)
                        r = balance_run(&b);
                q = batch_release_all(&b);
                r = r < 0 ? r : q;
        }
        sd_bus_flush_close_unref(b.bus);
        free(b.batch);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
