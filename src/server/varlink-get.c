/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Get, GetMany, GetView, Mark, Histogram */

#include "hierarchy.h"
#include "mounts.h"
#include "peers.h"
#include "probe.h"
#include "snapshot-json.h"
#include "unit-custom.h"
#include "varlink-connection.h"

/* Limit of maps that a user other than root may get while qosd runs. The client keeps the memory of a map
 * (628 KiB) allocated after the unit was detached. */
#define VIEWS_PER_USER_MAX 64U

static Many* many_free(Many *m) {
        if (!m)
                return NULL;

        json_unref_all(m->parts, m->n);
        free(m->snapshots);
        strv_free(m->names);
        free(m);
        return NULL;
}

/* Limit of metrics of a call. */
#define VALUES_MAX 1024U

/* Requested metrics, each of the whole unit, or of an endpoint, peer or file system. */
typedef struct RequestedMetrics {
        char **names;
        const Metric **metrics;
        Selector *selectors;
        Row *rows;
        size_t n;
} RequestedMetrics;

/* ---- methods ----------------------------------------------------------------------- */

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

                if (startswith(names[i], "custom.") && strchr(names[i], '['))
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, names[i],
                                             "'%.200s' names an entry of a custom metric, which only the "
                                             "history can show; 'custom.PROBE.METRIC' has all entries",
                                             names[i]);
                r = selector_parse(names[i], v->selectors + i, name);
                if (r == -EINVAL)
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, names[i],
                                             "'%.200s' does not say which part of the unit, expected in "
                                             "brackets "
                                             SELECTOR_EXPECTED, names[i]);
                if (r >= 0)
                        v->metrics[i] = metric_find(name);
                if (!v->metrics[i])
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, names[i],
                                             "there is no metric '%.200s', see 'qosctl list-metrics'",
                                             names[i]);
                if (v->selectors[i].type == SELECTOR_NONE)
                        continue;
                if (v->selectors[i].type == SELECTOR_MOUNT)
                        mount_get_metrics(&(Mount) {}, &metrics);
                else
                        row_get_metrics(&measured[v->selectors[i].client], &metrics);
                if (!metric_is_present(v->metrics[i], &metrics))
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_METRIC, names[i],
                                             "'%s' is only known of the whole unit, not of its %s",
                                             name, v->selectors[i].type == SELECTOR_MOUNT ?
                                             "file systems" : "endpoints");
        }
        return 0;
}

/* Whether metrics are requested that not all users may read: those of peers and paths. */
static bool values_are_private(const RequestedMetrics *v) {
        for (size_t i = 0; i < v->n; i++)
                if (selector_is_private(v->selectors + i))
                        return true;
        return false;
}

static int values_to_json(const RequestedMetrics *v, const Snapshot *unit, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *object = NULL;
        int r;

        r = sd_json_variant_new_object(&object, NULL, 0);
        for (size_t i = 0; i < v->n && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *value = NULL;
                Metrics metrics;

                if (v->selectors[i].type == SELECTOR_MOUNT)
                        mount_get_metrics(mounts_find(unit->mounts, unit->n_mounts, v->selectors + i),
                                          &metrics);
                else if (v->selectors[i].type != SELECTOR_NONE)
                        row_get_metrics(v->rows + i, &metrics);
                r = metric_to_json(v->metrics[i],
                                   v->selectors[i].type == SELECTOR_NONE ? &unit->metrics : &metrics,
                                   &value);
                if (r > 0)
                        r = sd_json_variant_set_field(&object, v->names[i], value);
        }
        if (r < 0)
                return r;

        *ret = TAKE_PTR(object);
        return 0;
}

int vl_method_get(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                  void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",      SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),       SD_JSON_MANDATORY },
                { "window",    _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, window),     SD_JSON_NULLABLE  },
                { "sinceMark", SD_JSON_VARIANT_BOOLEAN,       vl_dispatch_bool,
                  offsetof(Parameters, since_mark), SD_JSON_NULLABLE  },
                { "metrics",   SD_JSON_VARIANT_ARRAY,         vl_dispatch_strv,
                  offsetof(Parameters, names),      SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *values_json = NULL, *custom = NULL,
                                                                  *cost = NULL;
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        _cleanup_values_ RequestedMetrics values = {};
        size_t n_names = 0;
        UnitIdentity identity;
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
                return connection_reply_missing(c, flags, p.unit, &e);

        if (p.names) {
                r = values_parse(&values, p.names, &e);
                if (r < 0)
                        return vl_reply_error(link, r, &e);
                if (values_are_private(&values) && !connection_may_see_peers(c, u))
                        return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);
        }

        if (p.since_mark) {
                Mark **mark = connection_find_mark(c, u);

                if (!mark) {
                        r = qos_error_set(&e, QOS_ERROR_NOT_MARKED, u->name,
                                          "'%s' was not marked on this connection", u->name);
                        return vl_reply_error(link, r, &e);
                }
                unit_get_snapshot_since(u, &(*mark)->mark, (*mark)->cost, &s);
        } else
                unit_get_selected(u, p.window, values.selectors, values.n, &s, values.rows);

        unit_get_identity(u, &identity);
        r = snapshot_to_json(&identity, &s, connection_may_see_peers(c, u), &v);
        if (r >= 0 && !p.since_mark)
                r = unit_custom_to_json(u, p.window, /* entries= */ true, &custom);
        if (r >= 0 && custom)
                r = sd_json_variant_set_field(&v, "custom", custom);
        if (r >= 0)
                r = unit_custom_cost_to_json(u, &cost);
        if (r >= 0 && cost)
                r = sd_json_variant_set_field(&v, "customCost", cost);
        if (r >= 0 && p.names) {
                r = values_to_json(&values, &s, &values_json);
                if (r >= 0)
                        r = sd_json_variant_set_field(&v, "values", values_json);
        }
        if (r < 0)
                return r;
        return sd_varlink_reply(link, v);
}

/* Serializes unit i for the reply, unless this is done already. */
void many_add(Many *m, size_t i) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *custom = NULL;
        UnitIdentity identity;
        int r;

        if (!m->units[i])
                return;
        unit_get_identity(m->units[i], &identity);
        r = snapshot_to_json(&identity, m->snapshots + i, m->peers[i], m->parts + i);
        /* Without entries, which are as large as all else of the reply */
        if (r >= 0)
                r = unit_custom_to_json(m->units[i], m->window, /* entries= */ false, &custom);
        if (r >= 0 && custom)
                r = sd_json_variant_set_field(m->parts + i, "custom", custom);
        if (r < 0)
                unit_log_unshowable(m->units[i], r);
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
                                  SD_JSON_BUILD_PAIR_UNSIGNED("timestamp", m->now.realtime / NSEC_PER_USEC),
                                  SD_JSON_BUILD_PAIR_VARIANT("snapshots", array));
}

/* Reads all units at the same time. 1: an error was sent. */
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
                        r = connection_reply_missing(c, /* flags= */ 0, *name, &e);
                        return r < 0 ? r : 1;
                }
                for (size_t i = 0; i < m->n; i++)
                        if (m->units[i] == u) {
                                r = qos_error_set(&e, QOS_ERROR_DUPLICATE_UNIT, u->name,
                                                  "'%s' is named more than once", u->name);
                                r = vl_reply_error(c->link, r, &e);
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

/* Reads all units in the first turn, and serializes some of them in each turn. */
int connection_go_on_many(Connection *c) {
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        TurnUser *user = varlink_io_get_user(c->io);
        Many *m = c->many;
        unsigned n = 0;
        int r = 0;

        if (!m->begun) {
                if (user && user->reads_many) /* resumed by connection_resume_readers() */
                        return 0;
                if (user)
                        user->reads_many = true;
                m->begun = true;
                r = connection_read_many(c);
        }
        while (r == 0 && m->next < m->n) {
                if (n++ >= LIST_TURN_UNITS || now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->io, /* when_written= */ false);
                        return 0;
                }
                many_add(m, m->next++);
        }
        if (r == 0)
                r = connection_reply_many(c);
        connection_end_many(c);
        return r < 0 ? sd_varlink_error_errno(c->link, r) : 0;
}

void connection_resume_readers(Connection *c, bool begun) {
        TurnUser *user = c->io ? varlink_io_get_user(c->io) : NULL;

        if (!user)
                return;
        if (begun)
                user->reads_many = false;
        for (Connection *i = c->server->connections; i; i = i->next)
                if (i->uid == c->uid && (i->many || i->inspecting) &&
                    varlink_io_want_turn(i->io, /* when_written= */ false))
                        break;
}

void connection_end_many(Connection *c) {
        bool begun = c->many && c->many->begun;

        c->many = many_free(c->many);
        if (begun)
                connection_resume_readers(c, begun);
}

int vl_method_get_many(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                       void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "units",  SD_JSON_VARIANT_ARRAY,         vl_dispatch_strv,
                  offsetof(Parameters, names),  SD_JSON_MANDATORY },
                { "window", _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, window), SD_JSON_NULLABLE  },
                {}
        };
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        /* A one-way call has no reply to wait for: a later call could precede its end */
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

/* Counts the map of the unit as one of the user's. 0: the limit is reached. */
static int connection_count_view(Connection *c, Unit *u) {
        MapExport *v;

        if (c->uid == 0 || (u->exported && u->exported_uid == c->uid)) {
                if (!u->exported)
                        u->exported_uid = 0;
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
        u->exported_uid = c->uid;
        return 1;
}

int vl_method_get_view(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                       void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, unit),
                  SD_JSON_MANDATORY },
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
                return connection_reply_missing(c, flags, p.unit, &e);

        /* The map contains addresses of peers */
        if (!connection_may_see_peers(c, u))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);

        fd = u->view ? probe_get_unit_fd(c->server->manager->probe, u->index) : -EOPNOTSUPP;
        if (fd < 0) {
                r = qos_error_set(&e, QOS_ERROR_VIEW_UNAVAILABLE, u->name,
                                  "nothing can be read of '%s', see 'qosctl probes'", u->name);
                return vl_reply_error(link, r, &e);
        }
        if (!unit_is_whole(u)) {
                r = qos_error_set(&e, QOS_ERROR_VIEW_UNAVAILABLE, u->name,
                                  "what is counted for '%s' is in several maps, as units lie or have lain "
                                  "in it", u->name);
                return vl_reply_error(link, r, &e);
        }
        r = connection_count_view(c, u);
        if (r < 0)
                return r;
        if (r == 0) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", VIEWS_PER_USER_MAX);
                r = qos_error_set(&e, QOS_ERROR_TOO_MANY_VIEWS, limit,
                                  "user %u was given %s maps, more are not given", (unsigned) c->uid, limit);
                return vl_reply_error(link, r, &e);
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
        u->exported = true;
        return sd_varlink_replybo(link,
                                  SD_JSON_BUILD_PAIR_STRING("unit", u->name),
                                  SD_JSON_BUILD_PAIR_INTEGER("map", r),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("layout", QOS_LAYOUT),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("since", u->attached_since_monotonic),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("minimumSamples",
                                                              c->server->manager->config.minimum_samples),
                                  SD_JSON_BUILD_PAIR_VARIANT("measured", array));
}

int vl_method_mark(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, unit),
                  SD_JSON_MANDATORY },
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
                return connection_reply_missing(c, flags, p.unit, &e);

        mark = connection_find_mark(c, u) ?: connection_find_mark(c, NULL);
        if (!mark) {
                char limit[16];

                (void) snprintf(limit, sizeof(limit), "%u", MARKS_MAX);
                r = qos_error_set(&e, QOS_ERROR_TOO_MANY_MARKS, limit,
                                  "this connection has marks in %s units, more are not allowed", limit);
                return vl_reply_error(link, r, &e);
        }
        if (!u->view) {
                _cleanup_free_ char *degraded = NULL;

                r = unit_get_degraded_reason(u, &degraded);
                if (r < 0)
                        return r;
                r = qos_error_set(&e, QOS_ERROR_PROBE_UNAVAILABLE, probe_mask_name(0),
                                  "nothing can be measured of '%s' (%s)", u->name, degraded);
                return vl_reply_error(link, r, &e);
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

int vl_method_histogram(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                        void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",   SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),   SD_JSON_MANDATORY },
                { "metric", SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string,
                  offsetof(Parameters, metric), SD_JSON_MANDATORY },
                { "window", _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, window), SD_JSON_NULLABLE  },
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
                return connection_reply_missing(c, flags, p.unit, &e);

        /* Metrics of single peers are private, the sum over all peers is not */
        if (selector_parse(p.metric, &selector, metric) >= 0 && selector_is_private(&selector) &&
            !connection_may_see_peers(c, u))
                return sd_varlink_error(link, SD_VARLINK_ERROR_PERMISSION_DENIED, NULL);

        r = unit_get_histogram(u, p.metric, p.window, &h, &e);
        if (r == -ENODATA)
                return vl_reply_not_measured(link, p.metric);
        if (r < 0)
                return vl_reply_error(link, r, &e);

        r = histogram_to_json(u->name, p.metric, &h, &v);
        if (r < 0)
                return r;
        return sd_varlink_reply(link, v);
}
