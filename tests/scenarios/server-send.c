/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <errno.h>
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "server-send.h"

int send_all(int fd, const char *p, size_t n, int flags) {
        while (n > 0) {
                ssize_t k = send(fd, p, n, MSG_NOSIGNAL|flags);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return -EPIPE;
                p += k;
                n -= k;
        }
        return 0;
}

int writev_all(int fd, const char *p, size_t n) {
        while (n > 0) {
                /* Three pieces of unequal size in one call. */
                struct iovec iov[3] = {
                        { .iov_base = (void*) p, .iov_len = n / 7 },
                        { .iov_base = (void*) (p + n / 7), .iov_len = n / 3 },
                        { .iov_base = (void*) (p + n / 7 + n / 3), .iov_len = n - n / 7 - n / 3 },
                };
                ssize_t k = writev(fd, iov, 3);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return -EPIPE;
                p += k;
                n -= k;
        }
        return 0;
}

int sendfile_all(int fd, int file, off_t offset, size_t n) {
        while (n > 0) {
                ssize_t k = sendfile(fd, file, &offset, n);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return -EPIPE;
                n -= k;
        }
        return 0;
}

int splice_all(int fd, int file, const char *p, off_t offset, size_t n) {
        int pipe[2], r = 0;

        if (pipe2(pipe, O_CLOEXEC) < 0)
                return -errno;
        while (n > 0 && r == 0) {
                struct iovec iov = { .iov_base = (void*) p, .iov_len = n };
                loff_t o = offset;
                ssize_t k = p ? vmsplice(pipe[1], &iov, 1, 0) :
                            splice(file, &o, pipe[1], NULL, n, SPLICE_F_MOVE);

                if (k <= 0) {
                        r = -EIO;
                        break;
                }
                for (ssize_t left = k; left > 0;) {
                        ssize_t m = splice(pipe[0], NULL, fd, NULL, left,
                                           SPLICE_F_MOVE|((size_t) k < n ? SPLICE_F_MORE : 0));

                        if (m <= 0) {
                                r = -EPIPE;
                                break;
                        }
                        left -= m;
                }
                if (p)
                        p += k;
                offset += k;
                n -= k;
        }
        close(pipe[0]);
        close(pipe[1]);
        return r;
}

void reap_zerocopy(int fd) {
        char control[256];
        struct msghdr m = { .msg_control = control };

        do
                m.msg_controllen = sizeof(control);
        while (recvmsg(fd, &m, MSG_ERRQUEUE|MSG_DONTWAIT) >= 0);
}

int sendmmsg_all(int fd, const char *p, size_t n) {
        while (n > 0) {
                struct iovec iov[2] = {
                        { .iov_base = (void*) p, .iov_len = n / 3 },
                        { .iov_base = (void*) (p + n / 3), .iov_len = n - n / 3 },
                };
                struct mmsghdr m[2] = {
                        { .msg_hdr = { .msg_iov = iov, .msg_iovlen = 1 } },
                        { .msg_hdr = { .msg_iov = iov + 1, .msg_iovlen = 1 } },
                };
                int k = sendmmsg(fd, m, 2, MSG_NOSIGNAL);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return -EPIPE;
                /* A message that was sent in part ends the call */
                p += m[0].msg_len;
                n -= m[0].msg_len;
                if (k == 2) {
                        p += m[1].msg_len;
                        n -= m[1].msg_len;
                }
        }
        return 0;
}

int dup_all(int fd, const char *p, size_t n) {
        int other = fcntl(fd, F_DUPFD_CLOEXEC, 3), r;

        if (other < 0)
                return -errno;
        r = send_all(other, p, n, 0);
        close(other);
        return r;
}
