/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A server with known behaviour: it reads requests of a fixed size (or up to the end of the stream),
 * takes a fixed time, and sends responses of a fixed size, in one of the ways in which real servers read,
 * write, share the work and close. It is the unit under test of the scenarios. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server-send.h"

#define CONNECTIONS_MAX 4096
#define WORKERS_MAX 64
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
#define streq(a, b) (strcmp((a), (b)) == 0)

static const char *arg_mode = "single", *arg_read = "read", *arg_answer = "write", *arg_after = "keep";
static const char *arg_address = "127.0.0.1", *arg_accept_when = NULL, *arg_answer_when = NULL;
static int arg_port = 0, arg_workers = 4, arg_backlog = 512, arg_defer = 0, arg_rcvbuf = 0, arg_sndbuf = 0;
static bool arg_reuseport = false, arg_until_eof = false, arg_hang = false, arg_keepalive = false,
        arg_fd = false;
static bool arg_mptcp = false, arg_fastopen = false;
static size_t arg_request = 64, arg_response = 128, arg_chunk = 65536, arg_greet = 0;
static unsigned arg_parts = 1, arg_exit_after = 0;
static uint64_t arg_delay_us = 0, arg_gap_us = 0, arg_accept_us = 0, arg_read_us = 0, arg_peek_us = 0;

static int answer_file = -1;
static char *answer_data = NULL;

/* Room for what TCP_ZEROCOPY_RECEIVE maps of one request */
#define MAP_SIZE (1U << 20)
#define PAGE 4096U

typedef struct Conn {
        int fd;
        size_t got;
        char *map;
        bool mapped;
} Conn;

static void fail(const char *what) {
        fprintf(stderr, "server: %s: %m\n", what);
        exit(1);
}

static void pause_us(uint64_t us) {
        struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

        if (us > 0)
                while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
                        ;
}

/* Waits for a file that the test makes when it has seen what it wanted to see. */
static void wait_file(const char *path) {
        while (path && access(path, F_OK) < 0)
                pause_us(10000);
}

static void notify_ready(void) {
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        const char *path = getenv("NOTIFY_SOCKET");
        int fd;

        if (!path || strlen(path) >= sizeof(sa.sun_path))
                return;
        strcpy(sa.sun_path, path);
        if (sa.sun_path[0] == '@')
                sa.sun_path[0] = 0;
        fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_CLOEXEC, 0);
        if (fd < 0)
                fail("socket");
        if (sendto(fd, "READY=1", 7, 0, (struct sockaddr*) &sa, offsetof(struct sockaddr_un, sun_path) +
                   strlen(path)) < 0)
                fail("notify");
        close(fd);
}

static int listen_socket(void) {
        struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(arg_port) };
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(arg_port) };
        bool v6 = strchr(arg_address, ':');
        int fd, one = 1, zero = 0;

        if (arg_fd)
                return 3;

        fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM|SOCK_CLOEXEC, arg_mptcp ? IPPROTO_MPTCP : 0);
        if (fd < 0)
                fail("socket");
        (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (arg_reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
                fail("SO_REUSEPORT");
        if (arg_rcvbuf > 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &arg_rcvbuf, sizeof(int)) < 0)
                fail("SO_RCVBUF");
        if (arg_sndbuf > 0 && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &arg_sndbuf, sizeof(int)) < 0)
                fail("SO_SNDBUF");
        if (arg_fastopen && setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &arg_backlog, sizeof(int)) < 0)
                fail("TCP_FASTOPEN");
        if (arg_defer > 0 && setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &arg_defer, sizeof(int)) < 0)
                fail("TCP_DEFER_ACCEPT");
        if (v6) {
                /* An IPv6 listener on any address takes IPv4 as mapped addresses. */
                (void) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
                if (inet_pton(AF_INET6, arg_address, &in6.sin6_addr) != 1)
                        fail("address");
                if (bind(fd, (struct sockaddr*) &in6, sizeof(in6)) < 0)
                        fail("bind");
        } else {
                if (inet_pton(AF_INET, arg_address, &in.sin_addr) != 1)
                        fail("address");
                if (bind(fd, (struct sockaddr*) &in, sizeof(in)) < 0)
                        fail("bind");
        }
        if (listen(fd, arg_backlog) < 0)
                fail("listen");
        return fd;
}

static void setup_connection(int fd) {
        int one = 1, probes = 3;

        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (arg_keepalive) {
                (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
                (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
                (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
                (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
        }
        if (streq(arg_read, "lowat")) {
                int lowat = arg_request;

                if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof(lowat)) < 0)
                        fail("SO_RCVLOWAT");
        }
        if (streq(arg_answer, "zerocopy") && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) < 0)
                fail("SO_ZEROCOPY");
}

static void fd_send(int to, int fd) {
        char control[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
        struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                            .msg_controllen = sizeof(control) };
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        *c = (struct cmsghdr) { .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                .cmsg_len = CMSG_LEN(sizeof(int)) };
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
        if (sendmsg(to, &m, MSG_NOSIGNAL) < 0)
                fail("SCM_RIGHTS");
}

static int fd_receive(int from) {
        char control[CMSG_SPACE(sizeof(int))], byte;
        struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                            .msg_controllen = sizeof(control) };
        struct cmsghdr *c;
        int fd;

        if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) <= 0)
                exit(0);
        c = CMSG_FIRSTHDR(&m);
        if (!c || c->cmsg_type != SCM_RIGHTS)
                fail("SCM_RIGHTS");
        memcpy(&fd, CMSG_DATA(c), sizeof(int));
        return fd;
}

/* Another process responds: it gets the socket, and reports when it is done. Each process has a helper of
 * its own, so that the report is for it, and no other process holds a socket that it has closed. */
static pthread_mutex_t helper_lock = PTHREAD_MUTEX_INITIALIZER;
static int helper = -1;

static void helper_start(void) {
        int s[2];

        if (!streq(arg_answer, "pass"))
                return;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, s) < 0)
                fail("socketpair");
        switch (fork()) {
        case -1:
                fail("fork");
                return;
        case 0:
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(s[0]);
                for (;;) {
                        int fd = fd_receive(s[1]), r = send_all(fd, answer_data, arg_response, 0);

                        close(fd);
                        if (send(s[1], &r, sizeof(r), MSG_NOSIGNAL) < 0)
                                exit(0);
                }
        default:
                close(s[1]);
                helper = s[0];
        }
}

static int helper_answer(int fd) {
        int r;

        pthread_mutex_lock(&helper_lock);
        fd_send(helper, fd);
        if (recv(helper, &r, sizeof(r), 0) != sizeof(r))
                fail("helper");
        pthread_mutex_unlock(&helper_lock);
        return r;
}

static int answer(int fd) {
        size_t done = 0;
        int r = 0;

        for (unsigned i = 0; i < arg_parts && r == 0; i++) {
                size_t n = i + 1 == arg_parts ? arg_response - done : arg_response / arg_parts;

                if (i > 0)
                        pause_us(arg_gap_us);
                if (streq(arg_answer, "sendfile"))
                        r = sendfile_all(fd, answer_file, done, n);
                else if (streq(arg_answer, "splice"))
                        r = splice_all(fd, answer_file, NULL, done, n);
                else if (streq(arg_answer, "vmsplice"))
                        r = splice_all(fd, -1, answer_data + done, 0, n);
                else if (streq(arg_answer, "sendmmsg"))
                        r = sendmmsg_all(fd, answer_data + done, n);
                else if (streq(arg_answer, "dup"))
                        r = dup_all(fd, answer_data + done, n);
                else if (streq(arg_answer, "pass"))
                        r = helper_answer(fd);
                else if (streq(arg_answer, "writev"))
                        r = writev_all(fd, answer_data + done, n);
                else if (streq(arg_answer, "more"))
                        r = send_all(fd, answer_data + done, n, i + 1 < arg_parts ? MSG_MORE : 0);
                else if (streq(arg_answer, "zerocopy")) {
                        r = send_all(fd, answer_data + done, n, MSG_ZEROCOPY);
                        reap_zerocopy(fd);
                } else
                        r = send_all(fd, answer_data + done, n, 0);
                done += n;
        }
        return r;
}

/* Closes with a reset instead of a FIN. */
static void reset_connection(int fd) {
        struct linger l = { .l_onoff = 1 };

        (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
        close(fd);
}

static int serve(int fd) {
        char buf[4096];

        wait_file(arg_answer_when);
        pause_us(arg_delay_us);
        if (arg_hang)
                return 0;
        if (answer(fd) < 0)
                return -EPIPE;
        if (streq(arg_after, "keep"))
                return 0;
        if (streq(arg_after, "rst")) {
                /* Let the response arrive: a reset overtakes what is unsent. */
                int left = 1;

                while (ioctl(fd, SIOCOUTQ, &left) >= 0 && left > 0)
                        pause_us(100);
        } else if (streq(arg_after, "shut")) {
                (void) shutdown(fd, SHUT_WR);
                while (read(fd, buf, sizeof(buf)) > 0)
                        ;
        }
        return -ESHUTDOWN;
}

/* What is there of whole pages comes into our memory without a copy, the rest is read. A request without one
 * whole page that came so is a failure: then this was no test. */
static ssize_t read_zerocopy(Conn *c, char *buf, size_t want) {
        struct tcp_zerocopy_receive z = {};
        socklen_t l = sizeof(z);
        ssize_t k;

        if (!c->map) {
                c->map = mmap(NULL, MAP_SIZE, PROT_READ, MAP_SHARED, c->fd, 0);
                if (c->map == MAP_FAILED)
                        fail("mmap of a socket");
        }

        for (;;) {
                struct pollfd p = { .fd = c->fd, .events = POLLIN };
                int there = 0;

                if (poll(&p, 1, -1) < 0)
                        continue;
                /* Wait for a page, so that it can be had as one */
                if (want < PAGE || (p.revents & (POLLHUP|POLLERR|POLLRDHUP)) ||
                    ioctl(c->fd, SIOCINQ, &there) < 0 || there == 0 || there >= (int) PAGE)
                        break;
                pause_us(100);
        }

        if (want >= PAGE) {
                z.address = (uintptr_t) c->map;
                z.length = want / PAGE * PAGE;
                if (getsockopt(c->fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &z, &l) < 0) {
                        if (errno == EIO)
                                return 0; /* the end of the stream */
                        fail("TCP_ZEROCOPY_RECEIVE");
                }
                if (z.length > 0) {
                        c->mapped = true;
                        return z.length;
                }
                if (z.recv_skip_hint > 0 && z.recv_skip_hint < want)
                        want = z.recv_skip_hint;
        }
        k = recv(c->fd, buf, want, 0);
        if (k > 0 && c->got + k == arg_request) {
                if (!c->mapped) {
                        fprintf(stderr, "server: nothing was mapped\n");
                        exit(1);
                }
                c->mapped = false;
        }
        return k;
}

/* One read of what is there, at most up to the end of the request. Returns 0 at the end of the stream. */
static ssize_t read_some(Conn *c) {
        static __thread char buf[1 << 16];
        size_t want = arg_until_eof ? sizeof(buf) : arg_request - c->got;
        ssize_t k;

        if (want > arg_chunk)
                want = arg_chunk;
        if (want > sizeof(buf))
                want = sizeof(buf);
        pause_us(arg_read_us);

        if (streq(arg_read, "peek")) {
                k = recv(c->fd, buf, want, MSG_PEEK);
                pause_us(arg_peek_us);
                if (k > 0)
                        k = recv(c->fd, buf, k, 0);
        } else if (streq(arg_read, "lowat")) {
                struct pollfd p = { .fd = c->fd, .events = POLLIN };

                /* A read that sleeps with a part would not be woken up by the rest of it */
                (void) poll(&p, 1, -1);
                k = recv(c->fd, buf, want, 0);
        } else if (streq(arg_read, "peekonly")) {
                k = recv(c->fd, buf, want, MSG_PEEK);
                if (k > 0) {
                        errno = ECANCELED;
                        k = -1;
                }
        } else if (streq(arg_read, "trunc"))
                k = recv(c->fd, NULL, want, MSG_TRUNC);
        else if (streq(arg_read, "zerocopy"))
                k = read_zerocopy(c, buf, want);
        else if (streq(arg_read, "recvmmsg") && want > 1) {
                struct iovec iov[2] = {
                        { .iov_base = buf, .iov_len = want / 2 },
                        { .iov_base = buf + want / 2, .iov_len = want - want / 2 },
                };
                struct mmsghdr m[2] = {
                        { .msg_hdr = { .msg_iov = iov, .msg_iovlen = 1 } },
                        { .msg_hdr = { .msg_iov = iov + 1, .msg_iovlen = 1 } },
                };

                k = recvmmsg(c->fd, m, 2, MSG_WAITFORONE, NULL);
                if (k > 0)
                        k = k == 1 ? m[0].msg_len : m[0].msg_len + m[1].msg_len;
        } else if (streq(arg_read, "readv")) {
                struct iovec iov[2] = {
                        { .iov_base = buf, .iov_len = want / 2 },
                        { .iov_base = buf + want / 2, .iov_len = want - want / 2 },
                };

                k = readv(c->fd, iov, 2);
        } else if (streq(arg_read, "recvmsg")) {
                struct iovec iov = { .iov_base = buf, .iov_len = want };
                struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

                k = recvmsg(c->fd, &m, 0);
        } else if (streq(arg_read, "waitall"))
                k = recv(c->fd, buf, want, MSG_WAITALL);
        else if (streq(arg_read, "splice") || streq(arg_read, "tee")) {
                static __thread int p[2] = { -1, -1 }, q[2] = { -1, -1 };

                if (p[0] < 0 && (pipe2(p, O_CLOEXEC) < 0 || pipe2(q, O_CLOEXEC) < 0))
                        fail("pipe");
                k = splice(c->fd, NULL, p[1], NULL, want, SPLICE_F_MOVE);
                /* The same once more, from a pipe to a pipe */
                for (ssize_t left = streq(arg_read, "tee") && k > 0 ? tee(p[0], q[1], k, 0) : 0; left > 0;) {
                        ssize_t m = read(q[0], buf, left);

                        if (m <= 0)
                                fail("read from pipe");
                        left -= m;
                }
                for (ssize_t left = k; left > 0;) {
                        ssize_t m = read(p[0], buf, left);

                        if (m <= 0)
                                fail("read from pipe");
                        left -= m;
                }
        } else
                k = recv(c->fd, buf, want, 0);
        return k;
}

/* Reads once. Returns 1 if that completed a request, < 0 if the connection is to be closed. */
static int conn_step(Conn *c) {
        ssize_t k;

        k = read_some(c);
        if (k < 0)
                return errno == EINTR || errno == EAGAIN ? 0 : -errno;
        if (k == 0) {
                if (arg_until_eof && c->got > 0)
                        (void) serve(c->fd);
                return -EPIPE;
        }
        c->got += k;
        if (arg_until_eof || c->got < arg_request)
                return 0;
        c->got = 0;
        return 1;
}

static int greet(int fd) {
        return arg_greet > 0 ? send_all(fd, answer_data, arg_greet, 0) : 0;
}

static void conn_end(Conn *c) {
        int fd = c->fd;

        /* A mapping holds the socket as a descriptor does */
        if (c->map)
                (void) munmap(c->map, MAP_SIZE);
        if (streq(arg_after, "rst"))
                reset_connection(fd);
        else
                close(fd);
}

static void conn_loop(int fd) {
        Conn c = { .fd = fd };
        int r = greet(fd);

        while (r >= 0) {
                r = conn_step(&c);
                if (r > 0)
                        r = serve(fd);
        }
        conn_end(&c);
}

static int accept_one(int fd) {
        int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

        if (c >= 0)
                setup_connection(c);
        return c;
}

/* One queue of sockets with a request that was read, for threads that respond to what another thread
 * read. */
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_more = PTHREAD_COND_INITIALIZER;
static Conn *queue[CONNECTIONS_MAX];
static unsigned queue_head = 0, queue_tail = 0;
static int queue_epoll = -1;

/* Closing a socket ends its events only if nobody else has a reference to it, as an iterator over the files
 * of tasks has for a moment. */
static void conn_drop(Conn *c) {
        (void) epoll_ctl(queue_epoll, EPOLL_CTL_DEL, c->fd, NULL);
        conn_end(c);
        free(c);
}

static void queue_put(Conn *c) {
        pthread_mutex_lock(&queue_lock);
        queue[queue_tail++ % CONNECTIONS_MAX] = c;
        pthread_cond_signal(&queue_more);
        pthread_mutex_unlock(&queue_lock);
}

static void *queue_worker(void *p) {
        for (;;) {
                struct epoll_event e = { .events = EPOLLIN|EPOLLONESHOT };
                Conn *c;

                pthread_mutex_lock(&queue_lock);
                while (queue_head == queue_tail)
                        pthread_cond_wait(&queue_more, &queue_lock);
                c = queue[queue_head++ % CONNECTIONS_MAX];
                pthread_mutex_unlock(&queue_lock);

                e.data.ptr = c;
                if (serve(c->fd) < 0 || epoll_ctl(queue_epoll, EPOLL_CTL_MOD, c->fd, &e) < 0)
                        conn_drop(c);
        }
        return p;
}

/* One thread for all connections; with @hand_off another one responds. */
static void epoll_loop(int fd, bool hand_off) {
        struct epoll_event e = { .events = EPOLLIN }, events[64];
        int ep;

        ep = epoll_create1(EPOLL_CLOEXEC);
        if (ep < 0)
                fail("epoll");
        queue_epoll = ep;
        for (int i = 0; hand_off && i < arg_workers; i++) {
                pthread_t t;

                if (pthread_create(&t, NULL, queue_worker, NULL) != 0)
                        fail("thread");
        }
        if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e) < 0)
                fail("epoll");

        for (;;) {
                int n = epoll_wait(ep, events, 64, -1);

                for (int i = 0; i < n; i++) {
                        Conn *c = events[i].data.ptr;
                        int r;

                        if (!c) {
                                int s;

                                pause_us(arg_accept_us);
                                s = accept_one(fd);
                                if (s < 0)
                                        continue;
                                c = calloc(1, sizeof(Conn));
                                if (!c)
                                        fail("calloc");
                                c->fd = s;
                                e = (struct epoll_event) { .events = EPOLLIN|(hand_off ? EPOLLONESHOT : 0),
                                                           .data.ptr = c };
                                if (greet(s) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, s, &e) < 0) {
                                        close(s);
                                        free(c);
                                }
                                continue;
                        }

                        r = conn_step(c);
                        if (r > 0 && hand_off) {
                                queue_put(c);
                                continue;
                        }
                        if (r > 0)
                                r = serve(c->fd);
                        e = (struct epoll_event) { .events = EPOLLIN|EPOLLONESHOT, .data.ptr = c };
                        if (r >= 0 && hand_off)
                                r = epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
                        if (r < 0)
                                conn_drop(c);
                }
        }
}

static void *conn_thread(void *p) {
        conn_loop((int) (intptr_t) p);
        return NULL;
}

static void thread_start(int fd) {
        pthread_attr_t a;
        pthread_t t;

        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 256 * 1024);
        pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&t, &a, conn_thread, (void*) (intptr_t) fd) != 0)
                close(fd);
}

/* One process accepts, others serve: they get the connections through Unix sockets. */
static int workers[WORKERS_MAX];

static void workers_start(int fd) {
        for (int i = 0; i < arg_workers; i++) {
                int s[2];

                if (socketpair(AF_UNIX, SOCK_SEQPACKET|SOCK_CLOEXEC, 0, s) < 0)
                        fail("socketpair");
                switch (fork()) {
                case -1:
                        fail("fork");
                        return;
                case 0:
                        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                        close(fd);
                        close(s[0]);
                        for (;;)
                                thread_start(fd_receive(s[1]));
                default:
                        close(s[1]);
                        workers[i] = s[0];
                }
        }
}

static void run_accept_loop(int fd) {
        for (unsigned n = 0;; n++) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                int c;

                /* The delay is that of each connection, not that of the loop. */
                (void) poll(&p, 1, -1);
                pause_us(arg_accept_us);
                c = accept_one(fd);
                if (c < 0)
                        continue;
                if (streq(arg_mode, "thread"))
                        thread_start(c);
                else if (streq(arg_mode, "pass")) {
                        fd_send(workers[n % arg_workers], c);
                        close(c);
                } else if (streq(arg_mode, "fork")) {
                        if (fork() == 0) {
                                close(fd);
                                helper_start();
                                conn_loop(c);
                                _exit(0);
                        }
                        close(c);
                } else {
                        conn_loop(c);
                        /* What waits on a listener that the service manager has stays there for the next of
                         * us */
                        if (n + 1 == arg_exit_after)
                                exit(0);
                }
        }
}

static void make_answer(void) {
        answer_file = memfd_create("answer", MFD_CLOEXEC);
        if (answer_file < 0 || ftruncate(answer_file, arg_response + arg_greet + 1) < 0)
                fail("memfd");
        answer_data = mmap(NULL, arg_response + arg_greet + 1, PROT_READ|PROT_WRITE, MAP_SHARED, answer_file,
                           0);
        if (answer_data == MAP_FAILED)
                fail("mmap");
        memset(answer_data, 'a', arg_response + arg_greet);
}

static void parse(int argc, char *argv[]) {
        enum {
                ARG_MODE = 256, ARG_ADDRESS, ARG_PORT, ARG_WORKERS, ARG_BACKLOG, ARG_DEFER, ARG_REUSEPORT,
                ARG_RCVBUF, ARG_SNDBUF, ARG_READ, ARG_CHUNK, ARG_UNTIL_EOF, ARG_REQUEST, ARG_RESPONSE,
                ARG_ANSWER,
                ARG_PARTS, ARG_GAP, ARG_DELAY, ARG_AFTER, ARG_HANG, ARG_ACCEPT_DELAY, ARG_ACCEPT_WHEN,
                ARG_ANSWER_WHEN, ARG_READ_DELAY, ARG_KEEPALIVE, ARG_GREET, ARG_FD,
                ARG_MPTCP, ARG_FASTOPEN, ARG_PEEK, ARG_EXIT_AFTER,
        };
        static const struct option options[] = {
                { "mode",         required_argument, NULL, ARG_MODE         },
                { "address",      required_argument, NULL, ARG_ADDRESS      },
                { "port",         required_argument, NULL, ARG_PORT         },
                { "workers",      required_argument, NULL, ARG_WORKERS      },
                { "backlog",      required_argument, NULL, ARG_BACKLOG      },
                { "defer",        required_argument, NULL, ARG_DEFER        },
                { "reuseport",    no_argument,       NULL, ARG_REUSEPORT    },
                { "rcvbuf",       required_argument, NULL, ARG_RCVBUF       },
                { "sndbuf",       required_argument, NULL, ARG_SNDBUF       },
                { "read",         required_argument, NULL, ARG_READ         },
                { "chunk",        required_argument, NULL, ARG_CHUNK        },
                { "until-eof",    no_argument,       NULL, ARG_UNTIL_EOF    },
                { "request",      required_argument, NULL, ARG_REQUEST      },
                { "response",     required_argument, NULL, ARG_RESPONSE     },
                { "answer",       required_argument, NULL, ARG_ANSWER       },
                { "parts",        required_argument, NULL, ARG_PARTS        },
                { "gap-us",       required_argument, NULL, ARG_GAP          },
                { "delay-us",     required_argument, NULL, ARG_DELAY        },
                { "after",        required_argument, NULL, ARG_AFTER        },
                { "hang",         no_argument,       NULL, ARG_HANG         },
                { "accept-us",    required_argument, NULL, ARG_ACCEPT_DELAY },
                { "accept-when",  required_argument, NULL, ARG_ACCEPT_WHEN  },
                { "answer-when",  required_argument, NULL, ARG_ANSWER_WHEN  },
                { "read-us",      required_argument, NULL, ARG_READ_DELAY   },
                { "keepalive",    no_argument,       NULL, ARG_KEEPALIVE    },
                { "greet",        required_argument, NULL, ARG_GREET        },
                { "listen-fd",    no_argument,       NULL, ARG_FD           },
                { "mptcp",        no_argument,       NULL, ARG_MPTCP        },
                { "fastopen",     no_argument,       NULL, ARG_FASTOPEN     },
                { "peek-us",      required_argument, NULL, ARG_PEEK         },
                { "exit-after",   required_argument, NULL, ARG_EXIT_AFTER   },
                {}
        };
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case ARG_MODE:         arg_mode = optarg; break;
                case ARG_ADDRESS:      arg_address = optarg; break;
                case ARG_PORT:         arg_port = atoi(optarg); break;
                case ARG_WORKERS:      arg_workers = atoi(optarg); break;
                case ARG_BACKLOG:      arg_backlog = atoi(optarg); break;
                case ARG_DEFER:        arg_defer = atoi(optarg); break;
                case ARG_REUSEPORT:    arg_reuseport = true; break;
                case ARG_RCVBUF:       arg_rcvbuf = atoi(optarg); break;
                case ARG_SNDBUF:       arg_sndbuf = atoi(optarg); break;
                case ARG_READ:         arg_read = optarg; break;
                case ARG_CHUNK:        arg_chunk = strtoull(optarg, NULL, 10); break;
                case ARG_UNTIL_EOF:    arg_until_eof = true; break;
                case ARG_REQUEST:      arg_request = strtoull(optarg, NULL, 10); break;
                case ARG_RESPONSE:     arg_response = strtoull(optarg, NULL, 10); break;
                case ARG_ANSWER:       arg_answer = optarg; break;
                case ARG_PARTS:        arg_parts = atoi(optarg); break;
                case ARG_GAP:          arg_gap_us = strtoull(optarg, NULL, 10); break;
                case ARG_DELAY:        arg_delay_us = strtoull(optarg, NULL, 10); break;
                case ARG_AFTER:        arg_after = optarg; break;
                case ARG_HANG:         arg_hang = true; break;
                case ARG_ACCEPT_DELAY: arg_accept_us = strtoull(optarg, NULL, 10); break;
                case ARG_ACCEPT_WHEN:  arg_accept_when = optarg; break;
                case ARG_ANSWER_WHEN:  arg_answer_when = optarg; break;
                case ARG_READ_DELAY:   arg_read_us = strtoull(optarg, NULL, 10); break;
                case ARG_KEEPALIVE:    arg_keepalive = true; break;
                case ARG_GREET:        arg_greet = strtoull(optarg, NULL, 10); break;
                case ARG_FD:           arg_fd = true; break;
                case ARG_MPTCP:        arg_mptcp = true; break;
                case ARG_FASTOPEN:     arg_fastopen = true; break;
                case ARG_PEEK:         arg_peek_us = strtoull(optarg, NULL, 10); break;
                case ARG_EXIT_AFTER:   arg_exit_after = atoi(optarg); break;
                default:               exit(2);
                }
        if (optind < argc || arg_workers < 1 || arg_workers > WORKERS_MAX || arg_parts < 1)
                exit(2);
}

int main(int argc, char *argv[]) {
        bool prefork;
        int fd;

        parse(argc, argv);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGCHLD, SIG_IGN);
        (void) prctl(PR_SET_TIMERSLACK, 1);
        make_answer();
        prefork = streq(arg_mode, "prefork");
        helper_start();

        /* With SO_REUSEPORT each process has a listener of its own, else all share one. */
        fd = arg_reuseport ? -1 : listen_socket();
        for (int i = 1; prefork && i < arg_workers; i++) {
                pid_t pid = fork();

                if (pid < 0)
                        fail("fork");
                if (pid == 0) {
                        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                        helper_start();
                        epoll_loop(fd < 0 ? listen_socket() : fd, false);
                }
        }
        if (fd < 0)
                fd = listen_socket();
        /* A process for each of the other sockets that were passed */
        for (int i = 1; arg_fd && getenv("LISTEN_FDS") && i < atoi(getenv("LISTEN_FDS")); i++) {
                pid_t pid = fork();

                if (pid < 0)
                        fail("fork");
                if (pid == 0) {
                        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                        run_accept_loop(3 + i);
                }
        }

        if (streq(arg_mode, "pass"))
                workers_start(fd);

        notify_ready();
        wait_file(arg_accept_when);

        if (prefork || streq(arg_mode, "single"))
                epoll_loop(fd, false);
        if (streq(arg_mode, "handoff"))
                epoll_loop(fd, true);
        run_accept_loop(fd);
        return 0;
}
