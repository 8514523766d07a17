/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Clients on the bus: their leases, and calls that wait for PID 1 or polkit. */

#include "dbus-manager.h"
#include "dbus-queue.h"
#include "dbus-unit.h"
#include "diagnosing.h"
#include "exclude.h"
#include "observer.h"
#include "polkit.h"
#include "threshold-monitor.h"
#include "unit-query.h"

#define BUS_ERROR_PREFIX "org.qosd1.Error."
#define POLKIT_ACTION_ATTACH "org.qosd1.attach"
#define POLKIT_ACTION_PROBE "org.qosd1.probe"
#define POLKIT_ACTION_CONFIGURE "org.qosd1.configure"
#define POLKIT_ACTION_INSPECT "org.qosd1.inspect"

typedef struct Call Call;

/* A client that is tracked by its bus name, as it has pending calls, is subscribed, or holds leases. */
typedef struct Client {
        BusServer *server;
        struct Client *next;
        sd_bus_slot *gone;      /* match for the client leaving the bus */
        sd_bus_slot *check;     /* query whether it has left before the match was added */
        char *sender;           /* empty on a peer-to-peer connection */
        uid_t uid;
        bool subscribed;
        bool dispatching;       /* within client_dispatch() */
        Call *calls;            /* in the order of arrival */
} Client;

/* Actions that calls need authorization for. */
typedef struct Action {
        const char *name;
        const char *what;
        void (*go_on)(Call *c);         /* called when authorized; ends the call */
        bool attaches;                  /* needs no attached unit; runs concurrently */
        bool releases;                  /* needs no authorization for leases of the client */
} Action;

/* A call that depends on its client: pending until it is authorized and complete. */
struct Call {
        BusServer *server;
        Client *client;         /* NULL until the call is started */
        Call *next;
        sd_bus_message *message;
        AttachOperation *attach;
        PolkitQuery *query;
        const Action *action;
        bool lease;
        uid_t owner_uid;        /* as in struct Hold */
        bool started;           /* does not wait for earlier calls of the client */
        bool running;           /* within manager_attach() */
        ProbeMask probes;
        ExcludeList excludes;
        uint64_t duration_usec;
        uint64_t window;
        char *unit;
        char *threshold;        /* rule or name */
        Diagnosing *diagnosing;
        Turn turn;              /* of readings of a diagnosis */
};

/* A call that has failed, as the unit is not attached, while PID 1 is queried for the unit. */
typedef struct FailedCall {
        BusServer *server;
        struct FailedCall *next;
        sd_bus_message *message;
        UnitQuery *unit_query;
} FailedCall;

struct BusServer {
        Manager *manager;
        ManagerObserver observer;
        sd_bus *bus;            /* NULL without a connection, as are the fields below */
        sd_bus_slot *slots[12];
        size_t n_slots;
        sd_event_source *tick;
        Turn tick_turn;                 /* of sending metrics of units after the tick */
        unsigned tick_next;             /* slot of the next unit */
        DBusUnits *objects;
        BusQueue *queue;
        Client *clients;
        unsigned n_clients;
        unsigned n_subscribed;
        FailedCall *failed;
};

/* Arguments of AttachUnit() and AttachUnitWithOptions(). */
typedef struct AttachOptions {
        ProbeMask probes;
        ExcludeList excludes;
        uint64_t duration_nsec;         /* 0: none */
        int lease;
} AttachOptions;

extern const Action action_attach;
extern const Action action_detach;
extern const Action action_set;
extern const Action action_clear;

/* dbus-client.c */
int bus_error_set_qos(sd_bus_error *error, int errno_value, const QosError *e);
void bus_reply_error(sd_bus_message *m, int errno_value, const QosError *e);
/* To be called when manager_get_unit() has failed with e: replies, or fails. */
int bus_reply_missing(BusServer *b, sd_bus_message *m, const char *unit, QosError *e, sd_bus_error *error);
void failed_call_free(FailedCall *f);
void call_free(Call *c);
void client_free(Client *c);
Client* client_find(BusServer *b, sd_bus_message *m);
void call_finish(Call *c);
int call_new(BusServer *b, sd_bus_message *m, const Action *action, const char *unit, Call **ret);
int call_submit(Call *c, sd_bus_error *error);
/* Authorizes again, for another action of the same call. */
void call_authorize(Call *c);
/* Whether earlier calls of the sender are pending, on which this one may depend. */
bool client_waits(BusServer *b, sd_bus_message *m);

/* dbus-attach.c */
int check_attached(BusServer *b, sd_bus_message *m, const char *unit, sd_bus_error *error);
int read_probes(sd_bus_message *m, ProbeMask *ret, sd_bus_error *error);
int read_options(sd_bus_message *m, AttachOptions *o, sd_bus_error *error);
int method_attach(BusServer *b, sd_bus_message *m, const char *unit, const AttachOptions *o,
                  sd_bus_error *error);
int method_change_threshold(BusServer *b, sd_bus_message *m, const Action *action, sd_bus_error *error);

/* dbus-snapshot.c */
int method_snapshot(BusServer *b, sd_bus_message *m, sd_bus_error *error);
int method_snapshot_mounts(BusServer *b, sd_bus_message *m, sd_bus_error *error);
int method_snapshot_drops(BusServer *b, sd_bus_message *m, sd_bus_error *error);

/* dbus-diagnose.c */
int method_diagnose(BusServer *b, sd_bus_message *m, const char *unit, uint64_t interval,
                    sd_bus_error *error);
