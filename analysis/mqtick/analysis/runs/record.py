"""What run.json says of a run, in readable lines: what it was measured with, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from mqtick.analysis.instants import LATEST_NS, instant_text
from mqtick.recording.units import NS_PER_S

_MISSING_SHOWN: Final = 5
_MOST_SHOTS: Final = 1 << 31


def provenance_of(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return label and text of whatever a run's record says, in the order of reading.

    A record is only as good as its author: what is missing or has another form is left out.
    """
    record = _table(record)
    sessions = [_table(each) for each in _list(record.get("sessions"))]
    first, last = (sessions[0], sessions[-1]) if sessions else ({}, {})
    settings = _table(record.get("settings"))
    lines = _when(record, sessions)
    lines += [("Plan", _plan(record, settings)), ("Broker", _text(settings.get("broker")))]
    for name, about in _table(first.get("instruments")).items():
        lines.append((f"Instrument {name}", _instrument(name, _table(about), settings)))
    for name, wiring in _table(record.get("channels")).items():
        lines.append((f"Channel {name}", _channel(_table(wiring))))
    for name, about in _table(last.get("nodes")).items():
        lines.append((f"Node {name}", _node(_table(about))))
    lines.append(("Bench host", _node(_table(last.get("runner")))))
    lines.append(("Software", _text(record.get("software"))))
    lines.append(("Command", _text(record.get("command"))))
    return [(label, text) for label, text in lines if text]


def _when(record: Mapping[str, Any], sessions: list[Mapping[str, Any]]) -> list[tuple[str, str]]:
    ended = _table(record.get("ended"))
    begin_ns = sessions[0].get("started_ns") if sessions else None
    end_ns = ended.get("at_ns")
    lines = [("Begun", instant_text(begin_ns))]
    if type(begin_ns) is int and type(end_ns) is int and 0 < begin_ns < end_ns < LATEST_NS:
        seconds = round((end_ns - begin_ns) / NS_PER_S)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        shown = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
        lines.append(("Took", shown if hours or minutes else f"{seconds} s"))
    if len(sessions) > 1:
        resumed = ", ".join(instant_text(each.get("started_ns")) for each in sessions[1:])
        lines.append(("Resumed", resumed))
    if sessions and not ended:
        lines.append(("Ended", "no end is recorded: it still runs, or its runner was killed"))
    lines.append(("Ended early", _text(ended.get("early_because"))))
    return lines


def _plan(record: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    blocks = [_table(block) for block in _list(record.get("plan"))]
    shots = [block.get("shots") for block in blocks]
    if not blocks or not all(type(each) is int for each in shots):
        return ""
    numbers = {block.get("subscribers") for block in blocks}
    known = sorted(number for number in numbers if type(number) is int and number)
    rounds = len({block.get("round") for block in blocks})
    total = sum(each for each in shots if type(each) is int)
    text = f"{total} shots"
    if known:
        text += f" of N = {', '.join(map(str, known))}"
    text += f" in {rounds} rounds" if rounds > 1 else " in 1 round"
    interval = settings.get("interval_s")
    return text + (f", every {interval:g} s" if isinstance(interval, int | float) else "")


def _instrument(name: str, about: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    said = [_text(about.get("description")), _text(about.get("resource"))]
    setup = _table(about.get("setup"))
    span_s, points, trigger = setup.get("span_s"), setup.get("points"), setup.get("trigger")
    if isinstance(span_s, int | float) and isinstance(points, int):
        said.append(f"{points:,} points over {span_s * 1e6:,g} us")
    if channel := _text(settings.get(f"instrument.{name}.trigger")):
        how = _table(trigger)
        level = how.get("level_v")
        at = f" at {level:g} V" if isinstance(level, int | float) else ""
        said.append(f"triggered by {channel}, {_text(how.get('slope'))}{at}")
    if about.get("simulated") is True:
        said.append("simulated")
    return "; ".join(filter(None, said))


def _channel(wiring: Mapping[str, Any]) -> str:
    text = (
        f"input {_text(wiring.get('input'))} of {_text(wiring.get('instrument'))}, pin "
        f"{_text(wiring.get('pin'))} of {_text(wiring.get('node'))}"
    )
    for key, what in (("cable_delay_ns", "cable delay"), ("deskew_ns", "deskew")):
        value = wiring.get(key)
        if isinstance(value, int | float) and value:
            text += f", {what} of {value:g} ns subtracted"
    return text


def _node(about: Mapping[str, Any]) -> str:
    said = [_text(about.get(key)) for key in ("software", "host", "machine", "kernel")]
    if python := _text(about.get("python")):
        said.append(f"Python {python}")
    for pin, wiring in _table(about.get("pins")).items():
        said.append(f"pin {pin}: {_text(_table(wiring).get('line'))}")
    if clock := _text(about.get("clock")):
        said.append(f"clock {clock}")
    if chrony := _chrony(_table(about.get("chrony"))):
        said.append(f"chrony: {chrony}")
    return "; ".join(filter(None, said))


def _chrony(about: Mapping[str, Any]) -> str:
    """Take every word or number: each chrony version has its own form."""
    if error := _text(about.get("error")):
        return error
    words = [f"{key.replace('_', ' ')} {_text(value)}" for key, value in about.items()]
    words = [word for word, value in zip(words, about.values(), strict=True) if _text(value)]
    for server, inner in about.items():
        if says := _text(_table(inner).get("says")):
            words.append(f"server {server}: {says}")
    return ", ".join(words)


def _text(value: object) -> str:
    """Return a word or number as text, "" for whatever else there is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) if isinstance(value, str | int | float) else ""


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def missing_note(record: Mapping[str, Any], paths: Sequence[Path]) -> str:
    """Say how many shots of the plan have no file, which, and why; "" where none is missing.

    Shots are numbered from 1 over the whole plan. Where run.json has none, the numbers up to the
    largest one are what was planned.
    """
    there = {int(path.stem) for path in paths if path.stem.isdecimal()}
    total = _shots_of(record.get("plan")) or max(there, default=0)
    missing = total - sum(0 < number <= total for number in there)
    if not missing:
        return ""
    # Not a list of all of them: a plan may say any number.
    lost = (each for each in range(1, total + 1) if each not in there)
    first = list(islice(lost, _MISSING_SHOWN))
    more = f" and {missing - len(first):,} more" if missing > len(first) else ""
    return (
        f"{missing:,} of the {total:,} shots of the plan have no file "
        f"({', '.join(map(str, first))}{more}): {_why(record.get('ended'))}"
    )


def _shots_of(plan: object) -> int:
    """Return how many shots a plan has, 0 if it is not a plan."""
    blocks = plan if isinstance(plan, list) else []
    shots = [block.get("shots") if isinstance(block, dict) else None for block in blocks]
    if not all(type(each) is int and 0 <= each < _MOST_SHOTS for each in shots):
        return 0
    return sum(each for each in shots if each is not None)


def _why(ended: object) -> str:
    if not isinstance(ended, dict) or not ended:
        return "no end of the run is recorded: it still runs, or its runner was killed."
    because = ended.get("early_because")
    if isinstance(because, str) and because:
        return f"the run ended early. {because[:500]}"
    return "the run was carried out to its end, so they have been deleted or lost since."
