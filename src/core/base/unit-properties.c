/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Parser of unit properties of PID 1. */

#include <arpa/inet.h>
#include <ctype.h>

#include "service-manager-internal.h"
#include "unit-name.h"

/* Limits per unit: sockets to be queried, and their addresses. Other sockets are found when the service
 * reads from them. */
#define SOCKETS_MAX 32
#define LISTEN_MAX 64

/* ---- names -------------------------------------------------------------------------------------------- */

/* As cg_escape() in systemd: names that collide with files of the kernel are prefixed with an underscore. */
static bool control_group_name_needs_escape(const char *name) {
        static const char *const controllers[] = {
                "cpu", "cpuacct", "cpuset", "io", "blkio", "memory", "devices", "pids", "hugetlb", "misc",
                        "rdma",
        };

        if (name[0] == '_' || name[0] == '.' || startswith(name, "cgroup."))
                return true;
        for (size_t i = 0; i < ELEMENTSOF(controllers); i++) {
                const char *rest = startswith(name, controllers[i]);

                if (rest && *rest == '.')
                        return true;
        }
        return false;
}

int unit_get_default_control_group(const char *name, const char *slice, char **ret) {
        /* "a-b.slice" is contained in "a.slice": each dash is a level of the path */
        _cleanup_free_ char *path = NULL, *stem = NULL;
        const char *s = endswith(name, ".slice") ? name : slice;
        size_t l, size;

        if (isempty(s) || !endswith(s, ".slice"))
                return -EINVAL;

        stem = strndup(s, strlen(s) - strlen(".slice"));
        size = (strlen(s) + 8) * (strlen(s) / 2 + 2) + strlen(name) + 4;
        path = new0(char, size);
        if (!stem || !path)
                return -ENOMEM;

        if (!streq(stem, "-"))
                for (l = 1; l <= strlen(stem); l++)
                        if (stem[l] == '-' || stem[l] == 0)
                                (void) snprintf(path + strlen(path), size - strlen(path), "/%.*s.slice",
                                                (int) l, stem);

        if (!endswith(name, ".slice"))
                (void) snprintf(path + strlen(path), size - strlen(path), "/%s%s",
                                control_group_name_needs_escape(name) ? "_" : "", name);
        if (isempty(path))
                (void) snprintf(path, size, "/");

        *ret = TAKE_PTR(path);
        return 0;
}

bool names_contain(const char *names, const char *name) {
        size_t l = strlen(name);

        if (l == 0)
                return false;
        for (const char *s = names; s && (s = strstr(s, name)); s += l)
                if ((s == names || s[-1] == ' ') && (s[l] == ' ' || s[l] == 0))
                        return true;
        return false;
}

int listen_address_parse(const char *s, struct qos_address *ret) {
        struct qos_address a = { .family = AF_INET };
        char host[INET6_ADDRSTRLEN];
        const char *colon, *end;
        unsigned long port;
        size_t l;

        if (s[0] == '[') {
                a.family = AF_INET6;
                s++;
                end = strchr(s, ']');
                colon = end ? end + 1 : NULL;
        } else
                end = colon = strrchr(s, ':');
        if (!end || *colon != ':' || !isdigit((unsigned char) colon[1]))
                return -EAFNOSUPPORT;

        l = end - s;
        if (l >= sizeof(host))
                return -EAFNOSUPPORT;
        memcpy(host, s, l);
        host[l] = 0;
        /* Link-local addresses have an interface behind the port */
        port = strtoul(colon + 1, (char**) &end, 10);
        if ((*end != 0 && *end != '%') || port == 0 || port > UINT16_MAX ||
            inet_pton(a.family, host, a.address) != 1)
                return -EAFNOSUPPORT;

        a.port = port;
        *ret = a;
        return 0;
}

/* ---- properties --------------------------------------------------------------------------------------- */

void properties_done(Properties *p) {
        sd_bus_message_unref(p->message);
        free(p->names);
        free(p->triggers);
        free(p->triggered_by);
        free(p->fragment);
        strv_free(p->drop_ins);
        free(p->files); /* strings are owned by the messages */
        free(p->listen);
        *p = (Properties) {};
}

/* Limit of aliases per unit. A unit with more is still found by its canonical name. */
#define ALIASES_MAX 16

/* Reads an array of names with this suffix, at most max: space separated. */
static int names_read(sd_bus_message *m, const char *suffix, unsigned max, char **ret) {
        size_t size = max * (UNIT_NAME_MAX + 1) + 1;
        _cleanup_free_ char *buffer = NULL;
        const char *name;
        unsigned n = 0;
        int r;

        buffer = new0(char, size);
        if (!buffer)
                return -ENOMEM;

        r = sd_bus_message_enter_container(m, 'v', "as");
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "s");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_read(m, "s", &name)) > 0)
                if (endswith(name, suffix) && n++ < max && strlen(name) <= UNIT_NAME_MAX)
                        (void) snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s%s",
                                        *buffer ? " " : "", name);
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r < 0)
                return r;

        free(*ret);
        *ret = TAKE_PTR(buffer);
        return 0;
}

int listen_append(Properties *p, const struct qos_address *addresses, size_t n) {
        struct qos_address *more;

        n = MIN(n, LISTEN_MAX - p->n_listen);
        more = realloc(p->listen, MAX(p->n_listen + n, (size_t) 1) * sizeof(struct qos_address));
        if (!more)
                return -ENOMEM;
        if (n > 0)
                memcpy(more + p->n_listen, addresses, n * sizeof(struct qos_address));
        p->listen = more;
        p->n_listen += n;
        return 0;
}

static int listen_read(sd_bus_message *m, Properties *p) {
        const char *type, *text;
        int r;

        r = sd_bus_message_enter_container(m, 'v', "a(ss)");
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "(ss)");
        if (r < 0)
                return r;
        while ((r = sd_bus_message_read(m, "(ss)", &type, &text)) > 0) {
                struct qos_address address;

                if (streq(type, "Stream") && listen_address_parse(text, &address) >= 0) {
                        r = listen_append(p, &address, 1);
                        if (r < 0)
                                return r;
                }
        }
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int files_collect(Properties *p) {
        size_t n = 0, k = 0;

        while (p->drop_ins && p->drop_ins[n])
                n++;
        p->files = new0(char*, n + 2);
        if (!p->files)
                return -ENOMEM;
        if (!isempty(p->fragment))
                p->files[k++] = p->fragment;
        for (size_t i = 0; i < n; i++)
                p->files[k++] = p->drop_ins[i];
        return 0;
}

/* Properties of the lifecycle: name, type, and field of Lifecycle. */
static const struct {
        const char *name, *type;
        size_t offset, size;
} lifecycle_table[] = {
        { "SubState",       "s", offsetof(Lifecycle, sub_state),   sizeof(((Lifecycle*) NULL)->sub_state) },
        { "Type",           "s", offsetof(Lifecycle, type),        sizeof(((Lifecycle*) NULL)->type)      },
        { "Result",         "s", offsetof(Lifecycle, result),      sizeof(((Lifecycle*) NULL)->result)    },
        { "FreezerState",   "s", offsetof(Lifecycle, freezer_state),
          sizeof(((Lifecycle*) NULL)->freezer_state) },
        { "ExecMainCode",   "i", offsetof(Lifecycle, exit_code),   0                                  },
        { "ExecMainStatus", "i", offsetof(Lifecycle, exit_status), 0                                  },
        { "NRestarts",      "u", offsetof(Lifecycle, restarts),    0                                  },
        { "StateChangeTimestamp", "t", offsetof(Lifecycle, changed), 0                                },
};

static ssize_t lifecycle_find(const char *name, const char *type) {
        for (size_t i = 0; i < ELEMENTSOF(lifecycle_table); i++)
                if (streq(lifecycle_table[i].name, name) && streq(lifecycle_table[i].type, type))
                        return (ssize_t) i;
        return -ENOENT;
}

static int lifecycle_read(sd_bus_message *m, ssize_t property, Lifecycle *l) {
        const char *type = lifecycle_table[property].type, *text;
        void *field = (char*) l + lifecycle_table[property].offset;
        uint32_t number;
        int r;

        switch (*type) {

        case 's':
                r = sd_bus_message_read(m, "v", type, &text);
                if (r >= 0)
                        (void) snprintf(field, lifecycle_table[property].size, "%s", text);
                return r;

        case 'i':
                return sd_bus_message_read(m, "v", type, (int32_t*) field);

        case 'u':
                r = sd_bus_message_read(m, "v", type, &number);
                if (r >= 0)
                        *(uint64_t*) field = number;
                return r;

        default:
                r = sd_bus_message_read(m, "v", type, (uint64_t*) field);
                if (r >= 0)
                        *(uint64_t*) field *= NSEC_PER_USEC;
                return r;
        }
}

int properties_read(sd_bus_message *m, Properties *ret) {
        UnitInfo info = { .lifecycle.restarts = ABSENT };
        int r;

        ret->message = sd_bus_message_ref(m);
        r = sd_bus_message_enter_container(m, 'a', "{sv}");
        if (r < 0)
                return r;

        while ((r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                const char *name, *contents, **field = NULL;

                r = sd_bus_message_read(m, "s", &name);
                if (r < 0)
                        return r;
                r = sd_bus_message_peek_type(m, NULL, &contents);
                if (r < 0)
                        return r;

                if (streq(name, "Id"))
                        field = &info.id;
                else if (streq(name, "LoadState"))
                        field = &info.load_state;
                else if (streq(name, "ActiveState"))
                        field = &info.active_state;
                else if (streq(name, "ControlGroup"))
                        field = &info.control_group;
                else if (streq(name, "Slice"))
                        field = &info.slice;

                if (field && streq(contents, "s"))
                        r = sd_bus_message_read(m, "v", "s", field);
                else if (lifecycle_find(name, contents) >= 0)
                        r = lifecycle_read(m, lifecycle_find(name, contents), &info.lifecycle);
                else if (streq(name, "Names") && streq(contents, "as"))
                        r = names_read(m, "", ALIASES_MAX, &ret->names);
                else if (streq(name, "FragmentPath") && streq(contents, "s")) {
                        const char *path;

                        r = sd_bus_message_read(m, "v", "s", &path);
                        if (r >= 0)
                                r = free_and_strdup(&ret->fragment, path);
                } else if (streq(name, "DropInPaths") && streq(contents, "as")) {
                        r = sd_bus_message_enter_container(m, 'v', "as");
                        if (r >= 0)
                                r = sd_bus_message_read_strv(m, &ret->drop_ins);
                        if (r >= 0)
                                r = sd_bus_message_exit_container(m);
                } else if (streq(name, "Triggers") && streq(contents, "as"))
                        r = names_read(m, "", SOCKETS_MAX, &ret->triggers);
                else if (streq(name, "TriggeredBy") && streq(contents, "as"))
                        r = names_read(m, ".socket", SOCKETS_MAX, &ret->triggered_by);
                else if (streq(name, "Listen") && streq(contents, "a(ss)"))
                        r = listen_read(m, ret);
                else if (streq(name, "Accept") && streq(contents, "b")) {
                        int accept;

                        r = sd_bus_message_read(m, "v", "b", &accept);
                        info.accept = r >= 0 && accept;
                }
                else if (streq(name, "InvocationID") && streq(contents, "ay")) {
                        const void *id;
                        size_t size;

                        r = sd_bus_message_enter_container(m, 'v', "ay");
                        if (r >= 0)
                                r = sd_bus_message_read_array(m, 'y', &id, &size);
                        if (r >= 0 && size == sizeof(info.invocation_id))
                                memcpy(&info.invocation_id, id, size);
                        if (r >= 0)
                                r = sd_bus_message_exit_container(m);
                } else
                        r = sd_bus_message_skip(m, "v");
                if (r < 0)
                        return r;

                r = sd_bus_message_exit_container(m);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;

        if (!info.id || !info.load_state || !info.active_state)
                return -EBADMSG;

        r = files_collect(ret);
        if (r < 0)
                return r;
        info.files = ret->files;
        info.names = strempty(ret->names);
        info.triggers = isempty(ret->triggers) ? NULL : ret->triggers;
        info.lifecycle.on_demand = !isempty(ret->triggered_by);
        ret->info = info;
        return 0;
}
