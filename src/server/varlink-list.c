/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* List, Export, ListThresholds, ListMetrics, Probes, GetStatus */

#include "config-build.h"
#include "hierarchy.h"
#include "hold-json.h"
#include "probe.h"
#include "snapshot-json.h"
#include "threshold-json.h"
#include "unit-totals.h"
#include "varlink-connection.h"
#include "xqos-loader.h"

Listing* listing_free(Listing *l) {
        if (!l)
                return NULL;

        strv_free(l->units);
        free(l->last);
        free(l);
        return NULL;
}

/* ---- methods ----------------------------------------------------------------------- */

static int unit_thresholds_to_json(const Connection *c, const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        r = sd_json_variant_new_array(&array, NULL, 0);
        for (Threshold *t = threshold_next(u, NULL); t && r >= 0; t = threshold_next(u, t)) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;

                r = threshold_to_json(t, connection_may_see_peers(c, t->unit), /* budgets= */ false, &v);
                if (r >= 0)
                        r = sd_json_variant_append_array(&array, v);
        }
        if (r < 0)
                return r;

        *ret = TAKE_PTR(array);
        return 0;
}

/* Writes the fields of one unit. */
static int unit_write_list_entry(Unit *u, const Connection *c, uint64_t window, JsonWriter *w) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *thresholds = NULL;
        const Unit *outer = unit_find_ancestor(u);
        _cleanup_free_ char *degraded = NULL;
        UnitIdentity identity;
        Snapshot s;
        int r;

        r = unit_get_degraded_reason(u, &degraded);
        if (r < 0)
                return r;
        unit_get_snapshot(u, window, &s);
        if (threshold_next(u, NULL)) {
                r = unit_thresholds_to_json(c, u, &thresholds);
                if (r < 0)
                        return r;
        }

        json_writer_add_boolean(w, "attached", true);
        holds_write(u->holds, now_usec(CLOCK_BOOTTIME), w);
        if (degraded)
                json_writer_add_string(w, "degraded", degraded);
        if (outer)
                json_writer_add_string(w, "parentUnit", outer->name);
        json_writer_open_array(w, "descendantUnits");
        for (unsigned i = 0; (i = unit_next_inner_slot(u, i)) < UNITS_MAX_LIMIT; i++)
                if (u->manager->units.slots[i])
                        json_writer_add_string(w, NULL, u->manager->units.slots[i]->name);
        json_writer_close_some(w);
        if (thresholds)
                json_writer_add_variant(w, "thresholds", thresholds);
        json_writer_open_object(w, "snapshot", strlen("snapshot"));
        unit_get_identity(u, &identity);
        snapshot_write(&identity, &s, connection_may_see_peers(c, u), w);
        json_writer_close(w);
        json_writer_add_string(w, "unit", u->name);
        return 0;
}

static int unit_to_list_entry(Unit *u, const Connection *c, uint64_t window, sd_json_variant **ret) {
        _cleanup_json_writer_ JsonWriter w;
        int r;

        json_writer_begin(&w, /* text= */ false);
        r = unit_write_list_entry(u, c, window, &w);
        return r < 0 ? r : json_writer_finish_variant(&w, ret);
}

static int unit_to_list_text(Unit *u, const Connection *c, uint64_t window, char **ret) {
        _cleanup_json_writer_ JsonWriter w;
        int r;

        json_writer_begin(&w, /* text= */ true);
        r = unit_write_list_entry(u, c, window, &w);
        return r < 0 ? r : json_writer_finish_text(&w, ret);
}

/* Sends a reply that further ones follow. */
int connection_send_text(Connection *c, const char *parameters) {
        _cleanup_free_ char *message = NULL;
        VarlinkText *text;
        int r;

        if (asprintf(&message, "{\"parameters\":%s", parameters) < 0) {
                message = NULL;
                return -ENOMEM;
        }
        text = varlink_text_new(message);
        if (!text)
                return -ENOMEM;
        r = varlink_io_send(c->io, text, ",\"continues\":true}");
        varlink_text_unref(text);
        return r;
}

/* Sends the last reply by the library, for which the call ends with it. */
static int connection_end_listing(Connection *c) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Listing *l = c->listing;
        int r;

        if (l->last) {
                /* Units that were to follow are detached by now, or cannot be serialized */
                r = sd_json_parse(l->last, 0, &v, NULL, NULL);
                if (r < 0)
                        return r;
        }
        r = v ? sd_varlink_reply(c->link, v) : sd_varlink_error(c->link, INTERFACE ".NoEntries", NULL);
        c->listing = listing_free(l);
        return r;
}

static bool manager_has_units_from(const Manager *m, unsigned slot) {
        for (unsigned i = slot; i < UNITS_MAX_LIMIT; i++)
                if (m->units.slots[i])
                        return true;
        return false;
}

/* Lists units for the time of a turn. The next turn follows when the client has read these. */
static int connection_go_on_listing_units(Connection *c) {
        Manager *m = c->server->manager;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Listing *l = c->listing;
        unsigned n = 0;
        int r;

        while (l->next < UNITS_MAX_LIMIT) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *end = NULL;
                _cleanup_free_ char *text = NULL;
                Unit *u = m->units.slots[l->next++];
                bool more;

                if (!u)
                        continue;
                more = manager_has_units_from(m, l->next);
                r = more ? unit_to_list_text(u, c, l->window, &text) :
                    unit_to_list_entry(u, c, l->window, &end);
                if (r < 0) {
                        unit_log_unshowable(u, r);
                        continue;
                }
                if (l->last) {
                        r = connection_send_text(c, l->last);
                        if (r < 0)
                                return r;
                        free(l->last);
                }
                l->last = TAKE_PTR(text);
                if (end) {
                        r = sd_varlink_reply(c->link, end);
                        c->listing = listing_free(l);
                        return r;
                }
                if (++n >= LIST_TURN_UNITS || now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->io, /* when_written= */ true);
                        return 0;
                }
        }
        return connection_end_listing(c);
}

static int connection_send_totals(Connection *c, Unit *u) {
        _cleanup_(unit_totals_freep) UnitTotals *totals = NULL;
        _cleanup_free_ char *text = NULL;
        UnitIdentity identity;
        int r;

        unit_get_identity(u, &identity);
        r = unit_get_totals(u, c->listing->tables, &totals);
        if (r >= 0)
                r = totals_to_text(&identity, totals, &text);
        if (r < 0) {
                unit_log_unshowable(u, r);
                return 0;
        }
        c->listing->n_units++;
        return connection_send_text(c, text);
}

/* The BPF programs that attached units need. */
static int programs_to_json(Manager *m, sd_json_variant **ret) {
        _cleanup_probes_info_ ProbesInfo info = {};
        _cleanup_json_writer_ JsonWriter w;
        int r;

        r = manager_get_programs(m, &info);
        if (r < 0)
                return r;
        json_writer_begin(&w, /* text= */ false);
        json_writer_open_array(&w, "programs");
        for (size_t i = 0; i < info.n_programs; i++) {
                const ProgramInfo *p = info.programs + i;

                if (p->state == PROGRAM_IDLE)
                        continue;
                json_writer_open_object(&w, NULL, 0);
                json_writer_add_string(&w, "program", p->name);
                json_writer_add_boolean(&w, "attached", p->state == PROGRAM_ATTACHED);
                if (p->reason)
                        json_writer_add_string(&w, "reason", p->reason);
                json_writer_close(&w);
        }
        json_writer_close(&w);
        return json_writer_finish_variant(&w, ret);
}

/* Sends the last reply with the number of units, by which clients recognize a complete export. all: the
 * export is not of a single unit. */
static int connection_end_export(Connection *c, bool all) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *end = NULL;
        int r = 0;

        if (all)
                r = programs_to_json(c->server->manager, &end);
        if (r >= 0)
                r = sd_json_variant_set_field_unsigned(&end, "units", c->listing->n_units);
        c->listing = listing_free(c->listing);
        return r < 0 ? r : sd_varlink_reply(c->link, end);
}

static int connection_go_on_export(Connection *c) {
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Manager *m = c->server->manager;
        Listing *l = c->listing;
        unsigned n = 0;
        int r;

        while (l->next < UNITS_MAX_LIMIT) {
                Unit *u = m->units.slots[l->next++];

                if (!u)
                        continue;
                r = connection_send_totals(c, u);
                if (r < 0)
                        return r;
                if (++n >= EXPORT_TURN_UNITS || now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->io, /* when_written= */ true);
                        return 0;
                }
        }
        return connection_end_export(c, /* all= */ true);
}

static int threshold_to_text(const Connection *c, const Threshold *t, bool reply, char **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL, *whole = NULL;
        int r;

        r = threshold_to_json(t, connection_may_see_peers(c, t->unit), /* budgets= */ reply, &v);
        if (r >= 0 && reply)
                r = sd_json_buildo(&whole, SD_JSON_BUILD_PAIR_VARIANT("threshold", v));
        return r < 0 ? r : sd_json_variant_format(reply ? whole : v, 0, ret);
}

/* Sends the thresholds of one unit, or adds them to the first reply of Monitor(). */
static int connection_list_thresholds(Connection *c, const Unit *u) {
        Listing *l = c->listing;
        int r;

        for (Threshold *t = threshold_next(u, NULL); t; t = threshold_next(u, t)) {
                _cleanup_free_ char *text = NULL;

                r = threshold_to_text(c, t, l->type == LISTING_THRESHOLDS, &text);
                if (r < 0)
                        return r;
                if (l->type == LISTING_MONITOR) {
                        size_t size = strlen(text);
                        char *all;

                        all = realloc(l->last, l->size + size + 2);
                        if (!all)
                                return -ENOMEM;
                        l->last = all;
                        if (l->size > 0)
                                all[l->size++] = ',';
                        memcpy(all + l->size, text, size + 1);
                        l->size += size;
                        continue;
                }
                if (l->last) {
                        r = connection_send_text(c, l->last);
                        if (r < 0)
                                return r;
                        free(l->last);
                }
                l->last = TAKE_PTR(text);
        }
        return 0;
}

/* Continues a listing for the time of a turn. */
int connection_go_on_listing(Connection *c) {
        Manager *m = c->server->manager;
        uint64_t begin = now_nsec(CLOCK_MONOTONIC);
        Listing *l = c->listing;
        unsigned n = 0;
        int r;

        if (l->type == LISTING_UNITS)
                return connection_go_on_listing_units(c);
        if (l->type == LISTING_EXPORT)
                return connection_go_on_export(c);

        while (l->next < UNITS_MAX_LIMIT) {
                const Unit *u = m->units.slots[l->next++];

                if (!u || !threshold_next(u, NULL) || !strv_contains(l->units, u->name))
                        continue;
                r = connection_list_thresholds(c, u);
                if (r < 0)
                        return r;
                if (++n >= LIST_TURN_UNITS || now_nsec(CLOCK_MONOTONIC) >= begin + LIST_TURN_NSEC) {
                        (void) varlink_io_want_turn(c->io, /* when_written= */ true);
                        return 0;
                }
        }
        return l->end ? l->end(c) : connection_end_listing(c);
}

int vl_method_list(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                   void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",   SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),   SD_JSON_NULLABLE },
                { "window", _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_number,
                  offsetof(Parameters, window), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!p.unit && !(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        r = parameters_check_window(c->server->manager, link, &p);
        if (r != 0)
                return r;

        if (p.unit) {
                Unit *u = manager_get_unit(c->server->manager, p.unit, &e);

                if (!u)
                        return connection_reply_missing(c, flags, p.unit, &e);
                r = unit_to_list_entry(u, c, p.window, &v);
                return r < 0 ? r : sd_varlink_reply(link, v);
        }

        c->listing = new0(Listing, 1);
        if (!c->listing)
                return -ENOMEM;
        c->listing->window = p.window;
        r = connection_go_on_listing(c);
        if (r < 0)
                c->listing = listing_free(c->listing);
        return r;
}

int vl_method_export(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit",   SD_JSON_VARIANT_STRING,        sd_json_dispatch_const_string,
                  offsetof(Parameters, unit),   SD_JSON_NULLABLE },
                { "tables", _SD_JSON_VARIANT_TYPE_INVALID, vl_dispatch_bool,
                  offsetof(Parameters, tables), SD_JSON_NULLABLE },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        Unit *u = NULL;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        if (p.unit) {
                u = manager_get_unit(c->server->manager, p.unit, &e);
                if (!u)
                        return connection_reply_missing(c, flags, p.unit, &e);
        }

        c->listing = new0(Listing, 1);
        if (!c->listing)
                return -ENOMEM;
        c->listing->type = LISTING_EXPORT;
        c->listing->tables = p.tables;
        r = u ? connection_send_totals(c, u) : 0;
        if (r >= 0)
                r = u ? connection_end_export(c, /* all= */ false) : connection_go_on_export(c);
        if (r < 0)
                c->listing = listing_free(c->listing);
        return r;
}

/* ---- thresholds --------------------------------------------------------------------------------------- */

int vl_method_list_thresholds(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                              void *userdata) {
        static const sd_json_dispatch_field table[] = {
                { "unit", SD_JSON_VARIANT_STRING, sd_json_dispatch_const_string, offsetof(Parameters, unit),
                  SD_JSON_NULLABLE },
                {}
        };
        _cleanup_qos_error_ QosError e = QOS_ERROR_INIT;
        _cleanup_parameters_ Parameters p = PARAMETERS_INIT;
        Connection *c = ASSERT_PTR(userdata);
        Unit *only = NULL;
        int r;

        r = sd_varlink_dispatch(link, parameters, table, &p);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);
        if (p.unit) {
                only = manager_get_unit(c->server->manager, p.unit, &e);
                if (!only)
                        return connection_reply_missing(c, flags, p.unit, &e);
        }

        c->listing = new0(Listing, 1);
        if (!c->listing)
                return -ENOMEM;
        c->listing->type = LISTING_THRESHOLDS;
        if (only) {
                r = connection_list_thresholds(c, only);
                if (r >= 0)
                        r = connection_end_listing(c);
        } else
                r = connection_go_on_listing(c);
        if (r < 0)
                c->listing = listing_free(c->listing);
        return r;
}

/* ---- ListMetrics, Probes, GetStatus ------------------------------------------------------------------- */

int vl_method_list_metrics(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                           void *userdata) {
        _cleanup_free_ sd_json_variant **replies = NULL;
        int r;

        r = vl_dispatch_none(link, parameters);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);

        replies = new0(sd_json_variant*, metric_table_size);
        if (!replies)
                return -ENOMEM;
        for (size_t i = 0; i < metric_table_size; i++) {
                const Metric *metric = metric_table + i;

                r = sd_json_buildo(replies + i,
                                   SD_JSON_BUILD_PAIR_STRING("name", metric->name),
                                   SD_JSON_BUILD_PAIR_STRING("kind", metric->kind == METRIC_COUNTER ?
                                                             "counter" : "gauge"),
                                   SD_JSON_BUILD_PAIR_STRING("unit", metric->unit),
                                   SD_JSON_BUILD_PAIR_STRING("probe", metric->probe),
                                   SD_JSON_BUILD_PAIR_BOOLEAN("essential", metric->essential),
                                   SD_JSON_BUILD_PAIR_STRING("description", metric->description));
                if (r < 0) {
                        json_unref_all(replies, i);
                        return r;
                }
        }
        return vl_reply_many(link, replies, metric_table_size);
}

int vl_method_probes(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                     void *userdata) {
        _cleanup_probes_info_ ProbesInfo info = {};
        _cleanup_free_ sd_json_variant **replies = NULL;
        Connection *c = ASSERT_PTR(userdata);
        int r;

        r = vl_dispatch_none(link, parameters);
        if (r != 0)
                return r;
        if (!(flags & SD_VARLINK_METHOD_MORE))
                return sd_varlink_error(link, SD_VARLINK_ERROR_EXPECTED_MORE, NULL);

        r = manager_get_probes(c->server->manager, &info);
        if (r < 0)
                return r;
        replies = new0(sd_json_variant*, info.n_programs);
        if (!replies)
                return -ENOMEM;
        for (size_t i = 0; i < info.n_programs; i++) {
                const ProgramInfo *p = info.programs + i;

                r = sd_json_buildo(replies + i,
                                   SD_JSON_BUILD_PAIR_STRING("program", p->name),
                                   SD_JSON_BUILD_PAIR_STRING("probe", p->probe),
                                   SD_JSON_BUILD_PAIR_STRING("hook", p->hook),
                                   SD_JSON_BUILD_PAIR_STRING("provides", p->provides),
                                   SD_JSON_BUILD_PAIR_STRING("state", program_state_to_string(p->state)),
                                   SD_JSON_BUILD_PAIR_CONDITION(!!p->reason, "reason",
                                                                SD_JSON_BUILD_STRING(p->reason)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->runs != ABSENT, "runs",
                                                                SD_JSON_BUILD_UNSIGNED(p->runs)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->run_nsec != ABSENT, "runTime",
                                                                SD_JSON_BUILD_UNSIGNED(p->run_nsec)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->runs != ABSENT && p->runs > 0,
                                                                "runTimeMean",
                                                                SD_JSON_BUILD_UNSIGNED(p->runs != ABSENT &&
                                                                                p->runs > 0 ?
                                                                                p->run_nsec / p->runs : 0)),
                                   SD_JSON_BUILD_PAIR_CONDITION(p->recursion_misses != ABSENT,
                                                                "recursionMisses",
                                                                SD_JSON_BUILD_UNSIGNED(
                                                                        p->recursion_misses)));
                if (r < 0) {
                        json_unref_all(replies, i);
                        return r;
                }
        }
        return vl_reply_many(link, replies, info.n_programs);
}

int vl_method_get_status(sd_varlink *link, sd_json_variant *parameters, sd_varlink_method_flags_t flags,
                         void *userdata) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *losses = NULL;
        _cleanup_probes_info_ ProbesInfo info = {};
        Connection *c = ASSERT_PTR(userdata);
        Manager *m = c->server->manager;
        uint64_t read;
        int r;

        r = vl_dispatch_none(link, parameters);
        if (r != 0)
                return r;
        r = manager_get_probes(m, &info);
        if (r < 0)
                return r;

        for (size_t i = 0; i < info.n_losses; i++) {
                r = sd_json_variant_append_arraybo(&losses,
                                SD_JSON_BUILD_PAIR_STRING("map", info.losses[i].map),
                                SD_JSON_BUILD_PAIR_UNSIGNED("count", info.losses[i].n));
                if (r < 0)
                        return r;
        }

        read = xqos_loader_get_read(m->xqos);
        return sd_varlink_replybo(link,
                                  SD_JSON_BUILD_PAIR_STRING("version", QOSD_VERSION),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("units", m->units.n),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("unitsMax", m->config.units_max),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("minimumSamples", m->config.minimum_samples),
                                  SD_JSON_BUILD_PAIR_CONDITION(read > 0, "unitFilesLoaded",
                                                               SD_JSON_BUILD_UNSIGNED(read)),
                                  SD_JSON_BUILD_PAIR_BOOLEAN("statisticsEnabled", info.statistics_enabled),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("mapMemory", info.map_memory),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("mapMemoryPerUnit", info.map_memory_per_unit),
                                  SD_JSON_BUILD_PAIR_CONDITION(info.memory_per_socket > 0,
                                                               "memoryPerSocket",
                                                               SD_JSON_BUILD_UNSIGNED(
                                                                       info.memory_per_socket)),
                                  SD_JSON_BUILD_PAIR_UNSIGNED("drops", info.drops),
                                  SD_JSON_BUILD_PAIR_CONDITION(losses != NULL, "lostElements",
                                                               SD_JSON_BUILD_VARIANT(losses)));
}
