/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "config-build.h"
#include "dbus-manager.h"
#include "dbus-unit.h"
#include "log.h"
#include "metric.h"
#include "observer.h"
#include "polkit.h"
#include "threshold-monitor.h"
#include "vtable-manager.h"

#define BUS_NAME "org.qosd1"
#define BUS_ERROR_PREFIX "org.qosd1.Error."
#define POLKIT_ACTION_ATTACH "org.qosd1.attach"
#define POLKIT_ACTION_CONFIGURE "org.qosd1.configure"

/* Clients that wait, subscribe or hold leases. Each is a match rule of ours, as each attached unit is, and a bus closes
 * the connection of who asks for too many: dbus-daemon grants 512. */
#define CLIENTS_MAX 200U

/* Of these how many one user may have, root apart, and how many calls that wait for polkit or PID 1: enough for every
 * program, and too few to keep others out. */
#define CLIENTS_PER_UID_MAX 64U
#define CALLS_PER_UID_MAX 32U

/* The same of root: attaches of all units, and their thresholds, sent at once. */
#define CALLS_MAX 4096U

/* Senders whose user is remembered: the bus never gives a unique name away twice, so that the answer stays true. */
#define SENDERS_MAX 256U

/* Calls, of all senders together, that wait until the bus has named the sender's user. Everybody's are in there, as long as it is not
 * known whose they are: who has most of them gives way. */
#define UNIDENTIFIED_CALLS_MAX 2048U

/* Words in a list of probes or of exclusions, and options of a call: the message is kept for as long as the call waits. */
#define WORDS_MAX 64U

#define DBUS_NAME "org.freedesktop.DBus"
#define DBUS_PATH "/org/freedesktop/DBus"
#define LOG_CONTROL_PATH "/org/freedesktop/LogControl1"
#define LOG_CONTROL_INTERFACE "org.freedesktop.LogControl1"

typedef struct Call Call;

/* Who is followed by the name on the bus: exists as long as it waits, subscribes, or holds leases. */
typedef struct Client {
        BusServer *server;
        struct Client *next;
        sd_bus_slot *gone;      /* it has left the bus */
        sd_bus_slot *check;     /* … before that was listened for */
        char *sender;           /* empty on a peer-to-peer connection */
        uid_t uid;
        bool subscribed;
        bool dispatching;       /* within client_dispatch() */
        Call *calls;            /* in their order */
} Client;

/* Who sent a call, by the unique name. Asked of the bus, whose answer may stand behind all that others have sent: nothing waits for it but
 * the calls of that sender. */
typedef struct Sender {
        BusServer *server;
        struct Sender *next;
        char *name;
        sd_bus_slot *slot;      /* the bus is being asked */
        uid_t uid;
        Call *calls;            /* that wait for the answer, in their order */
        unsigned n_calls;
} Sender;

/* What polkit is asked for (NULL: nothing), and how people call it. */
typedef struct Action {
        const char *name;
        const char *what;
        void (*go_on)(Call *c);         /* when it is allowed; ends the call */
} Action;

/* A call that depends on who the caller is, and waits until that is known, and it is allowed and done. */
struct Call {
        BusServer *server;
        Client *client;         /* NULL until the sender's user is known */
        Call *next;
        sd_bus_message *message;
        AttachOperation *attach;
        PolkitQuery *query;
        const Action *action;
        bool lease;
        uid_t owner_uid;        /* as in struct Hold */
        bool started;           /* does not wait for others of the client */
        bool running;           /* within manager_attach() */
        ProbeMask probes;
        ExcludeList excludes;
        uint64_t duration_usec;
        char *unit;
        char *threshold;        /* or its name */
};

struct BusServer {
        Manager *manager;
        ManagerObserver observer;
        sd_bus *bus;            /* NULL while there is none, and then there is nothing of what follows */
        sd_bus_slot *slots[8];
        size_t n_slots;
        sd_event_source *tick;
        DBusUnits *objects;
        Sender *senders;        /* heard from last first */
        unsigned n_senders;
        unsigned n_unidentified; /* calls */
        Client *clients;
        unsigned n_clients;
        unsigned n_subscribed;
};

static int error_to_bus(sd_bus_error *error, int errno_value, const QosError *e) {
        char name[128];

        if (!e || e->code == QOS_ERROR_NONE)
                return sd_bus_error_set_errno(error, errno_value);

        (void) snprintf(name, sizeof(name), BUS_ERROR_PREFIX "%s", qos_error_name(e->code));
        return sd_bus_error_set(error, name, e->message);
}

static void reply_error(sd_bus_message *m, int errno_value, const QosError *e) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;

        (void) error_to_bus(&error, errno_value, e);
        (void) sd_bus_reply_method_error(m, &error);
}

/* ---- clients -------------------------------------------------------------------------------------------------- */

static void call_free(Call *c) {
        for (Call **p = c->client ? &c->client->calls : NULL; p && *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        break;
                }
        attach_operation_cancel(c->attach);
        polkit_query_free(c->query);
        sd_bus_message_unref(c->message);
        free(c->unit);
        free(c->threshold);
        free(c);
}

static void client_free(Client *c) {
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

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                for (Hold *h = m->units[i] ? m->units[i]->holds : NULL; h; h = h->next)
                        if (h->lease_key == c)
                                return true;
        return threshold_monitor_have_lease(m, c);
}

/* Something ended for which the client was followed. */
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

/* sd_bus_track would wait for the bus. */
static int client_follow(Client *c) {
        sd_bus *bus = c->server->bus;
        _cleanup_free_ char *match = NULL;
        int r;

        if (asprintf(&match, "type='signal',sender='" DBUS_NAME "',path='" DBUS_PATH "',interface='" DBUS_NAME "',member='NameOwnerChanged',arg0='%s'",
                     c->sender) < 0)
                return -ENOMEM;
        r = sd_bus_add_match_async(bus, &c->gone, match, on_owner_changed, NULL, c);
        if (r < 0)
                return r;
        return sd_bus_call_method_async(bus, &c->check, DBUS_NAME, DBUS_PATH, DBUS_NAME, "NameHasOwner", on_owner_checked, c, "s", c->sender);
}

static Client* client_find(BusServer *b, sd_bus_message *m) {
        const char *sender = strempty(sd_bus_message_get_sender(m));

        for (Client *c = b->clients; c; c = c->next)
                if (streq(c->sender, sender))
                        return c;
        return NULL;
}

/* Finds the sender's, or makes it: end with client_settle(). */
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
        if (b->n_clients >= CLIENTS_MAX || (uid != 0 && (n >= CLIENTS_PER_UID_MAX || others >= limit_for_unprivileged(CLIENTS_MAX))))
                return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "Too many clients are waiting, subscribed or hold leases: %u of user %u, %u together",
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

/* ---- AttachUnit, DetachUnit ----------------------------------------------------------------------------------- */

static void client_dispatch(Client *client);

static void call_finish(Call *c) {
        Client *client = c->client;

        call_free(c);
        client_dispatch(client);
}

static void on_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Call *c = ASSERT_PTR(userdata);
        _cleanup_free_ char *path = NULL;

        c->attach = NULL;
        if (error >= 0)
                error = unit_get_bus_path(u, &path);
        if (error < 0)
                reply_error(c->message, error, e);
        else
                (void) sd_bus_reply_method_return(c->message, "o", path);

        if (c->running)
                c->running = false; /* call_attach() goes on with it */
        else
                call_finish(c);
}

static void call_attach(Call *c) {
        const AttachRequest request = {
                .name = c->unit,
                .probes = c->probes,
                .excludes = c->excludes,
                .type = c->lease ? HOLD_LEASE : HOLD_ADMINISTRATOR,
                .uid = c->client->uid,
                .owner_uid = c->owner_uid,
                .owner = c->lease ? c->client->sender : NULL,
                .lease_key = c->lease ? c->client : NULL,
                .duration_usec = c->duration_usec,
        };
        AttachOperation *operation = NULL;
        int r;

        c->running = true;
        r = manager_attach(c->client->server->manager, &request, on_attached, c, &operation);
        if (r < 0) {
                reply_error(c->message, r, NULL);
                call_finish(c);
        } else if (!c->running)
                call_finish(c); /* the handler was called already */
        else {
                c->running = false;
                c->attach = operation;
        }
}

static void call_detach(Call *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = manager_detach(c->client->server->manager, c->unit, c->lease ? c->client : NULL, c->owner_uid, &e);
        if (r < 0)
                reply_error(c->message, r, &e);
        else
                (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

static void call_set_threshold(Call *c) {
        const ThresholdRequest request = {
                .unit = c->unit,
                .threshold = c->threshold,
                .source = c->lease ? THRESHOLD_SOURCE_LEASE : THRESHOLD_SOURCE_ADMINISTRATOR,
                .uid = c->client->uid,
                .owner_uid = c->owner_uid,
                .lease_key = c->lease ? c->client : NULL,
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *whole = NULL;
        Threshold *a;
        int r;

        r = threshold_set(c->client->server->manager, &request, &a, &e);
        if (r >= 0)
                r = threshold_rule_format(&a->rule, /* named= */ true, &whole);
        if (r < 0)
                reply_error(c->message, r, &e);
        else
                (void) sd_bus_reply_method_return(c->message, "s", whole);
        call_finish(c);
}

static void call_clear_threshold(Call *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = threshold_clear(c->client->server->manager, c->unit, c->threshold, c->lease ? c->client : NULL, c->owner_uid, &e);
        if (r < 0)
                reply_error(c->message, r, &e);
        else
                (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

static const Action
        action_attach = { POLKIT_ACTION_ATTACH,    "Attaching and detaching units",   call_attach          },
        action_detach = { POLKIT_ACTION_ATTACH,    "Attaching and detaching units",   call_detach          },
        action_set    = { POLKIT_ACTION_CONFIGURE, "Setting and clearing thresholds", call_set_threshold   },
        action_clear  = { POLKIT_ACTION_CONFIGURE, "Setting and clearing thresholds", call_clear_threshold };

static void on_authorized(int result, void *userdata) {
        Call *c = ASSERT_PTR(userdata);

        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

        c->query = NULL;

        if (result > 0) {
                c->action->go_on(c);
                return;
        }

        if (c->owner_uid != 0 && manager_probes_are_restricted(c->server->manager, c->probes, &e))
                reply_error(c->message, -EACCES, &e);
        else if (result == POLKIT_NEEDS_INTERACTION)
                (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED,
                                                  "Interactive authorization is required (%s)", c->action->name);
        else if (result == 0)
                (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED,
                                                  "%s needs authorization (%s)", c->action->what, c->action->name);
        else
                (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED,
                                                  "%s needs authorization (%s), and polkit could not be asked: %s", c->action->what, c->action->name,
                                                  strerror(-result));
        call_finish(c);
}

static int call_new(BusServer *b, sd_bus_message *m, const Action *action, const char *unit, Call **ret) {
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

static void call_authorize(Call *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Client *client = c->client;
        int r;

        /* As when it came, for those that had to wait then */
        if (c->action != &action_attach && !manager_get_unit(c->server->manager, c->unit, &e)) {
                reply_error(c->message, -ENXIO, &e);
                call_finish(c);
                return;
        }

        c->owner_uid = manager_uid_owns(client->server->manager, c->unit, client->uid) ? client->uid : 0;
        if (client->uid == 0 || (c->owner_uid != 0 && (c->action != &action_attach || !manager_probes_are_restricted(c->server->manager, c->probes, NULL)))) {
                on_authorized(1, c);
                return;
        }

        r = polkit_query_bus(client->server->bus, c->message, client->uid, c->action->name, on_authorized, c, &c->query);
        if (r < 0)
                on_authorized(r, c);
}

/* ---- whose a call is ------------------------------------------------------------------------------------------ */

static int call_count(Call *c, sd_bus_error *error) {
        const Client *client = c->client;
        unsigned n = 0;

        for (const Client *i = c->server->clients; i; i = i->next)
                for (const Call *j = i->uid == client->uid ? i->calls : NULL; j; j = j->next)
                        n++;
        if (n > (client->uid == 0 ? CALLS_MAX : CALLS_PER_UID_MAX))
                return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED, "%u calls of user %u are waiting already", n - 1, (unsigned) client->uid);
        return 0;
}

/* The call's own is its own to give up. */
static bool call_is_own(const Call *c) {
        return c->lease && (c->action == &action_detach || c->action == &action_clear);
}

static void call_run(Call *c) {
        if (!c->action->name || call_is_own(c))
                c->action->go_on(c);
        else
                call_authorize(c);
}

/* Starts what nothing before it keeps from that. A client may send a call behind an attach that it depends on, and which waits for polkit
 * or PID 1. Attaches go on side by side: many at once are the rule, and none depends on another one. */
static void client_dispatch(Client *client) {
        Call *c;

        if (client->dispatching)
                return; /* there it goes on */
        client->dispatching = true;

        do {
                bool others = false, attaches = false;

                for (c = client->calls; c && (c->started || !c->action->name); c = c->next)
                        if (c->action == &action_attach)
                                attaches = true;
                        else if (c->action->name)
                                others = true;
                if (c && (others || (attaches && c->action != &action_attach)))
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

static Call* sender_pop(Sender *s, Call **p) {
        Call *c = *p;

        *p = c->next;
        c->next = NULL;
        s->n_calls--;
        s->server->n_unidentified--;
        return c;
}

static void sender_free(Sender *s) {
        while (s->calls)
                call_free(sender_pop(s, &s->calls));
        for (Sender **p = &s->server->senders; *p; p = &(*p)->next)
                if (*p == s) {
                        *p = s->next;
                        s->server->n_senders--;
                        break;
                }
        sd_bus_slot_unref(s->slot);
        free(s->name);
        free(s);
}

static Sender* sender_find(BusServer *b, sd_bus_message *m) {
        const char *name = strempty(sd_bus_message_get_sender(m));

        for (Sender **p = &b->senders; *p; p = &(*p)->next)
                if (streq((*p)->name, name)) {
                        Sender *s = *p;

                        *p = s->next;
                        s->next = b->senders;
                        return b->senders = s;
                }
        return NULL;
}

static int on_identified(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Sender *s = ASSERT_PTR(userdata);
        uint32_t uid = 0;
        int r;

        s->slot = sd_bus_slot_unref(s->slot);
        if (!streq_ptr(sd_bus_message_get_sender(m), DBUS_NAME))
                r = -EBADMSG; /* a message bus that lets others reply in its place */
        else
                r = sd_bus_message_is_method_error(m, NULL) ? -sd_bus_message_get_errno(m) : sd_bus_message_read(m, "u", &uid);
        if (r < 0) {
                /* It has left, or the bus does not answer */
                while (s->calls) {
                        Call *c = sender_pop(s, &s->calls);

                        (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED, "The bus does not say whose call this is: %s", strerror(-r));
                        call_free(c);
                }
                sender_free(s);
                return 0;
        }

        s->uid = uid;
        while (s->calls)
                call_start(sender_pop(s, &s->calls), uid);
        return 0;
}

static int sender_new(BusServer *b, sd_bus_message *m, Sender **ret) {
        Sender *s, *oldest = NULL;
        int r;

        for (s = b->n_senders >= SENDERS_MAX ? b->senders : NULL; s; s = s->next)
                if (!s->slot)
                        oldest = s;
        if (oldest)
                sender_free(oldest);

        s = new0(Sender, 1);
        if (!s)
                return -ENOMEM;
        *s = (Sender) {
                .server = b,
                .next = b->senders,
                .name = strdup(sd_bus_message_get_sender(m)),
        };
        b->senders = s;
        b->n_senders++;

        r = s->name ? 0 : -ENOMEM;
        if (r >= 0)
                r = sd_bus_call_method_async(b->bus, &s->slot, DBUS_NAME, DBUS_PATH, DBUS_NAME, "GetConnectionUnixUser", on_identified, s, "s", s->name);
        if (r < 0) {
                sender_free(s);
                return r;
        }

        *ret = s;
        return 0;
}

/* Makes place for a call of this sender. */
static int sender_admit(Sender *s) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        BusServer *b = s->server;
        Sender *most = s;
        Call **p, *c;

        if (b->n_unidentified < UNIDENTIFIED_CALLS_MAX)
                return 0;

        for (Sender *i = b->senders; i; i = i->next)
                if (i->n_calls > most->n_calls)
                        most = i;
        if (most->n_calls <= s->n_calls + 1)
                return -EBUSY;

        for (p = &most->calls; (*p)->next; p = &(*p)->next)
                ;
        c = sender_pop(most, p);
        (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_LIMITS_EXCEEDED, "Too many calls are waiting until their senders are known");
        call_free(c);
        return 0;
}

/* Takes the call, and starts it as soon as it is known whose it is. */
static int call_submit(Call *c, sd_bus_error *error) {
        _cleanup_(sd_bus_creds_unrefp) sd_bus_creds *creds = NULL;
        BusServer *b = c->server;
        const Client *client;
        Call **p;
        Sender *s;
        uid_t uid;
        int r = 0;

        /* Peer-to-peer: the kernel knows */
        if (isempty(sd_bus_message_get_sender(c->message))) {
                r = sd_bus_get_owner_creds(b->bus, SD_BUS_CREDS_EUID, &creds);
                if (r >= 0)
                        r = sd_bus_creds_get_euid(creds, &uid);
                if (r < 0) {
                        call_free(c);
                        return r;
                }
                call_start(c, uid);
                return 1;
        }

        client = client_find(b, c->message);
        s = sender_find(b, c->message);
        if (client || (s && !s->slot)) {
                call_start(c, client ? client->uid : s->uid);
                return 1;
        }

        if (!s)
                r = sender_new(b, c->message, &s);
        if (r >= 0)
                r = sender_admit(s);
        if (r < 0) {
                call_free(c);
                if (s && !s->calls)
                        sender_free(s);
                return r != -EBUSY ? r : sd_bus_error_set(error, SD_BUS_ERROR_LIMITS_EXCEEDED, "Too many calls are waiting until their senders are known");
        }

        for (p = &s->calls; *p; p = &(*p)->next)
                ;
        *p = c;
        s->n_calls++;
        b->n_unidentified++;
        return 1;
}

/* The next call of this sender must wait for those before it: what it depends on is not known yet. */
static bool sender_waits(BusServer *b, sd_bus_message *m) {
        const Client *client = client_find(b, m);
        const Sender *s = sender_find(b, m);

        return (s && s->slot) || (client && client->calls);
}

/* Refuses at once what is surely refused later, before anybody is asked for a password, and a name of any length before it is kept. */
static int check_attached(BusServer *b, sd_bus_message *m, const char *unit, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;

        if (manager_get_unit(b->manager, unit, &e) || (e.code == QOS_ERROR_NOT_ATTACHED && sender_waits(b, m)))
                return 0;
        return error_to_bus(error, -ENXIO, &e);
}

static int read_probes(sd_bus_message *m, ProbeMask *ret, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        ProbeMask probes = 0;
        const char *name;
        unsigned n = 0;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "s");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_read(m, "s", &name)) > 0) {
                ProbeMask probe = probe_mask_from_name(name);

                if (probe == 0) {
                        r = qos_error_set(&e, QOS_ERROR_NO_SUCH_PROBE, name, "there is no probe '%s', expected " PROBES_EXPECTED, excerpt(name, (char[EXCERPT_MAX + 1]) {}));
                        return error_to_bus(error, r, &e);
                }
                if (++n > WORDS_MAX)
                        return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "More than %u probes are named", WORDS_MAX);
                probes |= probe;
        }
        if (r < 0)
                return r;

        *ret = probes;
        return sd_bus_message_exit_container(m);
}

/* What AttachUnit() and its sister are told. */
typedef struct AttachOptions {
        ProbeMask probes;
        ExcludeList excludes;
        uint64_t duration_usec;         /* 0: none */
        int lease;
} AttachOptions;

static int read_excludes(sd_bus_message *m, ExcludeList *ret, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        char **words = NULL;
        size_t n = 0;
        int r;

        r = sd_bus_message_read_strv(m, &words);
        if (r < 0)
                return r;
        /* Repeated ones, too, of which the list below keeps one */
        while (words && words[n])
                n++;
        r = n > WORDS_MAX ? -E2BIG : exclude_list_parse(words, ret, &e);
        strv_free(words);
        if (n > WORDS_MAX)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "More than %u exclusions are named", WORDS_MAX);
        return r < 0 ? error_to_bus(error, r, &e) : 0;
}

static int read_option(sd_bus_message *m, const char *name, AttachOptions *o, sd_bus_error *error) {
        static const struct {
                const char *name, *type;
        } table[] = {
                { "probes", "as" }, { "exclude", "as" }, { "duration_usec", "t" }, { "lease", "b" },
        };
        const char *type;
        size_t i = 0;
        int r;

        while (i < ELEMENTSOF(table) && !streq(table[i].name, name))
                i++;
        if (i == ELEMENTSOF(table))
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "There is no option '%s', expected 'probes', 'exclude', 'duration_usec' or 'lease'",
                                         excerpt(name, (char[EXCERPT_MAX + 1]) {}));
        r = sd_bus_message_peek_type(m, NULL, &type);
        if (r < 0)
                return r;
        if (!streq_ptr(type, table[i].type))
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "Option '%s' has type '%.100s', expected '%s'",
                                         name, strempty(type), table[i].type);

        r = sd_bus_message_enter_container(m, 'v', type);
        if (r < 0)
                return r;
        if (streq(name, "probes"))
                r = read_probes(m, &o->probes, error);
        else if (streq(name, "exclude"))
                r = read_excludes(m, &o->excludes, error);
        else
                r = sd_bus_message_read_basic(m, table[i].type[0], streq(name, "lease") ? (void*) &o->lease : (void*) &o->duration_usec);
        if (r < 0)
                return r;
        return sd_bus_message_exit_container(m);
}

/* a{sv}. An option that is there twice has the value that comes last. */
static int read_options(sd_bus_message *m, AttachOptions *o, sd_bus_error *error) {
        const char *name;
        unsigned n = 0;
        int r;

        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                if (++n > WORDS_MAX)
                        return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "More than %u options are given", WORDS_MAX);
                r = sd_bus_message_read(m, "s", &name);
                if (r >= 0)
                        r = read_option(m, name, o, error);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int method_attach(BusServer *b, sd_bus_message *m, const char *unit, const AttachOptions *o, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Call *c;
        int r;

        if (o->lease && o->duration_usec != 0)
                return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS,
                                        "A lease lasts as long as its owner is on the bus: duration_usec must be 0");

        /* Before anybody is asked for a password */
        if (!manager_get_unit(b->manager, unit, &e) && e.code == QOS_ERROR_INVALID_UNIT_NAME)
                return error_to_bus(error, -EINVAL, &e);

        r = call_new(b, m, &action_attach, unit, &c);
        if (r < 0)
                return r;
        c->lease = o->lease;
        c->probes = o->probes;
        c->excludes = o->excludes;
        c->duration_usec = o->duration_usec == 0 ? USEC_INFINITY : o->duration_usec;
        return call_submit(c, error);
}

static int manager_method_attach_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);
        AttachOptions o = {};
        const char *unit;
        int r;

        r = sd_bus_message_read(m, "s", &unit);
        if (r < 0)
                return r;
        r = read_probes(m, &o.probes, error);
        if (r < 0)
                return r;
        r = sd_bus_message_read(m, "tb", &o.duration_usec, &o.lease);
        if (r < 0)
                return r;
        return method_attach(b, m, unit, &o, error);
}

static int manager_method_attach_unit_with_options(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);
        AttachOptions o = {};
        const char *unit;
        int r;

        r = sd_bus_message_read(m, "s", &unit);
        if (r < 0)
                return r;
        r = read_options(m, &o, error);
        if (r < 0)
                return r;
        return method_attach(b, m, unit, &o, error);
}

static int manager_method_detach_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        BusServer *b = ASSERT_PTR(userdata);
        const char *unit;
        int r, lease;
        Call *c;

        r = sd_bus_message_read(m, "sb", &unit, &lease);
        if (r < 0)
                return r;

        r = check_attached(b, m, unit, error);
        if (r < 0)
                return r;
        if (lease && !client_find(b, m) && !sender_waits(b, m)) {
                r = qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, unit, "the caller has no lease of '%s'", unit);
                return error_to_bus(error, r, &e);
        }

        r = call_new(b, m, &action_detach, unit, &c);
        if (r < 0)
                return r;
        c->lease = lease;
        return call_submit(c, error);
}

/* ---- thresholds ----------------------------------------------------------------------------------------------- */

static int method_change_threshold(BusServer *b, sd_bus_message *m, const Action *action, sd_bus_error *error) {
        const char *unit, *threshold;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        ThresholdRule rule;
        int r, lease;
        Call *c;

        r = sd_bus_message_read(m, "ssb", &unit, &threshold, &lease);
        if (r < 0)
                return r;

        /* As in check_attached() */
        if (action == &action_set && threshold_rule_parse(threshold, b->manager->config.default_window_nsec, &rule, &e) < 0)
                return error_to_bus(error, -EINVAL, &e);
        r = check_attached(b, m, unit, error);
        if (r < 0)
                return r;
        if (strlen(threshold) > THRESHOLD_LINE_MAX) {
                r = qos_error_set(&e, QOS_ERROR_NO_SUCH_THRESHOLD, threshold, "'%s' has no threshold '%s'", unit, excerpt(threshold, (char[EXCERPT_MAX + 1]) {}));
                return error_to_bus(error, r, &e);
        }

        r = call_new(b, m, action, unit, &c);
        if (r < 0)
                return r;
        c->lease = lease;
        c->threshold = strdup(threshold);
        if (!c->threshold) {
                call_free(c);
                return -ENOMEM;
        }
        return call_submit(c, error);
}

static int manager_method_set_threshold(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return method_change_threshold(ASSERT_PTR(userdata), m, &action_set, error);
}

static int manager_method_clear_threshold(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        return method_change_threshold(ASSERT_PTR(userdata), m, &action_clear, error);
}

/* No peers are shown on this bus. */
static int append_threshold(sd_bus_message *reply, const Threshold *a) {
        ErrorBudget account = { ABSENT, ABSENT, NAN, NAN };
        _cleanup_free_ char *whole = NULL;
        int r;

        r = threshold_rule_format(&a->rule, /* named= */ false, &whole);
        if (r < 0)
                return r;
        (void) threshold_get_error_budget(a, &account);
        return sd_bus_message_append(reply, "(sssssdddttsttdd)", a->unit->name, a->rule.name, whole, threshold_state_to_string(a->machine.state),
                                     threshold_source_to_string(a->source), a->value, a->rule.limit, threshold_rule_get_slack(&a->rule, a->value),
                                     a->samples, a->since, strempty(a->origin), account.good, account.total, account.burn_short, account.burn_long);
}

static int manager_method_list_thresholds(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        BusServer *b = ASSERT_PTR(userdata);
        const char *unit;
        Unit *only = NULL;
        int r;

        r = sd_bus_message_read(m, "s", &unit);
        if (r < 0)
                return r;
        if (!isempty(unit)) {
                only = manager_get_unit(b->manager, unit, &e);
                if (!only)
                        return error_to_bus(error, -ENXIO, &e);
        }

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(sssssdddttsttdd)");
        for (unsigned i = 0; i < UNITS_MAX_LIMIT && r >= 0; i++) {
                const Unit *u = b->manager->units[i];

                if (!u || (only && u != only))
                        continue;
                for (Threshold *a = threshold_next(u, NULL); a && r >= 0; a = threshold_next(u, a))
                        r = append_threshold(reply, a);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

static int manager_method_list_units(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        BusServer *b = ASSERT_PTR(userdata);
        int r;

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "(ssstasso)");
        for (unsigned i = 0; i < UNITS_MAX_LIMIT && r >= 0; i++) {
                _cleanup_free_ char *path = NULL;
                Unit *u = b->manager->units[i];

                if (!u)
                        continue;
                r = unit_get_bus_path(u, &path);
                if (r >= 0)
                        r = sd_bus_message_open_container(reply, 'r', "ssstasso");
                if (r >= 0)
                        r = sd_bus_message_append(reply, "ssst", u->name, strempty(u->control_group), u->active_state, u->attached_since);
                if (r >= 0)
                        r = append_probes(reply, u->probes);
                if (r >= 0)
                        r = sd_bus_message_append(reply, "so", strempty(unit_degraded_reason(u)), path);
                if (r >= 0)
                        r = sd_bus_message_close_container(reply);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

static int manager_method_get_unit(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        BusServer *b = ASSERT_PTR(userdata);
        _cleanup_free_ char *path = NULL;
        const char *name;
        Unit *u;
        int r;

        r = sd_bus_message_read(m, "s", &name);
        if (r < 0)
                return r;
        u = manager_get_unit(b->manager, name, &e);
        if (!u)
                return error_to_bus(error, -ENXIO, &e);
        r = unit_get_bus_path(u, &path);
        if (r < 0)
                return r;
        return sd_bus_reply_method_return(m, "o", path);
}

static int append_metric(sd_bus_message *reply, const Metric *metric, const Metrics *values) {
        const char *s;
        uint64_t n;
        double d;

        switch (metric->type) {
        case METRIC_INTEGER:
                return metric_get_integer(metric, values, &n) ? sd_bus_message_append(reply, "{sv}", metric->name, "t", n) : 0;
        case METRIC_REAL:
                return metric_get_real(metric, values, &d) ? sd_bus_message_append(reply, "{sv}", metric->name, "d", d) : 0;
        default:
                return metric_get_string(metric, values, &s) ? sd_bus_message_append(reply, "{sv}", metric->name, "s", s) : 0;
        }
}

static int manager_method_snapshot(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        BusServer *b = ASSERT_PTR(userdata);
        uint64_t window_usec, window;
        const char *name;
        Snapshot s;
        Unit *u;
        int r;

        r = sd_bus_message_read(m, "st", &name, &window_usec);
        if (r < 0)
                return r;
        if (window_usec == 0)
                window = b->manager->config.default_window_nsec;
        else if (window_usec == UINT64_MAX)
                window = WINDOW_TOTAL;
        else if (window_usec > UINT64_MAX / NSEC_PER_USEC || !window_is_valid(window_usec * NSEC_PER_USEC))
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS,
                                         "There is no window of %llu us, expected " WINDOW_EXPECTED, (unsigned long long) window_usec);
        else
                window = window_usec * NSEC_PER_USEC;

        u = manager_get_unit(b->manager, name, &e);
        if (!u)
                return error_to_bus(error, -ENXIO, &e);
        unit_get_snapshot(u, window, &s);

        r = sd_bus_message_new_method_return(m, &reply);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "{sv}");
        if (r >= 0)
                r = sd_bus_message_append(reply, "{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}",
                                          "unit", "s", u->name,
                                          "controlGroup", "s", strempty(u->control_group),
                                          "activeState", "s", u->active_state,
                                          "attachedSince", "t", u->attached_since,
                                          "seq", "t", s.seq,
                                          "timestamp", "t", s.timestamp,
                                          "covered", "t", s.covered,
                                          "drops", "t", s.drops);
        if (r >= 0 && window != WINDOW_TOTAL)
                r = sd_bus_message_append(reply, "{sv}", "window", "t", s.window);
        if (r >= 0 && !sd_id128_is_null(u->invocation_id))
                r = sd_bus_message_append(reply, "{sv}", "invocationId", "s", SD_ID128_TO_STRING(u->invocation_id));
        if (r >= 0 && !__builtin_isnan(s.cost_share))
                r = sd_bus_message_append(reply, "{sv}", "cost.share", "d", s.cost_share);
        for (size_t i = 0; i < metric_table_size && r >= 0; i++)
                r = append_metric(reply, metric_table + i, &s.metrics);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        if (r < 0)
                return r;
        return sd_bus_send(NULL, reply, NULL);
}

/* ---- Subscribe ------------------------------------------------------------------------------------------------ */

/* At whole seconds of the clock, as varlink's streams: what is shown everywhere at that second is one reading. */
static void dbus_server_arm_timer(BusServer *b) {
        (void) sd_event_source_set_time(b->tick, (now_usec(CLOCK_MONOTONIC) / USEC_PER_SEC + 1) * USEC_PER_SEC);
        (void) sd_event_source_set_enabled(b->tick, SD_EVENT_ONESHOT);
}

static int on_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);
        int r;

        if (b->n_subscribed == 0)
                return 0;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                if (!b->manager->units[i])
                        continue;
                r = unit_objects_emit_reading(b->objects, b->manager->units[i]);
                if (r < 0)
                        log_debug_errno(r, "Failed to signal the figures of '%s', ignoring: %m", b->manager->units[i]->name);
        }

        dbus_server_arm_timer(b);
        return 0;
}

static void call_subscribe(Call *c) {
        BusServer *b = c->server;

        if (c->client->subscribed) {
                (void) sd_bus_reply_method_errorf(c->message, BUS_ERROR_PREFIX "AlreadySubscribed", "The caller is subscribed already");
                call_finish(c);
                return;
        }

        c->client->subscribed = true;
        if (++b->n_subscribed == 1) {
                unit_objects_set_subscribed(b->objects, true);
                dbus_server_arm_timer(b);
        }
        (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

static void call_unsubscribe(Call *c) {
        BusServer *b = c->server;

        if (!c->client->subscribed) {
                (void) sd_bus_reply_method_errorf(c->message, BUS_ERROR_PREFIX "NotSubscribed", "The caller is not subscribed");
                call_finish(c);
                return;
        }

        c->client->subscribed = false;
        if (--b->n_subscribed == 0) {
                unit_objects_set_subscribed(b->objects, false);
                (void) sd_event_source_set_enabled(b->tick, SD_EVENT_OFF);
        }
        (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

static int manager_method_subscribe(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const Action action = { .go_on = call_subscribe };
        Call *c;
        int r;

        r = call_new(ASSERT_PTR(userdata), m, &action, NULL, &c);
        return r < 0 ? r : call_submit(c, error);
}

static int manager_method_unsubscribe(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const Action action = { .go_on = call_unsubscribe };
        BusServer *b = ASSERT_PTR(userdata);
        Call *c;
        int r;

        if (!client_find(b, m) && !sender_waits(b, m))
                return sd_bus_error_set(error, BUS_ERROR_PREFIX "NotSubscribed", "The caller is not subscribed");

        r = call_new(b, m, &action, NULL, &c);
        return r < 0 ? r : call_submit(c, error);
}

/* ---- properties ----------------------------------------------------------------------------------------------- */

static int manager_property_get_version(sd_bus *bus, const char *path, const char *interface, const char *property,
                                        sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", QOSD_VERSION);
}

static int manager_property_get_probes(sd_bus *bus, const char *path, const char *interface, const char *property,
                                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        const char *name;
        int r;

        r = sd_bus_message_open_container(reply, 'a', "s");
        for (unsigned i = 0; r >= 0 && (name = probe_mask_name(i)); i++)
                r = sd_bus_message_append(reply, "s", name);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int manager_property_get_n_units(sd_bus *bus, const char *path, const char *interface, const char *property,
                                        sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "u", (uint32_t) b->manager->n_units);
}

static int manager_property_get_units_max(sd_bus *bus, const char *path, const char *interface, const char *property,
                                          sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "u", (uint32_t) b->manager->config.units_max);
}

static int manager_property_get_default_window_n_sec(sd_bus *bus, const char *path, const char *interface, const char *property,
                                                     sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        BusServer *b = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "t", b->manager->config.default_window_nsec);
}

/* ---- LogControl1: systemctl service-log-level qosd ------------------------------------------------------------ */

static int log_property_get_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                                  sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", log_level_to_string(log_get_max_level()));
}

static int log_property_set_level(sd_bus *bus, const char *path, const char *interface, const char *property,
                                  sd_bus_message *value, void *userdata, sd_bus_error *error) {
        const char *s;
        int r;

        r = sd_bus_message_read(value, "s", &s);
        if (r < 0)
                return r;
        r = log_level_from_string(s);
        if (r < 0)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "There is no log level '%s', expected emerg … debug", s);
        log_set_max_level(r);
        return 0;
}

static int log_property_get_target(sd_bus *bus, const char *path, const char *interface, const char *property,
                                   sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", "journal");
}

static int log_property_set_target(sd_bus *bus, const char *path, const char *interface, const char *property,
                                   sd_bus_message *value, void *userdata, sd_bus_error *error) {
        return sd_bus_error_set(error, SD_BUS_ERROR_NOT_SUPPORTED, "qosd logs to the journal only");
}

static int log_property_get_identifier(sd_bus *bus, const char *path, const char *interface, const char *property,
                                       sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", "qosd");
}

/* Set() of the first two: only on_log_set() calls what is written down here. */
static const sd_bus_vtable log_control_vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_WRITABLE_PROPERTY("LogLevel", "s", log_property_get_level, log_property_set_level, 0, 0),
        SD_BUS_WRITABLE_PROPERTY("LogTarget", "s", log_property_get_target, log_property_set_target, 0, 0),
        SD_BUS_PROPERTY("SyslogIdentifier", "s", log_property_get_identifier, 0, SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_VTABLE_END
};

/* c->message stands before the value. */
static void call_set_log(Call *c) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        const char *property;
        int r;

        if (c->client->uid != 0 && c->client->uid != getuid()) {
                (void) sd_bus_reply_method_errorf(c->message, SD_BUS_ERROR_ACCESS_DENIED, "Only root may change what is logged");
                call_finish(c);
                return;
        }

        r = sd_bus_message_rewind(c->message, true);
        if (r >= 0)
                r = sd_bus_message_read(c->message, "ss", NULL, &property);
        if (r >= 0)
                r = sd_bus_message_enter_container(c->message, 'v', "s");
        if (r >= 0)
                r = (streq(property, "LogLevel") ? log_property_set_level : log_property_set_target)
                        (c->server->bus, LOG_CONTROL_PATH, LOG_CONTROL_INTERFACE, property, c->message, c->server, &error);
        if (r < 0)
                (void) sd_bus_reply_method_errno(c->message, r, &error);
        else
                (void) sd_bus_reply_method_return(c->message, NULL);
        call_finish(c);
}

/* Before sd-bus sees a Set() of LogControl1: to find out whether the sender may, it would wait for the bus. */
static int on_log_set(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        static const Action action = { .go_on = call_set_log };
        const char *interface, *property, *value;
        Call *c;
        int r;

        if (sd_bus_message_is_method_call(m, DBUS_NAME ".Properties", "Set") <= 0 || !streq_ptr(sd_bus_message_get_path(m), LOG_CONTROL_PATH))
                return 0;
        if (!sd_bus_message_has_signature(m, "ssv"))
                return sd_bus_error_set(error, SD_BUS_ERROR_INVALID_ARGS, "Expected an interface, a property and its value");
        if (sd_bus_message_read(m, "ssv", &interface, &property, "s", &value) < 0 ||
            !streq(interface, LOG_CONTROL_INTERFACE) || (!streq(property, "LogLevel") && !streq(property, "LogTarget"))) {
                (void) sd_bus_message_rewind(m, true);
                return 0; /* sd-bus refuses it without asking anybody */
        }
        if (strlen(value) > EXCERPT_MAX)
                return sd_bus_error_setf(error, SD_BUS_ERROR_INVALID_ARGS, "There is no %s '%s'", property, excerpt(value, (char[EXCERPT_MAX + 1]) {}));

        r = call_new(ASSERT_PTR(userdata), m, &action, NULL, &c);
        return r < 0 ? r : call_submit(c, error);
}

/* ---- what the manager tells ----------------------------------------------------------------------------------- */

static void emit_n_units(BusServer *b) {
        if (b->n_subscribed > 0)
                (void) sd_bus_emit_properties_changed(b->bus, BUS_PATH, Manager_INTERFACE, "NUnits", NULL);
}

static void on_unit_attached(Unit *u, void *userdata) {
        _cleanup_free_ char *path = NULL;
        BusServer *b = ASSERT_PTR(userdata);

        if (!b->bus || unit_get_bus_path(u, &path) < 0)
                return;

        (void) sd_bus_emit_interfaces_added(b->bus, path, BUS_UNIT_INTERFACES, NULL);
        (void) sd_bus_emit_signal(b->bus, BUS_PATH, Manager_INTERFACE, "UnitAttached", "so", u->name, path);
        emit_n_units(b);
}

static void on_unit_detaching(Unit *u, void *userdata) {
        _cleanup_free_ char *path = NULL;
        BusServer *b = ASSERT_PTR(userdata);

        if (!b->bus)
                return;

        if (unit_get_bus_path(u, &path) >= 0) {
                (void) sd_bus_emit_interfaces_removed(b->bus, path, BUS_UNIT_INTERFACES, NULL);
                (void) sd_bus_emit_signal(b->bus, BUS_PATH, Manager_INTERFACE, "UnitDetached", "so", u->name, path);
        }
        emit_n_units(b);
        unit_objects_forget(b->objects, u);
}

static void on_unit_changed(Unit *u, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);

        if (b->bus)
                (void) unit_objects_emit_unit(b->objects, u);
}

static void on_threshold_event(Unit *u, const ThresholdEvent *e, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);

        if (!b->bus)
                return;

        (void) unit_objects_emit_crossed(b->objects, u, e);
        (void) unit_objects_emit_unit(b->objects, u);
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

static void bus_server_disconnect(BusServer *b) {
        while (b->senders)
                sender_free(b->senders);
        while (b->clients)
                client_free(b->clients);
        b->tick = sd_event_source_disable_unref(b->tick);
        while (b->n_slots > 0)
                sd_bus_slot_unref(b->slots[--b->n_slots]);
        b->objects = unit_objects_free(b->objects);
        b->bus = sd_bus_unref(b->bus);
        assert(b->n_senders == 0 && b->n_unidentified == 0 && b->n_clients == 0 && b->n_subscribed == 0);
}

static int bus_server_connect(BusServer *b, sd_bus *bus) {
        Manager *m = b->manager;
        int r;

        assert(!b->bus);

        b->bus = sd_bus_ref(bus);

        r = sd_event_add_time(m->event, &b->tick, CLOCK_MONOTONIC, 0, USEC_PER_MSEC, on_tick, b);
        if (r >= 0)
                r = sd_event_source_set_enabled(b->tick, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_bus_add_object_vtable(bus, b->slots + b->n_slots++, BUS_PATH, Manager_INTERFACE, manager_vtable, b);
        if (r >= 0)
                r = sd_bus_add_object_manager(bus, b->slots + b->n_slots++, BUS_PATH);
        if (r >= 0)
                r = sd_bus_add_object_vtable(bus, b->slots + b->n_slots++, LOG_CONTROL_PATH, LOG_CONTROL_INTERFACE, log_control_vtable, b);
        if (r >= 0)
                r = sd_bus_add_filter(bus, b->slots + b->n_slots++, on_log_set, b);
        if (r >= 0)
                r = unit_objects_new(m, bus, &b->objects);
        if (r < 0)
                bus_server_disconnect(b);
        return r;
}

BusServer* bus_server_free(BusServer *b) {
        if (!b)
                return NULL;

        bus_server_disconnect(b);
        manager_remove_observer(b->manager, &b->observer);
        free(b);
        return NULL;
}

static int bus_server_allocate(Manager *m, BusServer **ret) {
        BusServer *b;

        b = new0(BusServer, 1);
        if (!b)
                return -ENOMEM;

        *b = (BusServer) {
                .manager = m,
                .observer = {
                        .unit_attached = on_unit_attached,
                        .unit_changed = on_unit_changed,
                        .unit_detaching = on_unit_detaching,
                        .threshold_event = on_threshold_event,
                        .userdata = b,
                },
        };
        manager_add_observer(m, &b->observer);
        *ret = b;
        return 0;
}

static void on_peer_bus_changed(sd_bus *bus, void *userdata) {
        if (!bus)
                bus_server_disconnect(ASSERT_PTR(userdata));
}

int bus_server_new_peer(Manager *m, sd_bus *bus, BusServer **ret) {
        BusServer *b;
        int r;

        r = bus_server_allocate(m, &b);
        if (r < 0)
                return r;
        b->observer.bus_changed = on_peer_bus_changed;
        r = bus_server_connect(b, bus);
        if (r < 0) {
                bus_server_free(b);
                return r;
        }

        *ret = b;
        return 0;
}

static int on_name_requested(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);
        uint32_t answer;
        int r;

        if (e) {
                log_warning("Failed to acquire the name '" BUS_NAME "', clients on D-Bus do not find us: %s", e->message);
                return 0;
        }

        /* As in the specification: 1 primary owner, 4 it was already */
        r = sd_bus_message_read(m, "u", &answer);
        if (r < 0 || (answer != 1 && answer != 4))
                log_warning("The name '" BUS_NAME "' belongs to somebody else, clients on D-Bus do not find us.");
        else
                log_debug("Acquired the name '" BUS_NAME "'.");
        return 0;
}

static int on_name_lost(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;

        if (sd_bus_message_read(m, "s", &name) >= 0 && streq(name, BUS_NAME))
                log_warning("Lost the name '" BUS_NAME "', clients on D-Bus do not find us any more.");
        return 0;
}

static void on_bus_changed(sd_bus *bus, void *userdata) {
        BusServer *b = ASSERT_PTR(userdata);
        int r;

        bus_server_disconnect(b);
        if (!bus)
                return;

        r = bus_server_connect(b, bus);
        if (r >= 0)
                r = sd_bus_match_signal_async(bus, b->slots + b->n_slots++, DBUS_NAME, DBUS_PATH, DBUS_NAME, "NameLost", on_name_lost, NULL, NULL);
        if (r >= 0)
                r = sd_bus_request_name_async(bus, b->slots + b->n_slots++, BUS_NAME, 0, on_name_requested, NULL);
        if (r < 0) {
                (void) log_error_errno(r, "Failed to offer org.qosd1 on the system bus: %m");
                bus_server_disconnect(b);
        }
}

int bus_server_new(Manager *m, BusServer **ret) {
        BusServer *b;
        int r;

        r = bus_server_allocate(m, &b);
        if (r < 0)
                return r;
        b->observer.bus_changed = on_bus_changed;
        if (m->bus)
                on_bus_changed(m->bus, b);

        *ret = b;
        return 0;
}
