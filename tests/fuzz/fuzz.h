/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What libFuzzer calls, or fuzz-main.c with each file of the corpus. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
