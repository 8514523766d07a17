/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "probe-name.h"

_Static_assert(PROBE_CUSTOM(0) == _PROBE_ALL + 1, "bits of custom probes follow");

static const char *const probe_table[] = { "requests", "tls",     "cpu",    "block",
                                           "memory",   "storage", "network" };

/* By bit. */
static struct {
        char name[sizeof(CUSTOM_NAME_PREFIX) + CUSTOM_NAME_MAX]; /* with prefix; empty: none so far */
        bool forgotten;         /* it has no files any more, and the bit is free */
} custom_table[CUSTOM_PROBES_MAX];

ProbeMask probe_mask_from_name(const char *s) {
        for (size_t i = 0; i < ELEMENTSOF(probe_table); i++)
                if (streq(s, probe_table[i]))
                        return 1U << i;
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                if (probe_mask_custom_name(i) && streq(s, custom_table[i].name))
                        return PROBE_CUSTOM(i);
        return 0;
}

const char* probe_mask_name(unsigned i) {
        if (i < ELEMENTSOF(probe_table))
                return probe_table[i];
        i -= PROBE_CUSTOM_FIRST;
        return i < CUSTOM_PROBES_MAX && custom_table[i].name[0] ? custom_table[i].name : NULL;
}

static bool custom_name_is_valid(const char *name, size_t length) {
        if (length == 0 || length > CUSTOM_NAME_MAX || *name < 'a' || *name > 'z')
                return false;
        for (size_t i = 0; i < length; i++)
                if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                      (name[i] >= '0' && name[i] <= '9')))
                        return false;
        return true;
}

bool probe_mask_set_custom(unsigned i, const char *name, size_t length) {
        if (i >= CUSTOM_PROBES_MAX || !custom_name_is_valid(name, length))
                return false;
        (void) snprintf(custom_table[i].name, sizeof(custom_table[i].name), CUSTOM_NAME_PREFIX "%.*s",
                        (int) length, name);
        custom_table[i].forgotten = false;
        return true;
}

void probe_mask_forget_custom(ProbeMask except) {
        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++)
                if (!(except & PROBE_CUSTOM(i)))
                        custom_table[i].forgotten = custom_table[i].name[0];
}

bool probe_mask_add_custom(const char *name, size_t length) {
        unsigned free_bit = CUSTOM_PROBES_MAX;

        for (unsigned i = 0; i < CUSTOM_PROBES_MAX; i++) {
                const char *known = custom_table[i].name + strlen(CUSTOM_NAME_PREFIX);

                if (custom_table[i].name[0] && strlen(known) == length && memcmp(known, name, length) == 0) {
                        custom_table[i].forgotten = false;
                        return true;
                }
                if (free_bit == CUSTOM_PROBES_MAX && !probe_mask_custom_name(i))
                        free_bit = i;
        }
        return probe_mask_set_custom(free_bit, name, length);
}

const char* probe_mask_custom_name(unsigned i) {
        if (i >= CUSTOM_PROBES_MAX || !custom_table[i].name[0] || custom_table[i].forgotten)
                return NULL;
        return custom_table[i].name + strlen(CUSTOM_NAME_PREFIX);
}

int probe_mask_parse(char **words, ProbeMask *ret, QosError *e) {
        ProbeMask mask = 0;

        for (char **i = words; i && *i; i++) {
                ProbeMask probe = probe_mask_from_name(*i);

                if (probe == 0)
                        return qos_error_set(e, QOS_ERROR_NO_SUCH_PROBE, *i,
                                             "there is no probe '%s', expected " PROBES_EXPECTED,
                                             excerpt(*i, (char[EXCERPT_MAX + 1]) {}));
                mask |= probe;
        }

        *ret = mask;
        return 0;
}
