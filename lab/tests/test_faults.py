"""What instruments do wrong now and then: the driver gets over it, or says what happened."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import replace

import pytest
from scope_rig import LATE_S, LONG_S, Simulated, apart_fs, each_fault, opened, simulated, usual

from mqtick.lab.scope.conversation import Conversation, InstrumentError, Query
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, State, Trigger
from mqtick.lab.scope.simulator import KINDS, Faults
from mqtick.lab.scope.simulator.keysight import KeysightFront

APART_NS = 123_456


def shot_with(instrument: Simulated, *kinds: str, timeout_s: float = LONG_S) -> Oscilloscope:
    """Take a shot without a fault; what is read of it afterwards meets the faults."""
    scope = Oscilloscope.open(instrument.resource, timeout_s=timeout_s)
    instrument.shot(scope, usual(), APART_NS)
    instrument.server.faults.once.update(kinds)
    return scope


@each_fault(*sorted(set(KINDS) - {"no-trigger"}))
def test_one_fault_while_reading_is_got_over_and_counted(kind: str, timeout_s: float) -> None:
    with simulated(KeysightFront, faults=Faults(late_s=LATE_S)) as instrument:
        scope = shot_with(instrument, kind, timeout_s=timeout_s)
        assert apart_fs(scope.read([1, 2])) == pytest.approx(APART_NS * 1e6, abs=20e6)
        assert instrument.server.faults.done == {kind: 1}
        assert scope.read_again == (0 if kind == "double-newline" else 1)
        assert scope.play(scope.dialect.errors()) == []  # and nothing stale is in the way
        scope.close()


@each_fault("late", "drop")
def test_a_fault_while_it_is_set_up_is_got_over(kind: str, timeout_s: float) -> None:
    faults = Faults(late_s=LATE_S)
    with opened(KeysightFront, faults=faults, timeout_s=timeout_s) as (instrument, scope):
        instrument.server.faults.once.add(kind)
        instrument.shot(scope, usual(), APART_NS)
        assert scope.read_again == 1
        assert apart_fs(scope.read([1, 2])) == pytest.approx(APART_NS * 1e6, abs=20e6)


@each_fault("empty-block", "plus-zero", "drop", "short-block", "late")
def test_a_fault_that_stays_is_a_sentence(kind: str, timeout_s: float) -> None:
    with simulated(KeysightFront, faults=Faults(late_s=LATE_S)) as instrument:
        scope = shot_with(instrument, timeout_s=timeout_s)
        instrument.server.faults.chances[kind] = 1.0
        with pytest.raises(InstrumentError, match=r"\. |;"):
            scope.read([1])
        assert scope.read_again == 3
        scope.close()


@pytest.mark.slow
@pytest.mark.alone
def test_many_faults_at_once_never_give_a_wrong_answer() -> None:
    chances = {kind: 0.12 for kind in KINDS if kind not in ("no-trigger", "late")}
    small = replace(KeysightFront.physics, depths=(100_000,))  # so that an answer is quick
    with simulated(KeysightFront, small, Faults(seed=7)) as instrument:
        scope = shot_with(instrument, timeout_s=0.2)
        instrument.server.faults.chances.update(chances)
        right = 0
        for _ in range(4):
            with contextlib.suppress(InstrumentError):
                assert apart_fs(scope.read([1, 2])) == pytest.approx(APART_NS * 1e6, abs=100e6)
                right += 1
        assert right >= 2
        assert instrument.server.faults.done.total() > 3
        scope.close()


def test_a_trigger_that_never_comes_is_a_missed_shot_and_the_next_one_is_good() -> None:
    with opened(KeysightFront, faults=Faults(once={"no-trigger"})) as (instrument, scope):
        scope.set_up(usual())
        assert scope.arm()
        instrument.edges(APART_NS)
        assert not scope.wait(0.1)
        for line in (1, 2):
            instrument.model.feed.add(line, instrument.model._now(), False)
        assert scope.arm()
        instrument.edges(APART_NS)
        assert scope.wait(1.0)
        assert apart_fs(scope.read([1, 2])) == pytest.approx(APART_NS * 1e6, abs=20e6)


def test_data_full_of_line_feeds_are_read_whole_and_quickly() -> None:
    # One division is 0.1 V, 32 codes: code 10 is 118 codes below the middle of the screen.
    quiet = ScopeSettings(
        channels=(
            ChannelSettings(1),
            ChannelSettings(2, volts_per_division=0.1, offset_v=118 / 320),
        ),
        trigger=Trigger(1),
        span_s=1e-3,
        points=1_000_000,
    )
    physics = replace(KeysightFront.physics, noise_v=0.001)
    with opened(KeysightFront, physics) as (instrument, scope):
        instrument.shot(scope, quiet)
        began_s = time.thread_time()
        waveform = scope.read([2])[2]
        took_s = time.thread_time() - began_s
    feeds = (waveform.codes >> 8 == ord("\n")).mean()
    assert feeds > 0.8
    assert waveform.codes.size == 1_000_000
    assert took_s < 1.0  # reading until a termination character takes more than ten times that
    assert waveform.volts().mean() == pytest.approx(0.0, abs=0.001)


def test_an_instrument_that_goes_away_is_a_sentence_that_names_it() -> None:
    with simulated(KeysightFront) as instrument:
        resource = instrument.resource
        scope = Oscilloscope.open(resource)
    with pytest.raises(InstrumentError, match=f"{resource} cannot be opened"):
        scope.set_up(usual())
    scope.close()


@pytest.mark.parametrize(
    "junk",
    [
        b"A" * 300_000,  # a line without an end
        bytes(range(256)) * 20,
        b":TIM:RANG 0\n:TIM:RANG nan\n:TIM:RANG -1\n:TIM:RANG 1e99\n",
        b":CHAN99:SCAL 1\n:CHAN1:SCAL 0\n:CHAN1:OFFS inf\n:TRIG:SOUR CHAN7\n",
        b":WAV:SOUR CHAN9\n:WAV:DATA?\n:WAV:PRE?\n:ACQ:SEGM:COUN 9999999999\n:ACQ:SEGM:IND -1\n",
        b";" * 1000 + b"\n" + b'"' * 1000 + b"\n",
        b"\n" * 1000,
    ],
)
def test_whatever_a_client_sends_the_instrument_goes_on(junk: bytes) -> None:
    with simulated(KeysightFront) as instrument:
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", instrument.server.port)) as hostile,
        ):
            hostile.sendall(junk)
            hostile.sendall(b"*IDN?\n")
            hostile.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                hostile.recv(100)
        scope = Oscilloscope.open(instrument.resource, timeout_s=LONG_S)
        instrument.shot(scope, usual(), APART_NS)
        assert apart_fs(scope.read([1, 2])) == pytest.approx(APART_NS * 1e6, abs=20e6)
        scope.close()


def test_a_flood_of_connections_is_refused_and_leaves_the_first_ones_alone() -> None:
    with opened(KeysightFront) as (instrument, scope):
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", instrument.server.port)))
            assert scope.transport.play(Query("*OPC?")) == "1"
            end_s = time.monotonic() + 30
            while instrument.server.refused <= 50 and time.monotonic() < end_s:
                time.sleep(0.005)
            assert instrument.server.refused > 50
        assert scope.transport.play(Query("*OPC?")) == "1"


def test_a_fault_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="'explosion'; known are: short-block"):
        Faults({"explosion": 1.0})


def test_an_instrument_that_answers_late_is_called_slow_and_not_its_trigger_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event comes while the answer is on its way, so it is never seen waiting."""
    with opened(KeysightFront, faults=Faults({"late": 1.0}, late_s=0.35)) as (_, scope):
        ask = scope.dialect.state

        def state() -> Conversation[State]:
            yield from ask()  # as late as it is
            return State.STOPPED

        monkeypatch.setattr(scope.dialect, "state", state)
        assert not scope.arm()
        assert "The instrument is slow: it took 0." in scope.unseen


def test_a_connection_that_is_cut_is_made_again_from_the_first_question_on() -> None:
    with opened(KeysightFront, faults=Faults(once={"drop"})) as (instrument, scope):
        assert scope.read_again == 1
        instrument.shot(scope, usual(), APART_NS)
        assert apart_fs(scope.read([1, 2])) == pytest.approx(APART_NS * 1e6, abs=20e6)
