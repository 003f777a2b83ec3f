"""A clock that a test steps or slews, for one program only: others keep theirs."""

from __future__ import annotations

import struct
import subprocess
import time
from pathlib import Path

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *set; /* the step in s; parts in a million; since when, on CLOCK_MONOTONIC */
__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("MQTICK_STEP"), O_RDONLY);
  set = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
}
static long real(clockid_t clock) {
  struct timespec now;
  syscall(SYS_clock_gettime, clock, &now);
  return now.tv_sec * 1000000000 + now.tv_nsec;
}
static long slewed(long at_ns) { return (at_ns - set[2]) / 1000 * set[1] / 1000; }
static void put(struct timespec *time, long ns) {
  time->tv_sec = ns / 1000000000;
  time->tv_nsec = ns % 1000000000;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (!set || (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)) return result;
  if (set[1]) put(now, real(clock) + slewed(real(CLOCK_MONOTONIC)));
  if (clock == CLOCK_REALTIME) now->tv_sec += set[0];
  return result;
}
/* The kernel stamps with the same clock. */
ssize_t recvmsg(int file, struct msghdr *message, int flags) {
  static ssize_t (*kernels)(int, struct msghdr *, int);
  if (!kernels) kernels = dlsym(RTLD_NEXT, "recvmsg");
  ssize_t result = kernels(file, message, flags);
  if (result < 0 || !set || !set[1]) return result;
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
    int is_stamp = part->cmsg_type == SO_TIMESTAMPNS || part->cmsg_type == SO_TIMESTAMPING;
    struct timespec time;
    if (part->cmsg_level != SOL_SOCKET || !is_stamp) continue;
    memcpy(&time, CMSG_DATA(part), sizeof time);
    long ns = time.tv_sec * 1000000000 + time.tv_nsec;
    put(&time, ns + slewed(ns - real(CLOCK_REALTIME) + real(CLOCK_MONOTONIC)));
    if (ns) memcpy(CMSG_DATA(part), &time, sizeof time);
  }
  return result;
}
"""


def stepped_clock(folder: Path) -> tuple[Path, dict[str, str]]:
    """Build it: a file whose first eight octets are the step in s, and a program's environment."""
    (folder / "step.c").write_text(_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "step.so", "step.c"], cwd=folder, check=True)
    step = folder / "step"
    step.write_bytes(bytes(4096))
    return step, {"MQTICK_STEP": str(step), "LD_PRELOAD": str(folder / "step.so")}


def slew(step: Path, ppm: int) -> None:
    """Let the clock run so much too fast from now on."""
    with step.open("r+b") as file:
        file.write(struct.pack("3q", 0, ppm, time.monotonic_ns()))
