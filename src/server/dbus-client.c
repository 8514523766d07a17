/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "dbus-client.h"

/* Limit of tracked clients. Each takes a match rule, as does each attached unit, and dbus-daemon closes
 * connections with more than 512. */
#define CLIENTS_MAX 200U

/* Limits of tracked clients and pending calls of a user other than root: sufficient for any program, and too
 * few to exclude others. */
#define CLIENTS_PER_UID_MAX 64U
#define CALLS_PER_UID_MAX 32U

/* Limit of pending calls of root: attaches of all units, and their thresholds, sent at once. */
#define CALLS_MAX 4096U

int bus_error_set_qos(sd_bus_error *error, int errno_value, const QosError *e) {
        char name[128];

        if (!e || e->code == QOS_ERROR_NONE)
                return sd_bus_error_set_errno(error, errno_value);

        (void) snprintf(name, sizeof(name), BUS_ERROR_PREFIX "%s", qos_error_name(e->code));
        return sd_bus_error_set(error, name, e->message);
}

void bus_reply_error(sd_bus_message *m, int errno_value, const QosError *e) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        (void) bus_error_set_qos(&error, errno_value, e);
        (void) sd_bus_reply_method_error(m, &error);
}

void failed_call_free(FailedCall *f) {
        for (FailedCall **p = &f->server->failed; *p; p = &(*p)->next)
                if (*p == f) {
                        *p = f->next;
                        break;
                }
        unit_query_free(f->unit_query);
        sd_bus_message_unref(f->message);
        free(f);
}

static void on_unit_queried(const QosError *e, void *userdata) {
        FailedCall *f = ASSERT_PTR(userdata);

        f->unit_query = NULL;
        bus_reply_error(f->message, -ENXIO, e);
        failed_call_free(f);
}

int bus_reply_missing(BusServer *b, sd_bus_message *m, const char *unit, QosError *e, sd_bus_error *error) {
        FailedCall *f;

        f = new0(FailedCall, 1);
        if (!f)
                return -ENOMEM;
        *f = (FailedCall) { .server = b, .next = b->failed, .message = sd_bus_message_ref(m) };
        b->failed = f;
        if (unit_query_new(b->manager, unit, e, on_unit_queried, f, &f->unit_query) > 0)
                return 1;
        failed_call_free(f);
        return bus_error_set_qos(error, -ENXIO, e);
}

/* ---- clients ------------------------------------------------------------------------------------------ */

void call_free(Call *c) {
        for (Call **p = c->client ? &c->client->calls : NULL; p && *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        break;
                }
        attach_operation_cancel(c->attach);
        polkit_query_free(c->query);
        if (c->turn.queue)
                turn_done(&c->turn);
        diagnosing_free(c->server->manager, c->diagnosing);
        sd_bus_message_unref(c->message);
        free(c->unit);
        free(c->threshold);
        free(c);
}

void client_free(Client *c) {
        BusServer *b = c->server;

        while (c->calls)
                call_free(c->calls);
        manager_release_lease(b->manager, c);

        if (c->subscribed && --b->n_subscribed == 0)
                unit_objects_set_subscribed(b->objects, false);

        for (Client **p = &b->clients; *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        b->n_clients--;
                        break;
                }
        sd_bus_slot_unref(c->gone);
        sd_bus_slot_unref(c->check);
        free(c->sender);
        free(c);
}

static bool client_has_lease(const Client *c) {
        Manager *m = c->server->manager;

        FOREACH_UNIT(u, m)
                for (Hold *h = u->holds; h; h = h->next)
                        if (h->lease_key == c)
                                return true;
        return threshold_monitor_have_lease(m, c);
}

/* Frees the client if there is no reason to track it any more. */
static void client_settle(Client *c) {
        if (!c->calls && !c->subscribed && !client_has_lease(c))
                client_free(c);
}

static int on_owner_changed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *new_owner;

        if (sd_bus_message_read(m, "sss", NULL, NULL, &new_owner) >= 0 && isempty(new_owner))
                client_free(ASSERT_PTR(userdata));
        return 0;
}

static int on_owner_checked(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Client *c = ASSERT_PTR(userdata);
        int owned;

        c->check = sd_bus_slot_unref(c->check);
        if (sd_bus_message_read(m, "b", &owned) >= 0 && !owned)
                client_free(c);
        return 0;
}

/* Tracks the client. sd_bus_track is not used, as it makes synchronous calls. */
static int client_follow(Client *c) {
        sd_bus *bus = c->server->bus;
        _cleanup_free_ char *match = NULL;
        int r;

        if (asprintf(&match, "type='signal',sender='" DBUS_NAME "',path='" DBUS_PATH "',interface='"
                     DBUS_NAME "',member='NameOwnerChanged',arg0='%s'", c->sender) < 0)
                return -ENOMEM;
        r = sd_bus_add_match_async(bus, &c->gone, match, on_owner_changed, NULL, c);
        if (r < 0)
                return r;
        return sd_bus_call_method_async(bus, &c->check, DBUS_NAME, DBUS_PATH, DBUS_NAME, "NameHasOwner",
                                        on_owner_checked, c, "s", c->sender);
}

Client* client_find(BusServer *b, sd_bus_message *m) {
        const char *sender = strempty(sd_bus_message_get_sender(m));

        for (Client *c = b->clients; c; c = c->next)
                if (streq(c->sender, sender))
                        return c;
        return NULL;
}

/* Finds the client of the sender, or creates one. client_settle() has to be called afterwards. */
static int client_get(BusServer *b, sd_bus_message *m, uid_t uid, Client **ret, sd_bus_error *error) {
        const char *sender = strempty(sd_bus_message_get_sender(m));
        unsigned n = 0, others = 0;
        Client *c;
        int r;

        c = client_find(b, m);
        if (c) {
                *ret = c;
                return 0;
        }

        for (c = b->clients; c; c = c->next) {
                n += c->uid == uid;
                others += c->uid != 0;
        }
        if (b->n_clients >= CLIENTS_MAX ||
            (uid != 0 && (n >= CLIENTS_PER_UID_MAX || others >= limit_for_unprivileged(CLIENTS_MAX))))
                return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "Too many clients are waiting, subscribed or hold leases: %u of "
                                         "user %u, %u together",
                                         n, (unsigned) uid, b->n_clients);

        c = new0(Client, 1);
        if (!c)
                return -ENOMEM;
        *c = (Client) {
                .server = b,
                .next = b->clients,
                .sender = strdup(sender),
                .uid = uid,
        };
        b->clients = c;
        b->n_clients++;

        r = c->sender ? 0 : -ENOMEM;
        if (r >= 0 && !isempty(sender))
                r = client_follow(c);
        if (r < 0) {
                client_free(c);
                return r;
        }

        *ret = c;
        return 0;
}

/* ---- AttachUnit, DetachUnit --------------------------------------------------------------------------- */

static void client_dispatch(Client *client);

void call_finish(Call *c) {
        Client *client = c->client;

        call_free(c);
        client_dispatch(client);
}

static void on_authorized(int result, void *userdata) {
        Call *c = ASSERT_PTR(userdata);

        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

        c->query = NULL;

        if (result > 0) {
                c->action->go_on(c);
                return;
        }

        if (c->owner_uid != 0 && manager_probes_are_restricted(c->server->manager, c->probes, &e))
                bus_reply_error(c->message, -EACCES, &e);
        else if (result == POLKIT_NEEDS_INTERACTION)
                (void) sd_bus_reply_method_errorf(c->message,
                                                  SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED,
                                                  "Interactive authorization is required (%s)",
                                                  c->action->name);
        else if (result == 0)
                (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED,
                                                  "%s needs authorization (%s)", c->action->what,
                                                  c->action->name);
        else
                (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED,
                                                  "%s needs authorization (%s), and polkit could not be "
                                                  "queried: %s", c->action->what, c->action->name,
                                                  strerror(-result));
        call_finish(c);
}

int call_new(BusServer *b, sd_bus_message *m, const Action *action, const char *unit, Call **ret) {
        Call *c;

        c = new0(Call, 1);
        if (!c)
                return -ENOMEM;
        *c = (Call) {
                .server = b,
                .message = sd_bus_message_ref(m),
                .action = action,
                .unit = strdup(strempty(unit)),
        };
        if (!c->unit) {
                call_free(c);
                return -ENOMEM;
        }

        *ret = c;
        return 0;
}

void call_authorize(Call *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Client *client = c->client;
        int r;

        /* Checked when the call was received, but it may have had to wait */
        if (!c->action->attaches && !manager_get_unit(c->server->manager, c->unit, &e)) {
                bus_reply_error(c->message, -ENXIO, &e);
                call_finish(c);
                return;
        }

        c->owner_uid = manager_uid_owns(client->server->manager, c->unit, client->uid) ? client->uid : 0;
        if (client->uid == 0 ||
            (c->owner_uid != 0 && (!c->action->attaches ||
                                   !manager_probes_are_restricted(c->server->manager, c->probes, NULL)))) {
                on_authorized(1, c);
                return;
        }

        r = polkit_query_bus(&(PolkitRequest) {
                                     .bus = client->server->bus,
                                     .action = c->action->name,
                                     .interactive = sd_bus_message_get_allow_interactive_authorization(
                                                     c->message) > 0,
                                     .handler = on_authorized,
                                     .userdata = c,
                             }, c->message, client->uid, &c->query);
        if (r < 0)
                on_authorized(r, c);
}

/* ---- calls -------------------------------------------------------------------------------------------- */

static int call_count(Call *c, sd_bus_error *error) {
        const Client *client = c->client;
        unsigned n = 0;

        for (const Client *i = c->server->clients; i; i = i->next)
                for (const Call *j = i->uid == client->uid ? i->calls : NULL; j; j = j->next)
                        n++;
        if (n > (client->uid == 0 ? CALLS_MAX : CALLS_PER_UID_MAX))
                return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "%u calls of user %u are waiting already", n - 1,
                                         (unsigned) client->uid);
        return 0;
}

/* Clients may release their own leases. */
static bool call_is_own(const Call *c) {
        return c->lease && c->action->releases;
}

static void call_run(Call *c) {
        if (!c->action->name || call_is_own(c))
                c->action->go_on(c);
        else
                call_authorize(c);
}

/* Starts calls that need not wait for earlier ones: a call may depend on an attach that waits for polkit or
 * PID 1. Attaches run concurrently, as there may be many, and none depends on another. */
static void client_dispatch(Client *client) {
        Call *c;

        if (client->dispatching)
                return; /* the caller continues */
        client->dispatching = true;

        do {
                bool others = false, attaches = false;

                for (c = client->calls; c && (c->started || !c->action->name); c = c->next)
                        if (c->action->attaches)
                                attaches = true;
                        else if (c->action->name)
                                others = true;
                if (c && (others || (attaches && !c->action->attaches)))
                        break;
                if (c) {
                        c->started = true;
                        call_run(c);
                }
        } while (c);

        client->dispatching = false;
        client_settle(client);
}

static void call_start(Call *c, uid_t uid) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        Call **p;
        int r;

        r = client_get(c->server, c->message, uid, &c->client, &error);
        if (r < 0) {
                (void) sd_bus_reply_method_errno(c->message, r, &error);
                call_free(c);
                return;
        }
        for (p = &c->client->calls; *p; p = &(*p)->next)
                ;
        *p = c;

        r = c->action->name ? call_count(c, &error) : 0;
        if (r < 0) {
                (void) sd_bus_reply_method_errno(c->message, r, &error);
                call_finish(c);
        } else if (c->action->name)
                client_dispatch(c->client);
        else
                call_run(c);
}

/* Starts the call, or queues it after earlier ones of the client. */
int call_submit(Call *c, sd_bus_error *error) {
        _cleanup_(sd_bus_creds_unrefp) sd_bus_creds *creds = NULL;
        BusServer *b = c->server;
        uid_t uid;
        int r = 0;

        /* Peer-to-peer: use the credentials of the socket */
        if (isempty(sd_bus_message_get_sender(c->message))) {
                r = sd_bus_get_owner_creds(b->bus, SD_BUS_CREDS_EUID, &creds);
                if (r >= 0)
                        r = sd_bus_creds_get_euid(creds, &uid);
        } else
                r = bus_queue_get_user(b->queue, c->message, &uid);
        if (r < 0) {
                call_free(c);
                return r;
        }
        call_start(c, uid);
        return 1;
}

bool client_waits(BusServer *b, sd_bus_message *m) {
        const Client *client = client_find(b, m);

        return client && client->calls;
}
