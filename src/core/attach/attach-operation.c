/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "activation-sockets.h"
#include "attach-operation.h"
#include "attach.h"
#include "cgroup.h"
#include "custom-probe.h"
#include "group-walk.h"
#include "log.h"
#include "manager.h"
#include "observe.h"
#include "observer.h"
#include "openssl.h"
#include "service-manager.h"
#include "threshold-monitor.h"
#include "unit-internal.h"
#include "unit-table.h"

/* Limit of pending attaches, as each takes memory. PID 1 replies within milliseconds, and a unit with many
 * control groups takes a second. */
#define OPERATIONS_MAX 1024U

struct AttachOperation {
        Manager *manager;
        AttachOperation *next;
        ServiceManagerCall *call;

        char *written;                  /* name as passed by the client */
        char *name;                     /* mangled */
        char *owner;
        AttachRequest request;          /* strings point to the above */
        QosErrorCode suggest_code;
        char *suggest_message;
        Unit *unit;                     /* the attached unit, while its control groups are being assigned;
                                         * NULL: not attached yet */

        manager_attach_handler_t handler;
        void *userdata;
};

static AttachOperation* attach_operation_free(AttachOperation *o) {
        if (!o)
                return NULL;

        for (AttachOperation **p = &o->manager->attaches.operations; *p; p = &(*p)->next)
                if (*p == o) {
                        *p = o->next;
                        break;
                }
        service_manager_call_free(o->call);
        free(o->written);
        free(o->name);
        free(o->owner);
        free(o->suggest_message);
        free(o);
        return NULL;
}

AttachOperation* attach_operation_cancel(AttachOperation *o) {
        return attach_operation_free(o);
}

/* Calls the handler, exactly once, and frees o. */
static void attach_operation_finish(AttachOperation *o, int error, const QosError *e, Unit *u) {
        manager_attach_handler_t handler = o->handler;
        void *userdata = o->userdata;
        Manager *m = o->manager;

        attach_operation_free(o);
        handler(m, error, e, u, userdata);
}

/* Whether programs of the unit are still being loaded, its control groups assigned, or its processes scanned
 * for libraries: the next connection after the reply is measured with all probes. */
static bool attach_operation_is_pending(const AttachOperation *o, const Unit *u) {
        return o->manager->programs.start || unit_is_claiming(u) ||
               unit_awaits_custom(u, o->request.probes) || unit_awaits_libraries(u);
}

/* To be called when the unit is attached: finishes as soon as nothing is pending. Returns whether it has
 * finished. */
static bool attach_operation_attached(AttachOperation *o, Unit *u) {
        if (attach_operation_is_pending(o, u)) {
                o->unit = u;
                return false;
        }
        attach_operation_finish(o, 0, NULL, u);
        return true;
}

/* To be called when something is no longer pending, or the unit is about to be detached. */
static void attach_operations_end(Unit *u, bool detached) {
        AttachOperation *next;

        for (AttachOperation *o = u->manager->attaches.operations; o; o = next) {
                _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
                int r = 0;

                next = o->next;
                if (o->unit != u || (!detached && attach_operation_is_pending(o, u)))
                        continue;
                if (detached)
                        r = qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, u->name,
                                          "'%s' was detached before its programs were loaded and its "
                                          "control groups assigned",
                                          u->name);
                attach_operation_finish(o, r, &e, detached ? NULL : u);
        }
}

/* error is ignored: the message has no suggestions then. */
static void on_suggestions(int error, const char *names, void *userdata) {
        AttachOperation *o = ASSERT_PTR(userdata);
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        int r;

        o->call = NULL;
        if (isempty(names))
                r = qos_error_set(&e, o->suggest_code, o->name, "%s", o->suggest_message);
        else
                r = qos_error_set(&e, o->suggest_code, o->name, "%s. Did you mean %s?", o->suggest_message,
                                  names);
        attach_operation_finish(o, r, &e, NULL);
}

/* Finishes with an error that suggests active instances: the name is that of a template, or of a service
 * without processes. */
static void attach_operation_suggest(AttachOperation *o, QosErrorCode code, const char *message) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *stem = NULL, *pattern = NULL;
        int r;

        stem = strndup(o->name, strcspn(o->name, "@."));
        o->suggest_message = strdup(message);
        o->suggest_code = code;
        if (!stem || !o->suggest_message || asprintf(&pattern, "%s@*.service", stem) < 0) {
                pattern = NULL;
                attach_operation_finish(o, -ENOMEM, &e, NULL);
                return;
        }

        r = service_manager_list(o->manager->service_manager, pattern, on_suggestions, o, &o->call);
        if (r < 0)
                on_suggestions(r, "", o);
}

static void on_unit_resolved(int error, const char *message, const UnitInfo *info, void *userdata) {
        static const char *const suffixes[] = { ".service", ".scope", ".slice", ".socket" };
        AttachOperation *o = ASSERT_PTR(userdata);
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_free_ char *control_group = NULL;
        bool has_group = false;
        Unit *u = NULL;
        int r;

        o->call = NULL;

        if (error < 0) {
                r = qos_error_set(&e, QOS_ERROR_SERVICE_MANAGER_FAILED, o->name,
                                  "failed to query '%s': %s", o->name, message);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        if (!streq(info->load_state, "loaded") && !streq(info->load_state, "masked")) {
                r = qos_error_set(&e, QOS_ERROR_NO_SUCH_UNIT, o->written, "there is no unit '%s' (%s)",
                                  o->name, info->load_state);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++)
                has_group = has_group || endswith(info->id, suffixes[i]);
        if (!has_group) {
                r = qos_error_set(&e, QOS_ERROR_NO_CONTROL_GROUP, info->id,
                                  "'%s' has no control group, expected a service, scope, slice or socket",
                                  info->id);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        if (endswith(info->id, ".socket") && !info->accept && info->triggers) {
                r = qos_error_set(&e, QOS_ERROR_NO_CONTROL_GROUP, info->id,
                                  "'%s' activates '%s', attach that unit instead", info->id,
                                  info->triggers);
                attach_operation_finish(o, r, &e, NULL);
                return;
        }

        if (streq(info->active_state, "active") && streq(info->lifecycle.sub_state, "exited")) {
                _cleanup_free_ char *text = NULL;

                if (asprintf(&text, "'%s' is active (exited) and runs no process", info->id) < 0)
                        text = NULL;
                attach_operation_suggest(o, QOS_ERROR_NO_CONTROL_GROUP, text ?: "");
                return;
        }

        r = 0;
        if (!isempty(info->control_group)) {
                control_group = strdup(info->control_group);
                if (!control_group)
                        r = -ENOMEM;
        } else
                r = unit_get_default_control_group(info->id, info->slice, &control_group);
        if (r == -EINVAL)
                r = qos_error_set(&e, QOS_ERROR_NO_CONTROL_GROUP, info->id,
                                  "'%s' has no control group (%s)", info->id, info->load_state);
        if (r >= 0)
                r = manager_attach_unit(o->manager, &o->request, &(UnitInfo) {
                        .id = info->id,
                        .control_group = control_group,
                        .instances = info->instances,
                        .active_state = info->active_state,
                        .invocation_id = info->invocation_id,
                }, &u, &e);
        if (r >= 0) {
                unit_set_lifecycle(u, &info->lifecycle);
                if (free_and_strdup(&u->aliases, info->names) < 0)
                        (void) log_oom();
                unit_set_sockets(u, info);
                (void) attach_operation_attached(o, u);
        } else
                attach_operation_finish(o, r, &e, NULL);
}

/* Returns whether the handler was called. */
static bool attach_path(AttachOperation *o) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_close_ int fd = -EBADF;
        Unit *u = NULL;
        int r;

        fd = cgroup_open(o->name);
        if (fd < 0)
                r = qos_error_set(&e, QOS_ERROR_NO_SUCH_UNIT, o->written, "there is no control group '%s'",
                                  o->name);
        else
                r = manager_attach_unit(o->manager, &o->request,
                                        &(UnitInfo) { .id = o->name, .control_group = o->name,
                                                      .active_state = "active" }, &u, &e);
        if (r >= 0)
                return attach_operation_attached(o, u);
        attach_operation_finish(o, r, &e, NULL);
        return true;
}

int manager_attach(Manager *m, const AttachRequest *request, manager_attach_handler_t handler,
                   void *userdata, AttachOperation **ret_operation) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        AttachOperation *o;
        unsigned n = 0;
        const char *at;
        int r;

        if (ret_operation)
                *ret_operation = NULL;

        for (AttachOperation *i = m->attaches.operations; i; i = i->next)
                n++;
        if (n >= OPERATIONS_MAX) {
                r = qos_error_set(&e, QOS_ERROR_SERVICE_MANAGER_FAILED, request->name,
                                  "%u attaches are pending already", n);
                handler(m, r, &e, NULL, userdata);
                return 0;
        }

        o = new0(AttachOperation, 1);
        if (!o)
                return -ENOMEM;
        *o = (AttachOperation) {
                .manager = m,
                .next = m->attaches.operations,
                .handler = handler,
                .userdata = userdata,
                .request = *request,
                .written = strdup(request->name),
                .owner = request->owner ? strdup(request->owner) : NULL,
        };
        m->attaches.operations = o;
        if (!o->written || (request->owner && !o->owner)) {
                attach_operation_free(o);
                return -ENOMEM;
        }
        o->request.name = o->written;
        o->request.owner = o->owner;
        if (o->request.probes == 0)
                o->request.probes = m->config.default_probes;

        r = unit_name_complete(o->written, &o->name, &e);
        if (r < 0) {
                attach_operation_finish(o, r, &e, NULL);
                return 0;
        }

        if (o->name[0] == '/') {
                if (!attach_path(o) && ret_operation)
                        *ret_operation = o;
                return 0;
        }

        at = strchr(o->name, '@');
        if (at && at[1] == '.' && !strchr(at + 2, '@')) {
                if (ret_operation)
                        *ret_operation = o;
                attach_operation_suggest(o, QOS_ERROR_NO_SUCH_UNIT,
                                         "a template has no processes, expected an instance of it");
                return 0;
        }

        if (ret_operation)
                *ret_operation = o;
        r = service_manager_load(m->service_manager, o->name, on_unit_resolved, o, &o->call);
        if (r < 0) {
                r = qos_error_set(&e, QOS_ERROR_SERVICE_MANAGER_FAILED, o->name,
                                  "failed to query '%s': %s", o->name,
                                  strerror(-r));
                if (ret_operation)
                        *ret_operation = NULL;
                attach_operation_finish(o, r, &e, NULL);
        }
        return 0;
}

static void on_unit_claimed(Unit *u, void *userdata) {
        unit_complete_claim(u);
        attach_operations_end(u, /* detached= */ false);
}

static void on_unit_changed(Unit *u, void *userdata) {
        attach_operations_end(u, /* detached= */ false);
}

static void on_unit_detaching(Unit *u, void *userdata) {
        attach_operations_end(u, /* detached= */ true);
}

static void on_programs_loaded(Manager *m, void *userdata) {
        FOREACH_UNIT(u, m)
                attach_operations_end(u, /* detached= */ false);
}

void attach_operations_init(Manager *m) {
        m->attaches.observer = (ManagerObserver) {
                .unit_changed = on_unit_changed,
                .unit_claimed = on_unit_claimed,
                .unit_detaching = on_unit_detaching,
                .programs_loaded = on_programs_loaded,
        };
        manager_add_observer(m, &m->attaches.observer);
}

void attach_operations_done(Manager *m) {
        while (m->attaches.operations)
                attach_operation_free(m->attaches.operations);
        manager_remove_observer(m, &m->attaches.observer);
}
