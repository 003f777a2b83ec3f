"""Every simulated family: faults are got over, hostile clients survived, whatever the dialect."""

from __future__ import annotations

import contextlib
import random
import re
import socket

import pytest
from scope_rig import setup, simulated

from mqtick.analysis.signals.edges import find_edges
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.simulator import FRONTS, KINDS

APART_NS = 123_456
QUICK_S = 0.15


def skew_ns(scope: Oscilloscope) -> float:
    found = scope.read([1, 2])
    first, second = (find_edges(found[channel])[0] for channel in (1, 2))
    return (second.instant_fs - first.instant_fs) / 1e6


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("family", sorted(FRONTS))
def test_each_fault_while_reading_is_got_over(family: str) -> None:
    with simulated(FRONTS[family]) as instrument:
        scope = Oscilloscope.open(instrument.resource, timeout_s=1.0)
        instrument.shot(scope, setup(), APART_NS)
        scope.transport._timeout_ms = int(QUICK_S * 1000)
        scope.transport.reopen()
        faults = instrument.server.faults
        truth_ns = skew_ns(scope)
        assert truth_ns == pytest.approx(APART_NS, abs=500)
        for kind in sorted(set(KINDS) - {"no-trigger"}):
            faults.once.add(kind)
            assert skew_ns(scope) == truth_ns, kind
            faults.once.discard(kind)  # not every family has a preamble
        assert faults.done.total() >= 5
        scope.close()


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FRONTS))
def test_whatever_a_client_sends_the_instrument_goes_on(
    family: str, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(1)
    with simulated(FRONTS[family]) as instrument:
        table = [pattern.pattern for pattern, _ in instrument.front.scpi._table]
        words = ["", "0", "-1", "nan", "inf", "1e99", "CHAN9", "CH1", "C9", "ON", "x,y", "99999999"]
        lines = []
        for pattern in table:
            header = re.sub(r"\(\?:([A-Za-z]+)\|[A-Za-z]+\)", r"\1", pattern)  # the short form
            header = re.sub(r"\(\?:[^)]*\)\?", "", header)  # what may be left out
            header = header.replace("([0-9]{1,9})", chance.choice("123490")).replace("\\", "")
            lines += [f"{header.removeprefix(':?')} {word}" for word in words]
        # What empties the error queue would hide that anything was refused.
        lines = [line for line in lines if not re.search("ERR|CLS|RST|EV|ESR", line.upper())]
        chance.shuffle(lines)
        with (
            contextlib.suppress(ConnectionError, TimeoutError),
            socket.create_connection(("127.0.0.1", instrument.server.port)) as hostile,
        ):
            hostile.settimeout(0.2)
            hostile.sendall("\n".join(lines).encode() + b"\n")
            while hostile.recv(1 << 16):
                pass
        assert any(error.startswith("-224") for error in instrument.front.scpi.errors)
        assert not caplog.records, "a command upset the program"
        scope = Oscilloscope.open(instrument.resource, timeout_s=2.0)
        instrument.shot(scope, setup(), APART_NS)
        assert skew_ns(scope) == pytest.approx(APART_NS, abs=500)
        scope.close()


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FRONTS))
def test_no_dialect_takes_another_familys_instrument_for_its_own(family: str) -> None:
    with simulated(FRONTS[family]) as instrument:
        own = Oscilloscope.open(instrument.resource, timeout_s=QUICK_S)
        other = "siglent-wf" if own.dialect.name == "keysight" else "keysight"
        own.close()
        scope = Oscilloscope.open(instrument.resource, other, timeout_s=QUICK_S)
        with pytest.raises(InstrumentError, match=r"--dialect|refused"):
            scope.set_up(setup())
        scope.close()
