"""What cocotb runs: the whole broker against the vectors, and against the reference."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import cocotb
from boundary import (
    ADDRESS_SHARE,
    COUNTERS_AT,
    CYCLE_PS,
    LEASE_S,
    OKAY,
    PREFIX,
    PREFIX_PIECES,
    PUBLISHERS,
    PULSES,
    REFUSED,
    SHAPES,
    SHARE,
    STATE,
    SUBSCRIBERS,
    Bench,
    Out,
)
from cocotb.triggers import RisingEdge, SimTimeoutError, Timer

from broker.rtl.sim.conversations import (
    COUNTED,
    address,
    agree,
    as_vector,
    conversations,
    settings_of,
)
from broker.rtl.sim.golden import (
    REFUSALS,
    Address,
    AnyOrder,
    Golden,
    Reader,
    RefusedError,
    Sent,
    Settings,
    body_of,
)
from broker.rtl.sim.over_tcp import OverTcp
from broker.rtl.sim.traffic import GOOD, Datagram, Traffic
from demo.local_broker import Mosquitto, running

SEED = int(os.environ.get("MQTICK_SEED", "1"))
DATAGRAMS = int(os.environ.get("MQTICK_DATAGRAMS", "1000"))
# Leases are counted in ticks of 2^20 ns, and looked at one after another.
LEASE_MARGIN_NS = 50_000_000
# The end of a lease is counted when it is found: one subscriber is looked at in so many cycles.
SWEEP_CYCLES, MOST_CLIENTS = 1024, 512


@cocotb.test()
async def the_vectors_hold(dut: Any) -> None:
    """Every conversation of broker/spec/vectors that hardware can have."""
    bench, held, wrong = Bench(dut), 0, []
    for file, conversation in conversations():
        settings = settings_of(conversation)
        if settings.stamps != Settings().stamps:
            continue
        await bench.reset(settings)
        for number, step in enumerate(conversation["steps"]):
            await bench.jump(step["at_ns"])
            bench.out.clear()
            await bench.send(*address(step["from"]), bytes.fromhex(step["send"]))
            await bench.quiet()
            if not agree(step["expect"], [out.sent for out in bench.out]):
                wrong.append(f"{file}, {conversation['name']}, step {number}: {step} {bench.out}")
                break
        else:
            counted = {at: n for at, n in (await bench.counters()).items() if at in COUNTED}
            if counted != conversation["counters"]:
                wrong.append(f"{file}, {conversation['name']}: counted {counted}")
        held += 1
        cocotb.log.debug("%s: %s", file, conversation["name"])
    for one in wrong:
        cocotb.log.error(one)
    cocotb.log.info("%d conversations, %d wrong", held, len(wrong))
    assert not wrong, f"{len(wrong)} of {held} conversations: {wrong}"


class Comparison:
    """What the broker sent, taken datagram by datagram from what the reference expects."""

    def __init__(self, golden: Golden) -> None:
        self.golden = golden
        golden.without_room = self._without_room
        self.full: set[tuple[str, Address, bytes]] = set()

    def _without_room(self, what: str, who: Address, wanted: bytes) -> bool:
        return (what, who, wanted) in self.full

    def _learn(self, who: Address, octets: bytes, out: list[Out]) -> None:
        """Tables are the broker's own: what they had no room for is read in its answer."""
        self.full.clear()
        if not out or (out[0].sent.ip, out[0].sent.port) != who:
            return
        answer = out[0].sent.octets
        if answer == bytes.fromhex("20020003"):
            self.full.add(("full", who, b""))
        if answer[0] == 0x90:
            # The answer may be that to a later datagram, and this one malformed.
            with contextlib.suppress(RefusedError):
                read = Reader(body_of(octets))
                read.take(2)
                for code in answer[4:]:
                    wanted = read.string()
                    read.take(1)
                    if code == 0x80:
                        self.full.add(("table", who, wanted))

    def check(self, datagram: Datagram, stamp: int, out: list[Out]) -> None:
        """Take what was sent for one datagram from the front of `out`."""
        who = (datagram.ip, datagram.port)
        self._learn(who, datagram.octets, out)
        expect = self.golden.serve(stamp >> 16, *who, datagram.octets, arrival=stamp)
        theirs = [
            one
            for item in expect
            for one in (chain(*item.runs) if isinstance(item, AnyOrder) else [item])
        ]
        mine, out[:] = out[: len(theirs)], out[len(theirs) :]
        if not agree(
            [self._pattern(item) for item in as_vector(expect)], [one.sent for one in mine]
        ):
            raise AssertionError(f"for {datagram}\nexpected {expect}\nthere came {mine}")
        for one in mine:
            stated = self._is_stated(one.sent.octets)
            assert one.fill == stated, f"for {datagram}: {one}"
            if stated:
                self._check_residence(datagram, stamp, one)
        assert numbers([one.sent for one in mine]) == numbers(theirs), f"{datagram} {mine}"

    def _is_stated(self, octets: bytes) -> bool:
        """Tell whether a copy says how long it was in the broker."""
        if octets[0] != 0x30:
            return False
        read = Reader(body_of(octets))
        return self.golden.has_trailer(read.string(), read.left) and octets[-1] != 0

    def _pattern(self, item: Any, hide: int = 8) -> Any:
        """Leave out the residence, and in copies of any order the whole trailer."""
        if "any_order" in item:
            runs = [[self._pattern(one, hide=16) for one in run] for run in item["any_order"]]
            return {"any_order": runs}
        text = item["send"]
        if self._is_stated(bytes.fromhex(text)):
            text = text[:-32] + ".." * hide + text[len(text) - 32 + 2 * hide :]
        return {**item, "send": text}

    @staticmethod
    def _check_residence(datagram: Datagram, stamp: int, one: Out) -> None:
        stood = int.from_bytes(datagram.octets[-16:-8], "big")
        said = int.from_bytes(one.sent.octets[-16:-8], "big")
        assert said == stood + one.left - stamp, f"{datagram}: {said:x} of {one}"


def numbers(sent: list[Sent]) -> list[tuple[str, int, bytes]]:
    """Return correction, copy and source of each, sorted."""
    return sorted((one.ip, one.port, one.octets[-8:]) for one in sent)


async def settle_time(bench: Bench, golden: Golden, at_ns: int) -> None:
    """Go on to a time that is not near the end of any lease."""
    while any(abs(lease.end_ns - at_ns) < LEASE_MARGIN_NS for lease in golden.leases.values()):
        at_ns += LEASE_MARGIN_NS
    await bench.jump(at_ns)
    golden.end_leases(at_ns)


async def exchange(
    bench: Bench, golden: Golden, traffic: Traffic, count: int, burst: int = 6
) -> None:
    """Send random datagrams in bursts, and compare all that comes back."""
    comparison = Comparison(golden)
    done = 0
    while done < count:
        if traffic.now_ns > bench.now() >> 16:
            await settle_time(bench, golden, traffic.now_ns)
            await bench.quiet()
        traffic.now_ns = bench.now() >> 16
        sent: list[tuple[Datagram, int]] = []
        for _ in range(traffic.random.randrange(1, burst + 1)):
            datagram = traffic.next()
            # Within a burst no time passes but what the bench takes.
            stamp = await bench.send(datagram.ip, datagram.port, datagram.octets)
            sent.append((datagram, stamp))
        try:
            await bench.quiet()
        except SimTimeoutError as error:
            raise AssertionError(f"the broker hangs after {sent}, sent {bench.out}") from error
        for datagram, stamp in sent:
            comparison.check(datagram, stamp, bench.out)
        assert not bench.out, f"nothing asked for {bench.out} after {sent}"
        done += len(sent)


async def compare_counters(bench: Bench, golden: Golden) -> None:
    counted = {name: count for name, count in golden.counters.items() if count}
    theirs = await bench.counters()
    for _ in range(MOST_CLIENTS):
        if theirs.get("leases_ended", 0) >= counted.get("leases_ended", 0):
            break
        await Timer(SWEEP_CYCLES * CYCLE_PS, "ps")
        await RisingEdge(bench.dut.clk)
        theirs = await bench.counters()
    if "leases_ended" in counted:
        # Entries of a lease that ended are freed one after another: until then their shapes are in
        # use, where the reference sees a table without room.
        for counters in (counted, theirs):
            counters["shape"] = counters.get("shape", 0) + counters.pop("table", 0)
    assert theirs == counted, f"{theirs} not {counted}"


@cocotb.test()
async def random_traffic_is_served_as_by_the_reference(dut: Any) -> None:
    """Mixed packets, overlapping filters, malformed datagrams, time that passes; small tables."""
    bench = Bench(dut, SEED)
    settings = Settings(subscriptions_a_subscriber=20, lease_s=90, subscriptions=2**31)
    await bench.reset(settings)
    golden = Golden(settings)
    traffic = Traffic(SEED, golden)
    await exchange(bench, golden, traffic, DATAGRAMS)
    await compare_counters(bench, golden)
    cocotb.log.info("%d datagrams, %s", DATAGRAMS, dict(golden.counters))


@cocotb.test()
async def nobody_has_to_be_ready(dut: Any) -> None:
    """The same with gaps in what comes, and receivers that are busy."""
    bench = Bench(dut, SEED + 1)
    settings = Settings(subscriptions=2**31)
    await bench.reset(settings)
    golden = Golden(settings)
    traffic = Traffic(SEED + 1, golden)
    for hdr, word, gaps in ((200, 0, 0.0), (0, 200, 0.0), (128, 128, 0.5), (240, 240, 0.8)):
        dut.hdr_pressure.value, dut.word_pressure.value, bench.gaps = hdr, word, gaps
        await exchange(bench, golden, traffic, DATAGRAMS // 8)
    await compare_counters(bench, golden)


@cocotb.test()
async def who_gets_what_is_as_with_mosquitto(dut: Any) -> None:
    """The same traffic goes to a broker of others over TCP."""
    bench = Bench(dut, SEED + 4)
    settings = Settings(subscriptions=2**31, residence_prefix="")
    await bench.reset(settings)
    golden = Golden(settings)
    comparison, traffic = Comparison(golden), Traffic(SEED + 4, golden, GOOD)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Mosquitto(Path(folder), "allow_duplicate_messages true")) as other,
    ):
        bridge = OverTcp(other.port)
        for _ in range(DATAGRAMS // 4):
            datagram = traffic.next()
            traffic.now_ns = bench.now() >> 16
            stamp = await bench.send(datagram.ip, datagram.port, datagram.octets)
            await bench.quiet()
            sent = [out.sent for out in bench.out]
            before = refusals(golden)
            comparison.check(datagram, stamp, bench.out)
            bridge.follow(
                (datagram.ip, datagram.port),
                datagram.octets,
                sent,
                {*golden.leases},
                refused=refusals(golden) > before,
            )
        bridge.close()


def refusals(golden: Golden) -> int:
    """Count the datagrams that were refused."""
    return sum(golden.counters[name] for name in REFUSALS)


@cocotb.test()
async def a_reset_at_any_time_leaves_a_new_broker(dut: Any) -> None:
    """In the middle of a datagram that comes, is looked up, or leaves."""
    bench, dice = Bench(dut, SEED + 2), random.Random(SEED + 2)
    settings = Settings(subscriptions=2**31)
    for _ in range(max(6, DATAGRAMS // 50)):
        await bench.reset(settings)
        golden = Golden(settings)
        traffic = Traffic(dice.randrange(2**32), golden)
        await exchange(bench, golden, traffic, 12)
        datagram = traffic.next()
        words = dice.randrange(0, len(datagram.octets) // 8 + 2)
        task = cocotb.start_soon(
            bench.send(datagram.ip, datagram.port, datagram.octets, words=words)
        )
        for _ in range(dice.randrange(60)):
            await RisingEdge(dut.clk)
        task.cancel()
    await bench.reset(settings)
    await exchange(bench, Golden(settings), Traffic(SEED, Golden(settings)), 1)


@cocotb.test()
async def registers_keep_what_is_written(dut: Any) -> None:
    """Settings within their limits; other writes are refused and change nothing."""
    bench = Bench(dut)
    await bench.reset(Settings())
    assert [await bench.read(at) for at in (LEASE_S, SHARE, ADDRESS_SHARE)] == [60, 32, 1024]
    for at, value, kept in (
        *((LEASE_S, 10, 10), (LEASE_S, 0, 1), (LEASE_S, 5000, 3600), (SHARE, 99, 32)),
        *((SHARE, 7, 7), (ADDRESS_SHARE, 70_000, 65_535), (ADDRESS_SHARE, 9, 9)),
        *((SHAPES, 2, 2), (PREFIX_PIECES, 99, 8), (PREFIX_PIECES, 0, 0), (PREFIX + 28, 5, 5)),
        *((PUBLISHERS + 24, 1, 1), (SUBSCRIBERS + 28, 2, 2)),
    ):
        assert await bench.write(at, value) == OKAY
        assert await bench.read(at) == kept
    for at, strobe in ((LEASE_S, 1), (LEASE_S + 1, 15), (0, 15), (COUNTERS_AT, 15), (0x80, 15)):
        assert await bench.write(at, 77, strobe) == REFUSED
    assert await bench.read(LEASE_S) == 3600
    for at in range(0, 0x180, 4):
        await bench.read(at)


@cocotb.test()
async def the_time_of_day_is_caught_with_the_counter(dut: Any) -> None:
    """At each pulse per second, so that stamps can be told in UTC."""
    bench = Bench(dut)
    await bench.reset(Settings())
    dut.tod_ns.value, dut.tod_valid.value, dut.pps.value = 1_800_000_000 * 10**9, 1, 1
    before = bench.now()
    await bench.edge(6)
    after = bench.now()
    dut.pps.value = 0
    await bench.edge(6)
    pulses, *halves = [await bench.read(PULSES + 4 * at) for at in range(5)]
    assert pulses == 1
    assert before <= halves[0] | halves[1] << 32 <= after
    assert halves[2] | halves[3] << 32 == 1_800_000_000 * 10**9
    assert await bench.read(STATE) == 3  # ready, and the time of day is valid


@cocotb.test()
async def damaged_datagrams_are_dropped(dut: Any) -> None:
    """A wrong checksum, or a header that says another length than came."""
    bench = Bench(dut, SEED + 3)
    settings = Settings(subscriptions=2**31)
    await bench.reset(settings)
    golden = Golden(settings)
    traffic = Traffic(SEED + 3, golden)
    damaged = 0
    for _ in range(DATAGRAMS // 50):
        await exchange(bench, golden, traffic, 3)
        datagram = traffic.next()
        length = len(datagram.octets)
        for how in ({"damaged": True}, {"length": length + 1}, {"length": length + 8}):
            await bench.send(datagram.ip, datagram.port, datagram.octets, **how)
            damaged += 1
        await bench.quiet()
        assert not bench.out
    golden.counters["damaged"] = damaged
    await compare_counters(bench, golden)
