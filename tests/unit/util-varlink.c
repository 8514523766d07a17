/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <sys/socket.h>

#include "util-bus.h"
#include "util-idl.h"
#include "util-varlink.h"

sd_event *event;
VarlinkServer *varlink_server;

int open_connection_with(uid_t uid, int size) {
        int fds[2], r;

        /* The kernel records the user that makes them for both */
        check(uid == 0 || seteuid(uid) >= 0);
        check(socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, 0, fds) >= 0);
        check(uid == 0 || seteuid(0) >= 0);
        check(size == 0 || setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) >= 0);

        r = varlink_server_add_connection(varlink_server, fds[0]);
        if (r < 0) {
                (void) close(fds[1]);
                return r;
        }
        return fds[1];
}

int open_connection(uid_t uid) {
        return open_connection_with(uid, 0);
}

Client* client_new(uid_t uid) {
        Client *c = new0(Client, 1);

        check(c);
        c->fd = open_connection(uid);
        check(c->fd >= 0);
        return c;
}

Client* client_free(Client *c) {
        (void) close(c->fd);
        free(c);
        return NULL;
}

void client_write(Client *c, const void *data, size_t size) {
        for (const char *p = data; size > 0; ) {
                ssize_t n = send(c->fd, p, size, MSG_NOSIGNAL);

                if (n < 0) {
                        check(errno == EAGAIN);
                        test_run(event);
                        continue;
                }
                p += n;
                size -= n;
        }
}

void client_send(Client *c, const char *flag, const char *method, const char *parameters) {
        _cleanup_free_ char *text = NULL;
        int n;

        n = asprintf(&text, "{\"method\":\"%s%s\",\"parameters\":%s%s%s%s}", strchr(method, '.') ? "" :
                     PREFIX, method, parameters, flag ? ",\"" : "", strempty(flag),
                     flag ? "\":true" : "");
        check(n > 0);
        client_write(c, text, n + 1);
}

sd_json_variant* client_receive(Client *c) {
        sd_json_variant *v;
        char *end;
        ssize_t n;

        while (!(end = memchr(c->buffer, 0, c->size))) {
                check(c->size < sizeof(c->buffer));
                n = recv(c->fd, c->buffer + c->size, sizeof(c->buffer) - c->size, 0);
                if (n == 0 || (n < 0 && errno == ECONNRESET))
                        return NULL;
                if (n < 0) {
                        check(errno == EAGAIN);
                        test_run(event);
                        continue;
                }
                c->size += n;
        }

        check(sd_json_parse(c->buffer, 0, &v, NULL, NULL) >= 0);
        c->size -= end + 1 - c->buffer;
        memmove(c->buffer, end + 1, c->size);
        return v;
}

const char* message_error(sd_json_variant *v) {
        return sd_json_variant_string(sd_json_variant_by_key(v, "error"));
}

sd_json_variant* message_parameter(sd_json_variant *v, const char *name) {
        return sd_json_variant_by_key(sd_json_variant_by_key(v, "parameters"), name);
}

bool message_continues(sd_json_variant *v) {
        return sd_json_variant_boolean(sd_json_variant_by_key(v, "continues"));
}

sd_json_variant* client_expect_reply(Client *c, const char *method) {
        sd_json_variant *v = client_receive(c);

        check(v);
        if (message_error(v)) {
                (void) sd_json_variant_dump(v, SD_JSON_FORMAT_NEWLINE, stderr, NULL);
                check(false);
        }
        check(idl_matches(idl_find(SD_VARLINK_METHOD, method), SD_VARLINK_OUTPUT,
                          sd_json_variant_by_key(v, "parameters")));
        return v;
}

sd_json_variant* client_call(Client *c, const char *method, const char *parameters) {
        client_send(c, NULL, method, parameters);
        return client_expect_reply(c, method);
}

void client_expect_error(Client *c, const char *error, const char *field, const char *value) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_receive(c);
        const char *name;

        check(v);
        if (!streq_ptr(message_error(v), error)) {
                fprintf(stderr, "Expected the error '%s', got: ", error);
                (void) sd_json_variant_dump(v, SD_JSON_FORMAT_NEWLINE, stderr, NULL);
                exit(EXIT_FAILURE);
        }

        if (field && value)
                check(streq_ptr(sd_json_variant_string(message_parameter(v, field)), value));
        name = startswith(error, PREFIX);
        if (name) {
                check(idl_matches(idl_find(SD_VARLINK_ERROR, name), SD_VARLINK_REGULAR,
                                  sd_json_variant_by_key(v, "parameters")));
                check(!field || !isempty(sd_json_variant_string(message_parameter(v, "message"))));
        }
}

void client_expect_end(Client *c) {
        check(!client_receive(c));
}

void call_fails(Client *c, const char *flag, const char *method, const char *parameters,
                const char *error, const char *field, const char *value) {
        client_send(c, flag, method, parameters);
        client_expect_error(c, error, field, value);
}

void call_succeeds(Client *c, const char *method, const char *parameters) {
        sd_json_variant_unref(client_call(c, method, parameters));
}

unsigned call_more(Client *c, const char *method, const char *parameters) {
        unsigned n = 0;
        bool more = true;

        client_send(c, "more", method, parameters);
        while (more) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = client_expect_reply(c, method);

                more = message_continues(v);
                n++;
        }
        return n;
}

void settle(void) {
        while (sd_event_run(event, 0) > 0)
                ;
}
