"""In Chromium: the page of a look draws, zooms, and goes to edges; it asks for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.tests.browser import MISSING, Browser, browser
from analysis.tests.look_parts import write_events
from mqtick.analysis.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

SHOWN = "return document.getElementById('readout').textContent;"
TOO_WIDE = """
const wide = document.documentElement.clientWidth;
return [...document.querySelectorAll('body *')].filter(
  e => e.getBoundingClientRect().right > wide + 1).map(e => e.tagName);
"""
INKED = """
const canvas = document.getElementById('lanes');
const dots = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
const colours = new Set();
for (let i = 0; i < dots.length; i += 4)
  if (dots[i + 3] === 255) colours.add(dots[i] + ',' + dots[i + 1] + ',' + dots[i + 2]);
return colours.size;
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as window:
        yield window


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a look with spaces")
    path = write_events(folder / "a.npz", [0.0] * 20, [100.0] * 20)
    assert main(["look", str(path), "--every-event", "--out", str(folder)]) == 0
    return folder / "look-a.html"


def pressed(window: Browser, *names: str) -> str:
    """What is said after clicks on these buttons, once it is drawn."""
    for name in names:
        window.run(f"document.getElementById('{name}').click();")
    window.run("return new Promise(done => requestAnimationFrame(() => setTimeout(done)));")
    return str(window.run(SHOWN))


def test_the_page_is_quiet_and_asks_for_nothing_but_itself(window: Browser, page: Path) -> None:
    window.show(1200, 900)
    window.requests()
    window.log("browser")
    window.open(page)
    assert window.log("browser") == []
    asked = [address for address in window.requests() if not address.startswith("data:")]
    assert asked == [page.resolve().as_uri()]


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1200, False), (1200, True)])
def test_it_draws_and_fits(window: Browser, page: Path, width: int, dark: bool) -> None:
    window.show(width, 900, dark=dark)
    window.open(page)
    assert window.run(INKED) > 5
    assert window.run(TOO_WIDE) == []


def test_it_zooms_and_goes_from_edge_to_edge(window: Browser, page: Path) -> None:
    window.show(1200, 900)
    window.open(page)
    assert pressed(window) == "Showing 20.9980 ms of 20.9980 ms."
    assert pressed(window, "closer", "closer") == "Showing 5.24950 ms of 20.9980 ms."
    assert pressed(window, "next") == "Showing 60.0000 µs of 20.9980 ms."
    assert pressed(window, "next", "before", "wider") == "Showing 120.000 µs of 20.9980 ms."
    assert pressed(window, "whole") == "Showing 20.9980 ms of 20.9980 ms."
    assert pressed(window, *["closer"] * 60) == "Showing 4.00000 µs of 20.9980 ms."


def test_two_clicks_measure_the_time_between_them(window: Browser, page: Path) -> None:
    window.show(1200, 900)
    window.open(page)
    for share in (0.25, 0.75):
        window.run(
            "const canvas = document.getElementById('lanes'), box = canvas.getBoundingClientRect();"
            f"const x = box.left + 58 + (box.width - 68) * {share};"
            "const at = {clientX: x, clientY: box.top + 40,"
            " pointerId: 1, bubbles: true};"
            "canvas.setPointerCapture = () => {};"
            "for (const kind of ['pointerdown', 'pointerup'])"
            "  canvas.dispatchEvent(new PointerEvent(kind, at));"
        )
    assert "B − A = 10.49" in pressed(window) or "B − A = 10.5" in pressed(window)
