/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <sys/stat.h>

#include "contention-map.h"
#include "elf-symbols.h"
#include "futex-name.h"
#include "probe.h"

typedef struct MappingQuery {
        uint64_t address;
        struct qos_mapping base;        /* mapping of the beginning of the file */
        struct qos_mapping part;        /* mapping of the address */
        bool based, there;
} MappingQuery;

static void on_mapping(const struct qos_mapping *m, void *userdata) {
        MappingQuery *q = ASSERT_PTR(userdata);

        if (m->offset == 0 && m->start <= q->address && (!q->based || m->start > q->base.start)) {
                q->base = *m;
                q->base.path[sizeof(q->base.path) - 1] = 0;
                q->based = true;
        }
        if (m->start <= q->address && q->address < m->end) {
                q->part = *m;
                q->part.path[sizeof(q->part.path) - 1] = 0;
                q->there = true;
        }
}

static const char* mapping_get_name(const struct qos_mapping *m) {
        const char *slash = strrchr(m->path, '/');

        return slash ? slash + 1 : m->path;
}

/* 0: not found, or the file cannot be read. */
static int mapping_find_object(const MappingQuery *q, char **ret) {
        const struct qos_mapping *m = &q->base;
        _cleanup_close_ int fd = -EBADF;
        const char *object = NULL;
        Symbols *symbols = NULL;
        uint64_t offset = 0;
        struct stat st;
        int r;

        fd = open(m->path, O_RDONLY|O_CLOEXEC|O_NOCTTY|O_NONBLOCK);
        /* The path may refer to another file now, or in this mount namespace */
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_ino != m->inode ||
            symbols_new_all(fd, &symbols) < 0)
                return 0;

        r = symbols_find_object(symbols, m->start, q->address, &object, &offset);
        if (r < 0)
                r = 0;
        else if (!object)
                r = asprintf(ret, "%s+0x%llx", mapping_get_name(m),
                             (unsigned long long) (q->address - m->start));
        else if (offset == 0)
                r = asprintf(ret, "%s:%s", mapping_get_name(m), object);
        else
                r = asprintf(ret, "%s:%s+0x%llx", mapping_get_name(m), object, (unsigned long long) offset);
        symbols_free(symbols);
        return r;
}

int mapping_find_name(Probe *p, pid_t process, uint64_t address, char **ret) {
        MappingQuery q = { .address = address };
        char *name = NULL;
        int r;

        r = probe_read_mappings(p, process, address, on_mapping, &q);
        if (r < 0)
                return r;
        r = q.based ? mapping_find_object(&q, &name) : 0;
        if (r == 0 && q.there && !isempty(q.part.path))
                r = asprintf(&name, "%s+0x%llx", mapping_get_name(&q.part),
                             (unsigned long long) (address - q.part.start + q.part.offset));
        if (r < 0)
                return -ENOMEM;
        if (r > 0)
                *ret = name;
        return 0;
}
