/* A death at a chosen moment: preloaded into a process, it ends that with SIGKILL before the N-th call that changes the
 * disk, counted from die_at_call(N). Zero, as at the start, ends nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

static int calls_left = 0;

void die_at_call(int number)
{
    calls_left = number;
}

static void count_one(size_t length)
{
    if (length == 1)
        return; /* lengthens the index of a log, which is memory; there are many of these */
    if (calls_left > 0 && --calls_left == 0)
        kill(getpid(), SIGKILL);
}

#define COUNTED(type, name, length, parameters, arguments)              \
    type name parameters                                                \
    {                                                                   \
        count_one(length);                                              \
        return ((type(*) parameters)dlsym(RTLD_NEXT, #name)) arguments; \
    }

COUNTED(int, fsync, 0, (int fd), (fd))
COUNTED(int, fdatasync, 0, (int fd), (fd))
COUNTED(int, fchmod, 0, (int fd, mode_t mode), (fd, mode))
COUNTED(int, fchown, 0, (int fd, uid_t user, gid_t group), (fd, user, group))
COUNTED(int, ftruncate64, 0, (int fd, off64_t end), (fd, end))
COUNTED(int, link, 0, (const char *old, const char *added), (old, added))
COUNTED(int, rename, 0, (const char *old, const char *replaced), (old, replaced))
COUNTED(int, unlink, 0, (const char *name), (name))
COUNTED(ssize_t, write, count, (int fd, const void *from, size_t count), (fd, from, count))
COUNTED(ssize_t, pwrite, count, (int fd, const void *from, size_t count, off_t at), (fd, from, count, at))
COUNTED(ssize_t, pwrite64, count, (int fd, const void *from, size_t count, off64_t at), (fd, from, count, at))

int open64(const char *name, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        count_one(0);
    }
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64"))(name, flags, mode);
}
