/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Client of PID 1, and the only module that talks to it: resolves units and their control groups, and
 * reports changes. Calls are asynchronous. */

#include <systemd/sd-bus.h>
#include <systemd/sd-id128.h>

#include "lifecycle.h"
#include "unit-map.h"

typedef struct ServiceManager ServiceManager;
typedef struct ServiceManagerCall ServiceManagerCall;

typedef struct UnitInfo {
        const char *id;                 /* canonical name, aliases resolved */
        const char *names;              /* all names, space separated */
        const char *load_state;         /* "loaded", "not-found", "masked"... */
        const char *active_state;       /* "active", "inactive"... */
        Lifecycle lifecycle;
        const char *control_group;      /* empty if there is none */
        const char *slice;              /* NULL for units without control group */
        bool accept;                    /* a socket with Accept=yes */
        const char *triggers;           /* of a socket: the units it activates, space separated; NULL:
                                         * none */
        const char *instances;          /* with accept: common prefix of the control group paths of its
                                         * instances; NULL: unknown */
        const char *socket_groups;      /* control groups of sockets that activate this service and no other,
                                         * space separated; or NULL */
        const struct qos_address *listen; /* TCP addresses of the socket, or of all sockets that activate the
                                           * service */
        size_t n_listen;
        char **files;                   /* unit file and drop-ins, in the order read by PID 1; NULL: none */
        sd_id128_t invocation_id;
} UnitInfo;

/* error < 0: message is the error of PID 1 or of the call; info is NULL. -ENOENT: not a valid unit name.
 * message and info are valid during the call only. */
typedef void (*service_manager_unit_handler_t)(int error, const char *message, const UnitInfo *info,
                                               void *userdata);
/* names: space separated; may be empty. error < 0: the call failed, or its reply was incomplete; names is
 * empty. */
typedef void (*service_manager_list_handler_t)(int error, const char *names, void *userdata);
/* The unit may have changed (name NULL: any unit, also after a reconnect or a daemon-reload). Sockets are
 * reported when started or stopped, watched or not. */
typedef void (*service_manager_changed_t)(const char *name, void *userdata);

/* A unit was loaded or unloaded. During a daemon-reload, any unit may be reported as unloaded and loaded. */
typedef void (*service_manager_loaded_t)(const char *name, bool loaded, void *userdata);

int service_manager_new(service_manager_changed_t changed, void *userdata, ServiceManager **ret);
ServiceManager* service_manager_free(ServiceManager *s);

/* Sets the bus; NULL while disconnected. Pending calls fail. */
int service_manager_set_bus(ServiceManager *s, sd_bus *bus);

/* Loads a unit and queries its properties. The handler is called once, unless the call is freed before. */
int service_manager_load(ServiceManager *s, const char *name, service_manager_unit_handler_t handler,
                         void *userdata, ServiceManagerCall **ret);
/* Lists all loaded units that match a pattern. */
int service_manager_list_loaded(ServiceManager *s, const char *pattern,
                                service_manager_list_handler_t handler, void *userdata,
                                ServiceManagerCall **ret);
/* Lists a few of the active units that match a pattern, as suggestions. */
int service_manager_list(ServiceManager *s, const char *pattern, service_manager_list_handler_t handler,
                         void *userdata, ServiceManagerCall **ret);
ServiceManagerCall* service_manager_call_free(ServiceManagerCall *c);

/* Reports changes of the unit through the handler until unwatched. */
int service_manager_watch(ServiceManager *s, const char *name);
void service_manager_unwatch(ServiceManager *s, const char *name);

/* Reports units when they are loaded and unloaded; handler NULL: stop. */
int service_manager_listen_loaded(ServiceManager *s, service_manager_loaded_t handler, void *userdata);

/* Whether a space separated list (may be NULL) contains the word. */
bool names_contain(const char *names, const char *name);


/* Parses "127.0.0.1:80" or "[::]:80", as formatted by PID 1. -EAFNOSUPPORT: not a TCP address. */
int listen_address_parse(const char *s, struct qos_address *ret);

/* Control group path that PID 1 will use for an inactive unit: "/system.slice/nginx.service". */
int unit_get_default_control_group(const char *name, const char *slice, char **ret);
