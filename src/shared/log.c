/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <stdarg.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "log.h"

static int log_max_level = LOG_INFO;

static const char *const level_table[] = {
        [LOG_EMERG]   = "emerg",
        [LOG_ALERT]   = "alert",
        [LOG_CRIT]    = "crit",
        [LOG_ERR]     = "err",
        [LOG_WARNING] = "warning",
        [LOG_NOTICE]  = "notice",
        [LOG_INFO]    = "info",
        [LOG_DEBUG]   = "debug",
};

void log_set_max_level(int level) {
        assert(level >= LOG_EMERG && level <= LOG_DEBUG);
        log_max_level = level;
}

int log_get_max_level(void) {
        return log_max_level;
}

const char* log_level_to_string(int level) {
        return level >= 0 && (size_t) level < ELEMENTSOF(level_table) ? level_table[level] : NULL;
}

int log_level_from_string(const char *s) {
        for (size_t i = 0; i < ELEMENTSOF(level_table); i++)
                if (streq(s, level_table[i]))
                        return i;

        if (s[0] >= '0' && s[0] <= '7' && s[1] == 0)
                return s[0] - '0';

        return -EINVAL;
}

bool log_is_journal(void) {
        static int cached = -1;
        unsigned long long device, inode;
        struct stat st;
        const char *e;

        if (cached >= 0)
                return cached;

        e = getenv("JOURNAL_STREAM");
        cached = e && sscanf(e, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) >= 0 &&
                st.st_dev == device && st.st_ino == inode;
        return cached;
}

int log_internal(int level, int error, const char *unit, const LogPlace *place, const char *format, ...) {
        _cleanup_free_ char *message = NULL;
        int r, saved_errno = errno;
        va_list ap;

        errno = abs(error); /* for %m */
        va_start(ap, format);
        r = vasprintf(&message, format, ap);
        va_end(ap);

        if (r < 0)
                message = NULL;
        else if (log_is_journal()) {
                char fields[6][256], text[2048];
                struct iovec iov[7];
                int n = 0;

                (void) snprintf(text, sizeof(text), "MESSAGE=%s", message);
                iov[n++] = (struct iovec) { text, strlen(text) };
                (void) snprintf(fields[0], sizeof(fields[0]), "PRIORITY=%i", level);
                (void) snprintf(fields[1], sizeof(fields[1]), "CODE_FILE=%s", place->file);
                (void) snprintf(fields[2], sizeof(fields[2]), "CODE_LINE=%i", place->line);
                (void) snprintf(fields[3], sizeof(fields[3]), "CODE_FUNC=%s", place->function);
                for (int i = 0; i < 4; i++)
                        iov[n++] = (struct iovec) { fields[i], strlen(fields[i]) };
                if (error != 0) {
                        (void) snprintf(fields[4], sizeof(fields[4]), "ERRNO=%i", abs(error));
                        iov[n++] = (struct iovec) { fields[4], strlen(fields[4]) };
                }
                if (unit && snprintf(fields[5], sizeof(fields[5]), "UNIT=%s",
                                     unit) < (int) sizeof(fields[5]))
                        iov[n++] = (struct iovec) { fields[5], strlen(fields[5]) };

                (void) sd_journal_sendv(iov, n);
        } else
                fprintf(stderr, "%s\n", message);

        errno = saved_errno;
        return -abs(error);
}
