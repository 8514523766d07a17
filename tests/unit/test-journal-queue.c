/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Entries for a journal that does not read: the daemon never waits, entries keep their order, and losses are
 * reported. */

#include <inttypes.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "check.h"
#include "journal-queue.h"

#define LONG_SIZE 8000

static int journal_listen(const char *path) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd;

        strcpy(address.sun_path, path);
        fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);
        check(fd >= 0 && bind(fd, (const struct sockaddr*) &address, sizeof(address)) >= 0);
        return fd;
}

static void send_number(Journal *j, unsigned n, const char *more) {
        char number[32];

        (void) snprintf(number, sizeof(number), "N=%u", n);
        journal_send(j, (const char*[]) { "MESSAGE=two\nlines", number }, 2, more);
}

/* Reads all pending entries. Returns the number of entries from next on. lost: number of losses reported by
 * the last one. */
static unsigned read_all(sd_event *event, int fd, unsigned *with_more, uint64_t *ret_lost) {
        static const char begin[] = "MESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\nN=";
        char buffer[LONG_SIZE + 256];
        unsigned n = 0, last = 0;
        ssize_t size;

        for (unsigned quiet = 0; quiet < 3;) {
                size = recv(fd, buffer, sizeof(buffer) - 1, 0);
                if (size < 0) {
                        check(errno == EAGAIN && sd_event_run(event, 0) >= 0);
                        quiet++;
                        continue;
                }
                quiet = 0;
                buffer[size] = 0;
                if (memcmp(buffer, begin, sizeof(begin) - 1) != 0) {
                        const char *lost = strstr(buffer, "\nQOS_LOST=");

                        check(lost && sscanf(lost, "\nQOS_LOST=%" SCNu64, ret_lost) == 1);
                        continue;
                }
                check(n == 0 || (unsigned) atoi(buffer + sizeof(begin) - 1) > last);
                last = (unsigned) atoi(buffer + sizeof(begin) - 1);
                *with_more += strstr(buffer + sizeof(begin) - 1, "\nMORE=") != NULL;
                n++;
        }
        return n;
}

int main(void) {
        char directory[] = "/tmp/test-journal-XXXXXX", path[64], more[LONG_SIZE];
        unsigned number = 0, with_more = 0, n;
        sd_event *event = NULL;
        uint64_t lost = 0;
        Journal *j = NULL;
        int fd;

        memset(more, 'x', sizeof(more) - 1);
        memcpy(more, "MORE=", strlen("MORE="));
        more[sizeof(more) - 1] = 0;
        check(mkdtemp(directory));
        (void) snprintf(path, sizeof(path), "%s/socket", directory);
        check(sd_event_new(&event) >= 0 && journal_new(event, path, &j) >= 0);

        /* No socket */
        send_number(j, ++number, NULL);
        check(journal_get_lost(j) == 1);

        fd = journal_listen(path);
        send_number(j, ++number, more);
        check(read_all(event, fd, &with_more, &lost) == 1 && with_more == 1 && lost == 1 &&
              journal_get_lost(j) == 0);

        /* It does not read: entries are kept up to the limit, and beyond a lower one without long fields */
        while (journal_get_lost(j) == 0)
                send_number(j, ++number, more);
        for (unsigned i = 0; i < 9; i++)
                send_number(j, ++number, more);
        check(journal_get_lost(j) == 10);
        lost = with_more = 0;
        n = read_all(event, fd, &with_more, &lost);
        check(n == number - 2 - 10 && lost == 10 && journal_get_lost(j) == 0);
        check(with_more >= JOURNAL_QUEUE_LONG_MAX / LONG_SIZE && with_more < n);

        /* It is restarted, with a new socket */
        (void) close(fd);
        check(unlink(path) >= 0);
        fd = journal_listen(path);
        send_number(j, ++number, more);
        check(read_all(event, fd, &with_more, &lost) == 1 && journal_get_lost(j) == 0);

        /* Pending entries are lost with the socket */
        for (unsigned i = 0; i < 1000; i++)
                send_number(j, ++number, more);
        journal_free(j);
        (void) sd_event_unref(event);
        (void) close(fd);
        check(unlink(path) >= 0 && rmdir(directory) >= 0);
        return EXIT_SUCCESS;
}
