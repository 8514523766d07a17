/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A server that does all its I/O with io_uring: it accepts, reads requests of a fixed size, waits,
 * responds and closes through one ring, in one of the ways that io_uring has for each. The unit under
 * test of some scenarios. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define REQUEST_MAX 16384
#define BUFFERS 1024U           /* a power of 2 */
#define BUFFER_SIZE 2048U
#define BUFFER_GROUP 1
#define streq(a, b) (strcmp((a), (b)) == 0)

static const char *arg_read = "recv", *arg_answer = "send";
static int arg_port = 0;
static bool arg_sqpoll = false, arg_direct = false, arg_listen = false, arg_async = false,
        arg_oneshot = false;
static size_t arg_request = 64, arg_response = 128;
static uint64_t arg_delay_us = 0;

typedef enum Op {
        OP_ACCEPT,
        OP_READ,
        OP_DELAY,
        OP_ANSWER,
        OP_NOTICE,              /* what nobody waits for */
        OP_MASK = 7,
} Op;

typedef struct Conn {
        int fd;                 /* an index with --direct */
        int pipe[2];
        unsigned pending;       /* operations under way */
        bool reading, ended;
        size_t got, sent, wanted;
        struct iovec iov[2], out[2];
        struct msghdr in_message, out_message;
        char buffer[REQUEST_MAX];
} Conn;

static struct io_uring ring;
static struct io_uring_buf_ring *buffers;
static char *buffer_data, *answer_data;
static Conn *conns;
static Conn *unused[CONNECTIONS_MAX];
static unsigned n_unused;
static int listener;
static struct __kernel_timespec delay;

static void fail(const char *what, int r) {
        fprintf(stderr, "uring: %s: %s\n", what, strerror(-r));
        exit(1);
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
        if (fd < 0 ||
            sendto(fd, "READY=1", 7, 0, (struct sockaddr*) &sa, offsetof(struct sockaddr_un, sun_path) +
                   strlen(path)) < 0)
                fail("notify", -errno);
        close(fd);
}

static struct io_uring_sqe* sqe_get(Conn *c, Op op) {
        struct io_uring_sqe *e;

        while (!(e = io_uring_get_sqe(&ring))) {
                (void) io_uring_submit(&ring);
                if (arg_sqpoll)
                        (void) io_uring_sqring_wait(&ring);
        }
        memset(e, 0, sizeof(*e));
        e->user_data = (uintptr_t) c | op;
        if (c)
                c->pending++;
        return e;
}

/* After prep, which writes the whole entry. */
static void sqe_finish(struct io_uring_sqe *e, Conn *c, Op op, bool socket) {
        e->user_data = (uintptr_t) c | op;
        if (socket && arg_direct)
                e->flags |= IOSQE_FIXED_FILE;
        if (socket && arg_async)
                e->flags |= IOSQE_ASYNC;
}

/* Not through io_uring: what the test program needs and not what it tests */
static int setup_listener(void) {
        struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(arg_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd, one = 1;

        fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
        if (fd < 0)
                fail("socket", -errno);
        (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        if (bind(fd, (struct sockaddr*) &sa, sizeof(sa)) < 0)
                fail("bind", -errno);

        if (arg_listen) {
                struct io_uring_sqe *e = sqe_get(NULL, OP_NOTICE);
                struct io_uring_cqe *cqe;
                int r;

                io_uring_prep_listen(e, fd, 512);
                sqe_finish(e, NULL, OP_NOTICE, false);
                r = io_uring_submit_and_wait(&ring, 1);
                if (r >= 0)
                        r = io_uring_wait_cqe(&ring, &cqe);
                if (r >= 0)
                        r = cqe->res;
                if (r < 0)
                        fail("listen", r);
                io_uring_cqe_seen(&ring, cqe);
        } else if (listen(fd, 512) < 0)
                fail("listen", -errno);
        return fd;
}

static void conn_free(Conn *c) {
        if (c->pipe[0] > 0) {
                close(c->pipe[0]);
                close(c->pipe[1]);
        }
        c->pipe[0] = c->pipe[1] = 0;
        unused[n_unused++] = c;
}

static void conn_end(Conn *c) {
        struct io_uring_sqe *e;

        if (c->ended)
                return;
        c->ended = true;

        /* A read that goes on by itself would hold the connection */
        e = sqe_get(NULL, OP_NOTICE);
        io_uring_prep_cancel64(e, (uintptr_t) c | OP_READ, 0);
        sqe_finish(e, NULL, OP_NOTICE, false);

        e = sqe_get(NULL, OP_NOTICE);
        if (arg_direct)
                io_uring_prep_close_direct(e, c->fd);
        else
                io_uring_prep_close(e, c->fd);
        sqe_finish(e, NULL, OP_NOTICE, false);
}

static void start_accept(void) {
        struct io_uring_sqe *e = sqe_get(NULL, OP_ACCEPT);

        if (arg_direct && arg_oneshot)
                io_uring_prep_accept_direct(e, listener, NULL, NULL, 0, IORING_FILE_INDEX_ALLOC);
        else if (arg_direct)
                io_uring_prep_multishot_accept_direct(e, listener, NULL, NULL, 0);
        else if (arg_oneshot)
                io_uring_prep_accept(e, listener, NULL, NULL, SOCK_CLOEXEC);
        else
                io_uring_prep_multishot_accept(e, listener, NULL, NULL, SOCK_CLOEXEC);
        sqe_finish(e, NULL, OP_ACCEPT, false);
}

static bool read_selects_buffer(void) {
        return streq(arg_read, "multishot") || streq(arg_read, "bundle") || streq(arg_read,
                                                                                  "recvmsg-multishot");
}

static void start_read(Conn *c) {
        struct io_uring_sqe *e = sqe_get(c, OP_READ);
        size_t want = arg_request - c->got;
        char *p = c->buffer + c->got;

        c->wanted = want;
        c->reading = true;
        c->iov[0] = (struct iovec) { .iov_base = p, .iov_len = want / 3 };
        c->iov[1] = (struct iovec) { .iov_base = p + want / 3, .iov_len = want - want / 3 };
        c->in_message = (struct msghdr) { .msg_iov = c->iov, .msg_iovlen = 2 };

        if (streq(arg_read, "multishot") || streq(arg_read, "bundle"))
                io_uring_prep_recv_multishot(e, c->fd, NULL, 0, 0);
        else if (streq(arg_read, "recvmsg-multishot")) {
                c->in_message = (struct msghdr) {};
                io_uring_prep_recvmsg_multishot(e, c->fd, &c->in_message, 0);
        } else if (streq(arg_read, "recvmsg"))
                io_uring_prep_recvmsg(e, c->fd, &c->in_message, 0);
        else if (streq(arg_read, "read"))
                io_uring_prep_read(e, c->fd, p, want, 0);
        else if (streq(arg_read, "readv"))
                io_uring_prep_readv(e, c->fd, c->iov, 2, 0);
        else if (streq(arg_read, "read-fixed"))
                io_uring_prep_read_fixed(e, c->fd, p, want, 0, 0);
        else if (streq(arg_read, "waitall"))
                io_uring_prep_recv(e, c->fd, p, want, MSG_WAITALL);
        else if (streq(arg_read, "splice")) {
                if (c->pipe[0] == 0 && pipe2(c->pipe, O_CLOEXEC) < 0)
                        fail("pipe", -errno);
                io_uring_prep_splice(e, c->fd, -1, c->pipe[1], -1, want, arg_direct ? SPLICE_F_FD_IN_FIXED :
                                     0);
        } else if (streq(arg_read, "recv"))
                io_uring_prep_recv(e, c->fd, p, want, 0);
        else
                exit(2);

        /* Splice has its socket elsewhere, and the pipe is no registered file */
        sqe_finish(e, c, OP_READ, !streq(arg_read, "splice"));
        if (read_selects_buffer()) {
                e->flags |= IOSQE_BUFFER_SELECT;
                e->buf_group = BUFFER_GROUP;
                if (streq(arg_read, "bundle"))
                        e->ioprio |= IORING_RECVSEND_BUNDLE;
        }
}

static void start_answer(Conn *c) {
        struct io_uring_sqe *e = sqe_get(c, OP_ANSWER);
        size_t n = arg_response - c->sent;
        char *p = answer_data + c->sent;

        c->out[0] = (struct iovec) { .iov_base = p, .iov_len = n / 3 };
        c->out[1] = (struct iovec) { .iov_base = p + n / 3, .iov_len = n - n / 3 };
        c->out_message = (struct msghdr) { .msg_iov = c->out, .msg_iovlen = 2 };

        if (streq(arg_answer, "send-zc"))
                io_uring_prep_send_zc(e, c->fd, p, n, MSG_NOSIGNAL|MSG_WAITALL, 0);
        else if (streq(arg_answer, "sendmsg-zc"))
                io_uring_prep_sendmsg_zc(e, c->fd, &c->out_message, MSG_NOSIGNAL|MSG_WAITALL);
        else if (streq(arg_answer, "sendmsg"))
                io_uring_prep_sendmsg(e, c->fd, &c->out_message, MSG_NOSIGNAL|MSG_WAITALL);
        else if (streq(arg_answer, "write"))
                io_uring_prep_write(e, c->fd, p, n, 0);
        else if (streq(arg_answer, "writev"))
                io_uring_prep_writev(e, c->fd, c->out, 2, 0);
        else if (streq(arg_answer, "write-fixed"))
                io_uring_prep_write_fixed(e, c->fd, p, n, 0, 1);
        else if (streq(arg_answer, "send"))
                io_uring_prep_send(e, c->fd, p, n, MSG_NOSIGNAL|MSG_WAITALL);
        else
                exit(2);
        sqe_finish(e, c, OP_ANSWER, true);
}

static void on_request(Conn *c) {
        struct io_uring_sqe *e;

        c->got -= arg_request;
        c->sent = 0;
        if (arg_delay_us == 0) {
                start_answer(c);
                return;
        }
        e = sqe_get(c, OP_DELAY);
        io_uring_prep_timeout(e, &delay, 0, 0);
        sqe_finish(e, c, OP_DELAY, false);
}

static void buffer_return(unsigned id) {
        io_uring_buf_ring_add(buffers, buffer_data + id * BUFFER_SIZE, BUFFER_SIZE, id, BUFFERS - 1, 0);
        io_uring_buf_ring_advance(buffers, 1);
}

static void on_read(Conn *c, const struct io_uring_cqe *cqe) {
        ssize_t k = cqe->res;

        if (!(cqe->flags & IORING_CQE_F_MORE))
                c->reading = false;

        if (k > 0 && read_selects_buffer()) {
                unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT, n = 1;

                if (streq(arg_read, "bundle"))
                        n = (k + BUFFER_SIZE - 1) / BUFFER_SIZE;
                else if (streq(arg_read, "recvmsg-multishot")) {
                        struct io_uring_recvmsg_out *o = (void*) (buffer_data + id * BUFFER_SIZE);

                        k = o->payloadlen;
                }
                for (unsigned i = 0; i < n; i++)
                        buffer_return((id + i) & (BUFFERS - 1));
        } else if (k > 0 && streq(arg_read, "splice")) {
                if (read(c->pipe[0], c->buffer, k) != k)
                        fail("read from pipe", -errno);
        }

        if (k == -ENOBUFS || k == -EAGAIN || k == -EINTR) {
                if (!c->reading && !c->ended)
                        start_read(c);
                return;
        }
        if (k <= 0) {
                conn_end(c);
                return;
        }

        c->got += k;
        if (c->got >= arg_request)
                on_request(c);
        else if (!c->reading)
                start_read(c);
}

static void on_reply(Conn *c, const struct io_uring_cqe *cqe) {
        if (cqe->flags & IORING_CQE_F_NOTIF)
                return;
        if (cqe->res <= 0) {
                conn_end(c);
                return;
        }
        c->sent += cqe->res;
        if (c->sent < arg_response)
                start_answer(c);
        else if (!c->reading && !c->ended)
                start_read(c);
}

static void on_accept(const struct io_uring_cqe *cqe) {
        Conn *c;

        if (!(cqe->flags & IORING_CQE_F_MORE))
                start_accept();
        if (cqe->res < 0)
                fail("accept", cqe->res);
        if (n_unused == 0)
                fail("accept", -EMFILE);

        c = unused[--n_unused];
        c->fd = cqe->res;
        c->got = c->sent = 0;
        c->ended = false;
        start_read(c);
}

static void setup(void) {
        struct io_uring_params p = { .flags = arg_sqpoll ? IORING_SETUP_SQPOLL : 0, .sq_thread_idle = 50 };
        struct iovec fixed[2];
        int r;

        p.flags |= IORING_SETUP_CQSIZE;
        p.cq_entries = 16 * CONNECTIONS_MAX;
        r = io_uring_queue_init_params(1024, &ring, &p);
        if (r < 0)
                fail("io_uring_queue_init", r);

        answer_data = mmap(NULL, arg_response, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);
        conns = mmap(NULL, CONNECTIONS_MAX * sizeof(Conn), PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS,
                     -1, 0);
        buffer_data = malloc(BUFFERS * BUFFER_SIZE);
        if (answer_data == MAP_FAILED || conns == MAP_FAILED || !buffer_data)
                fail("memory", -errno);
        memset(answer_data, 'a', arg_response);
        for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
                unused[n_unused++] = conns + i;

        if (streq(arg_read, "read-fixed") || streq(arg_answer, "write-fixed")) {
                fixed[0] = (struct iovec) { .iov_base = conns, .iov_len = CONNECTIONS_MAX * sizeof(Conn) };
                fixed[1] = (struct iovec) { .iov_base = answer_data, .iov_len = arg_response };
                r = io_uring_register_buffers(&ring, fixed, 2);
                if (r < 0)
                        fail("io_uring_register_buffers", r);
        }
        if (arg_direct) {
                r = io_uring_register_files_sparse(&ring, CONNECTIONS_MAX);
                if (r < 0)
                        fail("io_uring_register_files_sparse", r);
        }

        buffers = io_uring_setup_buf_ring(&ring, BUFFERS, BUFFER_GROUP, 0, &r);
        if (!buffers)
                fail("io_uring_setup_buf_ring", r);
        for (unsigned i = 0; i < BUFFERS; i++)
                buffer_return(i);

        delay = (struct __kernel_timespec) { .tv_sec = arg_delay_us / 1000000,
                                             .tv_nsec = arg_delay_us % 1000000 * 1000 };
}

static void parse(int argc, char *argv[]) {
        enum {
                ARG_PORT = 256, ARG_REQUEST, ARG_RESPONSE, ARG_DELAY, ARG_READ, ARG_ANSWER, ARG_SQPOLL,
                           ARG_DIRECT,
                ARG_LISTEN, ARG_ASYNC, ARG_ONESHOT,
        };
        static const struct option options[] = {
                { "port",     required_argument, NULL, ARG_PORT     },
                { "request",  required_argument, NULL, ARG_REQUEST  },
                { "response", required_argument, NULL, ARG_RESPONSE },
                { "delay-us", required_argument, NULL, ARG_DELAY    },
                { "read",     required_argument, NULL, ARG_READ     },
                { "answer",   required_argument, NULL, ARG_ANSWER   },
                { "sqpoll",   no_argument,       NULL, ARG_SQPOLL   },
                { "direct",   no_argument,       NULL, ARG_DIRECT   },
                { "listen",   no_argument,       NULL, ARG_LISTEN   },
                { "async",    no_argument,       NULL, ARG_ASYNC    },
                { "oneshot",  no_argument,       NULL, ARG_ONESHOT  },
                {}
        };
        int c;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case ARG_PORT:     arg_port = atoi(optarg); break;
                case ARG_REQUEST:  arg_request = strtoull(optarg, NULL, 10); break;
                case ARG_RESPONSE: arg_response = strtoull(optarg, NULL, 10); break;
                case ARG_DELAY:    arg_delay_us = strtoull(optarg, NULL, 10); break;
                case ARG_READ:     arg_read = optarg; break;
                case ARG_ANSWER:   arg_answer = optarg; break;
                case ARG_SQPOLL:   arg_sqpoll = true; break;
                case ARG_DIRECT:   arg_direct = true; break;
                case ARG_LISTEN:   arg_listen = true; break;
                case ARG_ASYNC:    arg_async = true; break;
                case ARG_ONESHOT:  arg_oneshot = true; break;
                default:           exit(2);
                }
        if (optind < argc || arg_request > REQUEST_MAX)
                exit(2);
}

int main(int argc, char *argv[]) {
        parse(argc, argv);
        signal(SIGPIPE, SIG_IGN);
        setup();
        listener = setup_listener();
        start_accept();
        notify_ready();

        for (;;) {
                struct io_uring_cqe *cqe;
                unsigned head, n = 0;
                int r;

                r = io_uring_submit_and_wait(&ring, 1);
                if (r < 0 && r != -EINTR)
                        fail("io_uring_submit_and_wait", r);

                io_uring_for_each_cqe(&ring, head, cqe) {
                        Conn *c = (Conn*) (uintptr_t) (cqe->user_data & ~(uint64_t) OP_MASK);

                        n++;
                        if (c && !(cqe->flags & IORING_CQE_F_MORE))
                                c->pending--;
                        switch (cqe->user_data & OP_MASK) {
                        case OP_ACCEPT:
                                on_accept(cqe);
                                break;
                        case OP_READ:
                                on_read(c, cqe);
                                break;
                        case OP_DELAY:
                                if (!c->ended)
                                        start_answer(c);
                                break;
                        case OP_ANSWER:
                                on_reply(c, cqe);
                                break;
                        default:
                                break;
                        }
                        if (c && c->ended && c->pending == 0)
                                conn_free(c);
                }
                io_uring_cq_advance(&ring, n);
        }
}
