/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <malloc.h>

#include "config-build.h"
#include "log.h"
#include "varlink-connection.h"
#include "varlink-org.qosd.QoS.h"
#include "varlink-server.h"

#define LISTEN_PATH "/run/qosd/org.qosd.QoS"

/* Connections of everybody together, and of root: more than a fleet of tools opens, less than the
 * descriptors we have (LimitNOFILE= in the unit). Others have ConnectionsPerUserMax=. */
#define CONNECTIONS_MAX 4096U

/* How often memory is given back to the system when connections end. */
#define TRIM_USEC USEC_PER_SEC

/* How often it is said that somebody has too many connections. */
#define REFUSED_USEC (60 * USEC_PER_SEC)

/* ---- Subscribe ---------------------------------------------------------------------------------------- */

static int on_turn(void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        Stream *s = c->stream;
        int r;

        if (c->listing)
                return connection_go_on_listing(c);
        if (c->many) {
                /* an error is sent, and is no reason to end the connection */
                (void) connection_go_on_many(c);
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
                        log_notice("A subscriber of user %u has not read for %llu s, it is cut off.",
                                   (unsigned) c->uid,
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

static void on_unit_detaching(Unit *u, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);

        frames_free(&v->frames[u->index]);
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
                        int r = qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, u->name,
                                              "'%s' is no longer attached", u->name);

                        c->stream = stream_free(c->stream);
                        c->monitor = monitor_free(c->monitor);
                        (void) vl_reply_error(c->link, r, &e);
                }
        }
}

/* ---- thresholds --------------------------------------------------------------------------------------- */

/* What there is to be said leaves now, and not when the loop comes to it: of messages on the bus that is so
 * anyway. */
static void on_unit_evaluated(Unit *u, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);

        for (Connection *c = v->connections, *next; c; c = next) {
                next = c->next; /* it may end */
                if (c->pump)
                        varlink_io_flush(c->pump);
        }
}

/* ---- connections -------------------------------------------------------------------------------------- */

static int on_trim(sd_event_source *source, uint64_t usec, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);
        bool streams = false;

        for (const Connection *c = v->connections; c; c = c->next)
                streams = streams || c->stream;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT && !streams; i++)
                frames_free(&v->frames[i]);
        (void) malloc_trim(0);
        v->trimmed_at = now_usec(CLOCK_MONOTONIC);
        return 0;
}

/* The C library keeps what is free between what is not: all that replies have taken at once, of everybody.
 * The first connection that ends has it given back at once, so that no timer wakes up a daemon that has
 * nothing to do; those that follow soon, together. */
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
                                log_notice("Others than root have %u connections, more are not accepted.",
                                           others);
                        else
                                log_notice("User %u has %u connections, more are not accepted "
                                           "(ConnectionsPerUserMax=).", (unsigned) uid, n);
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
                .threshold_event = varlink_server_on_threshold_event,
                .unit_evaluated = on_unit_evaluated,
                .userdata = v,
        };

        r = varlink_queue_new(m->event, &v->queue);
        if (r >= 0)
                r = sd_varlink_server_new(&v->server, SD_VARLINK_SERVER_ACCOUNT_UID);
        if (r < 0)
                goto fail;
        (void) sd_varlink_server_set_userdata(v->server, v);

        r = sd_event_add_time(m->event, &v->monitors_timer, CLOCK_MONOTONIC, 0, 0,
                              varlink_server_resume_monitors, v);
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
                r = sd_varlink_server_set_connections_max(v->server,
                                                          MIN(CONNECTIONS_MAX,
                                                              sd_varlink_server_connections_max(NULL)));
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
                frames_free(&v->frames[i]);
        for (MapExport *i = v->viewers, *next; i; i = next) {
                next = i->next;
                free(i);
        }
        sd_event_source_disable_unref(v->monitors_timer);
        sd_event_source_disable_unref(v->trim_timer);
        free(v);
        return NULL;
}
