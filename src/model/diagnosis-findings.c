/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Adds to the results of a diagnosis. */

#include <math.h>
#include <stdarg.h>

#include "diagnosis-internal.h"
#include "util.h"

/* Minimum share of the time in which threads waited for a CPU that another unit had it, to be named. */
#define USER_MIN 0.1
/* Share of a device's bytes from which on they count as the unit's own. Below it, others have twice as
 * many. */
#define DEVICE_OWN_MIN (1.0 / 3)
/* Minimum share of the waiting threads that wait for a file system, to be named. For others, such as those
 * in page faults, the file system is unknown. */
#define MOUNT_MIN 0.5

bool diagnosis_has(const Diagnosis *d, FindingKind kind) {
        for (size_t i = 0; i < d->n_findings; i++)
                if (d->findings[i].kind == kind)
                        return true;
        return false;
}

Finding* diagnosis_add(Diagnosis *d, const FindingCause *cause, const char *format, ...) {
        Finding *f = d->findings + d->n_findings++;
        va_list ap;

        assert(d->n_findings <= ELEMENTSOF(d->findings));
        *f = (Finding) {
                .kind = cause->kind,
                .certainty = cause->certainty,
                .state = cause->state,
                .share = cause->share,
                .time = cause->time,
                .rule = cause->rule,
        };
        va_start(ap, format);
        (void) vsnprintf(f->text, sizeof(f->text), format, ap);
        va_end(ap);

        /* Another rule may have excluded the kind */
        for (size_t i = 0; i < d->n_excluded; i++)
                if (d->excluded[i].kind == cause->kind)
                        d->excluded[i--] = d->excluded[--d->n_excluded];
        return f;
}

void diagnosis_exclude(Diagnosis *d, FindingKind kind, double share, const char *format, ...) {
        Excluded *e = d->excluded + d->n_excluded;
        va_list ap;

        if (diagnosis_has(d, kind))
                return;
        assert(d->n_excluded < ELEMENTSOF(d->excluded));
        d->n_excluded++;
        e->kind = kind;
        e->share = share;
        va_start(ap, format);
        (void) vsnprintf(e->text, sizeof(e->text), format, ap);
        va_end(ap);
}

void diagnosis_copy_name(char ret[static DIAGNOSIS_NAME_MAX], const char *name) {
        size_t n = strnlen(name, DIAGNOSIS_NAME_MAX - 1);

        memcpy(ret, name, n);
        ret[n] = 0;
}

void finding_name_lock(Finding *f, const DiagnosisNamed *lock) {
        size_t n = strlen(f->text);

        diagnosis_copy_name(f->resource, lock->name);
        diagnosis_copy_name(f->mount, lock->mount);
        (void) snprintf(f->text + n, sizeof(f->text) - n, ", mostly on %s%s%s%s%s", lock->name,
                        lock->mount[0] ? " of file system " : "", lock->mount,
                        lock->holder[0] ? ", released by " : "", lock->holder);
}

/* Share of the waits for a CPU in which this user had it, of those with a known user. */
static double user_share(const DiagnosisFigures *f, const DiagnosisNamed *user) {
        return user->value / (f->run_queue_own + f->run_queue_others);
}

_printf_(2, 3) static void finding_append(Finding *f, const char *format, ...) {
        size_t n = strlen(f->text);
        va_list ap;

        va_start(ap, format);
        (void) vsnprintf(f->text + n, sizeof(f->text) - n, format, ap);
        va_end(ap);
}

static void finding_name_device(Finding *f, const DiagnosisNamed *device) {
        diagnosis_copy_name(f->resource, device->name);
        if (isnan(device->value))
                finding_append(f, "; device %s", device->name);
        else if (device->value >= DEVICE_OWN_MIN)
                finding_append(f, "; device %s, %s of its bytes are the unit's own", device->name,
                               PERCENT(device->value));
        else {
                diagnosis_copy_name(f->unit, device->unit);
                /* Without the io controller, writeback is not attributed to units */
                finding_append(f, "; device %s, %s of its bytes are %s%s", device->name,
                               PERCENT(1 - device->value), device->unit[0] ? "of others, mostly " :
                               "of others or of unknown origin", device->unit);
        }
}

/* Names the file system, and its server or device. */
static void finding_name_disk(Finding *f, const DiagnosisEvidence *e) {
        const DiagnosisMount *mount = &e->mount;

        if (mount->point[0] && mount->threads >= MOUNT_MIN * e->now.threads[QOS_STATE_DISK]) {
                diagnosis_copy_name(f->mount, mount->point);
                finding_append(f, "; file system %s", mount->point);
                if (mount->remote[0]) {
                        diagnosis_copy_name(f->resource, mount->remote);
                        finding_append(f, ", which is %s", mount->remote);
                        return;
                }
        }
        if (e->n_devices > 0)
                finding_name_device(f, e->devices);
}

void finding_name(Finding *f, const DiagnosisEvidence *e) {
        const DiagnosisFigures *now = &e->now;
        size_t n = strlen(f->text);
        char *end = f->text + n;
        size_t left = sizeof(f->text) - n;

        switch (f->kind) {

        case FINDING_CPU:
                if (e->n_users > 0 && user_share(now, e->users) >= USER_MIN) {
                        bool more = e->n_users > 1 && user_share(now, e->users + 1) >= USER_MIN;

                        diagnosis_copy_name(f->resource, e->users[0].name);
                        diagnosis_copy_name(f->unit, e->users[0].unit);
                        (void) snprintf(end, left, "; %s had it for %s of that%s%s", e->users[0].name,
                                        PERCENT(user_share(now, e->users)), more ? ", then " : "",
                                        more ? e->users[1].name : "");
                } else if (!isnan(now->run_queue_others)) /* no text if users were not determined */
                        (void) snprintf(end, left, "; no competitor was seen");
                break;

        case FINDING_DISK:
                finding_name_disk(f, e);
                break;

        case FINDING_LOCK:
                if (e->n_locks > 0)
                        finding_name_lock(f, e->locks);
                break;

        case FINDING_DEPENDENCY:
                if (e->n_peers > 0) {
                        diagnosis_copy_name(f->resource, e->peers[0].name);
                        diagnosis_copy_name(f->unit, e->peers[0].unit);
                        (void) snprintf(end, left, ", mostly for %s%s%s%s, %s per request",
                                        e->peers[0].name, e->peers[0].unit[0] ? " (" : "",
                                        e->peers[0].unit, e->peers[0].unit[0] ? ")" : "",
                                        SPAN(e->peers[0].value));
                }
                break;

        case FINDING_MEMORY:
                if (now->major_faults > 0 || now->refaults > 0)
                        (void) snprintf(end, left,
                                        "; %s major faults/s, %s pages/s read again",
                                        RATE(now->major_faults), RATE(now->refaults));
                break;

        case FINDING_QUOTA:
                if (now->throttled >= 0)
                        (void) snprintf(end, left, "; the quota was used up in %s of the periods",
                                        PERCENT(now->throttled));
                break;

        default:
                break;
        }
}
