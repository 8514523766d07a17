/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "dbus-reply.h"

/* Methods of BUS_PATH with all units in the reply, which is built over several turns. */
typedef struct ReplyType {
        const char *interface, *member;
        const char *arguments;          /* signature; an argument is the name of a unit, empty for all */
        const char *contents;           /* element type of the array in the reply */
        int (*append)(DBusUnits *objects, Unit *u, sd_bus_message *m);
} ReplyType;

struct UnitsReply {
        const ReplyType *type;
        DBusUnits *objects;
        sd_bus_message *call, *reply;
        Unit *units[UNITS_MAX_LIMIT];   /* by slot; NULL: none, or detached meanwhile */
        unsigned next;                  /* slot of the unit to be added next */
};

static int append_thresholds(DBusUnits *objects, Unit *u, sd_bus_message *m) {
        return unit_append_thresholds(u, m);
}

static const ReplyType reply_types[] = {
        { "org.freedesktop.DBus.ObjectManager", "GetManagedObjects", "",  "{oa{sa{sv}}}",
          unit_objects_append },
        { "org.qosd1.Manager",                  "ListThresholds",    "s", BUS_THRESHOLD_SIGNATURE,
          append_thresholds   },
};

/* NULL: the call is none of these methods with all units in the reply. */
static const ReplyType* find_type(sd_bus_message *call) {
        const char *interface = sd_bus_message_get_interface(call), *unit = "";
        const ReplyType *t = NULL;

        if (!streq_ptr(sd_bus_message_get_path(call), BUS_PATH))
                return NULL;
        for (size_t i = 0; i < ELEMENTSOF(reply_types); i++)
                if (sd_bus_message_is_method_call(call, NULL, reply_types[i].member) > 0 &&
                    (!interface || streq(interface, reply_types[i].interface)))
                        t = reply_types + i;
        /* sd-bus replies to other arguments with an error */
        if (!t || sd_bus_message_has_signature(call, t->arguments) <= 0)
                return NULL;
        if (!isempty(t->arguments) && sd_bus_message_read(call, "s", &unit) < 0)
                return NULL;
        (void) sd_bus_message_rewind(call, /* complete= */ true);
        return isempty(unit) ? t : NULL;
}

bool units_reply_is_for(sd_bus_message *call) {
        return find_type(call);
}

int units_reply_new(DBusUnits *objects, Manager *m, sd_bus_message *call, UnitsReply **ret) {
        const ReplyType *type = find_type(call);
        UnitsReply *r;

        if (!type)
                return -EOPNOTSUPP;
        r = new0(UnitsReply, 1);
        if (!r)
                return -ENOMEM;
        r->type = type;
        r->objects = objects;
        r->call = sd_bus_message_ref(call);
        FOREACH_UNIT(u, m)
                r->units[u->index] = u;

        *ret = r;
        return 0;
}

UnitsReply* units_reply_free(UnitsReply *r) {
        if (!r)
                return NULL;

        sd_bus_message_unref(r->reply);
        sd_bus_message_unref(r->call);
        free(r);
        return NULL;
}

static int units_reply_begin(UnitsReply *r) {
        int k;

        k = sd_bus_message_new_method_return(r->call, &r->reply);
        return k < 0 ? k : sd_bus_message_open_container(r->reply, 'a', r->type->contents);
}

int units_reply_continue(UnitsReply *r, uint64_t end) {
        int k = 0;

        if (!r->reply)
                k = units_reply_begin(r);
        while (k >= 0 && r->next < UNITS_MAX_LIMIT) {
                Unit *u = r->units[r->next++];

                if (!u)
                        continue;
                k = r->type->append(r->objects, u, r->reply);
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

/* Begins the message again without the unit, as units cannot be removed from it. This is necessary at most
 * once for each unit that the message had. */
void units_reply_forget(UnitsReply *r, const Unit *u) {
        if (r->units[u->index] != u)
                return;

        r->units[u->index] = NULL;
        if (u->index >= r->next)
                return;
        r->reply = sd_bus_message_unref(r->reply);
        r->next = 0;
}
