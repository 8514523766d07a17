/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Runs work that may block, such as opening a file of a network file system, in child processes beside
 * the event loop. There is one process at a time for root, and one for all other users; further jobs are
 * queued. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

/* Limit of the run time of a child process, after which it is killed. */
#define CHILD_NSEC_MAX (200 * NSEC_PER_MSEC)

/* Limit of the time in the queue: a client waits for the job, and any number of users may share the
 * queue. */
#define CHILD_WAIT_NSEC_MAX NSEC_PER_SEC

/* Limit of the output. */
#define CHILD_OUTPUT_MAX (16U * 1024U)

typedef struct ChildQueue ChildQueue;
typedef struct ChildJob ChildJob;

/* Runs in the child process, and writes its results to fd, in pieces of up to PIPE_BUF. */
typedef void (*child_work_t)(int fd, void *userdata);

/* The job has ended. output: what was written to fd, until the timeout at the latest. nsec: run time; 0: the
 * job timed out in the queue. */
typedef void (*child_done_t)(const void *output, size_t size, uint64_t nsec, void *userdata);

int child_queue_new(sd_event *event, ChildQueue **ret);
/* To be called after all jobs have been freed. */
ChildQueue* child_queue_free(ChildQueue *q);

/* done is called from the event loop only. */
int child_job_new(ChildQueue *q, bool root, child_work_t work, child_done_t done, void *userdata,
                  ChildJob **ret);
/* Cancels the job: done is not called. */
ChildJob* child_job_free(ChildJob *j);
