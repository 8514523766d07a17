// SPDX-License-Identifier: GPL-2.0-or-later

/* The probe "tls": plaintext that processes of units with this probe read from OpenSSL, and write to it.
 *
 *   openssl_enter   calls of SSL_read, SSL_write and their variants, SSL_do_handshake, SSL_sendfile
 *   openssl_leave   returns of the same functions, except for SSL_sendfile
 *
 * Other processes use the same library and run both programs, which return at once for them. */

#include <asm/ptrace.h>

#define PREEMPTION_OBJECT openssl
#include "preemption.h"
#include "tls-plaintext.bpf.h"
#include "http2-conn.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* A chunk of requests to be parsed, passed by address for chunk_init(). */
struct library_piece {
        const void *buffer;
        __u32 end;              /* size of the buffer */
        __u32 position;         /* position of the buffer in the stream of requests */
        struct qos_owner owner;
        struct arrival_times times;
};

__attribute__((noinline, weak)) int library_parse_requests(struct pipeline *p, struct library_piece *q) {
        if (!p || !q)
                return 0;
        chunk_parse_requests(chunk_init(p, q->end), p, &(struct chunk_source) { .buffer = q->buffer },
                             &q->times, q->position, &q->owner);
        return 0;
}

/* Parses a chunk of responses, with the state initialized by chunk_init(). */
__attribute__((noinline, weak)) int library_parse_responses(struct pipeline *p, __u64 buffer) {
        const struct chunk_source source = { .buffer = (void*) (long) buffer };
        struct chunk *f;

        if (!p)
                return 0;
        f = (struct chunk*) p->work;
        while (!f->piece.lost && !f->piece.tunnel && chunk_skip(f, &p->out) && can_loop)
                if (chunk_fill(f, p, &p->out, &source))
                        chunk_parse_response(f, p);
        return 0;
}

/* Initial value of an element of plaintext_h2, which is too large for the stack. */
BPF_ARRAY_MAP(plaintext_h2_fresh, ARRAY, 1, struct tls_plaintext_h2);

struct openssl_h2_chunk {
        struct h2_conn_request_chunk q;
        const void *buffer;
};

__attribute__((noinline, weak)) int openssl_h2_take_requests(struct h2_conn *h, struct h2_more *more,
                                                             struct qos_unit_map *u,
                                                             struct openssl_h2_chunk *o) {
        if (!h || !u || !o)
                return 0;
        h2_conn_parse_requests(h, more, u, &o->q, &(struct chunk_source) { .buffer = o->buffer },
                               /* stops= */ false);
        return 0;
}

__attribute__((noinline, weak)) int openssl_h2_take_responses(struct h2_conn *h, struct h2_more *more,
                                                              struct qos_unit_map *u,
                                                              struct openssl_h2_chunk *o) {
        __u32 n;

        if (!h || !u || !o)
                return 0;
        do {
                n = h2_conn_parse_response(h, more, &o->q.f, &(struct chunk_source) { .buffer = o->buffer });
                h2_conn_record_response(h, more, u, o->q.target);
        } while (n > 0 && can_loop);
        return 0;
}

/* The library has returned HTTP/2 frames (requests), or is passed some (responses). */
static __attribute__((noinline)) int openssl_h2(struct tls_plaintext *plain, const struct qos_owner *owner,
                                                const void *buffer, __u32 n,
                                                 int responses) {
        struct openssl_h2_chunk f = {};
        struct tls_plaintext_h2 *m;
        struct qos_unit_map *u;
        struct tcp_sock *tp;
        __s32 counted;
        __u32 dropped;

        if (!plain || !owner)
                return 0;
        m = bpf_map_lookup_elem(&plaintext_h2, &plain->key);
        u = unit_get(owner);
        if (!m || !u) {
                plain->lost = 1;
                return 0;
        }
        f.q.f.end = n;
        f.q.f.position = plain->position;
        f.q.owner = *owner;
        f.buffer = buffer;
        f.q.target = target_resolve(u, plain->target);
        m->h2.names = names_are_wanted(&f.q.owner);
        h2_piece_begin(&m->h2.piece, bpf_ktime_get_ns());
        window_advance(u, m->h2.piece.now);
        if (m->target != plain->target) {
                counted = __sync_lock_test_and_set(&m->counted, 0);
                tls_plaintext_h2_record(m, -counted);
                m->target = plain->target;
                tls_plaintext_h2_count(m, counted);
        }

        plain->strays = 0;
        if (responses) {
                tp = (struct tcp_sock*) (long) plain->sock;
                if (plain->pending == 0)
                        bpf_core_read(&plain->pending_position, sizeof(plain->pending_position),
                                      &tp->write_seq);
                plain->pending = 1;
                /* A write begins with a frame. If not, parsing fails, and the position is lost again */
                if (m->h2.out.synced == H2_LOST)
                        m->h2.out.synced = H2_EDGE;
                openssl_h2_take_responses(&m->h2, &m->more, u, &f);
        } else {
                m->h2.times.came_at = 0;
                m->h2.times.marks.n = 0;
                if (plain->came_first_at == plain->came_last_at)
                        m->h2.times.came_at = plain->came_first_at;
                else {
                        m->h2.times.marks.n = 1;
                        m->h2.times.marks.end[0] = plain->position + n;
                        m->h2.times.marks.at[0] = plain->came_first_at;
                        m->h2.times.marks.tail_at = plain->came_last_at;
                }
                openssl_h2_take_requests(&m->h2, &m->more, u, &f);
                plain->position += n;
        }
        if (m->h2.piece.lost || f.q.f.at < f.q.f.end)
                plain->lost = 1;

        dropped = m->h2.piece.dropped;
        if (dropped > 0 && responses)
                record_count(u, f.q.target, QOS_COUNTER_ERRORS_RESET, QOS_ENTRY_ERRORS_RESET, dropped);
        else if (dropped > 0)
                record_count(u, f.q.target, QOS_COUNTER_CLIENT_ABORTS, QOS_ENTRY_CLIENT_ABORTS, dropped);
        if (m->h2.piece.unseen > 0)
                record_count(u, f.q.target, QOS_COUNTER_OVERLAPS, QOS_ENTRY_OVERLAPS, m->h2.piece.unseen);
        counted = (__s32) (m->h2.open - m->known);
        m->known = m->h2.open;
        tls_plaintext_h2_count(m, counted);
        return 0;
}

/* The connection is HTTP/2. late: its beginning was not seen. taken: bytes of the preface that another
 * parser has consumed. */
static __attribute__((noinline)) int openssl_h2_begin(struct tls_plaintext *plain,
                                                      const struct qos_owner *owner, __u32 late,
                                                      __u32 taken) {
        struct tls_plaintext_h2 *m;
        __u32 zero = 0;
        void *fresh;

        if (!plain || !owner)
                return 0;
        plain->ahead = plain->pending = 0;
        fresh = bpf_map_lookup_elem(&plaintext_h2_fresh, &zero);
        if (!fresh || bpf_map_update_elem(&plaintext_h2, &plain->key, fresh, BPF_ANY) < 0) {
                element_lost(QOS_STATISTIC_LOST_PLAINTEXT_H2, owner);
                plain->tries = TRIES_MAX;
        } else {
                m = bpf_map_lookup_elem(&plaintext_h2, &plain->key);
                if (m) {
                        m->owner = *owner;
                        m->target = plain->target;
                        h2_begin(&m->h2, 0, late);
                        m->h2.more = H2_MORE_HERE;
                        m->h2.in.left -= taken;
                        /* From now on the request that the socket has in flight is counted by frames
                         * (tls_plaintext_h2_commit()) */
                        if (plain->requested)
                                tls_plaintext_h2_count(m, -1);
                }
                /* The connection may have ended before the element existed */
                if (bpf_map_lookup_elem(&plaintext, &plain->key) != plain)
                        tls_plaintext_h2_drop(&plain->key);
        }
        /* Even without an element: the connection is HTTP/2, and lost */
        pipeline_begin(&plain->pipeline, PROTOCOL_HTTP2, 0, 0);
        return 0;
}

/* The server has responded to the preface with HTTP/1: the preface was one request. Returns 0 if the
 * connection is HTTP/2. */
static __attribute__((noinline)) int openssl_h2_refuse(struct tls_plaintext *plain) {
        struct tls_plaintext_h2 *m;

        if (!plain)
                return 0;
        m = bpf_map_lookup_elem(&plaintext_h2, &plain->key);
        if (!m || !m->h2.piece.lost || m->h2.settled || plain->late)
                return 0;
        tls_plaintext_h2_drop(&plain->key);
        plain->lost = plain->requested = plain->pending = 0;
        plain->streams = plain->status4xx = plain->failed = 0;
        pipeline_begin(&plain->pipeline, PROTOCOL_HTTP1, 0, 0);
        pipeline_push(&plain->pipeline, 1, plain->came_first_at, plain->came_last_at, 0);
        pipeline_read(&plain->pipeline, bpf_ktime_get_ns());
        return 1;
}

/* Detects the protocol by the plaintext of a request, as long as it is unknown or may still change. */
static __attribute__((noinline)) int library_detect(struct tls_plaintext *plain,
                                                    const struct qos_owner *owner, const void *buffer,
                                                    __u32 n) {
        __u32 length = n, protocol, taken;
        __u64 first = 0;

        if (!plain || !owner)
                return 0;
        if (plain->pipeline.protocol == PROTOCOL_PLAIN && (!plain->begins || plain->tries >= TRIES_MAX))
                return 0;
        plain->begins = 0;
        if (length > sizeof(first))
                length = sizeof(first);
        BPF_BOUND(length, sizeof(first) + 1);
        if (bpf_probe_read_user(&first, length, buffer) < 0)
                return 0;
        if (plain->pipeline.protocol != PROTOCOL_PLAIN) {
                taken = h2_conn_preface(&plain->pipeline, first, length);
                if (taken > 0)
                        openssl_h2_begin(plain, owner, 0, taken);
                return 0;
        }
        if (h2_detect(first, length))
                return openssl_h2_begin(plain, owner, 0, 0);
        protocol = protocol_detect(first, length);
        if (protocol == PROTOCOL_PLAIN) {
                if (plain->late && h2_detect_late(first, length))
                        return openssl_h2_begin(plain, owner, 1, 0);
                plain->tries++;
                return 0;
        }
        plain->ahead = plain->pending = 0;
        plain->streams = plain->status4xx = plain->failed = 0;
        plain->growing = plain->strays = 0;
        pipeline_begin(&plain->pipeline, protocol, 0, 0);
        return 0;
}

/* Whether the parser resumes with the data that the library has returned, like pipeline_resumes(). */
static __attribute__((noinline)) int library_resumes(struct tls_plaintext *plain, const void *buffer,
                                                     __u32 n) {
        __u32 length = n;
        __u64 first = 0;

        if (!plain)
                return 0;
        if (length > sizeof(first))
                length = sizeof(first);
        BPF_BOUND(length, sizeof(first) + 1);
        return bpf_probe_read_user(&first, length, buffer) == 0 &&
                pipeline_resumes(&plain->pipeline, 0, first, length, plain->pending);
}

/* The kernel may have skipped the run for the read from the socket: then the arrival of this data is not
 * known yet. */
BPF_SUBPROG int library_check_times(struct tls_plaintext *plain) {
        struct tcp_sock *tp;
        __u32 copied, rcv_nxt;
        struct sock *sk;

        BPF_REQUIRE(plain);
        tp = (struct tcp_sock*) (long) plain->sock;
        sk = (struct sock*) (long) plain->sock;
        if (bpf_core_read(&copied, sizeof(copied), &tp->copied_seq) < 0 ||
            bpf_core_read(&rcv_nxt, sizeof(rcv_nxt), &tp->rcv_nxt) < 0)
                return 0;
        if (fin_received(BPF_CORE_READ(sk, __sk_common.skc_state)) && copied == rcv_nxt)
                copied--; /* the FIN, which has a position but no byte */
        if (copied == plain->read_end)
                return 0;
        plain->untimed = 1;
        plain->came_first_at = plain->came_last_at = 0;
        return 0;
}

/* The library has returned n bytes of requests. */
static __attribute__((noinline)) int library_read(struct tls_plaintext *plain,
                                                  const struct qos_owner *owner, const void *buffer,
                                                  __u32 n) {
        struct library_piece q = {};
        struct chunk *f;

        if (!plain || !owner)
                return 0;
        library_check_times(plain);
        /* Before the time of the read, which it does not set off a response to */
        request_note_read(unit_get(owner), bpf_ktime_get_ns());
        plain->unread = 0;
        plain->delivered = 1;
        if (plain->pipeline.protocol == PROTOCOL_PLAIN || h2_conn_may_be_preface(&plain->pipeline))
                library_detect(plain, owner, buffer, n);
        if (plain->pipeline.protocol == PROTOCOL_PLAIN)
                return 0;
        if (plain->pipeline.protocol == PROTOCOL_HTTP2)
                return openssl_h2(plain, owner, buffer, n, 0);

        plain->strays = 0;
        q.end = n;
        q.buffer = buffer;
        q.position = plain->position;
        q.owner = *owner;
        if (names_are_wanted(&q.owner))
                q.times.how = PROTOCOL_NAMES;
        if (plain->came_first_at == plain->came_last_at)
                q.times.came_at = plain->came_first_at;
        else {
                q.times.marks.n = 1;
                q.times.marks.end[0] = q.position + n;
                q.times.marks.at[0] = plain->came_first_at;
                q.times.marks.tail_at = plain->came_last_at;
        }
        if (plain->pipeline.missed && !library_resumes(plain, buffer, n))
                pipeline_miss(&plain->pipeline, plain->came_first_at, plain->came_last_at, plain->pending);
        else {
                library_parse_requests(&plain->pipeline, &q);
                f = (struct chunk*) plain->pipeline.work;
                if (f->piece.lost && plain->pipeline.flags & PIPELINE_UNDERSTOOD)
                        pipeline_misunderstand(&plain->pipeline, 0,
                                               pipeline_when(&q.times, plain->position + f->at, 0),
                                               plain->pending);
                else if (f->piece.lost || f->at < f->end) {
                        plain->lost = 1;
                        return 0;
                }
        }
        plain->position += n;
        pipeline_request_chunk(&plain->pipeline, &q.times, plain->position);
        pipeline_read(&plain->pipeline, bpf_ktime_get_ns());
        return 0;
}

/* The library is passed responses: n bytes after those to be skipped, which are already parsed. */
static __attribute__((noinline)) int library_write(struct tls_plaintext *plain,
                                                   const struct qos_owner *owner, const void *buffer,
                                                   __u32 skip, __u32 n) {
        struct tcp_sock *tp;
        struct chunk *f;
        bool lost;

        if (!plain || plain->pipeline.protocol == PROTOCOL_PLAIN || plain->tunnel)
                return 0;
        if (plain->pipeline.protocol == PROTOCOL_HTTP2) {
                lost = plain->lost;
                openssl_h2(plain, owner, buffer + skip, n, 1);
                if (lost || !openssl_h2_refuse(plain))
                        return 0;
        }
        if (n == 0)
                return 0;
        tp = (struct tcp_sock*) (long) plain->sock;

        f = chunk_init(&plain->pipeline, n);
        /* Responses that are not sent yet are included in those begun */
        f->piece.begun = plain->pending;
        if (plain->pending == 0)
                bpf_core_read(&plain->pending_position, sizeof(plain->pending_position), &tp->write_seq);
        library_parse_responses(&plain->pipeline, (__u64) (long) (buffer + skip));

        plain->pending = pipeline_responses(&plain->pipeline, &f->piece, 1);
        plain->streams += f->piece.streams;
        plain->status4xx += f->piece.status4xx;
        plain->failed += f->piece.failed;
        plain->strays = 0;
        if (f->piece.tunnel)
                plain->tunnel = 1;
        else if (f->piece.lost || f->at < f->end)
                plain->astray = 1;
        return 0;
}

/* Returns the element of a library object, locked. NULL: its connection is unknown, or belongs to another
 * unit. */
static __always_inline struct tls_plaintext* library_find(const struct tls_plaintext_key *key,
                                                          const struct qos_owner *owner) {
        struct tls_plaintext *plain = bpf_map_lookup_elem(&plaintext, key);

        if (!plain || plain->generation != owner->generation)
                return NULL;
        if (!tls_plaintext_lock(plain)) {
                /* The data of this call cannot be parsed */
                plain->lost = 1;
                return NULL;
        }
        if (!tls_plaintext_key_equal(&plain->key, key)) {
                tls_plaintext_unlock(plain);
                return NULL;
        }
        return plain;
}

/* Maximum number of nested calls within a call: reading a record takes two, a handshake a few more. */
#define INNER_CALLS_MAX 32

/* Maximum size of a buffer: functions that take it as int cannot be passed more. */
#define BUFFER_MAX 0x7fffffffU

static __always_inline void overhead_begin_for(struct overhead *overhead, const struct qos_owner *owner) {
        struct qos_unit_map *u = unit_get(owner);

        if (u)
                overhead_begin(overhead, owner, u);
}

static __always_inline int ssl_call_begin(struct pt_regs *ctx, struct overhead *overhead) {
        struct task_struct *task = bpf_get_current_task_btf();
        __u32 kind = bpf_get_attach_cookie(ctx), skip;
        struct tls_plaintext_key key = {};
        struct library_call *call;
        struct qos_owner owner;
        __u64 size, fourth, fifth;
        struct tls_plaintext *plain;

        if (!task_owner(&owner) || !watch_get(&owner))
                return 0;
        overhead_begin_for(overhead, &owner);
        call = BPF_STORAGE_CREATE(task, openssl_calls, task);
        if (!call) {
                element_lost(QOS_STATISTIC_LOST_OPENSSL_CALLS, &owner);
                return 0;
        }
        /* A nested call, as for TLS within TLS: the outer one has the plaintext. A call that was left by
         * longjmp(), or while the programs were detached, is over */
        if (call->key.ssl != 0 && PT_REGS_SP(ctx) < call->stack && call->inner++ < INNER_CALLS_MAX)
                return 0;

        key.ssl = PT_REGS_PARM1(ctx);
        key.tgid = bpf_get_current_pid_tgid() >> 32;
        size = PT_REGS_PARM3(ctx);
        if (!(kind & QOS_CALL_COUNTS))
                size = (__u32) size;
        if (size > BUFFER_MAX)
                size = 0;
        call->key = key;
        call->kind = kind;
        call->inner = 0;
        call->stack = PT_REGS_SP(ctx);
        call->buffer = PT_REGS_PARM2(ctx);
        /* Keeps the compiler from selecting one of two registers by index, which the verifier rejects */
        fourth = PT_REGS_PARM4(ctx);
        barrier_var(fourth);
        fifth = PT_REGS_PARM5(ctx);
        barrier_var(fifth);
        call->count = !(kind & QOS_CALL_COUNTS) ? 0 : kind & QOS_CALL_FLAGS ? fifth : fourth;
        call->size = size;
        if (!(kind & (QOS_CALL_WRITES | QOS_CALL_SENDS_FILE)))
                return 0;

        plain = library_find(&key, &owner);
        if (!plain)
                return 0;
        if (kind & QOS_CALL_SENDS_FILE) {
                /* The contents of the file are not visible */
                plain->lost = 1;
                call->key.ssl = 0;
        } else {
                skip = plain->ahead < call->size ? plain->ahead : call->size;
                library_write(plain, &owner, (const void*) (long) call->buffer, skip, call->size - skip);
        }
        tls_plaintext_unlock(plain);
        return 0;
}

static __always_inline int ssl_call_begin_measured(struct pt_regs *ctx) {
        struct overhead overhead = {};
        int r = ssl_call_begin(ctx, &overhead);

        overhead_end(&overhead);
        return r;
}

SEC("uprobe.multi")
int openssl_enter(struct pt_regs *ctx) {
        int r;

        preemption_disable_at_uprobe();
        r = ssl_call_begin_measured(ctx);
        preemption_enable_at_uprobe();
        return r;
}

static __always_inline int ssl_call_end(struct pt_regs *ctx, struct overhead *overhead) {
        struct task_struct *task = bpf_get_current_task_btf();
        struct tls_plaintext_key key;
        struct library_call *call;
        struct qos_owner owner;
        struct tls_plaintext *plain;
        __u64 count = 0;
        __s64 n, given;

        call = bpf_task_storage_get(&openssl_calls, task, 0, 0);
        if (!call || call->key.ssl == 0)
                return 0;
        /* Returns of nested calls have a stack pointer below that of the outer one */
        if (PT_REGS_SP(ctx) < call->stack)
                return 0;
        key = call->key;
        call->key.ssl = 0;
        if (!(call->kind & (QOS_CALL_READS | QOS_CALL_WRITES)) || !task_owner(&owner))
                return 0;
        overhead_begin_for(overhead, &owner);

        n = (__s32) PT_REGS_RC(ctx);
        if (call->count != 0 && n > 0) {
                if (bpf_probe_read_user(&count, sizeof(count), (const void*) (long) call->count) < 0)
                        count = 0;
                n = count;
        }
        if (n > (__s64) BUFFER_MAX)
                n = 0;
        if (call->kind & QOS_CALL_READS && n <= 0)
                return 0;

        plain = library_find(&key, &owner);
        if (!plain)
                return 0;
        if (call->kind & QOS_CALL_READS)
                library_read(plain, &owner, (const void*) (long) call->buffer, n);
        else {
                /* The application will pass again what the library did not accept, possibly in parts */
                given = plain->ahead > call->size ? plain->ahead : call->size;
                plain->ahead = n <= 0 ? given : given > n ? given - n : 0;
        }
        tls_plaintext_unlock(plain);
        return 0;
}

static __always_inline int ssl_call_end_measured(struct pt_regs *ctx) {
        struct overhead overhead = {};
        int r = ssl_call_end(ctx, &overhead);

        overhead_end(&overhead);
        return r;
}

SEC("uprobe.multi")
int openssl_leave(struct pt_regs *ctx) {
        int r;

        preemption_disable_at_uprobe();
        r = ssl_call_end_measured(ctx);
        preemption_enable_at_uprobe();
        return r;
}

/* ---- location of the library -------------------------------------------------------------------------- */

BPF_ARRAY_MAP(openssl_scratch, PERCPU_ARRAY, 1, struct qos_openssl_library);

/* Maximum depth of the library in its file system: roots of containers have a depth of about ten. */
#define LIBRARY_DEPTH_MAX 32
#define LIBRARY_NAME_SIZE 256

/* Stores the path of a file within its file system. */
static __always_inline void library_find_names(struct qos_openssl_library *l, struct file *file) {
        struct dentry *d = BPF_CORE_READ(file, f_path.dentry), *parent;
        __u64 at = 0;
        long n;

        l->names_size = 0;
        for (int i = 0; i < LIBRARY_DEPTH_MAX; i++) {
                parent = BPF_CORE_READ(d, d_parent);
                if (!parent)
                        return;
                if (parent == d) {
                        l->names_size = at;
                        return;
                }
                if (at > sizeof(l->names) - LIBRARY_NAME_SIZE)
                        return;
                BPF_BOUND(at, sizeof(l->names) - LIBRARY_NAME_SIZE + 1);
                n = bpf_probe_read_kernel_str(l->names + at, LIBRARY_NAME_SIZE,
                                              BPF_CORE_READ(d, d_name.name));
                if (n <= 1)
                        return;
                at += n;
                d = parent;
        }
}

/* Lists the mapped files of a process whose name begins with "libssl". The daemon reads their symbols; it is
 * not allowed to read /proc/PID/maps of other users itself. */
SEC("iter/task_vma")
int units_find_libraries(struct bpf_iter__task_vma *ctx) {
        struct vm_area_struct *vma = ctx->vma;
        struct qos_openssl_library *l;
        struct file *file;
        union {
                char letters[8];
                __u64 word;
        } name = {}, libssl = { .letters = "libssl" };
        __u32 zero = 0;

        if (!ctx->task || !vma || vma->vm_pgoff != 0)
                return 0;
        file = vma->vm_file;
        if (!file)
                return 0;
        if (bpf_probe_read_kernel(name.letters, 6, BPF_CORE_READ(file, f_path.dentry, d_name.name)) < 0 ||
            name.word != libssl.word)
                return 0;

        l = bpf_map_lookup_elem(&openssl_scratch, &zero);
        if (!l)
                return 0;
        l->inode = file->f_inode->i_ino;
        l->device = file->f_inode->i_sb->s_dev;
        if (bpf_d_path(&file->f_path, l->path, sizeof(l->path)) < 0)
                l->path[0] = 0;
        library_find_names(l, file);
        bpf_seq_write(ctx->meta->seq, l, sizeof(*l));
        return 0;
}
