/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Symbols about threads and what they wait for, connections, and slow calls. */

#include "varlink-idl.h"

SD_VARLINK_DEFINE_ENUM_TYPE(
                ResourceKind,
                FIELD_COMMENT(
                        "A word in memory that threads wait on: a mutex, a condition variable, a semaphore"),
                SD_VARLINK_DEFINE_ENUM_VALUE(futex),
                FIELD_COMMENT("The sockets of one address: of a listener and all that it has accepted, or "
                              "to one peer"),
                SD_VARLINK_DEFINE_ENUM_VALUE(socket),
                FIELD_COMMENT("A pipe or FIFO"),
                SD_VARLINK_DEFINE_ENUM_VALUE(pipe),
                FIELD_COMMENT("An instance of epoll"),
                SD_VARLINK_DEFINE_ENUM_VALUE(epoll),
                FIELD_COMMENT("A file or directory, or another object behind a descriptor: eventfd, "
                              "timerfd, a terminal"),
                SD_VARLINK_DEFINE_ENUM_VALUE(file),
                FIELD_COMMENT("A lock of the kernel: a global one, or all that are taken in one function"),
                SD_VARLINK_DEFINE_ENUM_VALUE(kernel),
                FIELD_COMMENT("A CPU, by the unit that used it, which may be the same one, or the kernel; "
                              "without a unit it was idle and had to wake up"),
                SD_VARLINK_DEFINE_ENUM_VALUE(cpu),
                FIELD_COMMENT("All other targets of the state, and unknown ones"),
                SD_VARLINK_DEFINE_ENUM_VALUE(rest));

#define DEFINE_THREAD_COUNTS \
        FIELD_COMMENT("Time in each state up to now, in nanoseconds; their sum is the time since the " \
                      "thread was first seen"), \
        SD_VARLINK_DEFINE_FIELD_BY_TYPE(times, StateTimes, 0), \
        FIELD_COMMENT("Number of waits by state"), \
        SD_VARLINK_DEFINE_FIELD_BY_TYPE(waits, StateWaits, 0), \
        FIELD_COMMENT("Voluntary context switches: all waits"), \
        SD_VARLINK_DEFINE_FIELD(voluntary, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Involuntary context switches"), \
        SD_VARLINK_DEFINE_FIELD(involuntary, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Migrations to another CPU"), \
        SD_VARLINK_DEFINE_FIELD(migrations, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Number of times that it was woken"), \
        SD_VARLINK_DEFINE_FIELD(wakeUps, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("Number of threads that it has woken with futex(2)"), \
        SD_VARLINK_DEFINE_FIELD(futexWakes, SD_VARLINK_INT, 0)

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Thread,
                FIELD_COMMENT("ID of the thread; absent where qosd does not see it"),
                SD_VARLINK_DEFINE_FIELD(tid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("ID of the process; absent where qosd does not see it"),
                SD_VARLINK_DEFINE_FIELD(pid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Name of the thread"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Current state"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(state, ThreadState, 0),
                DEFINE_THREAD_COUNTS);

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ThreadsRest,
                FIELD_COMMENT("Number of threads"),
                SD_VARLINK_DEFINE_FIELD(threads, SD_VARLINK_INT, 0),
                DEFINE_THREAD_COUNTS);

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Waker,
                FIELD_COMMENT("Name of the thread"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("ID of the thread; absent where qosd does not see it"),
                SD_VARLINK_DEFINE_FIELD(tid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Unit of the thread; absent if it is not known"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of waits that it has ended: a lower bound, without those from before "
                              "it was one of the three with most"),
                SD_VARLINK_DEFINE_FIELD(waits, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Resource,
                FIELD_COMMENT("State of the waiting threads"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(state, ThreadState, 0),
                FIELD_COMMENT("Kind of the target"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(kind, ResourceKind, 0),
                FIELD_COMMENT("Name of the target. Futex: the variable that contains it "
                              "(\"libfoo.so:the_lock\"), or its offset in the file. Socket: the unit that "
                              "listens at the address, or the address. File: its name without the "
                              "directory. Lock of the kernel: its name (\"cgroup_mutex\"), or the function "
                              "that takes it (\"lock in pipe_write()\"). CPU: the unit that had it, or the "
                              "name of the control group, preceded by \"../\" if that is outside qosd's "
                              "root"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Address in memory or of the socket, or file system and inode"),
                SD_VARLINK_DEFINE_FIELD(address, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Attached unit on this machine that listens at the address, or unit that had "
                              "the CPU: the first one below the slices, or a unit inside it if root owns "
                              "its control group; for any other group inside it, which may have any name, "
                              "the path from that unit on (\"a.service/b.service\"). Units that have ended "
                              "keep their names"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Control group that had the CPU, if it still exists; one of them if several "
                              "of the unit had it"),
                SD_VARLINK_DEFINE_FIELD(controlGroup, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Process of a target that belongs to one process"),
                SD_VARLINK_DEFINE_FIELD(pid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Number of waits, including those in progress except for a CPU"),
                SD_VARLINK_DEFINE_FIELD(waits, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Time of the waits, in nanoseconds, including those in progress up to now"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Threads that have ended most of the waits for locks, futexes and pipes, and "
                              "of those in epoll_wait(2) with a signal: at most three. A thread that ends a "
                              "wait for a lock has held it"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(wakers, Waker, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                Threads,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Threads, at most 1000: those that were running, ready, or waiting for locks, "
                              "disks and memory for longest"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(threads, Thread, SD_VARLINK_ARRAY),
                FIELD_COMMENT("All other threads together"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(rest, ThreadsRest, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                Resources,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Wait targets, at most 256, in descending order of time, followed by the rest "
                              "of each state"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(resources, Resource, SD_VARLINK_ARRAY));

SD_VARLINK_DEFINE_ENUM_TYPE(
                ConnectionRole,
                FIELD_COMMENT("It has accepted the connection"),
                SD_VARLINK_DEFINE_ENUM_VALUE(server),
                FIELD_COMMENT("It has opened the connection"),
                SD_VARLINK_DEFINE_ENUM_VALUE(client));

SD_VARLINK_DEFINE_ENUM_TYPE(
                ConnectionLimit,
                FIELD_COMMENT("There is nothing to send"),
                SD_VARLINK_DEFINE_ENUM_VALUE(application),
                FIELD_COMMENT("The receive window of the peer is full"),
                SD_VARLINK_DEFINE_ENUM_VALUE(peerWindow),
                FIELD_COMMENT("The send buffer is full"),
                SD_VARLINK_DEFINE_ENUM_VALUE(sendBuffer),
                FIELD_COMMENT("Data is on its way, or waits for the congestion window"),
                SD_VARLINK_DEFINE_ENUM_VALUE(network));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                TcpConnection,
                FIELD_COMMENT("Address and port of the peer"),
                SD_VARLINK_DEFINE_FIELD(peer, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Address and port of the unit"),
                SD_VARLINK_DEFINE_FIELD(local, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Side of the unit"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(role, ConnectionRole, 0),
                FIELD_COMMENT("State of TCP: \"established\", \"synSent\", \"synReceived\", \"finWait1\", "
                              "\"finWait2\", \"closeWait\", \"lastAck\" or \"closing\""),
                SD_VARLINK_DEFINE_FIELD(state, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Time since the end of the handshake, in nanoseconds; absent if that was "
                              "before the attach"),
                SD_VARLINK_DEFINE_FIELD(age, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Smoothed round-trip time, in nanoseconds; absent if it is not measured yet"),
                SD_VARLINK_DEFINE_FIELD(rtt, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Receive window of the peer, in bytes"),
                SD_VARLINK_DEFINE_FIELD(peerWindow, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Receive window of the unit, in bytes"),
                SD_VARLINK_DEFINE_FIELD(receiveWindow, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Congestion window, in segments"),
                SD_VARLINK_DEFINE_FIELD(congestionWindow, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Largest payload of a segment, in bytes"),
                SD_VARLINK_DEFINE_FIELD(mss, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes sent and not acknowledged"),
                SD_VARLINK_DEFINE_FIELD(inFlightBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Segments sent and not acknowledged"),
                SD_VARLINK_DEFINE_FIELD(inFlightSegments, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes written and not sent"),
                SD_VARLINK_DEFINE_FIELD(unsentBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Both together: the send queue"),
                SD_VARLINK_DEFINE_FIELD(queuedBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Most bytes in the send queue at the times when the connection was recorded"),
                SD_VARLINK_DEFINE_FIELD(maxQueuedBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Retransmitted segments"),
                SD_VARLINK_DEFINE_FIELD(retransmits, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Payload of retransmitted segments"),
                SD_VARLINK_DEFINE_FIELD(retransmittedBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Timeouts after which TCP has retransmitted"),
                SD_VARLINK_DEFINE_FIELD(timeouts, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Payload sent, retransmissions included"),
                SD_VARLINK_DEFINE_FIELD(bytesSent, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes acknowledged by the peer"),
                SD_VARLINK_DEFINE_FIELD(bytesAcked, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes received in sequence"),
                SD_VARLINK_DEFINE_FIELD(bytesReceived, SD_VARLINK_INT, 0),
                FIELD_COMMENT("What limits sending now"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(limitedBy, ConnectionLimit, 0));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                TcpConnectionsRest,
                FIELD_COMMENT("Number of connections"),
                SD_VARLINK_DEFINE_FIELD(connections, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes sent and not acknowledged"),
                SD_VARLINK_DEFINE_FIELD(inFlightBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes written and not sent"),
                SD_VARLINK_DEFINE_FIELD(unsentBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Both together: the send queue"),
                SD_VARLINK_DEFINE_FIELD(queuedBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Retransmitted segments"),
                SD_VARLINK_DEFINE_FIELD(retransmits, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Payload of retransmitted segments"),
                SD_VARLINK_DEFINE_FIELD(retransmittedBytes, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Payload sent, retransmissions included"),
                SD_VARLINK_DEFINE_FIELD(bytesSent, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes acknowledged by the peer"),
                SD_VARLINK_DEFINE_FIELD(bytesAcked, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes received in sequence"),
                SD_VARLINK_DEFINE_FIELD(bytesReceived, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_METHOD(
                ListConnections,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Which connections come first: those with most \"queued\" bytes (the "
                              "default), \"retransmits\", \"rtt\", \"bytes\" sent and received, or \"age\""),
                SD_VARLINK_DEFINE_INPUT(sort, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Connections, at most 1000"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(connections, TcpConnection, SD_VARLINK_ARRAY),
                FIELD_COMMENT("All other connections together"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(rest, TcpConnectionsRest, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                ListSegments,
                DEFINE_INPUT_UNIT,
                FIELD_COMMENT("Has times recorded for so long from now on, in nanoseconds, up to 60 s"),
                SD_VARLINK_DEFINE_INPUT(duration, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("What these bytes do: 1 if the driver gets them, 2 if it gets them again, 3 "
                              "if they arrive"),
                SD_VARLINK_DEFINE_OUTPUT(kinds, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Ports of the unit"),
                SD_VARLINK_DEFINE_OUTPUT(localPorts, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Ports of the peer"),
                SD_VARLINK_DEFINE_OUTPUT(peerPorts, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Sequence numbers: multiples of 1024"),
                SD_VARLINK_DEFINE_OUTPUT(positions, SD_VARLINK_INT, SD_VARLINK_ARRAY),
                FIELD_COMMENT("Times, in nanoseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(times, SD_VARLINK_INT, SD_VARLINK_ARRAY));

SD_VARLINK_DEFINE_ENUM_TYPE(
                StorageOperation,
                SD_VARLINK_DEFINE_ENUM_VALUE(read),
                SD_VARLINK_DEFINE_ENUM_VALUE(write),
                FIELD_COMMENT("fsync(2), fdatasync(2), msync(2), syncfs(2)"),
                SD_VARLINK_DEFINE_ENUM_VALUE(sync),
                SD_VARLINK_DEFINE_ENUM_VALUE(open),
                FIELD_COMMENT("Of a file, a directory, a link or a device"),
                SD_VARLINK_DEFINE_ENUM_VALUE(create),
                SD_VARLINK_DEFINE_ENUM_VALUE(remove),
                SD_VARLINK_DEFINE_ENUM_VALUE(rename),
                FIELD_COMMENT("Of attributes of a file, or of entries of a directory"),
                SD_VARLINK_DEFINE_ENUM_VALUE(lookup),
                FIELD_COMMENT("Truncation, allocation, or a change of attributes"),
                SD_VARLINK_DEFINE_ENUM_VALUE(change));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                SlowOperation,
                FIELD_COMMENT("Time of the call, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Kind of the call"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(operation, StorageOperation, 0),
                FIELD_COMMENT("Time from the call to its return, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes read or written; absent if it failed"),
                SD_VARLINK_DEFINE_FIELD(bytes, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Name of the error, like \"ENOSPC\"; absent if it did not fail"),
                SD_VARLINK_DEFINE_FIELD(error, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Mount point of the file system, as in Mount"),
                SD_VARLINK_DEFINE_FIELD(mount, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Device number of the file system, as in Mount; absent if it is not known"),
                SD_VARLINK_DEFINE_FIELD(device, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Last part of the path of the file, up to 39 bytes; absent if it is not "
                              "known"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("ID of the thread; absent where qosd does not see it"),
                SD_VARLINK_DEFINE_FIELD(tid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Name of the thread; absent for requests of io_uring and libaio"),
                SD_VARLINK_DEFINE_FIELD(thread, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Share of each thread state in its time, with the probe \"cpu\"; together 1"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(shares, StateShares, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                SlowOperations,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("Time of the reading, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The latest 32 calls since the attach, newest first"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(operations, SlowOperation, SD_VARLINK_ARRAY));
