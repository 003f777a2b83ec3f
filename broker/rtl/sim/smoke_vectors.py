"""A quick look at the RTL: the conversations of `broker/spec/vectors`, replayed by cocotb."""

from __future__ import annotations

import os
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ReadOnly, RisingEdge

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from broker.rtl.sim.conversations import COUNTED, address, agree, conversations  # noqa: E402
from broker.rtl.sim.golden import Sent  # noqa: E402

NAMES = (
    "source oversized length type flags qos subnet truncated filters identifier topic reserved "
    "proof stranger full filter share shape table challenges pool leases_ended damaged"
).split()


class Bench:
    def __init__(self, dut):
        self.dut = dut
        self.sent = []
        self.now_ns = 0
        self.quiet = 0

    async def reset(self, secret: bytes):
        d = self.dut
        d.rst.value = 1
        for name in ("rx_hdr_valid", "rx_tvalid", "rx_tuser", "s_axil_awvalid", "s_axil_wvalid",
                     "s_axil_arvalid", "pps", "tod_valid", "tod_ns"):
            getattr(d, name).value = 0
        d.s_axil_bready.value = 1
        d.s_axil_rready.value = 1
        d.tx_hdr_ready.value = 1
        d.tx_tready.value = 1
        d.now.value = 0
        d.seed.value = int.from_bytes(secret, "little")
        d.seed_valid.value = 1
        for _ in range(4):
            await RisingEdge(d.clk)
        d.rst.value = 0
        self.sent.clear()
        self.now_ns = 0
        while not d.rx_hdr_ready.value:
            await RisingEdge(d.clk)

    async def clock(self):
        """Count time and collect what is sent."""
        d = self.dut
        headers, words = [], b""
        cycle = 0
        while True:
            await RisingEdge(d.clk)
            cycle += 1
            self.cycle = cycle
            if d.rst.value:
                headers, words = [], b""
                continue
            moved = False
            if d.tx_hdr_valid.value and d.tx_hdr_ready.value:
                headers.append((int(d.tx_dst_ip.value), int(d.tx_dst_port.value),
                                int(d.tx_length.value)))
                moved = True
            if d.tx_tvalid.value and d.tx_tready.value:
                if not words:
                    self.first_out = cycle
                keep = int(d.tx_tkeep.value).bit_count()
                words += int(d.tx_tdata.value).to_bytes(8, "little")[:keep]
                moved = True
                if d.tx_tlast.value:
                    ip, port, length = headers.pop(0)
                    assert length == len(words), (length, words)
                    self.sent.append(Sent(str(IPv4Address(ip)), port, words))
                    words = b""
            self.quiet = 0 if moved else self.quiet + 1

    async def write(self, at, value):
        d = self.dut
        d.s_axil_awaddr.value = at
        d.s_axil_wdata.value = value
        d.s_axil_wstrb.value = 15
        d.s_axil_awvalid.value = 1
        d.s_axil_wvalid.value = 1
        while True:
            await ReadOnly()
            taken = d.s_axil_awready.value
            await RisingEdge(d.clk)
            if taken:
                break
        d.s_axil_awvalid.value = 0
        d.s_axil_wvalid.value = 0
        await RisingEdge(d.clk)

    async def read(self, at):
        d = self.dut
        d.s_axil_araddr.value = at
        d.s_axil_arvalid.value = 1
        await RisingEdge(d.clk)
        d.s_axil_arvalid.value = 0
        while not d.s_axil_rvalid.value:
            await RisingEdge(d.clk)
        value = int(d.s_axil_rdata.value)
        await RisingEdge(d.clk)
        return value

    async def send(self, ip, port, octets, length=None, user=0):
        d = self.dut
        d.rx_src_ip.value = int(IPv4Address(ip))
        d.rx_src_port.value = port
        d.rx_length.value = len(octets) if length is None else length
        d.rx_stamp.value = int(d.now.value)
        d.rx_hdr_valid.value = 1
        while True:
            await ReadOnly()
            taken = d.rx_hdr_ready.value
            await RisingEdge(d.clk)
            if taken:
                break
        d.rx_hdr_valid.value = 0
        for at in range(0, max(len(octets), 1), 8):
            part = octets[at : at + 8]
            d.rx_tdata.value = int.from_bytes(part, "little")
            d.rx_tkeep.value = (1 << len(part)) - 1
            last = at + 8 >= len(octets)
            d.rx_tlast.value = int(last)
            d.rx_tuser.value = user if last else 0
            d.rx_tvalid.value = 1
            while True:
                await ReadOnly()
                taken = d.rx_tready.value
                await RisingEdge(d.clk)
                if taken:
                    break
        d.rx_tvalid.value = 0
        self.last_in = self.cycle

    async def until_quiet(self, cycles=40):
        d = self.dut
        idle = 0
        self.quiet = 0
        while idle < cycles:
            await RisingEdge(d.clk)
            busy = d.u_broker.u_receive.busy.value or d.u_broker.control_busy.value
            idle = 0 if busy or self.quiet == 0 else idle + 1


async def settle(b, settings):
    nets = {"publishers": 0x40, "subscribers": 0x60}
    for key, value in settings.items():
        if key in nets:
            for i in range(4):
                net = IPv4Network(value[i]) if i < len(value) else None
                await b.write(nets[key] + 8 * i, int(net.network_address) if net else 0xFFFFFFFF)
                await b.write(nets[key] + 8 * i + 4, int(net.netmask) if net else 0)
        elif key == "lease_s":
            await b.write(0x0C, value)
        elif key == "shapes":
            await b.write(0x10, value)
        elif key == "subscriptions_a_subscriber":
            await b.write(0x14, value)
        elif key == "subscribers_an_address":
            await b.write(0x18, value)
        elif key == "residence_prefix":
            pieces, text = [], value.encode()
            while text:
                cut = text[:4].find(b"/") + 1 or 4
                pieces.append(text[:cut])
                text = text[cut:]
            for i, piece in enumerate(pieces):
                await b.write(0x20 + 4 * i, int.from_bytes(piece, "little"))
            await b.write(0x1C, len(pieces))


@cocotb.test()
async def vectors(dut):
    b = Bench(dut)
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    cocotb.start_soon(b.clock())
    bad = 0
    only = os.environ.get("ONLY")
    for name, talk in conversations():
        if talk["settings"].get("stamps", 3) != 3 or (only and only not in talk["name"]):
            continue
        await b.reset(bytes.fromhex(talk["settings"]["secret"]))
        await settle(b, talk["settings"])
        wrong = []
        for i, step in enumerate(talk["steps"]):
            dut.now.value = step["at_ns"] << 16
            for _ in range(60):
                await RisingEdge(dut.clk)
            b.sent.clear()
            await b.send(*address(step["from"]), bytes.fromhex(step["send"]))
            await b.until_quiet()
            if not agree(step["expect"], b.sent):
                wrong.append(f"step {i} {step['send'][:80]}: {step['expect']} not {b.sent}")
                break
        for _ in range(0 if wrong else 1):
            counters = {n: await b.read(0x100 + 4 * i) for i, n in enumerate(NAMES)}
            counted = {k: v for k, v in counters.items() if v and k in COUNTED}
            if counted != talk.get("counters", {}):
                wrong.append(f"counters {counted} not {talk.get('counters')}")
        print("ok " if not wrong else "BAD", name, talk["name"], *wrong)
        bad += bool(wrong)
    assert not bad, f"{bad} conversations"


if __name__ == "__main__":
    from cocotb_tools.runner import get_runner

    sim = Path(__file__).parent
    sources = [sim / "../src/mqtick_pkg.sv"] + sorted(
        p for p in (sim / "../src").glob("*.sv") if p.name != "mqtick_pkg.sv")
    runner = get_runner("verilator")
    runner.build(
        sources=sources, hdl_toplevel="mqtick_broker_boundary", build_dir="/tmp/w/rtl/.build-smoke",
        parameters={"TOPICS": 1024, "SUBSCRIPTIONS": 2048, "CLIENTS": 1024, "KEY_POOL": 16,
                    "SLOTS": 4},
        build_args=["-Wno-UNUSED", "--no-assert", "-O3", "-CFLAGS", "-O1"], always=bool(os.environ.get("BUILD")))
    runner.test(hdl_toplevel="mqtick_broker_boundary", test_module="smoke_vectors",
                test_dir=str(sim))
