/* Interposes the calls by which a database writes (LD_PRELOAD). The file named by the environment
   variable FAULTS_DISK holds three numbers as text: the milliseconds that a sync takes, the
   percentage of syncs that fail with EIO, and the errno with which every write fails (0: none). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int sync_milliseconds, sync_failure_percent, write_errno;
};

static struct faults read_faults(void) {
    struct faults faults = {0, 0, 0};
    const char *path = getenv("FAULTS_DISK");
    char text[64];
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return faults;
    ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    if (size > 0) {
        text[size] = 0;
        if (sscanf(text, "%d %d %d", &faults.sync_milliseconds, &faults.sync_failure_percent,
                   &faults.write_errno) != 3)
            faults = (struct faults){0, 0, 0};
    }
    return faults;
}

static int fail_sync(void) {
    static unsigned int seed = 1;
    struct faults faults = read_faults();
    if (faults.sync_milliseconds > 0) {
        struct timespec pause = {faults.sync_milliseconds / 1000,
                                 faults.sync_milliseconds % 1000 * 1000000L};
        nanosleep(&pause, NULL);
    }
    return (int)(rand_r(&seed) % 100) < faults.sync_failure_percent;
}

#define SYNC(name)                                                                                 \
    int name(int file) {                                                                           \
        static int (*real)(int);                                                                   \
        if (!real)                                                                                 \
            real = (int (*)(int))dlsym(RTLD_NEXT, #name);                                          \
        if (fail_sync()) {                                                                         \
            errno = EIO;                                                                           \
            return -1;                                                                             \
        }                                                                                          \
        return real(file);                                                                         \
    }

#define WRITE(name, offset_type)                                                                   \
    ssize_t name(int file, const void *data, size_t size, offset_type offset) {                    \
        static ssize_t (*real)(int, const void *, size_t, offset_type);                            \
        if (!real)                                                                                 \
            real = (ssize_t(*)(int, const void *, size_t, offset_type))dlsym(RTLD_NEXT, #name);    \
        int reason = read_faults().write_errno;                                                    \
        if (reason) {                                                                              \
            errno = reason;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        return real(file, data, size, offset);                                                     \
    }

SYNC(fsync)
SYNC(fdatasync)
WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)
