/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The only file that knows PID 1: what a unit is, where its control group is or will be, and when that
 * changes. All questions are asynchronous. */

#include <systemd/sd-bus.h>
#include <systemd/sd-id128.h>

#include "lifecycle.h"
#include "unit-map.h"
#include "unit.h"

typedef struct ServiceManager ServiceManager;
typedef struct ServiceManagerCall ServiceManagerCall;

typedef struct UnitInfo {
        const char *id;                 /* canonical name, aliases resolved */
        const char *names;              /* all of them, space separated */
        const char *load_state;         /* "loaded", "not-found", "masked"... */
        const char *active_state;       /* "active", "inactive"... */
        Lifecycle lifecycle;
        const char *control_group;      /* empty while it has none */
        const char *slice;              /* the slice it lives in; NULL for units without control group */
        bool accept;                    /* a socket of which each connection is a service of its own */
        const char *triggers;           /* of a socket: the units it starts, space separated; NULL: none */
        const char *instances;          /* with accept: how the paths of their control groups begin; NULL:
                                         * not known */
        const char *socket_groups;      /* control groups of the sockets that start this service and no
                                         * other, space separated; or NULL */
        const struct qos_address *listen; /* TCP: of the socket, or of all sockets that start the service */
        size_t n_listen;
        char **files;                   /* its unit file, then drop-ins in the order they are read; NULL:
                                         * none */
        sd_id128_t invocation_id;
} UnitInfo;

/* error < 0: message is PID 1's, or says that it could not be asked; info is NULL. -ENOENT: no unit can have
 * that name. Valid during the call. */
typedef void (*service_manager_unit_handler_t)(int error, const char *message, const UnitInfo *info,
                                               void *userdata);
/* names: space separated; empty when there are none. error < 0: it could not be asked, or not all of the
 * answer could be read; names is empty. */
typedef void (*service_manager_list_handler_t)(int error, const char *names, void *userdata);
/* Something about this unit may have changed (name NULL: about any, also when the service manager is there,
 * or has read all unit files anew). A socket is named when it was started or stopped,
 * also one that is not watched. */
typedef void (*service_manager_changed_t)(const char *name, void *userdata);

/* A unit was loaded, or is no longer. While all unit files are read anew any unit may be told to have gone,
 * and come. */
typedef void (*service_manager_loaded_t)(const char *name, bool loaded, void *userdata);

int service_manager_new(service_manager_changed_t changed, void *userdata, ServiceManager **ret);
ServiceManager* service_manager_free(ServiceManager *s);

/* The bus to ask on; NULL while it is away. Pending questions are answered with an error. */
int service_manager_set_bus(ServiceManager *s, sd_bus *bus);

int service_manager_load(ServiceManager *s, const char *name, service_manager_unit_handler_t handler,
                         void *userdata, ServiceManagerCall **ret);
/* The units that are loaded and match a pattern, all of them. */
int service_manager_list_loaded(ServiceManager *s, const char *pattern,
                                service_manager_list_handler_t handler, void *userdata,
                                ServiceManagerCall **ret);
/* A few of the active units that match a pattern. */
int service_manager_list(ServiceManager *s, const char *pattern, service_manager_list_handler_t handler,
                         void *userdata, ServiceManagerCall **ret);
ServiceManagerCall* service_manager_call_free(ServiceManagerCall *c);

/* Reports changes of this unit through the handler until unwatched. */
int service_manager_watch(ServiceManager *s, const char *name);
void service_manager_unwatch(ServiceManager *s, const char *name);

/* Tells of all units that are loaded from now on; handler NULL: no longer. */
int service_manager_listen_loaded(ServiceManager *s, service_manager_loaded_t handler, void *userdata);

/* Is it in a space separated list? names may be NULL. */
bool names_contain(const char *names, const char *name);


/* "127.0.0.1:80", "[::]:80", as PID 1 writes them. -EAFNOSUPPORT for what is no TCP address. */
int listen_address_parse(const char *s, struct qos_address *ret);

/* Where PID 1 puts the control group of a unit that is not running: "/system.slice/nginx.service". */
int unit_get_default_control_group(const char *name, const char *slice, char **ret);
