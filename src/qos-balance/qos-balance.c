/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Keeps a quantile of the time to first byte of one unit below a target by taking CPU time from batch units,
 * and gives it back when there is room: a manager as others could write one, with libqosd and the service
 * manager's own interfaces. When it does what is in rules.h. */

#include <signal.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "arguments.h"
#include "qosd.h"
#include "rules.h"

#define DESTINATION "org.freedesktop.systemd1", "/org/freedesktop/systemd1", \
        "org.freedesktop.systemd1.Manager"

/* Each batch unit has so many tenths of time. */
#define LEVELS 10U

/* A unit that runs in part is thawed once in such a time, which is short beside the windows that are looked
 * at, and frozen in the rest of it. The service manager takes some hundred microseconds for either. */
#define PERIOD_USEC (200 * USEC_PER_MSEC)
#define TICK_USEC (PERIOD_USEC / LEVELS)

/* How often the figures are looked at: the step of the finest windows. */
#define LOOK_USEC (100 * USEC_PER_MSEC)

/* What "now" is, and what is more than a moment. A window may reach back one step further than it is
 * long. */
#define WINDOW_NOW (300 * NSEC_PER_MSEC)
#define WINDOW_LONG NSEC_PER_SEC
/* Where there are too few requests for a quantile in these */
#define WINDOW_LONGER (10 * NSEC_PER_SEC)

/* When all is given back: how often, and how far apart a unit is to be seen running, and how long that may
 * take all in all, which is less than a service has to stop. */
#define RELEASE_LOOKS 3U
#define RELEASE_LOOK_USEC (20 * USEC_PER_MSEC)
#define RELEASE_USEC (20 * USEC_PER_SEC)

/* How long qosd may take to say what it counts: nothing is thawed meanwhile. A busy machine takes a tenth of
 * a second for it, and after this it is as if it had gone, and all is given back. */
#define ASK_NSEC (3 * NSEC_PER_SEC)

/* When to try again to reach qosd. */
#define CONNECT_AGAIN_USEC USEC_PER_SEC

typedef struct Batch {
        const char *name;
        bool freeze;            /* wanted … */
        bool frozen;            /* … and what the service manager was told, if known */
        bool known, pending;
        bool complained;        /* that it cannot be frozen … */
        uint64_t again_at;      /* … which is tried again then, CLOCK_MONOTONIC us */
        struct Balance *balance;
} Batch;

typedef struct Balance {
        Arguments arguments;
        Batch *batch;                   /* as many as there are arguments */

        sd_event *event;
        sd_bus *bus;
        qosd *qosd;                     /* connected, and the unit is observed */
        qosd_view *view;                /* NULL: it has none, and qosd is asked for each reading */
        uint64_t connect_at;    /* CLOCK_MONOTONIC usec, as the others */
        uint64_t look_at;
        unsigned tick;

        Rules rules;                    /* its level: of each unit so many tenths */
} Balance;

/* ---- the service manager ------------------------------------------------------------------------------ */

static int on_freezer_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);
        Batch *u = ASSERT_PTR(userdata);

        u->pending = false;
        /* One that does not run is not to be frozen, one that is just being frozen is not to be thawed yet:
         * looked at again */
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

/* Nothing is frozen, and was not either a moment ago. What a killed run has asked for may still be on its
 * way, and a unit that is just being frozen cannot be thawed: so it is looked at until that is over. */
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
                        fprintf(stderr, "Failed to look at '%s': %s\n", u->name,
                                error.message ?: strerror(-r));
                        return r;
                }
                good = streq(state, "running") ? good + 1 : 0;
                if (good >= RELEASE_LOOKS) {
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
                (void) usleep(RELEASE_LOOK_USEC);
        }
}

/* Whatever was taken from them. Waits until it is done. */
static int batch_release_all(Balance *b) {
        uint64_t until = now_usec(CLOCK_MONOTONIC) + RELEASE_USEC;
        int r = 0, q;

        /* All at once first: the first one is not to wait for the last */
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

/* ---- what the batch units have ------------------------------------------------------------------------ */

/* Freezing: as many run as there are whole units in the level, and one of them for a part of the time. */
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
                                       /* The kernel takes no less than a hundredth */
                                       MAX(all * b->rules.level / b->rules.max, USEC_PER_SEC / 100));
}

/* ---- the figures -------------------------------------------------------------------------------------- */

/* The daemon says only these. Of those that are not below the one that is wanted, the next: less is taken
 * too late than too soon. */
static const char* quantile_metric(double q) {
        static const struct {
                double quantile;
                const char *metric;
        } table[] = {
                { .5,   "requests.server.firstByte.p50" },
                { .9,   "requests.server.firstByte.p90" },
                { .95,  "requests.server.firstByte.p95" },
                { .99,  "requests.server.firstByte.p99" },
        };

        for (size_t i = 0; i < ELEMENTSOF(table); i++)
                if (q <= table[i].quantile)
                        return table[i].metric;
        return "requests.server.firstByte.p999";
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

/* Of the first window that has enough requests. */
static int read_quantile(Balance *b, uint64_t window, uint64_t or_window, uint64_t *ret) {
        int r;

        r = read_window(b, window, ret);
        return r == -ENODATA ? read_window(b, or_window, ret) : r;
}

/* Nothing is answered: nothing is asked, or it hangs. */
static int read_waiting(Balance *b, double *ret_slack) {
        _cleanup_(qosd_snapshot_unrefp) qosd_snapshot *s = NULL;
        uint64_t age = 0;
        int r;

        r = qosd_read(b->qosd, &b->arguments.unit, 1, WINDOW_LONG, &s);
        if (r < 0)
                return r;
        (void) qosd_snapshot_get_integer(s, "requests.server.oldestInFlight", &age);
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

/* Without figures nothing is taken from anybody. */
static void balance_lose(Balance *b, uint64_t now, const char *step, int error) {
        fprintf(stderr, "No figures of '%s' (%s: %s), nothing is held back until there are.\n",
                b->arguments.unit, step, strerror(-error));
        b->view = qosd_view_unref(b->view);
        b->qosd = qosd_unref(b->qosd);
        b->connect_at = now + CONNECT_AGAIN_USEC;
        rules_reset(&b->rules, now);
        if (b->arguments.means == MEANS_QUOTA)
                level_apply_quota(b);
}

/* Whether there are figures where there is no view. */
static int can_ask(Balance *b) {
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
                /* To attach may take longer, while programs are loaded: nothing is held back then */
                r = qosd_set_timeout(b->qosd, ASK_NSEC);
        if (r >= 0) {
                step = "opening the view";
                r = qosd_view_open(b->qosd, b->arguments.unit, &b->view);
                /* Units lie in it, or have lain in it: after a reconnect that may be said of one that had a
                 * view before */
                if (r == -EOPNOTSUPP)
                        r = can_ask(b);
        }
        if (r < 0)
                balance_lose(b, now, step, r);
        else
                (void) sd_notifyf(false, "READY=1\nSTATUS=Looking after %s.", b->arguments.unit);
}

static int on_tick(sd_event_source *s, uint64_t usec, void *userdata) {
        Balance *b = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        double slack_now, slack_long;
        int r;

        if (!b->qosd && now >= b->connect_at)
                balance_connect(b, now);
        if (b->qosd && now >= b->look_at) {
                b->look_at = now + LOOK_USEC;
                r = read_slack(b, &slack_now, &slack_long);
                if (r < 0 && r != -EAGAIN)
                        balance_lose(b, now, "reading", r);
                else if (r >= 0)
                        balance_decide(b, now, slack_now, slack_long);
        }

        b->tick++;
        if (b->arguments.means == MEANS_FREEZE) {
                /* A unit that was started anew since runs: once in a while it is said again */
                if (b->tick % (USEC_PER_SEC / TICK_USEC) == 0)
                        for (size_t i = 0; i < b->arguments.n_batch; i++)
                                b->batch[i].known = false;
                level_apply_freezer(b);
        }

        /* From now on, whatever was missed */
        r = sd_event_source_set_time(s, now + TICK_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata) {
        return sd_event_exit(sd_event_source_get_event(s), 0);
}

/* Whoever is killed cannot let go of what it holds: somebody else must, and that is the service manager. It
 * has to be another service: where all processes of one are killed, the kernel kills those of its
 * ExecStopPost=, too. */
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
                fprintf(stderr, "This is to run as a service with OnFailure= (one that calls qos-balance "
                                "--release), or nobody would thaw "
                        "units if it was killed. See qos-balance(1).\n");
                return -EPERM;
        }

        (void) sigemptyset(&mask);
        for (size_t i = 0; i < ELEMENTSOF(signals); i++)
                (void) sigaddset(&mask, signals[i]);
        (void) sigprocmask(SIG_BLOCK, &mask, NULL);

        r = sd_event_default(&b->event);
        if (r >= 0)
                r = sd_bus_set_close_on_exit(b->bus, false); /* there is something to be said at the end */
        /* Who cannot reach the service manager cannot thaw: that is a failure, and another one does */
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

/* What the service manager calls it, which may be told by an alias, or without its suffix. */
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
                fprintf(stderr, "Failed to look at '%s': %s\n", full, error.message ?: strerror(-r));
        return r;
}

/* Nor by another name. */
static int balance_check_names(const Balance *b) {
        _cleanup_free_ char *unit = NULL;
        int r;

        /* Or it is the path of a control group */
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
               "Keeps the time to first byte of UNIT below TIME, by what is taken from the batch units.\n\n"
               "  -u --unit=UNIT        The unit that is to be fast\n"
               "  -t --target=TIME      What it is to take at most: 500us, 5ms\n"
               "  -q --quantile=Q       … in this part of all requests (0.99)\n"
               "  -b --by=freeze|quota  What is done to batch units (freeze); quota needs the cpu "
               "controller\n"
               "  -r --release          Give all back to the batch units, and end\n"
               "  -v --verbose          Say what is seen and done, ten times a second\n",
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
        /* Given back is a tenth of each at a time */
        rules_init(&b.rules, b.arguments.n_batch * LEVELS, b.arguments.n_batch);

        r = sd_bus_default_system(&b.bus);
        if (r < 0) {
                fprintf(stderr, "Failed to connect to the system bus: %s\n", strerror(-r));
                free(b.batch);
                return EXIT_FAILURE;
        }

        /* What a run before this may have left */
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
