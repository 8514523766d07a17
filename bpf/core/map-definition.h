/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Macros for the two most frequent kinds of maps. Those in headers are followed by __weak: every object has
 * them, and the linker keeps one. */

#include "histogram.h"
#include "kernel.h"

/* Since Linux 7.1 a storage element is limited to the largest cache of the allocator (8 KiB): larger ones
 * load, but cannot be allocated. */
#define STORAGE_VALUE_MAX 8000

/* kind: of the owner, SK, TASK or CGRP. flags: in addition to the common ones. */
#define BPF_STORAGE_MAP_FLAGS(name, kind, value_type, flags)                                    \
        _Static_assert(sizeof(value_type) <= STORAGE_VALUE_MAX, #name ": value too large");     \
        struct {                                                                                \
                __uint(type, BPF_MAP_TYPE_##kind##_STORAGE);                                    \
                __uint(map_flags, BPF_F_NO_PREALLOC | (flags));                                 \
                __type(key, int);                                                               \
                __type(value, value_type);                                                      \
        } name SEC(".maps")

#define BPF_STORAGE_MAP(name, kind, value_type) BPF_STORAGE_MAP_FLAGS(name, kind, value_type, 0)

/* Element of a socket or task (kind: sk, task), created if there is none; NULL: there is no memory. A single
 * call also returns NULL if another CPU creates the same element at that time, or the first one of that
 * socket or task. Not needed while the socket's lock is held. Opaque, as the code that follows is duplicated
 * otherwise, which takes space on the stack. */
#define BPF_STORAGE_CREATE(kind, map, owner)                                                            \
        ({                                                                                              \
                void *_element = bpf_##kind##_storage_get(&(map), owner, 0,                             \
                                                          BPF_LOCAL_STORAGE_GET_F_CREATE);              \
                if (!_element)                                                                          \
                        _element = bpf_##kind##_storage_get(&(map), owner, 0,                           \
                                                            BPF_LOCAL_STORAGE_GET_F_CREATE);            \
                BPF_OPAQUE(_element);                                                                   \
                _element;                                                                               \
        })

/* kind: ARRAY or PERCPU_ARRAY. */
#define BPF_ARRAY_MAP(name, kind, entries, value_type)          \
        struct {                                                \
                __uint(type, BPF_MAP_TYPE_##kind);              \
                __uint(max_entries, entries);                   \
                __type(key, __u32);                             \
                __type(value, value_type);                      \
        } name SEC(".maps")
