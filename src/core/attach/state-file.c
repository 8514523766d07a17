/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <sys/stat.h>

#include <systemd/sd-json.h>

#include "attach.h"
#include "contention-probe.h"
#include "custom-probe.h"
#include "hierarchy.h"
#include "history-collector.h"
#include "hold.h"
#include "log.h"
#include "manager.h"
#include "observe.h"
#include "observer.h"
#include "network-probe.h"
#include "probe.h"
#include "service-manager.h"
#include "state-file.h"
#include "storage-probe.h"
#include "threshold-monitor.h"
#include "unit-internal.h"
#include "unit-map.h"
#include "unit-table.h"
#include "window.h"

/* Array of strings as parsed by exclude_list_add(). */
static int excludes_to_json(const ExcludeList *l, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *array = NULL;
        int r;

        r = sd_json_variant_new_array(&array, NULL, 0);
        for (size_t i = 0; i < l->n && r >= 0; i++)
                r = sd_json_variant_append_arrayb(&array, SD_JSON_BUILD_STRING(l->list[i].text));
        if (r < 0)
                return r;

        *ret = TAKE_PTR(array);
        return 0;
}

static int hold_to_json(const Hold *h, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *excludes = NULL;
        int r;

        r = excludes_to_json(&h->excludes, &excludes);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_UNSIGNED("probes", h->probes),
                              SD_JSON_BUILD_PAIR_CONDITION(h->excludes.n > 0, "exclude",
                                                           SD_JSON_BUILD_VARIANT(excludes)),
                              SD_JSON_BUILD_PAIR_UNSIGNED("uid", h->uid),
                              SD_JSON_BUILD_PAIR_CONDITION(h->expires != USEC_INFINITY, "expires",
                                                           SD_JSON_BUILD_UNSIGNED(h->expires)));
}

static int unit_to_json(const Unit *u, sd_json_variant **ret) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *hold = NULL, *file = NULL, *configured = NULL,
                *own = NULL, *base = NULL, *thresholds = NULL, *contention = NULL, *storage = NULL,
                *network = NULL, *custom = NULL;
        int r;

        r = thresholds_list_to_json(u, &thresholds);
        if (r < 0)
                return r;
        for (Hold *h = u->holds; h; h = h->next)
                if (h->type != HOLD_LEASE) {
                        _cleanup_(sd_json_variant_unrefp) sd_json_variant *owners = NULL;

                        r = hold_to_json(h, h->type == HOLD_FILE          ? &file :
                                            h->type == HOLD_CONFIGURATION ? &configured :
                                            h->owner_uid == 0             ? &hold : &owners);
                        if (r >= 0 && owners)
                                r = sd_json_variant_append_array(&own, owners);
                        if (r < 0)
                                return r;
                }

        if (u->base) {
                r = window_base_to_json(u->base, &base);
                if (r < 0)
                        return r;
        }
        if (u->contention.base) {
                r = contention_base_to_json(u->contention.base, &contention);
                if (r < 0)
                        return r;
        }
        if (u->storage.base) {
                r = storage_base_to_json(u->storage.base, &storage);
                if (r < 0)
                        return r;
        }
        if (u->network.base) {
                r = network_base_to_json(u->network.base, &network);
                if (r < 0)
                        return r;
        }

        r = custom_to_json(u, &custom);
        if (r < 0)
                return r;

        return sd_json_buildo(ret,
                              SD_JSON_BUILD_PAIR_STRING("name", u->name),
                              SD_JSON_BUILD_PAIR_STRING("controlGroup", u->control_group),
                              SD_JSON_BUILD_PAIR_CONDITION(!!u->instances, "instances",
                                                           SD_JSON_BUILD_STRING(u->instances)),
                              SD_JSON_BUILD_PAIR_STRING("activeState", u->active_state),
                              SD_JSON_BUILD_PAIR_UNSIGNED("slot", u->index),
                              SD_JSON_BUILD_PAIR_UNSIGNED("generation", u->generation),
                              SD_JSON_BUILD_PAIR_UNSIGNED("attachedSince", u->attached_since),
                              SD_JSON_BUILD_PAIR_UNSIGNED("attachedSinceMonotonic",
                                                          u->attached_since_monotonic),
                              SD_JSON_BUILD_PAIR_UNSIGNED("bookSince", u->map_created),
                              SD_JSON_BUILD_PAIR_CONDITION(unit_is_claiming(u), "claiming",
                                                           SD_JSON_BUILD_BOOLEAN(true)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!base, "base", SD_JSON_BUILD_VARIANT(base)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!thresholds, "thresholds",
                                                           SD_JSON_BUILD_VARIANT(thresholds)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!file, "file", SD_JSON_BUILD_VARIANT(file)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!configured, "configured",
                                                           SD_JSON_BUILD_VARIANT(configured)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!own, "ownerHolds", SD_JSON_BUILD_VARIANT(own)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!u->contention.map, "contentionSince",
                                                           SD_JSON_BUILD_UNSIGNED(u->contention.since)),
                              SD_JSON_BUILD_PAIR_CONDITION(
                                      !!u->contention.map, "watchedSince",
                                      SD_JSON_BUILD_UNSIGNED(u->contention.watched_since)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!contention, "contentionBase",
                                                           SD_JSON_BUILD_VARIANT(contention)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!u->storage.map, "storageSince",
                                                           SD_JSON_BUILD_UNSIGNED(u->storage.since)),
                              SD_JSON_BUILD_PAIR_CONDITION(
                                      !!u->storage.map, "storageWatchedSince",
                                      SD_JSON_BUILD_UNSIGNED(u->storage.watched_since)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!storage, "storageBase",
                                                           SD_JSON_BUILD_VARIANT(storage)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!u->network.map, "networkSince",
                                                           SD_JSON_BUILD_UNSIGNED(u->network.since)),
                              SD_JSON_BUILD_PAIR_CONDITION(
                                      !!u->network.map, "networkWatchedSince",
                                      SD_JSON_BUILD_UNSIGNED(u->network.watched_since)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!network, "networkBase",
                                                           SD_JSON_BUILD_VARIANT(network)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!custom, "custom",
                                                           SD_JSON_BUILD_VARIANT(custom)),
                              SD_JSON_BUILD_PAIR_CONDITION(!!hold, "hold", SD_JSON_BUILD_VARIANT(hold)));
}

/* Names of custom probes by bit; empty: none. */
static int custom_names_to_json(sd_json_variant **ret) {
        int r = 0;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX && r >= 0; i++)
                r = sd_json_variant_append_arrayb(ret,
                                                  SD_JSON_BUILD_STRING(strempty(probe_mask_custom_name(i))));
        return r;
}

static int state_write(Manager *m) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *units = NULL, *v = NULL, *custom = NULL;
        _cleanup_free_ char *temporary = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        int r;

        r = sd_json_variant_new_array(&units, NULL, 0);
        if (r < 0)
                return r;
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++) {
                _cleanup_(sd_json_variant_unrefp) sd_json_variant *unit = NULL;
                Unit *u;

                /* Includes retained units, which have no holds */
                if (!m->units.slots[i] && !m->hierarchy.retained[i])
                        continue;
                u = m->units.slots[i] ?: m->hierarchy.retained[i];
                r = unit_to_json(u, &unit);
                if (r >= 0)
                        r = sd_json_variant_append_array(&units, unit);
                if (r < 0 && !u->state_unsaved)
                        log_unit_warning_errno(u->name, r,
                                               "Failed to save '%s', a restart of qosd will forget "
                                               "that it is attached: %m",
                                               u->name);
                u->state_unsaved = r < 0;
        }

        r = custom_names_to_json(&custom);
        if (r < 0)
                return r;
        r = sd_json_buildo(&v,
                           SD_JSON_BUILD_PAIR_STRING("checksum", probe_get_checksum()),
                           SD_JSON_BUILD_PAIR_VARIANT("customProbes", custom),
                           SD_JSON_BUILD_PAIR_UNSIGNED("generation", m->units.generation),
                           SD_JSON_BUILD_PAIR_UNSIGNED("crossings", threshold_monitor_get_seq(m)),
                           SD_JSON_BUILD_PAIR_UNSIGNED("crossingsBegin", threshold_monitor_get_seq_begin(m)),
                           SD_JSON_BUILD_PAIR_UNSIGNED("contentionGeneration", m->units.map_generation),
                           SD_JSON_BUILD_PAIR_VARIANT("units", units));
        if (r < 0)
                return r;

        if (asprintf(&temporary, "%s.new", m->state_file.path) < 0)
                return -ENOMEM;
        f = fopen(temporary, "we");
        if (!f)
                return -errno;
        (void) sd_json_variant_dump(v, 0, f, NULL);
        if (fflush(f) != 0 || ferror(f))
                return errno_or_else(EIO);
        if (rename(temporary, m->state_file.path) < 0)
                return -errno;
        return 0;
}

void manager_save(Manager *m) {
        int r;

        m->state_file.later = sd_event_source_disable_unref(m->state_file.later);
        if (!m->state_file.path)
                return;
        r = state_write(m);
        if (r < 0)
                (void) log_warning_errno(r, "Failed to write '%s', a restart of qosd will forget "
                                            "attached units: %m", m->state_file.path);
}

typedef struct SavedUnit {
        const char *name, *control_group, *instances, *active_state;
        uint32_t slot, generation;
        uint64_t attached_since, attached_since_monotonic, map_created, contention_since, watched_since,
                storage_since, storage_watched_since, network_since, network_watched_since;
        sd_json_variant *hold, *file, *configured, *own, *base, *thresholds, *contention_base, *storage_base,
                *network_base, *custom;
} SavedUnit;

typedef struct SavedHold {
        uint32_t probes;
        uid_t uid;
        uint64_t expires;
        sd_json_variant *exclude;
} SavedHold;

static int hold_restore(Unit *u, HoldType type, bool own, sd_json_variant *v) {
        static const sd_json_dispatch_field hold_table[] = {
                { "probes",  SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint32,  offsetof(SavedHold, probes),
                  SD_JSON_MANDATORY },
                { "uid",     SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uid_gid, offsetof(SavedHold, uid),
                  SD_JSON_MANDATORY },
                { "expires", SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
                  offsetof(SavedHold, expires), 0                 },
                { "exclude", SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref,
                  offsetof(SavedHold, exclude), 0            },
                {}
        };
        SavedHold hold = { .expires = USEC_INFINITY };
        AttachRequest request;
        int r;

        r = sd_json_dispatch(v, hold_table, SD_JSON_ALLOW_EXTENSIONS, &hold);
        if (r < 0)
                return r;
        request = (AttachRequest) {
                .type = type,
                /* this version may know none of the probes */
                .probes = (hold.probes & (_PROBE_ALL | PROBES_CUSTOM)) ?: PROBE_REQUESTS,
                .uid = hold.uid,
                .owner_uid = own ? hold.uid : 0,
                .owner = type == HOLD_CONFIGURATION ? u->manager->config.observe_file : NULL,
        };
        for (size_t i = 0; hold.exclude && i < sd_json_variant_elements(hold.exclude); i++)
                (void) exclude_list_add(&request.excludes,
                                        strempty(sd_json_variant_string(
                                                sd_json_variant_by_index(hold.exclude, i))));
        r = unit_hold(u, &request, hold.expires);
        if (r >= 0 && type == HOLD_FILE)
                /* until the first scan of unit files is complete */
                unit_find_hold(u, HOLD_FILE, NULL, 0)->named = true;
        return r;
}

static void hold_restore_or_warn(Unit *u, HoldType type, bool own, sd_json_variant *v) {
        int r = hold_restore(u, type, own, v);

        if (r < 0)
                log_unit_warning_errno(u->name, r,
                                       "Invalid saved hold of '%s', ignoring: %m", u->name);
}

/* Adopts the contention map of the previous run; if it is missing, a new one is created. */
static void unit_restore_contention(Unit *u, const SavedUnit *saved) {
        int r;

        if (saved->contention_since == 0) {
                /* Created right before a crash, and not saved */
                probe_remove_contention(u->manager->probe, u->index);
                return;
        }
        r = probe_adopt_contention(u->manager->probe, u->index, u->generation, &u->contention.map,
                &u->contention.cpus);
        if (r >= 0 && saved->contention_base) {
                u->contention.base = new0(ContentionCounts, 1);
                r = u->contention.base ? contention_base_from_json(saved->contention_base,
                                                                   u->contention.base) : -ENOMEM;
        }
        u->contention.since = saved->contention_since;
        u->contention.watched_since = saved->watched_since;
        if (r < 0) {
                log_unit_warning_errno(u->name, r,
                                       "Failed to restore contention map of '%s', totals start from "
                                       "zero: %m",
                                       u->name);
                probe_remove_contention(u->manager->probe, u->index);
                u->contention.map = NULL;
                u->contention.cpus = NULL;
        }
}

/* Adopts the map of the previous run, for a unit with holds; if it is missing, a new one is created. */
static void unit_restore_map(Unit *u, const SavedUnit *saved) {
        Manager *m = u->manager;
        int r;

        r = probe_adopt_unit(m->probe, saved->slot, saved->generation, &u->view);
        if (r < 0) {
                log_unit_warning_errno(u->name, r,
                                       "Failed to restore map of '%s', totals start from zero: %m", u->name);
                probe_remove_unit(m->probe, saved->slot);
                return;
        }
        u->generation = saved->generation;
        u->attached_since = saved->attached_since;
        u->attached_since_monotonic = saved->attached_since_monotonic;
        u->map_created = saved->map_created;
        if (saved->base) {
                u->base = new0(CounterOffset, 1);
                r = u->base ? window_base_from_json(saved->base, u->base) : -ENOMEM;
                if (r < 0)
                        log_unit_warning_errno(u->name, r, "Invalid saved totals of '%s', ignoring: %m",
                                               u->name);
        }
        unit_restore_contention(u, saved);
        unit_restore_storage(u, saved->storage_since, saved->storage_watched_since, saved->storage_base);
        unit_restore_network(u, saved->network_since, saved->network_watched_since, saved->network_base);
        unit_restore_custom(u, saved->custom);
        /* Greater than any seq of the previous run */
        u->cache.seq = now_usec(CLOCK_BOOTTIME);
        unit_apply_excludes(u); /* without those of leases, which have ended */
        manager_begin_history(m);
}

/* Returns why an entry is invalid, or NULL. Values were validated before they were written: this protects
 * against modified or corrupt files. */
static const char* saved_unit_find_fault(const Manager *m, const SavedUnit *saved, bool held) {
        _cleanup_free_ char *name = NULL;

        if (unit_name_complete(saved->name, &name, NULL) < 0 || !streq(name, saved->name))
                return "not a unit name";
        if (saved->control_group[0] != '/' ||
            (saved->control_group[1] != 0 && control_group_path_check(saved->control_group) < 0) ||
            strlen(saved->control_group) >= QOS_PATH_SIZE)
                return "invalid control group";
        if (saved->instances &&
            (saved->instances[0] != '/' || control_group_path_check(saved->instances) < 0 ||
             strlen(saved->instances) >= QOS_PATH_SIZE))
                return "invalid control groups of instances";
        if (saved->slot >= UNITS_MAX_LIMIT)
                return "invalid slot";
        if (m->units.slots[saved->slot])
                return "duplicate slot";
        FOREACH_UNIT(u, m)
                if (held && u->holds && streq(u->name, saved->name))
                        return "duplicate unit";
        return NULL;
}

static const sd_json_dispatch_field unit_table[] = {
        { "name",                   SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string,
          offsetof(SavedUnit, name),                     SD_JSON_MANDATORY },
        { "controlGroup",           SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string,
          offsetof(SavedUnit, control_group),            SD_JSON_MANDATORY },
        { "instances",              SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string,
          offsetof(SavedUnit, instances),                0                 },
        { "activeState",            SD_JSON_VARIANT_STRING,   sd_json_dispatch_const_string,
          offsetof(SavedUnit, active_state),             SD_JSON_MANDATORY },
        { "slot",                   SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint32,
          offsetof(SavedUnit, slot),                     SD_JSON_MANDATORY },
        { "generation",             SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint32,
          offsetof(SavedUnit, generation),               SD_JSON_MANDATORY },
        { "attachedSince",          SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, attached_since),           SD_JSON_MANDATORY },
        { "attachedSinceMonotonic", SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, attached_since_monotonic), SD_JSON_MANDATORY },
        { "bookSince",              SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, map_created),               0                 },
        { "base",                   SD_JSON_VARIANT_OBJECT,   sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, base),                    0                 },
        { "contentionSince",        SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, contention_since),         0                 },
        { "watchedSince",           SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, watched_since),            0                 },
        { "contentionBase",         SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, contention_base),         0                 },
        { "storageSince",           SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, storage_since),            0                 },
        { "storageWatchedSince",    SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, storage_watched_since),    0                 },
        { "storageBase",            SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, storage_base),             0                 },
        { "networkSince",           SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, network_since),            0                 },
        { "networkWatchedSince",    SD_JSON_VARIANT_UNSIGNED, sd_json_dispatch_uint64,
          offsetof(SavedUnit, network_watched_since),    0                 },
        { "networkBase",            SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, network_base),             0                 },
        { "custom",                 SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, custom),                   0                 },
        { "hold",                   SD_JSON_VARIANT_OBJECT,   sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, hold),                    0                 },
        { "file",                   SD_JSON_VARIANT_OBJECT,   sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, file),                    0                 },
        { "configured",             SD_JSON_VARIANT_OBJECT,   sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, configured),              0                 },
        { "ownerHolds",             SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, own),                     0                 },
        { "thresholds",             SD_JSON_VARIANT_ARRAY,    sd_json_dispatch_variant_noref,
          offsetof(SavedUnit, thresholds),              0                 },
        {}
};

/* ret_reason: set if -EBADMSG is returned. */
static int unit_restore(Manager *m, sd_json_variant *v, bool adopted, const char **ret_reason) {
        SavedUnit saved = {};
        bool held;
        Unit *u;
        int r;

        r = sd_json_dispatch(v, unit_table, SD_JSON_ALLOW_EXTENSIONS, &saved);
        if (r < 0)
                return r;
        if (!m->config.observe_auto)
                saved.configured = NULL;
        held = saved.hold || saved.file || saved.configured || saved.own;
        *ret_reason = saved_unit_find_fault(m, &saved, held);
        if (*ret_reason)
                return -EBADMSG;
        if (!held && !adopted)
                return 0;

        r = unit_new(m, &(UnitInfo) {
                .id = saved.name,
                .control_group = saved.control_group,
                .instances = saved.instances,
                .active_state = saved.active_state,
        }, saved.slot, &u);
        if (r < 0)
                return r;

        if (!held) {
                /* Had only leases, which ended with the previous run, or is retained: see
                 * manager_restore_state() */
                r = probe_adopt_unit(m->probe, saved.slot, saved.generation, &u->view);
                if (r < 0)
                        probe_remove_unit(m->probe, saved.slot);
                u->generation = saved.generation;
                u->map_created = saved.map_created;
                if (u->view) {
                        unit_restore_contention(u, &saved);
                        unit_restore_storage(u, saved.storage_since, saved.storage_watched_since,
                                             saved.storage_base);
                        unit_restore_network(u, saved.network_since, saved.network_watched_since,
                                             saved.network_base);
                        unit_restore_custom(u, saved.custom);
                }
                return 0;
        }

        if (saved.hold)
                hold_restore_or_warn(u, HOLD_ADMINISTRATOR, /* own= */ false, saved.hold);
        if (saved.file)
                hold_restore_or_warn(u, HOLD_FILE, /* own= */ false, saved.file);
        if (saved.configured)
                hold_restore_or_warn(u, HOLD_CONFIGURATION, /* own= */ false, saved.configured);
        for (size_t i = 0; saved.own && i < sd_json_variant_elements(saved.own); i++)
                hold_restore_or_warn(u, HOLD_ADMINISTRATOR, /* own= */ true,
                                         sd_json_variant_by_index(saved.own, i));

        unit_load_history(u, saved.generation);
        if (adopted)
                unit_restore_map(u, &saved);

        threshold_monitor_from_json(u, saved.thresholds, /* totals= */ u->view);

        /* Units without holds are detached by manager_restore_state() */
        if (u->holds && u->name[0] != '/')
                (void) service_manager_watch(m->service_manager, u->name);
        return 0;
}

static int state_read(const char *path, sd_json_variant **ret) {
        _cleanup_fclose_ FILE *f = NULL;
        _cleanup_close_ int fd = -EBADF;
        struct stat st;

        /* Do not block on FIFOs */
        fd = open(path, O_RDONLY|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode))
                return S_ISDIR(st.st_mode) ? -EISDIR : -EBADFD;
        f = fdopen(fd, "r");
        if (!f)
                return -errno;
        TAKE_FD(fd);
        return sd_json_parse_file(f, path, 0, ret, NULL, NULL);
}

static void custom_names_from_json(sd_json_variant *names) {
        for (unsigned i = 0; sd_json_variant_is_array(names) && i < sd_json_variant_elements(names); i++) {
                const char *name = strempty(sd_json_variant_string(sd_json_variant_by_index(names, i)));

                (void) probe_mask_set_custom(i, name, strlen(name));
        }
}

void manager_restore_state(Manager *m) {
        _cleanup_(sd_json_variant_unrefp) sd_json_variant *v = NULL;
        sd_json_variant *units, *generation, *crossings, *crossings_begin, *contention_generation;
        const char *checksum;
        bool same, adopted, incomplete = false;
        int r;

        r = m->state_file.path ? state_read(m->state_file.path, &v) : -ENOENT;
        if (r < 0) {
                if (r != -ENOENT)
                        (void) log_warning_errno(r, "Failed to read '%s', no units are restored: %m",
                                                 m->state_file.path);
                (void) probe_adopt(m->probe, /* discard= */ true);
                return;
        }

        custom_names_from_json(sd_json_variant_by_key(v, "customProbes"));
        checksum = sd_json_variant_string(sd_json_variant_by_key(v, "checksum"));
        units = sd_json_variant_by_key(v, "units");
        if (!sd_json_variant_is_array(units)) {
                log_warning("'%s' has no list of units, no units are restored.", m->state_file.path);
                units = NULL;
        }
        generation = sd_json_variant_by_key(v, "generation");
        contention_generation = sd_json_variant_by_key(v, "contentionGeneration");
        /* Skip generations that groups and sockets may have, but that were not saved before a crash: at most
         * one per slot */
        if (sd_json_variant_is_unsigned(generation))
                m->units.generation = sd_json_variant_unsigned(generation) + UNITS_MAX_LIMIT;
        crossings = sd_json_variant_by_key(v, "crossings");
        crossings_begin = sd_json_variant_by_key(v, "crossingsBegin");
        if (sd_json_variant_is_unsigned(crossings))
                threshold_monitor_set_seq(m, sd_json_variant_unsigned(crossings),
                               sd_json_variant_is_unsigned(crossings_begin) ?
                               sd_json_variant_unsigned(crossings_begin) : 0);
        if (sd_json_variant_is_unsigned(contention_generation))
                m->units.map_generation = sd_json_variant_unsigned(contention_generation) + UNITS_MAX_LIMIT;

        same = streq_ptr(checksum, probe_get_checksum());
        r = probe_adopt(m->probe, !same || !units);
        adopted = r >= 0 && same && units;
        if (units && !adopted)
                (void) log_full_errno(LOG_NOTICE, r,
                                      !same ? "This build of qosd measures with other programs than the one "
                                              "before: holds and thresholds are kept, "
                                              "totals and windows begin anew." :
                                              "The programs of the previous run cannot be taken over: "
                                              "totals begin anew (%m).");

        if (adopted)
                custom_restore(m);
        for (size_t i = 0; units && i < sd_json_variant_elements(units); i++) {
                sd_json_variant *unit = sd_json_variant_by_index(units, i);
                const char *reason = NULL;

                /* The previous run ended before all control groups of the unit were assigned */
                incomplete = incomplete || sd_json_variant_boolean(sd_json_variant_by_key(unit, "claiming"));
                r = unit_restore(m, unit, adopted, &reason);
                if (r < 0)
                        (void) log_warning_errno(r, "Invalid entry %zu in '%s', ignoring: %s", i,
                                                 m->state_file.path, reason ?: strerror(-r));
        }

        /* Units without holds continue only if retained by ancestors, which have been restored by now */
        FOREACH_UNIT(u, m)
                if (!u->holds)
                        unit_stop(u);
        manager_forget_histories(m);

        /* Maps of units that were being attached or merged when the previous run ended */
        for (unsigned i = 0; i < UNITS_MAX_LIMIT; i++)
                if (!m->hierarchy.retained[i] && !(m->units.slots[i] && m->units.slots[i]->view) &&
                    probe_has_unit(m->probe, i)) {
                        probe_remove_unit(m->probe, i);
                        incomplete = true;
                }

        custom_end_restore(m);
        if (m->units.n == 0) {
                custom_stop(m);
                probe_stop(m->probe);
                return;
        }

        manager_start_probe(m);
        FOREACH_UNIT(u, m)
                if (u->view && incomplete)
                        unit_claim_cgroups(u); /* some control groups may be assigned to detached units */
                else
                        unit_start(u);
        manager_update_probes(m, NULL);
        manager_save(m);
        log_info("Restored %u unit%s.", m->units.n, m->units.n == 1 ? "" : "s");
}

/* ---- file --------------------------------------------------------------------------------------------- */

static void on_state_changed(Manager *m, void *userdata) {
        manager_save(m);
}

static int on_later(sd_event_source *source, void *userdata) {
        manager_save(ASSERT_PTR(userdata));
        return 0;
}

/* Deferred, as many units may be detached at once, and writing the file takes some ten milliseconds. */
static void on_unit_detached(Manager *m, void *userdata) {
        if (m->state_file.later)
                return;
        if (sd_event_add_defer(m->event, &m->state_file.later, on_later, m) < 0)
                manager_save(m);
}

int state_file_init(Manager *m) {
        const char *directory = getenv("RUNTIME_DIRECTORY");

        if (directory && asprintf(&m->state_file.path, "%.*s/units", (int) strcspn(directory, ":"),
                                  directory) < 0) {
                m->state_file.path = NULL;
                return -ENOMEM;
        }
        m->state_file.observer = (ManagerObserver) {
                .state_changed = on_state_changed,
                .unit_detached = on_unit_detached,
        };
        manager_add_observer(m, &m->state_file.observer);
        return 0;
}

void state_file_done(Manager *m) {
        manager_remove_observer(m, &m->state_file.observer);
        sd_event_source_disable_unref(m->state_file.later);
        free(m->state_file.path);
}
