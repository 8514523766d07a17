/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A client of org.qosd.QoS, and what the files that implement the interface's methods share:
 * varlink-attach.c, varlink-get.c and so on. */

#include "diagnosing.h"
#include "exclude.h"
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
#define POLKIT_ACTION_INSPECT "org.qosd1.inspect"

typedef struct Connection Connection;

typedef struct Stream {
        TurnUser *user;                 /* NULL: root */
        char **units;                   /* NULL: all that are attached */
        uint64_t window;
        uint64_t interval_usec;
        sd_event_source *timer;
        uint64_t tick;                  /* of the round under way, CLOCK_MONOTONIC usec */
        unsigned next;                  /* slot of the unit to be sent next in it; 0: none is under way */
        uint64_t skipped, reported;     /* the latter: in this round */
        uint64_t unread_since;          /* CLOCK_MONOTONIC usec; 0: it reads */
} Stream;

/* Readings of a unit for streams at one tick, as far as they have been built. */
typedef struct Frame {
        uint64_t window;
        bool peers;
        uint64_t tick;                  /* CLOCK_MONOTONIC usec */
        VarlinkText *text;
        struct Frame *next;
} Frame;

/* The last reading of the threads or wait targets of a unit, shared by all users with access to it. */
typedef struct Inspection {
        sd_json_variant *v;             /* NULL: none */
        uint64_t until;                 /* valid until then, CLOCK_MONOTONIC ns */
} Inspection;

typedef enum InspectionType {
        INSPECTION_THREADS,
        INSPECTION_RESOURCES,
        INSPECTION_RESOURCES_NAMES,     /* with names of futexes */
        _INSPECTION_MAX,
} InspectionType;

/* A reading of these under way. Each user but root has one at a time, as of Many. */
typedef struct Inspecting {
        InspectionType type;
        char *unit;
        bool begun;
        bool waits;                     /* for names of futexes */
        WaitsQuery *query;              /* NULL: not begun, or the unit was detached meanwhile */
        uint64_t cpu;                   /* it has taken so far, ns */
} Inspecting;

/* Limits of one turn of a list or stream: time, and number of units. Other clients are served before the
 * next one. */
#define LIST_TURN_NSEC NSEC_PER_MSEC
#define LIST_TURN_UNITS 32U

/* As LIST_TURN_UNITS, for exports: a unit with all probes takes up to 60 KiB. */
#define EXPORT_TURN_UNITS 8U

/* State of a list in progress. */
typedef enum ListingType {
        LISTING_UNITS,
        LISTING_EXPORT,
        LISTING_THRESHOLDS,
        LISTING_MONITOR,                /* all thresholds in one reply, the first of Monitor() */
} ListingType;

/* A list of all units, or of their thresholds, under way. */
typedef struct Listing {
        ListingType type;
        uint64_t window;
        unsigned next;                  /* slot of the next unit */
        char *last;                     /* what is sent when it is known whether something follows; of
                                         * LISTING_MONITOR all so far */
        size_t size;                    /* of all so far */
        unsigned n_units;               /* of LISTING_EXPORT: sent so far */
        bool tables;                    /* of LISTING_EXPORT: with endpoints and devices */

        /* Of LISTING_MONITOR */
        int (*end)(Connection *c);      /* sends the reply, and frees the listing */
        char **units;                   /* NULL: all */
        uint64_t since, missed;          /* the event whose successors are sent behind it */
} Listing;

/* A reading of several units under way. It takes up to 10 KiB for each unit, and what the reply is made of:
 * each user but root has one at a time, those of its other connections wait. */
typedef struct Many {
        char **names;
        uint64_t window;
        bool begun;                     /* what follows is known */
        Moment now;
        Unit *units[UNITS_MAX_LIMIT];   /* NULL: its part of the reply has been made, it is detached since */
        bool peers[UNITS_MAX_LIMIT];    /* whether the client may see them */
        Snapshot *snapshots;
        sd_json_variant *parts[UNITS_MAX_LIMIT]; /* NULL: not made yet, or it cannot be shown */
        size_t n, next;
} Many;

/* A subscriber of changes of thresholds. */
typedef struct Monitor {
        char **units;                   /* NULL: all that are attached */
        uint64_t seq;                   /* of the last event that was sent, or was none of these units' */
        uint64_t round;                 /* of the event loop, in which the socket was examined */
        uint64_t unread_since;          /* as in Stream; what comes meanwhile is sent later */
} Monitor;

/* Units that one connection may have a mark in. A mark takes 22 KiB, and a user may have a hundred
 * connections. */
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

        /* The one method that waits for polkit or PID 1: sd-varlink dispatches no other meanwhile */
        AttachOperation *attach;
        PolkitQuery *query;
        UnitQuery *unit_query;          /* it has failed, and why is to be found out */
        int (*go_on)(Connection *c);    /* when it is allowed */
        const char *action;             /* what polkit calls that */
        void (*drop)(Connection *c);    /* frees the state of the method; NULL: it has none */
        bool needs_attached;            /* it is about an attached unit */
        bool restricted;                /* the owner of a control group may not use all probes */
        uid_t owner_uid;                /* as in struct Hold */
        char *unit;
        char *threshold;                /* or the name of one */
        ProbeMask probes;
        ExcludeList excludes;
        bool lease;
        uint64_t duration_usec;

        Diagnosing *diagnosing;
        Diagnosing *begun;              /* between BeginDiagnosis() and Diagnose(); NULL: none */
        Listing *listing;
        Many *many;
        Inspecting *inspecting;
        Stream *stream;
        Monitor *monitor;
        Mark *marks[MARKS_MAX];         /* in no order; NULL: free */
};

struct VarlinkServer {
        Manager *manager;
        ManagerObserver observer;
        sd_varlink_server *server;
        VarlinkListener *listener, *root_listener; /* NULL: none */
        VarlinkIoSet io;
        Connection *connections;
        unsigned n_others;              /* of these that are not root's */
        Frame *frames[UNITS_MAX_LIMIT]; /* by the unit's index */
        Inspection inspections[UNITS_MAX_LIMIT][_INSPECTION_MAX]; /* by the same */
        MapExport *viewers;                /* users who were given maps */
        sd_event_source *monitors_timer; /* while one of them does not read what happens to thresholds */
        uint64_t refused_at;            /* CLOCK_MONOTONIC usec; 0: never */
};

typedef struct Parameters {
        const char *unit;
        const char *metric;
        const char *threshold;          /* or its name, or a condition */
        uint64_t window;                /* ABSENT: the default */
        uint64_t interval;
        uint64_t duration;
        uint64_t since, step;           /* ABSENT: the default */
        char **names;                   /* units, probes or metrics */
        char **excludes;
        sd_json_variant *normal;
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
/* Behind a failure of manager_get_unit(), whose error is e. */
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
/* The next reading of the user may begin. begun: the one that has ended had begun. */
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
/* Frees readings of the unit with this index that are no longer valid at that time, UINT64_MAX: all. Returns
 * whether some are left. */
bool inspections_forget(VarlinkServer *v, unsigned index, uint64_t now);
int connection_go_on_inspecting(Connection *c);
void connection_end_inspecting(Connection *c);
/* The unit is detached, with what the reading is made of. */
void connection_restart_inspecting(Connection *c);
int vl_method_threads(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
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
