"""mqtick_departure: a residence where one is wanted, and not another octet changed."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import cocotb
from alone import HANGS_CYCLES, begin, dice, edge, put
from cocotb.triggers import FallingEdge, RisingEdge


class Frame(NamedTuple):
    octets: bytes
    fill: bool
    arrival: int


class Ends:
    """Who hands over datagrams, who takes them, and a clock that is read when one leaves."""

    def __init__(self, dut: Any, unit: Any, random: Random, busy: float) -> None:
        self.dut, self.unit, self.random, self.busy = dut, unit, random, busy
        self.left: list[tuple[bytes, int, int]] = []  # octets, departure, cycle of the last word
        self.headers = self.cycle = 0
        self.now = random.getrandbits(64)
        cocotb.start_soon(self.take())

    def waits(self) -> bool:
        return self.random.random() < self.busy

    async def give(self, signal: str, ready: str) -> None:
        """Offer what has been put on the lines until it is taken."""
        while self.waits():
            await edge(self.dut)
        getattr(self.unit, signal).value = 1
        for _ in range(HANGS_CYCLES):
            await RisingEdge(self.dut.clk)
            if getattr(self.unit, ready).value:
                getattr(self.unit, signal).value = 0
                return
        raise TimeoutError(f"{ready} stays low")

    async def send(self, frames: list[Frame]) -> None:
        headers = cocotb.start_soon(self.send_headers(frames))
        for frame in frames:
            for at in range(0, len(frame.octets), 8):
                part = frame.octets[at : at + 8]
                put(
                    self.unit,
                    in_tdata=int.from_bytes(part, "little"),
                    in_tkeep=(1 << len(part)) - 1,
                    in_tlast=at + 8 >= len(frame.octets),
                )
                await self.give("in_tvalid", "in_tready")
        await headers

    async def send_headers(self, frames: list[Frame]) -> None:
        for frame in frames:
            length = len(frame.octets)
            put(self.unit, in_length=length, in_fill=frame.fill, in_arrival=frame.arrival)
            await self.give("in_hdr_valid", "in_hdr_ready")

    async def take(self) -> None:
        unit, octets, departure = self.unit, b"", 0
        while True:
            await FallingEdge(self.dut.clk)
            self.now = (self.now + self.random.randrange(1 << 30)) % (1 << 64)
            put(unit, now=self.now, out_hdr_ready=not self.waits(), out_tready=not self.waits())
            await RisingEdge(self.dut.clk)
            self.cycle += 1
            if unit.out_hdr_valid.value and unit.out_hdr_ready.value:
                self.headers += 1
            if unit.out_tvalid.value and unit.out_tready.value:
                assert self.headers > len(self.left), "a word before its header"
                if not octets:
                    departure = self.now
                count = int(unit.out_tkeep.value).bit_count()
                octets += int(unit.out_tdata.value).to_bytes(8, "little")[:count]
                if unit.out_tlast.value:
                    self.left.append((octets, departure, self.cycle))
                    octets = b""

    async def all_left(self, count: int) -> None:
        for _ in range(HANGS_CYCLES):
            if len(self.left) == count:
                return
            await edge(self.dut)
        raise TimeoutError(f"{len(self.left)} of {count} left")


def expected(frame: Frame, departure: int) -> bytes:
    if not frame.fill:
        return frame.octets
    residence = (departure - frame.arrival) % (1 << 64)
    return frame.octets[:-16] + residence.to_bytes(8, "big") + frame.octets[-8:]


@cocotb.test()
@cocotb.parametrize(busy=[0.0, 0.5, 0.8])
async def departure_fills_in_when_the_first_word_leaves(dut: Any, busy: float) -> None:
    """At any length, with busy neighbours, whether or not the one before is filled."""
    unit, random = await begin(dut, "departure", in_hdr_valid=0, in_tvalid=0), dice()
    ends = Ends(dut, unit, random, busy)
    lengths = [*range(18, 60), *(random.randrange(60, 250) for _ in range(6)), 1472]
    random.shuffle(lengths)
    frames = [
        Frame(random.randbytes(length), random.random() < 0.7, random.getrandbits(64))
        for length in lengths
    ]
    frames += [Frame(random.randbytes(length), False, 0) for length in (2, 4, 8)]
    await ends.send(frames)
    await ends.all_left(len(frames))
    for frame, (octets, departure, _) in zip(frames, ends.left, strict=True):
        assert octets == expected(frame, departure), frame
    assert ends.headers == len(frames)


@cocotb.test()
async def departure_leaves_no_idle_word(dut: Any) -> None:
    """When everybody is ready, a datagram follows the one before at once."""
    unit = await begin(dut, "departure", in_hdr_valid=0, in_tvalid=0)
    ends = Ends(dut, unit, dice(), 0.0)
    await ends.send([Frame(bytes(48), True, 0)] * 10)
    await ends.all_left(10)
    cycles = [cycle for _, _, cycle in ends.left]
    assert [later - cycle for cycle, later in pairwise(cycles)] == [6] * 9
