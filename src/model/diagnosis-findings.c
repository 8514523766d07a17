/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* The results of a diagnosis, to which its rules add. */

#include <stdarg.h>

#include "diagnosis-internal.h"

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

        /* Another rule has excluded it */
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
