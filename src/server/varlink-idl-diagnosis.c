/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Symbols about diagnoses. */

#include "varlink-idl.h"

SD_VARLINK_DEFINE_ENUM_TYPE(
                Verdict,
                FIELD_COMMENT("Neither a failure nor a bottleneck was found"),
                SD_VARLINK_DEFINE_ENUM_VALUE(nothing),
                FIELD_COMMENT("There are findings"),
                SD_VARLINK_DEFINE_ENUM_VALUE(found),
                FIELD_COMMENT("The unit is slow, or nothing is known of its requests, and no finding "
                              "explains it"),
                SD_VARLINK_DEFINE_ENUM_VALUE(unknown));

SD_VARLINK_DEFINE_ENUM_TYPE(
                FindingKind,
                FIELD_COMMENT("Its threads wait for CPUs that others use"),
                SD_VARLINK_DEFINE_ENUM_VALUE(cpu),
                FIELD_COMMENT("Its CPU quota is used up"),
                SD_VARLINK_DEFINE_ENUM_VALUE(quota),
                FIELD_COMMENT("Files and block devices, used by itself or by others"),
                SD_VARLINK_DEFINE_ENUM_VALUE(disk),
                FIELD_COMMENT("What one thread holds and others wait for"),
                SD_VARLINK_DEFINE_ENUM_VALUE(lock),
                FIELD_COMMENT("Peers respond late, or requests to them fail: then there is no share"),
                SD_VARLINK_DEFINE_ENUM_VALUE(dependency),
                FIELD_COMMENT("Page faults, reclaim, and files that were in memory before"),
                SD_VARLINK_DEFINE_ENUM_VALUE(memory),
                FIELD_COMMENT("Clients, or the way to them"),
                SD_VARLINK_DEFINE_ENUM_VALUE(network),
                FIELD_COMMENT("The unit writes responses in parts, which wait for acknowledgements of "
                              "the client (TCP_NODELAY is not set)"),
                SD_VARLINK_DEFINE_ENUM_VALUE(nagle),
                FIELD_COMMENT("The send buffers are smaller than what the path and the clients take"),
                SD_VARLINK_DEFINE_ENUM_VALUE(sendBuffer),
                FIELD_COMMENT("Clients read too slowly: their receive windows are closed"),
                SD_VARLINK_DEFINE_ENUM_VALUE(receiveWindow),
                FIELD_COMMENT("The application itself: all CPUs that it may use, one process that is busy, "
                              "or as many requests at a time as it works on"),
                SD_VARLINK_DEFINE_ENUM_VALUE(limit),
                FIELD_COMMENT("More requests, or more work for each, than the baseline has"),
                SD_VARLINK_DEFINE_ENUM_VALUE(workload),
                FIELD_COMMENT("The unit does not run"),
                SD_VARLINK_DEFINE_ENUM_VALUE(down),
                FIELD_COMMENT("The service manager restarts the unit as it ends by itself"),
                SD_VARLINK_DEFINE_ENUM_VALUE(restarts),
                FIELD_COMMENT("The unit is frozen, or processes are stopped by a signal"),
                SD_VARLINK_DEFINE_ENUM_VALUE(stopped),
                FIELD_COMMENT("Connections are dropped at a full accept queue"),
                SD_VARLINK_DEFINE_ENUM_VALUE(dropped),
                FIELD_COMMENT("Requests fail: HTTP 5xx, gRPC errors, resets, timeouts, or clients give up"),
                SD_VARLINK_DEFINE_ENUM_VALUE(errors),
                FIELD_COMMENT("No requests arrive, though there usually are some"),
                SD_VARLINK_DEFINE_ENUM_VALUE(idle));

SD_VARLINK_DEFINE_ENUM_TYPE(
                Certainty,
                FIELD_COMMENT("It may as well be something else"),
                SD_VARLINK_DEFINE_ENUM_VALUE(possible),
                FIELD_COMMENT("By its rule, and it explains a part"),
                SD_VARLINK_DEFINE_ENUM_VALUE(likely),
                FIELD_COMMENT("By its rule, and it explains most"),
                SD_VARLINK_DEFINE_ENUM_VALUE(certain));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Finding,
                FIELD_COMMENT("What it is"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(kind, FindingKind, 0),
                FIELD_COMMENT("It in words"),
                SD_VARLINK_DEFINE_FIELD(text, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("How sure it is"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(certainty, Certainty, 0),
                FIELD_COMMENT("By what rule it was found, in words"),
                SD_VARLINK_DEFINE_FIELD(rule, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("A command that mends it, or that shows more"),
                SD_VARLINK_DEFINE_FIELD(next, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The state that threads are in then, one of those of a snapshot"),
                SD_VARLINK_DEFINE_FIELD(state, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("What it is about: a device, an address, a unit, a process"),
                SD_VARLINK_DEFINE_FIELD(resource, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The unit behind that, if it is known and another one"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How much of the time of a request it explains, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same as a share of the time to the first byte, 0 to 1; with network, "
                              "nagle, sendBuffer and receiveWindow of the latency; of a unit without "
                              "requests of the time in which its threads are not idle; with errors the "
                              "share of requests that fail"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExcludedFinding,
                FIELD_COMMENT("What it would be"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(kind, FindingKind, 0),
                FIELD_COMMENT("Why it is not, in words"),
                SD_VARLINK_DEFINE_FIELD(text, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("How much of the time it is, as the share of a finding; absent if it is no "
                              "matter of time"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                DiagnosisFigures,
                FIELD_COMMENT("How long it was, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(covered, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests with a response, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("HTTP responses with status 5xx, per second"),
                SD_VARLINK_DEFINE_FIELD(status5xx, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("gRPC calls whose status reports a failure of the server, per second"),
                SD_VARLINK_DEFINE_FIELD(grpcErrors, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Error replies of Redis and memcached, per second"),
                SD_VARLINK_DEFINE_FIELD(errorReplies, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections that the unit ended with a request in flight, per second"),
                SD_VARLINK_DEFINE_FIELD(resets, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections that timed out with a request in flight, per second"),
                SD_VARLINK_DEFINE_FIELD(timeouts, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections that clients ended with a request in flight, per second"),
                SD_VARLINK_DEFINE_FIELD(clientAborts, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The time to the first byte of the response, in nanoseconds, as a mean; so "
                              "are the phases"),
                SD_VARLINK_DEFINE_FIELD(firstByte, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("From the first byte of a request to its last"),
                SD_VARLINK_DEFINE_FIELD(receive, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Until the application has read it"),
                SD_VARLINK_DEFINE_FIELD(queue, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Until the first byte of the response leaves"),
                SD_VARLINK_DEFINE_FIELD(service, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Until its last byte leaves"),
                SD_VARLINK_DEFINE_FIELD(answer, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Bytes of a request"),
                SD_VARLINK_DEFINE_FIELD(bytesIn, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Bytes of a response"),
                SD_VARLINK_DEFINE_FIELD(bytesOut, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests in flight at the end"),
                SD_VARLINK_DEFINE_FIELD(inFlight, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The age of the oldest of these, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(oldestInFlight, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Those of them without any response byte"),
                SD_VARLINK_DEFINE_FIELD(waiting, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The age of the oldest of these, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(oldestWaiting, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The share of the interval in which at least one was in flight"),
                SD_VARLINK_DEFINE_FIELD(serving, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Segments that were retransmitted, per second"),
                SD_VARLINK_DEFINE_FIELD(retransmits, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections of which the last segment of what was written waits for an "
                              "acknowledgement (Nagle's algorithm), on average"),
                SD_VARLINK_DEFINE_FIELD(sendNagle, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Those of which it waits for the application (TCP_CORK)"),
                SD_VARLINK_DEFINE_FIELD(sendCork, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Those whose data waits for the client to read, as its receive window is "
                              "closed or shrinks"),
                SD_VARLINK_DEFINE_FIELD(sendWindow, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Those whose data waits as the receive window of the client is full of data "
                              "that is not acknowledged"),
                SD_VARLINK_DEFINE_FIELD(sendWindowFull, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Those whose application waits for space in the send buffer, of which nothing "
                              "is unsent"),
                SD_VARLINK_DEFINE_FIELD(sendBuffer, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Those whose data waits for the path: the congestion window, a "
                              "retransmission, a queue"),
                SD_VARLINK_DEFINE_FIELD(sendPath, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Those whose data waits for something else, or is about to be sent"),
                SD_VARLINK_DEFINE_FIELD(sendOther, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The smoothed round-trip time of all these connections, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(sendRtt, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connection attempts that were dropped, per second"),
                SD_VARLINK_DEFINE_FIELD(listenDrops, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests that the unit made, per second"),
                SD_VARLINK_DEFINE_FIELD(clientRate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The time until the first byte of their response, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(clientLatency, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections that peers refused or ended, or that timed out, with a request "
                              "in flight, per second"),
                SD_VARLINK_DEFINE_FIELD(peerErrors, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("HTTP/1 responses of peers with status 5xx, per second"),
                SD_VARLINK_DEFINE_FIELD(peerStatus5xx, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Error replies of peers that are Redis or memcached, per second"),
                SD_VARLINK_DEFINE_FIELD(peerErrorReplies, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How long the thread of a request waited, in the states park and poll, "
                              "until that of another one woke it, in nanoseconds; where nine of ten "
                              "requests get their response from the thread that has read them"),
                SD_VARLINK_DEFINE_FIELD(blockedByRequests, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How much of its service time the thread of a request was ready while "
                              "others had its CPU, in nanoseconds; where half of the requests get their "
                              "response from the thread that has read them"),
                SD_VARLINK_DEFINE_FIELD(serviceRunQueue, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How much of its service time the thread of a request waited for a lock, in "
                              "nanoseconds; where nine of ten requests get their response from the thread "
                              "that has read them"),
                SD_VARLINK_DEFINE_FIELD(serviceLock, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How long a thread that was ready waited for a CPU, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(runQueueWait, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Threads that waited for a CPU that others of the unit had, on average; as "
                              "far as these are known"),
                SD_VARLINK_DEFINE_FIELD(runQueueOwn, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Threads that waited for a CPU that others had, or the kernel; as far as that "
                              "is known"),
                SD_VARLINK_DEFINE_FIELD(runQueueOthers, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("CPUs that its threads may use"),
                SD_VARLINK_DEFINE_FIELD(cpus, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How many of these were idle"),
                SD_VARLINK_DEFINE_FIELD(idleCpus, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("CPUs that its busiest thread used"),
                SD_VARLINK_DEFINE_FIELD(busiestThread, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("CPUs that its busiest process used"),
                SD_VARLINK_DEFINE_FIELD(busiestProcess, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The part of the periods of its CPU quota in which that was used up"),
                SD_VARLINK_DEFINE_FIELD(throttled, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Pages read from block devices, per second"),
                SD_VARLINK_DEFINE_FIELD(reads, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Page faults that waited for a device, per second"),
                SD_VARLINK_DEFINE_FIELD(majorFaults, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Pages of files that were read again, per second"),
                SD_VARLINK_DEFINE_FIELD(refaults, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Processes killed for want of memory, per second"),
                SD_VARLINK_DEFINE_FIELD(oomKills, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How many threads were in each state"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(threads, StateShares, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                BaselinePeriod,
                FIELD_COMMENT("When the first of it began, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(since, SD_VARLINK_INT, 0),
                FIELD_COMMENT("When the last of it ended"),
                SD_VARLINK_DEFINE_FIELD(until, SD_VARLINK_INT, 0),
                FIELD_COMMENT("How much of the time between these it is made of, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(covered, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                CpuCompetitor,
                FIELD_COMMENT("The unit; or \"the kernel\", or what the thread called itself"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The unit, if it is one"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Threads that waited meanwhile, on average"),
                SD_VARLINK_DEFINE_FIELD(threads, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Dependency,
                FIELD_COMMENT("Its address"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The attached unit that listens there"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The latency of its requests, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests to it with a response, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests without one, per second: it refused or ended the connection, or it "
                              "timed out"),
                SD_VARLINK_DEFINE_FIELD(errors, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("HTTP/1 responses of it with status 5xx, per second"),
                SD_VARLINK_DEFINE_FIELD(status5xx, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Error replies of Redis and memcached, per second"),
                SD_VARLINK_DEFINE_FIELD(errorReplies, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections that the unit closed with a request in flight, or before they "
                              "were established, per second"),
                SD_VARLINK_DEFINE_FIELD(aborts, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Device,
                FIELD_COMMENT("The device"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The other unit that used it most, if that is known"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The part of the bytes to and from it that is the unit's"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests of the unit to it, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ContendedLock,
                FIELD_COMMENT("Its name in the file that contains it (\"program:symbol\"), or its "
                              "address; or the thread that the signal reached that ended the wait"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The thread that let it go most often for another one, and its number"),
                SD_VARLINK_DEFINE_FIELD(holder, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Threads that wait for it, on average"),
                SD_VARLINK_DEFINE_FIELD(threads, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Waits for it, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                BeginDiagnosis,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("The name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0));

SD_VARLINK_DEFINE_METHOD(
                Diagnose,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("How long to observe it, in nanoseconds: a multiple of 1 s up to 10 s, 60 s "
                              "or 5 min. Default: the configured window"),
                SD_VARLINK_DEFINE_INPUT(window, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Whether to end the interval that BeginDiagnosis() began for this unit on "
                              "this connection, as soon as it lasts 1 s, instead of observing the unit for "
                              "a window. Not together with a window. The figures of requests are those of "
                              "the last full seconds, up to 10, of 60 s or of 5 min. Default: no"),
                SD_VARLINK_DEFINE_INPUT(sinceBegin, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("What is normal for it: the figures of an earlier reply. What has not changed "
                              "is no finding then. Default: what its history says, as far as there is one"),
                SD_VARLINK_DEFINE_INPUT_BY_TYPE(baseline, DiagnosisFigures, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("The name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("When the interval ended, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Whether there are findings"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(verdict, Verdict, 0),
                FIELD_COMMENT("The verdict in a line, by the first finding"),
                SD_VARLINK_DEFINE_OUTPUT(summary, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Rate and times of the requests, or how the unit runs, in words"),
                SD_VARLINK_DEFINE_OUTPUT(text, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Failures and bottlenecks, one of each kind at most: failures first, then "
                              "those that explain most"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(findings, Finding, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Causes that were considered and are none"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(excluded, ExcludedFinding, SD_VARLINK_ARRAY),
                FIELD_COMMENT("The figures of the interval"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(figures, DiagnosisFigures, 0),
                FIELD_COMMENT("The figures that they were compared with"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(baseline, DiagnosisFigures, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Where that is from, if it is from the unit's history"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(baselineSource, BaselinePeriod, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Others that had the CPUs that its threads waited for: three at most, those "
                              "that had them for most of that time first"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(users, CpuCompetitor, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Its peers: three at most, in the order of the time that it waited for them"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(peers, Dependency, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Devices that it used: three at most, those with most time first"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(devices, Device, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT(
                        "Locks that its threads waited for: three at most, those with most time first"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(locks, ContendedLock, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("What else they waited for until others, in the midst of a request, let them "
                              "go on: three at most, those with most time first"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(blockedByRequests, ContendedLock,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));
