/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "client.h"
#include "connect.h"
#include "qosctl.h"
#include "snapshot.h"
#include "terminal.h"
#include "value.h"

/* ConnectTimeout= of ssh for one of several hosts, in seconds. Shorter than HOST_TIMEOUT, so that ssh
 * reports the error. */
#define HOST_CONNECT_SEC "10"

/* Socket for root only, so that other users cannot fill its accept queue. */
#define ADDRESS_ROOT QOS_ADDRESS ".root"

static pid_t agent_pid;         /* polkit agent; 0: none */

static const char* address(void) {
        return secure_getenv("QOSD_ADDRESS") ?: QOS_ADDRESS;
}

void child_prepare(void) {
        sigset_t none;

        (void) sigemptyset(&none);
        (void) sigprocmask(SIG_SETMASK, &none, NULL);
        (void) prctl(PR_SET_PDEATHSIG, SIGTERM);
}

/* Parses "[user@]host[:port]" as systemctl does; the host may be an IPv6 address in brackets. */
static int split_host(const char *s, char **ret_host, char **ret_port) {
        _cleanup_free_ char *host = NULL, *port = NULL;
        const char *colon, *open, *close;

        open = strchr(s, '[');
        close = open ? strchr(open, ']') : NULL;
        colon = close ? (close[1] == ':' ? close + 1 : NULL) : strchr(s, ':');
        /* Several colons, but no brackets: an IPv6 address without port */
        if (!close && colon && strchr(colon + 1, ':'))
                colon = NULL;

        if (colon) {
                port = strdup(colon + 1);
                host = strndup(s, (size_t) (colon - s));
        } else
                host = strdup(s);
        if (!host || (colon && !port))
                return -ENOMEM;

        if (close) {
                size_t a = (size_t) (open - s), b = (size_t) (close - s);

                memmove(host + b, host + b + 1, strlen(host + b + 1) + 1);
                memmove(host + a, host + a + 1, strlen(host + a + 1) + 1);
        }

        *ret_host = TAKE_PTR(host);
        *ret_port = TAKE_PTR(port);
        return 0;
}

/* Connects to the Unix socket of the other host with "ssh -W", which needs nothing but sshd and qosd
 * there. */
static int connect_ssh(Client *c) {
        _cleanup_free_ char *host = NULL, *port = NULL;
        const char *ssh = secure_getenv("SYSTEMD_SSH") ?: "ssh";
        _cleanup_close_ int ours = -EBADF, theirs = -EBADF;
        const char *argv[14];
        size_t n = 0;
        int r, fds[2];

        r = split_host(arg_host, &host, &port);
        if (r < 0)
                return r;

        argv[n++] = ssh;
        argv[n++] = "-xT";
        if (arg_hosts && arg_hosts[1]) {
                /* No prompts, as several hosts share the terminal */
                argv[n++] = "-oBatchMode=yes";
                argv[n++] = "-oConnectTimeout=" HOST_CONNECT_SEC;
        }
        if (port) {
                argv[n++] = "-p";
                argv[n++] = port;
        }
        argv[n++] = "-W";
        argv[n++] = address();
        argv[n++] = "--";
        argv[n++] = host;
        argv[n++] = NULL;
        assert(n <= ELEMENTSOF(argv));

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                return -errno;
        ours = fds[0];
        theirs = fds[1];

        c->ssh = fork();
        if (c->ssh < 0) {
                c->ssh = 0;
                return -errno;
        }
        if (c->ssh == 0) {
                child_prepare();
                /* Ctrl+C is handled by this program and must not end ssh */
                (void) signal(SIGINT, SIG_IGN);
                if (dup2(theirs, STDIN_FILENO) < 0 || dup2(theirs, STDOUT_FILENO) < 0)
                        _exit(EXIT_FAILURE);
                (void) execvp(ssh, (char**) argv);
                (void) fprintf(stderr, "Failed to run '%s': %m\n", ssh);
                _exit(EXIT_FAILURE);
        }

        r = sd_varlink_connect_fd(&c->link, ours);
        if (r >= 0)
                (void) TAKE_FD(ours);
        return r;
}

/* Time to wait while the accept queue of qosd is full. */
#define CONNECT_USEC USEC_PER_SEC

/* As sd_varlink_connect_address(), which fails if the accept queue is full. */
static int connect_local(sd_varlink **ret) {
        const char *path = address();
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (*path != '/')
                return sd_varlink_connect_address(ret, path);

        if (geteuid() == 0 && streq(path, QOS_ADDRESS))
                fd = unix_connect(ADDRESS_ROOT, CONNECT_USEC);
        if (fd < 0)
                fd = unix_connect(path, CONNECT_USEC);
        if (fd < 0)
                return fd == -EAGAIN ? -ETIMEDOUT : fd;

        r = sd_varlink_connect_fd(ret, fd);
        if (r >= 0)
                (void) TAKE_FD(fd);
        return r;
}

int client_connect_quiet(Client **ret) {
        _cleanup_client_ Client *c = NULL;
        int r;

        c = new0(Client, 1);
        if (!c)
                return -ENOMEM;

        r = arg_host ? connect_ssh(c) : connect_local(&c->link);
        if (r < 0)
                return r;

        (void) sd_varlink_set_description(c->link, "qosd");
        *ret = TAKE_PTR(c);
        return 0;
}

int client_connect(Client **ret) {
        int r;

        r = client_connect_quiet(ret);
        if (r >= 0)
                return 0;
        if (arg_host)
                return log_failure(r, "Failed to run ssh to '%s': %m", arg_host);
        return log_failure(r, "Failed to connect to qosd (%s): %m.%s", address(),
                               r == -ENOENT || r == -ECONNREFUSED ? " Is qosd.service running?" : "");
}

int client_connect_to_change(Client **ret) {
        int r;

        r = client_connect(ret);
        if (r < 0)
                return r;

        polkit_agent_open();
        /* Entering a password may take any time */
        (void) sd_varlink_set_relative_timeout((*ret)->link, UINT64_MAX);
        return 0;
}

Client* client_free(Client *c) {
        if (!c)
                return NULL;

        (void) sd_varlink_close_unref(c->link);
        if (c->ssh > 0) {
                (void) kill(c->ssh, SIGTERM);
                while (waitpid(c->ssh, NULL, 0) < 0 && errno == EINTR)
                        ;
        }
        free(c);
        return NULL;
}

typedef struct Collection {
        Replies *replies;
        bool done;
        int error;
} Collection;

static int on_reply(sd_varlink *link, sd_json_variant *parameters, const char *error_id,
                    sd_varlink_reply_flags_t flags, void *userdata) {

        Collection *c = ASSERT_PTR(userdata);

        c->error = replies_add(c->replies, parameters, error_id);
        c->done = c->error < 0 || !(flags & SD_VARLINK_REPLY_CONTINUES);
        return 0;
}

static struct {
        uint64_t (*get_timeout)(void);
        void (*draw)(void);             /* NULL: none */
} wait_handler;

void client_set_wait_handler(uint64_t (*get_timeout)(void), void (*draw)(void)) {
        wait_handler.get_timeout = get_timeout;
        wait_handler.draw = draw;
}

static int client_call_internal(Client *c, const char *method, int r, sd_json_variant *parameters, bool more,
                                Replies *ret) {

        _cleanup_json_ sd_json_variant *v = parameters;
        Collection collection = { .replies = ret };

        *ret = REPLIES_INIT;
        if (r < 0)
                return r;

        (void) sd_varlink_set_userdata(c->link, &collection);
        r = sd_varlink_bind_reply(c->link, on_reply);
        if (r < 0)
                return r;

        r = more ? sd_varlink_observe(c->link, method, v) : sd_varlink_invoke(c->link, method, v);
        if (r < 0)
                return r;

        while (!collection.done) {
                r = sd_varlink_process(c->link);
                if (r < 0)
                        return r;
                if (r > 0)
                        continue;
                /* The progress must not overwrite a prompt of the agent */
                r = sd_varlink_wait(c->link, wait_handler.draw && agent_pid <= 0 ?
                                                     wait_handler.get_timeout() :
                                                     UINT64_MAX);
                if (r < 0)
                        return r;
                if (r == 0 && wait_handler.draw && agent_pid <= 0)
                        wait_handler.draw();
        }

        if (collection.error < 0)
                return collection.error;
        /* Synthesized by sd-varlink for a closed connection, and for a timeout */
        if (streq_ptr(ret->error, SD_VARLINK_ERROR_DISCONNECTED))
                return -ECONNRESET;
        if (streq_ptr(ret->error, SD_VARLINK_ERROR_TIMEOUT))
                return -ETIMEDOUT;
        return !!ret->error;
}

int client_call(Client *c, const char *method, int r, sd_json_variant *parameters, Replies *ret) {
        r = client_call_internal(c, method, r, parameters, false, ret);
        return r == 0 && ret->n != 1 ? -EBADMSG : r;
}

int client_call_more(Client *c, const char *method, int r, sd_json_variant *parameters, Replies *ret) {
        r = client_call_internal(c, method, r, parameters, true, ret);
        if (r > 0 && streq(ret->error, QOS_METHOD("NoEntries"))) {
                replies_done(ret);
                return 0;
        }
        return r;
}

uint64_t client_get_minimum_samples(Client *c) {
        if (c->minimum_samples == 0) {
                _cleanup_replies_ Replies replies = REPLIES_INIT;
                int r;

                r = client_call(c, QOS_METHOD("GetStatus"), 0, NULL, &replies);
                /* Optional: on failure the default is used */
                if (r != 0 || !value_unsigned(replies.items[0], "minimumSamples", &c->minimum_samples))
                        c->minimum_samples = SAMPLES_MIN;
        }
        return c->minimum_samples;
}

char* client_error_message(int r, const char *error, sd_json_variant *parameters) {
        char *s = NULL;
        const char *message, *field;

        if (r < 0) {
                if ((r == -ECONNRESET || r == -EPIPE) && arg_host)
                        s = strdup("connection closed; check that the host is reachable with ssh and that "
                                   "qosd.service is running on it");
                else if (r == -ECONNRESET || r == -EPIPE)
                        s = strdup("qosd closed the connection");
                else if (r == -ETIMEDOUT || r == -ETIME)
                        s = strdup("timed out waiting for a response from qosd");
                else if (r == -EUCLEAN)
                        s = strdup("the name is not valid UTF-8");
                else if (r == -EBADMSG)
                        s = strdup("received an invalid response from qosd");
                else
                        s = strdup(strerror(-r));
                return s;
        }

        message = value_string(parameters, "message");
        if (message)
                return strdup(message);

        if (streq(error, SD_VARLINK_ERROR_PERMISSION_DENIED))
                return strdup("access denied");
        if (streq(error, SD_VARLINK_ERROR_INTERACTIVE_AUTHENTICATION_REQUIRED))
                return strdup("authentication is required, run it as root or on a terminal with polkit");
        if (streq(error, SD_VARLINK_ERROR_INVALID_PARAMETER)) {
                field = value_string(parameters, "parameter");
                if (streq_ptr(field, "window") && arg_window_text)
                        return asprintf(&s, "invalid window '%s', expected " WINDOW_EXPECTED,
                                        arg_window_text) < 0 ? NULL : s;
                if (streq_ptr(field, "interval") && arg_interval_text)
                        return asprintf(&s,
                                        "invalid interval '%s', expected IntervalMinSec= of qosd.conf "
                                        "(default: 100ms) to 1d",
                                        arg_interval_text) < 0 ? NULL : s;
                if (streq_ptr(field, "since"))
                        return strdup("invalid time, expected a time in the past (by the clock of the host "
                                      "of qosd)");
                if (asprintf(&s, "invalid value for parameter '%s'", field ?: "?") < 0)
                        return NULL;
                return s;
        }
        if (streq(error, SD_VARLINK_ERROR_METHOD_NOT_FOUND) ||
            streq(error, SD_VARLINK_ERROR_METHOD_NOT_IMPLEMENTED) ||
            streq(error, SD_VARLINK_ERROR_INTERFACE_NOT_FOUND))
                return strdup("not supported by this version of qosd");

        return strdup(error);
}

int client_fail(int r, const Replies *replies, const char *format, ...) {
        _cleanup_free_ char *what = NULL, *why = NULL;
        va_list ap;
        int k;

        va_start(ap, format);
        k = vasprintf(&what, format, ap);
        va_end(ap);
        if (k < 0) {
                what = NULL;
                return log_out_of_memory();
        }

        why = client_error_message(r, replies->error, replies->parameters);
        if (!why)
                return log_out_of_memory();
        k = strlen(why);
        while (k > 0 && why[k - 1] == '.')
                why[--k] = 0;

        (void) log_failure(r < 0 ? r : -EIO, "Failed to %s: %s%s", what, why, endswith(why, "?") ? "" : ".");

        if (r < 0)
                return STATUS_FAILED;
        if (streq(replies->error, QOS_METHOD("NoSuchUnit")))
                return STATUS_NO_SUCH_UNIT;
        if (streq(replies->error, QOS_METHOD("NotAttached")))
                return STATUS_NOT_ATTACHED;
        if (streq(replies->error, QOS_METHOD("NoSuchProbe")) ||
            streq(replies->error, QOS_METHOD("InvalidExclude")) ||
            (streq(replies->error, SD_VARLINK_ERROR_INVALID_PARAMETER) &&
             (streq_ptr(value_string(replies->parameters, "parameter"), "window") ||
              streq_ptr(value_string(replies->parameters, "parameter"), "interval"))))
                return STATUS_USAGE;
        return STATUS_FAILED;
}

/* ---- polkit agent ------------------------------------------------------------------------------------- */

void polkit_agent_open(void) {
        int fds[2];
        char number[16];

        /* Not required, not permitted, or no terminal. polkit of another host cannot use this terminal */
        if (agent_pid > 0 || !arg_ask_password || arg_host || geteuid() == 0 || isatty(STDIN_FILENO) <= 0)
                return;

        if (pipe2(fds, 0) < 0)
                return;
        (void) fcntl(fds[0], F_SETFD, FD_CLOEXEC);
        (void) snprintf(number, sizeof(number), "%d", fds[1]);

        agent_pid = fork();
        if (agent_pid < 0)
                agent_pid = 0;
        else if (agent_pid == 0) {
                _cleanup_close_ int tty = -EBADF;

                child_prepare();
                /* The agent prompts on the terminal, wherever the output is redirected */
                tty = open("/dev/tty", O_WRONLY | O_CLOEXEC);
                if (tty >= 0) {
                        (void) dup2(tty, STDOUT_FILENO);
                        (void) dup2(tty, STDERR_FILENO);
                }
                (void) execlp("pkttyagent", "pkttyagent", "--notify-fd", number, "--fallback", NULL);
                _exit(EXIT_FAILURE);
        }
        (void) close(fds[1]);

        /* The agent closes its end once registered with polkit, or when it exits */
        if (agent_pid > 0) {
                char byte;

                while (read(fds[0], &byte, 1) < 0 && errno == EINTR)
                        ;
        }
        (void) close(fds[0]);
}

void polkit_agent_close(void) {
        if (agent_pid <= 0)
                return;

        /* It may be stopped as a background process */
        (void) kill(agent_pid, SIGTERM);
        (void) kill(agent_pid, SIGCONT);
        while (waitpid(agent_pid, NULL, 0) < 0 && errno == EINTR)
                ;
        agent_pid = 0;
}
