"""What every demo needs around what it shows: a folder, a broker, our programs, an exit code."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from demo.local_broker import Amqtt, Mosquitto, program


def play(name: str, show: Callable[[Path], int], *, keep: bool = False) -> int:
    """Show a demo in a new folder for its logs, and return its exit code.

    The folder stays where something went wrong, and if it is to be kept.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"mqtick-{name}-"))
    folder.chmod(0o755)  # the broker may run as another user
    try:
        code = show(folder)
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    except (OSError, RuntimeError, AssertionError) as error:
        print(f"error: {error}", file=sys.stderr)
        code = 1
    if code or keep:
        print(f"The logs are in {folder}.", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def any_broker(folder: Path) -> Mosquitto:
    """Return a Mosquitto; where it is not installed, the broker of Python packages."""
    return Mosquitto(folder) if program("mosquitto") is not None else Amqtt(folder)


def tool(name: str, *arguments: str, quiet: bool = False) -> int:
    """Run one of our programs; return its exit code."""
    call = [str(Path(sys.executable).parent / name), *arguments]
    sys.stdout.flush()
    return subprocess.call(call, stdout=subprocess.DEVNULL if quiet else None)


def compare(*runs: Path, out: Path) -> int:
    """Report some runs beside each other; return the exit code."""
    print()
    page = str(out / "report")
    # Limits are for a fleet: two shared CPUs are shown, not judged.
    return tool("mqtick-report", "compare", *map(str, runs), "--no-limits", "--out", page)
