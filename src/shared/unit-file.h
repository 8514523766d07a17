/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Reads unit files. Only the service manager knows the effective configuration. */

#include "util.h"

/* Search path, see systemd.unit(5). NULL terminated. */
extern const char *const unit_file_directories[];

/* -EINVAL: not a regular file, or too large. */
int unit_file_read(int at, const char *path, char **ret, size_t *ret_size);

/* Calls f for each line that is neither empty nor a comment, joined with its continuation lines, stripped,
 * and with control characters replaced. section: "[Unit]", empty before the first section. line: NULL if
 * longer than UNIT_FILE_LINE_MAX. Stops at the first error of f, and returns it. */
typedef int (*unit_file_line_t)(const char *section, char *line, unsigned number, void *userdata);
int unit_file_foreach_line(const char *text, size_t size, unit_file_line_t f, void *userdata);

/* Limit of the length of a line. The service manager accepts 1 MiB; settings of qosd are much shorter. */
#define UNIT_FILE_LINE_MAX 4094U

/* Splits "Name = value". Returns the value; NULL: no "=". *line: the name. */
char* unit_file_split(char **line);

/* The section read by qosd. */
#define UNIT_FILE_SECTION "[X-QoS]"

/* Whether the file may have the section: a fast check without false negatives. */
bool text_has_xqos_section(const char *text, size_t size);
