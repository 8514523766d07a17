/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "log.h"
#include "polkit.h"
#include "util.h"

/* Limit of pending queries, of all users and of each: a query may be pending for minutes if the user is
 * prompted for a password, and forever if the agent never replies. */
#define QUERIES_MAX 256U
#define QUERIES_PER_UID_MAX 32U

#define POLKIT_NAME "org.freedesktop.PolicyKit1"
#define POLKIT_PATH "/org/freedesktop/PolicyKit1/Authority"
#define POLKIT_INTERFACE "org.freedesktop.PolicyKit1.Authority"

#define FLAG_INTERACTIVE 1U

struct PolkitQuery {
        sd_bus_slot *slot;
        polkit_handler_t handler;
        void *userdata;
        uid_t uid;
        char id[32];            /* cancellation ID */
        PolkitQuery *next;
};

static PolkitQuery *queries = NULL;
static uint64_t last_id = 0;
static sd_bus *connection = NULL;       /* for queries with a file descriptor; NULL: none yet */
static bool unavailable = false;        /* the last query failed, which was logged */

PolkitQuery* polkit_query_free(PolkitQuery *q) {
        if (!q)
                return NULL;

        /* Otherwise the user would still be prompted for a password */
        if (q->slot)
                (void) sd_bus_call_method_async(sd_bus_slot_get_bus(q->slot), NULL, POLKIT_NAME, POLKIT_PATH,
                                                POLKIT_INTERFACE,
                                                "CancelCheckAuthorization", NULL, NULL, "s", q->id);

        for (PolkitQuery **p = &queries; *p; p = &(*p)->next)
                if (*p == q) {
                        *p = q->next;
                        break;
                }
        sd_bus_slot_unref(q->slot);
        free(q);
        return NULL;
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        PolkitQuery *q = ASSERT_PTR(userdata);
        polkit_handler_t handler = q->handler;
        void *data = q->userdata;
        int r, authorized = false, challenge = false;

        if (sd_bus_message_is_method_error(m, NULL)) {
                const sd_bus_error *e = sd_bus_message_get_error(m);

                r = -sd_bus_error_get_errno(e);
                if (!unavailable)
                        log_warning("Failed to query polkit, denying: %s", e->message);
                unavailable = true;
        } else {
                r = sd_bus_message_enter_container(m, 'r', "bba{ss}");
                if (r >= 0)
                        r = sd_bus_message_read(m, "bb", &authorized, &challenge);
                unavailable = false;
        }

        q->slot = sd_bus_slot_unref(q->slot);
        polkit_query_free(q);
        handler(r < 0 ? r : authorized ? 1 : challenge ? POLKIT_NEEDS_INTERACTION : 0, data);
        return 0;
}

static int query_new(sd_bus *bus, uid_t uid, sd_bus_message **ret) {
        unsigned n = 0, own = 0;

        for (const PolkitQuery *q = queries; q; q = q->next) {
                n++;
                own += q->uid == uid;
        }
        if (n >= QUERIES_MAX || own >= QUERIES_PER_UID_MAX)
                return -EBUSY;

        return sd_bus_message_new_method_call(bus, ret, POLKIT_NAME, POLKIT_PATH, POLKIT_INTERFACE,
                                              "CheckAuthorization");
}

static int query_send(const PolkitRequest *request, sd_bus *bus, sd_bus_message *m, uid_t uid,
                      PolkitQuery **ret) {
        PolkitQuery *q;
        int r;

        q = new0(PolkitQuery, 1);
        if (!q)
                return -ENOMEM;
        q->handler = request->handler;
        q->userdata = request->userdata;
        (void) snprintf(q->id, sizeof(q->id), "qosd-%llu", (unsigned long long) ++last_id);
        q->uid = uid;
        q->next = queries;
        queries = q;

        /* No timeout while the user may be prompted */
        r = sd_bus_message_append(m, "sa{ss}us", request->action, 0,
                                  request->interactive ? FLAG_INTERACTIVE : 0, q->id);
        if (r >= 0)
                r = sd_bus_call_async(bus, &q->slot, m, on_reply, q, request->interactive ? UINT64_MAX : 0);
        if (r < 0) {
                polkit_query_free(q);
                return r;
        }

        *ret = q;
        return 0;
}

int polkit_query_bus(const PolkitRequest *request, sd_bus_message *caller, uid_t uid, PolkitQuery **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        const char *sender;
        int r;

        sender = sd_bus_message_get_sender(caller);
        if (!sender)
                return -EBADMSG;

        r = query_new(request->bus, uid, &m);
        if (r < 0)
                return r;
        r = sd_bus_message_append(m, "(sa{sv})", "system-bus-name", 1, "name", "s", sender);
        if (r < 0)
                return r;
        return query_send(request, request->bus, m, uid, ret);
}

/* Returns a connection that passes file descriptors, which the daemon's own one does not, see
 * bus_open_system(). It is opened at the first query, and again after a restart of the bus. */
static int connection_get(sd_bus *bus, sd_bus **ret) {
        int r;

        if (sd_bus_can_send(bus, SD_BUS_TYPE_UNIX_FD) > 0) {
                *ret = bus;
                return 0;
        }

        if (connection && sd_bus_is_open(connection) <= 0)
                connection = sd_bus_close_unref(connection);
        if (!connection) {
                r = sd_bus_open_system_with_description(&connection, "qosd-polkit");
                if (r < 0)
                        return r;
                r = sd_bus_attach_event(connection, sd_bus_get_event(bus), SD_EVENT_PRIORITY_NORMAL);
                if (r < 0) {
                        connection = sd_bus_close_unref(connection);
                        return r;
                }
        }
        *ret = connection;
        return 0;
}

int polkit_query_varlink(const PolkitRequest *request, sd_varlink *link, PolkitQuery **ret) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        sd_bus *bus;
        int r, pidfd;
        uid_t uid;

        r = sd_varlink_get_peer_uid(link, &uid);
        if (r < 0)
                return r;
        /* A PID may be reused before polkit reads it */
        pidfd = sd_varlink_get_peer_pidfd(link);
        if (pidfd < 0)
                return pidfd;

        r = connection_get(request->bus, &bus);
        if (r < 0)
                return r;
        r = query_new(bus, uid, &m);
        if (r < 0)
                return r;
        r = sd_bus_message_append(m, "(sa{sv})", "unix-process", 2, "pidfd", "h", pidfd, "uid", "i",
                                  (int32_t) uid);
        if (r < 0)
                return r;
        return query_send(request, bus, m, uid, ret);
}
