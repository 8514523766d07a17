/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <arpa/inet.h>

#include "selector.h"

static int parse_port(const char *s, size_t l, uint16_t *ret) {
        unsigned port = 0;

        if (l == 0 || l > 5)
                return -EINVAL;
        for (size_t i = 0; i < l; i++) {
                if (s[i] < '0' || s[i] > '9')
                        return -EINVAL;
                port = port * 10 + (unsigned) (s[i] - '0');
        }
        if (port == 0 || port > UINT16_MAX)
                return -EINVAL;

        *ret = (uint16_t) port;
        return 0;
}

static int parse_address(const char *s, size_t l, Selector *ret) {
        const char *colon = memrchr(s, ':', l);
        char host[INET6_ADDRSTRLEN + 2];
        size_t n;
        int r;

        if (!colon)
                return -EINVAL;
        r = parse_port(colon + 1, (size_t) (s + l - colon - 1), &ret->port);
        if (r < 0)
                return r;

        n = (size_t) (colon - s);
        if (n == 0) {
                ret->type = SELECTOR_PORT;
                return 0;
        }
        if (n >= sizeof(host))
                return -EINVAL;
        memcpy(host, s, n);
        host[n] = 0;

        ret->type = SELECTOR_ADDRESS;
        ret->family = AF_INET;
        if (streq(host, "*"))
                return 0;
        if (host[0] == '[' && host[n - 1] == ']') {
                ret->family = AF_INET6;
                host[n - 1] = 0;
                return inet_pton(AF_INET6, host + 1, ret->address) == 1 ? 0 : -EINVAL;
        }
        return inet_pton(AF_INET, host, ret->address) == 1 ? 0 : -EINVAL;
}

/* Whether this is the name of a unit with a control group. Addresses have no such suffix. */
static bool is_unit(const char *s, size_t l) {
        static const char *const suffixes[] = { ".service", ".scope", ".slice", ".socket" };

        for (size_t i = 0; i < ELEMENTSOF(suffixes); i++) {
                size_t n = strlen(suffixes[i]);

                if (l > n && strncmp(s + l - n, suffixes[i], n) == 0)
                        return true;
        }
        return false;
}

static bool is_device_number(const char *s, size_t l) {
        size_t major = strspn(s, "0123456789"), minor;

        if (major == 0 || major > strlen("4095") || s[major] != ':')
                return false;
        minor = strspn(s + major + 1, "0123456789");
        return minor > 0 && minor <= strlen("1048575") && major + 1 + minor == l;
}

int selector_parse(const char *name, Selector *ret, char ret_metric[static SELECTOR_METRIC_MAX]) {
        static const char *const prefixes[] = { "requests.server[", "requests.client[", "storage.mounts[" };
        const char *begin = strchr(name, '['), *end = strrchr(name, ']');
        Selector s = {};
        size_t l, before;
        int r;

        if (!begin && !end) {
                if (strlen(name) >= SELECTOR_METRIC_MAX)
                        return -ENAMETOOLONG;
                strcpy(ret_metric, name);
                *ret = s;
                return 0;
        }

        /* Names of metrics have no brackets, addresses may */
        if (!begin || !end || end < begin || end[1] != '.' || end[2] == 0)
                return -EINVAL;
        before = strlen(prefixes[0]) - 1;
        begin++;
        l = (size_t) (end - begin);
        if (startswith(name, prefixes[1]))
                s.client = true;
        else if (startswith(name, prefixes[2])) {
                if (l == 0 || (*begin != '/' && !is_device_number(begin, l)))
                        return -EINVAL;
                s.type = SELECTOR_MOUNT;
                before = strlen("storage");
        } else if (!startswith(name, prefixes[0]))
                return -EINVAL;

        /* A socket, or for peers the control group path of a unit */
        if (s.type == SELECTOR_MOUNT || (l > 1 && (*begin == '/' || *begin == '@'))) {
                s.type = s.type == SELECTOR_MOUNT ? SELECTOR_MOUNT : SELECTOR_PATH;
                s.text = begin;
                s.length = l;
        } else if (s.client && is_unit(begin, l)) {
                s.type = SELECTOR_UNIT;
                s.text = begin;
                s.length = l;
        } else {
                r = parse_address(begin, l, &s);
                if (r < 0)
                        return r;
        }

        if (before + strlen(end + 1) >= SELECTOR_METRIC_MAX)
                return -ENAMETOOLONG;
        memcpy(ret_metric, name, before);
        strcpy(ret_metric + before, end + 1);
        *ret = s;
        return 0;
}

bool selector_is_private(const Selector *s) {
        return s->type != SELECTOR_NONE &&
               (s->client || s->type == SELECTOR_PATH || s->type == SELECTOR_MOUNT);
}

static bool text_is(const Selector *s, const char *text) {
        return strlen(text) == s->length && strncmp(text, s->text, s->length) == 0;
}

bool selector_matches_text(const Selector *s, const char *text) {
        return s->type == SELECTOR_MOUNT && text_is(s, text);
}

bool selector_matches(const Selector *s, const Row *row, const char *unit) {
        if (row->rest || (row->kind == ROW_PEER) != s->client)
                return false;

        switch (s->type) {

        case SELECTOR_PORT:
                return row->family != AF_UNIX && row->port == s->port;

        case SELECTOR_ADDRESS:
                return row->port == s->port && row->family == s->family &&
                        memcmp(row->address, s->address, sizeof(row->address)) == 0;

        case SELECTOR_PATH:
                return (row->family == AF_UNIX && text_is(s, row->path)) || (unit && text_is(s, unit));

        case SELECTOR_UNIT:
                return unit && text_is(s, unit);

        default:
                return false;
        }
}
