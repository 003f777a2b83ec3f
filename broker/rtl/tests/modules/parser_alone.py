"""mqtick_parser against section 7 of the specification, written down here once more."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import cocotb
from alone import HANGS_CYCLES, begin, dice, edge, get, put, record_of
from boundary import COUNTERS
from cocotb.triggers import FallingEdge, RisingEdge

from broker.rtl.sim.golden import PUBLISH, RefusedError, body_of, is_topic, packet, publish

SLOTS = 4
PREFIX = b"mqtick"
FLAGS = {1: 0, 8: 2, 10: 2, 12: 0, 14: 0}
INPUTS = (
    "started", "complete", "damaged", "words", "text_done", "text_bad", "text_reserved",
    "text_below", "hash_ready", "look_ready", "keep_done", "idle", "room", "control_busy",
    "control_done", "sweep_due",
)  # fmt: skip


class Came(NamedTuple):
    octets: bytes
    network: int = 10
    port: int = 5000
    stamp: int = 0
    publishes: bool = True
    subscribes: bool = True
    damaged: bool = False


class Refused(NamedTuple):
    reason: str


class Controlled(NamedTuple):
    kind: int
    body: int


class Message(NamedTuple):
    kept: bool
    length: int
    arrival: int
    trailer: bool
    chained: bool
    unstated: bool
    source: int


Judged = Refused | Controlled | Message


def judged(came: Came) -> Judged:
    """Say what the parser makes of a datagram: the checks in their order."""
    if came.damaged:
        return Refused("damaged")
    octets = came.octets
    if came.port == 0 or came.network in (0, 127) or came.network >= 224:
        return Refused("source")
    if len(octets) > 1472:
        return Refused("oversized")
    try:
        body = body_of(octets)
    except RefusedError as refused:
        return Refused(str(refused))
    kind, low, begins = octets[0] >> 4, octets[0] & 15, len(octets) - len(body)
    if kind == PUBLISH and low & 0b1110:
        return Refused("qos")
    if kind != PUBLISH and kind not in FLAGS:
        return Refused("type")
    if kind != PUBLISH and low != FLAGS[kind]:
        return Refused("flags")
    proves = kind == PUBLISH and body[:8] == b"\0\x06$proof"
    if not (came.publishes if kind == PUBLISH and not proves else came.subscribes):
        return Refused("subnet")
    if kind != PUBLISH or proves:
        return Controlled(kind, begins)
    length = int.from_bytes(body[:2], "big")
    if len(body) < 2 + length:
        return Refused("truncated")
    topic, payload = body[2 : 2 + length], body[2 + length :]
    if not is_topic(topic):
        return Refused("topic")
    if topic.startswith(b"$"):
        return Refused("reserved")
    return message(came, topic, payload)


def message(came: Came, topic: bytes, payload: bytes) -> Message:
    """Say what is known of a good message (residence.md)."""
    below = topic == PREFIX or topic.startswith(PREFIX + b"/")
    trailer = below and 17 <= len(payload) <= 64 and payload[0] >> 4 == 2
    chained, unstated, source, arrival = False, False, 0, came.stamp
    if trailer:
        residence = int.from_bytes(payload[-16:-8], "big")
        chained = any(payload[-16:])
        source = payload[-1] if payload[-1] in (1, 2, 3) else 0
        unstated = chained and (source == 0 or residence >= 2**64 - 2**48)
        arrival = (came.stamp - residence) % 2**64
    retain = bool(came.octets[0] & 1)
    return Message(retain, len(came.octets), arrival, trailer, chained, unstated, source)


class Around:
    """All that is around the parser, as slow as it may be."""

    def __init__(self, dut: Any, unit: Any, random: Random, busy: float) -> None:
        self.dut, self.unit, self.random, self.busy = dut, unit, random, busy
        self.queue: list[Came] = []
        self.passed = self.freed = 0
        self.messages: list[Message] = []  # these may come later than what is behind them
        self.others: list[Refused | Controlled] = []
        self.keeps = False
        self.control = 0
        self.text: tuple[bytes, int] | None = None
        put(unit, ready=1, **dict.fromkeys(INPUTS, 0))
        self.tasks = [cocotb.start_soon(work) for work in (self.offer(), self.serve())]

    def waits(self) -> bool:
        return self.random.random() < self.busy

    async def offer(self) -> None:
        """Show the datagrams one after another, as their words come."""
        unit, words = self.unit, 0
        while True:
            came = self.queue[self.passed] if self.passed < len(self.queue) else None
            total = len(came.octets) // 8 + 1 if came else 0
            shown = 255 if words > total else min(words, 184)
            put(unit, started=came is not None, words=shown)
            put(unit, complete=came is not None and words > total)
            if came:
                put(unit, network=came.network, port=came.port, length=len(came.octets))
                put(unit, stamp=came.stamp, damaged=came.damaged and words > total)
                put(unit, may_publish=came.publishes, may_subscribe=came.subscribes)
            await RisingEdge(self.dut.clk)
            at = int(unit.at.value)
            octets = came.octets if came else b""
            octets = octets if words > total else octets[: 8 * shown]
            window = (octets + self.random.randbytes(max(0, at + 4 - len(octets))))[at : at + 4]
            unit.window.value = int.from_bytes(window, "little")
            if came and not self.waits():
                words += 1
            if unit.passed.value:
                assert words > total, "before it is whole"
                assert int(unit.slot.value) == self.passed % SLOTS
                self.passed, words = self.passed + 1, 0

    async def serve(self) -> None:
        """Be text, hash, look-up, pool and control."""
        unit, random = self.unit, self.random
        reads = hashes = keeps = None
        while True:
            await FallingEdge(self.dut.clk)
            put(unit, look_ready=not self.waits(), room=not self.waits())
            unit.idle.value = not self.waits()
            await RisingEdge(self.dut.clk)
            put(unit, text_done=0, keep_done=0, control_done=0)
            if unit.text_start.value:
                assert reads is None
                reads = random.randrange(1, 6)
                hashes = None
                put(unit, hash_ready=0)
                self.text = (self.queue[self.passed].octets, get(unit, "text_at", "text_length"))
            elif reads is not None:
                reads -= 1
                if reads == 0 and not unit.complete.value:
                    reads = 1
                if reads == 0:
                    reads, hashes = None, random.randrange(1, 5)
                    self.judge_text()
            elif hashes is not None:
                hashes -= 1
                if hashes == 0:
                    hashes = None
                    unit.hash_ready.value = 1
            if unit.look.value:
                assert get(unit, "hash_ready", "look_ready", "room") == (1, 1, 1)
                self.messages.append(self.read_record())
                self.keeps = False
            if unit.count.value:
                self.others.append(Refused(COUNTERS[int(unit.count_what.value)]))
            if unit.keep.value:
                assert get(unit, "complete", "damaged") == (1, 0)
                self.keeps, keeps = True, random.randrange(1, 9)
            elif keeps is not None:
                keeps -= 1
                if keeps == 0:
                    keeps = None
                    unit.keep_done.value = 1
            if unit.control.value:
                assert get(unit, "complete", "damaged") == (1, 0)
                self.others.append(Controlled(*get(unit, "kind", "body")))
                self.control = random.randrange(2, 9)
                unit.control_busy.value = 1
            elif self.control:
                self.control -= 1
                if self.control == 0:
                    put(unit, control_busy=0, control_done=1)

    def judge_text(self) -> None:
        """Give the verdict of mqtick_text with its last piece."""
        octets, (at, length) = self.text
        topic = octets[at : at + length]
        below = topic == PREFIX or topic.startswith(PREFIX + b"/")
        put(self.unit, text_bad=not is_topic(topic), text_reserved=topic.startswith(b"$"))
        put(self.unit, text_below=below, text_done=1)

    def read_record(self) -> Message:
        record = record_of(int(self.unit.rec.value))
        assert (record["kept"], record["as_is"]) == (0, 0)
        flags = (bool(record[name]) for name in ("trailer", "chained", "unstated"))
        return Message(self.keeps, record["length"], record["arrival"], *flags, record["source"])


GOOD = publish(PREFIX, b"\x20" + bytes(47))
EACH = (
    *(Came(GOOD), Came(GOOD, network=127), Came(GOOD, port=0), Came(bytes(1473)), Came(GOOD[:-1])),
    *(Came(b"\xf0\0"), Came(b"\xc1\0"), Came(b"\x32\0"), Came(GOOD, publishes=False)),
    *(Came(b"\xc0\0", subscribes=False), Came(b"\x30\3\0\5a"), Came(publish(b"a/+", b""))),
    *(Came(publish(b"$a", b"")), Came(GOOD, damaged=True), Came(publish(b"$proof", bytes(8)))),
    *(Came(b"\xc0\0", damaged=True), Came(b"\xc0\0"), Came(b"\xf0\0", damaged=True)),
)


def random_message(random: Random) -> bytes:
    topics = (PREFIX, PREFIX + b"/a", b"a", b"mqticks", b"a/b", b"$SYS/a", b"a/#", b"", b"x" * 64)
    topics += (b"abcdef", b"$proof", b"$prooF", b"a" * 65, b"a/" * 16, b"a\0", PREFIX + b"/" * 9)
    payload = random.randbytes(random.choice((0, 1, 16, 17, 48, 64, 65, 200)))
    if random.random() < 0.7:
        payload = bytes([0x20 | random.randrange(16)]) + payload[1:]
    if len(payload) >= 17 and random.random() < 0.8:
        filled = random.randbytes(15) + bytes([random.randrange(5)])
        far = b"\xff" + random.choice((b"\xff", b"\xfe")) + filled[2:]
        kept = random.choice((bytes(16), filled, far, bytes(15) + b"\x01"))
        payload = payload[:-16] + kept
    topic = random.choice(topics) if random.random() < 0.7 else PREFIX
    return publish(topic, payload, retain=random.random() < 0.3)


def random_datagram(random: Random) -> Came:
    """Make one that is good, or almost."""
    octets = random_message(random)
    chance = random.random()
    if chance < 0.25:
        kind = random.randrange(16)
        first = kind << 4 | (FLAGS.get(kind, 0) if random.random() < 0.8 else random.randrange(16))
        octets = packet(first, random.randbytes(random.choice((0, 5, 100, 300))))
    elif chance < 0.5:
        octets = bytearray(octets)
        octets[random.randrange(min(4, len(octets)))] ^= 1 << random.randrange(8)
        octets = bytes(octets)
    elif chance < 0.55:
        octets = octets[: random.randrange(len(octets))]
    elif chance < 0.6:
        octets = random.choice((bytes(1473), b"", b"\x30", b"\x30\x80\x00", b"\x30\x82\x00ab"))
        octets += random.choice((b"", bytes(3)))
    elif chance < 0.65:  # the length of the topic says more than is there
        octets = packet(0x30, random.choice((b"", b"\0", b"\0\x06", b"\0\x06$pro", b"\xff\xffab")))
    return Came(
        octets,
        network=random.choice((10,) * 12 + (0, 126, 127, 128, 223, 224, 255)),
        port=random.choice((5000,) * 12 + (0,)),
        stamp=random.getrandbits(64),
        publishes=random.random() < 0.9,
        subscribes=random.random() < 0.9,
        damaged=random.random() < 0.1,
    )


@cocotb.test()
@cocotb.parametrize(busy=[0.0, 0.5])
async def parser_judges_in_the_order_of_the_specification(dut: Any, busy: float) -> None:
    """Each datagram, good or not, while its words come and everybody else is slow."""
    unit, random = await begin(dut, "parser"), dice()
    around = Around(dut, unit, random, busy)
    around.queue = [*EACH, *(random_datagram(random) for _ in range(300))]
    due = [judged(came) for came in around.queue]
    for _ in range(HANGS_CYCLES * 10):
        if len(around.messages) + len(around.others) == len(due):
            break
        await edge(dut)
    await edge(dut, 50)
    assert around.messages == [one for one in due if isinstance(one, Message)]
    assert around.others == [one for one in due if not isinstance(one, Message)]
    assert around.passed == len(due)


@cocotb.test()
async def parser_lets_a_lease_end_between_datagrams(dut: Any) -> None:
    """Not while something is sent or the control works; the next datagram waits for it."""
    unit = await begin(dut, "parser")
    around = Around(dut, unit, dice(), 0.0)
    for task in around.tasks[1:]:
        task.cancel()
    put(unit, idle=0, sweep_due=1)
    around.queue = [Came(packet(0xC0, b""))]
    await edge(dut, 50)
    assert not around.passed
    assert not unit.sweep.value
    unit.idle.value = 1
    for _ in range(HANGS_CYCLES):
        await edge(dut)
        if unit.sweep.value:
            break
    put(unit, sweep_due=0, control_busy=1)
    for _ in range(30):
        await edge(dut)
        assert not unit.control.value
        assert not unit.sweep.value
    unit.control_busy.value = 0
    for _ in range(HANGS_CYCLES):
        await edge(dut)
        if unit.control.value:
            return
    raise AssertionError("the datagram is not served")
