/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/socket.h>

#include "config-build.h"
#include "log.h"
#include "varlink-connection.h"
#include "varlink-io.systemd.service.h"
#include "varlink-org.qosd.QoS.h"
#include "varlink-server.h"

#define LISTEN_PATH "/run/qosd/org.qosd.QoS"
#define LISTEN_PATH_ROOT LISTEN_PATH ".root"

/* Limit of all connections, and the only one for root: less than the available descriptors (LimitNOFILE= of
 * the service). Other users are limited by ConnectionsPerUserMax= as well. */
#define CONNECTIONS_MAX 4096U

/* ---- Subscribe ---------------------------------------------------------------------------------------- */

static int on_turn(void *userdata) {
        Connection *c = ASSERT_PTR(userdata);
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        Stream *s = c->stream;
        int r;

        if (c->listing)
                return connection_go_on_listing(c);
        if (c->many) {
                /* errors were sent, and do not end the connection */
                (void) connection_go_on_many(c);
                return 0;
        }
        if (c->diagnosing) {
                connection_go_on_diagnosing(c);
                return 0;
        }
        if (c->inspecting) {
                (void) connection_go_on_inspecting(c);
                return 0;
        }
        if (!s) /* ended meanwhile */
                return 0;
        if (s->next > 0)
                return connection_send_round(c);
        if (connection_is_slow(c)) {
                s->skipped++;
                if (s->unread_since == 0)
                        s->unread_since = now;
                if (now > s->unread_since + SLOW_READER_USEC) {
                        log_notice("Subscriber of user %u has not read for %llu s, disconnecting.",
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
                (void) log_debug_errno(r, "Failed to send to a subscriber, disconnecting: %m");
        return r;
}

static void on_unit_detaching(Unit *u, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);

        frames_free(&v->frames[u->index]);
        (void) inspections_forget(v, u->index, UINT64_MAX);
        for (Connection *c = v->connections; c; c = c->next) {
                char **units = c->stream ? c->stream->units : c->monitor ? c->monitor->units : NULL;
                Mark **mark = connection_find_mark(c, u);
                size_t n = 0;

                for (size_t i = 0; c->many && i < c->many->n; i++)
                        if (c->many->units[i] == u)
                                many_add(c->many, i);
                if (c->inspecting && streq(c->inspecting->unit, u->name))
                        connection_restart_inspecting(c);
                if (c->diagnosing && streq_ptr(c->unit, u->name))
                        diagnosing_restart(c->diagnosing);
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
                        varlink_io_touch(c->io);
                }
        }
}

/* ---- thresholds --------------------------------------------------------------------------------------- */

/* Sends pending messages now, not in a later iteration of the event loop. */
static void on_unit_evaluated(Unit *u, void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);

        varlink_io_flush_touched(&v->io);
}

/* ---- connections -------------------------------------------------------------------------------------- */

/* Frees cached frames and readings. True: some are still in use. */
static bool on_trim(void *userdata) {
        VarlinkServer *v = ASSERT_PTR(userdata);
        bool streams = false, inspections = false;

        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (inspections_forget(v, i, now_nsec(CLOCK_MONOTONIC)))
                        inspections = true;
        for (const Connection *c = v->connections; c; c = c->next)
                streams = streams || c->stream;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT && !streams; i++)
                frames_free(&v->frames[i]);
        return inspections;
}

static void connection_free(Connection *c) {
        VarlinkServer *v = c->server;

        *(c->previous ? &c->previous->next : &v->connections) = c->next;
        if (c->next)
                c->next->previous = c->previous;
        v->n_others -= c->uid != 0;

        attach_operation_cancel(c->attach);
        connection_forget_call(c);
        diagnosing_free(v->manager, c->begun);
        listing_free(c->listing);
        connection_end_many(c);
        connection_end_inspecting(c);
        stream_free(c->stream);
        monitor_free(c->monitor);
        for (unsigned i = 0; i < MARKS_MAX; i++)
                free(c->marks[i]);
        varlink_io_free(c->io);
        manager_release_lease(v->manager, c);
        free(c);
        memory_trim_request(v->manager->trim);
}

/* To be called before anything is allocated for the connection. */
static int server_check_limits(VarlinkServer *v, uid_t uid) {
        bool full = v->n_others >= limit_for_unprivileged(sd_varlink_server_connections_max(v->server));
        const TurnUser *user = turn_queue_find_user(v->io.turns, uid);
        unsigned n = user ? user->n_connections : 0;
        uint64_t now;

        if (uid == 0 || (!full && n < v->manager->config.connections_per_uid_max))
                return 0;

        now = now_usec(CLOCK_MONOTONIC);
        if (v->refused_at == 0 || now >= v->refused_at + REFUSED_USEC) {
                v->refused_at = now;
                if (full)
                        log_notice("Users other than root have %u connections, refusing more.",
                                   v->n_others);
                else
                        log_notice("User %u has %u connections, refusing more "
                                   "(ConnectionsPerUserMax=).", (unsigned) uid, n);
        }
        return -EUSERS;
}

static int connection_new(VarlinkServer *v, sd_varlink *link, uid_t uid) {
        Connection *c;

        c = new0(Connection, 1);
        if (!c)
                return -ENOMEM;
        *c = (Connection) {
                .server = v,
                .link = link,
                .uid = uid,
                .next = v->connections,
        };
        if (c->next)
                c->next->previous = c;
        v->connections = c;
        v->n_others += uid != 0;
        (void) sd_varlink_set_userdata(link, c);

        /* On error the caller closes the link, and on_disconnect() frees c */
        return varlink_io_new(&v->io, link, uid, on_turn, c, &c->io);
}

static void on_disconnect(sd_varlink_server *server, sd_varlink *link, void *userdata) {
        Connection *c = sd_varlink_get_userdata(link);

        if (c)
                connection_free(c);
}

int varlink_server_add_connection(VarlinkServer *v, int fd) {
        uint64_t cpu = now_nsec(CLOCK_THREAD_CPUTIME_ID);
        socklen_t size = sizeof(struct ucred);
        struct ucred peer;
        sd_varlink *link;
        int r;

        r = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ? -errno :
            server_check_limits(v, peer.uid);
        if (r >= 0)
                r = sd_varlink_server_add_connection(v->server, fd, &link);
        if (r < 0) {
                (void) close_fd(fd);
                return r;
        }

        r = connection_new(v, link, peer.uid);
        turn_queue_charge(v->io.turns, peer.uid, now_nsec(CLOCK_THREAD_CPUTIME_ID) - cpu);
        if (r < 0)
                (void) sd_varlink_close(link);
        return r;
}

static void on_accepted(int fd, void *userdata) {
        int r;

        r = varlink_server_add_connection(ASSERT_PTR(userdata), fd);
        if (r < 0)
                (void) log_debug_errno(r, "Failed to serve a connection, it is closed: %m");
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

        v->io = (VarlinkIoSet) { .event = m->event, .turns = m->turns };
        r = sd_varlink_server_new(&v->server, SD_VARLINK_SERVER_ACCOUNT_UID);
        if (r < 0)
                goto fail;
        (void) sd_varlink_server_set_userdata(v->server, v);

        r = sd_event_add_time(m->event, &v->monitors_timer, CLOCK_MONOTONIC, 0, 0,
                              varlink_server_resume_monitors, v);
        if (r >= 0)
                r = sd_event_source_set_enabled(v->monitors_timer, SD_EVENT_OFF);
        if (r < 0)
                goto fail;

        r = sd_varlink_server_set_info(v->server, "qosd", "qosd", QOSD_VERSION, QOSD_URL);
        if (r >= 0)
                r = sd_varlink_server_add_interface_many(v->server, &vl_interface_org_qosd_QoS,
                                                         &vl_interface_io_systemd_service);
        if (r >= 0)
                r = sd_varlink_server_bind_method_many(
                                v->server,
                                INTERFACE ".Attach",      vl_method_attach,
                                INTERFACE ".Detach",      vl_method_detach,
                                INTERFACE ".List",        vl_method_list,
                                INTERFACE ".Export",      vl_method_export,
                                INTERFACE ".Get",         vl_method_get,
                                INTERFACE ".GetMany",     vl_method_get_many,
                                INTERFACE ".GetView",     vl_method_get_view,
                                INTERFACE ".Mark",        vl_method_mark,
                                INTERFACE ".Histogram",   vl_method_histogram,
                                INTERFACE ".Threads",     vl_method_threads,
                                INTERFACE ".Resources",   vl_method_resources,
                                INTERFACE ".ListConnections", vl_method_list_connections,
                                INTERFACE ".ListSegments", vl_method_list_segments,
                                INTERFACE ".SlowOperations", vl_method_slow_operations,
                                INTERFACE ".History",     vl_method_history,
                                INTERFACE ".BeginDiagnosis", vl_method_begin_diagnosis,
                                INTERFACE ".Diagnose",    vl_method_diagnose,
                                INTERFACE ".Subscribe",   vl_method_subscribe,
                                INTERFACE ".SetThreshold", vl_method_set_threshold,
                                INTERFACE ".ClearThreshold", vl_method_clear_threshold,
                                INTERFACE ".ListThresholds", vl_method_list_thresholds,
                                INTERFACE ".Monitor",     vl_method_monitor,
                                INTERFACE ".Wait",        vl_method_wait,
                                INTERFACE ".ListMetrics", vl_method_list_metrics,
                                INTERFACE ".Probes",      vl_method_probes,
                                INTERFACE ".GetStatus",   vl_method_get_status,
                                "io.systemd.service.Ping", vl_method_ping,
                                "io.systemd.service.Reload", vl_method_reload,
                                "io.systemd.service.SetLogLevel", vl_method_set_log_level,
                                "io.systemd.service.GetLogLevel", vl_method_get_log_level);
        if (r >= 0)
                r = sd_varlink_server_bind_disconnect(v->server, on_disconnect);
        /* sd_varlink_server_connections_max(NULL) is derived from RLIMIT_NOFILE */
        if (r >= 0)
                r = sd_varlink_server_set_connections_max(v->server,
                                                          MIN(CONNECTIONS_MAX,
                                                              sd_varlink_server_connections_max(NULL)));
        if (r >= 0)
                r = sd_varlink_server_set_connections_per_uid_max(v->server, CONNECTIONS_MAX);
        if (r < 0)
                goto fail;

        manager_add_observer(m, &v->observer);
        memory_trim_set_cache(m->trim, on_trim, v);
        *ret = v;
        return 0;

fail:
        varlink_server_free(v);
        return r;
}

/* fd: socket of the socket unit; negative: none */
static int server_listen(VarlinkServer *v, int fd, const char *path, mode_t mode, bool roots,
                         VarlinkListener **ret) {
        if (fd < 0)
                fd = varlink_listen_at(path, mode);
        if (fd < 0)
                return fd;
        return varlink_listener_new(v->manager->event, roots ? NULL : v->io.turns, fd, on_accepted, v, ret);
}

int varlink_server_new(Manager *m, VarlinkServer **ret) {
        VarlinkServer *v;
        int r;

        r = varlink_server_new_peer(m, &v);
        if (r < 0)
                return r;

        r = server_listen(v, TAKE_FD(m->fds.varlink), LISTEN_PATH, 0666, /* roots= */ false, &v->listener);
        if (r >= 0) {
                /* Optional: otherwise root uses the socket of the others */
                int k = server_listen(v, TAKE_FD(m->fds.varlink_root), LISTEN_PATH_ROOT, 0600,
                                      /* roots= */ true, &v->root_listener);

                if (k < 0)
                        (void) log_debug_errno(k, "Failed to listen on '" LISTEN_PATH_ROOT "': %m");
        }
        if (r < 0) {
                varlink_server_free(v);
                return r;
        }

        *ret = v;
        return 0;
}

VarlinkServer* varlink_server_free(VarlinkServer *v) {
        if (!v)
                return NULL;

        varlink_listener_free(v->listener);
        varlink_listener_free(v->root_listener);
        if (v->server)
                (void) sd_varlink_server_shutdown(v->server);
        while (v->connections)
                (void) sd_varlink_close(v->connections->link); /* on_disconnect() frees it */
        manager_remove_observer(v->manager, &v->observer);
        memory_trim_set_cache(v->manager->trim, NULL, NULL);
        sd_varlink_server_unref(v->server);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                frames_free(&v->frames[i]);
                (void) inspections_forget(v, i, UINT64_MAX);
        }
        for (MapExport *i = v->viewers, *next; i; i = next) {
                next = i->next;
                free(i);
        }
        sd_event_source_disable_unref(v->monitors_timer);
        free(v);
        return NULL;
}
