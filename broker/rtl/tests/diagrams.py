"""Timing diagrams of the boundary, drawn from what the simulation did.

With MQTICK_DRAW=1 `run.py --tests diagrams` writes them; without, it compares.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cocotb
from boundary import CYCLE_PS, LEASE_S, Bench
from cocotb.triggers import RisingEdge

from broker.rtl.sim.golden import Settings, packet, publish

Row = tuple[str, str, Callable[[int], str] | None]
"""A signal, which one says when it counts ("": always), how a value is written (None: a bit)."""
Span = tuple[int, int, str]
"""From this cycle to that, and what is said about it."""

LEFT, CELL, ROW, HIGH = 118, 18, 22, 12
INK, FAINT, BLUE, ORANGE = "#1f2430", "#dde1e6", "#0072b2", "#d55e00"
IMAGES = Path(__file__).parents[1] / "images"
TOPIC = b"mqtick/t/0"


class Recorder:
    """Notes at each clock edge what the edge sees.

    Attributes:
        values: by signal, one value a cycle.
    """

    def __init__(self, dut: Any, rows: Sequence[Row]) -> None:
        self._dut = dut
        self.values: dict[str, list[int]] = {name: [] for row in rows for name in row[:2] if name}
        self._task = cocotb.start_soon(self._record())

    async def _record(self) -> None:
        while True:
            await RisingEdge(self._dut.clk)
            for name, values in self.values.items():
                seen = getattr(self._dut, name).value
                values.append(int(seen) if seen.is_resolvable else 0)

    def stop(self, *within: str) -> dict[str, list[int]]:
        """Record no more; return the cycles in which one of these is high, and one each side."""
        self._task.cancel()
        high = [any(each) for each in zip(*(self.values[name] for name in within), strict=True)]
        begin, end = high.index(True) - 1, len(high) - high[::-1].index(True) + 1
        return {name: values[begin:end] for name, values in self.values.items()}


def draw(rows: Sequence[Row], values: dict[str, list[int]], spans: Sequence[Span]) -> str:
    """Return the diagram as SVG: a row a signal, a column a cycle, and spans below."""
    cycles = len(values[rows[0][0]])
    width, top = LEFT + cycles * CELL + 12, 26
    floor = top + ROW * len(rows)
    height = floor + 24 * len(spans) + 10
    parts = [f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for cycle in range(cycles + 1):
        x = LEFT + cycle * CELL
        parts.append(f'<path d="M{x} {top}V{floor}" stroke="{FAINT}"/>')
        if cycle % 5 == 0 and cycle < cycles:
            parts.append(text(x + CELL / 2, top - 8, str(cycle), "middle"))
    for number, (name, valid, write) in enumerate(rows):
        base = top + ROW * number + 17
        parts.append(text(LEFT - 8, base - 1, name, "end"))
        if write is None:
            counts = values[valid or name]
            parts.append(wave([a & b for a, b in zip(values[name], counts, strict=True)], base))
        else:
            labels = [
                write(value) if not valid or counts else ""
                for value, counts in zip(values[name], values[valid or name], strict=True)
            ]
            parts += boxes(labels, base)
    for number, (begin, end, said) in enumerate(spans):
        y, left, right = floor + 24 * number + 18, LEFT + begin * CELL, LEFT + end * CELL
        parts.append(
            f'<path d="M{left} {y - 5}v10M{right} {y - 5}v10M{left} {y}H{right}" '
            f'stroke="{ORANGE}" stroke-width="1.5"/>'
        )
        parts.append(text(right + 8, y + 4, said, "start"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="none">\n{body}\n</svg>\n'
    )


def text(x: float, y: float, said: str, anchor: str) -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" fill="{INK}" text-anchor="{anchor}">{said}</text>'


def wave(values: Sequence[int], base: int) -> str:
    """Return the level of one bit."""
    path = f"M{LEFT} {base - HIGH * values[0]}"
    for value in values:
        path += f"V{base - HIGH * value}h{CELL}"
    return f'<path d="{path}" stroke="{BLUE}" stroke-width="1.5"/>'


def boxes(labels: Sequence[str], base: int) -> list[str]:
    """Return a box for each run of equal values, where they count."""
    parts, begin = [], 0
    for cycle in range(1, len(labels) + 1):
        if cycle < len(labels) and labels[cycle] == labels[begin]:
            continue
        if labels[begin]:
            x, wide = LEFT + begin * CELL, (cycle - begin) * CELL
            parts.append(
                f'<rect x="{x}" y="{base - HIGH}" width="{wide}" height="{HIGH}" '
                f'stroke="{BLUE}" fill="#eef5fa"/>'
            )
            parts.append(text(x + wide / 2, base - 2.5, labels[begin], "middle"))
        begin = cycle
    return parts


def octet(value: int) -> str:
    """Write the first octet of a word."""
    return f"{value & 255:02x}"


def host(value: int) -> str:
    """Write the last part of an address."""
    return f".{value & 255}"


def whole(value: int) -> str:
    """Write a number of a register."""
    return f"{value:x}"


def stream(side: str, *header: Row) -> list[Row]:
    """Return the rows of one direction."""
    names = (f"{side}_hdr_valid", f"{side}_hdr_ready")
    valid = f"{side}_tvalid"
    bits: list[Row] = [(name, "", None) for name in (*names, valid, f"{side}_tready")]
    words: list[Row] = [(f"{side}_tdata", valid, octet), (f"{side}_tlast", valid, None)]
    return [*bits[:2], *header, *bits[2:], *words]


RECEIVED = stream("rx", ("rx_src_ip", "rx_hdr_valid", host))
SENT = stream("tx", ("tx_dst_ip", "tx_hdr_valid", host), ("tx_fill", "tx_hdr_valid", None))
WRITE = ("awvalid", "awready", "awaddr", "wvalid", "wready", "wdata", "bvalid", "bready", "bresp")
READ = ("arvalid", "arready", "araddr", "rvalid", "rready", "rdata", "rresp")


def registers() -> list[Row]:
    """Return the rows of AXI4-Lite."""
    rows: list[Row] = []
    for name in (*WRITE, *READ):
        channel = name.removesuffix("addr").removesuffix("data").removesuffix("resp")
        is_bus = name.endswith(("addr", "data", "resp"))
        valid = f"s_axil_{channel}valid" if is_bus else ""
        rows.append((f"s_axil_{name}", valid, whole if is_bus else None))
    return rows


async def subscribe(bench: Bench, *hosts: int) -> None:
    """Bring subscribers up: the challenge is answered, and SUBSCRIBE repeated."""
    asked = packet(0x82, b"\x00\x01" + len(TOPIC).to_bytes(2, "big") + TOPIC + b"\x00")
    for number in hosts:
        who = f"10.0.0.{number}", 5000
        await bench.send(*who, asked)
        await bench.quiet()
        await bench.send(*who, bench.out.pop().sent.octets)
        await bench.send(*who, asked)
        await bench.quiet()
    bench.out.clear()


def check(name: str, drawn: str) -> None:
    """Write the diagram, or compare it with the one that the documents show."""
    path = IMAGES / name
    if os.environ.get("MQTICK_DRAW"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn)
    assert path.read_text() == drawn, f"{path} is not what happens: MQTICK_DRAW=1 draws it"


@cocotb.test()
async def the_timing_diagrams_are_what_happens(dut: Any) -> None:
    """A message with two copies; receivers that are not always ready; registers."""
    bench = Bench(dut)
    await bench.reset(Settings())
    await subscribe(bench, 1, 2)
    message = publish(TOPIC, b"\x21" + bytes(range(0xA0, 0xCF)) + bytes(16))
    rows = [*RECEIVED, *SENT]
    ways = "rx_hdr_valid", "rx_tvalid", "tx_hdr_valid", "tx_tvalid"
    for name, pressure in (("publish", 0), ("pressure", 160)):
        dut.hdr_pressure.value = dut.word_pressure.value = pressure
        shown = rows if name == "publish" else SENT
        record = Recorder(dut, rows)
        await bench.edge(2)
        await bench.send("10.0.0.9", 5000, message)
        await bench.quiet()
        values = record.stop(*(way for way in ways if name == "publish" or way[0] == "t"))
        spans: list[Span] = []
        if name == "publish":
            heard = len(values["rx_tvalid"]) - 1 - values["rx_tvalid"][::-1].index(1)
            left = values["tx_tvalid"].index(1)
            took = left - heard
            spans = [(heard, left, f"{took} cycles, {took * CYCLE_PS / 1000:.1f} ns")]
        check(f"{name}.svg", draw(shown, values, spans))
    record = Recorder(dut, registers())
    await bench.edge(2)
    await bench.write(LEASE_S, 0x1E)
    await bench.read(LEASE_S)
    valid = [row[0] for row in registers() if row[0].endswith("valid")]
    check("registers.svg", draw(registers(), record.stop(*valid), []))
