/* Loaded before a program: once after the file that FAILING_THREAD names is made, whoever receives
 * datagrams fails: the clock does not answer until the program in Rust panics at that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static __thread int fails;

int recvmmsg(int socket, struct mmsghdr *messages, unsigned int count, int flags,
	     struct timespec *limit)
{
	const char *name = getenv("FAILING_THREAD");
	int result = ((int (*)(int, struct mmsghdr *, unsigned int, int, struct timespec *))dlsym(
		RTLD_NEXT, "recvmmsg"))(socket, messages, count, flags, limit);
	fails = result > 0 && !(flags & MSG_ERRQUEUE) && name && unlink(name) == 0;
	return result;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (fails) {
		errno = EINVAL;
		return -1;
	}
	return ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock,
											 now);
}

int _Unwind_RaiseException(void *exception)
{
	fails = 0;
	return ((int (*)(void *))dlsym(RTLD_NEXT, "_Unwind_RaiseException"))(exception);
}
