/*
 * Shifts the wall clock of one process, and only its own.
 *
 * Loaded with LD_PRELOAD. The shift, in milliseconds, is the native-endian
 * int64 at the start of the file that LOCKSTEP_CLOCK_FILE names; it is read
 * anew with every call, so a test can step the clock of a running server.
 * Monotonic clocks are left alone, as a step of the real clock leaves them.
 *
 * These functions may be called by an allocator that is just being set up, so
 * nothing here allocates or takes a lock, and time comes from the kernel by
 * system call: asking libc would come back to us.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define NS_PER_MS 1000000LL

static const int64_t *shift_ms;

/* A test whose clock was silently not shifted would prove nothing. */
static void refuse(const char *why, size_t length)
{
	syscall(SYS_write, 2, why, length);
	syscall(SYS_exit_group, 97);
}
#define REFUSE(why) refuse("clock shim: " why "\n", sizeof("clock shim: " why "\n") - 1)

__attribute__((constructor)) static void open_clock_file(void)
{
	const char *path = getenv("LOCKSTEP_CLOCK_FILE");
	if (!path)
		return;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		REFUSE("cannot open LOCKSTEP_CLOCK_FILE");
	struct stat file;
	/* A page beyond the end of its file kills whoever reads it. */
	if (fstat(fd, &file) != 0 || file.st_size < (off_t)sizeof(int64_t))
		REFUSE("LOCKSTEP_CLOCK_FILE is too short");
	void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		REFUSE("cannot map LOCKSTEP_CLOCK_FILE");
	syscall(SYS_close, fd);
	shift_ms = page;
}

static int kernel_time(clockid_t clock, struct timespec *out)
{
	return (int)syscall(SYS_clock_gettime, clock, out);
}

static void shift(struct timespec *t)
{
	if (!shift_ms)
		return;
	int64_t ms = __atomic_load_n(shift_ms, __ATOMIC_RELAXED);
	int64_t ns = t->tv_nsec + (ms % 1000) * NS_PER_MS;
	t->tv_sec += ms / 1000;
	if (ns < 0) {
		ns += NS_PER_S;
		t->tv_sec -= 1;
	} else if (ns >= NS_PER_S) {
		ns -= NS_PER_S;
		t->tv_sec += 1;
	}
	t->tv_nsec = ns;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
	int result = kernel_time(clock, out);
	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		shift(out);
	return result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	if (kernel_time(CLOCK_REALTIME, &now) != 0)
		return -1;
	shift(&now);
	out->tv_sec = now.tv_sec;
	out->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec now;
	if (kernel_time(CLOCK_REALTIME, &now) != 0)
		return (time_t)-1;
	shift(&now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}
