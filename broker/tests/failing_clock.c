// A system that has no time for a worker of the broker, once: where Rust's library panics. Is asked
// for with the first octet of the file that MQTICK_FAILURES names.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile int *failures;
__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("MQTICK_FAILURES"), O_RDWR);
  failures = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  char name[16] = "";
  if (clock == CLOCK_MONOTONIC && *failures && !prctl(PR_GET_NAME, name) &&
      !strncmp(name, "worker", 6) && __sync_bool_compare_and_swap(failures, 1, 0)) {
    errno = EINVAL;
    return -1;
  }
  return (int)syscall(SYS_clock_gettime, clock, now);
}
