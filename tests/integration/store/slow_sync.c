/* LD_PRELOAD: a disk whose syncs of the log stall, or fail, while a file in $SYNC_FAULT says so.

   stall: a sync waits until the file is gone, and makes `stalled` first.   fail: it is an I/O error.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int there(const char *name, int make)
{
    char path[4096];
    const char *folder = getenv("SYNC_FAULT");
    if (!folder)
        return 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (make)
        close(open(path, O_CREAT | O_WRONLY, 0600));
    return access(path, F_OK) == 0;
}

static int is_log(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 4)
        return 0;
    path[length] = 0;
    return strcmp(path + length - 4, "-wal") == 0;
}

static int sync_with(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    if (!is_log(fd))
        return real(fd);
    if (there("stall", 0)) {
        there("stalled", 1);
        while (there("stall", 0))
            usleep(1000);
    }
    if (there("fail", 0)) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }
