"""A clock that a test steps, for one program only: others keep theirs."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *step_s;
__attribute__((constructor)) static void begin(void) {
  int file = open(getenv("MQTICK_STEP"), O_RDONLY);
  step_s = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME && step_s) now->tv_sec += *step_s;
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
