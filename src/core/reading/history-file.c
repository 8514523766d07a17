/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>

#include "history-file.h"

int history_find_prefix(char **ret) {
        const char *directory = getenv("RUNTIME_DIRECTORY");

        *ret = NULL;
        if (directory && asprintf(ret, "%.*s/history-", (int) strcspn(directory, ":"), directory) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

int history_path(const char *prefix, unsigned slot, char **ret) {
        if (!prefix)
                return -ENOENT;
        if (asprintf(ret, "%s%u", prefix, slot) < 0) {
                *ret = NULL;
                return -ENOMEM;
        }
        return 0;
}

static int write_all(int fd, const void *data, size_t size) {
        for (const char *p = data; size > 0; ) {
                ssize_t n = write(fd, p, size);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                p += n;
                size -= n;
        }
        return 0;
}

int history_save(const History *h, uint32_t generation, const char *path) {
        _cleanup_free_ char *temporary = NULL;
        _cleanup_free_ void *data = NULL;
        _cleanup_close_ int fd = -EBADF;
        size_t size;
        int r;

        r = history_serialize(h, generation, &data, &size);
        if (r < 0)
                return r;
        if (asprintf(&temporary, "%s.new", path) < 0) {
                temporary = NULL;
                return -ENOMEM;
        }

        fd = open(temporary, O_WRONLY|O_CREAT|O_TRUNC|O_NOFOLLOW|O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        r = write_all(fd, data, size);
        if (r >= 0 && rename(temporary, path) < 0)
                r = -errno;
        if (r < 0)
                (void) unlink(temporary);
        return r;
}

int history_load(const char *path, uint32_t generation, History **ret) {
        _cleanup_free_ char *data = NULL;
        _cleanup_close_ int fd = -EBADF;
        size_t size = 0;

        /* Regular files only: opening a FIFO could block */
        fd = open(path, O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_CLOEXEC);
        if (fd < 0)
                return -errno;

        /* One byte more than the maximum, to detect larger files */
        data = malloc(HISTORY_SIZE_MAX + 1);
        if (!data)
                return -ENOMEM;
        while (size <= HISTORY_SIZE_MAX) {
                ssize_t n = read(fd, data + size, HISTORY_SIZE_MAX + 1 - size);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                size += n;
        }

        return history_deserialize(data, size, generation, ret);
}
