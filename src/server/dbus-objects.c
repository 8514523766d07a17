/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "dbus-objects.h"

struct ObjectsReply {
        DBusUnits *objects;
        sd_bus_message *call, *reply;
        Unit *units[UNITS_MAX_LIMIT];   /* by slot; NULL: none, or it is detached since */
        unsigned next;                  /* slot of the unit to be added next */
};

bool objects_reply_is_for(sd_bus_message *call) {
        /* sd-bus has an error for one with arguments */
        return sd_bus_message_is_method_call(call, "org.freedesktop.DBus.ObjectManager",
                                             "GetManagedObjects") > 0 &&
               streq_ptr(sd_bus_message_get_path(call), BUS_PATH) && sd_bus_message_is_empty(call) > 0;
}

int objects_reply_new(DBusUnits *objects, Manager *m, sd_bus_message *call, ObjectsReply **ret) {
        ObjectsReply *r;

        r = new0(ObjectsReply, 1);
        if (!r)
                return -ENOMEM;
        r->objects = objects;
        r->call = sd_bus_message_ref(call);
        FOREACH_UNIT(u, m)
                r->units[u->index] = u;

        *ret = r;
        return 0;
}

ObjectsReply* objects_reply_free(ObjectsReply *r) {
        if (!r)
                return NULL;

        sd_bus_message_unref(r->reply);
        sd_bus_message_unref(r->call);
        free(r);
        return NULL;
}

static int objects_reply_begin(ObjectsReply *r) {
        int k;

        k = sd_bus_message_new_method_return(r->call, &r->reply);
        return k < 0 ? k : sd_bus_message_open_container(r->reply, 'a', "{oa{sa{sv}}}");
}

int objects_reply_continue(ObjectsReply *r, uint64_t end) {
        int k = 0;

        if (!r->reply)
                k = objects_reply_begin(r);
        while (k >= 0 && r->next < UNITS_MAX_LIMIT) {
                Unit *u = r->units[r->next++];

                if (!u)
                        continue;
                k = unit_objects_append(r->objects, u, r->reply);
                if (k >= 0 && now_nsec(CLOCK_MONOTONIC) >= end)
                        return 1;
        }
        if (k >= 0)
                k = sd_bus_message_close_container(r->reply);
        if (k >= 0)
                k = sd_bus_send(NULL, r->reply, NULL);
        if (k < 0)
                (void) sd_bus_reply_method_errno(r->call, k, NULL);
        return MIN(k, 0);
}

/* A message cannot have an object taken out of it: what is in it is added anew. This happens once for each
 * unit of the first turn at most. */
void objects_reply_forget(ObjectsReply *r, const Unit *u) {
        if (r->units[u->index] != u)
                return;

        r->units[u->index] = NULL;
        if (u->index >= r->next)
                return;
        r->reply = sd_bus_message_unref(r->reply);
        r->next = 0;
}
