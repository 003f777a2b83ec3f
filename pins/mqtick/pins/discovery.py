"""Finds the back end that a setting names, through the entry point group `mqtick.pins`.

Any installed distribution may add one. In its pyproject.toml:

    [project.entry-points."mqtick.pins"]
    mychip = "mypackage.mychip:open_pin"      # open_pin(settings: PinSettings) -> Line
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from mqtick.pins.base import Clock, Line, PinError, PinSettings, monotonic_raw_ns, nearest
from mqtick.pins.output import Output

GROUP = "mqtick.pins"


def backends() -> tuple[str, ...]:
    """Name the back ends that are installed, in alphabetical order, without loading any."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def open_line(settings: PinSettings) -> Line:
    """Open the line that the settings describe; raises PinError if that is not possible."""
    point = _find(settings.backend)
    try:
        open_pin = point.load()
    except Exception as trouble:  # whatever another author's module does while it is imported
        raise PinError(
            f"The pin back end {settings.backend!r} ({point.value}) cannot be loaded: {trouble}. "
            f"Repair or remove the package that provides it, or choose another back end."
        ) from trouble
    line: Line = open_pin(settings)
    return line


def open_output(settings: PinSettings, now: Clock = monotonic_raw_ns) -> Output:
    """Open the line that the settings describe, as an output that makes edges.

    `now` reads CLOCK_MONOTONIC_RAW in ns. Raises PinError if the line cannot be opened.
    """
    return Output(open_line(settings), settings, now)


def _find(name: str) -> EntryPoint:
    for point in entry_points(group=GROUP):
        if point.name == name:
            return point
    known = backends()
    if not known:
        raise PinError(
            f"The pin back end {name!r} was not found, because no back end at all is installed: "
            "mqtick is running from a folder that was never installed; run `pip install .` in it."
        )
    raise PinError(
        f"There is no pin back end {name!r}; {nearest(name, known)}. Known: {', '.join(known)}."
    )
