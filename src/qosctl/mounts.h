/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <systemd/sd-json.h>

/* Table of storage.mounts of a snapshot, over that many ns. */
int mounts_print(sd_json_variant *mounts, uint64_t covered);
