/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "page.h"
#include "qosctl.h"
#include "screen.h"
#include "terminal.h"

/* Limit of the output, far above the status of a unit with 128 endpoints and peers. */
#define PAGE_SIZE_LIMIT (1024U * 1024U)

struct Page {
        sd_event *event;
        PageHandler handler;
        void *userdata;

        pid_t pid;
        int output;             /* pipe from the running process */
        sd_event_source *source;
        char *buffer;           /* output of the running process so far */
        size_t size;

        char *text;             /* complete output of the last process */
        size_t first;           /* index of the first line that is shown */
};

Page* page_new(sd_event *event, PageHandler handler, void *userdata) {
        Page *p;

        p = new0(Page, 1);
        if (!p)
                return NULL;
        p->event = sd_event_ref(event);
        p->handler = handler;
        p->userdata = userdata;
        p->output = -EBADF;
        return p;
}

static void page_end(Page *p) {
        p->source = sd_event_source_disable_unref(p->source);
        if (p->output >= 0)
                (void) close(p->output);
        p->output = -EBADF;
        if (p->pid > 0)
                while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        p->pid = 0;
}

Page* page_free(Page *p) {
        if (!p)
                return NULL;

        if (p->pid > 0)
                (void) kill(p->pid, SIGKILL);
        page_end(p);
        free(p->buffer);
        free(p->text);
        (void) sd_event_unref(p->event);
        free(p);
        return NULL;
}

static int on_output(sd_event_source *s, int fd, uint32_t revents, void *userdata) {
        Page *p = ASSERT_PTR(userdata);
        char buffer[16384], *larger;
        ssize_t n;

        n = read(fd, buffer, sizeof(buffer));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n > 0 && p->size + (size_t) n <= PAGE_SIZE_LIMIT) {
                larger = realloc(p->buffer, p->size + (size_t) n + 1);
                if (!larger)
                        return -ENOMEM;
                p->buffer = larger;
                memcpy(p->buffer + p->size, buffer, (size_t) n);
                p->size += (size_t) n;
                p->buffer[p->size] = 0;
                return 0;
        }

        page_end(p);
        free(p->text);
        p->text = TAKE_PTR(p->buffer);
        p->size = 0;
        return p->handler(p->userdata);
}

_Noreturn static void page_exec(const char *unit, unsigned columns) {
        char number[16], *window = NULL;
        const char *arguments[9] = { "qosctl", "--no-pager", "status" };
        size_t n = 3;
        sigset_t none;

        /* Is killed when qosctl ends. Signals are blocked for the event loop of qosctl */
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void) sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);

        /* The output is shown on the terminal */
        (void) snprintf(number, sizeof(number), "%u", columns);
        (void) setenv("COLUMNS", number, 1);
        (void) setenv("SYSTEMD_COLORS", terminal_style()->colors ? "1" : "0", 1);

        if (arg_host) {
                arguments[n++] = "-H";
                arguments[n++] = arg_host;
        }
        if (arg_window_text && asprintf(&window, "--window=%s", arg_window_text) >= 0)
                arguments[n++] = window;
        /* The name of the root slice, "-.slice", looks like an option */
        arguments[n++] = "--";
        arguments[n++] = unit;
        (void) execv("/proc/self/exe", (char**) arguments);
        _exit(EXIT_FAILURE);
}

int page_run(Page *p, const char *unit, unsigned columns) {
        int fds[2], r;

        if (p->pid > 0)
                return 0;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        p->pid = fork();
        if (p->pid < 0) {
                r = -errno;
                p->pid = 0;
                (void) close(fds[0]);
                (void) close(fds[1]);
                return r;
        }
        if (p->pid == 0) {
                int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

                if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(fds[1], STDOUT_FILENO) < 0 ||
                    dup2(fds[1], STDERR_FILENO) < 0)
                        _exit(EXIT_FAILURE);
                page_exec(unit, columns);
        }

        (void) close(fds[1]);
        p->output = fds[0];
        return sd_event_add_io(p->event, &p->source, p->output, EPOLLIN, on_output, p);
}

static size_t count_lines(const char *text) {
        size_t n = 0;

        for (; *text; text += *text == '\n') {
                text += strcspn(text, "\n");
                n++;
        }
        return n;
}

bool page_move(Page *p, size_t lines, int key) {
        switch (key) {

        case KEY_UP:
                p->first -= MIN(p->first, (size_t) 1);
                return true;
        case KEY_DOWN:
                p->first++;
                return true;
        case KEY_PAGE_UP:
                p->first -= MIN(p->first, lines);
                return true;
        case KEY_PAGE_DOWN:
                p->first += lines;
                return true;
        case KEY_HOME:
                p->first = 0;
                return true;
        case KEY_END:
                p->first = PAGE_SIZE_LIMIT;
                return true;
        default:
                return false;
        }
}

const char* page_get_text(Page *p, size_t lines, size_t *ret_first, size_t *ret_count) {
        const char *text = p->text;
        size_t n;

        if (!text)
                return NULL;

        n = count_lines(text);
        p->first = MIN(p->first, n > lines ? n - lines : 0);
        for (size_t i = 0; i < p->first; i++) {
                text += strcspn(text, "\n");
                text += *text == '\n';
        }
        *ret_first = p->first;
        *ret_count = n;
        return text;
}
