/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Unit files as they lie on disk. What is in force of them only the service manager knows. */

#include "util.h"

/* Where the service manager looks, see systemd.unit(5). Ends with NULL. */
extern const char *const unit_file_directories[];

/* -EINVAL: it is no file, or larger than any unit file. */
int unit_file_read(int at, const char *path, char **ret, size_t *ret_size);

/* Calls f for each line with something in it that is no comment, with those that continue it: stripped,
 * without characters that are not fit to be shown. section: "[Unit]", empty before the first. line: NULL if
 * it is longer than any that qosd reads (UNIT_FILE_LINE_MAX). Ends when f returns an error, and returns
 * that. */
typedef int (*unit_file_line_t)(const char *section, char *line, unsigned number, void *userdata);
int unit_file_foreach_line(const char *text, size_t size, unit_file_line_t f, void *userdata);

/* No setting that is read needs more; as much as the service manager allows for a line is 1 MiB. */
#define UNIT_FILE_LINE_MAX 4094U

/* Splits "Name = value". Returns the value, NULL if there is none; line is the name then. */
char* unit_file_split(char **line);

/* The one of ours. */
#define UNIT_FILE_SECTION "[X-QoS]"

/* Whether the file has it: cheap, and never wrong the other way round. */
bool text_has_xqos_section(const char *text, size_t size);
