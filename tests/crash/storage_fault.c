/* A disk that fails: preloaded into a process, it fails what is done to the files of a database, or ends the process in
 * the middle of it. The file named in STORAGE_FAULT says how: "sync" fails fsync with EIO, "full" fails writing with
 * ENOSPC, "read-only" fails it with EROFS, and "die N" kills the process at the N-th call from now. Without the file,
 * or with anything else in it, all goes well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { WRITING, SYNCING };

static int is_of_database(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = '\0';
    return strstr(path, "payres.db") != NULL;
}

/* The errno to fail with, or 0. */
static int fault(int fd, int doing)
{
    static int calls = 0;
    char word[32] = "";
    const char *name = getenv("STORAGE_FAULT");
    int saved = errno;
    int file = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (syscall(SYS_read, file, word, sizeof word - 1) < 0)
            word[0] = '\0';
        syscall(SYS_close, file);
    }
    errno = saved;
    if (word[0] == '\0' || !is_of_database(fd))
        return 0;
    if (strncmp(word, "die ", 4) == 0 && __sync_add_and_fetch(&calls, 1) >= atoi(word + 4))
        kill(getpid(), SIGKILL);
    if (strncmp(word, "sync", 4) == 0 && doing == SYNCING)
        return EIO;
    if (strncmp(word, "full", 4) == 0 && doing == WRITING)
        return ENOSPC;
    if (strncmp(word, "read-only", 9) == 0 && doing == WRITING)
        return EROFS;
    return 0;
}

#define FAILING(doing)                    \
    int error = fault(fd, doing);         \
    if (error) {                          \
        errno = error;                    \
        return -1;                        \
    }

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd)
{
    FAILING(SYNCING)
    return REAL(fsync)(fd);
}

int fdatasync(int fd)
{
    FAILING(SYNCING)
    return REAL(fdatasync)(fd);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    FAILING(WRITING)
    return REAL(pwrite)(fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset)
{
    FAILING(WRITING)
    return REAL(pwrite64)(fd, bytes, length, offset);
}

int ftruncate64(int fd, off64_t length)
{
    FAILING(WRITING)
    return REAL(ftruncate64)(fd, length);
}
