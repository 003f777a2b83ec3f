"""What cocotb runs: Ethernet frames to the board and back; an echo stands for the broker."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass

import cocotb
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.triggers import ClockCycles, FallingEdge, First, RisingEdge, Timer
from cocotb.utils import get_sim_time

BOARD_IP = bytes([192, 168, 1, 50])
BOARD_MAC = bytes.fromhex("026d7174696b")
PREAMBLE = bytes(7 * [0x55] + [0xD5])
PORT = 1883
SILENCE_US = 60
"""Longer than any answer takes."""


@dataclass(frozen=True)
class Host:
    """Who talks to the board."""

    ip: bytes
    mac: bytes
    port: int


ANNE = Host(bytes([192, 168, 1, 7]), bytes.fromhex("020000000001"), 40001)
BERT = Host(bytes([192, 168, 1, 8]), bytes.fromhex("020000000002"), 40002)


def checksum(octets: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def datagram(
    host: Host, payload: bytes, *, to: bytes = BOARD_IP, fragment: int = 0, port: int = PORT
) -> bytes:
    """Return an Ethernet frame, padded, without its checksum."""
    udp = struct.pack("!HHHH", host.port, port, 8 + len(payload), 0) + payload
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, fragment, 64, 17, 0, host.ip, to
    )
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return (BOARD_MAC + host.mac + b"\x08\x00" + header + udp).ljust(60, b"\0")


class Wire:
    """The board's only cable, octet by octet at 125 MHz."""

    def __init__(self, dut: HierarchyObject) -> None:
        self.dut = dut
        self.frames: list[bytes] = []
        self.began_ns: list[float] = []

    async def start(self) -> None:
        """Reset, and wait until the seed is drawn and the neighbours are cleared."""
        dut = self.dut
        dut.gmii_rx_valid.value = 0
        dut.serial_rx.value = 1
        dut.noise.value = 0
        dut.sys_rst.value = 1
        cocotb.start_soon(Clock(dut.sys_clk, 25, unit="ns").start())
        cocotb.start_soon(Clock(dut.gmii_clk, 8, unit="ns").start())
        await ClockCycles(dut.sys_clk, 20)
        dut.sys_rst.value = 0
        await ClockCycles(dut.sys_clk, 1100)
        cocotb.start_soon(self._listen())

    async def _listen(self) -> None:
        octets = bytearray()
        while True:
            await FallingEdge(self.dut.gmii_clk)
            if self.dut.gmii_tx_valid.value:
                if not octets:
                    self.began_ns.append(get_sim_time("ns"))
                octets.append(int(self.dut.gmii_tx_data.value))
            elif octets:
                frame = bytes(octets)
                assert frame.startswith(PREAMBLE)
                assert zlib.crc32(frame[8:]) == 0x2144DF1C  # what a good checksum leaves
                self.frames.append(frame[8:-4])
                octets.clear()

    async def send(self, frame: bytes, *, damage: int = 0) -> float:
        """Put a frame on the wire, with its checksum or a damaged one; return its end, ns."""
        fcs = (zlib.crc32(frame) ^ damage).to_bytes(4, "little")
        for octet in PREAMBLE + frame + fcs:
            self.dut.gmii_rx_valid.value = 1
            self.dut.gmii_rx_data.value = octet
            await RisingEdge(self.dut.gmii_clk)
        self.dut.gmii_rx_valid.value = 0
        ended_ns = get_sim_time("ns")
        await ClockCycles(self.dut.gmii_clk, 12)
        return ended_ns

    async def answers(self, count: int) -> list[bytes]:
        """Wait for so many frames, and take them."""

        async def enough() -> None:
            while len(self.frames) < count:
                await RisingEdge(self.dut.gmii_clk)

        waiting = cocotb.start_soon(enough())
        await First(waiting, Timer(SILENCE_US * max(count, 1), "us"))
        waiting.cancel()
        assert len(self.frames) >= count, f"{len(self.frames)} frames came, not {count}"
        taken, self.frames = self.frames[:count], self.frames[count:]
        return taken

    async def silence(self) -> None:
        """Nothing comes."""
        await Timer(SILENCE_US, "us")
        assert self.frames == []


def echo_of(host: Host, payload: bytes) -> bytes:
    """Return the frame that brings a payload back, with IP's header as LiteEth makes it."""
    udp = struct.pack("!HHHH", PORT, host.port, 8 + len(payload), 0) + payload
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 0x80, 17, 0, BOARD_IP, host.ip
    )
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    return (host.mac + BOARD_MAC + b"\x08\x00" + header + udp).ljust(60, b"\0")


@cocotb.test()
async def datagrams_of_every_length_go_through_and_back_to_their_sender(dut) -> None:
    wire = Wire(dut)
    await wire.start()
    for length in (*range(1, 27), 48, 63, 64, 65, 511, 1471, 1472):
        host = random.choice((ANNE, BERT))
        payload = random.randbytes(length)
        await wire.send(datagram(host, payload))
        assert await wire.answers(1) == [echo_of(host, payload)], length


@cocotb.test()
async def frames_one_after_another_are_all_answered_in_order(dut) -> None:
    wire = Wire(dut)
    await wire.start()
    sent = []
    for number in range(40):
        host = random.choice((ANNE, BERT))
        payload = number.to_bytes(2, "big") + random.randbytes(random.randrange(80))
        sent.append(echo_of(host, payload))
        await wire.send(datagram(host, payload))
    assert await wire.answers(len(sent)) == sent


@cocotb.test()
async def who_asks_for_the_address_gets_it(dut) -> None:
    wire = Wire(dut)
    await wire.start()
    ask = struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, 1, ANNE.mac, ANNE.ip, bytes(6), BOARD_IP)
    await wire.send((b"\xff" * 6 + ANNE.mac + b"\x08\x06" + ask).ljust(60, b"\0"))
    (answer,) = await wire.answers(1)
    assert answer[:14] == ANNE.mac + BOARD_MAC + b"\x08\x06"
    assert answer[20:42] == struct.pack("!H6s4s6s4s", 2, BOARD_MAC, BOARD_IP, ANNE.mac, ANNE.ip)


@cocotb.test()
async def what_is_wrong_is_dropped_and_the_next_is_served(dut) -> None:
    wire = Wire(dut)
    await wire.start()
    broadcast = Host(bytes([192, 168, 1, 255]), ANNE.mac, ANNE.port)
    wrong = {
        "the frame's checksum": (datagram(ANNE, b"short"), 1),
        "the same of a long one": (datagram(ANNE, bytes(300)), 0x8000),
        "a first fragment": (datagram(ANNE, bytes(64), fragment=0x2000), 0),
        "a later fragment": (datagram(ANNE, bytes(64), fragment=8), 0),
        "for somebody else": (datagram(ANNE, b"hello", to=BERT.ip), 0),
        "another port": (datagram(ANNE, b"hello", port=1884), 0),
        "would be answered by broadcast": (datagram(broadcast, b"hello"), 0),
        "the IP header's checksum": (datagram(ANNE, b"hello")[:24] + b"\0\0" + bytes(34), 0),
    }
    for what, (frame, damage) in wrong.items():
        dut._log.info(what)
        await wire.send(frame, damage=damage)
        await wire.silence()
        await wire.send(datagram(BERT, what.encode()))
        assert await wire.answers(1) == [echo_of(BERT, what.encode())], what


@cocotb.test()
async def a_frame_goes_where_its_receiver_was_last(dut) -> None:
    wire = Wire(dut)
    await wire.start()
    moved = Host(ANNE.ip, BERT.mac, ANNE.port)
    for host in (ANNE, moved, ANNE):
        await wire.send(datagram(host, b"where am I"))
        assert await wire.answers(1) == [echo_of(host, b"where am I")]


@cocotb.test()
async def the_way_in_and_out_varies_by_the_clocks_phases_only(dut) -> None:
    """From a frame's last octet to its answer's first: the two clocks meet in any phase."""
    wire = Wire(dut)
    await wire.start()
    for length in (18, 64):
        took = []
        for _ in range(60):
            await Timer(random.randrange(1000), "ns")
            wire.began_ns.clear()
            ended_ns = await wire.send(datagram(ANNE, bytes(length)))
            await wire.answers(1)
            took.append(wire.began_ns[0] - ended_ns)
        dut._log.info(
            "%d octets: %.0f to %.0f ns from the last octet in to the first octet out, "
            "echo included (simulated)",
            length,
            min(took),
            max(took),
        )
        # Two clocks' phases on the way in, two on the way out.
        assert max(took) - min(took) <= 2 * (25 + 25)
