/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "hold.h"
#include "log.h"
#include "manager.h"
#include "observer.h"
#include "probe.h"
#include "service-manager.h"
#include "unit-map.h"

/* ---- observing ---------------------------------------------------------------------------------------- */

bool hold_is(const Hold *h, HoldType type, const void *lease_key, uid_t owner_uid) {
        return h->type == type && h->lease_key == lease_key &&
               (type != HOLD_ADMINISTRATOR || h->owner_uid == owner_uid);
}

int unit_get_excludes(const Unit *u, const AttachRequest *request, ExcludeList *ret) {
        bool others = request && request->owner_uid == 0;
        ExcludeList l = {};
        int r;

        for (const Hold *h = u ? u->holds : NULL; h; h = h->next)
                others = others || h->owner_uid == 0;
        if (request && (!others || request->owner_uid == 0))
                l = request->excludes;
        for (const Hold *h = u ? u->holds : NULL; h; h = h->next) {
                if (request && hold_is(h, request->type, request->lease_key, request->owner_uid))
                        continue;
                /* Exclusions of the control group's owner do not affect other users */
                if (others && h->owner_uid != 0)
                        continue;
                r = exclude_list_merge(&l, &h->excludes);
                if (r < 0)
                        return r;
        }

        *ret = l;
        return 0;
}

void unit_apply_excludes(Unit *u) {
        ExcludeList l;
        int r;

        if (!u->view)
                return;

        r = unit_get_excludes(u, NULL, &l);
        if (r >= 0)
                r = probe_set_excludes(u->manager->probe, u->index, u->generation, &l);
        if (r < 0)
                log_unit_warning_errno(u->name, r,
                                       "Failed to update exclusions of '%s': %m", u->name);
}

/* ---- holds -------------------------------------------------------------------------------------------- */

void hold_free(Hold *h) {
        Unit *u = h->unit;

        for (Hold **p = &u->holds; *p; p = &(*p)->next)
                if (*p == h) {
                        *p = h->next;
                        break;
                }

        u->probes = 0;
        for (Hold *i = u->holds; i; i = i->next)
                u->probes |= i->probes;
        u->last_uid = h->uid;

        sd_event_source_disable_unref(h->expiry);
        free(h->owner);
        free(h);
}

Hold* unit_find_hold(Unit *u, HoldType type, const void *lease_key, uid_t owner_uid) {
        for (Hold *h = u->holds; h; h = h->next)
                if (hold_is(h, type, lease_key, owner_uid))
                        return h;
        return NULL;
}

Hold* unit_find_file_hold(const Unit *u) {
        for (Hold *h = u ? u->holds : NULL; h; h = h->next)
                if (h->type == HOLD_FILE)
                        return h;
        return NULL;
}

unsigned manager_count_leases(Manager *m, uid_t uid) {
        unsigned n = 0;

        FOREACH_UNIT(u, m)
                for (Hold *h = u->holds; h; h = h->next)
                        if (h->type == HOLD_LEASE && h->uid == uid)
                                n++;
        return n;
}

unsigned manager_count_units(Manager *m, uid_t uid) {
        unsigned n = 0;

        FOREACH_UNIT(u, m)
                for (Hold *h = u->holds; h; h = h->next)
                        if (h->uid == uid) {
                                n++;
                                break;
                        }

        /* Retained units occupy slots as well */
        FOREACH_RETAINED(u, m)
                n += u->last_uid == uid;
        return n;
}

bool unit_is_held_by_root(const Unit *u) {
        for (const Hold *h = u->holds; h; h = h->next)
                if (h->uid == 0)
                        return true;
        return false;
}
