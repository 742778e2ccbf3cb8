// An LD_PRELOAD library that makes the disk fail, or the process die, at one chosen call.
//
// Calls that change something below FI_DIR are counted from 1. From the environment:
//
//   FI_DIR    only files below this directory are counted (an absolute path without links)
//   FI_N      which call goes wrong; 0 or unset: none, only count
//   FI_MODE   once (the default) or sticky: that call and every later one
//   FI_ERR    EIO, ENOSPC   the call fails with this error and does nothing
//             SHORT         a write moves half of its bytes; calls that cannot be short work
//             KILL          the process dies by SIGKILL just before the call
//             KILL_AFTER    it dies just after the call; only a sync or a truncation does that
//   FI_OPS    which kinds count: w write and truncate, s sync, r rename and link,
//             o open that creates, u unlink (default wsro)
//   FI_COUNT  a file that gets the number of counted calls when the process exits
//
// Not seen: stores through a memory map (the shared-memory index of SQLite's log, which
// holds nothing that is not made again) and programs that make system calls themselves.
//
// build: gcc -shared -fPIC -O2 -Wall -o faultinj.so faultinj.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum verdict { WORKS, FAILS, IS_SHORT, IS_LAST };

static const char *directory;
static size_t directory_len;
static const char *kinds = "wsro";
static long chosen;
static int is_sticky, is_short, kills, kills_after, error_number = EIO;
static long counted;

__attribute__((constructor)) static void read_environment(void) {
    const char *value;
    directory = getenv("FI_DIR");
    directory_len = directory ? strlen(directory) : 0;
    if ((value = getenv("FI_OPS"))) kinds = value;
    if ((value = getenv("FI_N"))) chosen = atol(value);
    if ((value = getenv("FI_MODE"))) is_sticky = strcmp(value, "sticky") == 0;
    if ((value = getenv("FI_ERR"))) {
        if (strcmp(value, "ENOSPC") == 0) error_number = ENOSPC;
        is_short = strcmp(value, "SHORT") == 0;
        kills = strcmp(value, "KILL") == 0;
        kills_after = strcmp(value, "KILL_AFTER") == 0;
    }
}

__attribute__((destructor)) static void write_count(void) {
    const char *path = getenv("FI_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", counted);
    fclose(file);
}

// --- Whose file is it? ---

static int is_below(const char *path) {
    return directory_len > 0 && strncmp(path, directory, directory_len) == 0 &&
           (path[directory_len] == '/' || path[directory_len] == '\0');
}

static int fd_is_below(int fd) {
    char link[64], path[PATH_MAX];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (len <= 0) return 0;
    path[len] = '\0';
    return is_below(path);
}

// A name relative to an open directory is below FI_DIR when that directory is.
static int name_is_below(int dir, const char *path) {
    if (path[0] == '/' || dir == AT_FDCWD) return is_below(path);
    return fd_is_below(dir);
}

// --- Is it this call's turn? ---

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static enum verdict judge(char kind) {
    if (!strchr(kinds, kind)) return WORKS;
    long number = __sync_add_and_fetch(&counted, 1);
    if (chosen == 0 || number < chosen || (number > chosen && !is_sticky)) return WORKS;
    if (kills) die();
    if (kills_after) return IS_LAST;
    if (is_short) return IS_SHORT;
    errno = error_number;
    return FAILS;
}

// Finds the C library's function of the same name, once.
#define REAL(result, name, ...)                              \
    static result (*real)(__VA_ARGS__);                      \
    if (!real) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

// --- Writing ---

#define WRITE(name, parameters, arguments, halved, ...)      \
    ssize_t name parameters {                                \
        REAL(ssize_t, name, __VA_ARGS__);                    \
        if (fd_is_below(fd)) switch (judge('w')) {           \
            case FAILS: return -1;                           \
            case IS_SHORT: if (len > 1) return real halved;  \
            case WORKS: case IS_LAST: break;                 \
        }                                                    \
        return real arguments;                               \
    }

WRITE(write, (int fd, const void *bytes, size_t len), (fd, bytes, len), (fd, bytes, len / 2),
      int, const void *, size_t)
WRITE(pwrite, (int fd, const void *bytes, size_t len, off_t at), (fd, bytes, len, at),
      (fd, bytes, len / 2, at), int, const void *, size_t, off_t)
WRITE(pwrite64, (int fd, const void *bytes, size_t len, off64_t at), (fd, bytes, len, at),
      (fd, bytes, len / 2, at), int, const void *, size_t, off64_t)
// Half of a vector is its first half of buffers.
WRITE(writev, (int fd, const struct iovec *parts, int len), (fd, parts, len), (fd, parts, len / 2),
      int, const struct iovec *, int)
WRITE(pwritev, (int fd, const struct iovec *parts, int len, off_t at), (fd, parts, len, at),
      (fd, parts, len / 2, at), int, const struct iovec *, int, off_t)
WRITE(pwritev64, (int fd, const struct iovec *parts, int len, off64_t at), (fd, parts, len, at),
      (fd, parts, len / 2, at), int, const struct iovec *, int, off64_t)

// --- Calls on an open file that either work or fail ---

#define ON_FILE(name, kind, parameters, arguments, ...)                \
    int name parameters {                                              \
        REAL(int, name, __VA_ARGS__);                                  \
        enum verdict verdict = fd_is_below(fd) ? judge(kind) : WORKS;  \
        if (verdict == FAILS) return -1;                               \
        int result = real arguments;                                   \
        if (verdict == IS_LAST) die();                                 \
        return result;                                                 \
    }

ON_FILE(fsync, 's', (int fd), (fd), int)
ON_FILE(fdatasync, 's', (int fd), (fd), int)
ON_FILE(ftruncate, 'w', (int fd, off_t len), (fd, len), int, off_t)
ON_FILE(ftruncate64, 'w', (int fd, off64_t len), (fd, len), int, off64_t)

// These return the error instead of setting errno.
int posix_fallocate(int fd, off_t at, off_t len) {
    REAL(int, posix_fallocate, int, off_t, off_t);
    return fd_is_below(fd) && judge('w') == FAILS ? error_number : real(fd, at, len);
}
int posix_fallocate64(int fd, off64_t at, off64_t len) {
    REAL(int, posix_fallocate64, int, off64_t, off64_t);
    return fd_is_below(fd) && judge('w') == FAILS ? error_number : real(fd, at, len);
}

// --- Names: what counts is where the new name goes ---

int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    return is_below(to) && judge('r') == FAILS ? -1 : real(from, to);
}
int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    REAL(int, renameat, int, const char *, int, const char *);
    return name_is_below(to_dir, to) && judge('r') == FAILS ? -1 : real(from_dir, from, to_dir, to);
}
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    REAL(int, renameat2, int, const char *, int, const char *, unsigned);
    return name_is_below(to_dir, to) && judge('r') == FAILS ? -1 : real(from_dir, from, to_dir, to, flags);
}
int link(const char *from, const char *to) {
    REAL(int, link, const char *, const char *);
    return is_below(to) && judge('r') == FAILS ? -1 : real(from, to);
}
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    REAL(int, linkat, int, const char *, int, const char *, int);
    return name_is_below(to_dir, to) && judge('r') == FAILS ? -1 : real(from_dir, from, to_dir, to, flags);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *);
    return is_below(path) && judge('u') == FAILS ? -1 : real(path);
}
int unlinkat(int dir, const char *path, int flags) {
    REAL(int, unlinkat, int, const char *, int);
    return name_is_below(dir, path) && judge('u') == FAILS ? -1 : real(dir, path, flags);
}

// --- Opening: only what makes a file ---

// The mode is there only when a file may be made; reading it otherwise is harmless here.
#define OPEN(name)                                                                   \
    int name(const char *path, int flags, ...) {                                     \
        REAL(int, name, const char *, int, ...);                                     \
        va_list rest;                                                                \
        va_start(rest, flags);                                                       \
        mode_t mode = va_arg(rest, mode_t);                                          \
        va_end(rest);                                                                \
        if ((flags & O_CREAT) && is_below(path) && judge('o') == FAILS) return -1;   \
        return real(path, flags, mode);                                              \
    }
#define OPEN_AT(name)                                                                \
    int name(int dir, const char *path, int flags, ...) {                            \
        REAL(int, name, int, const char *, int, ...);                                \
        va_list rest;                                                                \
        va_start(rest, flags);                                                       \
        mode_t mode = va_arg(rest, mode_t);                                          \
        va_end(rest);                                                                \
        if ((flags & O_CREAT) && name_is_below(dir, path) && judge('o') == FAILS) return -1; \
        return real(dir, path, flags, mode);                                         \
    }

OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)
