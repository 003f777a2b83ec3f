"""The same work on many files by several processes, in the files' order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final, TypeVar

from mqtick.recording.run_folder import RunFolderError

T = TypeVar("T")

_CHUNK: Final = 4


def parallel_map(work: Callable[[Path], T], paths: Sequence[Path], processes: int) -> Iterator[T]:
    """Yield what `work` returns of each path, done in that many forked processes.

    They end with this one: on Ctrl-C after their current work, and also if it is killed.
    RunFolderError where one of them was killed.
    """
    pool = ProcessPoolExecutor(
        processes,
        multiprocessing.get_context("fork"),  # others would run a user's script again
        initializer=_end_with_parent,
    )
    # Ctrl-C is for the process that the user started: the others start without it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        found = pool.map(work, paths, chunksize=_CHUNK)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield from found
    except BrokenProcessPool as error:
        raise RunFolderError(
            "A process that read shots was killed, so the rest of them is not known. The memory "
            "may have run out: close other programs, then run the same command again."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when its parent ends: each holds the queue open for the others."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
