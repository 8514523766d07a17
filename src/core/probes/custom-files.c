/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "config-build.h"
#include "custom-files.h"
#include "custom-names.h"
#include "log.h"

/* Limit of what the process writes: all names of a manifest, in quotation marks. */
#define CUSTOM_OUTPUT_MAX (1U << 20)

/* Limit of its run time, some 20 ms on an idle machine. */
#define CUSTOM_CHECK_NSEC_MAX (5 * NSEC_PER_SEC)

static int _printf_(2, 3) files_fail(char **reason, const char *format, ...) {
        va_list ap;

        va_start(ap, format);
        if (vasprintf(reason, format, ap) < 0)
                *reason = NULL;
        va_end(ap);
        return *reason ? -EINVAL : -ENOMEM;
}

void custom_files_done(CustomFiles *f) {
        custom_manifest_free(f->manifest);
        close_fd(f->manifest_fd);
        free(f->elf);
        *f = (CustomFiles) { .manifest_fd = -EBADF };
}

/* ---- files -------------------------------------------------------------------------------------------- */

/* Whether only root can change what the descriptor refers to. */
static bool fd_is_of_root(int fd, mode_t type) {
        struct stat st;

        return fstat(fd, &st) >= 0 && (st.st_mode & S_IFMT) == type && st.st_uid == 0 && !(st.st_mode & 022);
}

/* Opens a directory. -EPERM: somebody other than root can change it or one of its parents. */
static int open_directory(const char *path) {
        _cleanup_close_ int fd = open("/", O_PATH|O_DIRECTORY|O_CLOEXEC);
        _cleanup_free_ char *copy = strdup(path);
        char *state;

        if (!copy)
                return -ENOMEM;
        if (fd < 0)
                return -errno;
        for (char *part = strtok_r(copy, "/", &state); part; part = strtok_r(NULL, "/", &state)) {
                int next;

                if (!fd_is_of_root(fd, S_IFDIR))
                        return -EPERM;
                next = openat(fd, part, O_PATH|O_DIRECTORY|O_NOFOLLOW|O_CLOEXEC);
                if (next < 0)
                        return -errno;
                (void) close(fd);
                fd = next;
        }
        return fd_is_of_root(fd, S_IFDIR) ? TAKE_FD(fd) : -EPERM;
}

/* Reads a whole file. */
static int read_file(int directory, const char *name, size_t max, char **ret, size_t *ret_size) {
        _cleanup_free_ char *data = malloc(max + 1);
        _cleanup_close_ int fd = -EBADF;
        size_t size = 0;

        if (!data)
                return -ENOMEM;
        fd = openat(directory, name, O_RDONLY|O_NOFOLLOW|O_NONBLOCK|O_NOCTTY|O_CLOEXEC);
        if (fd < 0)
                return -errno;
        if (!fd_is_of_root(fd, S_IFREG))
                return -EPERM;
        while (size <= max) {
                ssize_t n = read(fd, data + size, max + 1 - size);

                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                size += (size_t) n;
        }
        if (size > max)
                return -EFBIG;
        *ret = TAKE_PTR(data);
        *ret_size = size;
        return 0;
}

static const char* reason_of(int error) {
        return error == -EPERM ? "it or a directory above is not owned by root, or writable by others" :
               strerror(-error);
}

static int files_open(const char *name, char **manifest, size_t *manifest_size, CustomFiles *f,
                      char **reason) {
        _cleanup_free_ char *xml = NULL, *object = NULL;
        int r = -ENOENT;

        if (asprintf(&xml, "%s.xml", name) < 0 || asprintf(&object, "%s.bpf.o", name) < 0)
                return -ENOMEM;
        for (const char *const *d = custom_directories; *d && r == -ENOENT; d++) {
                _cleanup_close_ int fd = open_directory(*d);

                r = fd;
                if (r >= 0)
                        r = read_file(fd, xml, CUSTOM_MANIFEST_SIZE_MAX, manifest, manifest_size);
                if (r >= 0) {
                        r = read_file(fd, object, CUSTOM_OBJECT_SIZE_MAX, (char**) &f->elf, &f->elf_size);
                        if (r < 0)
                                return files_fail(reason, "reading %s/%s: %s", *d, object, reason_of(r));
                } else if (r != -ENOENT)
                        return files_fail(reason, "reading %s/%s: %s", *d, xml, reason_of(r));
        }
        return r == -ENOENT ? files_fail(reason, "there is no %s in %s", xml, custom_directories[0]) : r;
}

/* ---- check -------------------------------------------------------------------------------------------- */

static int memfd_new(const char *name, const void *data, size_t size) {
        _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC);

        if (fd < 0)
                return -errno;
        for (size_t written = 0; written < size;) {
                ssize_t n = write(fd, (const char*) data + written, size - written);

                if (n < 0)
                        return -errno;
                written += (size_t) n;
        }
        return TAKE_FD(fd);
}

static int memfd_read(int fd, char **ret) {
        _cleanup_free_ char *text = calloc(1, CUSTOM_OUTPUT_MAX + 1);
        ssize_t n;

        if (!text)
                return -ENOMEM;
        n = pread(fd, text, CUSTOM_OUTPUT_MAX, 0);
        if (n < 0)
                return -errno;
        *ret = TAKE_PTR(text);
        return 0;
}

typedef struct CheckFds {
        int manifest, object, output, errors;
} CheckFds;

/* In the child: without capabilities, and with nothing but its four files. */
static _Noreturn void check_exec(const char *name, const CheckFds *fds) {
        char path[64], manifest[64], object[64];
        sigset_t none;

        (void) sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) setrlimit(RLIMIT_FSIZE, &(struct rlimit) { CUSTOM_OUTPUT_MAX, CUSTOM_OUTPUT_MAX });
        (void) snprintf(path, sizeof(path), "%s.xml", name);
        (void) snprintf(manifest, sizeof(manifest), "/proc/self/fd/%i", fds->manifest);
        (void) snprintf(object, sizeof(object), "/proc/self/fd/%i", fds->object);
        if (dup2(fds->output, STDOUT_FILENO) >= 0 && dup2(fds->errors, STDERR_FILENO) >= 0 &&
            fcntl(fds->manifest, F_SETFD, 0) >= 0 && fcntl(fds->object, F_SETFD, 0) >= 0)
                (void) execl(QOSD_PROBE_CHECK, "qosd-probe-check", path, manifest, object, NULL);
        _exit(127);
}

int custom_files_parse(int fd, CustomManifest **ret) {
        _cleanup_free_ char *text = NULL;
        sd_json_variant *v = NULL;
        int r;

        r = memfd_read(fd, &text);
        if (r >= 0)
                r = sd_json_parse(text, 0, &v, NULL, NULL);
        if (r >= 0)
                r = custom_manifest_new(v, ret);
        (void) sd_json_variant_unref(v);
        return r;
}

/* Returns what the process has written, or why it failed. */
static int check_read(const CheckFds *fds, int status, CustomManifest **ret, char **reason) {
        _cleanup_free_ char *errors = NULL;
        int r;

        r = memfd_read(fds->errors, &errors);
        if (r >= 0 && status != 0)
                return files_fail(reason, "%.*s", (int) strcspn(errors, "\n"), errors);
        if (r >= 0)
                r = custom_files_parse(fds->output, ret);
        if (r == -E2BIG)
                return files_fail(reason, "its metrics take more than 1 MiB for each unit");
        return r;
}

struct CustomCheck {
        CustomFiles files;
        CheckFds fds;
        pid_t process;                  /* 0: none */
        sd_event_source *exit, *deadline;
        bool late;                      /* killed at the deadline */
        custom_check_handler_t handler;
        void *userdata;
};

CustomCheck* custom_check_free(CustomCheck *c) {
        if (!c)
                return NULL;

        sd_event_source_disable_unref(c->exit);
        sd_event_source_disable_unref(c->deadline);
        if (c->process > 0) {
                (void) kill(c->process, SIGKILL);
                (void) waitid(P_PID, (id_t) c->process, &(siginfo_t) {}, WEXITED);
        }
        close_fd(c->fds.manifest);
        close_fd(c->fds.object);
        close_fd(c->fds.output);
        close_fd(c->fds.errors);
        custom_files_done(&c->files);
        free(c);
        return NULL;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata) {
        CustomCheck *c = ASSERT_PTR(userdata);

        c->late = true;
        (void) kill(c->process, SIGKILL);
        return 0;
}

static int on_process(sd_event_source *source, int fd, uint32_t revents, void *userdata) {
        CustomCheck *c = ASSERT_PTR(userdata);
        _cleanup_free_ char *reason = NULL;
        siginfo_t info = {};
        int r;

        r = waitid(P_PID, (id_t) c->process, &info, WEXITED|WNOHANG) < 0 ? -errno : 0;
        c->process = 0;
        if (r >= 0 && c->late)
                r = files_fail(&reason, "qosd-probe-check took more than %u s",
                               (unsigned) (CUSTOM_CHECK_NSEC_MAX / NSEC_PER_SEC));
        else if (r >= 0 && (info.si_code != CLD_EXITED || info.si_status == 127))
                r = files_fail(&reason, "qosd-probe-check %s",
                               info.si_code == CLD_EXITED ? "could not be run" : "crashed");
        else if (r >= 0)
                r = check_read(&c->fds, info.si_status, &c->files.manifest, &reason);
        c->files.manifest_fd = TAKE_FD(c->fds.output);
        c->handler(r, reason, &c->files, c->userdata); /* frees c */
        return 0;
}

/* Starts the process. */
static int check_start(CustomCheck *c, sd_event *event, const char *name) {
        int pidfd, r;

        c->process = fork();
        if (c->process < 0) {
                c->process = 0;
                return -errno;
        }
        if (c->process == 0)
                check_exec(name, &c->fds);
        pidfd = (int) syscall(SYS_pidfd_open, c->process, 0);
        if (pidfd < 0)
                return -errno;
        r = sd_event_add_io(event, &c->exit, pidfd, EPOLLIN, on_process, c);
        if (r < 0) {
                (void) close_fd(pidfd);
                return r;
        }
        (void) sd_event_source_set_io_fd_own(c->exit, true);
        return sd_event_add_time_relative(event, &c->deadline, CLOCK_MONOTONIC,
                                          CUSTOM_CHECK_NSEC_MAX / NSEC_PER_USEC, 0, on_deadline, c);
}

int custom_check_new(sd_event *event, const char *name, custom_check_handler_t handler, void *userdata,
                     CustomCheck **ret, char **ret_reason) {
        _cleanup_free_ char *text = NULL;
        CustomCheck *c;
        size_t size = 0;
        int r;

        *ret_reason = NULL;
        c = new0(CustomCheck, 1);
        if (!c)
                return -ENOMEM;
        *c = (CustomCheck) {
                .files.manifest_fd = -EBADF,
                .fds = { -EBADF, -EBADF, -EBADF, -EBADF },
                .handler = handler,
                .userdata = userdata,
        };
        r = files_open(name, &text, &size, &c->files, ret_reason);
        if (r >= 0)
                r = c->fds.manifest = memfd_new("manifest", text, size);
        if (r >= 0)
                r = c->fds.object = memfd_new("object", c->files.elf, c->files.elf_size);
        if (r >= 0)
                r = c->fds.output = memfd_new("output", NULL, 0);
        if (r >= 0)
                r = c->fds.errors = memfd_new("errors", NULL, 0);
        if (r >= 0)
                r = check_start(c, event, name);
        if (r < 0) {
                custom_check_free(c);
                return r;
        }
        *ret = c;
        return 0;
}
