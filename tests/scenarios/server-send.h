/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Ways in which servers send. All of these send n bytes, with as many calls as it takes, and return 0, or a
 * negative errno. */

#include <sys/types.h>

int send_all(int fd, const char *p, size_t n, int flags);
/* Three pieces in each call */
int writev_all(int fd, const char *p, size_t n);
/* Two messages in each call */
int sendmmsg_all(int fd, const char *p, size_t n);
/* From this offset of a file */
int sendfile_all(int fd, int file, off_t offset, size_t n);
/* From memory or, if p is NULL, this offset of a file, through a pipe, as proxies do it */
int splice_all(int fd, int file, const char *p, off_t offset, size_t n);
/* Through another descriptor of the same socket, which is closed first */
int dup_all(int fd, const char *p, size_t n);
/* Reads back the completions of MSG_ZEROCOPY, so that the error queue is used as in a real sender. */
void reap_zerocopy(int fd);
