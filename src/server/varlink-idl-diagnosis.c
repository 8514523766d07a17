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
                FIELD_COMMENT("Threads wait for CPUs that others use"),
                SD_VARLINK_DEFINE_ENUM_VALUE(cpu),
                FIELD_COMMENT("The CPU quota is used up"),
                SD_VARLINK_DEFINE_ENUM_VALUE(quota),
                FIELD_COMMENT("Threads wait for files and block devices, used by the unit or by others"),
                SD_VARLINK_DEFINE_ENUM_VALUE(disk),
                FIELD_COMMENT("Threads wait for locks"),
                SD_VARLINK_DEFINE_ENUM_VALUE(lock),
                FIELD_COMMENT("Peers respond late, or requests to them fail; such a failure has no share"),
                SD_VARLINK_DEFINE_ENUM_VALUE(dependency),
                FIELD_COMMENT("Threads wait for memory: page faults, reclaim, file pages that are read "
                              "again"),
                SD_VARLINK_DEFINE_ENUM_VALUE(memory),
                FIELD_COMMENT("The path to the clients is slow, or the clients"),
                SD_VARLINK_DEFINE_ENUM_VALUE(network),
                FIELD_COMMENT("The unit writes responses in parts, which wait for acknowledgements of "
                              "the client (TCP_NODELAY is not set)"),
                SD_VARLINK_DEFINE_ENUM_VALUE(nagle),
                FIELD_COMMENT("The send buffers are smaller than what the path and the clients take"),
                SD_VARLINK_DEFINE_ENUM_VALUE(sendBuffer),
                FIELD_COMMENT("Clients read too slowly: their receive windows are closed"),
                SD_VARLINK_DEFINE_ENUM_VALUE(receiveWindow),
                FIELD_COMMENT("The application is at a limit of its own: its CPUs, one busy process or "
                              "thread, or its number of workers"),
                SD_VARLINK_DEFINE_ENUM_VALUE(limit),
                FIELD_COMMENT("There are more requests than in the baseline, or each takes more work"),
                SD_VARLINK_DEFINE_ENUM_VALUE(workload),
                FIELD_COMMENT("The unit does not run"),
                SD_VARLINK_DEFINE_ENUM_VALUE(down),
                FIELD_COMMENT("The unit ends by itself, and the service manager restarts it"),
                SD_VARLINK_DEFINE_ENUM_VALUE(restarts),
                FIELD_COMMENT("The unit is frozen, or processes are stopped by a signal"),
                SD_VARLINK_DEFINE_ENUM_VALUE(stopped),
                FIELD_COMMENT("Connections are dropped at a full accept queue"),
                SD_VARLINK_DEFINE_ENUM_VALUE(dropped),
                FIELD_COMMENT("Requests fail: HTTP 5xx, gRPC errors, resets, timeouts, or aborts by "
                              "clients"),
                SD_VARLINK_DEFINE_ENUM_VALUE(errors),
                FIELD_COMMENT("No requests arrive, unlike usually"),
                SD_VARLINK_DEFINE_ENUM_VALUE(idle));

SD_VARLINK_DEFINE_ENUM_TYPE(
                Certainty,
                FIELD_COMMENT("The cause fits, but is not proven"),
                SD_VARLINK_DEFINE_ENUM_VALUE(possible),
                FIELD_COMMENT("The rule applies, and the cause explains a part"),
                SD_VARLINK_DEFINE_ENUM_VALUE(likely),
                FIELD_COMMENT("The rule applies, and the cause explains most"),
                SD_VARLINK_DEFINE_ENUM_VALUE(certain));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Finding,
                FIELD_COMMENT("Kind of the finding"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(kind, FindingKind, 0),
                FIELD_COMMENT("Description of the finding"),
                SD_VARLINK_DEFINE_FIELD(text, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Certainty of a finding"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(certainty, Certainty, 0),
                FIELD_COMMENT("Description of the rule that applied"),
                SD_VARLINK_DEFINE_FIELD(rule, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Command that removes the cause, or shows more"),
                SD_VARLINK_DEFINE_FIELD(next, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("State of the waiting threads, as in contention.shares"),
                SD_VARLINK_DEFINE_FIELD(state, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Device, file server, address, unit, lock, thread or process that is the "
                              "cause"),
                SD_VARLINK_DEFINE_FIELD(resource, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Unit of this cause, if it is known and another one"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mount point of the file system that threads wait for, or its device number "
                              "where it is not mounted in the mount namespace of qosd"),
                SD_VARLINK_DEFINE_FIELD(mount, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Part of the time of a request that is explained, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The same as a share, 0 to 1, of the time to first byte; for network, nagle, "
                              "sendBuffer and receiveWindow of the latency; for a unit without requests of "
                              "the time in which threads are not idle. For errors: share of requests that "
                              "fail"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ExcludedFinding,
                FIELD_COMMENT("Kind of the cause"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(kind, FindingKind, 0),
                FIELD_COMMENT("Reason why it is excluded"),
                SD_VARLINK_DEFINE_FIELD(text, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Share of the time, as in a finding; absent for causes that take no time"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                DiagnosisFigures,
                FIELD_COMMENT("Length of the interval, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(covered, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests with a response, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("HTTP responses with status 4xx, per second"),
                SD_VARLINK_DEFINE_FIELD(status4xx, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
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
                FIELD_COMMENT("Mean time to the first byte of the response, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(firstByte, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean time from the first byte of a request to its last, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(receive, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean time from the last byte of a request until the application has read it, "
                              "in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(queue, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean time from the read until the first byte of the response leaves, in "
                              "nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(service, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean time from the first byte of the response to its last, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(answer, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean number of bytes of a request"),
                SD_VARLINK_DEFINE_FIELD(bytesIn, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean number of bytes of a response"),
                SD_VARLINK_DEFINE_FIELD(bytesOut, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests in flight at the end"),
                SD_VARLINK_DEFINE_FIELD(inFlight, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Age of the oldest of these, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(oldestInFlight, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests without any response byte at the end"),
                SD_VARLINK_DEFINE_FIELD(waiting, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Age of the oldest of these, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(oldestWaiting, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Share of the interval in which at least one request was in flight"),
                SD_VARLINK_DEFINE_FIELD(serving, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Retransmitted segments, per second"),
                SD_VARLINK_DEFINE_FIELD(retransmits, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of connections on which the last written segment waits for an "
                              "acknowledgement (Nagle's algorithm)"),
                SD_VARLINK_DEFINE_FIELD(sendNagle, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of connections on which it waits for the application "
                              "(TCP_CORK)"),
                SD_VARLINK_DEFINE_FIELD(sendCork, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of connections on which data waits for the client to read, as "
                              "its receive window is closed or shrinks"),
                SD_VARLINK_DEFINE_FIELD(sendWindow, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of connections on which data waits as the receive window of "
                              "the client is full of unacknowledged data"),
                SD_VARLINK_DEFINE_FIELD(sendWindowFull, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of connections on which the application waits for space in "
                              "the send buffer, while nothing is unsent"),
                SD_VARLINK_DEFINE_FIELD(sendBuffer, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of connections on which data waits for the path: the "
                              "congestion window, a retransmission, a queue"),
                SD_VARLINK_DEFINE_FIELD(sendPath, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of connections on which data waits for another reason, or is "
                              "about to be sent"),
                SD_VARLINK_DEFINE_FIELD(sendOther, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Smoothed round-trip time of all these connections, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(sendRtt, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Dropped connection attempts, per second"),
                SD_VARLINK_DEFINE_FIELD(listenDrops, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests of the unit to peers with a response, per second"),
                SD_VARLINK_DEFINE_FIELD(clientRate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean latency of these requests, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(clientLatency, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections that peers refused or ended, or that timed out, with a request "
                              "in flight, per second"),
                SD_VARLINK_DEFINE_FIELD(peerErrors, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("HTTP/1 responses of peers with status 5xx, per second"),
                SD_VARLINK_DEFINE_FIELD(peerStatus5xx, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Error replies of peers that are Redis or memcached, per second"),
                SD_VARLINK_DEFINE_FIELD(peerErrorReplies, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean time for which the thread of a request waited in park and poll until "
                              "the thread of another request woke it, in nanoseconds; absent unless nine of "
                              "ten requests get their response from the thread that read them"),
                SD_VARLINK_DEFINE_FIELD(blockedByRequests, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean run-queue wait in the service time of a request, in nanoseconds; absent "
                              "unless half of the requests get their response from the thread that read "
                              "them"),
                SD_VARLINK_DEFINE_FIELD(serviceRunQueue, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean lock wait in the service time of a request, in nanoseconds; absent "
                              "unless nine of ten requests get their response from the thread that read "
                              "them"),
                SD_VARLINK_DEFINE_FIELD(serviceLock, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean wait of a ready thread for a CPU, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(runQueueWait, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of threads that waited for a CPU used by other threads of the "
                              "unit, as far as the user is known"),
                SD_VARLINK_DEFINE_FIELD(runQueueOwn, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of threads that waited for a CPU used by other units or by "
                              "the kernel, as far as the user is known"),
                SD_VARLINK_DEFINE_FIELD(runQueueOthers, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of CPUs that the threads may use"),
                SD_VARLINK_DEFINE_FIELD(cpus, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of these that were idle"),
                SD_VARLINK_DEFINE_FIELD(idleCpus, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of CPUs used by the busiest thread"),
                SD_VARLINK_DEFINE_FIELD(busiestThread, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of CPUs used by the busiest process"),
                SD_VARLINK_DEFINE_FIELD(busiestProcess, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Share of the periods in which the CPU quota was used up"),
                SD_VARLINK_DEFINE_FIELD(throttled, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Pages read from block devices, per second"),
                SD_VARLINK_DEFINE_FIELD(reads, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Page faults that waited for a device, per second"),
                SD_VARLINK_DEFINE_FIELD(majorFaults, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("File pages that had been in memory and were read again, per second"),
                SD_VARLINK_DEFINE_FIELD(refaults, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Processes killed by the OOM killer, per second"),
                SD_VARLINK_DEFINE_FIELD(oomKills, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of threads in each state"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(threads, StateShares, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                BaselinePeriod,
                FIELD_COMMENT("Begin of the first step, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(since, SD_VARLINK_INT, 0),
                FIELD_COMMENT("End of the last step, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(until, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Total length of the steps, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(covered, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                CpuCompetitor,
                FIELD_COMMENT("Unit, \"the kernel\", or name of the thread"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Name of the unit, if it is one"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of threads that waited meanwhile"),
                SD_VARLINK_DEFINE_FIELD(threads, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Dependency,
                FIELD_COMMENT("Address of the peer"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Attached unit that listens there"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mean latency of requests to the peer, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests to the peer with a response, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests without a response, per second: the peer refused or ended the "
                              "connection, or it timed out"),
                SD_VARLINK_DEFINE_FIELD(errors, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("HTTP/1 responses of the peer with status 5xx, per second"),
                SD_VARLINK_DEFINE_FIELD(status5xx, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Error replies of Redis and memcached, per second"),
                SD_VARLINK_DEFINE_FIELD(errorReplies, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Connections that the unit closed with a request in flight, or before they "
                              "were established, per second"),
                SD_VARLINK_DEFINE_FIELD(aborts, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Device,
                FIELD_COMMENT("Name of the device"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Other unit that used the device most, if it is known"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Share of the unit in the bytes to and from the device"),
                SD_VARLINK_DEFINE_FIELD(share, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Requests of the unit to the device, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ContendedLock,
                FIELD_COMMENT("Symbol of the lock (\"program:symbol\"), or its address; for a wait that a "
                              "signal ended, the thread that received it"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Name and ID of the thread that released it most often to a waiting thread"),
                SD_VARLINK_DEFINE_FIELD(holder, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Average number of waiting threads"),
                SD_VARLINK_DEFINE_FIELD(threads, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Waits for the lock, per second"),
                SD_VARLINK_DEFINE_FIELD(rate, SD_VARLINK_FLOAT, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                BeginDiagnosis,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0));

SD_VARLINK_DEFINE_METHOD(
                Diagnose,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Length of the interval, in nanoseconds: a multiple of 1 s up to 10 s, 60 s "
                              "or 5 min. Default: the configured window"),
                SD_VARLINK_DEFINE_INPUT(window, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Whether to end the interval that BeginDiagnosis() began for this unit on "
                              "this connection, as soon as it lasts 1 s, instead of observing the unit for "
                              "a window. Not together with a window. The figures of requests are those of "
                              "the last full seconds, up to 10, of 60 s or of 5 min. Default: no"),
                SD_VARLINK_DEFINE_INPUT(sinceBegin, SD_VARLINK_BOOL, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Figures of an earlier reply as the baseline; a wait that has not changed is "
                              "no finding then. Default: a baseline from the history, if there is one"),
                SD_VARLINK_DEFINE_INPUT_BY_TYPE(baseline, DiagnosisFigures, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Name of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(unit, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("End of the interval, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Result of the diagnosis"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(verdict, Verdict, 0),
                FIELD_COMMENT("Verdict in one line, by the first finding"),
                SD_VARLINK_DEFINE_OUTPUT(summary, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Description of the rate and times of requests, or of the state of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(text, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Failures and bottlenecks, at most one of each kind: failures first, then "
                              "those that explain most"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(findings, Finding, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Causes that were examined and excluded"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(excluded, ExcludedFinding, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Figures of the interval"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(figures, DiagnosisFigures, 0),
                FIELD_COMMENT("Figures of the baseline"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(baseline, DiagnosisFigures, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Period of the baseline, if it is from the history"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(baselineSource, BaselinePeriod, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Users of the CPUs that threads of the unit waited for: at most three, in "
                              "descending order of time"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(users, CpuCompetitor, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Peers: at most three, in descending order of the time that the unit waited "
                              "for them"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(peers, Dependency, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Devices: at most three, in descending order of time"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(devices, Device, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Locks: at most three, in descending order of time"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(locks, ContendedLock, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Other waits that the thread of another request ended, by target: at most "
                              "three, in descending order of time"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(blockedByRequests, ContendedLock,
                                                 SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));
