/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What waits all the time: "busy pipe" has two threads hand a byte to and fro, "busy disk FILE" reads a
 * block of the file after the other from the disk. Each turn is one wait. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 4096

static int there[2], back[2];

static void __attribute__((noreturn)) die(const char *what) {
        fprintf(stderr, "busy: %s: %s\n", what, strerror(errno));
        exit(EXIT_FAILURE);
}

static void hand_on(int from, int to) {
        char byte;

        for (;;)
                if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
                        die("handing on");
}

static void* answer(void *unused) {
        hand_on(there[0], back[1]);
        return unused;
}

int main(int argc, char *argv[]) {
        if (argc == 2 && strcmp(argv[1], "pipe") == 0) {
                pthread_t thread;

                if (pipe(there) < 0 || pipe(back) < 0 || write(there[1], "", 1) != 1)
                        die("pipes");
                errno = pthread_create(&thread, NULL, answer, NULL);
                if (errno != 0)
                        die("a thread");
                hand_on(back[0], there[1]);
        }

        if (argc == 3 && strcmp(argv[1], "disk") == 0) {
                static char block[BLOCK] __attribute__((aligned(BLOCK)));
                int fd;

                fd = open(argv[2], O_RDWR|O_CREAT|O_TRUNC|O_DIRECT|O_CLOEXEC, 0600);
                if (fd < 0)
                        die(argv[2]);
                for (int i = 0; i < BLOCKS; i++)
                        if (write(fd, block, BLOCK) != BLOCK)
                                die("writing");
                for (unsigned i = 0;; i = (i + 1) % BLOCKS)
                        if (pread(fd, block, BLOCK, (off_t) i * BLOCK) != BLOCK)
                                die("reading");
        }

        fprintf(stderr, "usage: busy pipe|disk FILE\n");
        return 2;
}
