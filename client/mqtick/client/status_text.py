"""The client's status as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mqtick.service.program import trouble_lines

ASSUMPTION = "if the broker is honest and links are symmetric"
"""The assumption behind `narrow_bound_ns`."""

ONLY_HEARD = "(assumed: only broadcasts are heard)"
"""What `bound_is_assumed` means."""

MARKS = "* in use, + good too, x contradicts another one, ? its time is not known"


def summary(values: Mapping[str, Any]) -> str:
    """Return one line for systemd and for logs."""
    if values["chosen"] is None:
        return "unsynchronised"
    row = values["servers"][values["chosen"]]
    said = [f"offset {offset_text(row['offset_ns'])}", f"bound {width_text(row['bound_ns'])}"]
    if row["narrow_bound_ns"] is not None:
        said.append(f"assumed {width_text(row['narrow_bound_ns'])}")
    return f"{values['state']}: {', '.join([*said, *map(apart, values['disagreements'])])}"


def offset_text(value_ns: int | None) -> str:
    """Return an offset with its sign, in us or ms."""
    if value_ns is None:
        return "unknown"
    if abs(value_ns) >= 10_000_000:
        return f"{value_ns / 1e6:+.3f} ms"
    return f"{value_ns / 1000:+.1f} us"


def width_text(value_ns: int | None) -> str:
    """Return a bound or a distance, in us or ms."""
    return offset_text(value_ns).lstrip("+")


def apart(row: Mapping[str, Any]) -> str:
    """Name two servers that disagree, and by how much."""
    one, other = row["servers"]
    return f"servers {one} and {other} disagree by at least {width_text(row['gap_ns'])}"


def _heading(values: Mapping[str, Any], age_ns: int, why_old: str) -> Iterator[str]:
    """Say first whether the status is current."""
    if not why_old:
        yield f"client            {values['name']}, {values['state']}"
        return
    age = f"{age_ns / 1e9:.0f} s"
    yield f"this status is {age} old: {why_old}; it last said:"
    yield f"client            {values['name']}, {values['state']} {age} ago"


def _authenticated(values: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if row["authenticated"]:
        return "yes"
    if row["format"] != "precise":
        return "no, this format has no tags"
    return "not yet, no exchange has succeeded" if values["keys"] else "no, without keys"


_DOORS = {
    "follow_unsigned": "any publisher can set this clock without a key",
    "trust_broker": "the bound holds only if the broker delivers in order",
    "trust_broker_residence": "the bound holds only if no broker lies",
}


def status_lines(values: Mapping[str, Any], age_ns: int = 0, why_old: str = "") -> Iterator[str]:
    """Yield the status as a person reads it."""
    link = f"connected (MQTT {values['mqtt_version']})"
    if not values["connected"]:
        link = f"not connected after {values['attempts']} attempts: {values['last_error']}"
    stamps = "kernel" if values["kernel_timestamps"] else "user"
    yield from _heading(values, age_ns, why_old)
    yield from trouble_lines(values)
    if values["name_heard_twice"]:
        yield "name              another client asks under it: give each a name of its own"
    says = ", says how long each message was in it" if values["broker_fills"] else ""
    yield f"broker            {values['broker']}, {link}, {stamps} timestamps{says}"
    yield from (
        f"open door         {name}: {what}" for name, what in _DOORS.items() if values[name]
    )
    if not values["servers"]:
        yield "server            none heard yet"
    for index, row in enumerate(values["servers"]):
        name = row["format"] if row["server"] is None else f"{row['server']} ({row['format']})"
        mark = ", in use" if index == values["chosen"] else ""
        yield f"server {name}{mark}"
        yield f"  state           {row['state']}, stratum {row['stratum']}"
        if row["why_unknown"]:
            yield f"  not known       {row['why_unknown']}"
        if row["trouble"] is not None:
            yield f"  not believed    {row['trouble']['says']}: {row['trouble']['remedy']}"
        if row["in_doubt"]:
            yield "  in doubt        the newest exchanges contradict what follows"
        if row["offset_ns"] is not None:
            assumed = f" {ONLY_HEARD}" if row["bound_is_assumed"] else ""
            root = width_text(row["root_distance_ns"])
            yield f"  offset          {offset_text(row['offset_ns'])} (server minus this clock)"
            yield f"  bound           {width_text(row['bound_ns'])}{assumed}, root distance {root}"
            if row["narrow_bound_ns"] is not None:
                yield f"  assumed         +-{width_text(row['narrow_bound_ns'])} {ASSUMPTION}"
            if row["slew_is_assumed"]:
                slew = f"{row['slew_ppb'] / 1000:g} ppm (twice assumed_slew_ppm)"
                yield f"  slew            the server promises nothing: assumed within {slew}"
            yield f"  frequency       {_frequency(row['frequency_ppb'])}"
            yield f"  last sample     {row['age_ns'] / 1e9:.1f} s ago, {row['kind']}"
        if row["delay_ns"] is not None:
            yield f"  round trip      {width_text(row['delay_ns'])}"
        yield f"  authenticated   {_authenticated(values, row)}"
        yield f"  samples         {_verdicts(row['verdicts'])}"
        yield f"  forgotten       {row['jumps']} jumps confirmed, {row['resets']} times all samples"
    for each in values["disagreements"]:
        yield f"disagreement      {apart(each)}, root distances included: one of them is wrong"
    for number, feed in values.get("chrony", {}).items():
        yield from _feed_lines(number, feed)
    yield from _pin_lines(values)
    refused = ", ".join(f"{name} {count}" for name, count in sorted(values["refused"].items()))
    yield f"refused           {refused or 'nothing'}"


def _pin_lines(values: Mapping[str, Any]) -> Iterator[str]:
    pps = values.get("pps")
    if pps:
        yield f"pps               {pps['made']} made, {pps['missed']} missed"
    for name, pin in values.get("pins", {}).items():
        errors = f"{pin['errors']} errors, the last: {pin['last']}" if pin["errors"] else "good"
        yield f"pin               {name}: {pin['backend']}, {errors}"


def _feed_lines(number: str, feed: Mapping[str, Any]) -> Iterator[str]:
    """Say what chronyd got of a server, and what not."""
    sent = ", ".join(f"{count} {outcome}" for outcome, count in feed["sent"].items())
    yield f"chrony            server {number}: {sent or 'nothing sent'}; {feed['says']}"
    if feed["withheld"]:
        withheld = ", ".join(f"{name} {count}" for name, count in feed["withheld"].items())
        yield f"  withheld        {withheld}"
    if feed["clock_says"]:
        yield f"  clock           {feed['clock_says']}"


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Count samples by verdict, and the refused ones also by reason."""
    counts = Counter[str]()
    reasons = Counter[str]()
    for row in rows:
        counts[row["verdict"]] += row["count"]
        if row["verdict"] == "refused":
            reasons[row["reason"]] += row["count"]
    why = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
    text = f"{counts['used']} used, {counts['kept']} kept, {counts['refused']} refused"
    return f"{text} ({why})" if why else text


def _frequency(value_ppb: float | None) -> str:
    if value_ppb is None:
        return "unknown yet"
    return f"{value_ppb / 1000:+.3f} ppm (positive: this clock is slow)"


_HEADINGS = "server format stratum state last offset bound assumed root delay authenticated"


def sources_lines(values: Mapping[str, Any], age_ns: int = 0, why_old: str = "") -> Iterator[str]:
    """Yield one line per server, below a line of headings."""
    if why_old:
        yield f"this status is {age_ns / 1e9:.0f} s old: {why_old}"
    lines: list[tuple[str, ...]] = [(" ", *_HEADINGS.split())]
    lines += [_source(values, index) for index in range(len(values["servers"]))]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        words = zip(line, widths, strict=True)
        yield "  ".join(word.ljust(width) for word, width in words).rstrip()


def _source(values: Mapping[str, Any], index: int) -> tuple[str, ...]:
    row = values["servers"][index]
    name = row["format"] if row["server"] is None else str(row["server"])
    if index == values["chosen"]:
        mark = "*"
    elif any(name in each["servers"] for each in values["disagreements"]):
        mark = "x"
    else:
        mark = "?" if row["state"] == "unsynchronised" else "+"
    return (
        mark,
        name,
        row["format"],
        str(row["stratum"]),
        row["state"],
        "-" if row["age_ns"] is None else f"{row['age_ns'] / 1e9:.1f} s",
        "-" if row["offset_ns"] is None else offset_text(row["offset_ns"]),
        "-" if row["bound_ns"] is None else width_text(row["bound_ns"]),
        "-" if row["narrow_bound_ns"] is None else width_text(row["narrow_bound_ns"]),
        width_text(row["root_distance_ns"]),
        "-" if row["delay_ns"] is None else width_text(row["delay_ns"]),
        _authenticated(values, row).partition(",")[0],
    )
