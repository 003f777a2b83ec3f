"""What a broker sent, taken datagram by datagram from what the reference expects."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from broker.rtl.sim.golden import (
    EPOCH_NS,
    TRAILER_OCTETS,
    Address,
    AnyOrder,
    Golden,
    Reader,
    RefusedError,
    Sent,
    body_of,
)
from broker.rtl.sim.traffic import Datagram

# Leases are counted in ticks of 2^20 ns, and looked at one after another.
MARGIN_NS = 50_000_000
RESIDENCE_OCTETS = 8
# Hardware states no residence from there on: what it adds might not fit.
MUCH = 2**64 - 2**48


class Out(NamedTuple):
    """A datagram that left, and when its first word did, in 2^-16 ns."""

    sent: Sent
    fill: bool
    left: int


class Comparison:
    """Feeds the reference what the broker got.

    What a table has no room for is the broker's own affair: it is read in the answer. All else,
    and the residence in each copy, the reference predicts.
    """

    def __init__(self, golden: Golden) -> None:
        self.golden = golden
        golden.without_room = self._without_room
        self.full: set[tuple[str, Address, bytes]] = set()

    def _without_room(self, what: str, who: Address, wanted: bytes) -> bool:
        return (what, who, wanted) in self.full

    def _learn(self, who: Address, octets: bytes, out: Sequence[Out]) -> None:
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
                granted = set()
                for code in answer[4:]:
                    wanted = read.string()
                    read.take(1)
                    if code == 0x80:
                        self.full.add(("table", who, wanted))
                    else:
                        granted.add(("table", who, wanted))
                # The same one may have been refused for its QoS.
                self.full -= granted

    def check(self, datagram: Datagram, stamp: int, out: list[Out]) -> None:
        """Take what was sent for one datagram from the front of `out`; AssertionError."""
        who = (datagram.ip, datagram.port)
        self._learn(who, datagram.octets, out)
        own = 2**48 if _stood(datagram) >= MUCH else 0
        self.golden.departure = lambda arrival: arrival + own
        expect = self.golden.serve(stamp >> 16, *who, datagram.octets, arrival=stamp)
        at = 0
        for item in expect:
            runs = item.runs if isinstance(item, AnyOrder) else [[item]]
            count = sum(map(len, runs))
            mine = out[at : at + count]
            at += count
            if not self._are(runs, mine):
                raise AssertionError(f"for {datagram}\nexpected {item}\nthere came {mine}")
            for one in mine:
                self._check_residence(datagram, stamp, one)
        del out[:at]

    def _are(self, runs: list[list[Sent]], mine: list[Out]) -> bool:
        came = [one.sent for one in mine]
        if not any(self._is_filled(one.octets) for run in runs for one in run):
            return in_some_order(runs, came)
        if len(runs) == 1:
            return _without(runs[0], RESIDENCE_OCTETS) == _without(came, RESIDENCE_OCTETS)
        # Copies of several runs are counted in the order in which they leave.
        theirs = [one for run in runs for one in run]
        hidden = [_without(run, TRAILER_OCTETS) for run in runs]
        return in_some_order(hidden, _without(came, TRAILER_OCTETS)) and (
            _counts(theirs) == _counts(came)
        )

    def _is_filled(self, octets: bytes) -> bool:
        if octets[0] != 0x30:
            return False
        at = 5 if octets[1] & 0x80 else 4
        end = at + int.from_bytes(octets[at - 2 : at], "big")
        return self.golden.has_trailer(octets[at:end], octets[end:])

    def _check_residence(self, datagram: Datagram, stamp: int, one: Out) -> None:
        has_trailer = self._is_filled(one.sent.octets)
        stated = has_trailer and one.sent.octets[-1] != 0  # its source is what was expected
        assert one.fill == stated, f"for {datagram}: {one}"
        if has_trailer:
            said = int.from_bytes(one.sent.octets[-16:-8], "big")
            real = _stood(datagram) + one.left - stamp if stated else 0
            assert said == real, f"{datagram}: {said:x} of {one}"


def in_some_order(runs: list[list[Sent]], came: list[Sent]) -> bool:
    """Tell whether these runs came, each in order, one after another."""
    if len(runs) == 1:
        return runs[0] == came
    tried: list[list[Sent]] = []
    for number, run in enumerate(runs):
        if run in tried:
            continue
        tried.append(run)
        rest = runs[:number] + runs[number + 1 :]
        if run == came[: len(run)] and in_some_order(rest, came[len(run) :]):
            return True
    return False


def _stood(datagram: Datagram) -> int:
    """Return the residence that came, if this has a trailer."""
    return int.from_bytes(datagram.octets[-16:-8], "big")


def _without(sent: list[Sent], octets: int) -> list[Sent]:
    """Leave out so many octets of the trailer at the end."""
    cut = [len(one.octets) - TRAILER_OCTETS for one in sent]
    return [
        one._replace(octets=one.octets[:at] + one.octets[at + octets :])
        for at, one in zip(cut, sent, strict=True)
    ]


def _counts(sent: list[Sent]) -> list[tuple[str, int, bytes]]:
    """Return correction, copy and source of each, sorted."""
    return sorted((one.ip, one.port, one.octets[-8:]) for one in sent)


def calm(golden: Golden, at_ns: int) -> int:
    """Return a time from then on that is not near the end of a lease or of an epoch."""
    while at_ns % EPOCH_NS > EPOCH_NS - MARGIN_NS or any(
        abs(lease.end_ns - at_ns) < MARGIN_NS for lease in golden.leases.values()
    ):
        at_ns += MARGIN_NS
    return at_ns
