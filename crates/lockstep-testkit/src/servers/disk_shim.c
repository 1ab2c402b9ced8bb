/*
 * A disk that stands still: while the file that LOCKSTEP_DISK_GATE names is
 * there, nothing that this process has written reaches the disk, as far as it
 * can tell. Loaded with LD_PRELOAD.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wait_for_the_disk(void)
{
	const char *gate = getenv("LOCKSTEP_DISK_GATE");
	while (gate && access(gate, F_OK) == 0)
		usleep(1000);
}

int fsync(int fd)
{
	wait_for_the_disk();
	return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	wait_for_the_disk();
	return (int)syscall(SYS_fdatasync, fd);
}
