/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Clients of org.qosd.QoS. Shared by the files that implement its methods: varlink-attach.c, varlink-get.c
 * and so on. */

#include "diagnosing.h"
#include "exclude.h"
#include "connections.h"
#include "inspect-waits.h"
#include "json-writer.h"
#include "manager.h"
#include "metric.h"
#include "observer.h"
#include "polkit.h"
#include "threshold-monitor.h"
#include "unit.h"
#include "unit-query.h"
#include "varlink-io.h"
#include "varlink-listen.h"
#include "varlink-server.h"
#include "window.h"

#include <systemd/sd-varlink.h>

#define INTERFACE "org.qosd.QoS"

#define POLKIT_ACTION_ATTACH "org.qosd1.attach"
#define POLKIT_ACTION_PROBE "org.qosd1.probe"
#define POLKIT_ACTION_INSPECT "org.qosd1.inspect"

typedef struct Connection Connection;

typedef struct Stream {
        TurnUser *user;                 /* NULL: root */
        char **units;                   /* NULL: all attached units */
        uint64_t window;
        uint64_t interval_usec;
        sd_event_source *timer;
        uint64_t tick;                  /* of the current round, CLOCK_MONOTONIC usec */
        unsigned next;                  /* slot of the next unit in the round; 0: no round in progress */
        uint64_t skipped, reported;     /* rounds skipped; reported in the current round */
        uint64_t unread_since;          /* CLOCK_MONOTONIC usec since which the client has not read; 0: it
                                         * reads */
} Stream;

/* A reading of a unit for all streams at a tick. */
typedef struct Frame {
        uint64_t window;
        bool peers;
        uint64_t tick;                  /* CLOCK_MONOTONIC usec */
        VarlinkText *text;
        struct Frame *next;
} Frame;

/* The last reading of the threads, wait targets or connections of a unit, shared by all users with access to
 * it. */
typedef struct Inspection {
        sd_json_variant *v;             /* NULL: none */
        uint64_t until;                 /* valid until then, CLOCK_MONOTONIC ns */
} Inspection;

typedef enum InspectionType {
        INSPECTION_THREADS,
        INSPECTION_RESOURCES,
        INSPECTION_RESOURCES_NAMES,     /* with names of futexes */
        INSPECTION_CONNECTIONS,         /* index is this plus ConnectionSort */
        _INSPECTION_MAX = INSPECTION_CONNECTIONS + _CONNECTION_SORT_MAX,
} InspectionType;

/* An inspection in progress. Users other than root have one at a time, see Many. */
typedef struct Inspecting {
        InspectionType type;
        char *unit;
        bool begun;
        bool waits;                     /* waits for names of futexes */
        WaitsQuery *query;              /* NULL: not begun, or to be restarted, as the unit was detached */
        ConnectionsQuery *connections;  /* the same */
        uint64_t cpu;                   /* CPU time so far, ns */
} Inspecting;

/* Limits of one turn of a list or stream: time, and number of units. */
#define LIST_TURN_NSEC NSEC_PER_MSEC
#define LIST_TURN_UNITS 32U

/* As LIST_TURN_UNITS, for exports, in which a unit with all probes takes up to 60 KiB. */
#define EXPORT_TURN_UNITS 8U

/* Methods that reply with lists. */
typedef enum ListingType {
        LISTING_UNITS,
        LISTING_EXPORT,
        LISTING_THRESHOLDS,
        LISTING_MONITOR,                /* all thresholds in one reply, the first of Monitor() */
} ListingType;

/* A list of units, or of their thresholds, in progress. */
typedef struct Listing {
        ListingType type;
        uint64_t window;
        unsigned next;                  /* slot of the next unit */
        char *last;                     /* element that is sent when it is known whether another one follows;
                                         * for LISTING_MONITOR, all elements so far */
        size_t size;                    /* of all elements so far */
        unsigned n_units;               /* for LISTING_EXPORT: units sent so far */
        bool tables;                    /* for LISTING_EXPORT: with endpoints and devices */

        /* For LISTING_MONITOR */
        int (*end)(Connection *c);      /* sends the reply, and frees the listing */
        char **units;                   /* NULL: all */
        uint64_t since, missed;          /* event after which events are sent, after the list */
} Listing;

/* A reading of several units in progress. Takes up to 10 KiB for each unit, plus the reply: users other than
 * root have one at a time, for which those of their other connections wait. */
typedef struct Many {
        char **names;
        uint64_t window;
        bool begun;                     /* the fields below are valid */
        Moment now;
        Unit *units[UNITS_MAX_LIMIT];   /* NULL: detached after its part of the reply was built */
        bool peers[UNITS_MAX_LIMIT];    /* the client may see peers of the unit */
        Snapshot *snapshots;
        sd_json_variant *parts[UNITS_MAX_LIMIT]; /* NULL: not built yet, or not serializable */
        size_t n, next;
} Many;

/* A subscriber of state changes of thresholds. */
typedef struct Monitor {
        char **units;                   /* NULL: all attached units */
        uint64_t seq;                   /* of the last event that was sent, or did not concern these units */
        uint64_t round;                 /* iteration of the event loop in which the socket was last
                                         * checked */
        uint64_t unread_since;          /* as in Stream; events are sent later then */
} Monitor;

/* Limit of marks of a connection. A mark takes 22 KiB, and a user may have a hundred connections. */
#define MARKS_MAX 4U

typedef struct MapExport {
        uid_t uid;
        unsigned n;
        struct MapExport *next;
} MapExport;

typedef struct Mark {
        Unit *unit;
        WindowMark mark;
        uint64_t cost;
} Mark;

struct Connection {
        VarlinkServer *server;
        sd_varlink *link;
        VarlinkIo *io;
        uid_t uid;
        Connection *previous, *next;

        /* The pending method, as sd-varlink dispatches no other one meanwhile */
        AttachOperation *attach;
        PolkitQuery *query;
        UnitQuery *unit_query;          /* finds out why the method fails */
        int (*go_on)(Connection *c);    /* called when the method is authorized */
        const char *action;             /* action of polkit */
        void (*drop)(Connection *c);    /* frees the state of the method; NULL: none */
        bool needs_attached;            /* the method requires an attached unit */
        bool restricted;                /* probes need more than ownership of the control group */
        uid_t owner_uid;                /* as in struct Hold */
        char *unit;
        char *threshold;                /* rule, or name */
        ProbeMask probes;
        ExcludeList excludes;
        bool lease;
        uint64_t duration_usec;

        Diagnosing *diagnosing;
        Diagnosing *begun;              /* between BeginDiagnosis() and Diagnose(); NULL: none */
        Listing *listing;
        Many *many;
        ConnectionSort sort;            /* of ListConnections() */
        Inspecting *inspecting;
        Stream *stream;
        Monitor *monitor;
        Mark *marks[MARKS_MAX];         /* unordered; NULL: free */
};

struct VarlinkServer {
        Manager *manager;
        ManagerObserver observer;
        sd_varlink_server *server;
        VarlinkListener *listener, *root_listener; /* NULL: none */
        VarlinkIoSet io;
        Connection *connections;
        unsigned n_others;              /* number of connections of users other than root */
        Frame *frames[UNITS_MAX_LIMIT]; /* by index of the unit */
        Inspection inspections[UNITS_MAX_LIMIT][_INSPECTION_MAX]; /* by index of the unit */
        MapExport *viewers;                /* users that got maps */
        sd_event_source *monitors_timer; /* for monitors that do not read their events; NULL: none */
        uint64_t refused_at;            /* CLOCK_MONOTONIC usec; 0: never */
};

typedef struct Parameters {
        const char *unit;
        const char *metric;
        const char *threshold;          /* rule, name or condition */
        uint64_t window;                /* ABSENT: the default */
        uint64_t interval;
        uint64_t duration;
        uint64_t since, step;           /* ABSENT: the default */
        char **names;                   /* units, probes or metrics */
        char **excludes;
        sd_json_variant *normal;
        const char *sort;               /* NULL: the default */
        bool lease, interactive, since_mark, since_begin, tables;
} Parameters;

#define _cleanup_parameters_ _cleanup_(parameters_done)
#define PARAMETERS_INIT { .window = ABSENT, .interval = NSEC_PER_SEC, .duration = ABSENT, .since = ABSENT, \
                          .step = ABSENT }

/* varlink-connection.c */
int vl_reply_error(sd_varlink *link, int error, const QosError *e);
int vl_reply_not_measured(sd_varlink *link, const char *metric);
void parameters_done(Parameters *p);
/* For methods without parameters. */
int vl_dispatch_none(sd_varlink *link, sd_json_variant *parameters);
int vl_dispatch_bool(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags, void *userdata);
int vl_dispatch_number(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags, void *userdata);
int vl_dispatch_strv(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags, void *userdata);
int parameters_check_window(Manager *m, sd_varlink *link, Parameters *p);
void connection_forget_call(Connection *c);
/* To be called when manager_get_unit() has failed with e. */
int connection_reply_missing(Connection *c, sd_varlink_method_flags_t flags, const char *unit, QosError *e);
int connection_authorize(Connection *c, bool interactive);
Mark** connection_find_mark(Connection *c, const Unit *u);
bool connection_may_see_peers_of(const Connection *c, const char *unit);
bool connection_may_see_peers(const Connection *c, const Unit *u);
void unit_log_unshowable(Unit *u, int error);
int vl_reply_many(sd_varlink *link, sd_json_variant **replies, size_t n);
bool strv_contains(char **names, const char *name);
bool connection_is_slow(Connection *c);
int connection_resolve_units(Manager *m, sd_varlink *link, char **names, char ***ret);

/* varlink-attach.c */
int vl_method_attach(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata);
int vl_method_detach(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata);

/* varlink-get.c */
int vl_method_get(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                  void *userdata);
void many_add(Many *m, size_t i);
int connection_go_on_many(Connection *c);
void connection_end_many(Connection *c);
/* To be called when a reading has ended: another one of the user may begin. begun: the ended one had
 * begun. */
void connection_resume_readers(Connection *c, bool begun);
int vl_method_get_many(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                       void *userdata);
int vl_method_get_view(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                       void *userdata);
int vl_method_mark(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata);
int vl_method_histogram(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                        void *userdata);

/* varlink-list.c */
Listing* listing_free(Listing *l);
int connection_send_text(Connection *c, const char *parameters);
int connection_go_on_listing(Connection *c);
int vl_method_export(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata);
int vl_method_list(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata);
int vl_method_list_thresholds(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata);
int vl_method_list_metrics(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                           void *userdata);
int vl_method_probes(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata);
int vl_method_get_status(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                         void *userdata);

/* varlink-inspect.c */
/* Frees readings of the unit with this index that are no longer valid at a time; UINT64_MAX: all. Returns
 * whether any are left. */
bool inspections_forget(VarlinkServer *v, unsigned index, uint64_t now);
int connection_go_on_inspecting(Connection *c);
void connection_end_inspecting(Connection *c);
/* To be called when the unit is detached. */
void connection_restart_inspecting(Connection *c);
int vl_method_threads(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                      void *userdata);
int vl_method_list_connections(sd_varlink *link, sd_json_variant *parameters,
                               sd_varlink_method_flags_t flags, void *userdata);
int vl_method_list_segments(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata);
int vl_method_slow_operations(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata);
int vl_method_resources(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                        void *userdata);

/* varlink-history.c */
int vl_method_history(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                      void *userdata);

/* varlink-diagnose.c */
void connection_go_on_diagnosing(Connection *c);
int vl_method_begin_diagnosis(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata);
int vl_method_diagnose(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                       void *userdata);

/* varlink-stream.c */
Stream* stream_free(Stream *s);
void frames_free(Frame **frames);
int connection_send_round(Connection *c);
int vl_method_subscribe(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                        void *userdata);

/* varlink-threshold.c */
Monitor* monitor_free(Monitor *m);
int vl_method_set_threshold(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                            void *userdata);
int vl_method_clear_threshold(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata);
int varlink_server_resume_monitors(sd_event_source *source, uint64_t usec, void *userdata);
void varlink_server_on_threshold_event(Unit *u, const ThresholdEvent *e, void *userdata);
int vl_method_monitor(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                      void *userdata);
int vl_method_wait(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata);
