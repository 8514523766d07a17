/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "client.h"
#include "format.h"
#include "hosts.h"
#include "progress.h"
#include "qosctl.h"
#include "terminal.h"
#include "value.h"

/* Timeout for a host, in addition to the interval of the observation. A login with lookups of names takes
 * some seconds. */
#define HOST_TIMEOUT (15 * NSEC_PER_SEC)
/* Limit of the output of a host: 256 units with four windows each take 10 MiB. */
#define OUTPUT_MAX (64U << 20)
/* Limit of the messages of a host and its ssh, beyond which they are truncated. */
#define MESSAGES_MAX (16U << 10)

typedef struct Buffer {
        int fd;
        char *data;             /* NUL-terminated, or NULL */
        size_t n, max;
        bool truncated;         /* whether data beyond max is dropped; otherwise it is an error */
} Buffer;

typedef struct Task {
        pid_t pid;
        Buffer output, messages;
        bool timed_out, too_long;
} Task;

int hosts_parse(const char *list) {
        size_t n = 0;

        while (arg_hosts && arg_hosts[n])
                n++;

        for (;;) {
                size_t l = strcspn(list, ",");
                _cleanup_free_ char *name = strndup(list, l);
                char **hosts;

                if (!name)
                        return log_out_of_memory();
                if (l == 0)
                        return log_failure(-EINVAL, "Empty host name in --host=, expected names separated "
                                                    "by commas.");
                if (strpbrk(name, " \t\r\n"))
                        return log_failure(-EINVAL,
                                           "Invalid host name '%s' in --host=, expected names separated by "
                                           "commas without blanks.",
                                           name);
                for (size_t i = 0; i < n; i++)
                        if (streq(arg_hosts[i], name))
                                return log_failure(-EINVAL, "Host '%s' is given twice in --host=.", name);
                if (n >= HOSTS_MAX)
                        return log_failure(-E2BIG, "Too many hosts in --host=, expected at most %u.",
                                           HOSTS_MAX);

                hosts = reallocarray(arg_hosts, n + 2, sizeof(char*));
                if (!hosts)
                        return log_out_of_memory();
                arg_hosts = hosts;
                arg_hosts[n++] = TAKE_PTR(name);
                arg_hosts[n] = NULL;

                if (list[l] == 0)
                        return 0;
                list += l + 1;
        }
}

_Noreturn static void task_run(HostCollect collect, int argc, char **argv, int output, int messages) {
        _cleanup_replies_ Replies replies = REPLIES_INIT;
        _cleanup_fclose_ FILE *f = NULL;
        int status;

        child_prepare();
        f = fdopen(output, "w");
        if (!f || messages < 0 || dup2(messages, STDERR_FILENO) < 0)
                _exit(STATUS_FAILED);

        status = collect(argc, argv, &replies);
        for (size_t i = 0; i < replies.n; i++)
                if (sd_json_variant_dump(replies.items[i], SD_JSON_FORMAT_NEWLINE, f, NULL) < 0)
                        _exit(STATUS_FAILED);
        if (fflush(f) < 0)
                _exit(STATUS_FAILED);
        _exit(status < 0 ? STATUS_FAILED : status);
}

static int pipe_open(int *ret_read, int *ret_write) {
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        *ret_read = fds[0];
        *ret_write = fds[1];
        return fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int task_start(Task *t, const char *host, HostCollect collect, int argc, char **argv) {
        _cleanup_close_ int output = -EBADF, messages = -EBADF;
        int r;

        r = pipe_open(&t->output.fd, &output);
        if (r >= 0)
                r = pipe_open(&t->messages.fd, &messages);
        if (r < 0)
                return log_failure(r, "Failed to create a pipe: %m");
        t->output.max = OUTPUT_MAX;
        t->messages.max = MESSAGES_MAX;
        t->messages.truncated = true;

        t->pid = fork();
        if (t->pid < 0) {
                t->pid = 0;
                return log_failure(errno, "Failed to start a process for '%s': %m", host);
        }
        if (t->pid == 0) {
                arg_host = host;
                task_run(collect, argc, argv, output, messages);
        }
        return 0;
}

/* Reads available data. Returns 0 at the end, -EAGAIN before it, -EFBIG beyond the limit. */
static int buffer_read(Buffer *b) {
        for (;;) {
                char chunk[16384], *data;
                ssize_t n = read(b->fd, chunk, sizeof(chunk));
                size_t keep;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : 0;
                keep = MIN((size_t) n, b->max - b->n);
                if (keep < (size_t) n && !b->truncated)
                        return -EFBIG;
                data = realloc(b->data, b->n + keep + 1);
                if (!data)
                        return -ENOMEM;
                memcpy(data + b->n, chunk, keep);
                b->data = data;
                b->n += keep;
                data[b->n] = 0;
        }
}

static void task_end(Task *t) {
        if (t->pid > 0)
                (void) kill(t->pid, SIGKILL);
        t->output.fd = close_fd(t->output.fd);
}

/* Waits until all tasks have ended. Those that have not at the deadline are killed. */
static void tasks_wait(Task *tasks, size_t n, uint64_t deadline) {
        struct pollfd fds[2 * HOSTS_MAX];

        for (;;) {
                uint64_t now = now_nsec(CLOCK_MONOTONIC), timeout;
                bool some = false;

                for (size_t i = 0; i < n; i++) {
                        Task *t = tasks + i;

                        if (t->output.fd >= 0 && now >= deadline) {
                                t->timed_out = true;
                                task_end(t);
                        }
                        some = some || t->output.fd >= 0;
                        fds[2 * i] = (struct pollfd) { .fd = t->output.fd, .events = POLLIN };
                        fds[2 * i + 1] = (struct pollfd) { .fd = t->output.fd >= 0 ? t->messages.fd : -1,
                                                           .events = POLLIN };
                }
                if (!some)
                        return;

                timeout = MIN((deadline - now) / NSEC_PER_MSEC + 1, progress_get_timeout() / USEC_PER_MSEC);
                if (poll(fds, 2 * n, (int) timeout) < 0 && errno != EINTR)
                        (void) log_failure(errno, "Failed to wait for hosts: %m");
                progress_draw();

                for (size_t i = 0; i < n; i++) {
                        Task *t = tasks + i;
                        int r;

                        if (t->output.fd < 0)
                                continue;
                        r = buffer_read(&t->messages);
                        if (r != -EAGAIN)
                                t->messages.fd = close_fd(t->messages.fd);
                        r = buffer_read(&t->output);
                        if (r == -EAGAIN)
                                continue;
                        t->too_long = r < 0;
                        if (r < 0)
                                task_end(t);
                        /* The end is that of the output: children of ssh may keep the pipe of messages
                         * open */
                        t->output.fd = close_fd(t->output.fd);
                }
        }
}

static void print_messages(const char *host, char *messages) {
        char *saved = NULL;

        for (char *line = messages ? strtok_r(messages, "\r\n", &saved) : NULL; line;
             line = strtok_r(NULL, "\r\n", &saved))
                (void) log_failure(-EIO, "%s: %s", host, line);
}

static int parse_output(char *output, Replies *ret) {
        char *saved = NULL;
        int r;

        for (char *line = output ? strtok_r(output, "\n", &saved) : NULL; line;
             line = strtok_r(NULL, "\n", &saved)) {
                _cleanup_json_ sd_json_variant *v = NULL;

                r = sd_json_parse(line, 0, &v, NULL, NULL);
                if (r >= 0)
                        r = replies_add(ret, v, NULL);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int task_finish(Task *t, const char *host, Replies *ret) {
        char buf[FORMAT_MAX];
        siginfo_t info = {};
        int r;

        while (waitid(P_PID, (id_t) t->pid, &info, WEXITED) < 0 && errno == EINTR)
                ;
        if (t->messages.fd >= 0)
                (void) buffer_read(&t->messages);
        print_messages(host, t->messages.data);

        if (t->timed_out) {
                (void) log_failure(-ETIMEDOUT, "%s: no response within %s.", host,
                                   format_span(buf, HOST_TIMEOUT));
                return STATUS_FAILED;
        }
        if (t->too_long) {
                (void) log_failure(-EFBIG, "%s: more than %u MiB were read, or memory is exhausted.", host,
                                   OUTPUT_MAX >> 20);
                return STATUS_FAILED;
        }
        if (info.si_code != CLD_EXITED) {
                (void) log_failure(-EIO, "%s: ended by signal %s.", host,
                                   sigabbrev_np(info.si_status) ?: "?");
                return STATUS_FAILED;
        }
        r = parse_output(t->output.data, ret);
        if (r < 0) {
                replies_done(ret);
                return log_failure(r, "%s: failed to read the reply: %m", host);
        }
        return info.si_status;
}

int hosts_collect(HostCollect collect, int argc, char **argv, uint64_t interval, Host **ret, size_t *ret_n) {
        Host *hosts;
        Task *tasks;
        size_t n = 0, started = 0;
        int status = STATUS_OK;

        while (arg_hosts[n])
                n++;
        assert(n <= HOSTS_MAX);
        hosts = new0(Host, n);
        tasks = new0(Task, n);
        if (!hosts || !tasks) {
                free(hosts);
                free(tasks);
                return log_out_of_memory();
        }

        (void) fflush(stdout);
        for (size_t i = 0; i < n; i++) {
                hosts[i].name = arg_hosts[i];
                tasks[i].output.fd = tasks[i].messages.fd = -EBADF;
        }
        while (started < n && task_start(tasks + started, hosts[started].name, collect, argc, argv) >= 0)
                started++;
        if (started < n) {
                status = STATUS_FAILED;
                for (size_t i = 0; i < n; i++)
                        task_end(tasks + i);
        } else {
                if (interval > 0)
                        progress_begin(interval, /* interruptible= */ true, "Observing %s on %zu hosts",
                                       argv[0], n);
                else
                        progress_begin(0, /* interruptible= */ false, "Waiting for %zu hosts", n);
                tasks_wait(tasks, n, now_nsec(CLOCK_MONOTONIC) + interval + HOST_TIMEOUT);
                progress_end();
        }

        for (size_t i = 0; i < n; i++) {
                if (tasks[i].pid > 0 && started == n) {
                        hosts[i].status = task_finish(tasks + i, hosts[i].name, &hosts[i].replies);
                        status = status_combine(status, hosts[i].status);
                } else if (tasks[i].pid > 0)
                        (void) waitpid(tasks[i].pid, NULL, 0);
                free(tasks[i].output.data);
                free(tasks[i].messages.data);
                (void) close_fd(tasks[i].output.fd);
                (void) close_fd(tasks[i].messages.fd);
        }
        free(tasks);

        *ret = hosts;
        *ret_n = n;
        return status;
}

void hosts_done(Host *hosts, size_t n) {
        for (size_t i = 0; i < n; i++)
                replies_done(&hosts[i].replies);
        free(hosts);
}

int host_check_window(const Host *a, sd_json_variant *x, const Host *b, sd_json_variant *y) {
        uint64_t window = 0, other = 0;

        (void) value_unsigned(x, "window", &window);
        (void) value_unsigned(y, "window", &other);
        if (window == other)
                return STATUS_OK;

        (void) log_failure(-EINVAL, "The default window of %s is not that of %s, expected --window=.",
                           b->name, a->name);
        return STATUS_USAGE;
}

int host_add_name(const Host *h, sd_json_variant **v) {
        return sd_json_variant_set_field_string(v, "host", h->name) < 0 ? log_out_of_memory() : 0;
}
