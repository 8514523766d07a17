/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "group-walk.h"
#include "service-manager.h"
#include "unit-query.h"

/* Limit of queries that wait for PID 1: a quarter of all concurrent calls, as every user may query units
 * that are not attached. Beyond it the error is NotAttached. */
#define UNIT_QUERIES_MAX 16U

struct UnitQuery {
        Manager *manager;
        ServiceManagerCall *call;
        char *written;                  /* name as passed by the client */
        char *name;                     /* completed */
        unit_query_handler_t handler;
        void *userdata;
};

UnitQuery* unit_query_free(UnitQuery *q) {
        if (!q)
                return NULL;

        q->manager->readings.n_queries--;
        service_manager_call_free(q->call);
        free(q->written);
        free(q->name);
        free(q);
        return NULL;
}

static void on_unit_loaded(int error, const char *message, const UnitInfo *info, void *userdata) {
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        UnitQuery *q = ASSERT_PTR(userdata);
        unit_query_handler_t handler = q->handler;
        void *handler_userdata = q->userdata;

        q->call = NULL;
        if (error == -ENOENT)
                (void) qos_error_set(&e, QOS_ERROR_NO_SUCH_UNIT, q->written, "there is no unit '%s' (%s)",
                                     q->name, message);
        else if (error >= 0 && streq(info->load_state, "not-found"))
                (void) qos_error_set(&e, QOS_ERROR_NO_SUCH_UNIT, q->written, "there is no unit '%s'",
                                     q->name);
        else
                (void) qos_error_set(&e, QOS_ERROR_NOT_ATTACHED, q->name, "'%s' is not attached", q->name);
        unit_query_free(q);
        handler(&e, handler_userdata);
}

int unit_query_new(Manager *m, const char *written, QosError *e, unit_query_handler_t handler,
                   void *userdata, UnitQuery **ret) {
        UnitQuery *q;

        if (e->code != QOS_ERROR_NOT_ATTACHED)
                return 0;

        if (e->argument[0] == '/') {
                _cleanup_close_ int fd = cgroup_open(e->argument);

                if (fd == -ENOENT) {
                        qos_error_done(e);
                        (void) qos_error_set(e, QOS_ERROR_NO_SUCH_UNIT, written,
                                             "there is no control group '%s'", written);
                }
                return 0;
        }

        if (m->readings.n_queries >= UNIT_QUERIES_MAX)
                return 0;
        q = new0(UnitQuery, 1);
        if (!q)
                return 0;
        *q = (UnitQuery) {
                .manager = m,
                .written = strdup(written),
                .name = strdup(e->argument),
                .handler = handler,
                .userdata = userdata,
        };
        m->readings.n_queries++;
        if (!q->written || !q->name ||
            service_manager_load(m->service_manager, q->name, on_unit_loaded, q, &q->call) < 0) {
                unit_query_free(q);
                return 0;
        }

        *ret = q;
        return 1;
}
