/* SPDX-License-Identifier: GPL-2.0-or-later OR LGPL-2.1-or-later */
#pragma once

/* Writers of the maps of custom probes. Compiled for BPF and, for the unit tests, for user space; the
 * including file provides window_copy(), window_cpu() and custom_element(). */

#include "checkpoints.h"
#include "custom-map.h"

#define CUSTOM_INLINE static inline __attribute__((always_inline))

/* Writes the checkpoints that are due at epoch. An event recorded meanwhile may land on either side of them;
 * totals are not affected. */
CUSTOM_INLINE void custom_roll(void *map, const volatile struct qos_custom_layout *layout,
                               struct qos_custom_header *h, __u64 epoch) {
        struct checkpoints all = { &h->rolling, &h->epoch, h->written };

        if (!checkpoints_begin(&all, epoch))
                return;
        for (__u32 level = 0; level < QOS_LEVELS; level++) {
                struct checkpoint_due due;
                struct qos_custom_checkpoint *c;

                if (!checkpoints_get_due(&all, level, epoch, &due))
                        break;
                c = &h->checkpoints[due.index];
                checkpoint_begin(&c->first, &c->last, &due);
                for (__u32 i = 0; i < layout->n && can_loop; i++) {
                        union qos_custom_element *from = custom_element(map, layout->cells + i), *to;

                        to = custom_element(map, layout->checkpoints + (__u32) due.index * layout->n + i);
                        if (from && to)
                                window_copy(to->words, from->words, sizeof(to->words));
                }
                checkpoint_end(&c->last, &due);
                h->written[level]++;
        }
        checkpoints_end(&all, epoch);
}

/* The entry with these labels; 0, the one of all others, if there is none and no free one. Two CPUs that
 * see labels for the first time may take an entry each, which readers add up. */
CUSTOM_INLINE __u32 custom_entry(void *map, const volatile struct qos_custom_metric *m,
                                 const struct qos_custom_labels *l) {
        __u64 hash = 0;

        for (int i = 0; i < (int) (sizeof(l->words) / sizeof(l->words[0])); i++)
                hash = (hash ^ l->words[i]) * 0x9e3779b97f4a7c15ULL;
        hash >>= 32;

        for (__u32 i = 0; i < QOS_CUSTOM_ENTRIES && can_loop; i++) {
                __u32 entry = (__u32) (hash + i) % QOS_CUSTOM_ENTRIES;
                union qos_custom_element *e = custom_element(map,
                                                             m->keys + entry / QOS_CUSTOM_KEYS_PER_ELEMENT);
                struct qos_custom_key *key;
                __u64 k = entry % QOS_CUSTOM_KEYS_PER_ELEMENT, differs = 0;

                if (!e)
                        return 0;
                BPF_BOUND(k, QOS_CUSTOM_KEYS_PER_ELEMENT);
                key = &e->keys[k];
                if (*(volatile __u64*) &key->state == QOS_CUSTOM_FREE &&
                    __sync_val_compare_and_swap(&key->state, QOS_CUSTOM_FREE, QOS_CUSTOM_WRITING) ==
                    QOS_CUSTOM_FREE) {
                        for (int w = 0; w < (int) (sizeof(l->words) / sizeof(l->words[0])); w++)
                                key->labels.words[w] = l->words[w];
                        (void) __sync_lock_test_and_set(&key->state, QOS_CUSTOM_USED);
                        return entry + 1;
                }
                if (*(volatile __u64*) &key->state != QOS_CUSTOM_USED)
                        continue;
                for (int w = 0; w < (int) (sizeof(l->words) / sizeof(l->words[0])); w++)
                        differs |= key->labels.words[w] ^ l->words[w];
                if (differs == 0)
                        return entry + 1;
        }
        return 0;
}

CUSTOM_INLINE __u64* custom_cell(void *map, const volatile struct qos_custom_layout *layout, __u32 cell) {
        union qos_custom_element *e = custom_element(map, layout->cells + cell / QOS_CUSTOM_WORDS);
        __u64 word = cell % QOS_CUSTOM_WORDS;

        if (!e)
                return (__u64*) 0;
        BPF_BOUND(word, QOS_CUSTOM_WORDS);
        return &e->words[word];
}

/* Records a value, once the checkpoints that are due at this time are written. labels: NULL for a metric
 * without. */
CUSTOM_INLINE void custom_record(void *map, const volatile struct qos_custom_layout *layout,
                                 const volatile struct qos_custom_metric *m,
                                 const struct qos_custom_labels *labels, __u64 now, __u64 value) {
        union qos_custom_element *e = custom_element(map, QOS_CUSTOM_HEADER);
        __u64 epoch = now / QOS_EPOCH_NSEC, *p;
        __u32 cell;

        if (!e)
                return;
        if (epoch > *(volatile __u64*) &e->header.epoch)
                custom_roll(map, layout, &e->header, epoch);
        __sync_fetch_and_add(&e->header.recorded, 1);

        cell = m->cells;
        if (labels && m->labels > 0)
                cell += custom_entry(map, m, labels) * QOS_CUSTOM_CELLS(m->type, m->labels);
        p = custom_cell(map, layout, cell);
        if (!p)
                return;
        if (m->type == QOS_CUSTOM_GAUGE) {
                (void) __sync_lock_test_and_set(p, value);
                return;
        }
        /* The sum first: what is in a bin is in the sum already */
        __sync_fetch_and_add(p, value);
        if (m->type != QOS_CUSTOM_HISTOGRAM)
                return;
        cell += 1 + (m->labels > 0 ? custom_octave(histogram_fine_bin(value)) :
                     histogram_coarse_bin(histogram_fine_bin(value)));
        p = custom_cell(map, layout, cell);
        if (p)
                __sync_fetch_and_add(p, 1);
}
