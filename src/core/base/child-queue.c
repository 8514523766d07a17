/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child-queue.h"
#include "util.h"

/* A child process, and the jobs that wait for it. */
typedef struct ChildSlot {
        sd_event *event;
        pid_t process;                  /* 0: none */
        int output;                     /* of the process */
        sd_event_source *exit;
        ChildJob *job;                  /* NULL: none, or cancelled */
        ChildJob *first, *last;         /* waiting jobs */
} ChildSlot;

struct ChildQueue {
        ChildSlot slots[2];             /* 0: of users other than root, 1: of root */
};

struct ChildJob {
        ChildSlot *slot;
        child_work_t work;
        child_done_t done;
        void *userdata;
        sd_event_source *timer;
        uint64_t begun_at;              /* CLOCK_MONOTONIC ns; 0: not yet */
        ChildJob *next;
};

static void slot_begin(ChildSlot *s);

static void job_unlink(ChildJob *j) {
        ChildSlot *s = j->slot;
        ChildJob *before = NULL;

        if (s->job == j) {
                s->job = NULL;
                if (s->process > 0)
                        (void) kill(s->process, SIGKILL);
                return;
        }
        for (ChildJob *i = s->first; i != j; i = i->next)
                before = i;
        *(before ? &before->next : &s->first) = j->next;
        if (!j->next)
                s->last = before;
}

ChildJob* child_job_free(ChildJob *j) {
        if (!j)
                return NULL;

        job_unlink(j);
        sd_event_source_disable_unref(j->timer);
        free(j);
        return NULL;
}

static size_t slot_read(const ChildSlot *s, char ret[CHILD_OUTPUT_MAX]) {
        size_t size = 0;
        ssize_t n;

        while (size < CHILD_OUTPUT_MAX && (n = read(s->output, ret + size, CHILD_OUTPUT_MAX - size)) > 0)
                size += n;
        return size;
}

static void job_end(ChildJob *j, const char *output, size_t size) {
        uint64_t nsec = j->begun_at != 0 ? MAX(now_nsec(CLOCK_MONOTONIC) - j->begun_at, UINT64_C(1)) : 0;
        child_done_t done = j->done;
        void *userdata = j->userdata;

        child_job_free(j);
        done(output, size, nsec, userdata);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata) {
        ChildJob *j = ASSERT_PTR(userdata);
        char output[CHILD_OUTPUT_MAX];
        size_t size = j->begun_at != 0 ? slot_read(j->slot, output) : 0;

        job_end(j, output, size);
        return 0;
}

static int on_process(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        ChildSlot *s = ASSERT_PTR(userdata);
        char output[CHILD_OUTPUT_MAX];
        size_t size = slot_read(s, output);

        (void) waitpid(s->process, NULL, WNOHANG);
        s->process = 0;
        s->output = close_fd(s->output);
        s->exit = sd_event_source_disable_unref(s->exit);
        if (s->job)
                job_end(s->job, output, size);
        slot_begin(s);
        return 0;
}

/* Forks a child process for the job. */
static int slot_fork(ChildSlot *s, const ChildJob *j) {
        int fds[2], pidfd, r;

        if (pipe2(fds, O_CLOEXEC|O_NONBLOCK) < 0)
                return -errno;
        s->process = fork();
        if (s->process == 0) {
                j->work(fds[1], j->userdata);
                _exit(EXIT_SUCCESS);
        }
        r = -errno;
        (void) close_fd(fds[1]);
        if (s->process < 0)
                goto fail;

        pidfd = pidfd_open(s->process, 0);
        r = pidfd < 0 ? -errno : sd_event_add_io(s->event, &s->exit, pidfd, EPOLLIN, on_process, s);
        if (r >= 0) {
                (void) sd_event_source_set_io_fd_own(s->exit, true);
                s->output = fds[0];
                return 0;
        }
        (void) close_fd(pidfd);
        (void) kill(s->process, SIGKILL);
        (void) waitpid(s->process, NULL, 0);

fail:
        s->process = 0;
        (void) close_fd(fds[0]);
        return r;
}

/* Begins the next job, unless the process of a cancelled one is still running. */
static void slot_begin(ChildSlot *s) {
        ChildJob *j = s->first;

        if (!j || s->process != 0)
                return;
        /* On failure the job remains queued until it is started for another one, or times out */
        if (slot_fork(s, j) < 0)
                return;
        s->first = j->next;
        if (!s->first)
                s->last = NULL;
        s->job = j;
        j->next = NULL;
        j->begun_at = now_nsec(CLOCK_MONOTONIC);
        (void) sd_event_source_set_time(j->timer, (j->begun_at + CHILD_NSEC_MAX) / NSEC_PER_USEC);
}

int child_job_new(ChildQueue *q, bool root, child_work_t work, child_done_t done, void *userdata,
                  ChildJob **ret) {
        ChildSlot *s = q->slots + root;
        ChildJob *j;
        int r;

        j = new0(ChildJob, 1);
        if (!j)
                return -ENOMEM;
        *j = (ChildJob) { .slot = s, .work = work, .done = done, .userdata = userdata };
        r = sd_event_add_time(s->event, &j->timer, CLOCK_MONOTONIC,
                              (now_nsec(CLOCK_MONOTONIC) + CHILD_WAIT_NSEC_MAX) / NSEC_PER_USEC,
                              USEC_PER_MSEC, on_timer, j);
        if (r < 0) {
                free(j);
                return r;
        }
        *(s->last ? &s->last->next : &s->first) = j;
        s->last = j;
        slot_begin(s);
        *ret = j;
        return 0;
}

int child_queue_new(sd_event *event, ChildQueue **ret) {
        ChildQueue *q;

        q = new0(ChildQueue, 1);
        if (!q)
                return -ENOMEM;
        for (size_t i = 0; i < ELEMENTSOF(q->slots); i++)
                q->slots[i] = (ChildSlot) { .event = event, .output = -EBADF };
        *ret = q;
        return 0;
}

ChildQueue* child_queue_free(ChildQueue *q) {
        if (!q)
                return NULL;

        for (size_t i = 0; i < ELEMENTSOF(q->slots); i++) {
                ChildSlot *s = q->slots + i;

                sd_event_source_disable_unref(s->exit);
                (void) close_fd(s->output);
        }
        free(q);
        return NULL;
}
