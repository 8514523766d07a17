/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Configuration files and drop-ins in a directory of their name with ".d", below /etc, /run and /usr/lib. As
 * in systemd, a file in /etc hides one of the same name in /run, which hides one in /usr/lib; drop-ins are
 * read after the main file, sorted by name. */

#include "util.h"

/* Limit of the length of a path, including NUL. */
#define CONF_PATH_MAX 512U

typedef struct ConfSetting {
        const char *name;
        /* Parses a non-empty value. Returns NULL, or on failure a description of the expected value. */
        const char* (*set)(void *data, const char *value);
        size_t offset, size;            /* of the field in the data; an empty value resets it to the
                                         * default */
        size_t path_offset;             /* of a char[CONF_PATH_MAX] in the data, for the path of the file
                                         * with the setting; 0: none */
} ConfSetting;

#define CONF_SETTING(name, set, type, field)    \
        { name, set, offsetof(type, field), sizeof(((type*) NULL)->field), 0 }

typedef struct ConfFormat {
        const char *name;               /* of the main file: "qosd.conf" */
        const char *section;            /* "[QoS]" */
        const ConfSetting *settings;
        size_t n_settings;
        const void *defaults;           /* same type as the data */
} ConfFormat;

/* Parses all files into data, which has to be initialized with the defaults. Invalid lines are logged (file,
 * line, reason) and ignored. root: directory prefix for tests, normally "". Fails with -ENOMEM only. */
int conf_file_load(const char *root, const ConfFormat *format, void *data);
