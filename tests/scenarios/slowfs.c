/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A file system of FUSE in memory, of one directory, that sleeps before it does what the options name: each
 * call takes that long at least. */

#define FUSE_USE_VERSION 31

#include <errno.h>
#include <fuse3/fuse.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define FILES_MAX 16
#define FILE_SIZE_MAX (16 << 20)

typedef struct File {
        char name[64];          /* with the slash; empty: none */
        size_t size;
        char data[FILE_SIZE_MAX];
} File;

static File files[FILES_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* In us. */
static struct {
        unsigned read, write, sync, create;
} arg_sleep;

#define OPTION(name) { #name "=%u", offsetof(typeof(arg_sleep), name), 0 }

static const struct fuse_opt options[] = {
        OPTION(read), OPTION(write), OPTION(sync), OPTION(create), FUSE_OPT_END,
};

static void sleep_us(unsigned n) {
        struct timespec ts = { .tv_sec = n / 1000000, .tv_nsec = n % 1000000 * 1000L };

        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
                ;
}

static File* file_find(const char *name) {
        for (size_t i = 0; i < FILES_MAX; i++)
                if (strcmp(files[i].name, name) == 0)
                        return files + i;
        return NULL;
}

static int on_getattr(const char *path, struct stat *st, struct fuse_file_info *info) {
        File *f;

        *st = (struct stat) { .st_mode = S_IFDIR | 0755, .st_nlink = 2 };
        if (strcmp(path, "/") == 0)
                return 0;
        f = file_find(path);
        if (!f)
                return -ENOENT;
        *st = (struct stat) { .st_mode = S_IFREG | 0644, .st_nlink = 1, .st_size = (off_t) f->size };
        return 0;
}

static int on_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t offset,
                      struct fuse_file_info *info, enum fuse_readdir_flags flags) {
        for (size_t i = 0; i < FILES_MAX; i++)
                if (files[i].name[0])
                        fill(buffer, files[i].name + 1, NULL, 0, 0);
        return 0;
}

static int on_open(const char *path, struct fuse_file_info *info) {
        info->direct_io = 1;
        return file_find(path) ? 0 : -ENOENT;
}

static int on_create(const char *path, mode_t mode, struct fuse_file_info *info) {
        File *f;

        sleep_us(arg_sleep.create);
        pthread_mutex_lock(&mutex);
        f = file_find("");
        if (f && strlen(path) < sizeof(f->name)) {
                f->size = 0;
                strcpy(f->name, path);
        }
        pthread_mutex_unlock(&mutex);
        info->direct_io = 1;
        return f ? 0 : -ENOSPC;
}

static int on_unlink(const char *path) {
        File *f = file_find(path);

        if (!f)
                return -ENOENT;
        f->name[0] = 0;
        return 0;
}

static int on_read(const char *path, char *buffer, size_t n, off_t offset, struct fuse_file_info *info) {
        File *f = file_find(path);

        sleep_us(arg_sleep.read);
        if (!f)
                return -EIO;
        if ((size_t) offset >= f->size)
                return 0;
        if (n > f->size - (size_t) offset)
                n = f->size - (size_t) offset;
        memcpy(buffer, f->data + offset, n);
        return (int) n;
}

static int on_write(const char *path, const char *buffer, size_t n, off_t offset,
                    struct fuse_file_info *info) {
        File *f = file_find(path);

        sleep_us(arg_sleep.write);
        if (!f)
                return -EIO;
        if ((size_t) offset + n > FILE_SIZE_MAX)
                return -ENOSPC;
        memcpy(f->data + offset, buffer, n);
        if (f->size < (size_t) offset + n)
                f->size = (size_t) offset + n;
        return (int) n;
}

static int on_fsync(const char *path, int data, struct fuse_file_info *info) {
        sleep_us(arg_sleep.sync);
        return 0;
}

static void* on_init(struct fuse_conn_info *connection, struct fuse_config *config) {
        config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
        /* close(2) does not wait until the file is released: removed before that, a file would be renamed
         * instead, which is not implemented here */
        config->hard_remove = 1;
        return NULL;
}

static const struct fuse_operations operations = {
        .init = on_init,
        .getattr = on_getattr,
        .readdir = on_readdir,
        .open = on_open,
        .create = on_create,
        .unlink = on_unlink,
        .read = on_read,
        .write = on_write,
        .fsync = on_fsync,
};

/* slowfs -f [-o read=US,write=US,sync=US,create=US] DIRECTORY */
int main(int argc, char *argv[]) {
        struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
        int r;

        if (fuse_opt_parse(&args, &arg_sleep, options, NULL) < 0)
                return 1;
        r = fuse_main(args.argc, args.argv, &operations, NULL);
        fuse_opt_free_args(&args);
        return r;
}
