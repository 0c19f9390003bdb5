/* A death at a chosen moment: preloaded into a process, it ends that with SIGKILL before the N-th call that changes the
 * disk, counted from die_at_call(N). Zero, as at the start, ends nothing. Of writes to one file in a row, the first two
 * count: the file is then empty or cut short, and before the third it is no other. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

static int calls_left = 0;
static int written = -1; /* the file that the last call has written to */
static int in_a_row = 0;

void die_at_call(int number)
{
    calls_left = number;
    written = -1;
}

static void count_one(void)
{
    written = -1;
    if (calls_left > 0 && --calls_left == 0)
        kill(getpid(), SIGKILL);
}

static void count_write(int fd, size_t length)
{
    if (length == 1)
        return; /* lengthens the index of a log, which is memory; there are many of these */
    in_a_row = fd == written ? in_a_row + 1 : 0;
    if (in_a_row < 2)
        count_one();
    written = fd;
}

#define COUNTED(type, name, count, parameters, arguments)               \
    type name parameters                                                \
    {                                                                   \
        count;                                                          \
        return ((type(*) parameters)dlsym(RTLD_NEXT, #name)) arguments; \
    }

COUNTED(int, fsync, count_one(), (int fd), (fd))
COUNTED(int, fdatasync, count_one(), (int fd), (fd))
COUNTED(int, fchmod, count_one(), (int fd, mode_t mode), (fd, mode))
COUNTED(int, fchown, count_one(), (int fd, uid_t user, gid_t group), (fd, user, group))
COUNTED(int, ftruncate64, count_one(), (int fd, off64_t end), (fd, end))
COUNTED(int, link, count_one(), (const char *old, const char *added), (old, added))
COUNTED(int, rename, count_one(), (const char *old, const char *replaced), (old, replaced))
COUNTED(int, unlink, count_one(), (const char *name), (name))
COUNTED(ssize_t, write, count_write(fd, length), (int fd, const void *from, size_t length), (fd, from, length))
COUNTED(ssize_t, pwrite, count_write(fd, length), (int fd, const void *from, size_t length, off_t at), (fd, from, length, at))
COUNTED(ssize_t, pwrite64, count_write(fd, length), (int fd, const void *from, size_t length, off64_t at), (fd, from, length, at))

int open64(const char *name, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
        count_one();
    }
    return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64"))(name, flags, mode);
}
