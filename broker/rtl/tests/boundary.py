"""Drives the broker's boundary in simulation: streams in and out, registers, time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import First, ReadOnly, RisingEdge, Timer, with_timeout

from broker.rtl.sim.comparison import Out
from broker.rtl.sim.golden import REFUSALS, REFUSED_FILTERS, Sent, Settings

COUNTERS = (*REFUSALS, *REFUSED_FILTERS, "challenges", "pool", "leases_ended", "damaged")
CYCLE_PS = 6400
# Nothing takes so long; who waits longer has found a hang.
HANGS_US = 4000
LEASE_S, SHAPES, SHARE, ADDRESS_SHARE, PREFIX_PIECES, PREFIX = 0x0C, 0x10, 0x14, 0x18, 0x1C, 0x20
STATE, PULSES = 0x08, 0xA0
OKAY, REFUSED = 0, 2
PUBLISHERS, SUBSCRIBERS, COUNTERS_AT, COPIES = 0x40, 0x60, 0x100, 0x15C


def pieces(prefix: str) -> Iterator[int]:
    """Split the residence prefix as its registers want it: at most 4 octets of one level each."""
    text = prefix.encode()
    while text:
        cut = text[:4].find(b"/") + 1 or 4
        yield int.from_bytes(text[:cut], "little")
        text = text[cut:]


class Bench:
    """A broker with drivers around it.

    Attributes:
        out: what left since it was last emptied.
        gaps: of 1, so many cycles without a word on the way in.
    """

    def __init__(self, dut: Any, seed: int = 0) -> None:
        self.dut, self.random = dut, random.Random(seed)
        self.out: list[Out] = []
        self.gaps = 0.0
        self.stamps: list[int] = []
        cocotb.start_soon(Clock(dut.clk, CYCLE_PS, "ps").start())
        cocotb.start_soon(self._collect())

    async def edge(self, count: int = 1) -> None:
        """Wait for clock edges."""
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def reset(self, settings: Settings) -> None:
        """Reset the broker and set it up."""
        dut = self.dut
        dut.rst.value = 1
        for name in (
            *("rx_hdr_valid", "rx_tvalid", "rx_tuser", "s_axil_awvalid", "s_axil_wvalid", "pps"),
            *("s_axil_arvalid", "tod_valid", "tod_ns", "hdr_pressure", "word_pressure"),
        ):
            getattr(dut, name).value = 0
        dut.s_axil_bready.value = dut.s_axil_rready.value = dut.seed_valid.value = 1
        dut.seed.value = int.from_bytes(settings.secret, "little")
        dut.jump.value, dut.jump_to.value = 1, 0
        await self.edge(4)
        dut.rst.value = 0
        await self.edge(2)
        dut.jump.value = 0
        self.out.clear()
        if not dut.rx_hdr_ready.value:
            await RisingEdge(dut.rx_hdr_ready)
        # A broker may be built with more.
        await self.write(SHAPES, settings.shapes)
        await self.set(settings, Settings())

    async def set(self, given: Settings, before: Settings) -> None:
        """Write what differs from the settings before."""
        for at, value, was in (
            (LEASE_S, given.lease_s, before.lease_s),
            (SHARE, given.subscriptions_a_subscriber, before.subscriptions_a_subscriber),
            (ADDRESS_SHARE, given.subscribers_an_address, before.subscribers_an_address),
        ):
            if value != was:
                await self.write(at, value)
        if given.residence_prefix != before.residence_prefix:
            values = list(pieces(given.residence_prefix))
            for number, value in enumerate(values):
                await self.write(PREFIX + 4 * number, value)
            await self.write(PREFIX_PIECES, len(values))
        await self._subnets(PUBLISHERS, given.publishers, before.publishers)
        await self._subnets(SUBSCRIBERS, given.subscribers, before.subscribers)

    async def _subnets(self, at: int, nets: tuple[IPv4Network, ...], before: object) -> None:
        for number in range(4 if nets != before else 0):
            ip, mask = 0xFFFF_FFFF, 0
            if number < len(nets):
                ip, mask = int(nets[number].network_address), int(nets[number].netmask)
            await self.write(at + 8 * number, ip)
            await self.write(at + 8 * number + 4, mask)

    # ---- registers -----------------------------------------------------------------------------

    async def write(self, at: int, value: int, strobe: int = 15) -> int:
        """Write a register; return the response."""
        dut = self.dut
        dut.s_axil_awaddr.value, dut.s_axil_wdata.value = at, value
        dut.s_axil_wstrb.value = strobe
        dut.s_axil_awvalid.value = dut.s_axil_wvalid.value = 1
        await self._until(dut.s_axil_awready)
        dut.s_axil_awvalid.value = dut.s_axil_wvalid.value = 0
        await self._until(dut.s_axil_bvalid)
        return int(dut.s_axil_bresp.value)

    async def read(self, at: int) -> int:
        """Read a register."""
        dut = self.dut
        dut.s_axil_araddr.value, dut.s_axil_arvalid.value = at, 1
        await self._until(dut.s_axil_arready)
        dut.s_axil_arvalid.value = 0
        await self._until(dut.s_axil_rvalid)
        return int(dut.s_axil_rdata.value)

    async def counters(self) -> dict[str, int]:
        """Return all counters that are not zero, by the names of section 7, and `copies`."""
        values = {name: await self.read(COUNTERS_AT + 4 * at) for at, name in enumerate(COUNTERS)}
        values["copies"] = await self.read(COPIES)
        return {name: value for name, value in values.items() if value}

    async def _until(self, ready: Any) -> None:
        """Wait for the edge at which this is high."""
        for _ in range(HANGS_US * 1_000_000 // CYCLE_PS):
            await ReadOnly()
            high = ready.value
            await RisingEdge(self.dut.clk)
            if high:
                return
        raise TimeoutError(f"{ready._name} stays low: the broker hangs")

    # ---- time ----------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the broker's counter, 2^-16 ns."""
        return int(self.dut.now.value)

    async def jump(self, at_ns: int) -> None:
        """Go on to this time, if it is not over, and let the broker see it."""
        if at_ns << 16 <= self.now():
            return
        self.dut.jump_to.value, self.dut.jump.value = at_ns << 16, 1
        await self.edge()
        self.dut.jump.value = 0
        await Timer(60 * CYCLE_PS, "ps")
        await self.edge()

    async def quiet(self) -> None:
        """Wait until nothing is left to do."""
        await self.edge(2)
        if not self.dut.quiet.value:
            await with_timeout(RisingEdge(self.dut.quiet), HANGS_US, "us")
        await RisingEdge(self.dut.clk)

    # ---- datagrams -----------------------------------------------------------------------------

    async def send(
        self,
        ip: str,
        port: int,
        octets: bytes,
        *,
        length: int | None = None,
        damaged: bool = False,
        words: int | None = None,
    ) -> int:
        """Hand over one datagram; return its stamp.

        Args:
            ip: of the sender.
            port: of the sender.
            octets: the datagram.
            length: what its header says, if not the truth.
            damaged: its checksum was wrong.
            words: stop after so many.
        """
        dut = self.dut
        while self.random.random() < self.gaps:
            await self.edge()
        dut.rx_src_ip.value, dut.rx_src_port.value = int(IPv4Address(ip)), port
        dut.rx_length.value = len(octets) if length is None else length
        stamp = self.now()
        dut.rx_stamp.value = stamp
        dut.rx_hdr_valid.value = 1
        header = cocotb.start_soon(self._header())
        if self.random.random() < 0.5:
            await header
        parts = [octets[at : at + 8] for at in range(0, len(octets), 8)] or [b""]
        for number, part in enumerate(parts[:words]):
            while self.random.random() < self.gaps:
                await self.edge()
            last = number == len(parts) - 1
            dut.rx_tdata.value = int.from_bytes(part, "little")
            dut.rx_tkeep.value = (1 << len(part)) - 1
            dut.rx_tlast.value, dut.rx_tuser.value = int(last), int(damaged and last)
            dut.rx_tvalid.value = 1
            await self._until(dut.rx_tready)
            dut.rx_tvalid.value = 0
        await header
        return stamp

    async def _header(self) -> None:
        await self._until(self.dut.rx_hdr_ready)
        self.dut.rx_hdr_valid.value = 0

    async def _collect(self) -> None:
        dut = self.dut
        headers: list[tuple[str, int, int, bool]] = []
        octets, left = b"", 0
        while True:
            if not dut.tx_hdr_valid.value and not dut.tx_tvalid.value:
                await First(
                    RisingEdge(dut.tx_hdr_valid), RisingEdge(dut.tx_tvalid), RisingEdge(dut.rst)
                )
            await RisingEdge(dut.clk)
            if dut.rst.value:
                headers, octets = [], b""
                continue
            if dut.tx_hdr_valid.value and dut.tx_hdr_ready.value:
                ip = str(IPv4Address(int(dut.tx_dst_ip.value)))
                port, length = int(dut.tx_dst_port.value), int(dut.tx_length.value)
                headers.append((ip, port, length, bool(dut.tx_fill.value)))
            if dut.tx_tvalid.value and dut.tx_tready.value:
                if not octets:
                    left = int(dut.now.value)
                keep = int(dut.tx_tkeep.value)
                count = keep.bit_count()
                last = bool(dut.tx_tlast.value)
                assert keep == (1 << count) - 1, f"tkeep {keep:08b} has a hole"
                assert last or count == 8, "a word that is not the last is not full"
                octets += int(dut.tx_tdata.value).to_bytes(8, "little")[:count]
                if last:
                    ip, port, length, fill = headers.pop(0)
                    assert length == len(octets), f"{length} octets said, {len(octets)} came"
                    self.out.append(Out(Sent(ip, port, octets), fill, left))
                    octets = b""
