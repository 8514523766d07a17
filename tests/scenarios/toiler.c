/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A server with the given waits: for each request it takes CPU time, a mutex of all threads, a single
 * resource that they wait for at a condition variable, writes that are to reach the disk, pages of a file
 * that it has mapped, a response from another server, or simply a while. One thread for each connection,
 * or one for all; or a pool of workers that take one connection for one request; or one thread that takes
 * the CPU time of several requests at once, for which those of the connections wait. Its client is
 * client.c: requests of 64 bytes, responses of 128. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define REQUEST 64
#define RESPONSE 128
#define IDLERS_STACK 65536
#define MAP_READS 20

static int arg_port, arg_ask, arg_workers, arg_idle, arg_batch;
static size_t arg_response = RESPONSE, arg_sync_size = 4096;
static uint64_t arg_cpu_us, arg_lock_us, arg_turn_us, arg_sleep_us;
static const char *arg_sync, *arg_map;
static volatile const char *map;
static size_t map_size;

static pthread_mutex_t hot_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t turn_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t hot_turn = PTHREAD_COND_INITIALIZER;
static int turn_taken;
static pthread_mutex_t idle_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static char *response, *block;

static void fail(const char *what) {
        fprintf(stderr, "toiler: %s: %m\n", what);
        exit(1);
}

static void pause_us(uint64_t us) {
        struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

        if (us > 0)
                while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
                        ;
}

/* So much of its own time, however long that takes. */
static void burn_us(uint64_t us) {
        struct timespec begin, now;

        if (us == 0)
                return;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        do
                clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        while ((uint64_t) (now.tv_sec - begin.tv_sec) * 1000000000 +
               (uint64_t) now.tv_nsec - (uint64_t) begin.tv_nsec < us * 1000);
}

/* ---- batches */

static pthread_mutex_t batch_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t batch_work = PTHREAD_COND_INITIALIZER, batch_done = PTHREAD_COND_INITIALIZER;
static uint64_t batch_submitted, batch_finished;

static void submit(void) {
        uint64_t ticket;

        pthread_mutex_lock(&batch_mutex);
        ticket = ++batch_submitted;
        pthread_cond_signal(&batch_work);
        while (batch_finished < ticket)
                pthread_cond_wait(&batch_done, &batch_mutex);
        pthread_mutex_unlock(&batch_mutex);
}

/* A batch takes as long as one, and half of that for each more. */
static void* batch(void *p) {
        (void) pthread_setname_np(pthread_self(), "batcher");
        for (;;) {
                uint64_t n;

                pthread_mutex_lock(&batch_mutex);
                while (batch_submitted == batch_finished)
                        pthread_cond_wait(&batch_work, &batch_mutex);
                n = batch_submitted - batch_finished;
                n = n < (uint64_t) arg_batch ? n : (uint64_t) arg_batch;
                pthread_mutex_unlock(&batch_mutex);
                burn_us(arg_cpu_us * (n + 1) / 2);
                pthread_mutex_lock(&batch_mutex);
                batch_finished += n;
                pthread_cond_broadcast(&batch_done);
                pthread_mutex_unlock(&batch_mutex);
        }
        return p;
}

static int all(int fd, void *data, size_t n, int out) {
        for (char *p = data; n > 0;) {
                ssize_t k = out ? send(fd, p, n, MSG_NOSIGNAL) : read(fd, p, n);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return -1;
                p += k;
                n -= (size_t) k;
        }
        return 0;
}

static int tcp_connect(int port) {
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);

        if (fd < 0 || connect(fd, (struct sockaddr*) &in, sizeof(in)) < 0)
                fail("connect");
        return fd;
}

/* What is done for one request. Each thread has its own connection to the other server. */
static int toil(int fd, int *backend, int *file) {
        char request[REQUEST], answer[RESPONSE];

        if (all(fd, request, sizeof(request), 0) < 0)
                return -1;
        if (arg_batch > 0)
                submit();
        else
                burn_us(arg_cpu_us);
        pause_us(arg_sleep_us);
        if (arg_lock_us > 0) {
                pthread_mutex_lock(&hot_mutex);
                pause_us(arg_lock_us);
                pthread_mutex_unlock(&hot_mutex);
        }
        if (arg_turn_us > 0) {
                pthread_mutex_lock(&turn_mutex);
                while (turn_taken)
                        pthread_cond_wait(&hot_turn, &turn_mutex);
                turn_taken = 1;
                pthread_mutex_unlock(&turn_mutex);
                pause_us(arg_turn_us);
                pthread_mutex_lock(&turn_mutex);
                turn_taken = 0;
                pthread_cond_signal(&hot_turn);
                pthread_mutex_unlock(&turn_mutex);
        }
        if (map)
                for (int i = 0; i < MAP_READS; i++)
                        (void) map[(size_t) random() % map_size];
        if (arg_sync) {
                if (*file < 0)
                        *file = open(arg_sync, O_RDWR|O_CREAT|O_CLOEXEC, 0600);
                if (*file < 0 || pwrite(*file, block, arg_sync_size, 0) != (ssize_t) arg_sync_size ||
                    fsync(*file) < 0)
                        fail(arg_sync);
        }
        if (arg_ask > 0) {
                if (*backend < 0)
                        *backend = tcp_connect(arg_ask);
                if (all(*backend, request, sizeof(request), 1) < 0 ||
                    all(*backend, answer, sizeof(answer), 0) < 0)
                        fail("ask");
        }
        return all(fd, response, arg_response, 1);
}

static void* serve(void *p) {
        int fd = (int) (intptr_t) p, backend = -1, file = -1;

        while (toil(fd, &backend, &file) >= 0)
                ;
        if (backend >= 0)
                close(backend);
        if (file >= 0)
                close(file);
        close(fd);
        return NULL;
}

/* As the threads of a pool do that has nothing to do. */
static void* idle(void *p) {
        pthread_mutex_lock(&idle_mutex);
        for (;;)
                pthread_cond_wait(&work, &idle_mutex);
        return p;
}

static int epoll_fd;

static void watch(int fd, int op) {
        struct epoll_event ev = { .events = EPOLLIN|EPOLLONESHOT, .data.fd = fd };

        if (epoll_ctl(epoll_fd, op, fd, &ev) < 0)
                fail("epoll_ctl");
}

static int listen_fd;

static void* work_on(void *p) {
        int backend = -1, file = -1;

        for (;;) {
                struct epoll_event ev;
                int one = 1, fd;

                if (epoll_wait(epoll_fd, &ev, 1, -1) != 1)
                        continue;
                if (ev.data.fd != listen_fd) {
                        if (toil(ev.data.fd, &backend, &file) < 0)
                                close(ev.data.fd);
                        else
                                watch(ev.data.fd, EPOLL_CTL_MOD);
                        continue;
                }
                fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
                if (fd >= 0) {
                        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                        watch(fd, EPOLL_CTL_ADD);
                }
                watch(listen_fd, EPOLL_CTL_MOD);
        }
        return p;
}

static void start(void *(*f)(void *p), void *p) {
        pthread_attr_t attr;
        pthread_t t;

        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attr, IDLERS_STACK);
        if (pthread_create(&t, &attr, f, p) != 0)
                fail("pthread_create");
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
        if (fd < 0 || sendto(fd, "READY=1", 7, 0, (struct sockaddr*) &sa,
                             offsetof(struct sockaddr_un, sun_path) + strlen(path)) < 0)
                fail("notify");
        close(fd);
}

int main(int argc, char **argv) {
        static const struct option options[] = {
                { "port",     required_argument, NULL, 'p' },
                { "workers",  required_argument, NULL, 'w' },   /* 0: a thread for each connection */
                { "batch",    required_argument, NULL, 'b' },   /* so many at once */
                { "idle",     required_argument, NULL, 'i' },
                { "cpu-us",   required_argument, NULL, 'c' },
                { "lock-us",  required_argument, NULL, 'l' },
                { "turn-us",  required_argument, NULL, 't' },
                { "sleep-us", required_argument, NULL, 's' },
                { "sync",     required_argument, NULL, 'y' },
                { "sync-size", required_argument, NULL, 'n' },
                { "map",      required_argument, NULL, 'm' },
                { "ask",      required_argument, NULL, 'a' },
                { "response", required_argument, NULL, 'r' },
                {}
        };
        struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int c, one = 1;

        while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0)
                switch (c) {
                case 'p': arg_port = atoi(optarg); break;
                case 'w': arg_workers = atoi(optarg); break;
                case 'b': arg_batch = atoi(optarg); break;
                case 'i': arg_idle = atoi(optarg); break;
                case 'c': arg_cpu_us = strtoull(optarg, NULL, 10); break;
                case 'l': arg_lock_us = strtoull(optarg, NULL, 10); break;
                case 't': arg_turn_us = strtoull(optarg, NULL, 10); break;
                case 's': arg_sleep_us = strtoull(optarg, NULL, 10); break;
                case 'y': arg_sync = optarg; break;
                case 'n': arg_sync_size = strtoull(optarg, NULL, 10); break;
                case 'm': arg_map = optarg; break;
                case 'a': arg_ask = atoi(optarg); break;
                case 'r': arg_response = strtoull(optarg, NULL, 10); break;
                default: return 1;
                }

        response = calloc(1, arg_response);
        block = calloc(1, arg_sync_size);
        if (arg_map) {
                int fd = open(arg_map, O_RDONLY|O_CLOEXEC);
                struct stat st;

                if (fd < 0 || fstat(fd, &st) < 0)
                        fail(arg_map);
                map_size = (size_t) st.st_size;
                map = mmap(NULL, map_size, PROT_READ, MAP_SHARED, fd, 0);
                /* No more than requested */
                if (map == MAP_FAILED || madvise((void*) map, map_size, MADV_RANDOM) < 0)
                        fail(arg_map);
        }
        in.sin_port = htons(arg_port);
        listen_fd = socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC, 0);
        if (!response || !block || listen_fd < 0)
                fail("socket");
        (void) setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(listen_fd, (struct sockaddr*) &in, sizeof(in)) < 0 || listen(listen_fd, 512) < 0)
                fail("listen");
        for (int i = 0; i < arg_idle; i++)
                start(idle, NULL);
        if (arg_batch > 0)
                start(batch, NULL);
        notify_ready();

        if (arg_workers > 0) {
                epoll_fd = epoll_create1(EPOLL_CLOEXEC);
                if (epoll_fd < 0)
                        fail("epoll_create1");
                watch(listen_fd, EPOLL_CTL_ADD);
                for (int i = 1; i < arg_workers; i++)
                        start(work_on, NULL);
                work_on(NULL);
        }
        for (;;) {
                int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);

                if (fd < 0)
                        continue;
                (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
                start(serve, (void*) (intptr_t) fd);
        }
}
