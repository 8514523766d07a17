/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <systemd/sd-login.h>

#include "qosctl.h"
#include "terminal.h"

/* Order as in systemd. */
static const char *const pagers[] = { "pager", "less", "more", "cat" };

static pid_t pager_pid;

/* Whether to use the secure mode, by the rules of systemd: a pager with elevated privileges must not start a
 * shell. */
static bool pager_is_secure(void) {
        uid_t owner;
        int r;

        r = parse_boolean(getenv("SYSTEMD_PAGERSECURE"));
        if (r >= 0)
                return r;

        r = sd_pid_get_owner_uid(0, &owner);
        return r < 0 ? geteuid() != getuid() : owner != geteuid();
}

_Noreturn static void pager_run(const char *pager, bool secure) {
        /* As in systemd: quit if one screen, colors, chop long lines, long prompt, no init, quit on ^C */
        (void) setenv("LESS", getenv("SYSTEMD_LESS") ?: "FRSXMK", 1);
        if (getenv("SYSTEMD_LESSCHARSET") || terminal_style()->utf8)
                (void) setenv("LESSCHARSET", getenv("SYSTEMD_LESSCHARSET") ?: "utf-8", 1);
        if (secure)
                (void) setenv("LESSSECURE", "1", 1);
        else
                (void) unsetenv("LESSSECURE");

        /* The pager is killed along with qosctl */
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);

        if (pager)
                (void) execlp("sh", "sh", "-c", pager, NULL);

        for (size_t i = 0; i < ELEMENTSOF(pagers); i++)
                /* Only less has a secure mode */
                if (!secure || streq(pagers[i], "less"))
                        (void) execlp(pagers[i], pagers[i], NULL);

        (void) execlp("cat", "cat", NULL);
        _exit(EXIT_FAILURE);
}

void pager_open(void) {
        const char *pager = NULL, *term = getenv("TERM");
        bool secure;
        int fds[2];

        if (arg_no_pager || pager_pid > 0 || !terminal_is_tty() || isempty(term) || streq(term, "dumb"))
                return;

        secure = pager_is_secure();
        /* In secure mode custom pagers are used only if SYSTEMD_PAGERSECURE is set */
        if (!secure || getenv("SYSTEMD_PAGERSECURE")) {
                pager = getenv("SYSTEMD_PAGER");
                if (!pager)
                        pager = getenv("PAGER");
                if (pager && (isempty(pager) || streq(pager, "cat")))
                        return;
        }

        /* Determine width and colors while standard output is the terminal */
        (void) terminal_style();

        /* Without a pager, print directly */
        if (pipe2(fds, O_CLOEXEC) < 0)
                return;

        (void) fflush(stdout);
        pager_pid = fork();
        if (pager_pid < 0) {
                (void) close(fds[0]);
                (void) close(fds[1]);
                pager_pid = 0;
                return;
        }
        if (pager_pid == 0) {
                (void) dup2(fds[0], STDIN_FILENO);
                pager_run(pager, secure);
        }

        (void) dup2(fds[1], STDOUT_FILENO);
        /* Send messages through the pager, in order with the output */
        if (isatty(STDERR_FILENO) > 0)
                (void) dup2(fds[1], STDERR_FILENO);
        (void) close(fds[0]);
        (void) close(fds[1]);
        /* The pager may exit early */
        (void) signal(SIGPIPE, SIG_IGN);
}

void pager_close(void) {
        if (pager_pid <= 0)
                return;

        (void) fflush(stdout);
        /* EOF for the pager */
        (void) close(STDOUT_FILENO);
        (void) close(STDERR_FILENO);
        (void) kill(pager_pid, SIGCONT);
        while (waitpid(pager_pid, NULL, 0) < 0 && errno == EINTR)
                ;
        pager_pid = 0;
}
