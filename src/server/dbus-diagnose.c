/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Diagnose() */

#include <math.h>

#include "dbus-client.h"

static int append_finding(sd_bus_message *m, const Finding *f) {
        const struct {
                const char *name, *value;
        } strings[] = {
                { "kind",      finding_kind_to_string(f->kind)     },
                { "text",      f->text                             },
                { "certainty", certainty_to_string(f->certainty)   },
                { "rule",      f->rule                             },
                { "next",      f->next                             },
                { "resource",  f->resource                         },
                { "unit",      f->unit                             },
                { "mount",     f->mount                            },
        };
        int r;

        r = sd_bus_message_open_container(m, 'a', "{sv}");
        for (size_t i = 0; i < ELEMENTSOF(strings) && r >= 0; i++)
                if (!isempty(strings[i].value))
                        r = sd_bus_message_append(m, "{sv}", strings[i].name, "s", strings[i].value);
        if (r >= 0 && isfinite(f->share))
                r = sd_bus_message_append(m, "{sv}", "share", "d", f->share);
        if (r >= 0 && isfinite(f->time))
                r = sd_bus_message_append(m, "{sv}", "time", "t", (uint64_t) llround(f->time));
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int call_reply_diagnosis(Call *c, const Diagnosis *d) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        int r;

        r = sd_bus_message_new_method_return(c->message, &reply);
        if (r >= 0)
                r = sd_bus_message_append(reply, "sss", verdict_to_string(d->verdict), d->summary, d->text);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "a{sv}");
        for (size_t i = 0; i < d->n_findings && r >= 0; i++)
                r = append_finding(reply, d->findings + i);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r >= 0)
                r = sd_bus_send(NULL, reply, NULL);
        return r < 0 ? r : 0;
}

static int on_interval_over(sd_event_source *source, uint64_t usec, void *userdata) {
        Call *c = ASSERT_PTR(userdata);

        c->diagnosing->state = DIAGNOSING_RESOURCES;
        (void) turn_request(&c->turn);
        return 0;
}

static void on_names(uint64_t nsec, void *userdata) {
        Call *c = ASSERT_PTR(userdata);

        names_were_read(c->turn.user, nsec);
        (void) on_interval_over(NULL, 0, c);
}

/* To be called when the readings at one end of the interval are complete. 1: the other end follows. */
static int call_end_reading(Call *c, Unit *u) {
        Diagnosing *d = c->diagnosing;
        HostSample *sample;
        Conclusion found;
        int r;

        r = host_sample_new(u, &d->resources, &d->threads, &sample);
        if (r < 0)
                return r;
        if (!d->begin) {
                d->begin = sample;
                d->begun_at = now_nsec(CLOCK_MONOTONIC);
                r = sd_event_add_time(c->server->manager->event, &d->timer, CLOCK_MONOTONIC,
                                      (d->begun_at + d->window) / NSEC_PER_USEC, 0, on_interval_over, c);
                return r < 0 ? r : 1;
        }
        r = diagnosing_conclude(d, u, sample, d->window, &found);
        host_sample_free(sample);
        return r < 0 ? r : call_reply_diagnosis(c, &found.diagnosis);
}

static void on_turn(void *userdata) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Call *c = ASSERT_PTR(userdata);
        Unit *u;
        int r;

        if (c->diagnosing->state == DIAGNOSING_WAITS)
                return;
        u = manager_get_unit(c->server->manager, c->unit, &e);
        if (!u) {
                bus_reply_error(c->message, -ENXIO, &e);
                call_finish(c);
                return;
        }

        do
                r = diagnosing_step(c->diagnosing, u, c->turn.user);
        while (r > 0 && now_nsec(CLOCK_MONOTONIC) < begin + TURN_NSEC);
        if (c->diagnosing->state == DIAGNOSING_NAMES)
                return;
        if (r > 0) {
                (void) turn_request(&c->turn);
                return;
        }

        r = call_end_reading(c, u);
        if (r > 0)
                return;
        if (r < 0)
                bus_reply_error(c->message, r, NULL);
        call_finish(c);
}

static void on_diagnosis_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Call *c = ASSERT_PTR(userdata);

        c->attach = NULL;
        if (error >= 0)
                error = free_and_strdup(&c->unit, u->name); /* not an alias */
        if (error >= 0) {
                c->diagnosing->state = DIAGNOSING_RESOURCES;
                error = turn_request(&c->turn);
        }
        if (error >= 0) {
                c->running = false;
                return;
        }

        bus_reply_error(c->message, error, e);
        if (c->running)
                c->diagnosing = diagnosing_free(m, c->diagnosing); /* call_diagnose_attach() continues */
        else
                call_finish(c);
}

static void call_diagnose_attach(Call *c);

static const Action action_diagnose_attach = {
        .name = POLKIT_ACTION_ATTACH,
        .what = "Attaching units to diagnose them",
        .go_on = call_diagnose_attach,
        .attaches = true,
};

static void call_diagnose_attach(Call *c) {
        const AttachRequest request = {
                .name = c->unit,
                .probes = diagnosing_get_probes(c->owner_uid == 0 && c->action == &action_diagnose_attach),
                .type = HOLD_LEASE,
                .uid = c->client->uid,
                .owner_uid = c->owner_uid,
                .owner = c->client->sender,
                .lease_key = c->diagnosing,
                .duration_usec = USEC_INFINITY,
        };
        AttachOperation *operation = NULL;
        int r;

        c->running = true;
        r = manager_attach(c->server->manager, &request, on_diagnosis_attached, c, &operation);
        if (r < 0)
                bus_reply_error(c->message, r, NULL);
        if (r < 0 || !c->diagnosing)
                call_finish(c);
        else if (c->running) { /* the handler was not called */
                c->running = false;
                c->attach = operation;
        }
}

/* Checks limits. Root has a limit of its own. */
static int call_check_limit(const Call *c, QosError *e) {
        unsigned n = 0, own = 0, most = DIAGNOSES_MAX;
        char limit[16];

        for (const Client *i = c->server->clients; i; i = i->next)
                for (const Call *j = i->calls; j; j = j->next)
                        if (j != c && j->turn.queue) {
                                n++;
                                own += i->uid == c->client->uid;
                        }
        if (c->client->uid == 0 ? own < DIAGNOSES_MAX : n < DIAGNOSES_MAX && own < DIAGNOSES_PER_UID_MAX)
                return 0;

        if (c->client->uid != 0 && n < DIAGNOSES_MAX)
                most = DIAGNOSES_PER_UID_MAX;
        (void) snprintf(limit, sizeof(limit), "%u", most);
        return qos_error_set(e, QOS_ERROR_TOO_MANY_DIAGNOSES, limit,
                             "%s diagnoses are under way, more at a time are not made", limit);
}

/* Authorization to inspect a unit does not include loading programs for it. */
static void call_diagnose(Call *c) {
        const Unit *u = manager_get_unit(c->server->manager, c->unit, NULL);
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = call_check_limit(c, &e);
        if (r >= 0)
                r = turn_init(&c->turn, c->server->manager->turns, c->client->uid, on_turn, c);
        if (r < 0) {
                bus_reply_error(c->message, r, &e);
                call_finish(c);
        } else if (u && (u->probes & DIAGNOSE_PROBES) == DIAGNOSE_PROBES)
                call_diagnose_attach(c);
        else {
                c->action = &action_diagnose_attach;
                call_authorize(c);
        }
}

static const Action action_diagnose = {
        .name = POLKIT_ACTION_INSPECT,
        .what = "Diagnosing units",
        .go_on = call_diagnose,
        .attaches = true,
};

int method_diagnose(BusServer *b, sd_bus_message *m, const char *unit, uint64_t interval,
                    sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Call *c;
        int r;

        if (interval < INTERVAL_MIN_NSEC || !window_is_valid(interval))
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "There is no interval of %llu ns, expected one of 1 s or more: "
                                         WINDOW_EXPECTED, (unsigned long long) interval);
        /* Before the user is prompted for a password */
        if (!manager_get_unit(b->manager, unit, &e) && e.code == QOS_ERROR_INVALID_UNIT_NAME)
                return bus_error_set_qos(error, -EINVAL, &e);

        r = call_new(b, m, &action_diagnose, unit, &c);
        if (r < 0)
                return r;
        c->diagnosing = new0(Diagnosing, 1);
        if (!c->diagnosing) {
                call_free(c);
                return -ENOMEM;
        }
        c->diagnosing->window = interval;
        c->diagnosing->on_names = on_names;
        c->diagnosing->userdata = c;
        return call_submit(c, error);
}
