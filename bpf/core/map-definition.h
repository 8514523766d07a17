/* SPDX-License-Identifier: GPL-2.0-or-later */
#pragma once

/* Definitions of the two kinds of maps that most are. Those in a header are followed by __weak: each object
 * has them, the linked one has them once. */

#include "kernel.h"

/* kind: of what each has a value: SK, TASK or CGRP. */
#define BPF_STORAGE_MAP(name, kind, value_type)                 \
        struct {                                                \
                __uint(type, BPF_MAP_TYPE_##kind##_STORAGE);    \
                __uint(map_flags, BPF_F_NO_PREALLOC);           \
                __type(key, int);                               \
                __type(value, value_type);                      \
        } name SEC(".maps")

/* kind: ARRAY or PERCPU_ARRAY. */
#define BPF_ARRAY_MAP(name, kind, entries, value_type)          \
        struct {                                                \
                __uint(type, BPF_MAP_TYPE_##kind);              \
                __uint(max_entries, entries);                   \
                __type(key, __u32);                             \
                __type(value, value_type);                      \
        } name SEC(".maps")
