/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Work that may block, such as opening a file of a network file system: it is done in child processes, and
 * the event loop goes on meanwhile. There is one for root and one for all other users at a time; what comes
 * meanwhile waits in a queue of either. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

/* Limit of the time of a child process, which is killed then. */
#define CHILD_NSEC_MAX (200 * NSEC_PER_MSEC)

/* Limit of the time in the queue: a client waits for it, and others may have many user ids. */
#define CHILD_WAIT_NSEC_MAX NSEC_PER_SEC

/* Limit of the output. */
#define CHILD_OUTPUT_MAX (16U * 1024U)

typedef struct ChildQueue ChildQueue;
typedef struct ChildJob ChildJob;

/* Runs in the child process, and writes its results to fd, in pieces of up to PIPE_BUF. */
typedef void (*child_work_t)(int fd, void *userdata);

/* The job has ended. output: written to fd, until the timeout at the latest. nsec: run time; 0: it was not
 * begun before the timeout. */
typedef void (*child_done_t)(const void *output, size_t size, uint64_t nsec, void *userdata);

int child_queue_new(sd_event *event, ChildQueue **ret);
/* When there are no more jobs. */
ChildQueue* child_queue_free(ChildQueue *q);

/* done is called from the event loop, and not from here. */
int child_job_new(ChildQueue *q, bool root, child_work_t work, child_done_t done, void *userdata,
                  ChildJob **ret);
/* Before its end: done is not called then. */
ChildJob* child_job_free(ChildJob *j);
