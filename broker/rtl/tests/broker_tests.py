"""What cocotb runs: the whole broker against the vectors, and against the reference."""

from __future__ import annotations

import dataclasses
import os
import random
import tempfile
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import cocotb
from boundary import (
    ADDRESS_SHARE,
    COPIES,
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
)
from cocotb.triggers import Event, RisingEdge, SimTimeoutError, Timer

from broker.rtl.sim.comparison import Comparison, calm
from broker.rtl.sim.conversations import COUNTED, address, agree, conversations, settings_of
from broker.rtl.sim.golden import REFUSALS, Golden, Settings, packet, publish
from broker.rtl.sim.over_tcp import OverTcp
from broker.rtl.sim.traffic import GOOD, Datagram, Traffic
from demo.local_broker import Mosquitto, running

SEED = int(os.environ.get("MQTICK_SEED", "1"))
DATAGRAMS = int(os.environ.get("MQTICK_DATAGRAMS", "1000"))
# The end of a lease is counted when it is found: one subscriber is looked at in so many cycles.
SWEEP_CYCLES, MOST_CLIENTS = 1024, 512
# What a SUBSCRIBE may take, as ../README.md states; a cycle in 2^-16 ns.
MOST_CYCLES, CYCLE = 150_000, 419_430
SUBSCRIBE_T = bytes.fromhex("82 06 0001 0001 74 00")


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


async def settle_time(bench: Bench, golden: Golden, at_ns: int) -> None:
    """Go on to a time that is not near the end of any lease."""
    at_ns = calm(golden, at_ns)
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
        await bench.edge()
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


async def use_registers(bench: Bench, dice: random.Random, settings: Settings, stop: Event) -> None:
    """Read registers, and write what changes nothing or is refused, until it is stopped."""
    copies = 0
    while not stop.is_set():
        at, value = dice.choice(
            (
                (LEASE_S, settings.lease_s),
                (SHARE, settings.subscriptions_a_subscriber),
                (ADDRESS_SHARE, settings.subscribers_an_address),
            )
        )
        if dice.random() < 0.3:
            assert await bench.write(at, value) == OKAY
        assert await bench.read(at) == value
        at, strobe = dice.choice(
            ((LEASE_S, 7), (LEASE_S + 2, 15), (STATE, 15), (COUNTERS_AT + 8, 15), (0x400, 15))
        )
        assert await bench.write(at, dice.randrange(2**32), strobe) == REFUSED
        before, copies = copies, await bench.read(COPIES)
        assert copies >= before
        await bench.edge(dice.randrange(1, 20))


@cocotb.test()
async def registers_are_used_beside_traffic(dut: Any) -> None:
    """Neither disturbs the other; a changed setting holds for the next datagram."""
    bench, dice = Bench(dut, SEED + 5), random.Random(SEED + 5)
    settings = Settings(subscriptions=2**31)
    await bench.reset(settings)
    golden = Golden(settings)
    traffic = Traffic(SEED + 5, golden)
    everybody, some = Settings().publishers, (IPv4Network("10.0.0.0/23"), IPv4Network("10.0.2.1"))
    for _ in range(max(4, DATAGRAMS // 100)):
        settings = dataclasses.replace(
            settings,
            lease_s=dice.choice((1, 30, 600)),
            subscriptions_a_subscriber=dice.choice((2, 20, 32)),
            subscribers_an_address=dice.choice((1, 1024)),
            residence_prefix=dice.choice(("", "mqtick", "mqtick/a", "a")),
            publishers=dice.choice((everybody, some)),
            subscribers=dice.choice((everybody, some)),
        )
        await bench.set(settings, golden.settings)
        golden.settings, stop = settings, Event()
        beside = cocotb.start_soon(use_registers(bench, dice, settings, stop))
        await exchange(bench, golden, traffic, 25)
        stop.set()
        await beside
    await compare_counters(bench, golden)


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
async def nobody_waits_longer_than_is_stated(dut: Any) -> None:
    """For as many filters as fit in a SUBSCRIBE, each tried on a full pool to the last octet."""
    bench = Bench(dut)
    await bench.reset(Settings())
    for port in (5000, 5001):
        await bench.send("10.0.0.2", port, SUBSCRIBE_T)
        await bench.quiet()
        await bench.send("10.0.0.2", port, bench.out[-1].sent.octets)
    await bench.send("10.0.0.2", 5001, SUBSCRIBE_T)
    for level in range(0x40, 0x40 + Settings().retained):
        topic = (bytes([level]) * 9 + b"/") * 6 + b"not."
        await bench.send("10.0.0.1", 9, publish(topic, b"x", True))
    await bench.quiet()
    filters = [b"+/" * 6 + b"not%c" % last for last in b"abcdefghijklmnopqrstuvwxyzABCDEF"]
    body = b"".join(len(one).to_bytes(2, "big") + one + b"\0" for one in filters)
    bench.out.clear()
    await bench.send("10.0.0.2", 5000, packet(0x82, b"\0\2" + body))
    stamp = await bench.send("10.0.0.1", 9, publish(b"t", b"at last"))
    await bench.quiet()
    answer, copy = bench.out
    assert answer.sent.octets == packet(0x90, b"\0\2" + bytes(len(filters)))
    assert copy.sent.octets == publish(b"t", b"at last")
    cycles = (copy.left - stamp) // CYCLE
    cocotb.log.info("a message behind %d filters waited %d cycles", len(filters), cycles)
    assert MOST_CYCLES // 2 < cycles <= MOST_CYCLES, "or the page says another number"


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
