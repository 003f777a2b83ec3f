"""The Colorlight 5A-75B: LiteEth's MAC, ARP, IP and UDP around the broker.

python board.py --revision 8.0 FOLDER    writes mqtick_5a_75b.v and mqtick_5a_75b.lpf to FOLDER
python board.py --simulate FOLDER        the same with octets in place of pins and no vendor parts
"""

from __future__ import annotations

import argparse
from pathlib import Path

from liteeth.common import (
    arp_table_request_layout,
    arp_table_response_layout,
    convert_ip,
    eth_fcs_length,
    eth_min_frame_length,
    eth_phy_description,
)
from liteeth.core.arp import LiteEthARP
from liteeth.core.icmp import LiteEthICMP
from liteeth.core.ip import LiteEthIP
from liteeth.core.udp import LiteEthUDP
from liteeth.mac import LiteEthMACCrossbar
from liteeth.mac.common import LiteEthMACDepacketizer, LiteEthMACPacketizer
from liteeth.mac.crc import LiteEthMACCRC32Checker, LiteEthMACCRC32Inserter
from liteeth.mac.gap import LiteEthMACGap
from liteeth.mac.last_be import LiteEthMACRXLastBE, LiteEthMACTXLastBE
from liteeth.mac.preamble import LiteEthMACPreambleChecker, LiteEthMACPreambleInserter
from liteeth.phy.ecp5rgmii import LiteEthPHYRGMII
from litex.build.generic_platform import GenericPlatform, Pins, Subsignal
from litex.gen import LiteXModule
from litex.soc.cores.clock import ECP5PLL
from litex.soc.cores.uart import RS232PHY, UARTBone
from litex.soc.interconnect import stream
from litex.soc.interconnect.axi import AXILiteInterface, Wishbone2AXILite
from litex_boards.platforms import colorlight_5a_75b
from migen import (
    FSM,
    ClockDomain,
    ClockDomainsRenamer,
    ClockSignal,
    If,
    Instance,
    Memory,
    Mux,
    NextState,
    NextValue,
    ResetSignal,
    Signal,
)

NAME = "mqtick_5a_75b"
PORT = 1883
WIDTH = 32
CLOCK_HZ = 40e6
BAUD = 9600
"""What the capacitance at the button's pin, which is the serial input, lets through."""
NEIGHBOURS = 1024


class Padding(LiteXModule):
    """Fills each frame with zeros to 60 octets.

    LiteEth's own, 32 bits wide, leaves what happens to stand behind the end, and after a frame of
    57 to 59 octets it does not fill the next.
    """

    def __init__(self, width: int) -> None:
        words = eth_phy_description(width)
        self.sink = sink = stream.Endpoint(words)
        self.source = source = stream.Endpoint(words)
        last, end = divmod(eth_min_frame_length - eth_fcs_length - 1, width // 8)
        word = Signal(max=last + 2)  # of this frame; stays behind the last that is filled
        filling = Signal()
        short = word == last
        if end + 1 < width // 8:  # the frame itself may end behind, in the same word
            short &= filling | ~sink.last | (sink.last_be[end + 1 :] == 0)
        self.comb += [
            source.valid.eq(sink.valid | filling),
            sink.ready.eq(source.ready & ~filling),
            source.last.eq((sink.last | filling) & (word >= last)),
            If(
                source.last,
                source.last_be.eq(Mux(short, 1 << end, sink.last_be)),
            ),
        ]
        for octet in range(width // 8):
            place = slice(8 * octet, 8 * octet + 8)
            ended = sink.last & (sink.last_be[:octet] != 0) if octet else 0
            self.comb += source.data[place].eq(Mux(filling | ended, 0, sink.data[place]))
        self.sync += If(
            source.valid & source.ready,
            filling.eq((sink.last | filling) & ~source.last),
            If(source.last, word.eq(0)).Elif(word <= last, word.eq(word + 1)),
        )


class CheckedMAC(LiteXModule):
    """LiteEth's MAC, with a gate that holds each frame until its checksum has been seen.

    LiteEth hands a frame on while it arrives. A datagram that is shorter than its frame ends before
    the checksum does, so that nobody could take it back. Checksums are made 32 bits at a time, in
    the slow clock: at 125 MHz this chip is not fast enough for them.
    """

    def __init__(self, phy: LiteXModule, now: Signal) -> None:
        words, octets = eth_phy_description(WIDTH), eth_phy_description(8)
        send, receive = ClockDomainsRenamer("eth_tx"), ClockDomainsRenamer("eth_rx")
        self.sink = stream.Endpoint(words)
        self.source = stream.Endpoint(words)
        self.stamp = Signal(64)
        self.dropped = Signal()

        self.padding = Padding(WIDTH)
        self.padded = stream.Buffer(words)
        self.inserter = LiteEthMACCRC32Inserter(words)
        self.tx_crossing = stream.ClockDomainCrossing(words, "sys", "eth_tx", 32, buffered=True)
        self.tx_octets = send(stream.StrideConverter(words, octets))
        self.tx_end = send(LiteEthMACTXLastBE(8))
        self.preamble = send(LiteEthMACPreambleInserter(8))
        self.gap = send(LiteEthMACGap(8))
        self.tx = stream.Pipeline(
            self.sink,
            self.padding,
            self.padded,
            self.inserter,
            self.tx_crossing,
            self.tx_octets,
            self.tx_end,
            self.preamble,
            self.gap,
            phy,
        )

        self.strip = receive(LiteEthMACPreambleChecker(8))
        self.rx_end = receive(LiteEthMACRXLastBE(8))
        self.rx_words = receive(stream.StrideConverter(octets, words))
        self.rx_crossing = stream.ClockDomainCrossing(words, "eth_rx", "sys", 32, buffered=True)
        self.checker = LiteEthMACCRC32Checker(words)
        received = stream.Endpoint(words)
        self.rx = stream.Pipeline(
            phy, self.strip, self.rx_end, self.rx_words, self.rx_crossing, self.checker, received
        )
        # The memory's output comes late in the cycle: it goes no further in the same one.
        self.buffer = buffer = stream.Buffer(words)
        self.comb += [received.ready.eq(1), buffer.source.connect(self.source)]
        self.specials += Instance(
            "mqtick_frame_gate",
            i_clk=ClockSignal("sys"),
            i_rst=ResetSignal("sys"),
            i_now=now,
            i_s_tvalid=received.valid,
            i_s_tdata=received.data,
            i_s_tend=received.last_be,
            i_s_tlast=received.last,
            i_s_terror=received.error != 0,
            o_m_tvalid=buffer.sink.valid,
            i_m_tready=buffer.sink.ready,
            o_m_tdata=buffer.sink.data,
            o_m_tend=buffer.sink.last_be,
            o_m_tlast=buffer.sink.last,
            o_m_stamp=self.stamp,
            o_dropped=self.dropped,
        )


class MAC(LiteXModule):
    """The MAC and who gets which type of frame."""

    def __init__(self, phy: LiteXModule, now: Signal) -> None:
        self.core = CheckedMAC(phy, now)
        self.crossbar = LiteEthMACCrossbar(WIDTH)
        self.packetizer = LiteEthMACPacketizer(WIDTH)
        self.depacketizer = LiteEthMACDepacketizer(WIDTH)
        self.comb += [
            self.crossbar.master.source.connect(self.packetizer.sink),
            self.packetizer.source.connect(self.core.sink),
            self.core.source.connect(self.depacketizer.sink),
            self.depacketizer.source.connect(self.crossbar.master.sink),
        ]


class Neighbours(LiteXModule):
    """The MAC address that each IPv4 address last sent from, asked in place of ARP.

    Whoever the broker sends to has just sent to it, so nothing has to be asked on the wire and
    sending never waits: two cycles, always. The frame goes back to where the datagram came from,
    a router for instance. The lowest ten bits of the address are the place: addresses of one /22
    never meet, of others the last one stays, and a copy to one that was displaced is dropped.
    """

    def __init__(self) -> None:
        self.request = request = stream.Endpoint(arp_table_request_layout)
        self.response = response = stream.Endpoint(arp_table_response_layout)
        self.learn = Signal()
        self.learn_ip = Signal(32)
        self.learn_mac = Signal(48)
        index = NEIGHBOURS.bit_length() - 1
        tag = 32 - index
        memory = Memory(1 + tag + 48, NEIGHBOURS)
        forget, forgotten = Signal(), Signal(index)
        write = memory.get_port(write_capable=True)
        read = memory.get_port()
        self.specials += memory, write, read
        found = read.dat_r
        self.comb += [
            write.we.eq(self.learn | forget),
            write.adr.eq(Mux(forget, forgotten, self.learn_ip[:index])),
            write.dat_w[:48].eq(self.learn_mac),
            write.dat_w[48 : 48 + tag].eq(self.learn_ip[index:]),
            write.dat_w[-1].eq(~forget),
            read.adr.eq(request.ip_address[:index]),
            response.mac_address.eq(found[:48]),
            response.failed.eq(~found[-1] | (found[48 : 48 + tag] != request.ip_address[index:])),
        ]
        self.fsm = fsm = FSM(reset_state="FORGET")
        fsm.act(
            "FORGET",
            forget.eq(1),
            NextValue(forgotten, forgotten + 1),
            If(forgotten == NEIGHBOURS - 1, NextState("IDLE")),
        )
        fsm.act("IDLE", request.ready.eq(1), If(request.valid, NextState("ANSWER")))
        fsm.act("ANSWER", response.valid.eq(1), If(response.ready, NextState("IDLE")))


class Clocks(LiteXModule):
    """40 MHz from the board's crystal, and a free-running oscillator for the seed."""

    def __init__(self, platform: GenericPlatform) -> None:
        self.cd_sys = ClockDomain()
        self.noise = Signal()
        self.pll = pll = ECP5PLL()
        pll.register_clkin(platform.request("clk25"), 25e6)
        pll.create_clkout(self.cd_sys, CLOCK_HZ)
        self.specials += Instance("OSCG", p_DIV=2, o_OSC=self.noise)


class SimulatedClocks(LiteXModule):
    """A clock and a noise from outside."""

    def __init__(self, platform: GenericPlatform) -> None:
        self.cd_sys = ClockDomain()
        self.noise = platform.request("noise")
        self.comb += [
            self.cd_sys.clk.eq(platform.request("sys_clk")),
            self.cd_sys.rst.eq(platform.request("sys_rst")),
        ]


class SimulatedPHY(LiteXModule):
    """The octets of frames, preamble to checksum, in place of RGMII; the clock from outside."""

    dw = 8

    def __init__(self, platform: GenericPlatform) -> None:
        pads = platform.request("gmii")
        self.cd_eth_rx = ClockDomain()
        self.cd_eth_tx = ClockDomain()
        self.sink = stream.Endpoint(eth_phy_description(8))
        self.source = stream.Endpoint(eth_phy_description(8))
        self.comb += [
            self.cd_eth_rx.clk.eq(pads.clk),
            self.cd_eth_tx.clk.eq(pads.clk),
            self.cd_eth_rx.rst.eq(ResetSignal("sys")),
            self.cd_eth_tx.rst.eq(ResetSignal("sys")),
            pads.tx_valid.eq(self.sink.valid),
            pads.tx_data.eq(self.sink.data),
            self.sink.ready.eq(1),
            self.source.last.eq(~pads.rx_valid & self.source.valid),
        ]
        self.sync.eth_rx += [
            self.source.valid.eq(pads.rx_valid),
            self.source.data.eq(pads.rx_data),
        ]


SIMULATED_PINS = [
    ("sys_clk", 0, Pins(1)),
    ("sys_rst", 0, Pins(1)),
    ("noise", 0, Pins(1)),
    (
        "gmii",
        0,
        Subsignal("clk", Pins(1)),
        Subsignal("rx_valid", Pins(1)),
        Subsignal("rx_data", Pins(8)),
        Subsignal("tx_valid", Pins(1)),
        Subsignal("tx_data", Pins(8)),
    ),
    ("serial", 0, Subsignal("tx", Pins(1)), Subsignal("rx", Pins(1))),
]


def axi_lite_ports(bus: AXILiteInterface) -> dict[str, Signal]:
    """The ports of the registers: what the bus drives goes in, the rest comes out."""
    channels = {"aw": "addr", "w": "data strb", "b": "resp", "ar": "addr", "r": "data resp"}
    ports = {}
    for name, payload in channels.items():
        channel = getattr(bus, name)
        there, back = ("o", "i") if name in "br" else ("i", "o")
        for field in (*payload.split(), "valid"):
            ports[f"{there}_s_axil_{name}{field}"] = getattr(channel, field)
        ports[f"{back}_s_axil_{name}ready"] = channel.ready
    return ports


class Board(LiteXModule):
    """The whole chip."""

    def __init__(
        self, platform: GenericPlatform, simulated: bool, ip: str, mac: int, seed_log2: int
    ) -> None:
        self.crg = SimulatedClocks(platform) if simulated else Clocks(platform)
        if simulated:
            self.phy = SimulatedPHY(platform)
        else:
            self.phy = LiteEthPHYRGMII(
                platform.request("eth_clocks"), platform.request("eth"), tx_delay=0
            )
        now = Signal(64)
        address = convert_ip(ip)
        self.mac = MAC(self.phy, now)
        self.arp = LiteEthARP(self.mac, mac, address, CLOCK_HZ, dw=WIDTH)  # answers, never asks
        self.neighbours = Neighbours()
        self.ip = LiteEthIP(self.mac, mac, address, self.neighbours, with_broadcast=False, dw=WIDTH)
        self.icmp = LiteEthICMP(self.ip, address, dw=WIDTH, fifo_depth=32)
        self.udp = LiteEthUDP(self.ip, address, dw=WIDTH)
        port = self.udp.crossbar.get_port(PORT, dw=WIDTH)
        arrived = self.ip.rx.source
        self.comb += [
            self.neighbours.learn.eq(arrived.valid & arrived.ready & arrived.last),
            self.neighbours.learn_ip.eq(arrived.ip_address),
            self.neighbours.learn_mac.eq(self.ip.rx.sink.sender_mac),
            port.sink.src_port.eq(PORT),
        ]

        # LiteX's own bridge, so that its litex_server is the program at the other end.
        self.uart = UARTBone(RS232PHY(platform.request("serial"), CLOCK_HZ, BAUD), CLOCK_HZ)
        bus = AXILiteInterface(data_width=32, address_width=32)
        self.bridge = Wishbone2AXILite(self.uart.wishbone, bus)
        self.specials += Instance(
            "mqtick_5a_75b_core",
            p_SEED_LOG2=seed_log2,
            i_clk=ClockSignal("sys"),
            i_rst=ResetSignal("sys"),
            i_noise=self.crg.noise,
            o_now=now,
            i_frame_stamp=self.mac.core.stamp,
            i_rx_valid=port.source.valid,
            o_rx_ready=port.source.ready,
            i_rx_data=port.source.data,
            i_rx_end=port.source.last_be,
            i_rx_last=port.source.last,
            i_rx_ip=port.source.ip_address,
            i_rx_port=port.source.src_port,
            i_rx_octets=port.source.length,
            o_tx_valid=port.sink.valid,
            i_tx_ready=port.sink.ready,
            o_tx_data=port.sink.data,
            o_tx_end=port.sink.last_be,
            o_tx_last=port.sink.last,
            o_tx_ip=port.sink.ip_address,
            o_tx_port=port.sink.dst_port,
            o_tx_octets=port.sink.length,
            **axi_lite_ports(bus),
        )


def main() -> None:
    """Write the Verilog, and where the pins are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--revision", default="8.0", help="of the board: 7.0 or 8.0")
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument("--ip", default="192.168.1.50")
    parser.add_argument("--mac", type=lambda text: int(text, 16), default=0x02_6D_71_74_69_6B)
    args = parser.parse_args()
    if args.simulate:
        platform = GenericPlatform("none", SIMULATED_PINS)
    else:
        platform = colorlight_5a_75b.Platform(revision=args.revision, toolchain="trellis")
    board = Board(platform, args.simulate, args.ip, args.mac, seed_log2=8 if args.simulate else 22)
    if args.simulate:
        pins = platform.constraint_manager.get_io_signals
        fragment = board.get_fragment()
        platform.finalize(fragment)
        args.folder.mkdir(parents=True, exist_ok=True)
        platform.get_verilog(fragment, name=NAME, ios=pins()).write(str(args.folder / f"{NAME}.v"))
    else:
        platform.build(board, build_dir=str(args.folder), build_name=NAME, run=False)


if __name__ == "__main__":
    main()
