/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* A program whose threads wait for known things: "waiter sleep:3 pipe:2 mutex:4 …". Says READY when all of
 * them have begun. Its first thread waits for signals; some kinds need a thread or a process more, as said
 * below.
 *
 *   births:N   threads per second that are born, run for a moment and end
 *   burn:N     threads that do not stop computing
 *   work:N     threads that compute and sleep by turns, some thousand times a second
 *   wake:N     pairs of threads that wake each other by a condition variable, without end */

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void fail(const char *what) {
        perror(what);
        exit(EXIT_FAILURE);
}

static atomic_int begun;
static unsigned rate;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, inherited;
static char file_name[] = "/tmp/waiter-XXXXXX";

static void forever(void) {
        for (;;)
                pause();
}

/* The number of the first argument says what; all of them never return. */
static void* do_sleep(void *data) {
        begun++;
        for (;;)
                sleep(1000);
        return data;
}

static void* do_pipe(void *data) {
        int fds[2];
        char c;

        if (pipe(fds) < 0)
                fail("pipe");
        begun++;
        return read(fds[0], &c, 1) < 0 ? NULL : data;
}

static void* do_socket(void *data) {
        int fds[2];
        char c;

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
                fail("socketpair");
        begun++;
        return read(fds[0], &c, 1) < 0 ? NULL : data;
}

static void* do_accept(void *data) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        if (fd < 0 || listen(fd, 1) < 0)
                fail("listen");
        begun++;
        (void) accept(fd, NULL, NULL);
        return data;
}

static void* do_poll(void *data) {
        begun++;
        (void) poll(NULL, 0, -1);
        return data;
}

/* For one pipe alone */
static void* do_poll_one(void *data) {
        struct pollfd p = { .events = POLLIN };
        int fds[2];

        if (pipe(fds) < 0)
                fail("pipe");
        p.fd = fds[0];
        begun++;
        (void) poll(&p, 1, -1);
        return NULL;
}

static void* do_queue(void *data) {
        struct mq_attr attributes = { .mq_maxmsg = 1, .mq_msgsize = 8 };
        char message[8], name[32];
        mqd_t q;

        (void) snprintf(name, sizeof(name), "/waiter-%i", (int) getpid());
        q = mq_open(name, O_RDONLY|O_CREAT|O_CLOEXEC, 0600, &attributes);
        if (q == (mqd_t) -1)
                fail("mq_open");
        (void) mq_unlink(name);
        begun++;
        (void) mq_receive(q, message, sizeof(message), NULL);
        return NULL;
}

static void* do_epoll(void *data) {
        struct epoll_event e;
        int fd = epoll_create1(0);

        begun++;
        (void) epoll_wait(fd, &e, 1, -1);
        return data;
}

static void* do_select(void *data) {
        begun++;
        (void) select(0, NULL, NULL, NULL, NULL);
        return data;
}

static void* do_eventfd(void *data) {
        eventfd_t value;
        int fd = eventfd(0, 0);

        begun++;
        (void) eventfd_read(fd, &value);
        return data;
}

/* One thread more has the mutex, and sleeps. */
static void* do_mutex(void *data) {
        begun++;
        (void) pthread_mutex_lock(&mutex);
        return data;
}

/* The same of the kind that lends its holder the waiter's priority. */
static void* do_inherit(void *data) {
        begun++;
        (void) pthread_mutex_lock(&inherited);
        return data;
}

static void* do_condition(void *data) {
        pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

        pthread_mutex_lock(&own);
        begun++;
        for (;;)
                pthread_cond_wait(&condition, &own);
        return data;
}

static void* do_semaphore(void *data) {
        sem_t semaphore;

        sem_init(&semaphore, 0, 0);
        begun++;
        (void) sem_wait(&semaphore);
        return data;
}

static void* do_flock(void *data) {
        int fd = open(file_name, O_RDWR);

        begun++;
        (void) flock(fd, LOCK_EX);
        return data;
}

/* A process more, which waits for signals. */
static void* do_child(void *data) {
        pid_t pid = fork();

        if (pid < 0)
                fail("fork");
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                forever();
        }
        begun++;
        (void) waitpid(pid, NULL, 0);
        return data;
}

/* The same, for as long as it has the memory of this one: programs start others like that. */
static void* do_vfork(void *data) {
        pid_t pid;

        begun++;
        pid = vfork();
        if (pid < 0)
                fail("vfork");
        if (pid == 0) {
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                for (;;)
                        (void) pause();
        }
        return data;
}

static void compute(unsigned n) {
        for (volatile unsigned i = 0; i < n; i++)
                ;
}

static void* do_burn(void *data) {
        begun++;
        for (;;)
                compute(1000000);
        return data;
}

static void* do_work(void *data) {
        begun++;
        for (;;) {
                compute(20000);
                nanosleep(&(struct timespec) { .tv_nsec = 100000 }, NULL);
        }
        return data;
}

static void* do_birth(void *data) {
        compute(3000);
        return data;
}

static void* do_births(void *data) {
        struct timespec next;
        pthread_attr_t attributes;

        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attributes, 65536);
        begun++;
        clock_gettime(CLOCK_MONOTONIC, &next);
        for (;;) {
                pthread_t thread;

                for (unsigned i = 0; i < rate / 100; i++)
                        if (pthread_create(&thread, &attributes, do_birth, NULL) != 0)
                                continue; /* too many at a time: those have to end first */
                next.tv_nsec += 10000000;
                if (next.tv_nsec >= 1000000000) {
                        next.tv_sec++;
                        next.tv_nsec -= 1000000000;
                }
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
        }
        return data;
}

/* As a condition variable of musl, which is on the stack of the waiting thread. */
static void* do_barrier(void *data) {
        int barrier = 2;

        begun++;
        for (;;)
                (void) syscall(SYS_futex, &barrier, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, NULL, NULL, 0);
        return data;
}

/* As the threads of a database that wait for their requests to a disk, of which there are none. */
static void* do_aio(void *data) {
        unsigned char events[32];
        unsigned long context = 0;

        if (syscall(SYS_io_setup, 1, &context) < 0)
                fail("io_setup");
        begun++;
        for (;;)
                (void) syscall(SYS_io_getevents, context, 1, 1, events, NULL);
        return data;
}

typedef struct Pair {
        pthread_mutex_t mutex;
        pthread_cond_t condition;
        unsigned turn;
} Pair;

static void* do_half(void *data) {
        Pair *p = (Pair*) ((uintptr_t) data & ~1UL);
        unsigned self = (uintptr_t) data & 1;

        begun++;
        for (unsigned n = 0;; n++) {
                /* Or else two of them keep everybody else from their CPU for minutes: each sleeps before its
                 * time is over */
                if (n % 64 == 0)
                        nanosleep(&(struct timespec) { .tv_nsec = 50000 }, NULL);
                pthread_mutex_lock(&p->mutex);
                while (p->turn != self)
                        pthread_cond_wait(&p->condition, &p->mutex);
                p->turn = !self;
                pthread_cond_signal(&p->condition);
                pthread_mutex_unlock(&p->mutex);
        }
        return NULL;
}

static void start(void* (*f)(void*), void *data) {
        pthread_attr_t attributes;
        pthread_t thread;

        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 65536);
        if (pthread_create(&thread, &attributes, f, data) != 0)
                fail("pthread_create");
}

static void* do_hold(void *data) {
        (void) pthread_mutex_lock(data);
        begun++;
        for (;;)
                sleep(1000);
        return NULL;
}

static void say_ready(void) {
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd;

        if (!path)
                return;
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        if (fd < 0 || sendto(fd, "READY=1", 7, 0, (struct sockaddr*) &address,
                             (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(path))) < 0)
                fail("notify");
        close(fd);
}

int main(int argc, char **argv) {
        static const struct {
                const char *name;
                void* (*run)(void*);
        } kinds[] = {
                { "sleep", do_sleep }, { "pipe", do_pipe }, { "socket", do_socket }, { "accept", do_accept },
                        { "poll", do_poll },
                { "epoll", do_epoll }, { "poll-one", do_poll_one }, { "queue", do_queue },
                        { "select", do_select },
                { "eventfd", do_eventfd }, { "mutex", do_mutex }, { "inherit", do_inherit },
                        { "condition", do_condition }, { "semaphore", do_semaphore }, { "flock", do_flock },
                { "child", do_child }, { "vfork", do_vfork }, { "burn", do_burn }, { "work", do_work },
                        { "births", do_births }, { "wake", do_half },
                { "barrier", do_barrier }, { "aio", do_aio },
        };
        pthread_mutexattr_t attributes;
        int fd, wanted = 0;

        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
        pthread_mutex_init(&inherited, &attributes);
        fd = mkstemp(file_name);
        if (fd < 0 || flock(fd, LOCK_EX) < 0)
                fail("flock");

        for (int i = 1; i < argc; i++) {
                char *colon = strchr(argv[i], ':');
                int n = colon ? atoi(colon + 1) : 1, known = 0;

                if (colon)
                        *colon = 0;
                if (strcmp(argv[i], "mutex") == 0)
                        start(do_hold, &mutex), wanted++;
                if (strcmp(argv[i], "inherit") == 0)
                        start(do_hold, &inherited), wanted++;
                while (begun < wanted)
                        sched_yield();
                for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
                        if (strcmp(argv[i], kinds[k].name) != 0)
                                continue;
                        known = 1;
                        if (kinds[k].run == do_births) {
                                rate = (unsigned) n;
                                n = 1;
                        }
                        for (int j = 0; j < n; j++)
                                if (kinds[k].run == do_half) {
                                        Pair *p = calloc(1, sizeof(Pair));

                                        if (!p)
                                                fail("calloc");
                                        pthread_mutex_init(&p->mutex, NULL);
                                        pthread_cond_init(&p->condition, NULL);
                                        start(do_half, p);
                                        start(do_half, (void*) ((uintptr_t) p | 1));
                                        wanted += 2;
                                } else {
                                        start(kinds[k].run, NULL);
                                        wanted++;
                                }
                }
                if (!known) {
                        fprintf(stderr, "'%s' is nothing to wait for\n", argv[i]);
                        return EXIT_FAILURE;
                }
        }
        while (begun < wanted)
                sched_yield();
        unlink(file_name);
        say_ready();
        forever();
}
