/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
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

/* Limit of the time for which the daemon waits for it, some 20 ms on an idle machine. */
#define CUSTOM_CHECK_NSEC_MAX (2 * NSEC_PER_SEC)

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
        free(f->elf);
        *f = (CustomFiles) {};
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

/* Returns the exit status of the process. -ETIME: it took too long, and was killed. */
static int check_run(const char *name, const CheckFds *fds) {
        _cleanup_close_ int pidfd = -EBADF;
        siginfo_t info = {};
        pid_t pid;
        int r;

        pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                check_exec(name, fds);
        pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
        r = pidfd < 0 ? -errno :
                        poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, 1,
                             (int) (CUSTOM_CHECK_NSEC_MAX / NSEC_PER_MSEC));
        if (r <= 0)
                (void) kill(pid, SIGKILL);
        if (waitid(P_PID, (id_t) pid, &info, WEXITED) < 0)
                return -errno;
        if (r <= 0)
                return r < 0 ? r : -ETIME;
        return info.si_code == CLD_EXITED ? info.si_status : -ECHILD;
}

static int files_check(const char *name, const CheckFds *fds, CustomManifest **ret, char **reason) {
        _cleanup_free_ char *output = NULL, *errors = NULL;
        sd_json_variant *v = NULL;
        int status, r;

        status = check_run(name, fds);
        if (status == -ECHILD || status == 127)
                return files_fail(reason, "qosd-probe-check %s",
                                  status == 127 ? "could not be run" : "crashed");
        if (status < 0)
                return status;
        r = memfd_read(fds->output, &output);
        if (r >= 0)
                r = memfd_read(fds->errors, &errors);
        if (r < 0)
                return r;
        if (status != 0)
                return files_fail(reason, "%.*s", (int) strcspn(errors, "\n"), errors);
        r = sd_json_parse(output, 0, &v, NULL, NULL);
        if (r >= 0)
                r = custom_manifest_new(v, ret);
        (void) sd_json_variant_unref(v);
        if (r == -E2BIG)
                return files_fail(reason, "its metrics take more than 1 MiB for each unit");
        return r;
}

int custom_files_read(const char *name, CustomFiles *ret, char **ret_reason) {
        _cleanup_close_ int manifest = -EBADF, object = -EBADF, output = -EBADF, errors = -EBADF;
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        int r;

        *ret = (CustomFiles) {};
        *ret_reason = NULL;
        r = files_open(name, &text, &size, ret, ret_reason);
        if (r >= 0)
                r = manifest = memfd_new("manifest", text, size);
        if (r >= 0)
                r = object = memfd_new("object", ret->elf, ret->elf_size);
        if (r >= 0)
                r = output = memfd_new("output", NULL, 0);
        if (r >= 0)
                r = errors = memfd_new("errors", NULL, 0);
        if (r >= 0)
                r = files_check(name, &(CheckFds){ manifest, object, output, errors }, &ret->manifest,
                                ret_reason);
        if (r < 0)
                custom_files_done(ret);
        return r;
}
