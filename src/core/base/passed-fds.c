/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <systemd/sd-daemon.h>

#include "log.h"
#include "passed-fds.h"
#include "probe.h"
#include "util.h"

void passed_fds_take(PassedFds *fds, Probe *probe) {
        _cleanup_free_ char *unknown = NULL;
        unsigned n_unknown = 0;
        char **names = NULL;
        int n;

        n = sd_listen_fds_with_names(/* unset_environment= */ true, &names);
        if (n < 0)
                (void) log_warning_errno(n, "Failed to receive descriptors from the service "
                                            "manager: %m");

        for (int i = 0; i < n; i++) {
                int fd = SD_LISTEN_FDS_START + i;

                if (streq(names[i], "varlink") && fds->varlink < 0)
                        fds->varlink = fd;
                else if (streq(names[i], "varlink-root") && fds->varlink_root < 0)
                        fds->varlink_root = fd;
                else if (streq(names[i], "sock-diag") && fds->sock_diag < 0)
                        fds->sock_diag = fd;
                else if (!probe_take_fd(probe, names[i], fd)) {
                        log_debug("Unknown descriptor '%s' received from the service manager.", names[i]);
                        /* May be a BPF link of another version, whose program would run as long as the
                         * descriptor is stored */
                        (void) sd_notifyf(/* unset_environment= */ false, "FDSTOREREMOVE=1\nFDNAME=%s",
                                          names[i]);
                        close_fd(fd);
                        if (n_unknown++ == 0)
                                unknown = TAKE_PTR(names[i]);
                }
                free(names[i]);
        }
        free(names);

        /* A single message, as there may be many after an upgrade */
        if (n_unknown > 0)
                log_warning("Removed %u unknown descriptor%s from the descriptor store: '%s'%s",
                            n_unknown, n_unknown == 1 ? "" : "s", strempty(unknown),
                            n_unknown == 1 ? "" : " and others");
}

void passed_fds_done(PassedFds *fds) {
        close_fd(fds->varlink);
        close_fd(fds->varlink_root);
        close_fd(fds->sock_diag);
}
