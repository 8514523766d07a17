/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Common parts of all methods: errors, parameters, authorization, and the connection itself. */

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "log.h"
#include "snapshot-json.h"
#include "varlink-connection.h"

/* Limit of unread data of a subscriber, some tens of readings, beyond which readings are skipped and events
 * are delayed. */
#define UNREAD_MAX (32 * 1024)

/* Limit of units of a subscription. */
#define STREAM_UNITS_MAX UNITS_MAX_LIMIT

/* ---- errors ------------------------------------------------------------------------------------------- */

int vl_reply_error(sd_varlink *link, int error, const QosError *e) {
        _cleanup_free_ char *id = NULL;

        if (!e || e->code == QOS_ERROR_NONE)
                return sd_varlink_error_errno(link, error);

        if (asprintf(&id, INTERFACE ".%s", qos_error_name(e->code)) < 0)
                return -ENOMEM;

        if (streq(qos_error_field(e->code), "limit"))
                return sd_varlink_errorbo(link, id,
                                          SD_JSON_BUILD_PAIR_UNSIGNED("limit",
                                                                      strtoul(e->argument, NULL, 10)),
                                          SD_JSON_BUILD_PAIR_STRING("message", e->message));

        return sd_varlink_errorbo(link, id,
                                  SD_JSON_BUILD_PAIR_STRING(qos_error_field(e->code), e->argument),
                                  SD_JSON_BUILD_PAIR_STRING("message", e->message));
}

int vl_reply_not_measured(sd_varlink *link, const char *metric) {
        return sd_varlink_errorbo(link, INTERFACE ".NotMeasured",
                                  SD_JSON_BUILD_PAIR_STRING("metric", metric),
                                  SD_JSON_BUILD_PAIR_STRING("message",
                                                            "there is no reading of it now, see "
                                                            "'qosctl status' and 'qosctl probes'"));
}

/* ---- parameters ------------------------------------------------------------- */

void parameters_done(Parameters *p) {
        strv_free(p->names);
        strv_free(p->excludes);
}

int vl_dispatch_none(sd_varlink *link, sd_json_variant *parameters) {
        static const sd_json_dispatch_field table[] = { {} }; /* systemd 257 does not accept NULL */

        return sd_varlink_dispatch(link, parameters, table, NULL);
}

/* null is the same as an absent parameter, other than in sd_json_dispatch_stdbool() */
int vl_dispatch_bool(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags, void *userdata) {
        return sd_json_variant_is_null(v) ? 0 : sd_json_dispatch_stdbool(name, v, flags, userdata);
}

/* As sd_json_dispatch_strv(), which takes 140 ms for a message of the maximum size, as its time is quadratic
 * in the number of elements. */
int vl_dispatch_strv(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags, void *userdata) {
        _cleanup_(strv_freep) char **l = NULL;
        char ***ret = ASSERT_PTR(userdata);
        size_t n;

        if (sd_json_variant_is_null(v))
                return 0;
        if (!sd_json_variant_is_array(v))
                return -EINVAL;
        n = sd_json_variant_elements(v);
        l = new0(char*, n + 1);
        if (!l)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                sd_json_variant *e = sd_json_variant_by_index(v, i);

                if (!sd_json_variant_is_string(e))
                        return -EINVAL;
                l[i] = strdup(sd_json_variant_string(e));
                if (!l[i])
                        return -ENOMEM;
        }

        strv_free(*ret);
        *ret = TAKE_PTR(l);
        return 0;
}

int vl_dispatch_number(const char *name, sd_json_variant *v, sd_json_dispatch_flags_t flags,
                       void *userdata) {
        uint64_t n;
        int r;

        if (sd_json_variant_is_null(v))
                return 0;

        r = sd_json_dispatch_uint64(name, v, flags, &n);
        if (r < 0)
                return r;
        if (n == ABSENT) /* reserved for absent parameters */
                return -ERANGE;

        *(uint64_t*) userdata = n;
        return 0;
}

/* 1: an error was sent. */
int parameters_check_window(Manager *m, sd_varlink *link, Parameters *p) {
        if (p->window == ABSENT)
                p->window = m->config.default_window_nsec;
        if (!window_is_valid(p->window)) {
                int r = sd_varlink_error_invalid_parameter_name(link, "window");

                return r < 0 ? r : 1;
        }
        return 0;
}

/* ---- Attach, Detach ----------------------------------------------------------------------------------- */

void connection_forget_call(Connection *c) {
        c->attach = NULL;
        if (c->drop)
                c->drop(c);
        c->drop = NULL;
        c->query = polkit_query_free(c->query);
        c->unit_query = unit_query_free(c->unit_query);
        free(c->unit);
        c->unit = NULL;
        free(c->threshold);
        c->threshold = NULL;
}

/* The owner of a control group needs no authorization by polkit, except for restricted probes. */
static bool connection_needs_more(Connection *c, QosError *e) {
        return c->restricted && manager_probes_are_restricted(c->server->manager, c->probes, e);
}

static int connection_deny(Connection *c, int result) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        bool owner = c->owner_uid != 0 && connection_needs_more(c, &e);

        connection_forget_call(c);
        if (owner)
                return vl_reply_error(c->link, -EACCES, &e);
        return sd_varlink_error(c->link,
                                result == POLKIT_NEEDS_INTERACTION ?
                                SD_VARLINK_ERROR_INTERACTIVE_AUTHENTICATION_REQUIRED :
                                SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);
}

static void on_authorized(int result, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        int r;

        c->query = NULL;
        if (result <= 0)
                (void) connection_deny(c, result);
        else {
                r = c->go_on(c);
                if (r < 0) /* without effect if an error was sent already */
                        (void) sd_varlink_error_errno(c->link, r);
        }
        varlink_io_touch(c->io);
}

int connection_authorize(Connection *c, bool interactive) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        Manager *m = c->server->manager;
        int r;

        c->owner_uid = manager_uid_owns(m, c->unit, c->uid) ? c->uid : 0;
        if (c->uid == 0 || (c->owner_uid != 0 && !connection_needs_more(c, NULL)))
                return c->go_on(c);

        /* Before the user is prompted for a password */
        if (!manager_get_unit(m, c->unit, &e) &&
            (c->needs_attached || e.code == QOS_ERROR_INVALID_UNIT_NAME)) {
                connection_forget_call(c);
                return vl_reply_error(c->link, -ENXIO, &e);
        }

        r = m->system_bus.bus ? polkit_query_varlink(&(PolkitRequest) {
                                                  .bus = m->system_bus.bus,
                                                  .action = c->action,
                                                  .interactive = interactive,
                                                  .handler = on_authorized,
                                                  .userdata = c,
                                          }, c->link, &c->query) : -ENOTCONN;
        return r < 0 ? connection_deny(c, r) : 0;
}

/* ---- Get, Mark, List, Histogram ----------------------------------------------------------------------- */

static void on_unit_queried(const QosError *e, void *userdata) {
        Connection *c = ASSERT_PTR(userdata);

        c->unit_query = NULL;
        (void) vl_reply_error(c->link, -ENXIO, e);
        varlink_io_touch(c->io);
}

int connection_reply_missing(Connection *c, sd_varlink_method_flags_t flags, const char *unit, QosError *e) {
        /* A one-way call has no reply to wait for: a later call could precede its end */
        if (!(flags & SD_VARLINK_METHOD_ONEWAY) &&
            unit_query_new(c->server->manager, unit, e, on_unit_queried, c, &c->unit_query) > 0)
                return 0;
        return vl_reply_error(c->link, -ENXIO, e);
}

/* Returns the slot of the unit's mark, or, for NULL, a free slot; NULL: none. */
Mark** connection_find_mark(Connection *c, const Unit *u) {
        for (unsigned i = 0; i < MARKS_MAX; i++)
                if ((c->marks[i] ? c->marks[i]->unit : NULL) == u)
                        return c->marks + i;
        return NULL;
}

/* Root and the owner of the control group may see peers of a unit. */
bool connection_may_see_peers_of(const Connection *c, const char *unit) {
        return c->uid == 0 || manager_uid_owns_attached(c->server->manager, unit, c->uid);
}

bool connection_may_see_peers(const Connection *c, const Unit *u) {
        return connection_may_see_peers_of(c, u->name);
}

/* Logs once why the unit is missing in lists. The others are listed nevertheless. */
void unit_log_unshowable(Unit *u, int error) {
        if (!u->unshown)
                log_unit_warning_errno(u->name, error, "Failed to read '%s', omitting it: %m", u->name);
        u->unshown = true;
}

/* Sends all replies, the last one without "continues". Consumes the variants. */
int vl_reply_many(sd_varlink *link, sd_json_variant **replies, size_t n) {
        int r = 0;

        if (n == 0)
                return sd_varlink_error(link, INTERFACE ".NoEntries", NULL);

        for (size_t i = 0; i < n && r >= 0; i++)
                r = i + 1 < n ? sd_varlink_notify(link, replies[i]) : sd_varlink_reply(link, replies[i]);
        json_unref_all(replies, n);
        return r;
}

/* names: NULL contains all */
bool strv_contains(char **names, const char *name) {
        for (char **i = names; i && *i; i++)
                if (streq(*i, name))
                        return true;
        return !names;
}

/* ---- Subscribe ---------------------------------------------------------------------------------------- */

/* Whether the client has more than UNREAD_MAX to read. */
bool connection_is_slow(Connection *c) {
        int fd, n;

        fd = sd_varlink_get_fd(c->link);
        return fd >= 0 && ioctl(fd, SIOCOUTQ, &n) >= 0 && n > UNREAD_MAX;
}

/* Returns the canonical names, or NULL if names is empty. 1: an error was sent. */
int connection_resolve_units(Manager *m, sd_varlink *link, char **names, char ***ret) {
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
                        r = vl_reply_error(link, -ENXIO, &e);
                        return r < 0 ? r : 1;
                }
                units[i] = strdup(u->name);
                if (!units[i])
                        return -ENOMEM;
        }

        *ret = TAKE_PTR(units);
        return 0;
}
