from __future__ import annotations

import ctypes
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mqtick.service import realtime


@pytest.fixture(autouse=True)
def garbage_collector_as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def in_another_process(program: str) -> str:
    """Run lines that change the whole process, and return what they print."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import os, resource, gc\nfrom mqtick.service import realtime\n" + program,
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.strip()


def locked_kibibytes(status: str) -> int:
    return int(next(line for line in status.splitlines() if "VmLck" in line).split()[1])


def test_memory_is_locked_or_a_sentence_says_why_not() -> None:
    said = in_another_process(
        "print(realtime.lock_memory())\nprint(open('/proc/self/status').read())"
    )
    outcome, status = said.split("\n", 1)
    if outcome == "None":
        assert locked_kibibytes(status) > 1000
    else:
        assert outcome.startswith("memory is not locked: ")
        assert locked_kibibytes(status) == 0


def test_a_thread_takes_little_of_the_memory_that_is_locked() -> None:
    said = in_another_process(
        "import threading\n"
        "realtime.small_stacks()\n"
        "ready, end = threading.Event(), threading.Event()\n"
        "def run(): ready.set(); end.wait()\n"
        "threading.Thread(target=run).start(); ready.wait()\n"
        "stacks = [line for line in open('/proc/self/maps') if ' rw-p ' in line]\n"
        "sizes = [int(b, 16) - int(a, 16) for a, b in (s.split()[0].split('-') for s in stacks)]\n"
        "end.set()\n"
        "print(1 << 20 in sizes, 8 << 20 in sizes)"
    )
    assert said == "True False"


def test_memory_is_not_locked_under_a_finite_limit() -> None:
    # An allocation beyond the limit would fail later, in the middle of the work.
    said = in_another_process(
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "print(realtime.lock_memory())"
    )
    assert said == (
        "memory is not locked: the limit is 65536 octets, and a later allocation past it would "
        "fail; set LimitMEMLOCK=infinity in the unit"
    )


def test_a_kernel_that_refuses_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        @staticmethod
        def mlockall(flags: int) -> int:
            assert flags == 3, "present and future pages"
            return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: Library)
    monkeypatch.setattr(ctypes, "get_errno", lambda: 1)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert str(realtime.lock_memory()).startswith("memory is not locked: Operation not permitted; ")


def test_the_garbage_collector_becomes_quiet() -> None:
    assert realtime.quiet_garbage_collector() is None
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 1000


def test_a_program_is_pinned_to_its_cpus() -> None:
    cpu = max(os.sched_getaffinity(0))
    said = in_another_process(
        f"print(realtime.pin_to_cpus([{cpu}]), sorted(os.sched_getaffinity(0)))"
    )
    assert said == f"None [{cpu}]"


@pytest.mark.parametrize("cpus", [[100_000], [], [-1], [1 << 70], ["a"]])
def test_a_cpu_that_is_not_there_is_a_sentence(cpus: list[int]) -> None:
    before = os.sched_getaffinity(0)
    assert f"the program is not pinned to CPUs {cpus}" in str(realtime.pin_to_cpus(cpus))
    assert os.sched_getaffinity(0) == before


def test_another_policy_than_fifo_is_a_sentence() -> None:
    assert realtime.expect_fifo() == (
        "the scheduling policy is other, but fifo was expected; "
        "set CPUSchedulingPolicy=fifo in the unit"
    )


def test_the_fifo_policy_is_recognised() -> None:
    said = in_another_process(
        "policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK\n"
        "try:\n    os.sched_setscheduler(0, policy, os.sched_param(5))\n"
        "    print(realtime.expect_fifo())\n"
        "except PermissionError: print('not permitted')"
    )
    if said == "not permitted":
        pytest.skip("this user may not set the FIFO policy")
    assert said == "None"
