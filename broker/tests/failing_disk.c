/* Loaded before a program: while the file that FAILING_DISK names holds a word, the disk does what
 * it says. hang: a sync takes place and does not return; then there is a file NAME.hangs. full:
 * nothing can be written to a file of the store. A number: the clock of the system is ahead by so
 * many seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int says(const char *word, char *text, int room)
{
	const char *name = getenv("FAILING_DISK");
	int file = name ? open(name, O_RDONLY) : -1;
	int length = file < 0 ? 0 : read(file, text, room - 1);
	if (file >= 0)
		close(file);
	text[length < 0 ? 0 : length] = 0;
	return strcmp(word, text) == 0;
}

int fdatasync(int file)
{
	char text[32], name[4096];
	int result = ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
	while (says("hang", text, sizeof text)) {
		snprintf(name, sizeof name, "%s.hangs", getenv("FAILING_DISK"));
		close(open(name, O_CREAT | O_WRONLY, 0600));
		usleep(10000);
	}
	return result;
}

ssize_t pwrite64(int file, const void *octets, size_t count, off64_t at)
{
	char text[32], name[64], path[4096] = "";
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	if (says("full", text, sizeof text) && readlink(name, path, sizeof path - 1) > 0 &&
	    strstr(path, "/store.")) {
		errno = ENOSPC;
		return -1;
	}
	return ((ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(
		file, octets, count, at);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	char text[32];
	int result = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(
		clock, now);
	if (clock == CLOCK_REALTIME && !says("", text, sizeof text))
		now->tv_sec += atol(text);
	return result;
}
