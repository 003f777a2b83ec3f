"""A look at a capture as one HTML file to zoom in: its data and its script are in it."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mqtick.analysis.captures.look import Look
from mqtick.analysis.report import style
from mqtick.analysis.report.look_drawing import DrawnLane, drawn_lanes, span_us
from mqtick.analysis.report.numbers import plain
from mqtick.analysis.report.page import html_page, part
from mqtick.recording.units import FS_PER_US

_POINTS: Final = 16_000
"""Of a channel; twelve octets each."""
_NEAR: Final = 60
"""Samples that are shown around an edge that one goes to."""


def look_page(look: Look, picture: bytes) -> str:
    """Return the page; `picture` (PNG) is shown where no script may run."""
    drawn = drawn_lanes(look, _POINTS)
    begin, end = span_us(drawn)
    intervals = [each.interval_us for each in drawn if each.interval_us]
    data = {
        "begin": begin,
        "end": end,
        "interval": min(intervals, default=0.0),
        "near": _NEAR * max(intervals, default=(end - begin) / 1000),
        "origin": "time after the trigger" if look.triggered else "time after the record's start",
        "shaded": _shaded(look, begin, end),
        "lanes": [_lane(each, place) for place, each in enumerate(drawn)],
    }
    script = part("look.js")
    # A script of ours and no other one may run, whatever a channel is called.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = escape(plain(look.title))
    simulated = '<span class="simulated">SIMULATED:</span> ' if look.simulated else ""
    whose = " (which channel is whose was guessed)" if look.assumed else ""
    words = "\n".join(escape(plain(line)) for line in look.text.split("\n"))
    shown = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    body = (
        "<main>\n"
        f"<header><h1>{simulated}{title}</h1></header>\n"
        f"<p>A filled mark is an edge that a report uses{whose}; a hollow one is not used. Dashes: "
        "the threshold; dots: the two levels.</p>\n"
        '<div class="tools"><button id="whole">Whole record</button>'
        '<button id="closer">Closer</button><button id="wider">Wider</button>'
        '<button id="before">Edge before</button><button id="next">Next edge</button></div>\n'
        '<canvas id="lanes" tabindex="0" role="img" aria-label="The waveform of each channel; '
        'what they hold is said in words below"></canvas>\n'
        '<p id="readout" aria-live="polite"></p>\n'
        '<p class="hint">Wheel: closer, wider. Drag: along. Click: marks A and B, and the time '
        "between them. Double click: all. Keys: arrows, + and −, 0, n and p for the next edge and "
        "the one before.</p>\n"
        f'<noscript><img alt="The waveform of each channel" src="data:image/png;base64,'
        f'{base64.b64encode(picture).decode()}"></noscript>\n'
        f"<pre>{words}</pre>\n</main>\n"
        "<footer>Made by mqtick-report look.</footer>\n"
        f'<script type="application/json" id="data">{shown}</script>\n'
        f"<script>{script}</script>\n"
    )
    return html_page(title, body, css=part("look.css"), policy=f"; script-src 'sha256-{digest}'")


def _lane(each: DrawnLane, place: int) -> dict[str, Any]:
    lane = each.lane
    known = each.volts[np.isfinite(each.volts)]
    ends = [float(known.min()), float(known.max())] if known.size else [0.0, 1.0]
    return {
        "name": plain(lane.name),
        "label": plain(each.label),
        "ink": style.SERIES[place % len(style.SERIES)].ink.name,
        "unit": "V" if each.interval_us else "",
        "interval": each.interval_us,
        "range": ends,
        "levels": list(each.levels_v),
        "us": _encoded(each.us, "<f8"),
        "volts": _encoded(each.volts, "<f4"),
        "at": _encoded(each.at_us, "<f8"),
        "rising": _encoded(lane.glance.rising, "u1"),
        "used": _encoded(lane.used, "u1"),
    }


def _encoded(values: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


def _shaded(look: Look, begin: float, end: float) -> list[tuple[float, float]]:
    """Return what of the record does not count, in us."""
    from_fs, to_fs = look.window_fs
    before = [] if from_fs is None else [(begin, from_fs / FS_PER_US)]
    after = [] if to_fs is None else [(to_fs / FS_PER_US, end)]
    return [*before, *after]
