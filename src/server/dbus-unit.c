/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <math.h>

#include "dbus-custom.h"
#include "dbus-overview.h"
#include "dbus-unit.h"
#include "hierarchy.h"
#include "objective.h"

/* A reading of a unit, to which the offsets in the vtables of snapshots refer. */
typedef struct Shown {
        Snapshot snapshot;
        Overview overview;
} Shown;

#include "vtable-contention.h"
#include "vtable-custom.h"
#include "vtable-network.h"
#include "vtable-requests.h"
#include "vtable-storage.h"
#include "vtable-unit.h"

/* Limit of verdicts of all units per second, and lifetime of a verdict. Making one reads the unit's history,
 * which blocks the daemon for some tenths of a millisecond. */
#define VERDICTS_PER_SECOND_MAX 8U
#define VERDICT_USEC (10 * USEC_PER_SEC)

/* Properties of org.qosd1.Unit whose changes are signalled by unit_objects_emit_unit(). */
static const char *const identity_table[] = {
        "ControlGroup", "InvocationID", "ActiveState", "ParentUnit", "DescendantUnits", "Probes", "Degraded",
                "Holds", "Exclude", "Thresholds",
};

/* Interfaces with the properties of a reading. */
static const struct {
        const char *interface;
        const sd_bus_vtable *vtable;
        size_t n;
} shown_table[] = {
        { Requests_INTERFACE,   requests_vtable,   ELEMENTSOF(requests_vtable)   },
        { Contention_INTERFACE, contention_vtable, ELEMENTSOF(contention_vtable) },
        { Storage_INTERFACE,    storage_vtable,    ELEMENTSOF(storage_vtable)    },
        { Network_INTERFACE,    network_vtable,    ELEMENTSOF(network_vtable)    },
        { Unit_INTERFACE,       unit_shown_vtable, ELEMENTSOF(unit_shown_vtable) },
};

#define PROPERTIES_MAX                                                                                     \
        (ELEMENTSOF(requests_vtable) + ELEMENTSOF(contention_vtable) + ELEMENTSOF(storage_vtable) +        \
         ELEMENTSOF(network_vtable))

/* Values of a unit that subscribers may have received. */
typedef struct PublishedProperties {
        Shown reading;                                  /* last one that was signalled or read */
        bool changed[ELEMENTSOF(shown_table)][PROPERTIES_MAX]; /* properties that have changed since the last
                                                                * signal */
        uint64_t identity[ELEMENTSOF(identity_table)];  /* hashes of the properties in identity_table */
} PublishedProperties;

typedef struct CachedVerdict {
        const char *word;               /* NULL: none yet */
        uint64_t until;                 /* CLOCK_MONOTONIC us */
} CachedVerdict;

struct DBusUnits {
        Manager *manager;
        sd_bus *bus;
        sd_bus_slot *slots[2 * (ELEMENTSOF(shown_table) + 3)];
        size_t n_slots;

        bool subscribed;
        PublishedProperties *shown[UNITS_MAX_LIMIT];      /* NULL without subscribers */

        CachedVerdict verdicts[UNITS_MAX_LIMIT];
        uint64_t verdicts_second;       /* CLOCK_MONOTONIC */
        unsigned n_verdicts;            /* verdicts in that second */

        /* Reading for all properties of a call */
        Shown reading;
        sd_bus_message *call;                   /* the call of the reading, and its unit: GetAll() of all
                                                 * interfaces is one call */
        const Unit *call_unit;
};

/* ---- org.qosd1.Unit ----------------------------------------------------------------------------------- */

int append_probes(sd_bus_message *m, ProbeMask probes) {
        const char *name;
        int r;

        r = sd_bus_message_open_container(m, 'a', "s");
        for (unsigned i = 0; r >= 0 && (name = probe_mask_name(i)); i++)
                if (probes & (1U << i))
                        r = sd_bus_message_append(m, "s", name);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int unit_property_get_invocation_id(sd_bus *bus, const char *path, const char *interface,
                                           const char *property, sd_bus_message *reply, void *userdata,
                                           sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);

        return sd_bus_message_append_array(reply, 'y', &u->invocation_id,
                                           sd_id128_is_null(u->invocation_id) ? 0 :
                                           sizeof(u->invocation_id));
}

static int unit_property_get_attach_timestamp(sd_bus *bus, const char *path, const char *interface,
                                              const char *property, sd_bus_message *reply, void *userdata,
                                              sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "t", u->attached_since / NSEC_PER_USEC);
}

static int unit_property_get_parent_unit(sd_bus *bus, const char *path, const char *interface,
                                         const char *property, sd_bus_message *reply, void *userdata,
                                         sd_bus_error *error) {
        const Unit *outer = unit_find_ancestor(ASSERT_PTR(userdata));

        return sd_bus_message_append(reply, "s", outer ? outer->name : "");
}

static int unit_property_get_descendant_units(sd_bus *bus, const char *path, const char *interface,
                                              const char *property, sd_bus_message *reply, void *userdata,
                                              sd_bus_error *error) {
        const Unit *u = ASSERT_PTR(userdata);
        int r;

        r = sd_bus_message_open_container(reply, 'a', "s");
        FOREACH_UNIT(other, u->manager)
                if (r >= 0 && unit_is_ancestor(u, other))
                        r = sd_bus_message_append(reply, "s", other->name);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int unit_property_get_probes(sd_bus *bus, const char *path, const char *interface,
                                    const char *property, sd_bus_message *reply, void *userdata,
                                    sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);

        return append_probes(reply, u->probes);
}

static int unit_property_get_degraded(sd_bus *bus, const char *path, const char *interface,
                                      const char *property, sd_bus_message *reply, void *userdata,
                                      sd_bus_error *error) {
        const Unit *u = ASSERT_PTR(userdata);
        _cleanup_free_ char *degraded = NULL;
        int r;

        r = unit_get_degraded_reason(u, &degraded);
        return r < 0 ? r : sd_bus_message_append(reply, "s", strempty(degraded));
}

static int unit_property_get_holds(sd_bus *bus, const char *path, const char *interface,
                                   const char *property, sd_bus_message *reply, void *userdata,
                                   sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(sasust)");
        for (Hold *h = u->holds; h && r >= 0; h = h->next) {
                r = sd_bus_message_open_container(reply, 'r', "sasust");
                if (r >= 0)
                        r = sd_bus_message_append(reply, "s", hold_type_to_string(h->type));
                if (r >= 0)
                        r = append_probes(reply, h->probes);
                if (r >= 0)
                        r = sd_bus_message_append(reply, "ust", (uint32_t) h->uid, strempty(h->owner),
                                                  h->expires);
                if (r >= 0)
                        r = sd_bus_message_close_container(reply);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int unit_property_get_exclude(sd_bus *bus, const char *path, const char *interface,
                                     const char *property, sd_bus_message *reply, void *userdata,
                                     sd_bus_error *error) {
        ExcludeList l;
        int r;

        r = unit_get_excludes(ASSERT_PTR(userdata), NULL, &l);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "s");
        for (size_t i = 0; r >= 0 && i < l.n; i++)
                r = sd_bus_message_append(reply, "s", l.list[i].text);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int unit_property_get_thresholds(sd_bus *bus, const char *path, const char *interface,
                                        const char *property, sd_bus_message *reply, void *userdata,
                                        sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);
        int r;

        r = sd_bus_message_open_container(reply, 'a', "(ssst)");
        for (Threshold *t = threshold_next(u, NULL); t && r >= 0; t = threshold_next(u, t)) {
                _cleanup_free_ char *whole = NULL;

                r = threshold_rule_format(&t->rule, /* named= */ false, &whole);
                if (r >= 0)
                        r = sd_bus_message_append(reply, "(ssst)", t->rule.name, whole,
                                                  threshold_state_to_string(t->machine.state),
                                                  t->since / NSEC_PER_USEC);
        }
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int custom_property_get_metrics(sd_bus *bus, const char *path, const char *interface,
                                       const char *property, sd_bus_message *reply, void *userdata,
                                       sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);
        int r;

        r = sd_bus_message_open_container(reply, 'a', "{sv}");
        if (r >= 0)
                r = append_custom_metrics(reply, u, u->manager->config.default_window_nsec);
        return r < 0 ? r : sd_bus_message_close_container(reply);
}

static int unit_property_get_drops(sd_bus *bus, const char *path, const char *interface,
                                   const char *property, sd_bus_message *reply, void *userdata,
                                   sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);
        Snapshot s;

        unit_get_snapshot(u, u->manager->config.default_window_nsec, &s);
        return sd_bus_message_append(reply, "t", s.drops);
}

static int unit_property_get_cost_share(sd_bus *bus, const char *path, const char *interface,
                                        const char *property, sd_bus_message *reply, void *userdata,
                                        sd_bus_error *error) {
        Unit *u = ASSERT_PTR(userdata);
        Snapshot s;

        unit_get_snapshot(u, u->manager->config.default_window_nsec, &s);
        return sd_bus_message_append(reply, "d", s.cost_share);
}

/* FNV-1a */
static uint64_t hash(uint64_t h, const void *data, size_t size) {
        for (const uint8_t *p = data; size > 0; p++, size--)
                h = (h ^ *p) * UINT64_C(0x100000001b3);
        return h;
}

static uint64_t hash_string(uint64_t h, const char *s) {
        return hash(h, strempty(s), strlen(strempty(s)) + 1);
}

/* In the order of identity_table. */
static void unit_hash_identity(Unit *u, uint64_t ret[static ELEMENTSOF(identity_table)]) {
        const uint64_t seed = UINT64_C(0xcbf29ce484222325);
        const Unit *outer = unit_find_ancestor(u);
        _cleanup_free_ char *degraded = NULL;
        ExcludeList excludes;

        ret[0] = hash_string(seed, u->control_group);
        ret[1] = hash(seed, &u->invocation_id, sizeof(u->invocation_id));
        ret[2] = hash_string(seed, u->active_state);
        ret[3] = hash_string(seed, outer ? outer->name : NULL);
        ret[4] = seed;
        FOREACH_UNIT(other, u->manager)
                if (unit_is_ancestor(u, other))
                        ret[4] = hash_string(ret[4], other->name);
        ret[5] = hash(seed, &u->probes, sizeof(u->probes));
        (void) unit_get_degraded_reason(u, &degraded); /* out of memory: compared again at the next change */
        ret[6] = hash_string(seed, degraded);
        ret[7] = seed;
        for (Hold *h = u->holds; h; h = h->next) {
                ret[7] = hash(ret[7], &h->type, sizeof(h->type));
                ret[7] = hash(ret[7], &h->probes, sizeof(h->probes));
                ret[7] = hash(ret[7], &h->uid, sizeof(h->uid));
                ret[7] = hash_string(ret[7], h->owner);
                ret[7] = hash(ret[7], &h->expires, sizeof(h->expires));
        }
        ret[8] = seed;
        if (unit_get_excludes(u, NULL, &excludes) >= 0)
                for (size_t i = 0; i < excludes.n; i++)
                        ret[8] = hash_string(ret[8], excludes.list[i].text);
        ret[9] = seed;
        for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t)) {
                ret[9] = hash(ret[9], &t->rule, sizeof(t->rule)); /* its padding is zero */
                ret[9] = hash(ret[9], &t->machine.state, sizeof(t->machine.state));
                ret[9] = hash(ret[9], &t->since, sizeof(t->since));
        }
}

/* ---- readings --------------------------------------------------------------------------------------- */

static int property_get_timestamp(sd_bus *bus, const char *path, const char *interface, const char *property,
                                  sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        uint64_t *nsec = ASSERT_PTR(userdata);

        return sd_bus_message_append(reply, "t", *nsec / NSEC_PER_USEC);
}

static int property_get_quality(sd_bus *bus, const char *path, const char *interface, const char *property,
                                sd_bus_message *reply, void *userdata, sd_bus_error *error) {
        return sd_bus_message_append(reply, "s", strempty(quality_to_string(*(const Quality*) userdata)));
}

static bool property_equal(const sd_bus_vtable *property, const Shown *a, const Shown *b) {
        size_t size = property->x.property.get ? sizeof(Quality) : sizeof(uint64_t);

        /* Bitwise: NaN equals NaN, and strings are constants */
        return memcmp((const uint8_t*) a + property->x.property.offset,
                      (const uint8_t*) b + property->x.property.offset, size) == 0;
}

/* To be called with each reading that clients get. Comparing with the last signal would not suffice: clients
 * that have read the properties meanwhile must be notified even if the value is the one of the last signal
 * again. */
static void unit_shown_update(PublishedProperties *shown, const Shown *s) {
        for (size_t t = 0; t < ELEMENTSOF(shown_table); t++)
                for (size_t i = 0; i < shown_table[t].n; i++) {
                        const sd_bus_vtable *property = shown_table[t].vtable + i;

                        if (property->type == _SD_BUS_VTABLE_PROPERTY &&
                            !property_equal(property, &shown->reading, s))
                                shown->changed[t][i] = true;
                }
        shown->reading = *s;
}

/* Whether there is a change other than of number and time of the reading. */
static bool unit_shown_has_news(const PublishedProperties *shown, size_t t) {
        for (size_t i = 0; i < shown_table[t].n; i++)
                if (shown->changed[t][i] &&
                    shown_table[t].vtable[i].x.property.offset != offsetof(Shown, snapshot.seq) &&
                    shown_table[t].vtable[i].x.property.offset != offsetof(Shown, snapshot.timestamp))
                        return true;
        return false;
}

/* Makes a new verdict when the last one is too old, unless there were too many in this second. */
static const char* dbus_units_get_verdict(DBusUnits *o, Unit *u) {
        uint64_t now = now_usec(CLOCK_MONOTONIC);
        CachedVerdict *v = &o->verdicts[u->index];

        if (o->verdicts_second != now / USEC_PER_SEC) {
                o->verdicts_second = now / USEC_PER_SEC;
                o->n_verdicts = 0;
        }
        if (now >= v->until && o->n_verdicts < VERDICTS_PER_SECOND_MAX) {
                o->n_verdicts++;
                *v = (CachedVerdict) { overview_get_verdict(u, &o->reading.snapshot), now + VERDICT_USEC };
        }
        return v->word ?: verdict_to_string(VERDICT_UNKNOWN);
}

static void dbus_units_read(DBusUnits *o, Unit *u) {
        PublishedProperties *shown = o->shown[u->index];

        unit_get_snapshot(u, o->manager->config.default_window_nsec, &o->reading.snapshot);
        overview_fill(u, &o->reading.snapshot, &o->reading.overview);
        o->reading.overview.verdict = dbus_units_get_verdict(o, u);
        if (!o->subscribed)
                return;

        if (shown)
                unit_shown_update(shown, &o->reading);
        else {
                shown = new0(PublishedProperties, 1);
                if (!shown)
                        return;
                shown->reading = o->reading;
                unit_hash_identity(u, shown->identity);
                o->shown[u->index] = shown;
        }
}

/* ---- objects ------------------------------------------------------------------------------------------ */

int unit_get_bus_path(Unit *u, char **ret) {
        return sd_bus_path_encode(BUS_UNIT_PATH, u->name, ret);
}

/* By the exact name: aliases have no object. */
static Unit* find_unit(Manager *m, const char *path) {
        _cleanup_free_ char *name = NULL;

        if (sd_bus_path_decode(path, BUS_UNIT_PATH, &name) <= 0)
                return NULL;
        FOREACH_UNIT(u, m)
                if (streq(u->name, name))
                        return u;
        return NULL;
}

static int find_unit_object(sd_bus *bus, const char *path, const char *interface, void *userdata, void **ret,
                            sd_bus_error *error) {
        DBusUnits *o = ASSERT_PTR(userdata);
        Unit *u;

        u = find_unit(o->manager, path);
        if (!u)
                return 0;

        *ret = u;
        return 1;
}

static int find_shown_object(sd_bus *bus, const char *path, const char *interface, void *userdata,
                             void **ret, sd_bus_error *error) {
        DBusUnits *o = ASSERT_PTR(userdata);
        sd_bus_message *m;
        Unit *u;

        u = find_unit(o->manager, path);
        if (!u)
                return 0;
        m = sd_bus_get_current_message(bus);
        if (!m || m != o->call || u != o->call_unit) {
                dbus_units_read(o, u);
                sd_bus_message_unref(o->call);
                o->call = sd_bus_message_ref(m);
                o->call_unit = u;
        }

        *ret = &o->reading;
        return 1;
}

static int enumerate_units(sd_bus *bus, const char *prefix, void *userdata, char ***ret,
                           sd_bus_error *error) {
        DBusUnits *o = ASSERT_PTR(userdata);
        char **nodes;
        size_t n = 0;
        int r;

        nodes = new0(char*, o->manager->units.n + 1);
        if (!nodes)
                return -ENOMEM;

        FOREACH_UNIT(u, o->manager) {
                r = unit_get_bus_path(u, nodes + n);
                if (r < 0) {
                        strv_free(nodes);
                        return r;
                }
                n++;
        }

        *ret = nodes;
        return 1;
}

/* ---- properties in messages --------------------------------------------------------------------------- */

/* Appends a property to a dictionary, as sd-bus does. object: base of the offset in the vtable. */
static int append_property(sd_bus *bus, const char *path, const char *interface, const sd_bus_vtable *p,
                           void *object, sd_bus_message *m) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        void *value = (uint8_t*) object + p->x.property.offset;
        int r;

        r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", p->x.property.member);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', p->x.property.signature);
        if (r < 0)
                return r;

        if (p->x.property.get)
                r = p->x.property.get(bus, path, interface, p->x.property.member, m, value, &error);
        else if (streq(p->x.property.signature, "s"))
                r = sd_bus_message_append(m, "s", strempty(*(const char**) value));
        else
                r = sd_bus_message_append_basic(m, p->x.property.signature[0], value);

        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

static int append_vtable(DBusUnits *o, const char *path, const char *interface, const sd_bus_vtable *vtable,
                         void *object, sd_bus_message *m) {
        int r = 0;

        for (const sd_bus_vtable *p = vtable; p->type != _SD_BUS_VTABLE_END && r >= 0; p++)
                if (p->type == _SD_BUS_VTABLE_PROPERTY)
                        r = append_property(o->bus, path, interface, p, object, m);
        return r;
}

static int open_interface(sd_bus_message *m, const char *interface) {
        int r;

        r = sd_bus_message_open_container(m, 'e', "sa{sv}");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", interface);
        return r < 0 ? r : sd_bus_message_open_container(m, 'a', "{sv}");
}

static int close_interface(sd_bus_message *m) {
        int r;

        r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* The interfaces that sd-bus adds to each object have no properties here. Unit_INTERFACE, the last one of
 * shown_table, has properties of two vtables. */
static int append_interfaces(DBusUnits *o, Unit *u, const char *path, sd_bus_message *m) {
        int r;

        r = sd_bus_message_append(m, "{sa{sv}}{sa{sv}}{sa{sv}}", "org.freedesktop.DBus.Peer", 0,
                                  "org.freedesktop.DBus.Introspectable", 0,
                                  "org.freedesktop.DBus.Properties", 0);
        if (r >= 0)
                r = open_interface(m, Custom_INTERFACE);
        if (r >= 0)
                r = append_vtable(o, path, Custom_INTERFACE, custom_vtable, u, m);
        if (r >= 0)
                r = close_interface(m);
        for (size_t t = 0; t < ELEMENTSOF(shown_table) && r >= 0; t++) {
                const char *interface = shown_table[t].interface;

                r = open_interface(m, interface);
                if (r >= 0 && streq(interface, Unit_INTERFACE))
                        r = append_vtable(o, path, interface, unit_vtable, u, m);
                if (r >= 0)
                        r = append_vtable(o, path, interface, shown_table[t].vtable, &o->reading, m);
                if (r >= 0)
                        r = close_interface(m);
        }
        return r;
}

static int append_error_budget(const Threshold *t, sd_bus_message *m) {
        ErrorBudget budget;
        int r;

        if (!threshold_get_error_budget(t, &budget))
                return 0;
        r = sd_bus_message_append(m, "{sv}{sv}", "good", "t", budget.counts.good, "total", "t",
                                  budget.counts.total);
        for (BurnPeriod i = 0; i < BURN_PERIODS && r >= 0; i++)
                if (!isnan(budget.burn_rates[i]))
                        r = sd_bus_message_append(m, "{sv}", burn_period_table[i].key, "d",
                                                  budget.burn_rates[i]);
        return r;
}

static int append_real(sd_bus_message *m, const char *key, double value) {
        return isnan(value) ? 0 : sd_bus_message_append(m, "{sv}", key, "d", value);
}

static int append_integer(sd_bus_message *m, const char *key, uint64_t value) {
        return value == ABSENT ? 0 : sd_bus_message_append(m, "{sv}", key, "t", value);
}

/* The fields are those of the type Threshold on varlink, without names of peers. */
static int append_threshold(const Threshold *t, sd_bus_message *m) {
        double slack = threshold_rule_get_slack(&t->rule, t->value);
        _cleanup_free_ char *whole = NULL;
        int r;

        r = threshold_rule_format(&t->rule, /* named= */ false, &whole);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0)
                r = sd_bus_message_append(m, "{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}", "unit", "s", t->unit->name,
                                          "name", "s", t->rule.name, "threshold", "s", whole, "metric", "s",
                                          threshold_rule_format_metric(&t->rule, /* named= */ false,
                                                                       (char[THRESHOLD_METRIC_MAX]) {}),
                                          "state", "s", threshold_state_to_string(t->machine.state),
                                          "source", "s", threshold_source_to_string(t->source),
                                          "limit", "d", t->rule.limit, "since", "t",
                                          t->since / NSEC_PER_USEC);
        if (r >= 0 && t->origin)
                r = sd_bus_message_append(m, "{sv}", "origin", "s", t->origin);
        if (r >= 0)
                r = append_real(m, "value", t->value);
        if (r >= 0)
                r = append_real(m, "slack", slack);
        if (r >= 0)
                r = append_integer(m, "samples", t->samples);
        if (r >= 0)
                r = append_error_budget(t, m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int unit_append_thresholds(const Unit *u, sd_bus_message *m) {
        int r = 0;

        for (Threshold *t = threshold_next(u, NULL); t && r >= 0; t = threshold_next(u, t))
                r = append_threshold(t, m);
        return r;
}

int unit_objects_append_overview(DBusUnits *o, Unit *u, sd_bus_message *m) {
        const Overview *overview = &o->reading.overview;
        const Snapshot *s = &o->reading.snapshot;
        _cleanup_free_ char *path = NULL, *degraded = NULL;
        int r;

        r = unit_get_bus_path(u, &path);
        if (r >= 0)
                r = unit_get_degraded_reason(u, &degraded);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0)
                r = sd_bus_message_append(m, "{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}", "unit", "s", u->name,
                                          "path", "o", path, "seq", "t", s->seq,
                                          "timestamp", "t", s->timestamp / NSEC_PER_USEC,
                                          "activeState", "s", u->active_state,
                                          "degraded", "s", strempty(degraded),
                                          "state", "s", overview->state,
                                          "worstWait", "s", overview->worst_wait,
                                          "verdict", "s", overview->verdict);
        if (r >= 0)
                r = append_real(m, "rate", overview->rate);
        if (r >= 0)
                r = append_real(m, "errorRate", overview->error_rate);
        if (r >= 0)
                r = append_integer(m, "latencyP50", overview->latency_p50);
        if (r >= 0)
                r = append_integer(m, "latencyP99", overview->latency_p99);
        if (r >= 0)
                r = append_integer(m, "inFlight", overview->in_flight);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int unit_objects_append(DBusUnits *o, Unit *u, sd_bus_message *m) {
        _cleanup_free_ char *path = NULL;
        int r;

        r = unit_get_bus_path(u, &path);
        if (r < 0)
                return r;
        dbus_units_read(o, u);

        r = sd_bus_message_open_container(m, 'e', "oa{sa{sv}}");
        if (r >= 0)
                r = sd_bus_message_append(m, "o", path);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sa{sv}}");
        if (r >= 0)
                r = append_interfaces(o, u, path, m);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* ---- signals ------------------------------------------------------------------------------------------ */

void unit_objects_forget(DBusUnits *o, Unit *u) {
        free(o->shown[u->index]);
        o->shown[u->index] = NULL;
        o->verdicts[u->index] = (CachedVerdict) {};
}

void unit_objects_set_subscribed(DBusUnits *o, bool subscribed) {
        if (o->subscribed == subscribed)
                return;

        o->subscribed = subscribed;
        FOREACH_UNIT(u, o->manager) {
                if (subscribed)
                        dbus_units_read(o, u);
                else
                        unit_objects_forget(o, u);
        }
}

/* sd_bus_emit_properties_changed() does not send properties that are annotated as not emitting the signal.
 * Metrics outside of the overview are, as other clients than subscribers may not cache them. */
static int emit_shown(DBusUnits *o, const char *path, size_t t, const bool changed[static PROPERTIES_MAX]) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        r = sd_bus_message_new_signal(o->bus, &m, path, "org.freedesktop.DBus.Properties",
                                      "PropertiesChanged");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", shown_table[t].interface);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        for (size_t i = 0; i < shown_table[t].n && r >= 0; i++)
                if (changed[i])
                        r = append_property(o->bus, path, shown_table[t].interface,
                                            &shown_table[t].vtable[i], &o->reading, m);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        if (r >= 0)
                r = sd_bus_message_append(m, "as", 0);
        return r < 0 ? r : sd_bus_send(o->bus, m, NULL);
}

int unit_objects_emit_reading(DBusUnits *o, Unit *u) {
        _cleanup_free_ char *path = NULL;
        PublishedProperties *shown;
        int r, n_sent = 0;

        dbus_units_read(o, u);
        shown = o->shown[u->index];
        if (!shown)
                return 0;

        for (size_t t = 0; t < ELEMENTSOF(shown_table); t++) {
                if (!unit_shown_has_news(shown, t))
                        continue;

                if (!path) {
                        r = unit_get_bus_path(u, &path);
                        if (r < 0)
                                return r;
                }
                r = emit_shown(o, path, t, shown->changed[t]);
                if (r < 0)
                        return r;

                memset(shown->changed[t], 0, sizeof(shown->changed[t]));
                n_sent++;
        }
        return n_sent;
}

int unit_objects_emit_unit(DBusUnits *o, Unit *u) {
        PublishedProperties *shown = o->shown[u->index];
        uint64_t identity[ELEMENTSOF(identity_table)];
        char *names[ELEMENTSOF(identity_table) + 1];
        _cleanup_free_ char *path = NULL;
        size_t n = 0;
        int r;

        if (!shown)
                return 0;

        unit_hash_identity(u, identity);
        for (size_t i = 0; i < ELEMENTSOF(identity_table); i++)
                if (identity[i] != shown->identity[i])
                        names[n++] = (char*) identity_table[i];
        names[n] = NULL;
        if (n == 0)
                return 0;

        r = unit_get_bus_path(u, &path);
        if (r < 0)
                return r;
        r = sd_bus_emit_properties_changed_strv(o->bus, path, Unit_INTERFACE, names);
        if (r < 0)
                return r;

        memcpy(shown->identity, identity, sizeof(identity));
        return 1;
}

int unit_objects_emit_crossed(DBusUnits *o, Unit *u, const ThresholdEvent *e) {
        _cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        _cleanup_free_ char *path = NULL;
        int r;

        r = unit_get_bus_path(u, &path);
        if (r < 0)
                return r;
        r = sd_bus_message_new_signal(o->bus, &m, path, Unit_INTERFACE, "ThresholdCrossed");
        if (r < 0)
                return r;
        r = sd_bus_message_append(m, "ssssdddttt", e->rule.name,
                                  threshold_rule_format_metric(&e->rule, /* named= */ false,
                                                               (char[THRESHOLD_METRIC_MAX]) {}),
                                  threshold_state_to_string(e->state),
                                  threshold_state_to_string(e->previous),
                                  e->value, e->rule.limit, threshold_rule_get_slack(&e->rule, e->value),
                                  e->samples, e->seq, e->timestamp / NSEC_PER_USEC);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "(sdd)");
        for (size_t i = 0; i < e->n_shares && r >= 0; i++)
                r = sd_bus_message_append(m, "(sdd)", state_share_name(e->shares + i), e->shares[i].share,
                                          e->shares[i].usual);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_send(o->bus, m, NULL);
}

int threshold_event_append(const ThresholdEvent *e, sd_bus_message *m) {
        int r;

        r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0)
                r = sd_bus_message_append(m, "{sv}{sv}{sv}{sv}{sv}{sv}{sv}{sv}", "unit", "s", e->unit,
                                          "name", "s", e->rule.name, "metric", "s",
                                          threshold_rule_format_metric(&e->rule, /* named= */ false,
                                                                       (char[THRESHOLD_METRIC_MAX]) {}),
                                          "state", "s", threshold_state_to_string(e->state),
                                          "previous", "s", threshold_state_to_string(e->previous),
                                          "limit", "d", e->rule.limit, "seq", "t", e->seq,
                                          "timestamp", "t", e->timestamp / NSEC_PER_USEC);
        if (r >= 0)
                r = append_real(m, "value", e->value);
        if (r >= 0)
                r = append_real(m, "slack", threshold_rule_get_slack(&e->rule, e->value));
        if (r >= 0)
                r = append_integer(m, "samples", e->samples);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* ---- object ------------------------------------------------------------------------------------------- */

DBusUnits* unit_objects_free(DBusUnits *o) {
        if (!o)
                return NULL;

        while (o->n_slots > 0)
                sd_bus_slot_unref(o->slots[--o->n_slots]);
        sd_bus_message_unref(o->call);
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                free(o->shown[i]);
        sd_bus_unref(o->bus);
        free(o);
        return NULL;
}

int unit_objects_add_to(DBusUnits *o, sd_bus *bus) {
        int r;

        assert(o->n_slots + ELEMENTSOF(shown_table) + 3 <= ELEMENTSOF(o->slots));

        r = sd_bus_add_fallback_vtable(bus, o->slots + o->n_slots++, BUS_UNIT_PATH, Unit_INTERFACE,
                                       unit_vtable, find_unit_object, o);
        if (r >= 0)
                r = sd_bus_add_fallback_vtable(bus, o->slots + o->n_slots++, BUS_UNIT_PATH, Custom_INTERFACE,
                                               custom_vtable, find_unit_object, o);
        for (size_t t = 0; t < ELEMENTSOF(shown_table) && r >= 0; t++)
                r = sd_bus_add_fallback_vtable(bus, o->slots + o->n_slots++, BUS_UNIT_PATH,
                                               shown_table[t].interface, shown_table[t].vtable,
                                               find_shown_object, o);
        if (r >= 0)
                r = sd_bus_add_node_enumerator(bus, o->slots + o->n_slots++, BUS_UNIT_PATH, enumerate_units,
                                               o);
        return r;
}

int unit_objects_new(Manager *m, sd_bus *bus, DBusUnits **ret) {
        DBusUnits *o;

        o = new0(DBusUnits, 1);
        if (!o)
                return -ENOMEM;
        o->manager = m;
        o->bus = sd_bus_ref(bus);

        *ret = o;
        return 0;
}
