/* SPDX-License-Identifier: LGPL-2.1-or-later */

/* Symbols about threads and what they wait for. */

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
                FIELD_COMMENT("A file or directory, or what else is behind a descriptor: eventfd, timerfd, "
                              "a terminal"),
                SD_VARLINK_DEFINE_ENUM_VALUE(file),
                FIELD_COMMENT("A lock of the kernel's own: one that there is once, or all that are taken in "
                              "one of its functions"),
                SD_VARLINK_DEFINE_ENUM_VALUE(kernel),
                FIELD_COMMENT("The CPU, by the unit that had it, which may be the same one, or the "
                              "kernel; without a unit it was idle and had to wake up"),
                SD_VARLINK_DEFINE_ENUM_VALUE(cpu),
                FIELD_COMMENT("All others of the state, and what is not known"),
                SD_VARLINK_DEFINE_ENUM_VALUE(rest));

#define DEFINE_THREAD_COUNTS \
        FIELD_COMMENT("The time in each state, in nanoseconds, up to now. All together are for how long " \
                      "the thread has been known"), \
        SD_VARLINK_DEFINE_FIELD_BY_TYPE(times, StateTimes, 0), \
        FIELD_COMMENT("How often it began to wait, by the state that it came to"), \
        SD_VARLINK_DEFINE_FIELD_BY_TYPE(waits, StateWaits, 0), \
        FIELD_COMMENT("How often it left the CPU to wait: all waits"), \
        SD_VARLINK_DEFINE_FIELD(voluntary, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("How often it was made to leave it"), \
        SD_VARLINK_DEFINE_FIELD(involuntary, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("How often it came to run on another CPU than the time before"), \
        SD_VARLINK_DEFINE_FIELD(migrations, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("How often it was woken"), \
        SD_VARLINK_DEFINE_FIELD(wakeUps, SD_VARLINK_INT, 0), \
        FIELD_COMMENT("How often it has woken a thread by futex(2)"), \
        SD_VARLINK_DEFINE_FIELD(futexWakes, SD_VARLINK_INT, 0)

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Thread,
                FIELD_COMMENT("The number of the thread; left out where qosd does not see it"),
                SD_VARLINK_DEFINE_FIELD(tid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The process; left out where qosd does not see it"),
                SD_VARLINK_DEFINE_FIELD(pid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("What it calls itself"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("What it does now"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(state, ThreadState, 0),
                DEFINE_THREAD_COUNTS);

SD_VARLINK_DEFINE_STRUCT_TYPE(
                ThreadsRest,
                FIELD_COMMENT("How many they are"),
                SD_VARLINK_DEFINE_FIELD(threads, SD_VARLINK_INT, 0),
                DEFINE_THREAD_COUNTS);

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Waker,
                FIELD_COMMENT("What the thread called itself"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("Its number; left out where qosd does not see it"),
                SD_VARLINK_DEFINE_FIELD(tid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The unit of the thread; left out where that is not known"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("How many waits it has ended, at least: those before it was one of those who "
                              "have most are not in it"),
                SD_VARLINK_DEFINE_FIELD(waits, SD_VARLINK_INT, 0));

SD_VARLINK_DEFINE_STRUCT_TYPE(
                Resource,
                FIELD_COMMENT("What the threads that wait for it are in"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(state, ThreadState, 0),
                FIELD_COMMENT("What kind of thing it is"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(kind, ResourceKind, 0),
                FIELD_COMMENT("What people call it: the variable in which a futex lies "
                              "(\"libfoo.so:the_lock\") or where that is in the file, the unit that listens "
                              "at the address or the address, the name of a file without its directory, a "
                              "lock of the kernel's (\"cgroup_mutex\") or the function that takes it "
                              "(\"lock in pipe_write()\"), the unit that had the CPU, or the name of "
                              "its control group, preceded by \"../\" if that is outside qosd's root"),
                SD_VARLINK_DEFINE_FIELD(name, SD_VARLINK_STRING, 0),
                FIELD_COMMENT("The address in memory or of the socket, or the file system and the inode"),
                SD_VARLINK_DEFINE_FIELD(address, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The attached unit on this machine that listens at the address; the unit that "
                              "had the CPU: the first one below the slices, one inside it that is root's, "
                              "or of any other group inside it the path from there "
                              "(\"a.service/b.service\"), as anybody may give that any name; also of a "
                              "unit that has ended"),
                SD_VARLINK_DEFINE_FIELD(unit, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("The control group that had the CPU, if it still exists; if several of the "
                              "unit had it, one of them"),
                SD_VARLINK_DEFINE_FIELD(controlGroup, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("A process that has it, of what a process has by itself"),
                SD_VARLINK_DEFINE_FIELD(pid, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT(
                        "How many waits there were, those in progress included but for those for a CPU"),
                SD_VARLINK_DEFINE_FIELD(waits, SD_VARLINK_INT, 0),
                FIELD_COMMENT("How long they took, in nanoseconds, those in progress up to now"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The threads that have ended most of them, of locks, futexes and pipes, and "
                              "of epoll by a signal: three at most. A thread that ends a wait for a lock "
                              "has held it"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(wakers, Waker, SD_VARLINK_ARRAY|SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                Threads,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("When that was, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The threads there are, 1000 at most: those that were running, ready, or "
                              "waiting for locks, disks and memory for longest"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(threads, Thread, SD_VARLINK_ARRAY),
                FIELD_COMMENT("All others together"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(rest, ThreadsRest, SD_VARLINK_NULLABLE));

SD_VARLINK_DEFINE_METHOD(
                Resources,
                DEFINE_INPUT_UNIT,
                DEFINE_INPUT_POLKIT,
                FIELD_COMMENT("When that was, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("What its threads wait and have waited for, 256 at most, those with most time "
                              "first, and then by state the rest"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(resources, Resource, SD_VARLINK_ARRAY));

SD_VARLINK_DEFINE_ENUM_TYPE(
                StorageOperation,
                SD_VARLINK_DEFINE_ENUM_VALUE(read),
                SD_VARLINK_DEFINE_ENUM_VALUE(write),
                FIELD_COMMENT("fsync(2), fdatasync(2), msync(2)"),
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
                FIELD_COMMENT("When it was called, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_FIELD(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Kind of the call"),
                SD_VARLINK_DEFINE_FIELD_BY_TYPE(operation, StorageOperation, 0),
                FIELD_COMMENT("Time from the call to its return, in nanoseconds"),
                SD_VARLINK_DEFINE_FIELD(time, SD_VARLINK_INT, 0),
                FIELD_COMMENT("Bytes read or written; absent if it failed"),
                SD_VARLINK_DEFINE_FIELD(bytes, SD_VARLINK_INT, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Name of the error, like \"ENOSPC\"; absent if it did not fail"),
                SD_VARLINK_DEFINE_FIELD(error, SD_VARLINK_STRING, SD_VARLINK_NULLABLE),
                FIELD_COMMENT("Where the file system is mounted, as in Mount"),
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
                FIELD_COMMENT("When that was, in microseconds since 1970 UTC"),
                SD_VARLINK_DEFINE_OUTPUT(timestamp, SD_VARLINK_INT, 0),
                FIELD_COMMENT("The latest 32 calls since the attach, newest first"),
                SD_VARLINK_DEFINE_OUTPUT_BY_TYPE(operations, SlowOperation, SD_VARLINK_ARRAY));
