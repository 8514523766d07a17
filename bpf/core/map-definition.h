/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Definitions of the two kinds of maps that most are. Those in a header are followed by __weak: each object
 * has them, the linked one has them once. */

#include "kernel.h"

/* Since Linux 7.1 an element of a storage cannot be larger than what one cache of the allocator has (8 KiB);
 * what is larger loads, and is never allocated. */
#define STORAGE_VALUE_MAX 8000

/* kind: of what each has a value: SK, TASK or CGRP. flags: besides the one that all have. */
#define BPF_STORAGE_MAP_FLAGS(name, kind, value_type, flags)                                    \
        _Static_assert(sizeof(value_type) <= STORAGE_VALUE_MAX, #name ": the value is too large");     \
        struct {                                                                                \
                __uint(type, BPF_MAP_TYPE_##kind##_STORAGE);                                    \
                __uint(map_flags, BPF_F_NO_PREALLOC | (flags));                                 \
                __type(key, int);                                                               \
                __type(value, value_type);                                                      \
        } name SEC(".maps")

#define BPF_STORAGE_MAP(name, kind, value_type) BPF_STORAGE_MAP_FLAGS(name, kind, value_type, 0)

/* kind: ARRAY or PERCPU_ARRAY. */
#define BPF_ARRAY_MAP(name, kind, entries, value_type)          \
        struct {                                                \
                __uint(type, BPF_MAP_TYPE_##kind);              \
                __uint(max_entries, entries);                   \
                __type(key, __u32);                             \
                __type(value, value_type);                      \
        } name SEC(".maps")
