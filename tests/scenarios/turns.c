/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Counted waits: with "turns N" a thread waits N times for a mutex that another one holds, and a process
 * N times for a byte of another one in a pipe. The holder and the writer look at the waiting one in /proc
 * until that has left the CPU and sleeps, so that each turn is exactly one wait. With "turns N fast" they
 * do not: the mutex is released at any moment while the other thread leaves the CPU, which has slept as
 * often as the kernel reports ("slept="). Reports READY when all turns are over, and the threads in
 * STATUS: "holder=1 victim=2 writer=3 reader=4". The threads continue to wait, for nothing: the victim
 * for the mutex, the reader for another byte. With "turns N apart" waiting threads are on the first CPU,
 * the others on the second one. */

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void fail(const char *what) {
        perror(what);
        exit(EXIT_FAILURE);
}

pthread_mutex_t the_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int turn, armed, done, victim, holder;
static atomic_long victim_switches;
static int turns, fast, apart;
static atomic_long slept;

/* Until another thread has got further. */
static void pass_time(void) {
        if (fast)
                sched_yield();
        else
                usleep(100);
}

static void use_cpu(int i) {
        cpu_set_t set;

        if (!apart)
                return;
        CPU_ZERO(&set);
        CPU_SET(i, &set);
        if (sched_setaffinity(0, sizeof(set), &set) < 0)
                fail("sched_setaffinity");
}

static int tid(void) {
        return (int) syscall(SYS_gettid);
}

/* How often this thread has left the CPU by itself. */
static long own_switches(void) {
        struct rusage usage;

        if (getrusage(RUSAGE_THREAD, &usage) < 0)
                fail("getrusage");
        return usage.ru_nvcsw;
}

/* Until it sleeps, and has done so once more. Returns how often by now. */
static long await_sleep(int process, int thread, long switches) {
        char path[64], line[512];

        (void) snprintf(path, sizeof(path), "/proc/%i/task/%i/status", process, thread);
        for (;;) {
                FILE *f = fopen(path, "re");
                char state = 0;
                long n = 0;

                if (!f)
                        fail(path);
                while (fgets(line, sizeof(line), f)) {
                        (void) sscanf(line, "State: %c", &state);
                        (void) sscanf(line, "voluntary_ctxt_switches: %li", &n);
                }
                fclose(f);
                if (state == 'S' && n > switches)
                        return n;
                usleep(100);
        }
}

static void* do_victim(void *data) {
        (void) data;
        (void) prctl(PR_SET_NAME, "victim");
        use_cpu(0);
        victim = tid();
        for (int i = 1; i <= turns + 1; i++) {
                while (turn < i)
                        pass_time();
                victim_switches = own_switches();
                armed = i;
                pthread_mutex_lock(&the_lock);
                slept += own_switches() - victim_switches;
                pthread_mutex_unlock(&the_lock);
                done = i;
        }
        return NULL;
}

static void* do_holder(void *data) {
        (void) data;
        (void) prctl(PR_SET_NAME, "holder");
        use_cpu(1);
        holder = tid();
        while (victim == 0)
                usleep(100);
        for (int i = 1; i <= turns + 1; i++) {
                pthread_mutex_lock(&the_lock);
                turn = i;
                while (armed < i)
                        pass_time();
                if (!fast || i > turns)
                        (void) await_sleep(getpid(), victim, victim_switches);
                else
                        for (volatile int k = 0; k < i % 1000 * 10; k++)
                                ;
                if (i > turns)
                        break;
                pthread_mutex_unlock(&the_lock);
                while (done < i)
                        pass_time();
        }
        turn++;
        for (;;)
                pause();
        return NULL;
}

static void say_ready(const char *status) {
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        char text[256];
        int fd;

        if (!path)
                return;
        (void) snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", status);
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        fd = socket(AF_UNIX, SOCK_DGRAM, 0);
        if (fd < 0 || sendto(fd, text, strlen(text), 0, (struct sockaddr*) &address,
                             (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(path))) < 0)
                fail("notify");
        close(fd);
}

int main(int argc, char **argv) {
        pthread_t a, b;
        char status[128];
        pid_t reader;
        int fds[2], back[2];
        long switches;

        turns = argc > 1 ? atoi(argv[1]) : 0;
        fast = argc > 2 && strcmp(argv[2], "fast") == 0;
        apart = argc > 2 && strcmp(argv[2], "apart") == 0;
        if (turns <= 0 || pipe(fds) < 0 || pipe(back) < 0)
                fail("turns N [fast|apart]");

        reader = fork();
        if (reader < 0)
                fail("fork");
        if (reader == 0) {
                char byte;

                (void) prctl(PR_SET_NAME, "reader");
                use_cpu(0);
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
                switches = own_switches();
                if (write(back[1], &switches, sizeof(switches)) != sizeof(switches))
                        fail("write");
                while (read(fds[0], &byte, 1) == 1)
                        if (write(back[1], &byte, 1) != 1)
                                fail("write");
                _exit(EXIT_SUCCESS);
        }
        (void) prctl(PR_SET_NAME, "writer");
        use_cpu(1);
        if (read(back[0], &switches, sizeof(switches)) != sizeof(switches))
                fail("read");
        for (int i = 0; i < (fast ? 1 : turns); i++) {
                char byte = 'x';

                switches = await_sleep(reader, reader, switches);
                if (write(fds[1], &byte, 1) != 1)
                        fail("write");
                if (read(back[0], &byte, 1) != 1)
                        fail("read");
        }
        (void) await_sleep(reader, reader, switches);

        if (pthread_create(&a, NULL, do_holder, NULL) != 0 || pthread_create(&b, NULL, do_victim, NULL) != 0)
                fail("pthread_create");
        while (turn < turns + 2)
                usleep(100);
        (void) snprintf(status, sizeof(status), "holder=%i victim=%i writer=%i reader=%i slept=%li", holder,
                        victim, tid(), reader, slept);
        say_ready(status);
        for (;;)
                pause();
}
