/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A generator (systemd.generator(7)), which is run at boot and by daemon-reload. Orders services with
 * [X-QoS] after qosd, so that their first request is counted if both are started together. Adds no
 * requirements.
 *
 * There must be no ordering cycle, as the service manager breaks these by dropping a job. qosd.service has
 * the default dependencies of services. Therefore a service is not ordered if it does not have these, or is
 * ordered before other units, and no service is ordered if qosd.service has explicit orderings. */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "unit-file.h"

#define QOSD "qosd.service"

/* Limit of services and drop-ins, of which systems have some hundred. If there are more, nothing is
 * ordered. */
#define NAMES_MAX 16384U

typedef struct Name {
        char *name;                     /* "nginx.service"; for drop-ins also "foo@.service", "foo-.service"
                                         * and "service" */
        bool declared;                  /* has [X-QoS] */
        bool special;                   /* without default dependencies, or ordered before other units */
} Name;

typedef struct Generator {
        Name *names;
        size_t n_names;
        bool ordered;                   /* qosd.service has explicit orderings */
} Generator;

typedef struct Reading {
        Generator *generator;
        Name *name;                     /* NULL: not a service */
        bool qosd;                      /* applies to qosd.service */
} Reading;

static void generator_done(Generator *g) {
        for (size_t i = 0; i < g->n_names; i++)
                free(g->names[i].name);
        free(g->names);
}

/* ---- unit files --------------------------------------------------------------------------------------- */

/* Whether a list such as "nginx.service mariadb.service" contains the word. */
static bool words_have(const char *words, const char *word) {
        for (size_t l; *(words += strspn(words, " \t")); words += l) {
                l = strcspn(words, " \t");
                if (strlen(word) == l && strncmp(words, word, l) == 0)
                        return true;
        }
        return false;
}

/* Whether all units in the list are started so late that qosd.service does not wait for them. */
static bool words_are_late(const char *words) {
        for (size_t l; *(words += strspn(words, " \t")); words += l) {
                char word[sizeof("multi-user.target")];

                l = strcspn(words, " \t");
                (void) snprintf(word, sizeof(word), "%.*s", (int) MIN(l, sizeof(word)), words);
                if (!words_have("multi-user.target graphical.target shutdown.target", word))
                        return false;
        }
        return true;
}

static int on_line(const char *section, char *line, unsigned number, void *userdata) {
        Reading *r = ASSERT_PTR(userdata);
        bool special = false;
        char *value;

        if (!streq(section, "[Unit]"))
                return 0;
        value = line ? unit_file_split(&line) : NULL;
        if (!line) {
                /* Too long to be parsed: assume an ordering */
                special = r->generator->ordered = true;
        } else if (!value)
                return 0;
        else if (streq(line, "DefaultDependencies"))
                special = !words_have("yes true on 1", value);
        else if (streq(line, "Before")) {
                special = !words_are_late(value);
                r->generator->ordered = r->generator->ordered || r->qosd || words_have(value, QOSD);
        } else if (streq(line, "After") && r->qosd)
                /* The orderings of qosd.service itself, in this version and in earlier ones */
                r->generator->ordered = r->generator->ordered ||
                        (!streq(value, "qosd.socket qosd-root.socket") && !streq(value, "qosd.socket"));
        if (r->name)
                r->name->special = r->name->special || special;
        return 0;
}

static int generator_get(Generator *g, const char *name, size_t length, Name **ret) {
        Name *p;

        for (p = g->names; p < g->names + g->n_names; p++)
                if (strlen(p->name) == length && strncmp(p->name, name, length) == 0) {
                        *ret = p;
                        return 0;
                }
        if (g->n_names >= NAMES_MAX)
                return -E2BIG;
        p = reallocarray(g->names, g->n_names + 1, sizeof(Name));
        if (!p)
                return -ENOMEM;
        g->names = p;
        p += g->n_names;
        *p = (Name) { .name = strndup(name, length) };
        if (!p->name)
                return -ENOMEM;
        g->n_names++;
        *ret = p;
        return 0;
}

/* Whether settings for a general name apply to another: "service" to all, "foo-.service" to those with the
 * prefix, and "foo@.service" to its instances. */
static bool name_covers(const char *general, const char *name) {
        const char *dot = endswith(general, ".service");
        size_t l;

        if (!dot)
                return true;
        l = dot - general;
        if (streq(general, name))
                return true;
        return l > 0 && (general[l - 1] == '-' || general[l - 1] == '@') && strncmp(general, name, l) == 0;
}

/* Reads a unit file, or a drop-in, for the given unit or group of units. */
static int generator_read(Generator *g, int at, const char *path, const char *name, size_t length) {
        _cleanup_free_ char *text = NULL;
        Reading reading = { .generator = g };
        size_t size;
        int r;

        r = unit_file_read(at, path, &text, &size);
        if (r < 0)
                return r == -ENOMEM ? r : 0;
        if (length >= strlen("service") &&
            strncmp(name + length - strlen("service"), "service", strlen("service")) == 0) {
                r = generator_get(g, name, length, &reading.name);
                if (r == -E2BIG) {
                        /* Its orderings are unknown: order nothing rather than risk a cycle */
                        g->ordered = true;
                        return 0;
                }
                if (r < 0)
                        return r;
                /* Drop-ins for all services apply to qosd, too */
                reading.qosd = name_covers(reading.name->name, QOSD);
                reading.name->declared = reading.name->declared || text_has_xqos_section(text, size);
        }
        return unit_file_foreach_line(text, size, on_line, &reading);
}

static int generator_read_drop_ins(Generator *g, int at, const char *directory) {
        int r = 0, fd;
        DIR *d;

        fd = openat(at, directory, O_RDONLY|O_DIRECTORY|O_CLOEXEC);
        if (fd < 0)
                return 0;
        d = fdopendir(fd);
        if (!d) {
                close_fd(fd);
                return -ENOMEM;
        }
        for (struct dirent *de; r >= 0 && (de = readdir(d)); )
                if (endswith(de->d_name, ".conf"))
                        r = generator_read(g, dirfd(d), de->d_name, directory,
                                           strlen(directory) - strlen(".d"));
        (void) closedir(d);
        return r;
}

/* Whether the file is a symlink to another name. The file is read under that name. */
static bool is_alias(int at, const char *name) {
        char target[PATH_MAX], *base;
        ssize_t n;

        n = readlinkat(at, name, target, sizeof(target) - 1);
        if (n < 0)
                return false;
        target[n] = 0;
        base = strrchr(target, '/');
        return !streq(base ? base + 1 : target, name);
}

static int generator_read_all(Generator *g) {
        int r = 0;

        for (const char *const *directory = unit_file_directories; *directory && r >= 0; directory++) {
                DIR *d = opendir(*directory);

                for (struct dirent *de; d && r >= 0 && (de = readdir(d)); )
                        if (de->d_name[0] == '.')
                                continue;
                        else if (endswith(de->d_name, ".d"))
                                r = generator_read_drop_ins(g, dirfd(d), de->d_name);
                        else if (!is_alias(dirfd(d), de->d_name))
                                r = generator_read(g, dirfd(d), de->d_name, de->d_name, strlen(de->d_name));
                if (d)
                        (void) closedir(d);
        }
        return r;
}

/* ---- orderings ---------------------------------------------------------------------------------------- */

static bool generator_orders(const Generator *g, const Name *name) {
        /* qosd.service is ordered after the bus */
        static const char *const never[] = { QOSD, "dbus.service", "dbus-broker.service" };
        const char *dot = endswith(name->name, ".service");

        /* Drop-ins for several units are left to the administrator: some of them may be special */
        if (!name->declared || !dot || dot == name->name || dot[-1] == '-')
                return false;
        for (size_t i = 0; i < ELEMENTSOF(never); i++)
                if (streq(name->name, never[i]))
                        return false;
        for (const Name *p = g->names; p < g->names + g->n_names; p++)
                /* Instances of a template may have files of their own */
                if (p->special &&
                    (name_covers(p->name, name->name) ||
                     (dot[-1] == '@' && name_covers(name->name, p->name))))
                        return false;
        return true;
}

static int order(const char *directory, const char *name) {
        _cleanup_free_ char *path = NULL, *file = NULL;
        _cleanup_close_ int fd = -EBADF;

        if (asprintf(&path, "%s/%s.d", directory, name) < 0) {
                path = NULL;
                return -ENOMEM;
        }
        if (asprintf(&file, "%s/50-qosd.conf", path) < 0) {
                file = NULL;
                return -ENOMEM;
        }
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
                return -errno;
        fd = open(file, O_WRONLY|O_CREAT|O_TRUNC|O_NOFOLLOW|O_CLOEXEC, 0644);
        if (fd < 0 || dprintf(fd, "# Made by qosd-generator: this unit has [X-QoS], and is counted from its "
                                  "first request on\n[Unit]\nAfter=" QOSD "\n") < 0)
                return -errno;
        return 0;
}

int main(int argc, char **argv) {
        Generator g = {};
        int r;

        if (argc < 2) {
                fprintf(stderr, "This is run by the service manager, see systemd.generator(7).\n");
                return EXIT_FAILURE;
        }

        r = generator_read_all(&g);
        for (size_t i = 0; i < g.n_names && r >= 0 && !g.ordered; i++)
                if (generator_orders(&g, g.names + i))
                        r = order(argv[1], g.names[i].name);
        if (r < 0)
                fprintf(stderr, "Failed to order units with " UNIT_FILE_SECTION " after qosd: %s\n",
                        strerror(-r));
        generator_done(&g);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
