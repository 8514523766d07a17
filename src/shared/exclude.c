/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "exclude-key.h"
#include "exclude.h"
#include "unit-map.h"

/* Limit of the length. The longest names are those of module commands, such as "TS.CREATERULE". */
#define COMMAND_MAX 64U

static int exclude_compare(const Exclude *a, const Exclude *b) {
        if (a->kind == QOS_EXCLUDE_PORT && b->kind == QOS_EXCLUDE_PORT && a->name != b->name)
                return a->name > b->name ? 1 : -1;
        return strcmp(a->text, b->text);
}

static int list_insert(ExcludeList *l, const Exclude *e) {
        size_t i = 0;

        while (i < l->n && exclude_compare(l->list + i, e) < 0)
                i++;
        if (i < l->n && exclude_compare(l->list + i, e) == 0)
                return 0;
        if (l->n >= EXCLUDES_MAX)
                return -E2BIG;

        memmove(l->list + i + 1, l->list + i, (l->n - i) * sizeof(l->list[0]));
        l->list[i] = *e;
        l->n++;
        return 0;
}

static int parse_port(const char *digits, Exclude *ret) {
        unsigned long port = 0;

        if (isempty(digits) || strspn(digits, "0123456789") != strlen(digits))
                return -EINVAL;
        for (; *digits; digits++) {
                port = port * 10 + (unsigned long) (*digits - '0');
                if (port > UINT16_MAX)
                        return -EINVAL;
        }
        if (port == 0)
                return -EINVAL;

        *ret = (Exclude) { .kind = QOS_EXCLUDE_PORT, .name = port };
        (void) snprintf(ret->text, sizeof(ret->text), "port:%lu", port);
        return 0;
}

/* A path as in a request line, without query; an asterisk is allowed at the end. */
static int parse_path(const char *path, Exclude *ret) {
        Exclude e = { .kind = NAME_PATH, .name = NAME_BEGIN };
        unsigned slashes = 0;

        if (path[0] != '/' || strlen(path) >= sizeof(e.text) - strlen("http:"))
                return -EINVAL;
        for (const char *p = path; *p; p++) {
                if (*p == '*' && p[1] == 0) {
                        if (p[-1] != '/' || slashes > NAME_DIRECTORIES)
                                return -EINVAL;
                        e.kind = NAME_DIRECTORY;
                        break;
                }
                if (*p <= ' ' || *p > '~' || *p == '?' || *p == '#' || *p == '*')
                        return -EINVAL;
                slashes += *p == '/';
                e.name = name_add(e.name, (uint8_t) *p);
        }

        (void) snprintf(e.text, sizeof(e.text), "http:%s", path);
        *ret = e;
        return 0;
}

static int parse_command(const char *command, Exclude *ret) {
        Exclude e = { .kind = NAME_COMMAND };
        size_t n = strlen(command);
        uint64_t word = 0;
        char *p;

        if (n == 0 || n > COMMAND_MAX)
                return -EINVAL;
        p = stpcpy(e.text, "redis:");
        for (size_t i = 0; i < n; i++) {
                char c = command[i] >= 'a' && command[i] <= 'z' ? (char) (command[i] - 'a' + 'A') :
                                                                  command[i];

                if (!(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-')
                        return -EINVAL;
                if (i < sizeof(word))
                        word = word << 8 | (uint8_t) c;
                *p++ = c;
        }
        e.name = name_of_command(word, (uint32_t) n);
        *ret = e;
        return 0;
}

int exclude_list_add(ExcludeList *l, const char *s) {
        const char *rest;
        Exclude e;
        int r;

        if ((rest = startswith(s, "port:")))
                r = parse_port(rest, &e);
        else if ((rest = startswith(s, "http:")))
                r = parse_path(rest, &e);
        else if ((rest = startswith(s, "redis:")))
                r = parse_command(rest, &e);
        else
                r = -EINVAL;
        return r < 0 ? r : list_insert(l, &e);
}

int exclude_list_merge(ExcludeList *l, const ExcludeList *other) {
        int r;

        for (size_t i = 0; i < other->n; i++) {
                r = list_insert(l, other->list + i);
                if (r < 0)
                        return r;
        }
        return 0;
}

int exclude_list_parse(char **words, ExcludeList *ret, QosError *e) {
        ExcludeList l = {};
        char limit[16];
        int r;

        for (char **i = words; i && *i; i++) {
                r = exclude_list_add(&l, *i);
                if (r == -E2BIG) {
                        (void) snprintf(limit, sizeof(limit), "%u", EXCLUDES_MAX);
                        return qos_error_set(e, QOS_ERROR_TOO_MANY_EXCLUDES, limit,
                                             "more than %s exclusions", limit);
                }
                if (r < 0)
                        return qos_error_set(e, QOS_ERROR_INVALID_EXCLUDE, *i,
                                             "invalid exclusion '%s', expected 'port:' and a number from "
                                             "1 to 65535, 'http:' and a path ('/healthz', or '/static/*' "
                                             "for a prefix of at most %u directories), or 'redis:' and a "
                                             "command",
                                             excerpt(*i, (char[EXCERPT_MAX + 1]) {}), NAME_DIRECTORIES - 1);
        }

        *ret = l;
        return 0;
}
