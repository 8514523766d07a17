/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Pages of files: in the page cache, and mapped. */

#include "storage-call.bpf.h"

const volatile __u32 page_size __weak = 4096;

/* ---- page cache --------------------------------------------------------------------------------------- */

/* Task storage of the current thread, if it is in a unit with the probe, and the counters of its map.
 * Programs that run under locks of the page cache do not create any: those at calls do, and the iterator. */
static __always_inline struct storage_thread* current_get_shard(struct storage_shard *ret) {
        struct storage_thread *t = bpf_task_storage_get(&storage_threads, bpf_get_current_task_btf(), 0, 0);
        __u32 generation = 0;
        void *map;

        if (!t || t->owner.generation == 0 || t->loaded_at != loaded_at)
                return NULL;
        map = storage_map_get(&t->owner, &generation);
        if (!map || generation != t->generation)
                return NULL;
        return storage_shard_enter(map, bpf_get_smp_processor_id(), bpf_ktime_get_ns(), ret) ? t : NULL;
}

/* A folio of several pages has its order behind the flags of its first page. */
static __always_inline __u64 folio_count_pages(const void *folio) {
        __u64 flags = 0, order = 0;

        (void) bpf_probe_read_kernel(&flags, sizeof(flags), folio);
        if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
                return 1;
        (void) bpf_probe_read_kernel(&order, sizeof(order), folio + bpf_core_type_size(struct page));
        return 1ULL << (order & 31);
}

/* Pages added for a lookup of pages up to last: those behind. The kernel reports the lookup once it has
 * added what is missing. */
static __always_inline __u64 pages_ahead(const struct storage_thread *t, __u64 mapping, __u64 last) {
        __u64 ahead = t->added_end - t->added_first;

        if (t->added_mapping != mapping || t->added_pages == 0 || t->added_end <= last + 1)
                return 0;
        if (t->added_first <= last)
                ahead = t->added_end - last - 1;
        return ahead < t->added_pages ? ahead : t->added_pages;
}

/* Pages first to last, of a file that may end before. A read looks up all that is left of it again when it
 * goes on behind some pages. */
static __attribute__((noinline)) int pages_look_up(__u64 mapping, __u64 first, __u64 last) {
        __u64 calls = task_count_calls(bpf_get_current_task_btf());
        struct storage_shard shard;
        struct storage_thread *t = current_get_shard(&shard);
        __u64 ahead;

        if (!t || last < first)
                return 0;
        if (t->mapping != mapping || t->last_page != last || t->lookup_calls != calls || first <= t->page)
                storage_count(&shard, QOS_STORAGE_PAGES_LOOKED_UP, last - first + 1);
        ahead = pages_ahead(t, mapping, last);
        if (ahead > 0)
                storage_count(&shard, QOS_STORAGE_PAGES_AHEAD, ahead);
        t->added_pages = 0;
        t->mapping = mapping;
        t->page = first;
        t->last_page = last;
        t->lookup_calls = calls;
        return 0;
}

SEC("tp_btf/mm_filemap_get_pages")
int BPF_PROG(storage_pages_look_up, struct address_space *mapping, __u64 first, __u64 last) {
        __u64 size;

        if (task_is_unowned())
                return 0;
        preemption_disable();
        size = BPF_CORE_READ(mapping, host, i_size);
        if (size > 0 && last > (size - 1) / page_size)
                last = (size - 1) / page_size;
        pages_look_up((__u64) mapping, first, last);
        preemption_enable();
        return 0;
}

/* Pages that are added: of a fault, all but that page are read ahead, of a read that is known later. */
static __always_inline void pages_added(struct storage_thread *t, const struct storage_shard *shard,
                                        const struct folio *folio, __u64 pages) {
        struct task_struct *task = bpf_get_current_task_btf();
        __u64 mapping = (__u64) BPF_CORE_READ(folio, mapping), first = BPF_CORE_READ(folio, index);

        if (t->fault_is_open && t->fault_mapping == mapping &&
            t->faults == task->min_flt + task->maj_flt + 1) {
                pages -= t->fault_page - first < pages;
                if (pages > 0)
                        storage_count(shard, QOS_STORAGE_PAGES_AHEAD, pages);
                return;
        }
        if (t->added_mapping != mapping || t->added_pages == 0) {
                t->added_mapping = mapping;
                t->added_first = first;
                t->added_end = t->added_pages = 0;
        }
        if (first < t->added_first)
                t->added_first = first;
        if (first + pages > t->added_end)
                t->added_end = first + pages;
        t->added_pages += pages;
}

static __attribute__((noinline)) int folio_record(__u64 folio, __u64 pages, int dirtied) {
        struct storage_shard shard;
        struct storage_thread *t = current_get_shard(&shard);

        if (!t)
                return 0;
        storage_count(&shard, dirtied ? QOS_STORAGE_PAGES_DIRTIED : QOS_STORAGE_PAGES_ADDED, pages);
        /* A write makes a page, and then it is dirty */
        if (dirtied && t->added == folio) {
                storage_count(&shard, QOS_STORAGE_PAGES_CREATED, pages);
                t->added_pages -= t->added_pages < pages ? t->added_pages : pages;
        }
        if (!dirtied)
                pages_added(t, &shard, (const struct folio*) folio, pages);
        t->added = dirtied ? 0 : folio;
        return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int BPF_PROG(storage_pages_add, void *folio) {
        if (task_is_unowned())
                return 0;
        preemption_disable();
        folio_record((__u64) folio, folio_count_pages(folio), /* dirtied= */ 0);
        preemption_enable();
        return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int BPF_PROG(storage_pages_dirty, void *folio) {
        if (task_is_unowned())
                return 0;
        preemption_disable();
        folio_record((__u64) folio, folio_count_pages(folio), /* dirtied= */ 1);
        preemption_enable();
        return 0;
}

/* ---- mapped files ------------------------------------------------------------------------------------- */

/* Pages around that of a fault are mapped if they are in the page cache. If that one is not, it is read: the
 * same fault. mapping, page: of the one that is read. */
static __attribute__((noinline)) int fault_record(__u64 mapping, __u64 page) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct storage_shard shard;
        struct storage_thread *t = current_get_shard(&shard);
        __u64 faults = task->min_flt + task->maj_flt + 1;

        if (!t)
                return 0;
        t->fault_mapping = mapping;
        t->fault_page = page;
        if (t->faults == faults)
                return 0;
        fault_settle(task, t, &shard);
        t->faults = faults;
        t->major_faults = task->maj_flt;
        t->fault_is_open = 1;
        storage_count(&shard, QOS_STORAGE_FAULTS, 1);
        return 0;
}

SEC("tp_btf/mm_filemap_fault")
int BPF_PROG(storage_fault, struct address_space *mapping, __u64 page) {
        if (!task_is_unowned()) {
                preemption_disable();
                fault_record((__u64) mapping, page);
                preemption_enable();
        }
        return 0;
}

SEC("tp_btf/mm_filemap_map_pages")
int storage_map_pages(void *ctx) {
        if (!task_is_unowned()) {
                preemption_disable();
                fault_record(0, 0);
                preemption_enable();
        }
        return 0;
}
