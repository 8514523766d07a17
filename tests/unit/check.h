/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Also in builds without assertions. */
#define check(condition)                                                                                \
        do {                                                                                            \
                if (!(condition)) {                                                                     \
                        fprintf(stderr, "%s:%i: not true: %s\n", __FILE__, __LINE__, #condition);       \
                        exit(EXIT_FAILURE);                                                             \
                }                                                                                       \
        } while (false)
