/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include "window.h"

/* A unit with nothing but its own map, which is as old as its attach. */
#define sources_of(u, attached) (&(WindowSources) { .sources = &(WindowSource) { u, attached }, .n = 1, \
                                                  .attached_at = attached })
