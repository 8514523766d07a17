/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "child-queue.h"
#include "custom-files.h"
#include "custom-probe.h"
#include "custom-source.h"
#include "hierarchy.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "probe-custom.h"
#include "probe.h"
#include "run-time.h"

/* Whether a hold of the unit or of its ancestors requests the probe. */
static bool unit_wants_custom(const Unit *u, unsigned i) {
        for (const Unit *o = u; o; o = unit_find_ancestor(o))
                if (o->probes & PROBE_CUSTOM(i))
                        return true;
        return false;
}

/* ---- programs ----------------------------------------------------------------------------------------- */

/* What is needed while programs are being loaded. */
struct CustomLoad {
        CustomFiles files;
        CustomPlace metrics[QOS_CUSTOM_METRICS];
        CustomAttachment *attachments;
        CustomStart *start;
};

static CustomLoad* custom_load_free(CustomLoad *l) {
        if (!l)
                return NULL;

        custom_start_free(l->start);
        free(l->attachments);
        custom_files_done(&l->files);
        free(l);
        return NULL;
}

static void custom_fail(Manager *m, unsigned i, int error, const char *reason) {
        m->custom.probes[i].reason = strdup(reason ?: strerror(-error));
        (void) log_warning_errno(error, "Custom probe '%s' is not available: %s", probe_mask_custom_name(i),
                                 strempty(m->custom.probes[i].reason));
}

static void custom_end_load(Manager *m, int error, const char *reason) {
        if (error < 0 && !m->custom.outdated)
                custom_fail(m, m->custom.checked, error, reason);
        m->custom.check = custom_check_free(m->custom.check);
        m->custom.load = custom_load_free(m->custom.load);
        custom_update(m);
        manager_emit_state_changed(m);
        manager_emit_programs_loaded(m);
}

static void on_loaded(int error, const char *reason, CustomObject *object, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        CustomProbe *p = m->custom.probes + m->custom.checked;

        if (m->custom.outdated)
                custom_object_unload(object);
        else if (error >= 0) {
                p->object = object;
                p->manifest = TAKE_PTR(m->custom.load->files.manifest);
                log_info("Loaded custom probe '%s', SHA-256 of its object file is %s.",
                         probe_mask_custom_name(m->custom.checked), p->manifest->sha256);
        }
        custom_end_load(m, error, reason);
}

/* Takes the files. */
static int custom_load_files(Manager *m, CustomFiles *f) {
        CustomLoad *l = m->custom.load = new0(CustomLoad, 1);
        const CustomManifest *manifest = f->manifest;
        CustomSpec spec;

        if (!l)
                return -ENOMEM;
        l->files = *f;
        *f = (CustomFiles) { .manifest_fd = -EBADF };
        l->attachments = new0(CustomAttachment, manifest->n_programs);
        if (!l->attachments)
                return -ENOMEM;
        spec = (CustomSpec) {
                .elf = l->files.elf,
                .elf_size = l->files.elf_size,
                .layout = manifest->layout,
                .metrics = l->metrics,
                .n_metrics = manifest->n_metrics,
                .attachments = l->attachments,
                .n_attachments = manifest->n_programs,
                .manifest_fd = l->files.manifest_fd,
        };
        for (size_t k = 0; k < manifest->n_metrics; k++)
                l->metrics[k] = (CustomPlace) { manifest->metrics[k].name, manifest->metrics[k].place };
        for (size_t k = 0; k < manifest->n_programs; k++) {
                const CustomProgram *p = manifest->programs + k;

                l->attachments[k] = (CustomAttachment) { p->name, p->type, p->path, p->symbol, p->provider,
                                                         p->perf_type, p->perf_config, p->frequency };
        }
        return custom_start_new(m->probe, m->custom.checked, &spec, on_loaded, m, &l->start);
}

static void on_checked(int error, const char *reason, CustomFiles *f, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        if (error >= 0 && !m->custom.outdated)
                error = custom_load_files(m, f);
        if (error < 0 || m->custom.outdated)
                custom_end_load(m, error, reason);
        else
                m->custom.check = custom_check_free(m->custom.check);
}

/* Checks files and loads programs, one probe at a time. */
static void custom_begin_load(Manager *m, unsigned i) {
        _cleanup_free_ char *reason = NULL;
        int r;

        m->custom.checked = i;
        m->custom.outdated = false;
        r = custom_check_new(m->event, probe_mask_custom_name(i), on_checked, m, &m->custom.check, &reason);
        if (r < 0)
                custom_fail(m, i, r, reason);
}

bool unit_awaits_custom(const Unit *u, ProbeMask probes) {
        const Manager *m = u->manager;

        for (unsigned i = 0; u->view && i < CUSTOM_PROBES_MAX; i++)
                if (u->probes & probes & PROBE_CUSTOM(i) && !m->custom.probes[i].object &&
                    !m->custom.probes[i].reason)
                        return true;
        return false;
}

static void custom_forget(Manager *m, unsigned i) {
        m->custom.probes[i].iteration = child_job_free(m->custom.probes[i].iteration);
        /* Those of units are gone, but retained units may have maps */
        FOREACH_MAP(u, m) {
                u->custom[i].map = NULL;
                custom_reading_done(&u->custom[i].base);
        }
        m->custom.probes[i].manifest = custom_manifest_free(m->custom.probes[i].manifest);
        free(m->custom.probes[i].reason);
        m->custom.probes[i].reason = NULL;
        m->custom.probes[i].run_nsec = m->custom.probes[i].measured_at = 0;
        m->custom.probes[i].cost = 0;
}

static void custom_unload(Manager *m, unsigned i) {
        if ((m->custom.check || m->custom.load) && m->custom.checked == i)
                m->custom.outdated = true;
        custom_forget(m, i);
        m->custom.probes[i].object = custom_object_unload(m->custom.probes[i].object);
}

static void cost_stop(Manager *m) {
        m->custom.timer = sd_event_source_disable_unref(m->custom.timer);
        m->custom.run_time = run_time_free(m->custom.run_time);
}

static void custom_stop_timers(Manager *m) {
        cost_stop(m);
        m->custom.iterate = sd_event_source_disable_unref(m->custom.iterate);
}

void custom_stop(Manager *m) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                custom_unload(m, i);
        custom_stop_timers(m);
}

void custom_done(Manager *m) {
        m->custom.check = custom_check_free(m->custom.check);
        m->custom.load = custom_load_free(m->custom.load);
        custom_stop_timers(m);
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                custom_forget(m, i);
                m->custom.probes[i].object = custom_object_leave(m->custom.probes[i].object);
        }
}

/* ---- cost --------------------------------------------------------------------------------------------- */

/* One second of five is measured, in which iterators run once. A probe that takes too much in it is measured
 * for five seconds: a burst is no reason to unload it. */
#define COST_PAUSE_USEC (4 * USEC_PER_SEC)
#define COST_SAMPLE_USEC USEC_PER_SEC
#define COST_WATCH_USEC (5 * USEC_PER_SEC)

/* Limit of the time until the kernel measures, for which a process is started first. */
#define COST_BEGIN_USEC (30 * USEC_PER_SEC)

static uint64_t unit_get_recorded(const Unit *u, unsigned i) {
        return __atomic_load_n(&u->custom[i].map->header.recorded, __ATOMIC_RELAXED);
}

/* Divides what a probe took among units, by the number of values that it has recorded for them: none, if it
 * has not recorded any. */
static void cost_divide(Manager *m, unsigned i) {
        uint64_t all = 0;

        FOREACH_MAP(u, m)
                if (u->custom[i].map)
                        all += unit_get_recorded(u, i) - u->custom[i].recorded;
        FOREACH_MAP(u, m)
                if (u->custom[i].map)
                        u->custom[i].cost = all == 0 ? 0 :
                                m->custom.probes[i].cost *
                                (double) (unit_get_recorded(u, i) - u->custom[i].recorded) / (double) all;
}

static bool cost_is_exceeded(const Manager *m, unsigned i) {
        return m->config.custom_cost_max > 0 &&
               m->custom.probes[i].cost * 100 > m->config.custom_cost_max;
}

static void cost_set_state(Manager *m, CustomCost state) {
        static const uint64_t table[] = {
                [CUSTOM_COST_PAUSE]  = COST_PAUSE_USEC,
                [CUSTOM_COST_BEGIN]  = COST_BEGIN_USEC,
                [CUSTOM_COST_SAMPLE] = COST_SAMPLE_USEC,
                [CUSTOM_COST_WATCH]  = COST_WATCH_USEC,
        };

        m->custom.cost = state;
        if (sd_event_source_set_time_relative(m->custom.timer, table[state]) < 0 ||
            sd_event_source_set_enabled(m->custom.timer, SD_EVENT_ONESHOT) < 0)
                (void) log_oom();
}

static void cost_start_sample(Manager *m, CustomCost state) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                CustomProbe *p = m->custom.probes + i;

                if (!p->object)
                        continue;
                p->run_nsec = custom_object_get_run_time(p->object);
                p->measured_at = now_nsec(CLOCK_MONOTONIC);
                FOREACH_MAP(u, m)
                        if (u->custom[i].map)
                                u->custom[i].recorded = unit_get_recorded(u, i);
        }
        cost_set_state(m, state);
}

/* Samples nevertheless: the administrator may have switched it on. */
static void on_run_time(int error, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);

        if (error < 0 && !m->custom.cost_failed)
                (void) log_warning_errno(error, "Failed to have the kernel measure the run time of custom "
                                                "probes (is qosd-statistics.socket active?), "
                                                "CustomCostMax= has no effect: %m");
        m->custom.cost_failed = error < 0;
        cost_start_sample(m, CUSTOM_COST_SAMPLE);
}

static void cost_request(Manager *m) {
        int r;

        if (m->config.custom_cost_max == 0) { /* nothing is to be slowed down for it */
                cost_start_sample(m, CUSTOM_COST_SAMPLE);
                return;
        }
        cost_set_state(m, CUSTOM_COST_BEGIN);
        r = run_time_begin(m->custom.run_time);
        if (r < 0)
                on_run_time(r, m);
}

/* Returns whether a probe took too much. */
static bool cost_end_sample(Manager *m) {
        uint64_t now = now_nsec(CLOCK_MONOTONIC), run_nsec;
        bool exceeded = false;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                CustomProbe *p = m->custom.probes + i;

                if (!p->object || p->measured_at == 0 || now <= p->measured_at)
                        continue;
                run_nsec = custom_object_get_run_time(p->object);
                p->cost = (double) (run_nsec - MIN(run_nsec, p->run_nsec)) / (double) (now - p->measured_at);
                cost_divide(m, i);
                exceeded = exceeded || cost_is_exceeded(m, i);
        }
        return exceeded;
}

static void cost_unload(Manager *m) {
        bool any = false;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                _cleanup_free_ char *reason = NULL;

                if (!m->custom.probes[i].object || !cost_is_exceeded(m, i))
                        continue;
                if (asprintf(&reason,
                             "unloaded, as it took %.0f%% of a CPU, more than %u%% (CustomCostMax=)",
                             m->custom.probes[i].cost * 100, m->config.custom_cost_max) < 0)
                        reason = NULL;
                custom_unload(m, i);
                custom_fail(m, i, -EDQUOT, reason);
                manager_emit_state_changed(m);
                any = true;
        }
        if (any)
                custom_update(m);
}

static int on_cost(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        bool exceeded;

        switch (m->custom.cost) {
        case CUSTOM_COST_PAUSE:
                cost_request(m);
                return 0;
        case CUSTOM_COST_BEGIN:
                run_time_end(m->custom.run_time);
                on_run_time(-ETIMEDOUT, m);
                return 0;
        case CUSTOM_COST_SAMPLE:
        case CUSTOM_COST_WATCH:
        default:
                exceeded = cost_end_sample(m);
                if (exceeded && m->custom.cost == CUSTOM_COST_SAMPLE) {
                        cost_start_sample(m, CUSTOM_COST_WATCH);
                        return 0;
                }
                run_time_end(m->custom.run_time);
                cost_set_state(m, CUSTOM_COST_PAUSE);
                cost_unload(m);
                return 0;
        }
}

static void cost_start(Manager *m) {
        int r;

        m->custom.cost = CUSTOM_COST_PAUSE;
        r = run_time_new(m->event, on_run_time, m, &m->custom.run_time);
        if (r >= 0)
                r = sd_event_add_time_relative(m->event, &m->custom.timer, CLOCK_MONOTONIC, 0, USEC_PER_MSEC,
                                               on_cost, m);
        if (r < 0) {
                (void) log_oom();
                cost_stop(m);
        }
}

/* ---- iterators ---------------------------------------------------------------------------------------- */

/* A pass over all threads of a busy machine takes some milliseconds, and so does a child process. */
#define ITERATE_USEC USEC_PER_SEC

static void iterate(int fd, void *userdata) {
        const CustomProbe *p = userdata;

        custom_object_run_iterators(p->object);
}

static void on_iterated(const void *output, size_t size, uint64_t nsec, void *userdata) {
        CustomProbe *p = ASSERT_PTR(userdata);

        p->iteration = NULL;
}

static int on_iterate(sd_event_source *source, uint64_t usec, void *userdata) {
        Manager *m = ASSERT_PTR(userdata);
        int r;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                CustomProbe *p = m->custom.probes + i;

                /* One that takes longer than a child process may is cut off */
                if (p->object && custom_object_has_iterators(p->object) && !p->iteration)
                        (void) child_job_new(m->inspections.children, /* root= */ true, iterate, on_iterated,
                                             p, &p->iteration);
        }
        r = sd_event_source_set_time_relative(source, ITERATE_USEC);
        return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* ---- timers ------------------------------------------------------------------------------------------- */

static void custom_update_timers(Manager *m) {
        bool any = false, iterators = false;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                const CustomObject *c = m->custom.probes[i].object;

                any = any || c;
                iterators = iterators || (c && custom_object_has_iterators(c));
        }
        if (!iterators)
                m->custom.iterate = sd_event_source_disable_unref(m->custom.iterate);
        else if (!m->custom.iterate &&
                 sd_event_add_time_relative(m->event, &m->custom.iterate, CLOCK_MONOTONIC, ITERATE_USEC,
                                            USEC_PER_MSEC, on_iterate, m) < 0)
                (void) log_oom();
        if (!any)
                cost_stop(m);
        else if (!m->custom.timer)
                cost_start(m);
}

/* ---- maps of units ------------------------------------------------------------------------------------ */

/* Excludes what its sources have counted so far. */
static void unit_init_custom(Unit *u, unsigned i) {
        Manager *m = u->manager;

        u->custom[i].watched_since = now_nsec(CLOCK_MONOTONIC);
        custom_reading_done(&u->custom[i].base);
        if (u->custom[i].since < u->custom[i].watched_since)
                unit_add_custom(u, u, i, 1);
        FOREACH_MAP(other, m)
                if (unit_is_ancestor(u, other))
                        unit_add_custom(u, other, i, 1);
}

static void unit_create_custom(Unit *u, unsigned i) {
        Manager *m = u->manager;
        const CustomOwner owner = {
                .slot = u->index,
                .unit = u->generation,
                .map = ++m->units.map_generation,
                .now = now_nsec(CLOCK_MONOTONIC),
        };
        int r;

        r = custom_object_add_unit(m->probe, m->custom.probes[i].object, &owner, &u->custom[i].map);
        if (r < 0) {
                log_unit_warning_errno(u->name, r,
                                       "Failed to create map of '%s' for the custom probe '%s': %m", u->name,
                                       probe_mask_custom_name(i));
                return;
        }
        u->custom[i].since = owner.now;
        u->custom[i].recorded = 0;
        u->custom[i].cost = 0;
        unit_init_custom(u, i);
}

static void unit_destroy_custom(Unit *u, unsigned i) {
        Manager *m = u->manager;

        FOREACH_UNIT(other, m)
                if (unit_is_ancestor(other, u))
                        unit_add_custom(other, u, i, -1);
        custom_object_remove_unit(m->custom.probes[i].object, u->index);
        u->custom[i].map = NULL;
        custom_reading_done(&u->custom[i].base);
}

void unit_adopt_custom(Unit *u, Unit *retained) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                if (!retained->custom[i].map)
                        continue;
                u->custom[i].map = retained->custom[i].map;
                u->custom[i].since = retained->custom[i].since;
                u->custom[i].recorded = retained->custom[i].recorded;
                u->custom[i].cost = retained->custom[i].cost;
                retained->custom[i].map = NULL;
                unit_init_custom(u, i);
        }
}

static void custom_update_one(Manager *m, unsigned i) {
        bool any = false;

        FOREACH_UNIT(u, m)
                any = any || (u->view && unit_wants_custom(u, i));
        if (any && !m->custom.probes[i].object && !m->custom.probes[i].reason && !m->custom.check &&
            !m->custom.load)
                custom_begin_load(m, i);
        if (m->custom.probes[i].object)
                FOREACH_UNIT(u, m) {
                        bool wanted = u->view && unit_wants_custom(u, i);

                        if (u->custom[i].map && !wanted)
                                unit_destroy_custom(u, i);
                        if (!u->custom[i].map && wanted)
                                unit_create_custom(u, i);
                }
        if (!any)
                custom_unload(m, i);
}

void custom_update(Manager *m) {
        if (!probe_is_started(m->probe))
                return;
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                custom_update_one(m, i);
        custom_update_timers(m);
}

/* ---- previous run ------------------------------------------------------------------------------------- */

int custom_to_json(const Unit *u, sd_json_variant **ret) {
        int r = 0;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX && r >= 0; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *base = NULL;

                if (!u->custom[i].map)
                        continue;
                r = custom_reading_to_json(&u->custom[i].base, &base);
                if (r >= 0)
                        r = sd_json_variant_append_arraybo(
                                ret, SD_JSON_BUILD_PAIR_UNSIGNED("probe", i),
                                SD_JSON_BUILD_PAIR_UNSIGNED("since", u->custom[i].since),
                                SD_JSON_BUILD_PAIR_UNSIGNED("watchedSince", u->custom[i].watched_since),
                                SD_JSON_BUILD_PAIR_CONDITION(!!base, "base", SD_JSON_BUILD_VARIANT(base)));
        }
        return r;
}

static void unit_restore_custom_probe(Unit *u, sd_json_variant *v) {
        uint64_t i = sd_json_variant_unsigned(sd_json_variant_by_key(v, "probe"));
        sd_json_variant *base = sd_json_variant_by_key(v, "base");
        UnitCustom *c = u->custom + MIN(i, CUSTOM_PROBES_MAX - 1U);
        Manager *m = u->manager;
        int r;

        if (i >= CUSTOM_PROBES_MAX || !m->custom.probes[i].object)
                return;
        r = custom_object_adopt_unit(m->custom.probes[i].object, u->index, u->generation, &c->map);
        if (r >= 0 && base)
                r = custom_reading_from_json(&c->base, m->custom.probes[i].manifest, base);
        c->since = sd_json_variant_unsigned(sd_json_variant_by_key(v, "since"));
        c->watched_since = sd_json_variant_unsigned(sd_json_variant_by_key(v, "watchedSince"));
        if (r >= 0)
                return;
        log_unit_warning_errno(u->name, r,
                               "Failed to restore map of '%s' for the custom probe '%s', totals start from "
                               "zero: %m", u->name, probe_mask_custom_name((unsigned) i));
        c->map = NULL;
        custom_reading_done(&c->base);
}

void unit_restore_custom(Unit *u, sd_json_variant *saved) {
        for (size_t k = 0; saved && k < sd_json_variant_elements(saved); k++)
                unit_restore_custom_probe(u, sd_json_variant_by_index(saved, k));
}

void custom_restore(Manager *m) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                _cleanup_(custom_manifest_freep) CustomManifest *manifest = NULL;
                const char *name = probe_mask_custom_name(i);
                int r;

                r = custom_get_manifest(m->probe, i);
                if (r == -ENOENT)
                        continue;
                if (r >= 0)
                        r = custom_files_parse(r, &manifest);
                if (r >= 0 && !streq_ptr(manifest->name, name))
                        r = -ESTALE;
                if (r < 0) {
                        (void) log_warning_errno(r, "Custom probe '%s' of the previous run cannot be taken "
                                                    "over, its totals begin anew: %m", name ?: "?");
                        custom_discard(m->probe, i);
                        continue;
                }
                m->custom.probes[i].object = custom_object_adopt(m->probe, i, manifest->layout.elements);
                m->custom.probes[i].manifest = TAKE_PTR(manifest);
        }
}

void custom_end_restore(Manager *m) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                for (unsigned slot = 0; slot < UNITS_MAX_LIMIT && m->custom.probes[i].object; slot++) {
                        const Unit *u = m->units.slots[slot] ?: m->hierarchy.retained[slot];

                        if (!u || !u->custom[i].map)
                                custom_object_remove_unit(m->custom.probes[i].object, slot);
                }
}

/* ---- state -------------------------------------------------------------------------------------------- */

typedef struct InfoContext {
        ProbesInfo *info;
        const CustomManifest *manifest;
        const char *probe;
        double cost;
        int error;
} InfoContext;

static int info_add(ProbesInfo *info, const ProgramInfo *program) {
        ProgramInfo *programs = reallocarray(info->programs, info->n_programs + 1, sizeof(ProgramInfo));

        if (!programs)
                return -ENOMEM;
        info->programs = programs;
        programs[info->n_programs++] = *program;
        return 0;
}

static void on_program(const CustomProgramInfo *i, void *userdata) {
        InfoContext *c = ASSERT_PTR(userdata);
        ProgramInfo program = {
                .name = i->name,
                .probe = c->probe,
                .hook = i->hook,
                .provides = c->manifest->description,
                .state = PROGRAM_ATTACHED,
                .runs = i->runs,
                .run_nsec = i->run_nsec,
                .recursion_misses = i->recursion_misses,
        };

        if (c->error < 0)
                return;
        if ((c->cost > 0 ? asprintf(&program.reason, "SHA-256 %s; the probe takes %.2g%% of a CPU",
                                    c->manifest->sha256, c->cost * 100) :
                           asprintf(&program.reason, "SHA-256 %s", c->manifest->sha256)) < 0)
                program.reason = NULL;
        c->error = info_add(c->info, &program);
}

int custom_add_info(Manager *m, ProbesInfo *info) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                InfoContext c = {
                        .info = info,
                        .manifest = m->custom.probes[i].manifest,
                        .cost = m->custom.probes[i].cost,
                };
                ProgramInfo program = {
                        .hook = "-",
                        .provides = "metrics of a custom probe",
                        .state = m->custom.probes[i].reason ? PROGRAM_UNAVAILABLE : PROGRAM_IDLE,
                        .runs = ABSENT,
                        .run_nsec = ABSENT,
                        .recursion_misses = ABSENT,
                };

                program.name = probe_mask_custom_name(i);
                if (!program.name)
                        continue;
                c.probe = program.probe = probe_mask_name(PROBE_CUSTOM_FIRST + i);
                if (m->custom.probes[i].object)
                        custom_object_foreach_program(m->custom.probes[i].object, on_program, &c);
                else {
                        if (m->custom.probes[i].reason)
                                program.reason = strdup(m->custom.probes[i].reason);
                        else if ((m->custom.check || m->custom.load) && m->custom.checked == i)
                                program.reason = strdup(m->custom.check ? "is being checked" :
                                                                          "is being loaded");
                        c.error = info_add(info, &program);
                }
                if (c.error < 0)
                        return c.error;
        }
        return 0;
}
