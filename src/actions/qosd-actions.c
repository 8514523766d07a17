/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Starts the units of OnViolated= and OnCleared= in unit files when qosd reports that a threshold has
 * changed its state. This is a separate process, as qosd has no privilege to start units. The units are read
 * from the unit files, and cannot be chosen by qosd.
 *
 * It also logs changes of thresholds for qosd, as "journalctl -u UNIT" shows messages of others about a unit
 * only if root has logged them. */

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#include "actions-socket.h"
#include "log.h"
#include "parse.h"
#include "unit-file.h"
#include "xqos-section.h"

#define PID1_NAME "org.freedesktop.systemd1"

/* Time without a message after which the process ends. The socket starts it again. */
#define IDLE_MSEC 10000

/* Message ID of entries that are logged for qosd, see qosd.catalog. */
#define ACTIONS_MESSAGE_ID "1f2a4d0c5e9b4a8fb4b2c7d6a90e8f13"

#define IOVEC_OF(s) ((struct iovec) { .iov_base = (char*) (s), .iov_len = strlen(s) })

/* Timeout of calls of the service manager, which replies to StartUnit() when the job is queued. */
#define CALL_USEC (30 * USEC_PER_SEC)

static int section_read(XqosSection *s, const char *path) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        int r;

        if (isempty(path))
                return 0; /* units without a fragment may have drop-ins */
        r = unit_file_read(AT_FDCWD, path, &text, &size);
        if (r < 0)
                return r == -ENOMEM ? r : 0; /* qosd reports such files, and invalid lines */
        return text_has_xqos_section(text, size) ? xqos_section_read(s, path, text, size) : 0;
}

/* Reads the section from the files of the unit, in the order of the service manager. */
static int unit_read_section(sd_bus *bus, const char *unit, XqosSection *ret) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *path = NULL, *fragment = NULL;
        char **drop_ins = NULL;
        int r, level;

        r = sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, &path);
        if (r >= 0)
                r = sd_bus_get_property_string(bus, PID1_NAME, path, PID1_NAME ".Unit", "FragmentPath",
                                               &error, &fragment);
        if (r >= 0)
                r = sd_bus_get_property_strv(bus, PID1_NAME, path, PID1_NAME ".Unit", "DropInPaths",
                                             &error, &drop_ins);
        if (r < 0)
                return log_error_errno(r, "Failed to get the unit files of '%s': %s", unit,
                                       error.message ?: strerror(-r));

        level = log_get_max_level();
        log_set_max_level(LOG_ERR);
        r = section_read(ret, fragment);
        for (char **file = drop_ins; file && *file; file++) {
                if (r >= 0)
                        r = section_read(ret, *file);
                free(*file);
        }
        free(drop_ins);
        log_set_max_level(level);
        return r < 0 ? log_oom() : 0;
}

static void unit_start(sd_bus *bus, const char *pattern, const char *unit, const char *event) {
        _cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        _cleanup_free_ char *name = NULL;
        int r;

        r = unit_name_expand(pattern, unit, &name);
        if (r < 0) {
                (void) log_error_errno(r, "Failed to expand '%s' for '%s': %m", pattern, unit);
                return;
        }
        r = sd_bus_call_method(bus, PID1_NAME, "/org/freedesktop/systemd1", PID1_NAME ".Manager",
                               "StartUnit", &error, NULL, "ss", name, "replace");
        if (r < 0)
                log_unit_warning_errno(unit, r, "Failed to start '%s', as a threshold of '%s' is %s: %s",
                                       name, unit, event, error.message ?: strerror(-r));
        else
                log_unit_info(unit, "Started '%s', as a threshold of '%s' is %s.", name, unit, event);
}

/* Logs an entry. fields: one per line, modified by the call. */
static int log_handle(const char *unit, char *fields) {
        /* qosd must not set fields that identify the sender */
        static const char *const allowed[] = { "MESSAGE=", "PRIORITY=", "QOS_", NULL };
        char object[sizeof("OBJECT_SYSTEMD_UNIT=") + UNIT_NAME_MAX], *state;
        struct iovec iov[ACTIONS_FIELDS_MAX + 3];
        size_t n = 0;
        int r;

        (void) snprintf(object, sizeof(object), "OBJECT_SYSTEMD_UNIT=%s", unit);
        iov[n++] = IOVEC_OF(object);
        iov[n++] = IOVEC_OF("MESSAGE_ID=" ACTIONS_MESSAGE_ID);
        iov[n++] = IOVEC_OF("SYSLOG_IDENTIFIER=qosd");
        for (char *field = strtok_r(fields, "\n", &state); field; field = strtok_r(NULL, "\n", &state)) {
                bool known = false;

                for (const char *const *a = allowed; *a; a++)
                        known = known || startswith(field, *a);
                if (!known || n >= ELEMENTSOF(iov))
                        return log_error_errno(-EBADMSG, "Received an entry that is not of qosd, ignoring.");
                iov[n++] = IOVEC_OF(field);
        }
        r = sd_journal_sendv(iov, (int) n);
        return r < 0 ? log_error_errno(r, "Failed to log what happened to '%s': %m", unit) : 0;
}

static int message_handle(char *message) {
        _cleanup_(sd_bus_flush_close_unrefp) sd_bus *bus = NULL;
        _cleanup_free_ char *valid = NULL;
        _cleanup_xqos_section_ XqosSection s = {};
        char *unit = strchr(message, ' '), *fields = unit ? strchr(unit, '\n') : NULL;
        bool log = fields && startswith(message, ACTIONS_LOG " ");
        XqosEvent event;
        int r;

        if (unit)
                *unit++ = 0;
        if (log)
                *fields++ = 0;
        event = xqos_event_from_string(message);
        if (!unit || (event == _XQOS_EVENT_MAX && !log) || unit_name_mangle(unit, &valid) < 0 ||
            !streq(valid, unit))
                return log_error_errno(-EBADMSG, "Received a message that is not of qosd, ignoring.");

        if (log)
                return log_handle(unit, fields);

        /* For each message, as the bus may have been restarted */
        r = sd_bus_open_system(&bus);
        if (r >= 0)
                r = sd_bus_set_method_call_timeout(bus, CALL_USEC);
        if (r < 0)
                return log_error_errno(r, "Failed to connect to the system bus: %m");
        r = unit_read_section(bus, unit, &s);
        for (size_t i = 0; r >= 0 && i < s.n_starts[event]; i++)
                unit_start(bus, s.starts[event][i], unit, message);
        return r;
}

int main(void) {
        if (sd_listen_fds(true) != 1 || sd_is_socket(SD_LISTEN_FDS_START, AF_UNIX, SOCK_DGRAM, -1) <= 0) {
                (void) log_error_errno(-EINVAL, "Expected one datagram socket, from qosd-actions.socket.");
                return EXIT_FAILURE;
        }

        for (;;) {
                struct pollfd p = { .fd = SD_LISTEN_FDS_START, .events = POLLIN };
                char message[ACTIONS_MESSAGE_MAX + 1];
                ssize_t n;
                int r;

                r = poll(&p, 1, IDLE_MSEC);
                if (r == 0)
                        return EXIT_SUCCESS;
                n = r < 0 ? -1 : recv(p.fd, message, sizeof(message) - 1, MSG_DONTWAIT);
                if (n < 0 && (errno == EINTR || errno == EAGAIN))
                        continue;
                if (n < 0) {
                        (void) log_error_errno(-errno, "Failed to receive from qosd: %m");
                        return EXIT_FAILURE;
                }
                message[n] = 0;
                (void) message_handle(message);
        }
}
