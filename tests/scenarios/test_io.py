# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests count, with the times of their phases, in whatever way a server reads them and writes its responses."""

from scenario import (MSEC, Server, Talk, attach, check, count, equal, expect_total, load, lookup, server_figures,
                      smaller,
                      start_served, test, total, wait_for)
from test_count import quiet_after

DELAY = 30 * MSEC


def exact(s, number=400, connections=(1, 4, 32), **client):
    """Checks that all requests count, with their bytes and the time of each phase, on few and many connections, which
    are kept or not. Returns the figures."""
    requests = total(s)
    first = requests
    for n in connections:
        load(s, connections=n, number=smaller(number), **client)
        load(s, connections=n, number=smaller(number // 4), per_connection=1, **client)
        requests += smaller(number) + smaller(number // 4)
        expect_total(s, requests, what=f"count with {s.options} and {n} connections")
    figures = quiet_after(s)
    for d in ("latency", "firstByte", "queue", "service", "receive", "answer"):
        equal(figures[d]["count"] - first, requests - first, f"{d}.count with {s.options}")
    if first == 0:
        equal(figures["bytesIn"], requests * s.options.get("request", 64), f"bytesIn with {s.options}")
        equal(figures["bytesOut"], requests * s.options.get("response", 128), f"bytesOut with {s.options}")
    return figures


def slow(s, phase="service", least=DELAY, number=24, **client):
    """Checks that a known time that the server takes is in one phase of its requests, and not in the other one."""
    said = load(s, connections=3, number=number, **client)
    expect_total(s, number)
    figures = quiet_after(s)
    check(figures[phase]["mean"] >= least, f"{phase}.mean {figures[phase]['mean']} with {s.options}")
    # With the time that the server takes in both phases, this would be longer than what the client has seen
    both = figures["queue"]["mean"] + figures["service"]["mean"]
    check(both <= said["latency"]["mean"],
          f"queue and service {both} with {s.options}, the client's {said['latency']['mean']}")


def served(**options):
    return start_served(program="uring", **options)


@test(deadline=60)
def uring_reads():
    for options, client in (({"read": "recv"}, {}),
                            ({"read": "recv", "oneshot": True}, {}),
                            ({"read": "multishot"}, {}),
                            ({"read": "multishot", "request": 9000}, {"segments": 3, "segment_us": 200}),
                            ({"read": "bundle", "request": 9000}, {}),
                            ({"read": "recvmsg", "request": 600}, {"segments": 2, "segment_us": 200}),
                            ({"read": "recvmsg-multishot"}, {}),
                            ({"read": "read"}, {}),
                            ({"read": "readv", "request": 900}, {}),
                            ({"read": "read-fixed"}, {}),
                            ({"read": "waitall", "request": 9000}, {"segments": 3, "segment_us": 200}),
                            ({"read": "splice", "request": 9000}, {})):
        exact(served(**options), number=200, **client)
        slow(served(delay_us=DELAY // 1000, **options), **client)


@test(deadline=60)
def uring_responses():
    for options in ({"answer": "send", "response": 200000},
                    {"answer": "sendmsg", "response": 5000},
                    {"answer": "send-zc", "response": 100000},
                    {"answer": "sendmsg-zc", "response": 3000},
                    {"answer": "write"},
                    {"answer": "writev", "response": 1000},
                    {"answer": "write-fixed", "response": 30000}):
        exact(served(**options), number=200)
        slow(served(delay_us=DELAY // 1000, **options))


@test(deadline=60)
def uring_without_descriptors():
    """Requests count if their connections are only in io_uring's table of direct descriptors, if a thread of the kernel
    or a worker of io_uring reads and writes, and if io_uring calls listen()."""
    for options in ({"direct": True},
                    {"direct": True, "oneshot": True, "read": "readv"},
                    {"direct": True, "read": "multishot", "answer": "send-zc", "response": 20000},
                    {"direct": True, "read": "splice"},
                    {"sqpoll": True},
                    {"sqpoll": True, "direct": True, "read": "multishot"},
                    {"sqpoll": True, "read": "splice", "answer": "writev", "listen": True},
                    {"async": True},
                    {"async": True, "direct": True, "answer": "sendmsg", "listen": True}):
        exact(served(**options), number=200)
        slow(served(delay_us=DELAY // 1000, **options))


@test()
def uring_attached_later():
    """Connections that are in no table of files at the attach are found when they are read: their requests count from
    the attach on, and only the first one lacks the time of its arrival."""
    for options in ({"direct": True, "read": "multishot"}, {"sqpoll": True, "direct": True}, {"async": True}):
        s = Server(program="uring", **options).start()
        t = Talk(s, connections=4)
        t.say("run 5")
        attach(s)
        equal(count(s), 0, "count at attach")
        t.say("run 10")
        expect_total(s, 40)
        figures = server_figures(s)
        check(figures["latency"]["count"] >= 36, f"latency.count {figures['latency']['count']} with {options}")
        equal(lookup(figures, "connections.open"), 4, f"connections.open with {options}")
        t.end()
        # The listener has a descriptor, so that new connections are found
        load(s, connections=4, number=100, per_connection=1)
        expect_total(s, 140)
        quiet_after(s)


@test(vm="nightly")
def uring_attached_later_and_ended():
    """splice() of the end of a stream is no request, also on a connection that is found by it."""
    s = Server(program="uring", direct=True, read="splice").start()
    t = Talk(s, connections=3)
    t.say("run 5")
    attach(s)
    t.say("close")
    load(s, connections=4, number=smaller(100), per_connection=1)
    expect_total(s, smaller(100))
    quiet_after(s)
    t.end()


@test()
def uring_aborted():
    """Requests that clients abort are not in flight afterwards, though a multishot read waits for further data."""
    for options in ({"read": "multishot"}, {"direct": True, "sqpoll": True}):
        s = served(delay_us=1000000, **options)
        t = Talk(s, connections=5)
        t.say("send")
        wait_for("five are in flight", lambda: server_figures(s)["inFlight"] == 5)
        t.say("reset")
        wait_for("none is in flight", lambda: server_figures(s)["inFlight"] == 0)
        equal(total(s, "requests.server.clientAborts"), 5, f"clientAborts with {options}")
        equal(count(s), 0, f"count with {options}")
        t.end()


@test(needs_program="requests_oldest")
def uring_age_without_descriptors():
    """The age of requests on sockets that are in no table of files is known from an iterator over sockets."""
    s = served(direct=True)
    t = Talk(s, connections=3)
    t.say("run 1")
    s.kill("SIGSTOP")
    t.say("send")
    f = wait_for("three are in flight", lambda: (f := server_figures(s))["inFlight"] == 3 and f)
    check(f["oldestInFlight"] > 0, "no oldestInFlight")
    s.kill("SIGCONT")
    t.say("take")
    wait_for("none is in flight", lambda: server_figures(s)["inFlight"] == 0)
    t.end()


@test(deadline=60)
def reads():
    for options, client in (({"read": "recvmmsg", "request": 900}, {}),
                            ({"read": "recvmmsg", "request": 3000, "mode": "thread"},
                             {"segments": 3, "segment_us": 200}),
                            ({"read": "readv", "request": 900}, {}),
                            ({"read": "trunc", "request": 3000}, {"segments": 2, "segment_us": 200}),
                            ({"read": "tee", "request": 9000}, {"segments": 2, "segment_us": 200}),
                            ({"read": "splice", "request": 9000, "mode": "thread"}, {}),
                            ({"read": "waitall", "request": 9000, "mode": "thread"},
                             {"segments": 4, "segment_us": 200}),
                            ({"read": "lowat", "request": 9000, "mode": "thread"}, {"segments": 4, "segment_us": 200}),
                            ({"read": "lowat", "request": 5000}, {"segments": 2, "segment_us": 200}),
                            ({"read": "zerocopy", "request": 20480, "mode": "thread"}, {"zerocopy": True}),
                            ({"read": "zerocopy", "request": 21000, "mode": "thread"}, {"zerocopy": True})):
        exact(start_served(**options), number=200, **client)
        slow(start_served(delay_us=DELAY // 1000, **dict(options, mode="thread")), **client)


@test(deadline=60)
def answers():
    for options in ({"answer": "writev", "response": 5000},
                    {"answer": "sendmmsg", "response": 3000},
                    {"answer": "sendmmsg", "response": 300000, "mode": "thread"},
                    {"answer": "sendfile", "response": 30000},
                    {"answer": "splice", "response": 30000},
                    {"answer": "vmsplice", "response": 30000, "mode": "thread"},
                    {"answer": "zerocopy", "response": 100000, "mode": "thread"}):
        exact(start_served(**options), number=200)
        slow(start_served(delay_us=DELAY // 1000, **dict(options, mode="thread")))


@test(deadline=60)
def sockets_that_are_shared():
    """Requests count if the server uses a copy of the socket's descriptor, inherits it, or receives it from another
    process."""
    for options in ({"answer": "dup"}, {"answer": "dup", "mode": "fork"},
                    {"answer": "pass"}, {"answer": "pass", "mode": "prefork"},
                    {"mode": "pass"}, {"mode": "pass", "answer": "dup"},
                    {"mode": "fork", "answer": "pass"}):
        exact(start_served(**options), number=100)
        mode = options.get("mode")
        slow(start_served(delay_us=DELAY // 1000, **dict(options, mode=mode if mode in ("fork", "pass") else "thread")))


@test()
def peek_is_not_read():
    """A server that peeks at a request has not read it: the time until it does counts as time in the queue."""
    exact(start_served(read="peek", request=3000), segments=2, segment_us=200)
    slow(start_served(read="peek", mode="thread", peek_us=DELAY // 1000), phase="queue")
    slow(start_served(read="peek", mode="thread", delay_us=DELAY // 1000))


@test()
def peek_and_nothing_else():
    """A request that is only peeked at does not count, and is a reset when the server closes the connection."""
    s = start_served(read="peekonly", mode="thread")
    r = load(s, expect_all=False, connections=4, number=40, per_connection=1)
    equal(r["answered"], 0, "responses")
    wait_for("the server has reset 40 requests", lambda: total(s, "requests.server.errors.reset") >= 40)
    wait_for("nothing is in flight", lambda: server_figures(s)["inFlight"] == 0)
    equal(total(s, "requests.server.errors.reset"), 40, "errors.reset")
    equal(count(s), 0, "count")
    equal(lookup(server_figures(s), "service.count"), 0, "service.count")
