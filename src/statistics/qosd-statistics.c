/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Has the kernel measure the run time of BPF programs at the request of qosd, which has no privilege to do
 * so: serves one connection of qosd-statistics.socket. */

#include <linux/bpf.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <systemd/sd-daemon.h>

#include "log.h"
#include "statistics-socket.h"
#include "util.h"

static int statistics_begin(void) {
        union bpf_attr attr = { .enable_stats.type = BPF_STATS_RUN_TIME };
        int fd = (int) syscall(SYS_bpf, BPF_ENABLE_STATS, &attr, sizeof(attr));

        return fd < 0 ? -errno : fd;
}

int main(void) {
        _cleanup_close_ int statistics = -EBADF;

        if (sd_listen_fds(/* unset_environment= */ true) != 1 ||
            sd_is_socket(SD_LISTEN_FDS_START, AF_UNIX, SOCK_SEQPACKET, /* listening= */ 0) <= 0) {
                (void) log_error_errno(-EINVAL, "Expected one connection, of qosd-statistics.socket.");
                return EXIT_FAILURE;
        }

        for (;;) {
                char request;
                ssize_t n = recv(SD_LISTEN_FDS_START, &request, sizeof(request), 0);
                int response = 0;

                if (n == 0)
                        return EXIT_SUCCESS;
                if (n < 0) {
                        (void) log_error_errno(-errno, "Failed to receive from qosd: %m");
                        return EXIT_FAILURE;
                }
                if (request == STATISTICS_END) {
                        statistics = close_fd(statistics);
                        continue;
                }
                if (request != STATISTICS_BEGIN) {
                        (void) log_error_errno(-EBADMSG, "Received a message that is not of qosd.");
                        return EXIT_FAILURE;
                }
                if (statistics < 0)
                        response = statistics = statistics_begin();
                response = MIN(response, 0);
                if (send(SD_LISTEN_FDS_START, &response, sizeof(response), MSG_NOSIGNAL) < 0) {
                        (void) log_error_errno(-errno, "Failed to send to qosd: %m");
                        return EXIT_FAILURE;
                }
        }
}
