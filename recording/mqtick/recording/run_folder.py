"""A run is a folder: run.json, and one file a shot (see docs/run-folder.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqtick.recording.layout import CLOCK, LATENCY, SKEW
from mqtick.recording.shot import DamagedShotError, Shot, read_shot, replace_file

FORMAT_VERSION: Final = 1
RECORD: Final = "run.json"
_SHOTS: Final = "shots"
_LARGEST: Final = 64 << 20


class RunFolderError(ValueError):
    """A run folder cannot be read or begun; the text says why, and what to do."""


def shot_path(folder: Path, number: int) -> Path:
    """Return the file of a shot."""
    return folder / _SHOTS / f"{number:06d}.npz"


def refuse_used(folder: Path) -> None:
    """RunFolderError if there is already something in the folder."""
    try:
        present = [each.name for each in folder.iterdir() if each.name != ".lock"]
    except FileNotFoundError:
        present = []
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be a run folder ({error.strerror}).") from error
    if RECORD in present:
        raise RunFolderError(
            f"{folder} holds a run already: continue it with --resume, or name another folder."
        )
    if present:
        raise RunFolderError(
            f"{folder} is not empty but holds no run ({present[0]} is there); name a new folder."
        )


def create_run(folder: Path, record: Mapping[str, Any]) -> None:
    """Make a run folder; RunFolderError if there is already something."""
    refuse_used(folder)
    try:
        (folder / _SHOTS).mkdir(parents=True, exist_ok=True)
        write_record(folder, record)
    except OSError as error:
        raise RunFolderError(f"{folder} cannot be written ({error.strerror}).") from error


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    """Write run.json, whole or not at all; OSError where that cannot be."""
    content = {"format": "mqtick-run", "version": FORMAT_VERSION, **record}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str)
    replace_file(folder / RECORD, text.encode("utf-8", "backslashreplace") + b"\n")


@dataclass(slots=True)
class Run:
    """A run that was read: what was measured with what, and a way to its shots.

    Attributes:
        folder: where it is.
        record: the content of run.json.
        damaged: a sentence for each shot file that could not be read, once `shots` has reached it.
    """

    folder: Path
    record: dict[str, Any]
    damaged: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Return latency, skew or clock."""
        return str(self.record.get("kind", ""))

    @property
    def simulated(self) -> bool:
        """Whether an instrument or a measured node was simulated; True where it is not known."""
        return self.record.get("simulated") is not False

    def shots(self) -> Iterator[Shot]:
        """Yield the shots in the order of their numbers, one at a time, without waveforms."""
        self.damaged.clear()
        for path in sorted((self.folder / _SHOTS).glob("[0-9]*.npz")):
            try:
                shot = read_shot(path)
                if path != shot_path(self.folder, shot.number):
                    raise DamagedShotError(
                        f"{path} says that it is shot {shot.number}; it is left out."
                    )
                yield shot
            except DamagedShotError as error:
                self.damaged.append(str(error))


def load_run(folder: Path | str) -> Run:
    """Read a run folder; RunFolderError if it is not one, or is of a later version."""
    folder = Path(folder)
    path = folder / RECORD
    try:
        with path.open("rb") as file:
            octets = file.read(_LARGEST)
        record = json.loads(octets)
    except FileNotFoundError:
        raise RunFolderError(
            f"{folder} is not a run folder: there is no {RECORD} in it; name the folder that "
            "was given to `mqtick-lab run --out`."
        ) from None
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(
            f"{path} is damaged ({error}); restore it, as the shots alone do not say what they are."
        ) from error
    if not isinstance(record, dict) or record.get("format") != "mqtick-run":
        raise RunFolderError(f"{path} was not written by mqtick-lab; name a run folder.")
    version = record.get("version")
    if type(version) is not int or version < 1:
        raise RunFolderError(f"{path} has the version {version!r}, which is not valid; restore it.")
    if version > FORMAT_VERSION:
        raise RunFolderError(
            f"{folder} was written by a newer mqtick ({record.get('software', 'unknown')}, format "
            f"{version}; this one knows up to {FORMAT_VERSION}); use that version or a later one."
        )
    if record.get("kind", SKEW) not in (LATENCY, SKEW, CLOCK):
        raise RunFolderError(
            f"{path} says that the run is of the kind {str(record['kind'])[:40]!r}, but there are "
            f"only {LATENCY}, {SKEW} and {CLOCK}; restore it, as what was measured is not known."
        )
    return Run(folder, record)
