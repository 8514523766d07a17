/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Which unit the path of a control group names: what systemd-cgls shows for that path. */

#include "check.h"
#include "unit-name.h"

typedef struct Case {
        const char *path;
        const char *users;      /* from this prefix on, groups are owned by a user; NULL: none is */
        const char *unit;       /* NULL: none */
} Case;

static bool is_roots(const char *path, size_t n, void *userdata) {
        const Case *c = userdata;
        size_t l = c->users ? strlen(c->users) : SIZE_MAX;

        check(n <= strlen(path) && (path[n] == 0 || path[n] == '/'));
        return n < l || strncmp(path, c->users, l) != 0;
}

/* As "systemd-analyze unit-files" and systemd.unit(5) have it. */
static void test_expand(void) {
        static const struct {
                const char *pattern, *unit, *name;      /* NULL: -EINVAL */
        } table[] = {
                { "a.service",        "nginx.service",    "a.service"                },
                { "a@%n.service",     "nginx.service",    "a@nginx.service.service"  },
                { "a@%N.target",      "b@c@d.service",    "a@b@c@d.target"           },
                { "a-%p.service",     "b@c@d.service",    "a-b.service"              },
                { "a@%i.service",     "b@c@d.service",    "a@c@d.service"            },
                { "a@%i.service",     "nginx.service",    "a@.service"               },
                { "a-%p.service",     "x.y.slice",        "a-x.y.service"            },
                { "%n",               "nginx.service",    "nginx.service"            },
                { "a%%.service",      "nginx.service",    NULL                       },
                { "%x.service",       "nginx.service",    NULL                       },
                { "a.service%",       "nginx.service",    NULL                       },
                { "a",                "nginx.service",    NULL                       },
                { "a/b.service",      "nginx.service",    NULL                       },
                { "",                 "nginx.service",    NULL                       },
                { "a.service",        "nginx",            NULL                       },
        };
        char longest[UNIT_NAME_MAX + 1];

        for (size_t i = 0; i < ELEMENTSOF(table); i++) {
                _cleanup_free_ char *name = NULL;
                int r;

                r = unit_name_expand(table[i].pattern, table[i].unit, &name);
                check(table[i].name ? r == 0 && streq(name, table[i].name) : r == -EINVAL && !name);
        }

        memset(longest, 'x', UNIT_NAME_MAX);
        strcpy(longest + UNIT_NAME_MAX - strlen(".service"), ".service");
        for (unsigned i = 0; i < 2; i++) {
                _cleanup_free_ char *name = NULL;

                check(i == 0 ? unit_name_expand("%n", longest, &name) == 0 && streq(name, longest) :
                               unit_name_expand("a%n", longest, &name) == -EINVAL);
        }
}

static void test_top_unit(void) {
        static const struct {
                const char *path, *unit;
        } cases[] = {
                { "/system.slice/nginx.service", "nginx.service" },
                { "/system.slice/system-pg.slice/pg@main.service/sub/x.service", "pg@main.service" },
                { "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service",
                  "user@1000.service" },
                { "/user.slice/user-1000.slice/session-3.scope", "session-3.scope" },
                { "/system.slice/_cpu.service", "cpu.service" },
                { "/web.socket", "web.socket" },
                { "/system.slice", NULL },
                { "/docker/1234/x.service", NULL },
                { "/", NULL },
                { "", NULL },
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                _cleanup_free_ char *unit = NULL;

                check(control_group_get_top_unit(cases[i].path, &unit) == !!cases[i].unit);
                check(streq_ptr(unit, cases[i].unit));
        }
}

int main(void) {
        static const Case cases[] = {
                { "",                                            NULL, NULL                        },
                { "/",                                           NULL, NULL                        },
                { "/system.slice/nginx.service",                 NULL, "nginx.service"             },
                { "/a.slice/a-b.slice/nginx.service/worker",     NULL, "nginx.service"             },
                { "/system.slice",                               NULL, "system.slice"              },
                { "/a.slice/a-b.slice/group",                    NULL, "a-b.slice"                 },
                { "/init.scope",                                 NULL, "init.scope"                },
                { "/group",                                      NULL, NULL                        },
                { "/group/x.service",                            NULL, "x.service"                 },
                { "/.service",                                   NULL, NULL                        },
                /* A container, with a service manager of its own that is root */
                { "/machine.slice/m.scope/payload/system.slice/nginx.service", NULL, "nginx.service" },
                /* or a user's */
                { "/machine.slice/m.scope/payload/system.slice/nginx.service",
                  "/machine.slice/m.scope/payload", "m.scope/payload/system.slice/nginx.service" },
                { "/user.slice/user-1000.slice/user@1000.service/app.slice/a.service",
                  "/user.slice/user-1000.slice/user@1000.service", "user@1000.service/app.slice/a.service" },
                /* A user calls groups inside the own one as other units */
                { "/system.slice/alice.service/nginx.service",
                  "/system.slice/alice.service",                 "alice.service/nginx.service" },
                { "/system.slice/alice.service/x/nginx.service/y",
                  "/system.slice/alice.service",                 "alice.service/x/nginx.service" },
                { "/system.slice/alice.service/x",
                  "/system.slice/alice.service",                 "alice.service"             },
                { "/alice/nginx.service",                        "/alice", "alice/nginx.service" },
                { "/alice.slice/nginx.service",                  "/alice.slice",
                  "alice.slice/nginx.service" },
                { "/alice/system.slice/nginx.service", "/alice", "alice/system.slice/nginx.service" },
        };

        test_expand();
        test_top_unit();
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                const Case *c = cases + i;
                size_t begin, length = 0;

                begin = control_group_find_unit(c->path, is_roots, (void*) c, &length);
                if (c->unit ? begin == 0 || length != strlen(c->unit) ||
                    strncmp(c->path + begin, c->unit, length) != 0 : begin != 0) {
                        fprintf(stderr, "'%s': '%.*s' instead of '%s'\n", c->path, (int) length,
                                c->path + begin, c->unit ?: "");
                        return EXIT_FAILURE;
                }
        }
        return EXIT_SUCCESS;
}
