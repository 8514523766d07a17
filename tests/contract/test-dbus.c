/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The published interfaces (the arguments) equal those of the objects, and have all required annotations.
 * Reads the XML with its own code, independent of the generator. */

#include <ctype.h>

#include <libxml/parser.h>
#include <libxml/tree.h>

#include "dbus-manager.h"
#include "util-bus.h"

#define DOC "org.gtk.GDBus.DocString"

#define FACTS_MAX 1024

typedef struct Facts {
        char *items[FACTS_MAX];
        size_t n;
} Facts;

static void facts_done(Facts *f) {
        for (size_t i = 0; i < f->n; i++)
                free(f->items[i]);
}

static void _printf_(2, 3) facts_add(Facts *f, const char *format, ...) {
        va_list ap;

        check(f->n < FACTS_MAX);
        va_start(ap, format);
        check(vasprintf(f->items + f->n, format, ap) >= 0);
        va_end(ap);
        f->n++;
}

static int compare(const void *a, const void *b) {
        return strcmp(*(const char *const*) a, *(const char *const*) b);
}

static void facts_sort(Facts *f) {
        qsort(f->items, f->n, sizeof(f->items[0]), compare);
}

static bool is(xmlNode *n, const char *name) {
        return n->type == XML_ELEMENT_NODE && streq((const char*) n->name, name);
}

/* Returned strings are valid until the document is freed. */
static const char* attribute(xmlNode *n, const char *name) {
        xmlAttr *a = xmlHasProp(n, (const xmlChar*) name);

        return a && a->children ? (const char*) a->children->content : a ? "" : NULL;
}

static const char* annotation(xmlNode *n, const char *name) {
        for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a))
                if (is(a, "annotation") && streq_ptr(attribute(a, "name"), name))
                        return attribute(a, "value");
        return NULL;
}

/* The parts that clients depend on, one line each. */
static void facts_read(Facts *f, xmlNode *interface) {
        static const char *const annotations[] = {
                "org.freedesktop.DBus.Property.EmitsChangedSignal",
                "org.freedesktop.DBus.Deprecated",
                "org.freedesktop.DBus.Method.NoReply",
                "org.freedesktop.systemd1.Privileged",
        };

        for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                const char *kind = (const char*) n->name, *name = attribute(n, "name");
                unsigned k = 0;

                if (is(n, "annotation"))
                        continue;

                facts_add(f, "%s %s %s %s", kind, name, strempty(attribute(n, "type")),
                          strempty(attribute(n, "access")));
                for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a))
                        if (is(a, "arg"))
                                facts_add(f, "%s %s argument %u %s %s %s", kind, name, k++,
                                          attribute(a, "type"), strempty(attribute(a, "name")),
                                          strempty(attribute(a, "direction")));
                for (size_t i = 0; i < ELEMENTSOF(annotations); i++) {
                        const char *value = annotation(n, annotations[i]);

                        /* That of the interface is the default */
                        if (!value && i == 0 && is(n, "property"))
                                value = annotation(interface, annotations[i]);

                        /* The default */
                        if (value && !(i == 0 && streq(value, "true")))
                                facts_add(f, "%s %s %s=%s", kind, name, annotations[i], value);
                }
        }
}

static void facts_compare(const char *interface, Facts *published, Facts *live) {
        size_t i = 0, j = 0;
        bool same = true;

        facts_sort(published);
        facts_sort(live);

        while (i < published->n || j < live->n) {
                int c = i >= published->n ? 1 : j >= live->n ? -1 :
                        strcmp(published->items[i], live->items[j]);

                if (c != 0) {
                        fprintf(stderr, "%s: only %s: %s\n", interface, c < 0 ? "published" : "live",
                                c < 0 ? published->items[i] : live->items[j]);
                        same = false;
                }
                if (c <= 0)
                        i++;
                if (c >= 0)
                        j++;
        }

        check(published->n > 0);
        check(same);
}

static xmlNode* find_interface(xmlDoc *doc, const char *name) {
        for (xmlNode *n = xmlFirstElementChild(xmlDocGetRootElement(doc)); n; n = xmlNextElementSibling(n))
                if (is(n, "interface") && (!name || streq_ptr(attribute(n, "name"), name)))
                        return n;
        return NULL;
}

/* All members have descriptions, and metrics have all annotations of the metric table. */
static void verify_published(xmlNode *interface) {
        bool requests = streq(attribute(interface, "name"), "org.qosd1.Requests") ||
                        streq(attribute(interface, "name"), "org.qosd1.Contention");
        unsigned metrics = 0;

        check(!isempty(annotation(interface, DOC)));

        for (xmlNode *n = xmlFirstElementChild(interface); n; n = xmlNextElementSibling(n)) {
                const char *metric, *kind, *unit;

                if (is(n, "annotation"))
                        continue;

                if (isempty(annotation(n, DOC))) {
                        fprintf(stderr, "%s has no description\n", attribute(n, "name"));
                        exit(EXIT_FAILURE);
                }
                for (xmlNode *a = xmlFirstElementChild(n); a; a = xmlNextElementSibling(a))
                        if (is(a, "arg"))
                                check(!isempty(attribute(a, "name")) && !isempty(annotation(a, DOC)));

                if (!requests)
                        continue;

                check(is(n, "property"));
                check(!isempty(annotation(n, "org.qosd1.Field")));
                unit = annotation(n, "org.qosd1.Unit");
                check(unit && (streq(unit, "ns") || streq(unit, "bytes") || streq(unit, "1/s") ||
                               streq(unit, "1") || streq(unit, "") ||
                               (streq(unit, "us") && streq(attribute(n, "name"), "Timestamp"))));

                metric = annotation(n, "org.qosd1.Metric");
                kind = annotation(n, "org.qosd1.Kind");
                check(!metric == !kind);
                if (!metric)
                        continue; /* identifies the reading */

                metrics++;
                check(streq(kind, "counter") || streq(kind, "gauge"));
                check(islower((unsigned char) metric[0]));
                for (const char *c = metric; *c; c++)
                        check(isalnum((unsigned char) *c) || *c == '.');
                for (xmlNode *o = xmlNextElementSibling(n); o; o = xmlNextElementSibling(o))
                        check(!streq_ptr(annotation(o, "org.qosd1.Metric"), metric));
        }

        check(!requests || metrics > 50);
}

static xmlDoc* introspect(sd_bus *client, const char *path) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        const char *xml;
        xmlDoc *doc;

        reply = test_call(client, path, "org.freedesktop.DBus.Introspectable", "Introspect", NULL, NULL);
        check(sd_bus_message_read(reply, "s", &xml) > 0);
        doc = xmlReadMemory(xml, (int) strlen(xml), path, NULL, XML_PARSE_NONET|XML_PARSE_NOBLANKS);
        check(doc);
        return doc;
}

static void on_attached(Manager *m, int error, const QosError *e, Unit *u, void *userdata) {
        check(error >= 0);
        *(bool*) userdata = true;
}

int main(int argc, char **argv) {
        _cleanup_(sd_event_unrefp) sd_event *event = NULL;
        sd_bus *daemon_side, *client;
        FakeServiceManager pid1;
        FakeUnit units[] = {
                { .id = "a.service", .active_state = "inactive", .sub_state = "dead", .slice =
                  "system.slice" },
                {}
        };
        bool attached = false;
        unsigned interfaces = 0;
        Manager *manager;
        BusServer *bus_server;

        check(argc > 1);
        /* If that fails, there are no privileges to drop */
        (void) test_become_plain_root();

        check(sd_event_new(&event) >= 0);
        check(manager_new(event, &manager) >= 0);
        test_bus_pair(event, 0, &daemon_side, &client);
        fake_service_manager_start(&pid1, client, units);
        check(manager_set_bus(manager, daemon_side) >= 0);
        check(bus_server_new_peer(manager, daemon_side, &bus_server) >= 0);
        check(manager_attach(manager, &(AttachRequest) { .name = "a", .type = HOLD_ADMINISTRATOR,
                                                         .duration_usec = USEC_INFINITY },
                             on_attached, &attached, NULL) >= 0);
        test_wait(event, attached);

        for (int i = 1; i < argc; i++) {
                __attribute__((cleanup(facts_done))) Facts published = {}, live = {};
                xmlDoc *published_doc, *live_doc;
                xmlNode *p, *l;
                const char *name;

                published_doc = xmlReadFile(argv[i], NULL, XML_PARSE_NONET|XML_PARSE_NOBLANKS);
                check(published_doc);
                p = find_interface(published_doc, NULL);
                check(p);
                name = attribute(p, "name");

                live_doc = introspect(client, streq(name, "org.qosd1.Manager") ? "/org/qosd1" :
                                      "/org/qosd1/unit/a_2eservice");
                l = find_interface(live_doc, name);
                if (!l) {
                        fprintf(stderr, "%s is published, but the object does not have it\n", name);
                        return EXIT_FAILURE;
                }

                verify_published(p);
                facts_read(&published, p);
                facts_read(&live, l);
                facts_compare(name, &published, &live);

                /* And vice versa: what the objects have is published */
                for (xmlNode *n = xmlFirstElementChild(xmlDocGetRootElement(live_doc)); n;
                     n = xmlNextElementSibling(n)) {
                        bool found = !is(n, "interface") || !startswith(attribute(n, "name"), "org.qosd1.");

                        for (int k = 1; k < argc && !found; k++)
                                found = strstr(argv[k], attribute(n, "name"));
                        check(found);
                }

                interfaces++;
                xmlFreeDoc(published_doc);
                xmlFreeDoc(live_doc);
        }

        /* The unit is in the tree */
        {
                xmlDoc *doc = introspect(client, "/org/qosd1/unit");
                bool found = false;

                for (xmlNode *n = xmlFirstElementChild(xmlDocGetRootElement(doc)); n;
                     n = xmlNextElementSibling(n))
                        found = found || (is(n, "node") && streq_ptr(attribute(n, "name"), "a_2eservice"));
                check(found);
                xmlFreeDoc(doc);
        }

        check(interfaces >= 3);
        bus_server_free(bus_server);
        manager_free(manager);
        sd_bus_flush_close_unref(client);
        sd_bus_unref(daemon_side);
        xmlCleanupParser();
        return EXIT_SUCCESS;
}
