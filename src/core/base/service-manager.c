/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "service-manager-internal.h"
#include "service-manager.h"
#include "unit-name.h"

#define PID1_NAME "org.freedesktop.systemd1"
#define PID1_PATH "/org/freedesktop/systemd1"

/* Limit of the result of service_manager_list(). */
#define SUGGESTIONS_MAX 5

/* Limit of concurrent calls. dbus-daemon rejects calls beyond 128 pending replies per connection; this
 * leaves some for calls to other services. */
#define CALLS_MAX 64U

typedef struct Watch {
        char *name;
        sd_bus_slot *slot;
        struct Watch *next;
        ServiceManager *service_manager;
} Watch;

struct ServiceManagerCall {
        ServiceManager *service_manager;
        ServiceManagerCall *next;
        sd_bus_slot *slot;
        int (*start)(ServiceManagerCall *c);
        bool started;
        char *name;                     /* of the unit, or pattern */
        service_manager_unit_handler_t unit_handler;
        service_manager_list_handler_t list_handler;
        void *userdata;

        Properties properties;          /* of the unit, while related units are queried */
        char *sockets;                  /* remaining sockets to be queried, space separated */
        char *socket_groups;
        char *instances;
};

struct ServiceManager {
        sd_bus *bus;
        sd_bus_slot *reloading_slot;
        sd_bus_slot *job_slot;
        sd_bus_slot *owner_slot;
        sd_bus_slot *new_slot;
        sd_bus_slot *removed_slot;
        service_manager_loaded_t loaded;
        void *loaded_userdata;
        service_manager_changed_t changed;
        void *userdata;
        Watch *watches;
        ServiceManagerCall *calls;      /* newest first */
        unsigned n_started;
        sd_event_source *start_source;  /* starts pending calls */
};

/* ---- calls -------------------------------------------------------------------------------------------- */

ServiceManagerCall* service_manager_call_free(ServiceManagerCall *c) {
        ServiceManager *s;

        if (!c)
                return NULL;

        s = c->service_manager;
        for (ServiceManagerCall **p = &s->calls; *p; p = &(*p)->next)
                if (*p == c) {
                        *p = c->next;
                        break;
                }
        if (c->started) {
                s->n_started--;
                /* Deferred, as handlers must not run within whatever ends this call */
                if (s->start_source)
                        (void) sd_event_source_set_enabled(s->start_source, SD_EVENT_ONESHOT);
        }
        sd_bus_slot_unref(c->slot);
        free(c->name);
        properties_done(&c->properties);
        free(c->sockets);
        free(c->socket_groups);
        free(c->instances);
        free(c);
        return NULL;
}

static void call_finish(ServiceManagerCall *c, int error, const char *message, const UnitInfo *info,
                        const char *names) {
        ServiceManagerCall copy = *c;

        /* info points to memory that outlives the call */
        c->properties = (Properties) {};
        c->socket_groups = c->instances = NULL;
        service_manager_call_free(c);
        if (copy.unit_handler)
                copy.unit_handler(error, message, info, copy.userdata);
        else
                copy.list_handler(error, strempty(names), copy.userdata);
        properties_done(&copy.properties);
        free(copy.socket_groups);
        free(copy.instances);
}

static void call_succeed(ServiceManagerCall *c) {
        UnitInfo info = c->properties.info;

        info.socket_groups = c->socket_groups;
        info.instances = c->instances;
        info.listen = c->properties.listen;
        info.n_listen = c->properties.n_listen;
        call_finish(c, 0, NULL, &info, NULL);
}

static int call_get_all(ServiceManagerCall *c, const char *path, sd_bus_message_handler_t handler) {
        c->slot = sd_bus_slot_unref(c->slot);
        /* The empty interface returns the properties of all interfaces */
        return sd_bus_call_method_async(c->service_manager->bus, &c->slot, PID1_NAME, path,
                                        "org.freedesktop.DBus.Properties", "GetAll", handler, c, "s", "");
}

/* Loads the unit, as PID 1 does for calls on its object path. */
static int call_get_all_of(ServiceManagerCall *c, const char *name, sd_bus_message_handler_t handler) {
        _cleanup_free_ char *path = NULL;
        int r;

        r = sd_bus_path_encode(PID1_PATH "/unit", name, &path);
        return r < 0 ? r : call_get_all(c, path, handler);
}

/* Reply for a fictitious instance, from which the common path of all instances is taken. It is never
 * started. */
static int on_instance(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(properties_done) Properties instance = {};
        ServiceManagerCall *c = ASSERT_PTR(userdata);
        _cleanup_free_ char *group = NULL;

        if (!sd_bus_message_is_method_error(m, NULL) && properties_read(m, &instance) >= 0 &&
            unit_get_default_control_group(instance.info.id, instance.info.slice, &group) >= 0) {
                char *at = strchr(strrchr(group, '/'), '@');

                if (at) {
                        at[1] = 0;
                        c->instances = TAKE_PTR(group);
                }
        }
        call_succeed(c);
        return 0;
}

/* PID 1 calls listen() in a process in the control group of the socket unit if BPF firewalls are
 * supported. */
static int socket_groups_append(ServiceManagerCall *c, const UnitInfo *socket) {
        _cleanup_free_ char *group = NULL, *all = NULL;

        if (!isempty(socket->control_group))
                group = strdup(socket->control_group);
        else if (unit_get_default_control_group(socket->id, socket->slice, &group) == -EINVAL)
                return 0;
        if (!group || asprintf(&all, "%s%s%s", strempty(c->socket_groups), c->socket_groups ? " " : "",
                               group) < 0) {
                all = NULL;
                return -ENOMEM;
        }

        free(c->socket_groups);
        c->socket_groups = TAKE_PTR(all);
        return 0;
}

static void call_next_socket(ServiceManagerCall *c);

static int on_socket(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        _cleanup_(properties_done) Properties socket = {};
        ServiceManagerCall *c = ASSERT_PTR(userdata);

        /* Ignore sockets that cannot be queried or do not exist. Connections of Accept=yes do not belong to
         * this service */
        if (!sd_bus_message_is_method_error(m, NULL) && properties_read(m, &socket) >= 0 &&
            !socket.info.accept &&
            names_contain(socket.info.triggers, c->properties.info.id) &&
            (listen_append(&c->properties, socket.listen, socket.n_listen) < 0 ||
             (!strchr(socket.info.triggers, ' ') && socket_groups_append(c, &socket.info) < 0)))
                (void) log_oom();
        call_next_socket(c);
        return 0;
}

static void call_next_socket(ServiceManagerCall *c) {
        char name[UNIT_NAME_MAX + 1];
        size_t l;
        int r;

        for (;;) {
                l = strcspn(strempty(c->sockets), " ");
                if (l == 0 || l >= sizeof(name)) {
                        call_succeed(c);
                        return;
                }

                (void) snprintf(name, sizeof(name), "%.*s", (int) l, c->sockets);
                memmove(c->sockets, c->sockets + l + (c->sockets[l] == ' '),
                        strlen(c->sockets + l) + (c->sockets[l] != ' '));

                r = call_get_all_of(c, name, on_socket);
                if (r >= 0)
                        return;
                log_debug_errno(r, "Failed to query '%s': %m", name);
        }
}

/* Queries the sockets that activate a service: those known to PID 1, and the one with the same name, which
 * may not be loaded. */
static int call_list_sockets(ServiceManagerCall *c) {
        const char *id = c->properties.info.id, *known = strempty(c->properties.triggered_by);
        int stem = strlen(id) - strlen(".service");
        _cleanup_free_ char *own = NULL;
        bool listed;

        if (asprintf(&own, "%.*s.socket", stem, id) < 0) {
                own = NULL;
                return -ENOMEM;
        }
        listed = names_contain(known, own);

        if (asprintf(&c->sockets, "%s%s%s", listed ? "" : own, listed || isempty(known) ? "" : " ",
                     known) < 0) {
                c->sockets = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int call_get_instance(ServiceManagerCall *c) {
        const char *id = c->properties.info.id;
        _cleanup_free_ char *name = NULL;

        /* "foo@a.socket" has instances "foo@….service" as well */
        if (asprintf(&name, "%.*s@0.service", (int) MIN(strcspn(id, "@"), strlen(id) - strlen(".socket")),
                     id) < 0) {
                name = NULL;
                return -ENOMEM;
        }
        return call_get_all_of(c, name, on_instance);
}

static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManagerCall *c = ASSERT_PTR(userdata);
        int r;

        if (sd_bus_message_is_method_error(m, NULL)) {
                const sd_bus_error *e = sd_bus_message_get_error(m);

                call_finish(c, -sd_bus_error_get_errno(e), e->message, NULL, NULL);
                return 0;
        }

        r = properties_read(m, &c->properties);
        if (r < 0) {
                call_finish(c, r, "invalid reply", NULL, NULL);
                return 0;
        }

        if (streq(c->properties.info.load_state, "loaded") && endswith(c->properties.info.id, ".service")) {
                r = call_list_sockets(c);
                if (r >= 0) {
                        call_next_socket(c);
                        return 0;
                }
        } else if (c->properties.info.accept) {
                r = call_get_instance(c);
                if (r >= 0)
                        return 0;
        }
        if (r < 0)
                log_debug_errno(r, "Failed to query units related to '%s': %m", c->properties.info.id);
        call_succeed(c);
        return 0;
}

static int on_unit_loaded(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManagerCall *c = ASSERT_PTR(userdata);
        const char *path;
        int r;

        if (sd_bus_message_is_method_error(m, NULL)) {
                const sd_bus_error *e = sd_bus_message_get_error(m);

                /* With these errors there is no such unit; others mean that the query failed */
                call_finish(c, sd_bus_error_has_names(e, SD_BUS_ERROR_INVALID_ARGS, PID1_NAME
                                                      ".NoSuchUnit") ? -ENOENT : -sd_bus_error_get_errno(e),
                            e->message, NULL, NULL);
                return 0;
        }

        r = sd_bus_message_read(m, "o", &path);
        if (r >= 0)
                r = call_get_all(c, path, on_properties);
        if (r < 0)
                call_finish(c, r, strerror(-r), NULL, NULL);
        return 0;
}

static int call_start(ServiceManagerCall *c) {
        c->started = true;
        c->service_manager->n_started++;
        return c->start(c);
}

static int on_start(sd_event_source *source, void *userdata) {
        ServiceManager *s = ASSERT_PTR(userdata);

        while (s->n_started < CALLS_MAX) {
                ServiceManagerCall *oldest = NULL;
                int r;

                for (ServiceManagerCall *c = s->calls; c; c = c->next)
                        if (!c->started)
                                oldest = c;
                if (!oldest)
                        break;
                r = call_start(oldest);
                if (r < 0)
                        call_finish(oldest, r, strerror(-r), NULL, NULL);
        }
        return 0;
}

/* Starts the call now, or queues it. call: its functions and their argument. */
static int call_new(ServiceManager *s, const char *name, const ServiceManagerCall *call,
                    ServiceManagerCall **ret) {
        ServiceManagerCall *c;
        int r;

        if (!s->bus)
                return -ENOTCONN;

        c = new0(ServiceManagerCall, 1);
        if (!c)
                return -ENOMEM;

        *c = *call;
        c->service_manager = s;
        c->name = strdup(name);
        c->next = s->calls;
        s->calls = c;
        r = !c->name ? -ENOMEM : s->n_started < CALLS_MAX ? call_start(c) : 0;
        if (r < 0) {
                service_manager_call_free(c);
                return r;
        }

        if (ret)
                *ret = c;
        return 0;
}

static int call_load(ServiceManagerCall *c) {
        return sd_bus_call_method_async(c->service_manager->bus, &c->slot, PID1_NAME, PID1_PATH,
                                        PID1_NAME ".Manager", "LoadUnit", on_unit_loaded, c, "s", c->name);
}

int service_manager_load(ServiceManager *s, const char *name, service_manager_unit_handler_t handler,
                         void *userdata, ServiceManagerCall **ret) {
        return call_new(s, name, &(ServiceManagerCall) {
                .start = call_load,
                .unit_handler = handler,
                .userdata = userdata,
        }, ret);
}

static int on_units_listed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManagerCall *c = ASSERT_PTR(userdata);
        char names[SUGGESTIONS_MAX * (UNIT_NAME_MAX + 2)] = "";
        unsigned n = 0;
        int r;

        if (sd_bus_message_is_method_error(m, NULL)) {
                call_finish(c, -sd_bus_message_get_errno(m), NULL, NULL, NULL);
                return 0;
        }

        r = sd_bus_message_enter_container(m, 'a', "(ssssssouso)");
        while (r > 0 && n < SUGGESTIONS_MAX) {
                const char *name, *sub;

                r = sd_bus_message_read(m, "(ssssssouso)", &name, NULL, NULL, NULL, &sub, NULL, NULL, NULL,
                                        NULL, NULL);
                if (r > 0 && !streq(sub, "exited") && strlen(name) <= UNIT_NAME_MAX) {
                        (void) snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                                        n > 0 ? " " : "", name);
                        n++;
                }
        }

        call_finish(c, MIN(r, 0), NULL, NULL, r < 0 ? NULL : names);
        return 0;
}

static int on_loaded_listed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManagerCall *c = ASSERT_PTR(userdata);
        _cleanup_free_ char *names = NULL;
        size_t size = 0;
        FILE *f;
        int r;

        if (sd_bus_message_is_method_error(m, NULL)) {
                call_finish(c, -sd_bus_message_get_errno(m), NULL, NULL, NULL);
                return 0;
        }

        f = open_memstream(&names, &size);
        if (!f) {
                call_finish(c, -ENOMEM, NULL, NULL, NULL);
                return 0;
        }
        r = sd_bus_message_enter_container(m, 'a', "(ssssssouso)");
        while (r > 0) {
                const char *name;

                r = sd_bus_message_read(m, "(ssssssouso)", &name, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                                        NULL, NULL);
                if (r > 0)
                        fprintf(f, "%s ", name);
        }
        if (fclose(f) != 0 && r >= 0)
                r = -ENOMEM;

        /* A partial list must not be taken for a complete one */
        call_finish(c, MIN(r, 0), NULL, NULL, r < 0 ? NULL : names);
        return 0;
}

static int call_list_loaded(ServiceManagerCall *c) {
        return sd_bus_call_method_async(c->service_manager->bus, &c->slot, PID1_NAME, PID1_PATH,
                                        PID1_NAME ".Manager",
                                        "ListUnitsByPatterns", on_loaded_listed, c, "asas", 0, 1, c->name);
}

int service_manager_list_loaded(ServiceManager *s, const char *pattern,
                                service_manager_list_handler_t handler, void *userdata,
                                ServiceManagerCall **ret) {
        return call_new(s, pattern, &(ServiceManagerCall) {
                .start = call_list_loaded,
                .list_handler = handler,
                .userdata = userdata,
        }, ret);
}

static int call_list(ServiceManagerCall *c) {
        return sd_bus_call_method_async(c->service_manager->bus, &c->slot, PID1_NAME, PID1_PATH,
                                        PID1_NAME ".Manager",
                                        "ListUnitsByPatterns", on_units_listed, c, "asas", 2, "active",
                                        "activating", 1, c->name);
}

int service_manager_list(ServiceManager *s, const char *pattern, service_manager_list_handler_t handler,
                         void *userdata, ServiceManagerCall **ret) {
        return call_new(s, pattern, &(ServiceManagerCall) {
                .start = call_list,
                .list_handler = handler,
                .userdata = userdata,
        }, ret);
}

/* ---- changes ------------------------------------------------------------------------------------------ */

static int on_unit_changed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        Watch *w = ASSERT_PTR(userdata);

        w->service_manager->changed(w->name, w->service_manager->userdata);
        return 0;
}

static int on_subscribed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *e = sd_bus_message_get_error(m);

        if (e && !sd_bus_error_has_name(e, PID1_NAME ".AlreadySubscribed"))
                log_warning("Failed to subscribe to the service manager's signals, state changes of "
                            "units will be detected late: %s", e->message);
        return 0;
}

static void service_manager_subscribe(ServiceManager *s) {
        int r;

        r = sd_bus_call_method_async(s->bus, NULL, PID1_NAME, PID1_PATH, PID1_NAME ".Manager", "Subscribe",
                                     on_subscribed, NULL, NULL);
        if (r < 0)
                log_warning_errno(r, "Failed to subscribe to the service manager's signals: %m");
}

static int on_reloading(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManager *s = ASSERT_PTR(userdata);
        int active;

        if (sd_bus_message_read(m, "b", &active) < 0 || active)
                return 0;

        service_manager_subscribe(s);
        s->changed(NULL, s->userdata);
        return 0;
}

static int on_unit_new(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManager *s = ASSERT_PTR(userdata);
        const char *name;

        if (s->loaded && sd_bus_message_read(m, "so", &name, NULL) >= 0)
                s->loaded(name, true, s->loaded_userdata);
        return 0;
}

static int on_unit_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManager *s = ASSERT_PTR(userdata);
        const char *name;

        if (s->loaded && sd_bus_message_read(m, "so", &name, NULL) >= 0)
                s->loaded(name, false, s->loaded_userdata);
        return 0;
}

static int on_job_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManager *s = ASSERT_PTR(userdata);
        const char *name;

        if (sd_bus_message_read(m, "uos", NULL, NULL, &name) >= 0 && endswith(name, ".socket"))
                s->changed(name, s->userdata);
        return 0;
}

static int on_owner_changed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        ServiceManager *s = ASSERT_PTR(userdata);
        const char *name, *old, *new;

        if (sd_bus_message_read(m, "sss", &name, &old, &new) < 0 || isempty(new))
                return 0;

        service_manager_subscribe(s);
        s->changed(NULL, s->userdata);
        return 0;
}

static int watch_install(ServiceManager *s, Watch *w) {
        _cleanup_free_ char *path = NULL;
        int r;

        w->slot = sd_bus_slot_unref(w->slot);

        r = sd_bus_path_encode(PID1_PATH "/unit", w->name, &path);
        if (r < 0)
                return r;

        return sd_bus_match_signal_async(s->bus, &w->slot, PID1_NAME, path,
                                         "org.freedesktop.DBus.Properties",
                                         "PropertiesChanged", on_unit_changed, NULL, w);
}

/* Subscribes to the end of a daemon-reload, and to restarts of the service manager. */
static int service_manager_listen_always(ServiceManager *s) {
        int r;

        r = sd_bus_match_signal_async(s->bus, &s->reloading_slot, PID1_NAME, PID1_PATH, PID1_NAME ".Manager",
                                      "Reloading",
                                      on_reloading, NULL, s);
        if (r >= 0)
                r = sd_bus_add_match_async(s->bus, &s->owner_slot,
                                           "type='signal',"
                                           "sender='org.freedesktop.DBus',path='/org/freedesktop/DBus',"
                                           "interface='org.freedesktop.DBus',"
                                           "member='NameOwnerChanged',arg0='" PID1_NAME "'",
                                           on_owner_changed, NULL, s);
        if (r >= 0)
                service_manager_subscribe(s);
        return r;
}

static int service_manager_install_loaded(ServiceManager *s) {
        int r;

        s->new_slot = sd_bus_slot_unref(s->new_slot);
        s->removed_slot = sd_bus_slot_unref(s->removed_slot);
        if (!s->bus || !s->loaded)
                return 0;
        r = sd_bus_match_signal_async(s->bus, &s->new_slot, PID1_NAME, PID1_PATH, PID1_NAME ".Manager",
                                      "UnitNew", on_unit_new, NULL, s);
        if (r < 0)
                return r;
        return sd_bus_match_signal_async(s->bus, &s->removed_slot, PID1_NAME, PID1_PATH,
                                         PID1_NAME ".Manager", "UnitRemoved", on_unit_removed, NULL, s);
}

int service_manager_listen_loaded(ServiceManager *s, service_manager_loaded_t handler, void *userdata) {
        bool same = !s->loaded == !handler;

        s->loaded = handler;
        s->loaded_userdata = userdata;
        return same ? 0 : service_manager_install_loaded(s);
}

/* Subscribes to signals needed while units are attached. */
static int service_manager_listen(ServiceManager *s) {
        /* Start and stop of sockets. Signals of the sockets themselves would be too frequent: one per
         * connection */
        return sd_bus_match_signal_async(s->bus, &s->job_slot, PID1_NAME, PID1_PATH, PID1_NAME ".Manager",
                                         "JobRemoved",
                                         on_job_removed, NULL, s);
}

static void service_manager_unlisten(ServiceManager *s) {
        s->job_slot = sd_bus_slot_unref(s->job_slot);
        for (Watch *w = s->watches; w; w = w->next)
                w->slot = sd_bus_slot_unref(w->slot);
}

int service_manager_watch(ServiceManager *s, const char *name) {
        Watch *w;
        int r;

        w = new0(Watch, 1);
        if (!w)
                return -ENOMEM;
        w->name = strdup(name);
        if (!w->name) {
                free(w);
                return -ENOMEM;
        }
        w->service_manager = s;
        w->next = s->watches;
        s->watches = w;

        if (!s->bus)
                return 0;
        if (!s->job_slot) {
                r = service_manager_listen(s);
                if (r < 0)
                        return r;
        }
        return watch_install(s, w);
}

static void watch_free(Watch *w) {
        sd_bus_slot_unref(w->slot);
        free(w->name);
        free(w);
}

void service_manager_unwatch(ServiceManager *s, const char *name) {
        for (Watch **p = &s->watches; *p; p = &(*p)->next)
                if (streq((*p)->name, name)) {
                        Watch *w = *p;

                        *p = w->next;
                        watch_free(w);
                        break;
                }

        if (!s->watches && s->bus)
                service_manager_unlisten(s);
}

int service_manager_set_bus(ServiceManager *s, sd_bus *bus) {
        int r;

        service_manager_unlisten(s);
        s->reloading_slot = sd_bus_slot_unref(s->reloading_slot);
        s->owner_slot = sd_bus_slot_unref(s->owner_slot);
        s->new_slot = sd_bus_slot_unref(s->new_slot);
        s->removed_slot = sd_bus_slot_unref(s->removed_slot);
        while (s->calls)
                call_finish(s->calls, -ENOTCONN, "the connection to the system bus was lost", NULL, NULL);
        s->start_source = sd_event_source_disable_unref(s->start_source);
        s->bus = sd_bus_unref(s->bus);

        if (!bus)
                return 0;
        s->bus = sd_bus_ref(bus);

        r = sd_event_add_defer(sd_bus_get_event(bus), &s->start_source, on_start, s);
        if (r >= 0)
                r = sd_event_source_set_enabled(s->start_source, SD_EVENT_OFF);
        if (r >= 0)
                r = service_manager_listen_always(s);
        if (r >= 0)
                r = service_manager_install_loaded(s);
        if (r >= 0 && s->watches)
                r = service_manager_listen(s);
        if (r < 0)
                return r;
        for (Watch *w = s->watches; w; w = w->next) {
                r = watch_install(s, w);
                if (r < 0)
                        return r;
        }

        s->changed(NULL, s->userdata);
        return 0;
}

int service_manager_new(service_manager_changed_t changed, void *userdata, ServiceManager **ret) {
        ServiceManager *s;

        s = new0(ServiceManager, 1);
        if (!s)
                return -ENOMEM;

        s->changed = changed;
        s->userdata = userdata;
        *ret = s;
        return 0;
}

ServiceManager* service_manager_free(ServiceManager *s) {
        if (!s)
                return NULL;

        while (s->watches) {
                Watch *w = s->watches;

                s->watches = w->next;
                watch_free(w);
        }
        (void) service_manager_set_bus(s, NULL);
        free(s);
        return NULL;
}
