/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Messages are sent to the journal if standard error is connected to it, or else to standard error.
 * log_*_errno() return the error as a negative errno. */

#include <syslog.h>

#include "util.h"

void log_set_max_level(int level);
int log_get_max_level(void);
int log_level_from_string(const char *s);       /* "debug".."emerg", or a number; -EINVAL */
const char* log_level_to_string(int level);

typedef struct LogPlace {
        const char *file, *function;
        int line;
} LogPlace;

/* unit (may be NULL) is logged as UNIT=, so that the message is part of "journalctl -u UNIT". */
int log_internal(int level, int error, const char *unit, const LogPlace *place, const char *format,
                 ...) _printf_(5, 6);

/* Whether standard error is connected to the journal, so that fields can be sent along. */
bool log_is_journal(void);

#define log_unit_full_errno(unit, level, error, ...)                                                    \
        ({                                                                                              \
                static const LogPlace _place = { __FILE__, __func__, __LINE__ };                        \
                int _l = (level), _e = (error);                                                         \
                _l <= log_get_max_level() ? log_internal(_l, _e, unit, &_place, __VA_ARGS__) : -abs(_e); \
        })
#define log_full_errno(level, error, ...) log_unit_full_errno(NULL, level, error, __VA_ARGS__)

#define log_debug(...) ((void) log_full_errno(LOG_DEBUG, 0, __VA_ARGS__))
#define log_info(...) ((void) log_full_errno(LOG_INFO, 0, __VA_ARGS__))
#define log_notice(...) ((void) log_full_errno(LOG_NOTICE, 0, __VA_ARGS__))
#define log_warning(...) ((void) log_full_errno(LOG_WARNING, 0, __VA_ARGS__))
#define log_debug_errno(error, ...) log_full_errno(LOG_DEBUG, error, __VA_ARGS__)
#define log_warning_errno(error, ...) log_full_errno(LOG_WARNING, error, __VA_ARGS__)
#define log_error_errno(error, ...) log_full_errno(LOG_ERR, error, __VA_ARGS__)
#define log_oom() log_error_errno(-ENOMEM, "Out of memory.")
#define log_unit_info(unit, ...) ((void) log_unit_full_errno(unit, LOG_INFO, 0, __VA_ARGS__))
#define log_unit_warning_errno(unit, error, ...) log_unit_full_errno(unit, LOG_WARNING, error, __VA_ARGS__)
