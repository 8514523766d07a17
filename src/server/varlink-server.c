/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <linux/sockios.h>
#include <malloc.h>
#include <sys/ioctl.h>

#include "config-build.h"
#include "evidence.h"
#include "hierarchy.h"
#include "history.h"
#include "inspect-waits.h"
#include "json.h"
#include "log.h"
#include "metric.h"
#include "observer.h"
#include "peers.h"
#include "polkit.h"
#include "probe.h"
#include "threshold-monitor.h"
#include "varlink-io.h"
#include "varlink-org.qosd.QoS.h"
#include "varlink-server.h"
#include "window.h"
#include "xqos-loader.h"

#define INTERFACE "org.qosd.QoS"
#define LISTEN_PATH "/run/qosd/org.qosd.QoS"
#define POLKIT_ACTION_ATTACH "org.qosd1.attach"
#define POLKIT_ACTION_CONFIGURE "org.qosd1.configure"
#define POLKIT_ACTION_INSPECT "org.qosd1.inspect"

/* Connections of everybody together, and of root: more than a fleet of tools opens, less than the descriptors we have
 * (LimitNOFILE= in the unit). Others have ConnectionsPerUserMax=. */
#define CONNECTIONS_MAX 4096U

/* What a subscriber may leave unread before readings are skipped, some tens of them, or events are sent later. Behind it is the
 * socket's own buffer, and what the library queues is then at most one round. */
#define UNREAD_MAX (32 * 1024)

/* Streams of readings of one user other than root: as many as somebody looks at. */
#define STREAMS_PER_USER_MAX 8U

/* Units that one subscription may name. */
#define STREAM_UNITS_MAX UNITS_MAX_LIMIT

typedef struct Stream {
        char **units;                   /* NULL: all that are attached */
        uint64_t window;
        uint64_t interval_usec;
        sd_event_source *timer;
        uint64_t tick;                  /* of the round under way, CLOCK_MONOTONIC usec */
        unsigned next;                  /* slot of the unit to be sent next in it; 0: none is under way */
        uint64_t skipped, told;         /* … and of these that are told in this round */
        uint64_t unread_since;          /* CLOCK_MONOTONIC usec; 0: it reads */
} Stream;

/* What streams show of a unit at one tick, as far as it has been made. */
typedef struct Frame {
        uint64_t window;
        bool peers;
        uint64_t tick;                  /* CLOCK_MONOTONIC usec */
        VarlinkText *text;
        struct Frame *next;
} Frame;

/* How long units are read at a time for one list or stream, and how many of a list at most; others have their turn before it goes on. */
#define LIST_TURN_NSEC NSEC_PER_MSEC
#define LIST_TURN_UNITS 32U

/* What a list under way is made of. */
typedef enum ListingType {
        LISTING_UNITS,
        LISTING_THRESHOLDS,
        LISTING_MONITOR,                /* all thresholds in one reply, the first of Monitor() */
} ListingType;

/* A list of all units, or of their thresholds, under way. */
typedef struct Listing {
        ListingType type;
        uint64_t window;
        unsigned next;                  /* slot of the unit to be looked at */
        char *last;                     /* what is sent when it is known whether something follows; of LISTING_MONITOR all so far */
        size_t size;                    /* of all so far */

        /* Of LISTING_MONITOR */
        char **units;                   /* NULL: all */
        uint64_t since, lost;           /* the event whose successors are sent behind it */
} Listing;

/* A reading of several units under way. It takes up to 10 KiB for each unit, and what the reply is made of: each user but root has one at
 * a time, those of its other connections wait. */
typedef struct Many {
        char **names;
        uint64_t window;
        bool begun;                     /* what follows is known */
        Moment now;
        Unit *units[UNITS_MAX_LIMIT];   /* NULL: its part of the reply has been made, it is detached since */
        bool peers[UNITS_MAX_LIMIT];    /* whether who asks may know them */
        Snapshot *snapshots;
        sd_json_variant *parts[UNITS_MAX_LIMIT]; /* NULL: not made yet, or it cannot be shown */
        size_t n, next;
} Many;

/* Who wants to know when thresholds are crossed. */
typedef struct Monitor {
        char **units;                   /* NULL: all that are attached */
        uint64_t seq;                   /* of the last event that was sent, or was none of these units' */
        uint64_t round;                 /* of the event loop, by its clock, in which the socket was looked at */
        uint64_t unread_since;          /* as in Stream; what comes meanwhile is sent later */
} Monitor;

/* How often subscribers who do not read are looked at, while there are some. */
#define MONITORS_USEC (100 * USEC_PER_MSEC)

/* How often memory is given back to the system when connections end. */
#define TRIM_USEC USEC_PER_SEC

/* How often it is said that somebody has too many connections. */
#define REFUSED_USEC (60 * USEC_PER_SEC)

/* Units that one connection may have a mark in. A mark takes 22 KiB, and a user may have a hundred connections. */
#define MARKS_MAX 4U

/* Maps that are given to one user, root apart, in one run of qosd. Who has one keeps its memory (628 KiB) also when the unit is
 * detached, and could attach it again and again. */
#define VIEWS_PER_USER_MAX 64U

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

/* Diagnoses at a time: each reads the CPU time of all units at either end of its interval, which is some milliseconds. */
#define DIAGNOSES_MAX 16U
#define DIAGNOSES_PER_UID_MAX 4U

/* What a diagnosis takes its figures from. */
#define DIAGNOSE_PROBES (PROBE_REQUESTS | PROBE_CPU | PROBE_BLOCK | PROBE_MEMORY)

/* A diagnosis under way; the unit is leased with it as the key. */
typedef struct Diagnosing {
        uint64_t window;
        bool interactive;
        bool has_normal;
        DiagnosisFigures normal;
        sd_event_source *timer;         /* while the interval lasts */
        HostSample *begin;
} Diagnosing;

typedef struct Connection {
        VarlinkServer *server;
        sd_varlink *link;
        VarlinkIo *pump;
        uid_t uid;
        struct Connection *next;

        /* The one method that waits for polkit or PID 1: sd-varlink dispatches no other meanwhile */
        AttachOperation *attach;
        PolkitQuery *query;
        int (*go_on)(struct Connection *c); /* when it is allowed */
        const char *action;             /* what polkit calls that */
        bool needs_attached;            /* it is about an attached unit */
        uid_t owner_uid;                /* as in struct Hold */
        char *unit;
        char *threshold;                /* … or the name of one */
        ProbeMask probes;
        ExcludeList excludes;
        bool lease;
        uint64_t duration_usec;

        Diagnosing *diagnosing;
        Listing *listing;
        Many *many;
        Stream *stream;
        Monitor *monitor;
        Mark *marks[MARKS_MAX];         /* in no order; NULL: free */
} Connection;

struct VarlinkServer {
        Manager *manager;
        ManagerObserver observer;
        sd_varlink_server *server;
        VarlinkQueue *queue;
        Connection *connections;
        Frame *frames[UNITS_MAX_LIMIT]; /* by the unit's index */
        MapExport *viewers;                /* users who were given maps */
        sd_event_source *monitors_timer; /* while one of them does not read what happens to thresholds */
        sd_event_source *trim_timer;    /* enabled while a connection has ended since the last time */
        uint64_t trimmed_at;            /* CLOCK_MONOTONIC usec */
        uint64_t refused_at;            /* CLOCK_MONOTONIC usec; 0: never */
        uint64_t names_not_before;      /* CLOCK_MONOTONIC ns */
};

static Stream* stream_free(Stream *s) {
        if (!s)
                return NULL;

        sd_event_source_disable_unref(s->timer);
        strv_free(s->units);
        free(s);
        return NULL;
}

static Listing* listing_free(Listing *l) {
        if (!l)
                return NULL;

        strv_free(l->units);
        free(l->last);
        free(l);
        return NULL;
}

static Many* many_free(Many *m) {
        if (!m)
                return NULL;

        json_unref_all(m->parts, m->n);
        free(m->snapshots);
        strv_free(m->names);
        free(m);
        return NULL;
}

static Monitor* monitor_free(Monitor *m) {
        if (!m)
                return NULL;

        strv_free(m->units);
        free(m);
        return NULL;
}

/* ---- errors --------------------------------------------------------------------------------------------------- */

static int reply_error(sd_varlink *link, int error, const QosError *e) {
        _cleanup_free_ char *id = NULL;

        if (!e || e->code == QOS_ERROR_NONE)
                return sd_varlink_error_errno(link, error);

        if (asprintf(&id, INTERFACE ".%s", qos_error_name(e->code)) < 0)
                return -ENOMEM;

        if (streq(qos_error_field(e->code), "limit"))
                return sd_varlink_errorbo(link, id,
                                          SD_JSON_BUILD_PAIR_UNSIGNED("limit", strtoul(e->argument, NULL, 10)),
                                          SD_JSON_BUILD_PAIR_STRING("message", e->message));

        return sd_varlink_errorbo(link, id,
                                  SD_JSON_BUILD_PAIR_STRING(qos_error_field(e->code), e->argument),
                                  SD_JSON_BUILD_PAIR_STRING("message", e->message));
}

static int reply_not_measured(sd_varlink *link, const char *metric) {
        return sd_varlink_errorbo(link, INTERFACE ".NotMeasured",
                                  SD_JSON_BUILD_PAIR_STRING("metric", metric),
                                  SD_JSON_BUILD_PAIR_STRING("message", "there is no reading of it now, 'qosctl status' and 'qosctl probes' say why"));
}

/* ---- parameters that several methods have --------------------------------------------------------------------- */

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
        bool lease, interactive, since_mark;
} Parameters;

static void parameters_done(Parameters *p) {
        strv_free(p->names);
        strv_free(p->excludes);
}
#define _cleanup_parameters_ _cleanup_(parameters_done)
#define PARAMETERS_INIT { .window = ABSENT, .interval = NSEC_PER_SEC, .duration = ABSENT, .since = ABSENT, .step = ABSENT }

/* null is as good as nothing, which the library's own do not know */
static int dispatch_bool(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags, void *userdata) {
        return sd_json_variant_is_null(v) ? 0 : sd_json_dispatch_stdbool(name, v, flags, userdata);
}

static int dispatch_number(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags, void *userdata) {
        uint64_t n;
        int r;

        if (sd_json_variant_is_null(v))
                return 0;

        r = sd_json_dispatch_uint64(name, v, flags, &n);
        if (r < 0)
                return r;
        if (n == ABSENT) /* which stands for "not given" */
                return -ERANGE;

        *(uint64_t*) userdata = n;
        return 0;
}

/* 1: an error was sent. */
static int parameters_check_window(Manager *m, sd_varlink *link, Parameters *p) {
        if (p->window == ABSENT)
                p->window = m->config.default_window_nsec;
        if (!window_is_valid(p->window)) {
                int r = sd_varlink_error_invalid_parameter_name(link, "window");

                return r < 0 ? r : 1;
        }
        return 0;
}

/* ---- Attach, Detach ------------------------------------------------------------------------------------------- */

static Diagnosing* diagnosing_free(Manager *m, Diagnosing *d) {
        if (!d)
                return NULL;

        sd_event_source_disable_unref(d->timer);
        machine_reading_free(d->begin);
        manager_release_lease(m, d);
        free(d);
        return NULL;
}

static void connection_forget_call(Connection *c) {
        c->attach = NULL;
        diagnosing_free(c->server->manager, TAKE_PTR(c->diagnosing));
        c->query = polkit_query_free(c->query);
        free(c->unit);
        c->unit = NULL;
        free(c->threshold);
        c->threshold = NULL;
}

static void on_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        const char *degraded;

        connection_forget_call(c);
        if (error < 0) {
                (void) reply_error(c->link, error, e);
                return;
        }

        degraded = unit_degraded_reason(u);
        (void) sd_varlink_replybo(c->link,
                                  SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                                  SD_JSON_BUILD_PAIR_CONDITION(!!degraded, "degraded", SD_JSON_BUILD_STRING(degraded)));
}

static int connection_attach(Connection *c) {
        _cleanup_free_ char *owner = NULL;
        AttachOperation *operation = NULL;
        pid_t pid = 0;

        (void) sd_varlink_get_peer_pid(c->link, &pid);
        if (c->lease && asprintf(&owner, "varlink, process %i", (int) pid) < 0)
                return -ENOMEM;

        AttachRequest request = {
                .name = c->unit,
                .probes = c->probes,
                .excludes = c->excludes,
                .type = c->lease ? HOLD_LEASE : HOLD_ADMINISTRATOR,
                .uid = c->uid,
                .owner_uid = c->owner_uid,
                .owner = owner,
                .lease_key = c->lease ? c : NULL,
                .duration_usec = c->duration_usec,
        };
        int r;

        r = manager_attach(c->server->manager, &request, on_attached, c, &operation);
        if (r < 0)
                return r;
        if (c->unit) /* the handler was not called yet */
                c->attach = operation;
        return 0;
}

static int connection_detach(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = manager_detach(c->server->manager, c->unit, c->lease ? c : NULL, c->owner_uid, &e);
        connection_forget_call(c);
        if (r < 0)
                return reply_error(c->link, r, &e);
        return sd_varlink_reply(c->link, NULL);
}

/* The owner of a control group attaches without polkit, but not with all probes. */
static bool connection_needs_more(Connection *c, QosError *e) {
        return c->go_on == connection_attach && manager_probes_are_restricted(c->server->manager, c->probes, e);
}

static int connection_deny(Connection *c, int result) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        bool owner = c->owner_uid != 0 && connection_needs_more(c, &e);

        connection_forget_call(c);
        if (owner)
                return reply_error(c->link, -EACCES, &e);
        return sd_varlink_error(c->link,
                                result == POLKIT_NEEDS_INTERACTION ? SD_VARLINK_ERROR_INTERACTIVE_AUTHENTICATION_REQUIRED :
                                                                     SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);
}

static void on_authorized(int result, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        int r;

        c->query = NULL;
        if (result <= 0) {
                (void) connection_deny(c, result);
                return;
        }

        r = c->go_on(c);
        if (r < 0) /* without effect if that was the error that it has sent */
                (void) sd_varlink_error_errno(c->link, r);
}

static int connection_authorize(Connection *c, bool interactive) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Manager *m = c->server->manager;
        int r;

        c->owner_uid = manager_uid_owns(m, c->unit, c->uid) ? c->uid : 0;
        if (c->uid == 0 || (c->owner_uid != 0 && !connection_needs_more(c, NULL)))
                return c->go_on(c);

        /* Nobody types a password to be told of a typing error */
        if (!manager_get_unit(m, c->unit, &e) && (c->needs_attached || e.code == QOS_ERROR_INVALID_UNIT_NAME)) {
                connection_forget_call(c);
                return reply_error(c->link, -ENXIO, &e);
        }

        r = m->bus ? polkit_query_varlink(m->bus, c->link, c->action, interactive, on_authorized, c, &c->query) : -ENOTCONN;
        return r < 0 ? connection_deny(c, r) : 0;
}

/* 1: an error was sent. */
static int parse_probes(sd_varlink *link, char **names, ProbeMask *ret) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = probe_mask_parse(names, ret, &e);
        if (r >= 0)
                return 0;
        r = reply_error(link, r, &e);
        return r < 0 ? r : 1;
}

/* 1: an error was sent. */
static int parse_excludes(sd_varlink *link, char **words, ExcludeList *ret) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = exclude_list_parse(words, ret, &e);
        if (r >= 0)
                return 0;
        r = reply_error(link, r, &e);
        return r < 0 ? r : 1;
}

static int vl_method_attach(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string, offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "probes",                         SD_JSON_VARIANT_ARRAY,         sd_json_dispatch_strv,         offsetof(Parameters, names),       SD_JSON_NULLABLE  },
                { "exclude",                        SD_JSON_VARIANT_ARRAY,         sd_json_dispatch_strv,         offsetof(Parameters, excludes),    SD_JSON_NULLABLE  },
                { "lease",                          SD_JSON_VARIANT_BOOLEAN,       dispatch_bool,                 offsetof(Parameters, lease),       SD_JSON_NULLABLE  },
                { "duration",                       _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,               offsetof(Parameters, duration),    SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN,       dispatch_bool,                 offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        ProbeMask probes;
        int r;

        /* Nobody waits for the end of it, so another call could come in between */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (p.duration != ABSENT && (p.duration < NSEC_PER_USEC || p.lease))
                return sd_varlink_error_invalid_parameter_name(link, "duration");
        r = parse_probes(link, p.names, &probes);
        if (r != 0)
                return r;
        r = parse_excludes(link, p.excludes, &c->excludes);
        if (r != 0)
                return r;

        c->unit = strdup(p.unit);
        if (!c->unit)
                return -ENOMEM;
        c->go_on = connection_attach;
        c->action = POLKIT_ACTION_ATTACH;
        c->needs_attached = false;
        c->probes = probes;
        c->lease = p.lease;
        c->duration_usec = p.duration == ABSENT ? USEC_INFINITY : p.duration / NSEC_PER_USEC;
        return connection_authorize(c, p.interactive);
}

static int vl_method_detach(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string, offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "lease",                          SD_JSON_VARIANT_BOOLEAN, dispatch_bool,                 offsetof(Parameters, lease),       SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN, dispatch_bool,                 offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        /* Nobody waits for the end of it, so another call could come in between */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;

        c->unit = strdup(p.unit);
        if (!c->unit)
                return -ENOMEM;
        c->go_on = connection_detach;
        c->action = POLKIT_ACTION_ATTACH;
        c->needs_attached = true;
        c->lease = p.lease;

        /* One's own lease is one's own to give up */
        return c->lease ? connection_detach(c) : connection_authorize(c, p.interactive);
}

/* ---- Get, Mark, List, Histogram ------------------------------------------------------------------------------- */

/* Where the mark in the unit is, or one more could be (NULL). */
static Mark** connection_find_mark(Connection *c, const Unit *u) {
        for (unsigned i = 0; i < MARKS_MAX; i++)
                if ((c->marks[i] ? c->marks[i]->unit : NULL) == u)
                        return c->marks + i;
        return NULL;
}

/* With whom a unit talks is for root, and for whose control group it is. */
static bool connection_may_see_peers_of(const Connection *c, const char *unit) {
        return c->uid == 0 || manager_uid_owns_attached(c->server->manager, unit, c->uid);
}

static bool connection_may_see_peers(const Connection *c, const Unit *u) {
        return connection_may_see_peers_of(c, u->name);
}

/* What cannot be shown of one unit is no reason to show nothing of the others. */
static void log_unshowable(Unit *u, int error) {
        if (!u->unshown)
                log_unit_warning_errno(u->name, error, "'%s' cannot be shown, it is left out: %m", u->name);
        u->unshown = true;
}

/* Metrics that one call may name. */
#define VALUES_MAX 1024U

/* Metrics by name, each of the whole unit or of some of its endpoints or peers. */
typedef struct RequestedMetrics {
        char **names;
        const Metric **metrics;
        Selector *selectors;
        Row *rows;
        size_t n;
} RequestedMetrics;

static void values_done(RequestedMetrics *v) {
        free(v->metrics);
        free(v->selectors);
        free(v->rows);
}
#define _cleanup_values_ _cleanup_(values_done)

static int values_parse(RequestedMetrics *v, char **names, QosError *e) {
        static const Row measured[] = {
                { .kind = ROW_ENDPOINT, .measured = true },
                { .kind = ROW_PEER,     .measured = true },
        };
        int r;

        v->names = names;
        while (names[v->n])
                v->n++;
        v->metrics = new0(const Metric*, v->n);
        v->selectors = new0(Selector, v->n);
        v->rows = new0(Row, v->n);
        if (!v->metrics || !v->selectors || !v->rows)
                return -ENOMEM;

        for (size_t i = 0; i < v->n; i++) {
                char name[SELECTOR_METRIC_MAX];
                Metrics metrics;

                r = selector_parse(names[i], v->selectors + i, name);
                if (r == -EINVAL)
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, names[i], "'%.200s' does not say which endpoint or peer, expected in brackets "
                                             SELECTOR_EXPECTED, names[i]);
                if (r >= 0)
                        v->metrics[i] = metric_find(name);
                if (!v->metrics[i])
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, names[i], "there is no metric '%.200s', see 'qosctl list-metrics'", names[i]);
                if (v->selectors[i].type == SELECTOR_NONE)
                        continue;
                row_get_metrics(&measured[v->selectors[i].client], &metrics);
                if (!metric_is_present(v->metrics[i], &metrics))
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, names[i], "'%s' is only known of the whole unit, not of its endpoints", name);
        }
        return 0;
}

/* With whom the unit talks, and at which paths, may be asked by name, too. */
static bool values_are_private(const RequestedMetrics *v) {
        for (size_t i = 0; i < v->n; i++)
                if (selector_is_private(v->selectors + i))
                        return true;
        return false;
}

static int values_to_json(const RequestedMetrics *v, const Metrics *unit, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *object = NULL;
        int r;

        r = sd_json_variant_new_object(&object, NULL, 0);
        for (size_t i = 0; i < v->n && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *value = NULL;
                Metrics metrics;

                if (v->selectors[i].type != SELECTOR_NONE)
                        row_get_metrics(v->rows + i, &metrics);
                r = metric_to_json(v->metrics[i], v->selectors[i].type == SELECTOR_NONE ? unit : &metrics, &value);
                if (r > 0)
                        r = sd_json_variant_set_field(&object, v->names[i], value);
        }
        if (r < 0)
                return r;

        *ret = TAKE_PTR(object);
        return 0;
}

static int vl_method_get(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",      SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string, offsetof(Parameters, unit),       SD_JSON_MANDATORY },
                { "window",    _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,               offsetof(Parameters, window),     SD_JSON_NULLABLE  },
                { "sinceMark", SD_JSON_VARIANT_BOOLEAN,       dispatch_bool,                 offsetof(Parameters, since_mark), SD_JSON_NULLABLE  },
                { "metrics",   SD_JSON_VARIANT_ARRAY,         sd_json_dispatch_strv,         offsetof(Parameters, names),      SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *values_json = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        _cleanup_values_ RequestedMetrics values = {};
        size_t n_names = 0;
        Snapshot s;
        Unit *u;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (p.since_mark && p.window != ABSENT)
                return sd_varlink_error_invalid_parameter_name(link, "window");
        while (p.names && p.names[n_names])
                n_names++;
        if (n_names > VALUES_MAX)
                return sd_varlink_error_invalid_parameter_name(link, "metrics");
        r = parameters_check_window(c->server->manager, link, &p);
        if (r != 0)
                return r;

        u = manager_get_unit(c->server->manager, p.unit, &e);
        if (!u)
                return reply_error(link, -ENXIO, &e);

        if (p.names) {
                r = values_parse(&values, p.names, &e);
                if (r < 0)
                        return reply_error(link, r, &e);
                if (values_are_private(&values) && !connection_may_see_peers(c, u))
                        return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);
        }

        if (p.since_mark) {
                Mark **mark = connection_find_mark(c, u);

                if (!mark) {
                        r = qos_error_set(&e, QOS_ERROR_NOT_MARKED, u->name, "'%s' was not marked on this connection", u->name);
                        return reply_error(link, r, &e);
                }
                unit_get_snapshot_since(u, &(*mark)->mark, (*mark)->cost, &s);
        } else
                unit_get_selected(u, p.window, values.selectors, values.n, &s, values.rows);

        r = snapshot_to_json(u, &s, connection_may_see_peers(c, u), &v);
        if (r >= 0 && p.names) {
                r = values_to_json(&values, &s.metrics, &values_json);
                if (r >= 0)
                        r = sd_json_variant_set_field(&v, "values", values_json);
        }
        if (r < 0)
                return r;
        return sd_varlink_reply(link, v);
}

/* One of the units is made part of the reply. */
static void many_add(Many *m, size_t i) {
        int r;

        if (!m->units[i])
                return;
        r = snapshot_to_json(m->units[i], m->snapshots + i, m->peers[i], m->parts + i);
        if (r < 0)
                log_unshowable(m->units[i], r);
        m->units[i] = NULL;
}

static int connection_reply_many(Connection *c) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        Many *m = c->many;
        size_t n = 0;
        int r;

        for (size_t i = 0; i < m->n; i++)
                if (m->parts[i]) {
                        sd_json_variant *v = TAKE_PTR(m->parts[i]);

                        m->parts[n++] = v;
                }
        r = sd_json_variant_new_array(&array, m->parts, n);
        if (r < 0)
                return r;
        return sd_varlink_replybo(c->link,
                                  SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", m->now.realtime),
                                  SD_JSON_BUILD_PAIR_VARIANT("snapshots", array));
}

/* All are read at the same moment, in one go. 1: an error was sent. */
static int connection_read_many(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Many *m = c->many;
        int r;

        for (char **name = m->names; name && *name; name++) {
                Unit *u;

                if (m->n >= UNITS_MAX_LIMIT) {
                        r = sd_varlink_error_invalid_parameter_name(c->link, "units");
                        return r < 0 ? r : 1;
                }
                u = manager_get_unit(c->server->manager, *name, &e);
                if (!u) {
                        r = reply_error(c->link, -ENXIO, &e);
                        return r < 0 ? r : 1;
                }
                for (size_t i = 0; i < m->n; i++)
                        if (m->units[i] == u) {
                                r = qos_error_set(&e, QOS_ERROR_NAMED_TWICE, u->name, "'%s' is named more than once", u->name);
                                r = reply_error(c->link, r, &e);
                                return r < 0 ? r : 1;
                        }
                m->units[m->n++] = u;
        }

        m->snapshots = new0(Snapshot, m->n);
        if (!m->snapshots && m->n > 0)
                return -ENOMEM;
        m->now = (Moment) { .monotonic = now_nsec(CLOCK_MONOTONIC), .realtime = now_nsec(CLOCK_REALTIME) };
        for (size_t i = 0; i < m->n; i++) {
                unit_get_snapshot_at(m->units[i], &m->now, m->window, m->snapshots + i);
                m->peers[i] = connection_may_see_peers(c, m->units[i]);
        }
        return 0;
}

static bool server_has_many(const VarlinkServer *v, uid_t uid) {
        for (const Connection *c = v->connections; c; c = c->next)
                if (c->uid == uid && c->many && c->many->begun)
                        return true;
        return false;
}

static void connection_end_many(Connection *c);

/* Reads the units, and makes the reply at the next turns, some of them at a time. */
static int connection_go_on_many(Connection *c) {
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Many *m = c->many;
        unsigned n = 0;
        int r = 0;

        if (!m->begun) {
                if (c->uid != 0 && server_has_many(c->server, c->uid)) /* whose end it is told of */
                        return 0;
                m->begun = true;
                r = connection_read_many(c);
        }
        while (r == 0 && m->next < m->n) {
                if (n++ >= LIST_TURN_UNITS || now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->pump, /* when_written= */ false);
                        return 0;
                }
                many_add(m, m->next++);
        }
        if (r == 0)
                r = connection_reply_many(c);
        connection_end_many(c);
        return r < 0 ? sd_varlink_error_errno(c->link, r) : 0;
}

/* The next one of the user may begin. */
static void connection_end_many(Connection *c) {
        if (!c->many)
                return;

        c->many = many_free(c->many);
        for (Connection *i = c->server->connections; i && !server_has_many(c->server, c->uid); i = i->next)
                if (i->uid == c->uid && i->many && i->pump && varlink_io_want_turn(i->pump, /* when_written= */ false))
                        break;
}

static int vl_method_get_many(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "units",  SD_JSON_VARIANT_ARRAY,         sd_json_dispatch_strv, offsetof(Parameters, names),  SD_JSON_MANDATORY },
                { "window", _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,       offsetof(Parameters, window), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        /* Nobody waits for the end of it, so another call could come in between */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        r = parameters_check_window(c->server->manager, link, &p);
        if (r != 0)
                return r;

        c->many = new0(Many, 1);
        if (!c->many)
                return -ENOMEM;
        c->many->window = p.window;
        c->many->names = TAKE_PTR(p.names);
        return connection_go_on_many(c);
}

/* Notes that the user has the map of this unit. 0: it may not have one more. */
static int connection_count_view(Connection *c, Unit *u) {
        MapExport *v;

        if (c->uid == 0 || (u->given && u->given_uid == c->uid)) {
                if (!u->given)
                        u->given_uid = 0;
                return 1;
        }

        for (v = c->server->viewers; v; v = v->next)
                if (v->uid == c->uid)
                        break;
        if (!v) {
                v = new0(MapExport, 1);
                if (!v)
                        return -ENOMEM;
                v->uid = c->uid;
                v->next = c->server->viewers;
                c->server->viewers = v;
        }
        if (v->n >= VIEWS_PER_USER_MAX)
                return 0;
        v->n++;
        u->given_uid = c->uid;
        return 1;
}

static int vl_method_get_view(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, unit), SD_JSON_MANDATORY },
                {}
        };
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        const char *measured[QOS_DISTRIBUTIONS];
        Connection *c = ASSERT_PTR(userdata);
        Unit *u;
        int fd, r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        u = manager_get_unit(c->server->manager, p.unit, &e);
        if (!u)
                return reply_error(link, -ENXIO, &e);

        /* Addresses of peers are in the map, too */
        if (!connection_may_see_peers(c, u))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);

        fd = u->view ? probe_get_unit_fd(c->server->manager->probe, u->index) : -EOPNOTSUPP;
        if (fd < 0) {
                r = qos_error_set(&e, QOS_ERROR_NO_VIEW, u->name, "nothing can be read of '%s', 'qosctl probes' says why", u->name);
                return reply_error(link, r, &e);
        }
        if (!unit_is_whole(u)) {
                r = qos_error_set(&e, QOS_ERROR_NO_VIEW, u->name, "what is counted for '%s' is in several maps, as units lie or have lain in it", u->name);
                return reply_error(link, r, &e);
        }
        r = connection_count_view(c, u);
        if (r < 0)
                return r;
        if (r == 0) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", VIEWS_PER_USER_MAX);
                r = qos_error_set(&e, QOS_ERROR_TOO_MANY_VIEWS, limit, "user %u was given %s maps, more are not given", (unsigned) c->uid, limit);
                return reply_error(link, r, &e);
        }

        unit_get_measured(u, measured);
        r = sd_json_variant_new_array(&array, NULL, 0);
        for (enum qos_distribution d = 0; d < QOS_DISTRIBUTIONS && r >= 0; d++)
                if (measured[d])
                        r = sd_json_variant_append_arrayb(&array, SD_JSON_BUILD_STRING(measured[d]));
        if (r >= 0)
                r = sd_varlink_set_allow_fd_passing_output(link, true);
        if (r >= 0)
                r = sd_varlink_push_dup_fd(link, fd);
        if (r < 0)
                return r;
        u->given = true;
        return sd_varlink_replybo(link,
                                  SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                                  SD_JSON_BUILD_PAIR_INTEGER("map", r),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("layout", QOS_LAYOUT),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("since", u->attached_since_monotonic),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("minimumSamples", c->server->manager->config.minimum_samples),
                                  SD_JSON_BUILD_PAIR_VARIANT("measured", array));
}

static int vl_method_mark(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, unit), SD_JSON_MANDATORY },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        Mark **mark;
        Unit *u;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;

        u = manager_get_unit(c->server->manager, p.unit, &e);
        if (!u)
                return reply_error(link, -ENXIO, &e);

        mark = connection_find_mark(c, u) ?: connection_find_mark(c, NULL);
        if (!mark) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", MARKS_MAX);
                r = qos_error_set(&e, QOS_ERROR_TOO_MANY_MARKS, limit, "this connection has marks in %s units, more are not allowed", limit);
                return reply_error(link, r, &e);
        }
        if (!u->view) {
                r = qos_error_set(&e, QOS_ERROR_PROBE_UNAVAILABLE, probe_mask_name(0), "nothing can be measured of '%s' (%s)",
                                  u->name, unit_degraded_reason(u));
                return reply_error(link, r, &e);
        }

        if (!*mark) {
                *mark = new0(Mark, 1);
                if (!*mark)
                        return -ENOMEM;
                (*mark)->unit = u;
        }
        unit_mark(u, &(*mark)->mark, &(*mark)->cost);
        return sd_varlink_replybo(link, SD_JSON_BUILD_PAIR_STRING("unit", u->name));
}

/* Sends replies one by one, the last one as such. Consumes the variants. */
static int reply_many(sd_varlink *link, sd_json_variant **replies, size_t n) {
        int r = 0;

        if (n == 0)
                return sd_varlink_error(link, INTERFACE ".NothingToList", NULL);

        for (size_t i = 0; i < n && r >= 0; i++)
                r = i + 1 < n ? sd_varlink_notify(link, replies[i]) : sd_varlink_reply(link, replies[i]);
        json_unref_all(replies, n);
        return r;
}

/* names: NULL for all */
static bool names_have(char **names, const char *name) {
        for (char **i = names; i && *i; i++)
                if (streq(*i, name))
                        return true;
        return !names;
}

static int unit_thresholds_to_json(const Connection *c, const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        r = sd_json_variant_new_array(&array, NULL, 0);
        for (Threshold *a = threshold_next(u, NULL); a && r >= 0; a = threshold_next(u, a)) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                r = threshold_to_json(a, connection_may_see_peers(c, a->unit), /* account= */ false, &v);
                if (r >= 0)
                        r = sd_json_variant_append_array(&array, v);
        }
        if (r < 0)
                return r;

        *ret = TAKE_PTR(array);
        return 0;
}

/* What the list shows of one unit. */
static int unit_write_list_entry(Unit *u, const Connection *c, uint64_t window, JsonWriter *w) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *thresholds = NULL;
        const char *degraded = unit_degraded_reason(u);
        const Unit *outer = unit_find_ancestor(u);
        Snapshot s;
        int r;

        unit_get_snapshot(u, window, &s);
        if (threshold_next(u, NULL)) {
                r = unit_thresholds_to_json(c, u, &thresholds);
                if (r < 0)
                        return r;
        }

        json_writer_add_boolean(w, "attached", true);
        holds_write(u, now_usec(CLOCK_BOOTTIME), w);
        if (degraded)
                json_writer_add_string(w, "degraded", degraded);
        if (outer)
                json_writer_add_string(w, "partOf", outer->name);
        json_writer_open_array(w, "contains");
        for (unsigned i = 0; (i = unit_next_inner_slot(u, i)) < UNITS_MAX_LIMIT; i++)
                if (u->manager->units[i])
                        json_writer_add_string(w, NULL, u->manager->units[i]->name);
        json_writer_close_some(w);
        if (thresholds)
                json_writer_add_variant(w, "thresholds", thresholds);
        json_writer_open_object(w, "snapshot", strlen("snapshot"));
        snapshot_write(u, &s, connection_may_see_peers(c, u), w);
        json_writer_close(w);
        json_writer_add_string(w, "unit", u->name);
        return 0;
}

static int unit_to_list_entry(Unit *u, const Connection *c, uint64_t window, sd_json_variant **ret) {
        _cleanup_json_writer_ JsonWriter w;
        int r;

        json_writer_begin(&w, /* text= */ false);
        r = unit_write_list_entry(u, c, window, &w);
        return r < 0 ? r : json_writer_finish_variant(&w, ret);
}

static int unit_to_list_text(Unit *u, const Connection *c, uint64_t window, char **ret) {
        _cleanup_json_writer_ JsonWriter w;
        int r;

        json_writer_begin(&w, /* text= */ true);
        r = unit_write_list_entry(u, c, window, &w);
        return r < 0 ? r : json_writer_finish_text(&w, ret);
}

/* Sends a reply that is followed by more. */
static int connection_send_text(Connection *c, const char *parameters) {
        _cleanup_free_ char *message = NULL;
        VarlinkText *text;
        int r;

        if (asprintf(&message, "{\"parameters\":%s", parameters) < 0) {
                message = NULL;
                return -ENOMEM;
        }
        text = varlink_text_new(message);
        if (!text)
                return -ENOMEM;
        r = varlink_io_send(c->pump, text, ",\"continues\":true}");
        varlink_text_unref(text);
        return r;
}

/* The last reply is the library's, to which it is the end of the call. */
static int connection_end_listing(Connection *c) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Listing *l = c->listing;
        int r;

        if (l->last) {
                /* There seemed to be more, which is gone meanwhile, or cannot be shown */
                r = sd_json_parse(l->last, 0, &v, NULL, NULL);
                if (r < 0)
                        return r;
        }
        r = v ? sd_varlink_reply(c->link, v) : sd_varlink_error(c->link, INTERFACE ".NothingToList", NULL);
        c->listing = listing_free(l);
        return r;
}

static bool manager_has_units_from(const Manager *m, unsigned slot) {
        for (unsigned i = slot; i < UNITS_MAX_LIMIT; i++)
                if (m->units[i])
                        return true;
        return false;
}

/* Lists units until the time is over, and the rest at the next turns, when the client has taken these. */
static int connection_go_on_listing_units(Connection *c) {
        Manager *m = c->server->manager;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Listing *l = c->listing;
        unsigned n = 0;
        int r;

        while (l->next < UNITS_MAX_LIMIT) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *end = NULL;
                _cleanup_free_ char *text = NULL;
                Unit *u = m->units[l->next++];
                bool more;

                if (!u)
                        continue;
                more = manager_has_units_from(m, l->next);
                r = more ? unit_to_list_text(u, c, l->window, &text) : unit_to_list_entry(u, c, l->window, &end);
                if (r < 0) {
                        log_unshowable(u, r);
                        continue;
                }
                if (l->last) {
                        r = connection_send_text(c, l->last);
                        if (r < 0)
                                return r;
                        free(l->last);
                }
                l->last = TAKE_PTR(text);
                if (end) {
                        r = sd_varlink_reply(c->link, end);
                        c->listing = listing_free(l);
                        return r;
                }
                if (++n >= LIST_TURN_UNITS || now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->pump, /* when_written= */ true);
                        return 0;
                }
        }
        return connection_end_listing(c);
}

static int threshold_to_text(const Connection *c, const Threshold *a, bool reply, char **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *whole = NULL;
        int r;

        r = threshold_to_json(a, connection_may_see_peers(c, a->unit), /* account= */ reply, &v);
        if (r >= 0 && reply)
                r = sd_json_buildo(&whole, SD_JSON_BUILD_PAIR_VARIANT("threshold", v));
        return r < 0 ? r : sd_json_variant_format(reply ? whole : v, 0, ret);
}

/* Of one unit, which may have THRESHOLDS_PER_UNIT_MAX. */
static int connection_list_thresholds(Connection *c, const Unit *u) {
        Listing *l = c->listing;
        int r;

        for (Threshold *a = threshold_next(u, NULL); a; a = threshold_next(u, a)) {
                _cleanup_free_ char *text = NULL;

                r = threshold_to_text(c, a, l->type == LISTING_THRESHOLDS, &text);
                if (r < 0)
                        return r;
                if (l->type == LISTING_MONITOR) {
                        size_t size = strlen(text);
                        char *all;

                        all = realloc(l->last, l->size + size + 2);
                        if (!all)
                                return -ENOMEM;
                        l->last = all;
                        if (l->size > 0)
                                all[l->size++] = ',';
                        memcpy(all + l->size, text, size + 1);
                        l->size += size;
                        continue;
                }
                if (l->last) {
                        r = connection_send_text(c, l->last);
                        if (r < 0)
                                return r;
                        free(l->last);
                }
                l->last = TAKE_PTR(text);
        }
        return 0;
}

static int connection_begin_monitor(Connection *c);

/* Like units: the thresholds of as many units as there is time for. */
static int connection_go_on_listing(Connection *c) {
        Manager *m = c->server->manager;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Listing *l = c->listing;
        unsigned n = 0;
        int r;

        if (l->type == LISTING_UNITS)
                return connection_go_on_listing_units(c);

        while (l->next < UNITS_MAX_LIMIT) {
                const Unit *u = m->units[l->next++];

                if (!u || !threshold_next(u, NULL) || !names_have(l->units, u->name))
                        continue;
                r = connection_list_thresholds(c, u);
                if (r < 0)
                        return r;
                if (++n >= LIST_TURN_UNITS || now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->pump, /* when_written= */ true);
                        return 0;
                }
        }
        return l->type == LISTING_MONITOR ? connection_begin_monitor(c) : connection_end_listing(c);
}

static int vl_method_list(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",   SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string, offsetof(Parameters, unit),   SD_JSON_NULLABLE },
                { "window", _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,               offsetof(Parameters, window), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        r = parameters_check_window(c->server->manager, link, &p);
        if (r != 0)
                return r;

        if (p.unit) {
                Unit *u = manager_get_unit(c->server->manager, p.unit, &e);

                if (!u)
                        return reply_error(link, -ENXIO, &e);
                r = unit_to_list_entry(u, c, p.window, &v);
                return r < 0 ? r : sd_varlink_reply(link, v);
        }

        c->listing = new0(Listing, 1);
        if (!c->listing)
                return -ENOMEM;
        c->listing->window = p.window;
        r = connection_go_on_listing(c);
        if (r < 0)
                c->listing = listing_free(c->listing);
        return r;
}

static int vl_method_histogram(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",   SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string, offsetof(Parameters, unit),   SD_JSON_MANDATORY },
                { "metric", SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string, offsetof(Parameters, metric), SD_JSON_MANDATORY },
                { "window", _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,               offsetof(Parameters, window), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_histogram_ Histogram h = {};
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        char metric[SELECTOR_METRIC_MAX];
        Selector selector;
        Unit *u;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        r = parameters_check_window(c->server->manager, link, &p);
        if (r != 0)
                return r;

        u = manager_get_unit(c->server->manager, p.unit, &e);
        if (!u)
                return reply_error(link, -ENXIO, &e);

        /* The sum over all peers is for everybody, not one of them */
        if (selector_parse(p.metric, &selector, metric) >= 0 && selector_is_private(&selector) && !connection_may_see_peers(c, u))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);

        r = unit_get_histogram(u, p.metric, p.window, &h, &e);
        if (r == -ENODATA)
                return reply_not_measured(link, p.metric);
        if (r < 0)
                return reply_error(link, r, &e);

        r = histogram_to_json(u, p.metric, &h, &v);
        if (r < 0)
                return r;
        return sd_varlink_reply(link, v);
}

/* ---- Threads, Resources --------------------------------------------------------------------------------------- */

/* -ENODATA: the unit's threads are not watched. */
static int connection_read_threads(const Connection *c, Unit *u, sd_json_variant **ret) {
        _cleanup_threads_reading_ ThreadsReading reading = {};
        int r;

        r = unit_read_threads(u, &reading);
        return r < 0 ? r : threads_reading_to_json(&reading, ret);
}

/* Nobody else is served while names are looked for. Others than root get none for so many times as long as it took. */
#define NAMES_PAUSE 4U

/* Whether names may be looked for that began then. */
static bool connection_may_have_names(const Connection *c, uint64_t begin) {
        return c->uid == 0 || begin >= c->server->names_not_before;
}

static void connection_had_names(const Connection *c, uint64_t begin) {
        uint64_t end = now_nsec(CLOCK_MONOTONIC);

        c->server->names_not_before = end + (end - begin) * NAMES_PAUSE;
}

static int connection_read_resources(const Connection *c, Unit *u, sd_json_variant **ret) {
        _cleanup_resources_reading_ ResourcesReading reading = {};
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        bool names = connection_may_have_names(c, begin);
        int r;

        r = unit_read_resources(u, names, &reading);
        if (names)
                connection_had_names(c, begin);
        return r < 0 ? r : resources_reading_to_json(u, &reading, ret);
}

static int connection_inspect(Connection *c, const char *metric, int (*read)(const Connection *c, Unit *u, sd_json_variant **ret)) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Unit *u;
        int r;

        u = manager_get_unit(c->server->manager, c->unit, &e);
        connection_forget_call(c);
        if (!u)
                return reply_error(c->link, -ENXIO, &e);
        r = read(c, u, &v);
        if (r == -ENODATA)
                return reply_not_measured(c->link, metric);
        if (r < 0)
                return r;
        return sd_varlink_reply(c->link, v);
}

static int connection_show_threads(Connection *c) {
        return connection_inspect(c, "contention.threads", connection_read_threads);
}

static int connection_show_resources(Connection *c) {
        return connection_inspect(c, "contention.waits", connection_read_resources);
}

static int method_inspect(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, Connection *c, int (*go_on)(Connection *c)) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string, offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN, dispatch_bool,                 offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        int r;

        /* Nobody waits for the end of it, so another call could come in between */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        c->unit = strdup(p.unit);
        if (!c->unit)
                return -ENOMEM;
        c->go_on = go_on;
        c->action = POLKIT_ACTION_INSPECT;
        c->needs_attached = true;
        return connection_authorize(c, p.interactive);
}

static int vl_method_threads(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), connection_show_threads);
}

static int vl_method_resources(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        return method_inspect(link, parameters, flags, ASSERT_PTR(userdata), connection_show_resources);
}

/* ---- History -------------------------------------------------------------------------------------------------- */

/* Steps in one answer: as many as there are of 10 s, or of 5 min. */
#define HISTORY_STEPS_MAX MAX(HISTORY_FINE_STEPS, HISTORY_COARSE_STEPS)

typedef struct HistoryQuery {
        uint64_t since, step;
        unsigned minimum_samples;
        bool *metrics;                  /* of the catalogue, which are wanted */
        unsigned distributions;         /* bits by their number */

        sd_json_variant **steps;
        size_t n;
} HistoryQuery;

static void history_query_done(HistoryQuery *q) {
        json_unref_all(q->steps, q->n);
        free(q->steps);
        free(q->metrics);
}

static int history_query_add(const HistoryStep *s, void *userdata) {
        HistoryQuery *q = ASSERT_PTR(userdata);
        Metrics metrics;
        int r;

        if (s->timestamp + q->step <= q->since)
                return 0;

        history_step_get_metrics(s, q->minimum_samples, &metrics);
        for (size_t i = 0; i < metric_table_size; i++)
                if (!q->metrics[i])
                        metric_set_absent(metric_table + i, &metrics);

        if (q->n >= HISTORY_STEPS_MAX)
                return -E2BIG;
        r = history_step_to_json(s, &metrics, q->distributions, q->steps + q->n);
        if (r >= 0)
                q->n++;
        return r;
}

static bool is_distribution(const char *name) {
        for (size_t i = 0; i < metric_table_size; i++)
                if (streq_ptr(startswith(metric_table[i].name, name), ".max"))
                        return true;
        return false;
}

/* Of a distribution also the count, which tells what its figures are worth. */
static void history_query_want(HistoryQuery *q, const Metric *metric) {
        char name[SELECTOR_METRIC_MAX];
        int l = (int) (strrchr(metric->name, '.') - metric->name);

        q->metrics[metric - metric_table] = true;
        (void) snprintf(name, sizeof(name), "%.*s", l, metric->name);
        if (!is_distribution(name))
                return;
        (void) snprintf(name, sizeof(name), "%.*s.count", l, metric->name);
        q->metrics[metric_find(name) - metric_table] = true;
}

static int history_query_parse(HistoryQuery *q, char **names, QosError *e) {
        for (size_t i = 0; i < metric_table_size && !(names && *names); i++)
                q->metrics[i] = history_has_metric(metric_table + i);

        for (char **name = names; name && *name; name++) {
                const Metric *metric = metric_find(*name);
                int d = history_find_distribution(*name);
                char whole[SELECTOR_METRIC_MAX];
                Selector selector;

                if (d >= 0)
                        q->distributions |= 1U << d;
                else if (metric && history_has_metric(metric))
                        history_query_want(q, metric);
                else if (metric || is_distribution(*name) ||
                         (selector_parse(*name, &selector, whole) >= 0 && (metric_find(whole) || is_distribution(whole))))
                        return qos_error_set(e, QOS_ERROR_NO_HISTORY, *name, "no history is kept of '%s', only of counters, rates, latency and time to first byte, requests in flight "
                                             "and open connections of the whole unit, its shares and threads by state, and some of its waits", *name);
                else
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, *name, "there is no metric '%s', see 'qosctl list-metrics'", *name);
        }
        return 0;
}

static int vl_method_history(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",    SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string, offsetof(Parameters, unit),  SD_JSON_MANDATORY },
                { "metrics", SD_JSON_VARIANT_ARRAY,         sd_json_dispatch_strv,         offsetof(Parameters, names), SD_JSON_NULLABLE  },
                { "since",   _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,               offsetof(Parameters, since), SD_JSON_NULLABLE  },
                { "step",    _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,               offsetof(Parameters, step),  SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *steps = NULL;
        uint64_t now = now_usec(CLOCK_REALTIME) * NSEC_PER_USEC, kept = HISTORY_FINE_STEPS * HISTORY_FINE_NSEC;
        _cleanup_(history_query_done) HistoryQuery q = {};
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        HistoryLevel level;
        Unit *u;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;

        if (p.since == ABSENT)
                p.since = now - MIN(now, kept);
        if (p.since > now)
                return sd_varlink_error_invalid_parameter_name(link, "since");
        if (p.step == ABSENT)
                p.step = now - p.since <= kept ? HISTORY_FINE_NSEC : HISTORY_COARSE_NSEC;
        for (level = 0; level < _HISTORY_LEVEL_MAX; level++)
                if (history_level_nsec(level) == p.step)
                        break;
        if (level >= _HISTORY_LEVEL_MAX)
                return sd_varlink_error_invalid_parameter_name(link, "step");

        u = manager_get_unit(c->server->manager, p.unit, &e);
        if (!u)
                return reply_error(link, -ENXIO, &e);

        q = (HistoryQuery) {
                .since = p.since,
                .step = p.step,
                .minimum_samples = c->server->manager->config.minimum_samples,
                .metrics = new0(bool, metric_table_size),
                .steps = new0(sd_json_variant*, HISTORY_STEPS_MAX),
        };
        if (!q.metrics || !q.steps)
                return -ENOMEM;
        r = history_query_parse(&q, p.names, &e);
        if (r < 0)
                return reply_error(link, r, &e);

        r = unit_collect_history(u);
        if (r >= 0)
                r = history_foreach(u->history, level, history_query_add, &q);
        if (r >= 0)
                r = sd_json_variant_new_array(&steps, q.steps, q.n);
        if (r < 0)
                return r;

        return sd_varlink_replybo(link,
                                  SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("step", p.step),
                                  SD_JSON_BUILD_PAIR_VARIANT("steps", steps));
}

/* ---- Diagnose ------------------------------------------------------------------------------------------------- */

static int connection_reply_diagnosis(Connection *c) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Diagnosing *d = c->diagnosing;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        DiagnosisEvidence evidence;
        Diagnosis diagnosis;
        bool by_history, names;
        Baseline normal;
        Unit *u;
        int r;

        u = manager_get_unit(c->server->manager, c->unit, &e);
        if (!u)
                return reply_error(c->link, -ENXIO, &e);

        names = connection_may_have_names(c, begin);
        r = evidence_collect(u, d->begin, names, d->window, &evidence);
        if (names)
                connection_had_names(c, begin);
        if (r < 0)
                return r;
        by_history = !d->has_normal && unit_get_normal(u, now_nsec(CLOCK_MONOTONIC) - d->window, evidence.now.rate, &normal) >= 0;
        if (by_history)
                evidence.usual = normal.usual;
        evidence.normal = d->has_normal ? &d->normal : by_history ? &normal.figures : NULL;
        diagnosis_make(&evidence, &diagnosis);
        r = diagnosis_to_json(u, &evidence, by_history ? &normal : NULL, &diagnosis, &v);
        if (r < 0)
                return r;
        return sd_varlink_reply(c->link, v);
}

static int on_interval_over(sd_event_source *source, uint64_t usec, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        int r;

        r = connection_reply_diagnosis(c);
        if (r < 0) /* without effect if that was the error that it has sent */
                (void) sd_varlink_error_errno(c->link, r);
        connection_forget_call(c);
        return 0;
}

static void on_diagnosis_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        Diagnosing *d = ASSERT_PTR(c->diagnosing);
        int r;

        c->attach = NULL;
        if (error < 0) {
                (void) reply_error(c->link, error, e);
                connection_forget_call(c);
                return;
        }

        r = free_and_strdup(&c->unit, u->name); /* it may have been an alias */
        if (r >= 0)
                r = machine_reading_new(u, /* names= */ false, &d->begin);
        /* Not from when this iteration of the loop began: programs may have been loaded since, for a second or two */
        if (r >= 0)
                r = sd_event_add_time(m->event, &d->timer, CLOCK_MONOTONIC, now_usec(CLOCK_MONOTONIC) + d->window / NSEC_PER_USEC, 0, on_interval_over, c);
        if (r < 0) {
                (void) sd_varlink_error_errno(c->link, r);
                connection_forget_call(c);
        }
}

static int connection_diagnose_attach(Connection *c) {
        _cleanup_free_ char *owner = NULL;
        AttachOperation *operation = NULL;
        pid_t pid = 0;
        int r;

        (void) sd_varlink_get_peer_pid(c->link, &pid);
        if (asprintf(&owner, "varlink, process %i, a diagnosis", (int) pid) < 0)
                r = -ENOMEM;
        else {
                /* A client that may look at the unit, and not attach to it, keeps nothing loaded that others have attached */
                const bool all = c->owner_uid == 0 && c->go_on == connection_diagnose_attach;
                AttachRequest request = {
                        .name = c->unit,
                        .probes = all ? DIAGNOSE_PROBES : DIAGNOSE_PROBES & ~PROBES_MACHINE_WIDE,
                        .type = HOLD_LEASE,
                        .uid = c->uid,
                        .owner_uid = c->owner_uid,
                        .owner = owner,
                        .lease_key = c->diagnosing,
                        .duration_usec = USEC_INFINITY,
                };

                r = manager_attach(c->server->manager, &request, on_diagnosis_attached, c, &operation);
        }
        if (r < 0)
                connection_forget_call(c);
        else if (c->diagnosing && !c->diagnosing->timer) /* the handler was not called yet */
                c->attach = operation;
        return r;
}

/* Who may look at the unit may not therefore have programs loaded for it. */
static int connection_diagnose(Connection *c) {
        const Unit *u = manager_get_unit(c->server->manager, c->unit, NULL);

        if (u && (u->probes & DIAGNOSE_PROBES) == DIAGNOSE_PROBES)
                return connection_diagnose_attach(c);
        c->action = POLKIT_ACTION_ATTACH;
        c->go_on = connection_diagnose_attach;
        return connection_authorize(c, c->diagnosing->interactive);
}

static int vl_method_diagnose(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string, offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { "window",                         _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,               offsetof(Parameters, window),      SD_JSON_NULLABLE  },
                { "normal",                         SD_JSON_VARIANT_OBJECT,        sd_json_dispatch_variant_noref, offsetof(Parameters, normal),     SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN,       dispatch_bool,                 offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        unsigned n = 0, own = 0;
        int r;

        /* Nobody waits for the end of it, so another call could come in between */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        r = parameters_check_window(c->server->manager, link, &p);
        if (r != 0)
                return r;
        if (p.window < NSEC_PER_SEC) /* also since the attach: the machine was not looked at then */
                return sd_varlink_error_invalid_parameter_name(link, "window");

        for (Connection *i = c->server->connections; i; i = i->next)
                if (i->diagnosing) {
                        n++;
                        own += i->uid == c->uid;
                }
        /* Nobody can take them all from the administrator */
        if (c->uid == 0 ? own >= DIAGNOSES_MAX : n >= DIAGNOSES_MAX || own >= DIAGNOSES_PER_UID_MAX) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", c->uid != 0 && n < DIAGNOSES_MAX ? DIAGNOSES_PER_UID_MAX : DIAGNOSES_MAX);
                r = qos_error_set(&e, QOS_ERROR_TOO_MANY_DIAGNOSES, limit, "%s diagnoses are under way, more at a time are not made", limit);
                return reply_error(link, r, &e);
        }

        c->unit = strdup(p.unit);
        c->diagnosing = new0(Diagnosing, 1);
        if (!c->unit || !c->diagnosing) {
                connection_forget_call(c);
                return -ENOMEM;
        }
        c->diagnosing->window = p.window;
        c->diagnosing->interactive = p.interactive;
        if (p.normal && !sd_json_variant_is_null(p.normal)) {
                const char *bad;

                r = diagnosis_figures_from_json(p.normal, &c->diagnosing->normal, &bad);
                if (r < 0) {
                        connection_forget_call(c);
                        return sd_varlink_error_invalid_parameter_name(link, bad);
                }
                c->diagnosing->has_normal = true;
        }

        c->go_on = connection_diagnose;
        c->action = POLKIT_ACTION_INSPECT;
        c->needs_attached = false;
        r = connection_authorize(c, p.interactive);
        if (r < 0)
                connection_forget_call(c);
        return r;
}

/* ---- Subscribe ------------------------------------------------------------------------------------------------ */

/* Whether so much waits for the client that it does not need more. */
static bool connection_is_slow(Connection *c) {
        int fd, n;

        fd = sd_varlink_get_fd(c->link);
        return fd >= 0 && ioctl(fd, SIOCOUTQ, &n) >= 0 && n > UNREAD_MAX;
}

static void frames_forget(Frame **frames) {
        while (*frames) {
                Frame *f = *frames;

                *frames = f->next;
                varlink_text_unref(f->text);
                free(f);
        }
}

/* Reads and formats once for all streams that show the unit at this tick with the same window and permission. */
static int connection_get_frame(Connection *c, Unit *u, uint64_t tick, VarlinkText **ret) {
        Frame **frames = &c->server->frames[u->index], *f;
        _cleanup_free_ char *json = NULL, *text = NULL;
        bool peers = connection_may_see_peers(c, u);
        uint64_t window = c->stream->window;
        Snapshot s;
        int r;

        if (*frames && (*frames)->tick != tick)
                frames_forget(frames);
        for (f = *frames; f; f = f->next)
                if (f->window == window && f->peers == peers) {
                        *ret = f->text;
                        return 0;
                }

        unit_get_snapshot(u, window, &s);
        r = snapshot_to_text(u, &s, peers, &json);
        if (r < 0)
                return r;
        if (asprintf(&text, "{\"parameters\":{\"snapshot\":%s", json) < 0)
                return -ENOMEM;

        f = new0(Frame, 1);
        if (!f)
                return -ENOMEM;
        *f = (Frame) {
                .window = window,
                .peers = peers,
                .tick = tick,
                .text = varlink_text_new(text),
                .next = *frames,
        };
        if (!f->text) {
                free(f);
                return -ENOMEM;
        }
        *frames = f;
        *ret = f->text;
        return 0;
}

/* Sends units until the time is over, and the rest at the next turns. */
static int connection_send_round(Connection *c) {
        char end[64] = "},\"continues\":true}";
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Manager *m = c->server->manager;
        Stream *s = c->stream;

        if (s->next == 0)
                s->told = s->skipped;
        if (s->told > 0)
                (void) snprintf(end, sizeof(end), ",\"skipped\":%llu},\"continues\":true}", (unsigned long long) s->told);
        while (s->next < UNITS_MAX_LIMIT) {
                Unit *u = m->units[s->next++];
                VarlinkText *text;
                int r;

                if (!u || !names_have(s->units, u->name))
                        continue;

                r = connection_get_frame(c, u, s->tick, &text);
                if (r < 0) {
                        log_unshowable(u, r);
                        continue;
                }
                r = varlink_io_send(c->pump, text, end);
                if (r < 0)
                        return r;
                if (s->next < UNITS_MAX_LIMIT && now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->pump, /* when_written= */ false);
                        return 0;
                }
        }

        s->skipped -= s->told;
        s->next = 0;
        return 0;
}

static int on_stream_tick(sd_event_source *source, uint64_t usec, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        Stream *s = c->stream;

        /* At multiples of the interval: all that is shown at this second is one reading */
        (void) sd_event_source_set_time(source, (now_usec(CLOCK_MONOTONIC) / s->interval_usec + 1) * s->interval_usec);
        (void) sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);

        if (!varlink_io_want_turn(c->pump, /* when_written= */ false))
                s->skipped++;
        return 0;
}

static int on_turn(void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        Stream *s = c->stream;
        int r;

        if (c->listing)
                return connection_go_on_listing(c);
        if (c->many) {
                (void) connection_go_on_many(c); /* an error is sent, and is no reason to end the connection */
                return 0;
        }
        if (!s) /* it ended meanwhile */
                return 0;
        if (s->next > 0)
                return connection_send_round(c);
        if (connection_is_slow(c)) {
                s->skipped++;
                if (s->unread_since == 0)
                        s->unread_since = now;
                if (now > s->unread_since + SLOW_READER_USEC) {
                        log_notice("A subscriber of user %u has not read for %llu s, it is cut off.", (unsigned) c->uid,
                                   (unsigned long long) (SLOW_READER_USEC / USEC_PER_SEC));
                        return -ETIMEDOUT;
                }
                return 0;
        }
        s->unread_since = 0;

        s->tick = now / s->interval_usec * s->interval_usec;
        r = connection_send_round(c);
        if (r < 0)
                (void) log_debug_errno(r, "Failed to send to a subscriber, it is cut off: %m");
        return r;
}

/* NULL: none are named. 1: an error was sent. */
static int resolve_units(Manager *m, sd_varlink *link, char **names, char ***ret) {
        _cleanup_(strv_freep) char **units = NULL;
        size_t n = 0;
        int r;

        while (names && names[n])
                n++;
        if (n > STREAM_UNITS_MAX) {
                r = sd_varlink_error_invalid_parameter_name(link, "units");
                return r < 0 ? r : 1;
        }
        units = n > 0 ? new0(char*, n + 1) : NULL;
        if (n > 0 && !units)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
                Unit *u = manager_get_unit(m, names[i], &e);

                if (!u) {
                        r = reply_error(link, -ENXIO, &e);
                        return r < 0 ? r : 1;
                }
                units[i] = strdup(u->name);
                if (!units[i])
                        return -ENOMEM;
        }

        *ret = TAKE_PTR(units);
        return 0;
}

static int vl_method_subscribe(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "units",    SD_JSON_VARIANT_ARRAY,         sd_json_dispatch_strv,   offsetof(Parameters, names),    SD_JSON_NULLABLE },
                { "window",   _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,         offsetof(Parameters, window),   SD_JSON_NULLABLE },
                { "interval", _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,         offsetof(Parameters, interval), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        _cleanup_(strv_freep) char **units = NULL;
        Connection *c = ASSERT_PTR(userdata);
        Manager *m = c->server->manager;
        unsigned n = 0;
        uint64_t now;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        r = parameters_check_window(m, link, &p);
        if (r != 0)
                return r;
        if (p.interval < m->config.interval_min_usec * NSEC_PER_USEC || p.interval / NSEC_PER_USEC > 24 * 3600 * USEC_PER_SEC)
                return sd_varlink_error_invalid_parameter_name(link, "interval");

        r = resolve_units(m, link, p.names, &units);
        if (r != 0)
                return r < 0 ? r : 0;

        for (const Connection *i = c->server->connections; i; i = i->next)
                n += i->stream && i->uid == c->uid;
        if (c->uid != 0 && n >= STREAMS_PER_USER_MAX) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", STREAMS_PER_USER_MAX);
                r = qos_error_set(&e, QOS_ERROR_TOO_MANY_STREAMS, limit, "user %u has %s streams, more are not allowed", (unsigned) c->uid, limit);
                return reply_error(link, r, &e);
        }

        c->stream = new0(Stream, 1);
        if (!c->stream)
                return -ENOMEM;
        c->stream->window = p.window;
        c->stream->interval_usec = p.interval / NSEC_PER_USEC;
        c->stream->units = TAKE_PTR(units);

        c->stream->tick = now = now_usec(CLOCK_MONOTONIC);
        r = sd_event_add_time(m->event, &c->stream->timer, CLOCK_MONOTONIC,
                              (now / c->stream->interval_usec + 1) * c->stream->interval_usec, USEC_PER_MSEC, on_stream_tick, c);
        if (r >= 0)
                r = connection_send_round(c);
        if (r < 0)
                c->stream = stream_free(c->stream);
        return r;
}

static void on_unit_detaching(Unit *u, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);

        frames_forget(&v->frames[u->index]);
        for (Connection *c = v->connections; c; c = c->next) {
                char **units = c->stream ? c->stream->units : c->monitor ? c->monitor->units : NULL;
                Mark **mark = connection_find_mark(c, u);
                size_t n = 0;

                for (size_t i = 0; c->many && i < c->many->n; i++)
                        if (c->many->units[i] == u)
                                many_add(c->many, i);
                if (mark) {
                        free(*mark);
                        *mark = NULL;
                }

                if (!units)
                        continue;
                for (char **i = units; *i; i++)
                        if (streq(*i, u->name))
                                free(*i);
                        else
                                units[n++] = *i;
                units[n] = NULL;

                if (n == 0) {
                        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
                        int r = qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, u->name, "'%s' is no longer attached", u->name);

                        c->stream = stream_free(c->stream);
                        c->monitor = monitor_free(c->monitor);
                        (void) reply_error(c->link, r, &e);
                }
        }
}

/* ---- thresholds ----------------------------------------------------------------------------------------------- */

static int connection_set_threshold(Connection *c) {
        ThresholdRequest request = {
                .unit = c->unit,
                .threshold = c->threshold,
                .source = c->lease ? THRESHOLD_SOURCE_LEASE : THRESHOLD_SOURCE_ADMINISTRATOR,
                .uid = c->uid,
                .owner_uid = c->owner_uid,
                .lease_key = c->lease ? c : NULL,
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *whole = NULL;
        Threshold *a;
        int r;

        r = threshold_set(c->server->manager, &request, &a, &e);
        connection_forget_call(c);
        if (r < 0)
                return reply_error(c->link, r, &e);
        r = threshold_rule_format(&a->rule, /* named= */ true, &whole);
        if (r < 0)
                return r;
        return sd_varlink_replybo(c->link,
                                  SD_JSON_BUILD_PAIR_STRING("unit", a->unit->name),
                                  SD_JSON_BUILD_PAIR_STRING("threshold", whole));
}

static int connection_clear_threshold(Connection *c) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        r = threshold_clear(c->server->manager, c->unit, c->threshold, c->lease ? c : NULL, c->owner_uid,
                &e);
        connection_forget_call(c);
        if (r < 0)
                return reply_error(c->link, r, &e);
        return sd_varlink_reply(c->link, NULL);
}

static int method_change_threshold(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, Connection *c, bool set) {
        const sd_json_dispatch_field table[] = {
                { "unit",                           SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string, offsetof(Parameters, unit),        SD_JSON_MANDATORY },
                { set ? "threshold" : "name",       SD_JSON_VARIANT_STRING,  sd_json_dispatch_const_string, offsetof(Parameters, threshold),   SD_JSON_MANDATORY },
                { "lease",                          SD_JSON_VARIANT_BOOLEAN, dispatch_bool,                 offsetof(Parameters, lease),       SD_JSON_NULLABLE  },
                { "allowInteractiveAuthentication", SD_JSON_VARIANT_BOOLEAN, dispatch_bool,                 offsetof(Parameters, interactive), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Manager *m = c->server->manager;
        ThresholdRule rule;
        int r;

        /* Nobody waits for the end of it, so another call could come in between */
        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        /* Before anybody is asked for a password */
        if (set) {
                r = threshold_rule_parse(p.threshold, m->config.default_window_nsec, &rule, &e);
                if (r < 0)
                        return reply_error(link, r, &e);
        }

        c->unit = strdup(p.unit);
        c->threshold = strdup(p.threshold);
        if (!c->unit || !c->threshold) {
                connection_forget_call(c);
                return -ENOMEM;
        }
        c->go_on = set ? connection_set_threshold : connection_clear_threshold;
        c->action = POLKIT_ACTION_CONFIGURE;
        c->needs_attached = true;
        c->lease = p.lease;
        /* One's own lease is one's own to give up */
        return !set && c->lease ? c->go_on(c) : connection_authorize(c, p.interactive);
}

static int vl_method_set_threshold(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        return method_change_threshold(link, parameters, flags, ASSERT_PTR(userdata), true);
}

static int vl_method_clear_threshold(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        return method_change_threshold(link, parameters, flags, ASSERT_PTR(userdata), false);
}

static int vl_method_list_thresholds(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, unit), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        Unit *only = NULL;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        if (p.unit) {
                only = manager_get_unit(c->server->manager, p.unit, &e);
                if (!only)
                        return reply_error(link, -ENXIO, &e);
        }

        c->listing = new0(Listing, 1);
        if (!c->listing)
                return -ENOMEM;
        c->listing->type = LISTING_THRESHOLDS;
        if (only) {
                r = connection_list_thresholds(c, only);
                if (r >= 0)
                        r = connection_end_listing(c);
        } else
                r = connection_go_on_listing(c);
        if (r < 0)
                c->listing = listing_free(c->listing);
        return r;
}

static int connection_send_event(const ThresholdEvent *e, void *userdata) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        if (names_have(c->monitor->units, e->unit)) {
                r = threshold_event_to_json(e, connection_may_see_peers_of(c, e->unit), &v);
                if (r >= 0)
                        r = sd_varlink_notifybo(c->link, SD_JSON_BUILD_PAIR_VARIANT("event", v));
                if (r < 0)
                        return r;
        }
        c->monitor->seq = e->seq;
        return 0;
}

/* Who does not read learns of it when it does, and no more than is on its way already is kept for it. */
static void connection_end_monitor(Connection *c) {
        uint64_t seq = c->monitor->seq;

        c->monitor = monitor_free(c->monitor);
        log_notice("A subscriber of user %u to thresholds does not read, it gets no more.", (unsigned) c->uid);
        (void) sd_varlink_errorbo(c->link, INTERFACE ".TooSlow",
                                  SD_JSON_BUILD_PAIR_UNSIGNED("seq", seq),
                                  SD_JSON_BUILD_PAIR_STRING("message", "events were not fetched, no more are sent"));
}

/* Sends what the subscriber has missed, and false: it is gone from the log. */
static bool connection_resume(Connection *c) {
        Manager *m = c->server->manager;

        c->monitor->unread_since = 0;
        return threshold_monitor_count_lost(m, c->monitor->seq) == 0 && threshold_monitor_foreach_event(m, c->monitor->seq, connection_send_event, c) >= 0;
}

static void monitors_arm(VarlinkServer *v, uint64_t now) {
        bool any = false;

        for (Connection *c = v->connections; c; c = c->next)
                any = any || (c->monitor && c->monitor->unread_since != 0);
        if (any)
                (void) sd_event_source_set_time(v->monitors_timer, now + MONITORS_USEC);
        (void) sd_event_source_set_enabled(v->monitors_timer, any ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static int on_monitors(sd_event_source *source, uint64_t usec, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC) / NSEC_PER_USEC;
        VarlinkServer *v = ASSERT_PTR(userdata);

        for (Connection *c = v->connections; c; c = c->next) {
                if (!c->monitor || c->monitor->unread_since == 0)
                        continue;
                if (connection_is_slow(c) ? now > c->monitor->unread_since + SLOW_READER_USEC || threshold_monitor_count_lost(v->manager, c->monitor->seq) > 0 :
                                              !connection_resume(c))
                        connection_end_monitor(c);
        }
        monitors_arm(v, now);
        return 0;
}

/* No connection ends within. */
static void on_threshold_event(Unit *u, const ThresholdEvent *e, void *userdata) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC) / NSEC_PER_USEC, round = now;
        VarlinkServer *v = ASSERT_PTR(userdata);

        (void) sd_event_now(v->manager->event, CLOCK_MONOTONIC, &round);
        for (Connection *c = v->connections; c; c = c->next) {
                if (!c->monitor || c->monitor->unread_since != 0)
                        continue;
                if (!names_have(c->monitor->units, e->unit)) {
                        c->monitor->seq = e->seq;
                        continue;
                }
                /* Once a round: all units may cross their thresholds at once, and who reads has no chance to in between */
                if (c->monitor->round != round && connection_is_slow(c)) {
                        c->monitor->unread_since = now;
                        monitors_arm(v, now);
                        continue;
                }
                c->monitor->round = round;
                if (connection_send_event(e, c) < 0)
                        connection_end_monitor(c);
        }
}

/* What there is to be said leaves now, and not when the loop comes to it: of messages on the bus that is so anyway. */
static void on_unit_evaluated(Unit *u, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);

        for (Connection *c = v->connections, *next; c; c = next) {
                next = c->next; /* it may end */
                if (c->pump)
                        varlink_io_flush(c->pump);
        }
}

/* The events that have come while the thresholds were listed follow them. */
static int connection_begin_monitor(Connection *c) {
        _cleanup_free_ char *lost = NULL, *reply = NULL;
        Listing *l = c->listing;
        int r;

        if (l->lost > 0 && asprintf(&lost, ",\"lost\":%" PRIu64, l->lost) < 0) {
                lost = NULL;
                return -ENOMEM;
        }
        if (asprintf(&reply, "{\"seq\":%" PRIu64 ",\"thresholds\":[%s]%s}", l->since, strempty(l->last), strempty(lost)) < 0) {
                reply = NULL;
                return -ENOMEM;
        }
        r = connection_send_text(c, reply);
        if (r < 0)
                return r;

        c->monitor = new0(Monitor, 1);
        if (!c->monitor)
                return -ENOMEM;
        c->monitor->units = TAKE_PTR(l->units);
        c->monitor->seq = l->since;
        c->listing = listing_free(l);
        if (!connection_resume(c))
                connection_end_monitor(c);
        return 0;
}

static int vl_method_monitor(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "units", SD_JSON_VARIANT_ARRAY,         sd_json_dispatch_strv, offsetof(Parameters, names), SD_JSON_NULLABLE },
                { "since", _SD_JSON_VARIANT_TYPE_INVALID, dispatch_number,       offsetof(Parameters, since), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        _cleanup_(strv_freep) char **units = NULL;
        Connection *c = ASSERT_PTR(userdata);
        Manager *m = c->server->manager;
        uint64_t seq = threshold_monitor_get_seq(m), lost = 0;
        bool resume;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        r = resolve_units(m, link, p.names, &units);
        if (r != 0)
                return r < 0 ? r : 0;

        resume = p.since != ABSENT && p.since >= threshold_monitor_get_seq_begin(m) && p.since <= seq;
        if (resume)
                lost = threshold_monitor_count_lost(m, p.since);
        if (!resume || lost > 0) {
                c->listing = new0(Listing, 1);
                if (!c->listing)
                        return -ENOMEM;
                *c->listing = (Listing) {
                        .type = LISTING_MONITOR,
                        .units = TAKE_PTR(units),
                        .since = seq,
                        .lost = lost,
                };
                r = connection_go_on_listing(c);
                if (r < 0)
                        c->listing = listing_free(c->listing);
                return r;
        }
        r = sd_varlink_notifybo(link, SD_JSON_BUILD_PAIR_UNSIGNED("seq", seq));
        if (r < 0)
                return r;

        c->monitor = new0(Monitor, 1);
        if (!c->monitor)
                return -ENOMEM;
        c->monitor->units = TAKE_PTR(units);
        c->monitor->seq = seq;
        r = threshold_monitor_foreach_event(m, p.since, connection_send_event, c);
        if (r < 0)
                c->monitor = monitor_free(c->monitor);
        return r;
}

static void on_condition(const Threshold *a, const QosError *e, void *userdata) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *value = NULL;
        Connection *c = ASSERT_PTR(userdata);

        if (e)
                (void) reply_error(c->link, -ENXIO, e);
        else if (threshold_value_to_json(a->rule.metric, a->value, &value) >= 0)
                (void) sd_varlink_replybo(c->link,
                                          SD_JSON_BUILD_PAIR_STRING("unit", a->unit->name),
                                          SD_JSON_BUILD_PAIR_VARIANT("value", value));
}

static int vl_method_wait(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",      SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, unit),      SD_JSON_MANDATORY },
                { "condition", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, threshold), SD_JSON_MANDATORY },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        ThresholdRequest request;
        ThresholdRule rule;
        Unit *u;
        int r;

        if (flags & SD_VARLINK_METHOD_ONEWAY)
                return -EOPNOTSUPP;
        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        /* Whom a unit asks, and at which paths it is asked, is not for everybody */
        u = manager_get_unit(c->server->manager, p.unit, NULL);
        if (u && threshold_rule_parse_condition(p.threshold, c->server->manager->config.default_window_nsec, &rule, NULL) >= 0 &&
            !threshold_rule_is_for_all(&rule) && !connection_may_see_peers(c, u))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);
        request = (ThresholdRequest) {
                .unit = p.unit,
                .threshold = p.threshold,
                .source = THRESHOLD_SOURCE_CONDITION,
                .uid = c->uid,
                .lease_key = c,
                .handler = on_condition,
                .userdata = c,
        };
        r = threshold_set(c->server->manager, &request, NULL, &e);
        return r < 0 ? reply_error(link, r, &e) : 0;
}

/* ---- ListMetrics, Probes, GetStatus --------------------------------------------------------------------------- */

static int dispatch_none(sd_varlink *link, sd_json_variant *parameters) {
        static const sd_json_dispatch_field table[] = { {} }; /* NULL is refused by 257 */

        return sd_varlink_dispatch(link, parameters, table, NULL);
}

static int vl_method_list_metrics(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        _cleanup_free_ sd_json_variant **replies = NULL;
        int r;

        r = dispatch_none(link, parameters);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);

        replies = new0(sd_json_variant*, metric_table_size);
        if (!replies)
                return -ENOMEM;
        for (size_t i = 0; i < metric_table_size; i++) {
                const Metric *metric = metric_table + i;

                r = sd_json_buildo(replies + i,
                                   SD_JSON_BUILD_PAIR_STRING("name", metric->name),
                                   SD_JSON_BUILD_PAIR_STRING("kind", metric->kind == METRIC_COUNTER ? "counter" : "gauge"),
                                   SD_JSON_BUILD_PAIR_STRING("unit", metric->unit),
                                   SD_JSON_BUILD_PAIR_STRING("probe", metric->probe),
                                   SD_JSON_BUILD_PAIR_STRING("description", metric->description));
                if (r < 0) {
                        json_unref_all(replies, i);
                        return r;
                }
        }
        return reply_many(link, replies, metric_table_size);
}

static int vl_method_probes(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        _cleanup_probes_info_ ProbesInfo info = {};
        _cleanup_free_ sd_json_variant **replies = NULL;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        r = dispatch_none(link, parameters);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);

        r = manager_get_probes(c->server->manager, &info);
        if (r < 0)
                return r;
        replies = new0(sd_json_variant*, info.n_programs);
        if (!replies)
                return -ENOMEM;
        for (size_t i = 0; i < info.n_programs; i++) {
                const ProgramInfo *p = info.programs + i;

                r = sd_json_buildo(replies + i,
                                   SD_JSON_BUILD_PAIR_STRING("program", p->name),
                                   SD_JSON_BUILD_PAIR_STRING("probe", p->probe),
                                   SD_JSON_BUILD_PAIR_STRING("hook", p->hook),
                                   SD_JSON_BUILD_PAIR_STRING("provides", p->provides),
                                   SD_JSON_BUILD_PAIR_STRING("state", program_state_to_string(p->state)),
                                   SD_JSON_BUILD_PAIR_CONDITION(!!p->reason, "reason", SD_JSON_BUILD_STRING(p->reason)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->runs != ABSENT, "runs", SD_JSON_BUILD_UNSIGNED(p->runs)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->run_nsec != ABSENT, "runTime", SD_JSON_BUILD_UNSIGNED(p->run_nsec)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->runs != ABSENT && p->runs > 0, "runTimeMean",
                                                                SD_JSON_BUILD_UNSIGNED(p->runs != ABSENT && p->runs > 0 ? p->run_nsec / p->runs : 0)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->recursion_misses != ABSENT, "recursionMisses", SD_JSON_BUILD_UNSIGNED(p->recursion_misses)));
                if (r < 0) {
                        json_unref_all(replies, i);
                        return r;
                }
        }
        return reply_many(link, replies, info.n_programs);
}

static int vl_method_get_status(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags, void *userdata) {
        _cleanup_probes_info_ ProbesInfo info = {};
        Connection *c = ASSERT_PTR(userdata);
        Manager *m = c->server->manager;
        uint64_t read;
        int r;

        r = dispatch_none(link, parameters);
        if (r != 0)
                return r;
        r = manager_get_probes(m, &info);
        if (r < 0)
                return r;

        read = xqos_loader_get_read(m->declared);
        return sd_varlink_replybo(link,
                                  SD_JSON_BUILD_PAIR_STRING("version", QOSD_VERSION),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("units", m->n_units),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("unitsMax", m->config.units_max),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("minimumSamples", m->config.minimum_samples),
                                  SD_JSON_BUILD_PAIR_CONDITION(read > 0, "filesRead", SD_JSON_BUILD_UNSIGNED(read)),
                                  SD_JSON_BUILD_PAIR_BOOLEAN("statisticsEnabled", info.statistics_enabled),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("mapMemory", info.map_memory),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("mapMemoryPerUnit", info.map_memory_per_unit),
                                  SD_JSON_BUILD_PAIR_CONDITION(info.memory_per_socket > 0, "memoryPerSocket", SD_JSON_BUILD_UNSIGNED(info.memory_per_socket)),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("drops", info.drops));
}

/* ---- connections ---------------------------------------------------------------------------------------------- */

static int on_trim(sd_event_source *source, uint64_t usec, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);
        bool streams = false;

        for (const Connection *c = v->connections; c; c = c->next)
                streams = streams || c->stream;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT && !streams; i++)
                frames_forget(&v->frames[i]);
        (void) malloc_trim(0);
        v->trimmed_at = now_usec(CLOCK_MONOTONIC);
        return 0;
}

/* The C library keeps what is free between what is not: all that replies have taken at once, of everybody. The first connection that
 * ends has it given back at once, so that no timer wakes up a daemon that has nothing to do; those that follow soon, together. */
static void server_trim(VarlinkServer *v) {
        int enabled;

        if (now_usec(CLOCK_MONOTONIC) >= v->trimmed_at + TRIM_USEC)
                (void) on_trim(v->trim_timer, 0, v);
        else if (sd_event_source_get_enabled(v->trim_timer, &enabled) >= 0 && enabled == SD_EVENT_OFF) {
                (void) sd_event_source_set_time(v->trim_timer, v->trimmed_at + TRIM_USEC);
                (void) sd_event_source_set_enabled(v->trim_timer, SD_EVENT_ONESHOT);
        }
}

static void connection_free(Connection *c) {
        VarlinkServer *v = c->server;

        for (Connection **p = &v->connections; *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        break;
                }

        attach_operation_cancel(c->attach);
        connection_forget_call(c);
        listing_free(c->listing);
        connection_end_many(c);
        stream_free(c->stream);
        monitor_free(c->monitor);
        for (unsigned i = 0; i < MARKS_MAX; i++)
                free(c->marks[i]);
        varlink_io_free(c->pump);
        manager_release_lease(v->manager, c);
        free(c);
        server_trim(v);
}

static int on_connect(sd_varlink_server *server, sd_varlink *link, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);
        unsigned n = 0, others = 0;
        Connection *c;
        bool full;
        uid_t uid;
        int r;

        r = sd_varlink_get_peer_uid(link, &uid);
        if (r < 0)
                return r;

        for (c = v->connections; c; c = c->next) {
                n += c->uid == uid;
                others += c->uid != 0;
        }
        full = others >= limit_for_unprivileged(sd_varlink_server_connections_max(v->server));
        if (uid != 0 && (full || n >= v->manager->config.connections_per_uid_max)) {
                uint64_t now = now_usec(CLOCK_MONOTONIC);

                if (v->refused_at == 0 || now >= v->refused_at + REFUSED_USEC) {
                        v->refused_at = now;
                        if (full)
                                log_notice("Others than root have %u connections, more are not accepted.", others);
                        else
                                log_notice("User %u has %u connections, more are not accepted (ConnectionsPerUserMax=).", (unsigned) uid, n);
                }
                return -EUSERS;
        }

        c = new0(Connection, 1);
        if (!c)
                return -ENOMEM;
        *c = (Connection) {
                .server = v,
                .link = link,
                .uid = uid,
                .next = v->connections,
        };
        v->connections = c;
        (void) sd_varlink_set_userdata(link, c);

        /* If it fails, the caller closes the link, and on_disconnect() does the rest */
        return varlink_io_new(v->queue, link, uid, on_turn, c, &c->pump);
}

static void on_disconnect(sd_varlink_server *server, sd_varlink *link, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);

        for (Connection *c = v->connections; c; c = c->next)
                if (c->link == link) {
                        connection_free(c);
                        break;
                }
}

int varlink_server_new_peer(Manager *m, VarlinkServer **ret) {
        VarlinkServer *v;
        int r;

        v = new0(VarlinkServer, 1);
        if (!v)
                return -ENOMEM;
        v->manager = m;
        v->observer = (ManagerObserver) {
                .unit_detaching = on_unit_detaching,
                .threshold_event = on_threshold_event,
                .unit_evaluated = on_unit_evaluated,
                .userdata = v,
        };

        r = varlink_queue_new(m->event, &v->queue);
        if (r >= 0)
                r = sd_varlink_server_new(&v->server, SD_VARLINK_SERVER_ACCOUNT_UID);
        if (r < 0)
                goto fail;
        (void) sd_varlink_server_set_userdata(v->server, v);

        r = sd_event_add_time(m->event, &v->monitors_timer, CLOCK_MONOTONIC, 0, 0, on_monitors, v);
        if (r >= 0)
                r = sd_event_source_set_enabled(v->monitors_timer, SD_EVENT_OFF);
        if (r >= 0)
                r = sd_event_add_time(m->event, &v->trim_timer, CLOCK_MONOTONIC, 0, 0, on_trim, v);
        if (r >= 0)
                r = sd_event_source_set_enabled(v->trim_timer, SD_EVENT_OFF);
        if (r < 0)
                goto fail;

        r = sd_varlink_server_set_info(v->server, "qosd", "qosd", QOSD_VERSION, NULL);
        if (r >= 0)
                r = sd_varlink_server_add_interface(v->server, &vl_interface_org_qosd_QoS);
        if (r >= 0)
                r = sd_varlink_server_bind_method_many(
                                v->server,
                                INTERFACE ".Attach",      vl_method_attach,
                                INTERFACE ".Detach",      vl_method_detach,
                                INTERFACE ".List",        vl_method_list,
                                INTERFACE ".Get",         vl_method_get,
                                INTERFACE ".GetMany",     vl_method_get_many,
                                INTERFACE ".GetView",     vl_method_get_view,
                                INTERFACE ".Mark",        vl_method_mark,
                                INTERFACE ".Histogram",   vl_method_histogram,
                                INTERFACE ".Threads",     vl_method_threads,
                                INTERFACE ".Resources",   vl_method_resources,
                                INTERFACE ".History",     vl_method_history,
                                INTERFACE ".Diagnose",    vl_method_diagnose,
                                INTERFACE ".Subscribe",   vl_method_subscribe,
                                INTERFACE ".SetThreshold", vl_method_set_threshold,
                                INTERFACE ".ClearThreshold", vl_method_clear_threshold,
                                INTERFACE ".ListThresholds", vl_method_list_thresholds,
                                INTERFACE ".Monitor",     vl_method_monitor,
                                INTERFACE ".Wait",        vl_method_wait,
                                INTERFACE ".ListMetrics", vl_method_list_metrics,
                                INTERFACE ".Probes",      vl_method_probes,
                                INTERFACE ".GetStatus",   vl_method_get_status);
        if (r >= 0)
                r = sd_varlink_server_bind_connect(v->server, on_connect);
        if (r >= 0)
                r = sd_varlink_server_bind_disconnect(v->server, on_disconnect);
        /* Less where there are fewer descriptors: the library stops to accept for good when they run out */
        if (r >= 0)
                r = sd_varlink_server_set_connections_max(v->server, MIN(CONNECTIONS_MAX, sd_varlink_server_connections_max(NULL)));
        if (r >= 0)
                r = sd_varlink_server_set_connections_per_uid_max(v->server, CONNECTIONS_MAX);
        if (r >= 0)
                r = sd_varlink_server_attach_event(v->server, m->event, SD_EVENT_PRIORITY_NORMAL);
        if (r < 0)
                goto fail;

        manager_add_observer(m, &v->observer);
        *ret = v;
        return 0;

fail:
        varlink_server_free(v);
        return r;
}

int varlink_server_new(Manager *m, VarlinkServer **ret) {
        VarlinkServer *v;
        int r;

        r = varlink_server_new_peer(m, &v);
        if (r < 0)
                return r;

        if (m->listen_fd >= 0) {
                r = sd_varlink_server_listen_fd(v->server, m->listen_fd);
                if (r >= 0)
                        TAKE_FD(m->listen_fd);
        } else
                r = sd_varlink_server_listen_address(v->server, LISTEN_PATH, 0666);
        if (r < 0) {
                varlink_server_free(v);
                return r;
        }

        *ret = v;
        return 0;
}

int varlink_server_add_connection(VarlinkServer *v, int fd) {
        sd_varlink *link;
        int r;

        r = sd_varlink_server_add_connection(v->server, fd, &link);
        if (r < 0)
                return r;

        /* The callback is for connections that were accepted */
        r = on_connect(v->server, link, v);
        if (r < 0)
                (void) sd_varlink_close(link);
        return r;
}

VarlinkServer* varlink_server_free(VarlinkServer *v) {
        if (!v)
                return NULL;

        if (v->server)
                (void) sd_varlink_server_shutdown(v->server);
        while (v->connections)
                (void) sd_varlink_close(v->connections->link); /* on_disconnect() frees it */
        manager_remove_observer(v->manager, &v->observer);
        sd_varlink_server_unref(v->server);
        varlink_queue_free(v->queue);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                frames_forget(&v->frames[i]);
        for (MapExport *i = v->viewers, *next; i; i = next) {
                next = i->next;
                free(i);
        }
        sd_event_source_disable_unref(v->monitors_timer);
        sd_event_source_disable_unref(v->trim_timer);
        free(v);
        return NULL;
}
