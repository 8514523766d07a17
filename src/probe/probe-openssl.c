/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "elf-symbols.h"
#include "log.h"
#include "mountinfo.h"
#include "probe-internal.h"

void library_close(Library *l) {
        l->enter_fd = close_fd(l->enter_fd);
        l->leave_fd = close_fd(l->leave_fd);
}

/* ---- programs loaded on demand ------------------------------------------------------------------------ */

void library_drop(Probe *p, size_t i) {
        store_drop_library(p->libraries + i);
        library_close(p->libraries + i);
        p->libraries[i] = p->libraries[--p->n_libraries];
}

/* Probed functions and the attributes passed to their programs. SSL_accept() and SSL_connect() call
 * SSL_do_handshake(); SSL_read_early_data() and SSL_write_early_data() call the functions below.
 *
 * Reading and writing have an internal function each behind the exported ones, with the arguments of
 * SSL_read_ex() (since OpenSSL 3.3 those of SSL_write_ex2()). It is probed instead where it can be
 * identified: see symbols_find(). */
typedef struct LibraryPoints {
        unsigned long offsets[8];
        __u64 cookies[8];
        size_t n;
} LibraryPoints;

/* ---- OpenSSL's library -------------------------------------------------------------------------------- */

static bool points_add(LibraryPoints *points, uint64_t offset, uint64_t cookie) {
        if (offset == 0)
                return false;
        points->offsets[points->n] = offset;
        points->cookies[points->n++] = cookie;
        return true;
}

static int library_find_points(int fd, LibraryPoints *enter, LibraryPoints *leave) {
        Symbols *s;
        bool flags;
        int r;

        r = symbols_new(fd, &s);
        if (r < 0)
                return r;

        flags = symbols_find(s, "SSL_write_ex2") != 0;
        if (!points_add(leave, symbols_find_callee(s, "SSL_read", "SSL_read_ex"), QOS_CALL_READS |
                        QOS_CALL_COUNTS)) {
                (void) points_add(leave, symbols_find(s, "SSL_read_ex"), QOS_CALL_READS | QOS_CALL_COUNTS);
                if (!points_add(leave, symbols_find(s, "SSL_read"), QOS_CALL_READS))
                        r = -ENOEXEC;
        }
        if (!points_add(leave, symbols_find_callee(s, "SSL_write", flags ? "SSL_write_ex2" : "SSL_write_ex"),
                        QOS_CALL_WRITES | QOS_CALL_COUNTS | (flags ? QOS_CALL_FLAGS : 0))) {
                (void) points_add(leave, symbols_find(s, "SSL_write_ex"), QOS_CALL_WRITES | QOS_CALL_COUNTS);
                if (!points_add(leave, symbols_find(s, "SSL_write"), QOS_CALL_WRITES))
                        r = -ENOEXEC;
        }
        (void) points_add(leave, symbols_find(s, "SSL_do_handshake"), 0);
        *enter = *leave;
        (void) points_add(enter, symbols_find(s, "SSL_sendfile"), QOS_CALL_SENDS_FILE);

        symbols_free(s);
        return r;
}

static int library_link(Probe *p, Program program, const char *path, const LibraryPoints *points,
                        bool leave) {
        LIBBPF_OPTS(bpf_link_create_opts, options,
                    .uprobe_multi.path = path,
                    .uprobe_multi.offsets = points->offsets,
                    .uprobe_multi.cookies = points->cookies,
                    .uprobe_multi.cnt = points->n,
                    .uprobe_multi.flags = leave ? BPF_F_UPROBE_MULTI_RETURN : 0);

        return bpf_link_create(p->program_fds[program], 0, BPF_TRACE_UPROBE_MULTI, &options);
}

/* Limits the files of each user, as a user could fill the table with copies. */
static int library_check_limit(const Probe *p, const Library *l) {
        unsigned n = 0, own = 0, others = 0;

        for (size_t i = 0; i < p->n_libraries; i++) {
                n += p->libraries[i].enter_fd >= 0;
                own += p->libraries[i].enter_fd >= 0 && p->libraries[i].owner == l->owner;
                others += p->libraries[i].enter_fd >= 0 && p->libraries[i].owner != 0;
        }
        if (n >= LIBRARIES_MAX || (l->owner != 0 && others >= limit_for_unprivileged(LIBRARIES_MAX)))
                return -ENOSPC;
        return l->owner != 0 && own >= LIBRARIES_PER_UID_MAX ? -EDQUOT : 0;
}

const char* probe_library_limit_reason(int limit) {
        static char all[128], own[64];

        (void) snprintf(all, sizeof(all), "%u files are the most, %u those of users who are not root",
                        LIBRARIES_MAX, limit_for_unprivileged(LIBRARIES_MAX));
        (void) snprintf(own, sizeof(own), "%u files of one user are the most", LIBRARIES_PER_UID_MAX);
        return limit == -EDQUOT ? own : all;
}

static int library_attach(Probe *p, Library *l, const char *path) {
        LibraryPoints enter = {}, leave = {};
        _cleanup_close_ int fd = -EBADF;
        char name[32];
        struct stat st;
        int r;

        fd = open(path, O_RDONLY|O_CLOEXEC|O_NOCTTY|O_NONBLOCK);
        if (fd < 0)
                return -errno;
        /* Device numbers of some file systems (overlayfs, btrfs) differ from the kernel's, inode numbers do
         * not */
        if (fstat(fd, &st) < 0)
                return -errno;
        if (!S_ISREG(st.st_mode) || st.st_ino != l->inode)
                return -ENOENT;

        l->owner = st.st_uid;
        r = library_check_limit(p, l);
        if (r < 0)
                return r;

        r = library_find_points(fd, &enter, &leave);
        if (r < 0)
                return r;

        /* The opened file, even if the path refers to another one now */
        (void) snprintf(name, sizeof(name), "/proc/self/fd/%i", fd);
        r = library_link(p, PROGRAM_OPENSSL_LEAVE, name, &leave, /* leave= */ true);
        if (r < 0)
                return r;
        l->leave_fd = r;
        r = library_link(p, PROGRAM_OPENSSL_ENTER, name, &enter, /* leave= */ false);
        if (r < 0) {
                library_close(l);
                return r;
        }
        l->enter_fd = r;

        store_push_library(p, l);
        return 0;
}

/* A process in another root directory or mount namespace has the library at another path, which qosd may be
 * able to reach. */
static int library_attach_elsewhere(Probe *p, Library *l, const struct qos_openssl_library *found,
                                    char ret_path[static QOS_LIBRARY_PATH_SIZE]) {
        _cleanup_free_ char *file_path = NULL, *line = NULL;
        _cleanup_fclose_ FILE *f = NULL;
        size_t size = 0;
        int r;

        r = mounts_file_path(found->names, MIN((size_t) found->names_size, sizeof(found->names)),
                             &file_path);
        if (r < 0)
                return r;
        f = fopen("/proc/self/mountinfo", "re");
        if (!f)
                return -errno;
        r = -ENOENT;
        while (r < 0 && r != -ENOSPC && r != -EDQUOT && getline(&line, &size, f) >= 0) {
                _cleanup_free_ char *path = NULL;

                if (mounts_line_find(line, found->device, file_path, &path) < 0)
                        continue;
                r = library_attach(p, l, path);
                if (r >= 0)
                        (void) snprintf(ret_path, QOS_LIBRARY_PATH_SIZE, "%s", path);
        }
        return r;
}

Library* library_get(Probe *p, uint32_t device, uint64_t inode, bool make) {
        Library *l;

        for (size_t i = 0; i < p->n_libraries; i++)
                if (p->libraries[i].device == device && p->libraries[i].inode == inode)
                        return p->libraries + i;
        if (!make)
                return NULL;
        if (p->n_libraries >= LIBRARIES_MAX) {
                /* Evict files without programs */
                for (l = p->libraries; l < p->libraries + LIBRARIES_MAX && l->enter_fd >= 0; l++)
                        ;
                if (l == p->libraries + LIBRARIES_MAX)
                        return NULL;
        } else
                l = p->libraries + p->n_libraries++;
        *l = (Library) { .inode = inode, .device = device, .enter_fd = -EBADF, .leave_fd = -EBADF };
        return l;
}

/* Returns 1 if programs are attached, -ENOSPC or -EDQUOT as probe_add_libraries(). */
static int openssl_scan_file(Probe *p, const struct qos_openssl_library *found) {
        Library *l = library_get(p, found->device, found->inode, /* make= */ false);
        char path[QOS_LIBRARY_PATH_SIZE];
        int r;

        if (!l) {
                l = library_get(p, found->device, found->inode, /* make= */ true);
                if (!l)
                        return -ENOSPC;
                (void) snprintf(path, sizeof(path), "%.*s", (int) sizeof(path) - 1, found->path);
                r = library_attach(p, l, path);
                if (r < 0 && r != -ENOSPC && r != -EDQUOT) {
                        int k = library_attach_elsewhere(p, l, found, path);

                        r = k >= 0 || k == -ENOSPC || k == -EDQUOT ? k : r;
                }
                if (r == -ENOSPC || r == -EDQUOT) {
                        /* Retry when it is found again */
                        *l = p->libraries[--p->n_libraries];
                        return r;
                }
                if (r < 0) {
                        free(p->library_reason);
                        if (asprintf(&p->library_reason, "failed to probe '%s': %s", path,
                                     strerror(-r)) < 0)
                                p->library_reason = NULL;
                        log_warning_errno(r, "Failed to probe '%s', requests through it are counted by "
                                             "TLS records: %m", path);
                } else {
                        free(p->library_reason);
                        p->library_reason = NULL;
                        log_info("Probing '%s'.", path);
                }
        }
        l->seen = true;
        return l->enter_fd >= 0;
}

void probe_begin_libraries(Probe *p) {
        for (size_t i = 0; i < p->n_libraries; i++)
                p->libraries[i].seen = false;
        p->library_limit = 0;
}

int probe_add_libraries(Probe *p, pid_t process, int *limit) {
        union bpf_iter_link_info info = { .task.tid = process };
        LIBBPF_OPTS(bpf_link_create_opts, options, .iter_info = &info, .iter_info_len = sizeof(info));
        _cleanup_close_ int link = -EBADF, fd = -EBADF;
        struct qos_openssl_library found;
        size_t have = 0;
        int n = 0;

        if (p->program_fds[PROGRAM_FIND_LIBRARIES] < 0 || p->program_fds[PROGRAM_OPENSSL_ENTER] < 0)
                return -EOPNOTSUPP;

        link = bpf_link_create(p->program_fds[PROGRAM_FIND_LIBRARIES], 0, BPF_TRACE_ITER, &options);
        if (link < 0)
                return link; /* mostly because the process has exited */
        fd = bpf_iter_create(link);
        if (fd < 0)
                return fd;

        for (;;) {
                ssize_t size;

                size = read(fd, (char*) &found + have, sizeof(found) - have);
                if (size < 0) {
                        if (errno == EAGAIN || errno == EINTR)
                                continue;
                        return -errno;
                }
                if (size == 0)
                        break;
                have += size;
                if (have == sizeof(found)) {
                        int r = openssl_scan_file(p, &found);

                        if (r >= 0)
                                n += r;
                        else
                                p->library_limit = *limit = r;
                        have = 0;
                }
        }
        return n;
}

void probe_end_libraries(Probe *p) {
        for (size_t i = 0; i < p->n_libraries; )
                if (p->libraries[i].seen)
                        i++;
                else
                        library_drop(p, i);
}

static int on_missing_library(void *userdata, void *data, size_t size) {
        Probe *p = ASSERT_PTR(userdata);

        if (size >= sizeof(struct qos_owner))
                p->wanted_handler(data, p->wanted_userdata);
        return 0;
}

int probe_get_missing_libraries_fd(Probe *p) {
        if (!p->wanted) {
                p->wanted = ring_buffer__new(p->map_fds[MAP_MISSING_LIBRARIES], on_missing_library, p, NULL);
                if (!p->wanted)
                        return errno_or_else(ENOMEM);
        }
        return ring_buffer__epoll_fd(p->wanted);
}

void probe_read_missing_libraries(Probe *p, void (*handler)(const struct qos_owner *owner, void *userdata),
                                  void *userdata) {
        if (!p->wanted)
                return;
        p->wanted_handler = handler;
        p->wanted_userdata = userdata;
        (void) ring_buffer__consume(p->wanted);
}
