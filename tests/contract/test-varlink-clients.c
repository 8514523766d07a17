/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Clients of org.qosd.QoS: streams, permissions, limits, and clients that misbehave. */

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <systemd/sd-varlink.h>

#include "connect.h"
#include "util-varlink-daemon.h"
#include "varlink-connection.h"
#include "varlink-io.h"
#include "varlink-listen.h"
#include "varlink-server.h"

/* ---- streams ------------------------------------------------------------------------------------------ */

static uint64_t expect_frame(Client *c, const char *unit) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(c, "Subscribe");
        sd_json_variant *snapshot = message_parameter(v, "snapshot");

        check(message_continues(v));
        check(!unit || streq(sd_json_variant_string(sd_json_variant_by_key(snapshot, "unit")), unit));
        return sd_json_variant_unsigned(sd_json_variant_by_key(snapshot, "seq"));
}

static void test_subscribe(void) {
        _cleanup_client_ Client *c = client_new(0), *named = client_new(0), *all = client_new(0);
        uint64_t seq, next;

        call_fails(c, "more", "Subscribe", "{\"interval\":99999999}", INVALID_PARAMETER, "parameter",
                   "interval");
        call_fails(c, "more", "Subscribe", "{\"interval\":0}", INVALID_PARAMETER, "parameter", "interval");
        call_fails(c, "more", "Subscribe", "{\"interval\":18446744073709551615}", INVALID_PARAMETER,
                   "parameter", "interval");
        call_fails(c, "more", "Subscribe", "{\"window\":5}", INVALID_PARAMETER, "parameter", "window");
        call_fails(c, "more", "Subscribe", "{\"units\":[\"a\"]}", PREFIX "NotAttached", "unit", NULL);
        call_fails(c, "more", "Subscribe", "{\"units\":[\"a b\"]}", PREFIX "InvalidUnitName", "unit",
                   NULL);
        call_fails(c, NULL, "Subscribe", "{}", "org.varlink.service.ExpectedMore", NULL, NULL);

        /* Without attached units the stream is silent */
        client_send(all, "more", "Subscribe", "{\"units\":[],\"interval\":100000000}");
        settle();
        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        seq = expect_frame(all, "a.service");
        next = expect_frame(all, "a.service");
        check(next > seq);

        call_succeeds(c, "Attach", "{\"unit\":\"b\"}");
        client_send(named, "more", "Subscribe",
                    "{\"units\":[\"b\",\"b.service\",\"alias\"],\"interval\":100000000}");
        (void) expect_frame(named, "a.service");
        (void) expect_frame(named, "b.service");

        /* Units are detached, the last one at the end */
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
        (void) expect_frame(named, "b.service");
        (void) expect_frame(named, "b.service");
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
        client_expect_error(named, PREFIX "NotAttached", "unit", "b.service");

        /* The connection can be used for another call, and the stream of all units continues */
        call_succeeds(named, "GetStatus", "{}");
        call_succeeds(c, "Attach", "{\"unit\":\"b\"}");
        for (;;) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(all, "Subscribe");
                sd_json_variant *unit = sd_json_variant_by_key(message_parameter(v, "snapshot"), "unit");

                if (streq(sd_json_variant_string(unit), "b.service") && manager->units.n == 1)
                        break;
        }
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");

        /* Other clients disconnect meanwhile */
        all = client_free(all);
        settle();
        call_succeeds(c, "GetStatus", "{}");
}

/* All subscribers get the same readings. */
static void test_shared_stream(void) {
        _cleanup_client_ Client *c = client_new(0), *first = client_new(0), *second = client_new(0);
        uint64_t seq[6];
        unsigned same = 0;

        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        client_send(first, "more", "Subscribe", "{\"interval\":100000000}");
        client_send(second, "more", "Subscribe", "{\"interval\":100000000}");
        for (unsigned i = 0; i < ELEMENTSOF(seq); i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(first,
                                "Subscribe");

                seq[i] = sd_json_variant_unsigned(sd_json_variant_by_key(message_parameter(v, "snapshot"),
                                                                         "seq"));
        }
        for (unsigned i = 0; i < ELEMENTSOF(seq); i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(second,
                                "Subscribe");

                for (unsigned k = 0; k < ELEMENTSOF(seq); k++)
                        same += seq[k] ==
                                sd_json_variant_unsigned(sd_json_variant_by_key(message_parameter(v,
                                                "snapshot"), "seq"));
        }
        /* Each reading of this unit has its own number */
        check(same > 0);
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* A slow reader misses frames, and gets their number; other subscribers get all frames. */
static void test_slow_subscriber(void) {
        _cleanup_client_ Client *c = client_new(0), *slow = client_new(0), *reader = client_new(0);
        uint64_t frames = 0, skipped = 0, most = 0;
        enum { ROUNDS = 400 };

        manager->config.interval_min_usec = USEC_PER_MSEC;
        call_succeeds(c, "Attach", "{\"unit\":\"a\"}");
        client_send(slow, "more", "Subscribe", "{\"interval\":1000000}");
        client_send(reader, "more", "Subscribe", "{\"interval\":1000000}");
        for (unsigned i = 0; i < ROUNDS; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(reader,
                                "Subscribe");

                check(!message_parameter(v, "skipped"));
        }

        while (skipped == 0) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(slow,
                                "Subscribe");
                sd_json_variant *n = message_parameter(v, "skipped");

                frames++;
                if (n)
                        skipped = sd_json_variant_unsigned(n);
                most = MAX(most, frames);
        }
        /* The time of the reader; the difference is the work of the event loop at the end */
        check(frames < ROUNDS / 2);
        check(frames + skipped >= ROUNDS * 9 / 10);

        manager->config.interval_min_usec = 100 * USEC_PER_MSEC;
        call_succeeds(c, "Detach", "{\"unit\":\"a\"}");
}

/* ---- bytes -------------------------------------------------------------------------------------------- */

static void test_pieces(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.GetStatus\"}";
        _cleanup_client_ Client *c = client_new(0);

        /* Byte by byte, with iterations of the event loop in between */
        for (unsigned round = 0; round < 3; round++) {
                for (size_t i = 0; i < sizeof(message); i++) {
                        client_write(c, message + i, 1);
                        settle();
                }
                sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
        }

        /* One and a half, then the rest */
        client_write(c, message, sizeof(message));
        client_write(c, message, sizeof(message) / 2);
        sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
        settle();
        client_write(c, message + sizeof(message) / 2, sizeof(message) - sizeof(message) / 2);
        sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
}

/* Many calls before the first reply is read: none is lost, and they wait in the sockets instead of the
 * daemon. */
static void test_pipeline(void) {
        enum { CALLS = 3000 };
        _cleanup_client_ Client *c = client_new(0);
        _cleanup_free_ char *calls = NULL;
        unsigned replies = 0;
        size_t size = 0, sent = 0;

        calls = new0(char, CALLS * 64);
        check(calls);
        for (unsigned i = 0; i < CALLS; i++)
                size += sprintf(calls + size, "{\"method\":\"org.qosd.QoS.GetStatus\",\"parameters\":{}}") +
                        1;

        /* As many calls as the socket takes, without reading: the daemon stops reading while replies are not
         * sent */
        for (;;) {
                ssize_t n = send(c->fd, calls + sent, size - sent, MSG_NOSIGNAL);

                if (n < 0) {
                        check(errno == EAGAIN);
                        if (sd_event_run(event, 0) == 0)
                                break;
                        continue;
                }
                sent += n;
                if (sent == size)
                        break;
        }
        settle();

        while (replies < CALLS) {
                if (sent < size) {
                        ssize_t n = send(c->fd, calls + sent, size - sent, MSG_NOSIGNAL);

                        if (n > 0)
                                sent += n;
                }
                sd_json_variant_unref(client_expect_reply(c, "GetStatus"));
                replies++;
        }
}

/* Memory that a client without reading can occupy in the daemon: of 3000 times 30 KiB nearly nothing. */
static void test_never_reads(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.ListMetrics\",\"more\":true}";
        _cleanup_client_ Client *c = client_new(0), *other = client_new(0);
        unsigned sent = 0;

        for (;;) {
                ssize_t n = send(c->fd, message, sizeof(message), MSG_NOSIGNAL);

                if (n < 0) {
                        check(errno == EAGAIN);
                        if (sd_event_run(event, 0) == 0)
                                break;
                        continue;
                }
                check((size_t) n == sizeof(message)); /* the kernel takes such a short message as a whole */
                check(++sent < 100000);
        }

        /* That means that it had to wait */
        call_succeeds(other, "GetStatus", "{}");
}

/* As many calls without a reply as the socket takes. */
static unsigned client_fill(Client *c) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.GetStatus\",\"oneway\":true}";
        unsigned n = 0;

        while (send(c->fd, message, sizeof(message), MSG_NOSIGNAL) > 0)
                n++;
        check(errno == EAGAIN);
        return n;
}

/* A client whose socket is always full of calls gets its turns only. */
static void test_flood(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.GetStatus\"}";
        _cleanup_client_ Client *flood = client_new(0), *other = client_new(0);
        unsigned steps = 0;
        ssize_t n;

        check(client_fill(flood) > 100);
        for (unsigned i = 0; i < 100; i++) { /* until it has been served for a while */
                check(sd_event_run(event, 0) > 0);
                (void) client_fill(flood);
        }

        client_write(other, message, sizeof(message));
        while ((n = recv(other->fd, other->buffer, sizeof(other->buffer), 0)) < 0) {
                check(errno == EAGAIN);
                check(++steps <= 10);
                check(sd_event_run(event, 0) > 0);
                (void) client_fill(flood);
        }
        check(n > 0);
}

/* Calls of a client that has disconnected, or does not receive any more, are dropped. */
static void test_dead(void) {
        for (unsigned i = 0; i < 2; i++) {
                _cleanup_client_ Client *dead = client_new(0);
                unsigned steps = 0;

                check(client_fill(dead) > 100);
                if (i == 0)
                        check(shutdown(dead->fd, SHUT_RD) >= 0);
                else
                        dead = client_free(dead);
                while (sd_event_run(event, 0) > 0)
                        check(++steps <= 10);
                check(!dead || (send(dead->fd, "", 1, MSG_NOSIGNAL) < 0 && errno == EPIPE));
        }
}

static void test_oversized(void) {
        static char junk[64 * 1024];
        _cleanup_client_ Client *c = client_new(0), *large = client_new(0), *other = client_new(0);
        _cleanup_free_ char *message = NULL, *name = NULL;
        size_t sent = 0;

        /* Below the limit it is an invalid name only */
        name = new0(char, VARLINK_MESSAGE_MAX - 1024 + 1);
        check(name);
        memset(name, 'x', VARLINK_MESSAGE_MAX - 1024);
        check(asprintf(&message, "{\"unit\":\"%s\"}", name) > 0);
        call_fails(large, NULL, "Get", message, PREFIX "InvalidUnitName", "unit", name);

        /* A message without an end */
        memset(junk, ' ', sizeof(junk));
        for (;;) {
                ssize_t n = send(c->fd, junk, sizeof(junk), MSG_NOSIGNAL);

                if (n > 0)
                        sent += n;
                else if (errno == EPIPE || errno == ECONNRESET)
                        break;
                else {
                        check(errno == EAGAIN);
                        test_run(event);
                }
                check(sent < 4 * 1024 * 1024);
                settle();
        }
        client_expect_end(c);

        call_succeeds(other, "GetStatus", "{}");
}

/* Disconnects the sender. */
static void test_garbage(void) {
        static const struct {
                const char *bytes;
                size_t size;
        } table[] = {
#define BYTES(s) { s, sizeof(s) }
                BYTES(""),
                BYTES("\0\0\0"),
                BYTES("nonsense"),
                BYTES("{"),
                BYTES("{}"),
                BYTES("[]"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":[]}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":{\"unit\":\"\xff\"}}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":{\"unit\":\"a\\u0000b\"}}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"parameters\":{\"unit\":\"a\nb\"}}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"surplus\":1}"),
                BYTES("{\"method\":\"org.qosd.QoS.Get\",\"method\":\"org.qosd.QoS.Get\"}"),
                BYTES("{\"method\":\"org.qosd.QoS.List\",\"more\":true,\"oneway\":true}"),
                BYTES("{\"method\":\"org.qosd.QoS.List\",\"more\":1}"),
#undef BYTES
        };
        _cleanup_client_ Client *other = client_new(0);

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_client_ Client *c = client_new(0);

                client_write(c, table[i].bytes, table[i].size);
                client_expect_end(c);
        }

        /* So do clients that disconnect, amid a message or before one */
        for (unsigned i = 0; i < 2; i++) {
                _cleanup_client_ Client *c = client_new(0);

                client_write(c, "{\"method\"", i * 9);
                check(shutdown(c->fd, SHUT_WR) >= 0);
                client_expect_end(c);
        }

        call_succeeds(other, "GetStatus", "{}");
}

/* ---- permissions -------------------------------------------------------------------------------------- */

static void test_polkit(void) {
        _cleanup_client_ Client *c = client_new(TEST_OTHER_UID), *root = client_new(0);

        /* polkit is not queried if its reply makes no difference */
        polkit_calls = 0;
        call_fails(c, NULL, "Attach", "{\"unit\":\"a b\"}", PREFIX "InvalidUnitName", "unit", "a b");
        call_fails(c, NULL, "Detach", "{\"unit\":\"a\"}", PREFIX "NotAttached", "unit", NULL);
        call_fails(c, NULL, "Attach", "{\"unit\":\"a\",\"probes\":[\"gpu\"]}", PREFIX "NoSuchProbe",
                   "probe", "gpu");
        call_fails(c, "more", "List", "{}", PREFIX "NoEntries", NULL, NULL);
        check(polkit_calls == 0);

        polkit_mood = POLKIT_NO;
        call_fails(c, NULL, "Attach", "{\"unit\":\"a\"}", "org.varlink.service.PermissionDenied", NULL,
                   NULL);
        check(polkit_calls == 1 && !polkit_interactive);
        call_fails(c, NULL, "Attach",
                   "{\"unit\":\"a\",\"lease\":true,\"allowInteractiveAuthentication\":true}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);
        check(polkit_calls == 2 && polkit_interactive);

        polkit_mood = POLKIT_CHALLENGE;
        call_fails(c, NULL, "Attach", "{\"unit\":\"a\"}", "io.systemd.InteractiveAuthenticationRequired",
                   NULL, NULL);
        check(manager->units.n == 0);

        polkit_mood = POLKIT_YES;
        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        check(polkit_calls == 4);
        check(manager->units.slots[0]->holds->uid == TEST_OTHER_UID);

        /* Only root and the owner of the control group see its peers */
        call_fails(c, NULL, "GetView", "{\"unit\":\"a\"}", "org.varlink.service.PermissionDenied", NULL,
                   NULL);
        call_fails(root, NULL, "GetView", "{\"unit\":\"a\"}", PREFIX "ViewUnavailable", "unit",
                   "a.service");
        call_fails(c, NULL, "Get", "{\"unit\":\"a\",\"metrics\":[\"requests.client[b.service].rate\"]}",
                   "org.varlink.service.PermissionDenied", NULL, NULL);

        /* A user may drop an own lease, but not the hold of the administrator */
        call_succeeds(root, "Attach", "{\"unit\":\"b\"}");
        polkit_mood = POLKIT_NO;
        call_succeeds(c, "Detach", "{\"unit\":\"a\",\"lease\":true}");
        call_fails(c, NULL, "Detach", "{\"unit\":\"b\"}", "org.varlink.service.PermissionDenied", NULL,
                   NULL);
        polkit_mood = POLKIT_YES;
        call_succeeds(c, "Detach", "{\"unit\":\"b\"}");
        check(manager->units.n == 0);
        check(polkit_calls == 6);

        /* The client disconnects while polkit waits for a password */
        polkit_mood = POLKIT_SILENT;
        client_send(c, NULL, "Attach",
                    "{\"unit\":\"a\",\"lease\":true,\"allowInteractiveAuthentication\":true}");
        test_wait(event, polkit_calls == 7);
        c = client_free(c);
        call_succeeds(root, "GetStatus", "{}");
        test_wait(event, !manager->attaches.operations && manager->units.n == 0);
}

static void test_limits(void) {
        _cleanup_client_ Client *c = client_new(TEST_OTHER_UID);
        int fds[200];

        polkit_mood = POLKIT_YES;
        manager->config.leases_per_uid_max = 1;
        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        call_fails(c, NULL, "Attach", "{\"unit\":\"b\",\"lease\":true}", PREFIX "TooManyLeases", NULL,
                   NULL);
        call_succeeds(c, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        manager->config.leases_per_uid_max = 64;

        manager->config.units_per_uid_max = 1;
        call_fails(c, NULL, "Attach", "{\"unit\":\"b\"}", PREFIX "TooManyUnits", NULL, NULL);
        manager->config.units_per_uid_max = 32;
        call_succeeds(c, "Detach", "{\"unit\":\"a\",\"lease\":true}");

        /* Connections are limited by user; closed ones do not count, and root has no limit */
        manager->config.connections_per_uid_max = 10;
        for (unsigned i = 0; i < 9; i++) {
                fds[i] = open_connection(TEST_OTHER_UID);
                check(fds[i] >= 0);
        }
        check(open_connection(TEST_OTHER_UID) == -EUSERS);
        check(open_connection(TEST_OTHER_UID) == -EUSERS);
        call_succeeds(c, "GetStatus", "{}");
        (void) close(fds[0]);
        /* After the pause of the user */
        test_wait(event, (fds[0] = open_connection(TEST_OTHER_UID)) >= 0);
        for (unsigned i = 0; i < 9; i++)
                (void) close(fds[i]);
        settle();

        for (unsigned i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = open_connection(0);
                check(fds[i] >= 0);
        }
        call_succeeds(c, "GetStatus", "{}");
        for (unsigned i = 0; i < ELEMENTSOF(fds); i++)
                (void) close(fds[i]);
        settle();
        manager->config.connections_per_uid_max = 128;
}

static unsigned count_readable(const int *fds, size_t n_fds) {
        unsigned n = 0;

        for (size_t i = 0; i < n_fds; i++)
                n += poll(&(struct pollfd) { .fd = fds[i], .events = POLLIN }, 1, 0) > 0;
        return n;
}

/* The work that a user causes delays requests of that user, and none of root's. */
static void test_budget(void) {
        static const char message[] = "{\"method\":\"org.qosd.QoS.ListMetrics\",\"more\":true}";
        _cleanup_client_ Client *flood = client_new(TEST_OTHER_UID), *root = client_new(0);
        int fds[UNREAD_CONNECTIONS_MAX + 4];
        unsigned rounds = 0;

        /* Until no turn is due, although the client always has calls */
        do {
                (void) client_fill(flood);
                check(++rounds < 1000);
        } while (sd_event_run(event, 0) > 0);
        check(client_fill(flood) < 100);
        call_succeeds(root, "GetStatus", "{}");
        flood = client_free(flood);
        settle();

        /* Unread replies are kept for this many connections */
        for (unsigned i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = open_connection_with(TEST_OTHER_UID, 4096);
                check(fds[i] >= 0);
                check(send(fds[i], message, sizeof(message), MSG_NOSIGNAL) == sizeof(message));
        }
        do
                test_run(event);
        while (count_readable(fds, ELEMENTSOF(fds)) < UNREAD_CONNECTIONS_MAX);
        for (unsigned i = 0; i < 1000; i++)
                call_succeeds(root, "GetStatus", "{}");
        check(count_readable(fds, ELEMENTSOF(fds)) == UNREAD_CONNECTIONS_MAX);

        /* When one of them disconnects, the next one has its turn */
        for (size_t n = ELEMENTSOF(fds); n > 0; n--) {
                size_t i = 0;

                test_wait(event, count_readable(fds, n) == MIN(n, (size_t) UNREAD_CONNECTIONS_MAX));
                while (count_readable(fds + i, 1) == 0)
                        i++;
                (void) close(fds[i]);
                fds[i] = fds[n - 1];
        }
        settle();
}

/* All users other than root share their time, so that many user ids do not give more of it. */
static void test_many_users(void) {
        _cleanup_client_ Client *root = client_new(0);
        Client *flood[40];
        unsigned rounds = 0;

        for (unsigned i = 0; i < ELEMENTSOF(flood); i++)
                flood[i] = client_new(100000 + i);
        /* Until no turn is due, although a user without a pause always has calls */
        do {
                for (unsigned i = 0; i < ELEMENTSOF(flood); i++)
                        (void) client_fill(flood[i]);
                check(++rounds < 1000);
        } while (sd_event_run(event, 0) > 0);
        call_succeeds(root, "GetStatus", "{}");
        for (unsigned i = 0; i < ELEMENTSOF(flood); i++)
                client_free(flood[i]);
        settle();
}

static int connect_as(uid_t uid, const char *path) {
        int fd;

        check(uid == 0 || seteuid(uid) >= 0);
        fd = unix_connect(path, /* timeout_usec= */ 0);
        check(uid == 0 || seteuid(0) >= 0);
        return fd;
}

static void test_listeners(void) {
        char directory[] = "/tmp/test-varlink-clients-XXXXXX", all[64], roots[64];
        _cleanup_client_ Client *root = new0(Client, 1);
        VarlinkServer *server;
        unsigned n = 0, steps = 0;
        int fds[1000];

        check(root);
        check(mkdtemp(directory) && chmod(directory, 0755) >= 0);
        (void) snprintf(all, sizeof(all), "%s/all", directory);
        (void) snprintf(roots, sizeof(roots), "%s/root", directory);
        manager->fds.varlink = varlink_listen_at(all, 0666);
        manager->fds.varlink_root = varlink_listen_at(roots, 0600);
        check(manager->fds.varlink >= 0 && manager->fds.varlink_root >= 0);
        check(varlink_server_new(manager, &server) >= 0);

        check(connect_as(TEST_OTHER_UID, roots) == -EACCES);
        /* Each of another user: all are within the limit by user */
        for (; n < ELEMENTSOF(fds); n++) {
                fds[n] = connect_as(100000 + n, all);
                if (fds[n] == -EAGAIN) /* the backlog of this system is as long */
                        break;
                check(fds[n] >= 0);
        }
        check(n > 100);

        /* Root's connection is not queued behind these */
        root->fd = connect_as(0, roots);
        check(root->fd >= 0);
        client_send(root, NULL, "GetStatus", "{}");
        while (recv(root->fd, root->buffer, 1, MSG_PEEK|MSG_DONTWAIT) < 0) {
                check(errno == EAGAIN);
                check(++steps < 20);
                test_run(event);
        }
        sd_json_variant_unref(client_expect_reply(root, "GetStatus"));

        /* All are accepted and served */
        for (unsigned i = 0; i < n; i += 50) {
                _cleanup_client_ Client *c = new0(Client, 1);

                check(c);
                c->fd = fds[i];
                call_succeeds(c, "GetStatus", "{}");
                fds[i] = -EBADF;
        }
        for (unsigned i = 0; i < n; i++)
                (void) close_fd(fds[i]);
        varlink_server_free(server);
        check(unlink(all) >= 0 && unlink(roots) >= 0 && rmdir(directory) >= 0);
}

/* Streams are limited by user; ended ones do not count, and root has no limit. */
static void test_streams(void) {
        _cleanup_client_ Client *root = client_new(0), *c = client_new(TEST_OTHER_UID);
        Client *streams[8 + 1];

        call_succeeds(root, "Attach", "{\"unit\":\"a\"}");
        for (unsigned i = 0; i < ELEMENTSOF(streams); i++) {
                streams[i] = client_new(i < 8 ? TEST_OTHER_UID : 0);
                client_send(streams[i], "more", "Subscribe", "{\"interval\":3600000000000}");
                sd_json_variant_unref(client_expect_reply(streams[i], "Subscribe"));
        }
        call_fails(c, "more", "Subscribe", "{}", PREFIX "TooManyStreams", NULL, NULL);
        streams[0] = client_free(streams[0]);
        /* The daemon notices the end of a stream after the pause of its user. */
        for (bool freed = false; !freed;) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                client_send(c, "more", "Subscribe", "{\"interval\":3600000000000}");
                v = client_receive(c);
                check(v);
                freed = !message_error(v);
                check(freed || streq(message_error(v), PREFIX "TooManyStreams"));
        }
        for (unsigned i = 1; i < ELEMENTSOF(streams); i++)
                client_free(streams[i]);
        call_succeeds(root, "Detach", "{\"unit\":\"a\"}");
}

/* Limits of all users together do not limit root. */
static void test_reserve(void) {
        static const char *const names[] = { "a", "b", "inner" };
        _cleanup_client_ Client *c = client_new(TEST_OTHER_UID), *root = client_new(0);
        char parameters[64];
        int fds[2048];
        unsigned n;

        polkit_mood = POLKIT_YES;
        manager->config.units_max = 4;
        for (unsigned i = 0; i < ELEMENTSOF(names); i++) {
                (void) snprintf(parameters, sizeof(parameters), "{\"unit\":\"%s\",\"lease\":true}",
                                names[i]);
                call_succeeds(c, "Attach", parameters);
        }
        call_fails(c, NULL, "Attach", "{\"unit\":\"c\",\"lease\":true}", PREFIX "TooManyUnits", NULL,
                   NULL);
        call_succeeds(root, "Attach", "{\"unit\":\"c\",\"lease\":true}");
        check(manager->units.n == 4);
        /* What root holds, too, does not count for them */
        call_succeeds(root, "Detach", "{\"unit\":\"c\",\"lease\":true}");
        call_succeeds(root, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        call_succeeds(c, "Attach", "{\"unit\":\"c\",\"lease\":true}");
        manager->config.units_max = UNITS_MAX_LIMIT;
        root = client_free(root);
        c = client_free(c);
        test_wait(event, manager->units.n == 0);

        manager->config.connections_per_uid_max = ELEMENTSOF(fds);
        for (n = 0; n < ELEMENTSOF(fds); n++) {
                fds[n] = open_connection(TEST_OTHER_UID);
                if (fds[n] < 0)
                        break;
        }
        check(n > 0 && n < ELEMENTSOF(fds) && fds[n] == -EUSERS);
        root = client_new(0);
        call_succeeds(root, "GetStatus", "{}");
        for (unsigned i = 0; i < n; i++)
                (void) close(fds[i]);
        settle();
        manager->config.connections_per_uid_max = 128;
}

/* The event loop ends although a client does not read. */
static void test_exit(void) {
        _cleanup_client_ Client *c = client_new(0), *waiting = client_new(0);

        for (unsigned i = 0; i < 100; i++)
                client_send(c, "more", "ListMetrics", "{}");
        settle();
        /* It also ends before the reply of PID 1 about the unit: main() frees everything */
        client_send(waiting, NULL, "Attach", "{\"unit\":\"a\",\"lease\":true}");
        test_wait(event, manager->attaches.operations);
        check(sd_event_exit(event, 0) >= 0);
        check(sd_event_loop(event) >= 0);
        check(manager->attaches.operations);
}

int main(void) {
        if (!daemon_start(100))
                return 77;

        test_subscribe();
        test_shared_stream();
        test_slow_subscriber();
        test_pieces();
        test_pipeline();
        test_never_reads();
        test_flood();
        test_dead();
        test_oversized();
        test_garbage();
        if (test_has_other_user()) {
                test_polkit();
                test_limits();
                test_budget();
                test_many_users();
                test_listeners();
                test_streams();
                test_reserve();
        }
        test_exit();

        daemon_stop();
        return EXIT_SUCCESS;
}
