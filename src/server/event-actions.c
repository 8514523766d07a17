/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/socket.h>
#include <sys/un.h>

#include "actions-socket.h"
#include "event-actions.h"
#include "hold.h"
#include "log.h"
#include "observer.h"
#include "threshold-monitor.h"
#include "xqos-section.h"

/* Limit of violations of a unit that start units, per period, for thresholds that flap. A violation that
 * exceeds the limit starts units at the end of the period if it still lasts. */
#define ACTIONS_PER_UNIT_MAX 5U
#define ACTIONS_NSEC (60 * NSEC_PER_SEC)

/* Interval of attempts to send a pending event. */
#define ACTIONS_RETRY_USEC (5 * USEC_PER_SEC)

/* State of the unit in a slot. */
typedef struct UnitActions {
        uint32_t generation;            /* of the unit */
        XqosEvent pending;              /* event to be sent; _XQOS_EVENT_MAX: none */
        bool settled;                   /* the last event sent was "cleared" */
        bool limited, failed;           /* the reason for a pending event was logged */
        uint64_t since;                 /* CLOCK_MONOTONIC ns of the start of the period */
        unsigned n;                     /* violations sent in the period */
} UnitActions;

struct EventActions {
        Manager *manager;
        ManagerObserver observer;
        sd_event_source *timer;         /* NULL until an event is pending */
        int fd;
        UnitActions units[UNITS_MAX_LIMIT];
};

static int send_event(EventActions *a, XqosEvent e, const char *unit) {
        static const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = ACTIONS_SOCKET };
        char message[ACTIONS_MESSAGE_MAX + 1];
        int n;

        n = snprintf(message, sizeof(message), "%s %s", xqos_event_to_string(e), unit);
        if ((size_t) n >= sizeof(message))
                return -EINVAL;
        if (sendto(a->fd, message, n, MSG_NOSIGNAL, (const struct sockaddr*) &address, sizeof(address)) < 0)
                return -errno;
        return 0;
}

/* Returns whether no event is pending any more. */
static bool unit_send_pending(EventActions *a, const Unit *u, UnitActions *s) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC);
        int r;

        if (s->pending == _XQOS_EVENT_MAX)
                return true;
        if (now >= s->since + ACTIONS_NSEC) {
                s->since = now;
                s->n = 0;
        }
        if (s->pending == XQOS_VIOLATED && s->n >= ACTIONS_PER_UNIT_MAX) {
                if (!s->limited)
                        log_unit_info(u->name, "Thresholds of '%s' were violated more than %u times in "
                                                 "%u s, units of OnViolated= are not started again before "
                                                 "that time is over.", u->name, ACTIONS_PER_UNIT_MAX,
                                        (unsigned) (ACTIONS_NSEC / NSEC_PER_SEC));
                s->limited = true;
                return false;
        }
        s->limited = false;

        r = send_event(a, s->pending, u->name);
        if (r < 0) {
                if (!s->failed)
                        log_unit_warning_errno(u->name, r, "Failed to start the units of '%s' for a "
                                                           "threshold that is %s, trying again (is "
                                                           "qosd-actions.socket active?): %m", u->name,
                                               xqos_event_to_string(s->pending));
                s->failed = true;
                return false;
        }
        s->failed = false;
        s->n += s->pending == XQOS_VIOLATED;
        s->settled = s->pending == XQOS_CLEARED;
        s->pending = _XQOS_EVENT_MAX;
        return true;
}

static UnitActions* unit_get_actions(EventActions *a, const Unit *u) {
        UnitActions *s = a->units + u->index;

        if (s->generation != u->generation)
                *s = (UnitActions) { .generation = u->generation, .pending = _XQOS_EVENT_MAX };
        return s;
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        EventActions *a = ASSERT_PTR(userdata);
        bool done = true;

        FOREACH_UNIT(u, a->manager)
                done = unit_send_pending(a, u, unit_get_actions(a, u)) && done;
        if (done)
                return 0;
        (void) sd_event_source_set_time_relative(source, ACTIONS_RETRY_USEC);
        return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void actions_try_later(EventActions *a) {
        int r, enabled;

        if (!a->timer)
                r = sd_event_add_time_relative(a->manager->event, &a->timer, CLOCK_MONOTONIC,
                                               ACTIONS_RETRY_USEC, USEC_PER_SEC, on_timer, a);
        else {
                r = sd_event_source_get_enabled(a->timer, &enabled);
                if (r < 0 || enabled != SD_EVENT_OFF)
                        return;
                r = sd_event_source_set_time_relative(a->timer, ACTIONS_RETRY_USEC);
                if (r >= 0)
                        r = sd_event_source_set_enabled(a->timer, SD_EVENT_ONESHOT);
        }
        if (r < 0)
                (void) log_warning_errno(r, "Failed to set a timer, units of OnViolated= and OnCleared= may "
                                            "not be started: %m");
}

/* Only thresholds of unit files start units, not those of clients. */
static const Threshold* unit_find_file_threshold(const Unit *u, const char *name, bool violated) {
        for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t))
                if (t->source == THRESHOLD_SOURCE_FILE && (!name || streq(t->rule.name, name)) &&
                    (!violated || t->machine.state == THRESHOLD_VIOLATED))
                        return t;
        return NULL;
}

static void on_threshold_event(Unit *u, const ThresholdEvent *e, void *userdata) {
        EventActions *a = ASSERT_PTR(userdata);
        const Hold *h = unit_find_file_hold(u);
        UnitActions *s = unit_get_actions(a, u);

        if (!h || !unit_find_file_threshold(u, e->rule.name, false))
                return;
        if (e->state == THRESHOLD_VIOLATED)
                s->pending = XQOS_VIOLATED;
        else if (e->previous != THRESHOLD_VIOLATED || unit_find_file_threshold(u, NULL, true))
                return;
        else
                /* A violation that was not sent need not be cleared */
                s->pending = s->pending == XQOS_VIOLATED && s->settled ? _XQOS_EVENT_MAX : XQOS_CLEARED;

        /* Not before the files were read, as after a restart: qosd-actions then reads them */
        if (s->pending != _XQOS_EVENT_MAX && h->seen && !h->starts[s->pending]) {
                s->settled = s->pending == XQOS_CLEARED;
                s->pending = _XQOS_EVENT_MAX;
        }
        if (!unit_send_pending(a, u, s))
                actions_try_later(a);
}

int event_actions_new(Manager *m, EventActions **ret) {
        EventActions *a;

        a = new0(EventActions, 1);
        if (!a)
                return -ENOMEM;
        a->manager = m;
        a->observer = (ManagerObserver) { .threshold_event = on_threshold_event, .userdata = a };
        a->fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0);
        if (a->fd < 0) {
                int r = -errno;

                free(a);
                return r;
        }
        manager_add_observer(m, &a->observer);

        *ret = a;
        return 0;
}

EventActions* event_actions_free(EventActions *a) {
        if (!a)
                return NULL;

        manager_remove_observer(a->manager, &a->observer);
        sd_event_source_unref(a->timer);
        close_fd(a->fd);
        free(a);
        return NULL;
}
