/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Entries of the journal whose fields hold what others have chosen, as units' names do: whoever reads them
 * as the journal does gets the same fields, and none besides. Each line of the input is a value; "\t" stands
 * for an end of a line in it. */

#include <endian.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "check.h"
#include "fuzz.h"
#include "journal-queue.h"

#define FIELDS_MAX 8U
/* More than a datagram between sockets of this kind holds is another matter */
#define SIZE_MAX_BYTES 16384U

static sd_event *event;
static Journal *journal;
static int fd = -EBADF;
static char path[] = "/tmp/fuzz-journal-XXXXXX/socket";

static void clean_up(void) {
        (void) unlink(path);
        *strrchr(path, '/') = 0;
        (void) rmdir(path);
        journal_free(journal);
        sd_event_unref(event);
}

static void set_up(void) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        if (journal)
                return;
        *strrchr(path, '/') = 0;
        check(mkdtemp(path));
        path[strlen(path)] = '/';
        strcpy(address.sun_path, path);
        fd = socket(AF_UNIX, SOCK_DGRAM|SOCK_NONBLOCK|SOCK_CLOEXEC, 0);
        check(fd >= 0 && bind(fd, (const struct sockaddr*) &address, sizeof(address)) >= 0);
        check(sd_event_new(&event) >= 0 && journal_new(event, path, &journal) >= 0);
        check(atexit(clean_up) == 0);
}

/* The next field of an entry, as the journal reads it. */
static size_t read_field(const char *p, size_t size, const char *field) {
        const char *end = memchr(p, '\n', size), *equals = strchr(field, '=');
        size_t name = (size_t) (equals - field), value = strlen(equals + 1);
        uint64_t length;

        check(end);
        if (memchr(p, '=', (size_t) (end - p))) {
                check((size_t) (end - p) == strlen(field) && memcmp(p, field, strlen(field)) == 0);
                return (size_t) (end - p) + 1;
        }
        check((size_t) (end - p) == name && memcmp(p, field, name) == 0 &&
              size >= name + 1 + sizeof(length) + value + 1);
        memcpy(&length, end + 1, sizeof(length));
        check(le64toh(length) == value && memcmp(end + 1 + sizeof(length), equals + 1, value) == 0);
        check(end[1 + sizeof(length) + value] == '\n');
        return name + 1 + sizeof(length) + value + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static char buffer[4 * SIZE_MAX_BYTES];
        char *fields[FIELDS_MAX] = {};
        size_t n = 0, got, at = 0;
        ssize_t r;

        if (size > SIZE_MAX_BYTES)
                return 0;
        set_up();

        while (n < FIELDS_MAX && at < size) {
                const uint8_t *end = memchr(data + at, '\n', size - at);
                size_t l = end ? (size_t) (end - data) - at : size - at;

                check(asprintf(fields + n, "F%zu=%.*s", n, (int) l, (const char*) data + at) >= 0);
                for (char *c = fields[n]; *c; c++)
                        if (*c == '\t')
                                *c = '\n';
                n++;
                at += l + 1;
        }
        journal_send(journal, (const char *const*) fields, n, "MORE=the end");

        r = recv(fd, buffer, sizeof(buffer), 0);
        check(r > 0);
        got = 0;
        for (size_t i = 0; i < n; i++)
                got += read_field(buffer + got, (size_t) r - got, fields[i]);
        got += read_field(buffer + got, (size_t) r - got, "MORE=the end");
        check(got == (size_t) r && journal_get_lost(journal) == 0);
        for (size_t i = 0; i < n; i++)
                free(fields[i]);
        return 0;
}
