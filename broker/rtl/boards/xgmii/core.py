"""The broker behind LiteEth at 10 Gb/s: XGMII, 64 bits wide, 156.25 MHz.

python core.py FOLDER [--stock]    writes mqtick_xgmii.v to FOLDER

`--stock` keeps LiteEth's own checksum of the IP header, one 16-bit word a cycle.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import liteeth.core.ip
from liteeth.common import convert_ip, eth_phy_description, ipv4_header
from liteeth.core.arp import LiteEthARP
from liteeth.core.icmp import LiteEthICMP
from liteeth.core.ip import LiteEthIP
from liteeth.core.udp import LiteEthUDP
from liteeth.mac import LiteEthMACCrossbar
from liteeth.mac.common import LiteEthMACDepacketizer, LiteEthMACPacketizer
from liteeth.mac.crc import LiteEthMACCRC32Checker, LiteEthMACCRC32Inserter
from liteeth.mac.preamble import LiteEthMACPreambleChecker, LiteEthMACPreambleInserter
from liteeth.phy.xgmii import LiteEthPHYXGMIIRX, LiteEthPHYXGMIITX
from litex.build.generic_platform import GenericPlatform, Pins, Subsignal
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import (
    CEInserter,
    ClockDomain,
    ClockDomainsRenamer,
    ClockSignal,
    If,
    Instance,
    ResetInserter,
    ResetSignal,
    Signal,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "colorlight_5a_75b"))
from board import PORT, Neighbours, Padding

NAME = "mqtick_xgmii"
WIDTH = 64
CLOCK_HZ = 156.25e6
CHANNELS = {
    "aw": {"addr": "i", "valid": "i", "ready": "o"},
    "w": {"data": "i", "strb": "i", "valid": "i", "ready": "o"},
    "b": {"resp": "o", "valid": "o", "ready": "i"},
    "ar": {"addr": "i", "valid": "i", "ready": "o"},
    "r": {"data": "o", "resp": "o", "valid": "o", "ready": "i"},
}
"""Of the registers: which way each signal goes."""
SIZES = {"addr": 12, "data": 32, "strb": 4, "resp": 2}
PINS = [
    ("sys_clk", 0, Pins(1)),
    ("sys_rst", 0, Pins(1)),
    ("seed", 0, Pins(128)),
    (
        "xgmii",
        0,
        Subsignal("rx_clk", Pins(1)),
        Subsignal("rx_ctl", Pins(8)),
        Subsignal("rx_data", Pins(64)),
        Subsignal("tx_ctl", Pins(8)),
        Subsignal("tx_data", Pins(64)),
    ),
    *(
        (f"s_axil_{name}", 0, *(Subsignal(field, Pins(SIZES.get(field, 1))) for field in fields))
        for name, fields in CHANNELS.items()
    ),
]


@ResetInserter()
@CEInserter()
class Checksum(LiteXModule):
    """The checksum of an IP header in one cycle and what it takes to fold it, in the next."""

    def __init__(self, skip_checksum: bool = False) -> None:
        self.header = Signal(ipv4_header.length * 8)
        self.value = Signal(16)
        self.done = Signal()
        own = ipv4_header.fields["checksum"].byte // 2
        words = [
            self.header[16 * at : 16 * at + 16]
            for at in range(ipv4_header.length // 2)
            if at != own or not skip_checksum
        ]
        total, once, twice = Signal(20), Signal(17), Signal(16)
        # A tree, not a chain.
        while len(words) > 1:
            words = [sum(words[at : at + 2]) for at in range(0, len(words), 2)]
        self.sync += total.eq(words[0]), self.done.eq(1)
        self.comb += [
            once.eq(total[:16] + total[16:]),
            twice.eq(once[:16] + once[16]),
            self.value[:8].eq(~twice[8:]),
            self.value[8:].eq(~twice[:8]),
        ]


class MAC(LiteXModule):
    """LiteEth's MAC without a gate, and who gets which type of frame.

    Only what is received changes clocks: XGMII is sent with the broker's own.
    """

    def __init__(self, pads: object) -> None:
        words = eth_phy_description(WIDTH)
        self.cd_eth_rx = ClockDomain()
        self.comb += self.cd_eth_rx.clk.eq(pads.rx_clk), self.cd_eth_rx.rst.eq(ResetSignal("sys"))
        receive = ClockDomainsRenamer("eth_rx")
        self.crossbar = LiteEthMACCrossbar(WIDTH)

        self.packetizer = LiteEthMACPacketizer(WIDTH)
        self.padding = Padding(WIDTH)
        self.padded = stream.Buffer(words)
        self.inserter = LiteEthMACCRC32Inserter(words)
        self.preamble = LiteEthMACPreambleInserter(WIDTH)
        self.send = LiteEthPHYXGMIITX(pads, WIDTH)
        self.tx = stream.Pipeline(
            self.packetizer, self.padding, self.padded, self.inserter, self.preamble, self.send
        )

        self.phy = receive(LiteEthPHYXGMIIRX(pads, WIDTH))
        self.strip = receive(LiteEthMACPreambleChecker(WIDTH))
        self.crossing = stream.ClockDomainCrossing(words, "eth_rx", "sys", 32, buffered=True)
        self.checker = LiteEthMACCRC32Checker(words)
        begins = Signal(reset=1)
        self.sync.eth_rx += If(self.strip.source.valid, begins.eq(self.strip.source.last))
        # LiteEth's checker misses the end of a frame of one word, and takes the next for its rest.
        self.comb += [
            self.phy.source.connect(self.strip.sink),
            self.strip.source.connect(self.crossing.sink, omit={"valid", "ready"}),
            self.crossing.sink.valid.eq(
                self.strip.source.valid & ~(begins & self.strip.source.last)
            ),
            self.strip.source.ready.eq(1),
            self.crossing.source.connect(self.checker.sink),
        ]
        self.depacketizer = LiteEthMACDepacketizer(WIDTH)
        self.comb += [
            self.crossbar.master.source.connect(self.packetizer.sink),
            self.depacketizer.source.connect(self.crossbar.master.sink),
        ]


class Core(LiteXModule):
    """From XGMII to XGMII."""

    def __init__(self, platform: GenericPlatform, ip: str, mac: int) -> None:
        self.cd_sys = ClockDomain()
        self.comb += [
            self.cd_sys.clk.eq(platform.request("sys_clk")),
            self.cd_sys.rst.eq(platform.request("sys_rst")),
        ]
        address = convert_ip(ip)
        self.mac = MAC(platform.request("xgmii"))
        self.arp = LiteEthARP(self.mac, mac, address, CLOCK_HZ, dw=WIDTH)  # answers, never asks
        self.neighbours = Neighbours()
        self.ip = LiteEthIP(self.mac, mac, address, self.neighbours, with_broadcast=False, dw=WIDTH)
        self.icmp = LiteEthICMP(self.ip, address, dw=WIDTH, fifo_depth=256)
        self.udp = LiteEthUDP(self.ip, address, dw=WIDTH)
        port = self.udp.crossbar.get_port(PORT, dw=WIDTH)

        frames, way, arrived = (
            self.mac.checker.source,
            self.mac.depacketizer.sink,
            self.ip.rx.source,
        )
        number, frame, bad = Signal(4), Signal(4), Signal(16)
        first = Signal(reset=1)
        # A datagram's first word comes before its frame's last, whose number is then still there;
        # with its last word the frame's end has been seen, and whether it was good.
        self.sync += If(
            arrived.valid & arrived.ready,
            first.eq(arrived.last),
            If(first, frame.eq(number)),
        )
        self.comb += [
            self.neighbours.learn.eq(
                arrived.valid & arrived.ready & arrived.last & ~(bad >> frame)[0]
            ),
            self.neighbours.learn_ip.eq(arrived.ip_address),
            self.neighbours.learn_mac.eq(self.ip.rx.sink.sender_mac),
            port.sink.src_port.eq(PORT),
        ]
        registers = {
            f"{direction}_s_axil_{channel}{field}": getattr(pads, field)
            for channel, pads in ((each, platform.request(f"s_axil_{each}")) for each in CHANNELS)
            for field, direction in CHANNELS[channel].items()
        }
        self.specials += Instance(
            "mqtick_xgmii_core",
            i_clk=ClockSignal("sys"),
            i_rst=ResetSignal("sys"),
            i_seed=platform.request("seed"),
            i_seed_valid=1,
            i_s_tvalid=frames.valid,
            o_s_tready=frames.ready,
            i_s_tdata=frames.data,
            i_s_tend=frames.last_be,
            i_s_tlast=frames.last,
            i_s_terror=frames.error != 0,
            o_m_tvalid=way.valid,
            i_m_tready=way.ready,
            o_m_tdata=way.data,
            o_m_tend=way.last_be,
            o_m_tlast=way.last,
            o_m_frame=number,
            o_bad=bad,
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
            **registers,
        )


def main() -> None:
    """Write the Verilog."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--ip", default="192.168.1.50")
    parser.add_argument("--mac", type=lambda text: int(text, 16), default=0x02_6D_71_74_69_6B)
    args = parser.parse_args()
    if not args.stock:
        liteeth.core.ip.LiteEthIPV4Checksum = Checksum
    platform = GenericPlatform("none", PINS)
    core = Core(platform, args.ip, args.mac)
    fragment = core.get_fragment()
    platform.finalize(fragment)
    args.folder.mkdir(parents=True, exist_ok=True)
    pins = platform.constraint_manager.get_io_signals()
    platform.get_verilog(fragment, name=NAME, ios=pins).write(str(args.folder / f"{NAME}.v"))


if __name__ == "__main__":
    main()
