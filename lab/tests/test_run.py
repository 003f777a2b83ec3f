"""A run from begin to end on a simulated bench, and what becomes of every fault."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_rig import EACH_NS, LATENCY_NS, Bench, bench, scheduled, wired
from scope_rig import Simulated, simulated

from mqtick.lab.runner import loop as run_loop
from mqtick.lab.runner import subscribers as run_subscribers
from mqtick.lab.runner.control import NodeError
from mqtick.lab.runner.experiment import Experiment, OrderKeys, TimeoutKeys
from mqtick.lab.runner.instrument import Instrument, open_instrument
from mqtick.lab.runner.lock import lock, lock_of
from mqtick.lab.runner.run import run_experiment
from mqtick.lab.runner.summary import summarise
from mqtick.lab.scope.conversation import InstrumentError
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.simulator import FRONTS
from mqtick.lab.scope.simulator.keysight import KeysightFront
from mqtick.recording.run_folder import RunFolderError, load_run
from mqtick.recording.shot import CAPTURED, MISSED, REFUSED, read_waveforms
from mqtick.service import chronyd
from mqtick.service.chronyd_csv import ChronydError


@pytest.fixture(autouse=True)
def _no_chronyd(monkeypatch: pytest.MonkeyPatch) -> None:
    def tracking() -> None:
        raise ChronydError("not-here", "It is not here.")

    monkeypatch.setattr(chronyd, "tracking", tracking)
    monkeypatch.setattr(run_subscribers, "_SETTLE_S", 0.0)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "run") as made:
        yield made


def outcomes(rig: Bench) -> list[str]:
    return [shot.outcome for shot in load_run(rig.folder).shots()]


def reasons(rig: Bench) -> set[str]:
    return {shot.reason for shot in load_run(rig.folder).shots()}


def test_a_run_finds_latency_and_skew_of_each_n(rig: Bench) -> None:
    outcome = rig.run()
    assert (outcome.code, outcome.sentence, outcome.captured) == (0, "", 4)
    shots = list(load_run(rig.folder).shots())
    assert [shot.number for shot in shots] == [1, 2, 3, 4]
    for shot in shots:
        assert shot.latency_fs == pytest.approx(LATENCY_NS * 10**6, abs=2e9)
        behind_ns = EACH_NS * (shot.subscribers - 1)
        assert shot.skew_fs == pytest.approx(behind_ns * 10**6, abs=2e9)
        assert shot.simulated
        assert set(shot.edges) == {"pub", "near", "far"}
    assert {shot.subscribers for shot in shots} == {2, 5}
    waves = read_waveforms(rig.folder / "shots" / "000001.npz")
    assert set(waves) == {"pub", "near", "far"}


def test_the_record_says_who_took_part(rig: Bench) -> None:
    rig.run()
    run = load_run(rig.folder)
    assert run.simulated
    assert run.record["settings"]["subscribers"] == [2, 5]
    session = run.record["sessions"][0]
    assert session["instruments"]["scope"]["description"]
    assert session["nodes"]["client:first"]["kernel"] == "Linux 6"
    assert run.record["channels"]["near"]["node"] == "client:first"
    assert run.record["ended"]["early_because"] == ""


def test_first_subscribes_first_and_last_last(rig: Bench) -> None:
    rig.run(rig.experiment(subscribers=(5,)))
    assert rig.nodes.order == ["client:first", *["crowd:local1"] * 3, "client:last"]


def test_two_subscribers_need_no_crowd(rig: Bench) -> None:
    rig.run(rig.experiment(subscribers=(2,)))
    assert rig.nodes.order == ["client:first", "client:last"]
    assert ("crowd:local1", "join") not in rig.nodes.log


def test_a_schedule_needs_no_request(rig: Bench) -> None:
    with scheduled(rig.nodes, 0.1):
        outcome = rig.run(
            rig.experiment(
                subscribers=(2,), fire="schedule", interval_s=0.1, timeouts=TimeoutKeys()
            )
        )
    assert (outcome.code, outcome.captured, rig.nodes.fired) == (0, 2, 0)


def test_latency_of_one_subscriber_needs_nobody_else(rig: Bench) -> None:
    order = OrderKeys(publisher="pub", first="near")
    outcome = rig.run(rig.experiment(kind="latency", subscribers=(1,), order=order))
    assert (outcome.code, outcome.captured) == (0, 2)
    # Whoever was told to leave has time again afterwards.
    assert rig.nodes.order == ["client:first", "client:last"]
    for shot in load_run(rig.folder).shots():
        assert shot.latency_fs == pytest.approx(LATENCY_NS * 10**6, abs=2e9)
        assert shot.skew_fs is None


def test_clocks_are_compared_without_subscribing_anybody(rig: Bench) -> None:
    rig.nodes.order = ["client:first", "client:last"]
    rig.nodes.silent = {"client:last"}
    usual = rig.experiment()
    experiment = replace(
        usual,
        kind="clock",
        fire="schedule",
        interval_s=0.1,
        timeouts=TimeoutKeys(broker_s=0.1),
        channel={name: replace(channel, pin="pps") for name, channel in usual.channel.items()},
        order=OrderKeys(publisher="pub"),
    )
    with scheduled(rig.nodes, 0.1):
        outcome = rig.run(experiment)
    assert (outcome.code, outcome.captured) == (0, 2)
    for shot in load_run(rig.folder).shots():
        assert shot.subscribers == 0
        assert shot.clock_fs["near"] == pytest.approx(LATENCY_NS * 10**6, abs=2e9)
        assert shot.clock_fs["far"] == pytest.approx((LATENCY_NS + EACH_NS) * 10**6, abs=2e9)
    assert {do for _, do in rig.nodes.log} == {"info", "edges"}
    assert any("continues without knowing more" in note for note in rig.told.notes)


def test_a_cable_delay_is_taken_off(rig: Bench) -> None:
    experiment = rig.experiment(subscribers=(2,), shots=1)
    far = replace(experiment.channel["far"], cable_delay_ns=20_000.0)
    rig.run(replace(experiment, channel={**experiment.channel, "far": far}))
    shot = next(load_run(rig.folder).shots())
    assert shot.skew_fs == pytest.approx((EACH_NS - 20_000) * 10**6, abs=2e9)


@pytest.mark.parametrize("family", sorted(set(FRONTS) - {"keysight"}))
def test_every_family_of_instruments_can_be_run(tmp_path: Path, family: str) -> None:
    with bench(tmp_path / "run", FRONTS[family]) as rig:
        experiment = rig.experiment(subscribers=(2,), shots=1)
        scope = replace(experiment.instrument["scope"], span_us=2000.0, points=20_000)
        outcome = rig.run(replace(experiment, instrument={"scope": scope}))
        assert outcome.sentence == ""
        shot = next(load_run(rig.folder).shots())
    assert shot.latency_fs == pytest.approx(LATENCY_NS * 10**6, abs=2e9)
    assert shot.skew_fs == pytest.approx(EACH_NS * 10**6, abs=2e9)


@pytest.mark.parametrize("dialect", ["siglent", "tektronix"])
def test_a_wrong_dialect_ends_the_run_before_it_begins(rig: Bench, dialect: str) -> None:
    experiment = rig.experiment()
    scope = replace(experiment.instrument["scope"], dialect=dialect)
    timeouts = replace(experiment.timeouts, instrument_s=0.1)
    outcome = rig.run(replace(experiment, instrument={"scope": scope}, timeouts=timeouts))
    assert outcome.code == 1
    assert "refused a setting" in outcome.sentence or "a different family" in outcome.sentence
    assert not rig.folder.exists()


def shared(rig: Bench, other: Simulated) -> Experiment:
    """Two oscilloscopes that both see the publisher, and one subscriber each."""
    other.model.feed = rig.instrument.model.feed
    one = wired({"left": rig.instrument.resource, "right": other.resource})
    channels = {
        "pub": one.channel["pub"],
        "near": one.channel["near"],
        "again": replace(one.channel["pub"], instrument="right"),
        "far": replace(one.channel["far"], instrument="right"),
    }
    instruments = {**one.instrument, "right": replace(one.instrument["right"], trigger="again")}
    return replace(
        one, channel=channels, instrument=instruments, subscribers=(2,), shots=2,
        rounds=1, interval_s=0.2, timeouts=TimeoutKeys(trigger_s=1.0),
    )  # fmt: skip


def test_two_instruments_share_a_shot(rig: Bench) -> None:
    with simulated(KeysightFront, rig.instrument.model.physics) as other:
        outcome = rig.run(shared(rig, other))
    assert (outcome.code, outcome.captured) == (0, 2)
    for shot in load_run(rig.folder).shots():
        assert shot.skew_fs == pytest.approx(EACH_NS * 10**6, abs=2e9)


def test_both_are_armed_again_where_one_fired_before_the_other_was_ready(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm, armed = Oscilloscope.arm, []
    fired = iter([True, False])  # one of the two waits, then both do

    def counted(self: Oscilloscope, timeout_s: float = 5.0) -> bool:
        armed.append(self.transport.name)
        return arm(self, timeout_s)

    monkeypatch.setattr(Oscilloscope, "arm", counted)
    monkeypatch.setattr(Oscilloscope, "is_waiting", lambda _self: next(fired, True))
    with simulated(KeysightFront, rig.instrument.model.physics) as other:
        outcome = rig.run(shared(rig, other))
    assert (outcome.code, outcome.captured, len(armed)) == (0, 2, 6)


# -- faults ------------------------------------------------------------------------------------


def test_a_trigger_that_never_comes_is_a_missed_shot_and_many_end_the_run(rig: Bench) -> None:
    rig.nodes.skips = {"server:0"}
    outcome = rig.run()
    assert outcome.code == 1
    assert "3 shots in a row were missed" in outcome.sentence
    assert outcomes(rig) == [MISSED] * 3
    assert "not triggered within 0.2 s" in next(iter(reasons(rig)))
    assert "server:0 made no edge meanwhile: does it publish" in next(iter(reasons(rig)))


def test_a_channel_without_an_edge_is_named(rig: Bench) -> None:
    rig.nodes.skips = {"client:last"}
    rig.run()
    assert all("Fewer edges than channels: far" in reason for reason in reasons(rig))
    assert all("client:last made no edge meanwhile" in reason for reason in reasons(rig))


def test_a_run_without_one_good_shot_has_failed(rig: Bench) -> None:
    rig.nodes.skips = {"client:last"}
    outcome = rig.run(rig.experiment(subscribers=(2,), shots=1))
    assert (outcome.code, outcome.missed) == (1, 1)
    assert "No shot was captured" in outcome.sentence


def test_a_clipped_channel_is_named(rig: Bench) -> None:
    experiment = rig.experiment(shots=1)
    near = replace(experiment.channel["near"], volts_per_division=0.1)
    rig.run(replace(experiment, channel={**experiment.channel, "near": near}))
    assert all("near (input 2" in r and "clipped" in r for r in reasons(rig))
    assert set(outcomes(rig)) == {MISSED}


def test_a_refused_subscription_ends_the_run_in_the_words_of_the_node(rig: Bench) -> None:
    rig.nodes.refuses["client:last", "join"] = "The broker refused the subscription."
    outcome = rig.run()
    assert outcome.code == 1
    assert "client:last did not join: The broker refused" in outcome.sentence
    assert outcomes(rig) == []


def test_a_crowd_that_is_short_leaves_that_n_out_and_resume_tries_it_again(rig: Bench) -> None:
    rig.nodes.most = 1
    outcome = rig.run()
    assert (outcome.code, outcome.captured, outcome.refused) == (1, 2, 2)
    assert "granted 1" in outcome.sentence
    assert "crowd:local1 holds at most 1 subscribers, so N = 5" in rig.told.notes[0]
    assert sorted(outcomes(rig)) == sorted([CAPTURED] * 2 + [REFUSED] * 2)
    rig.nodes.most = 10
    again = rig.run(resume=True)
    assert (again.code, again.captured, again.refused) == (0, 4, 0)


def test_an_instrument_that_drops_the_connection_is_opened_again(rig: Bench) -> None:
    faults = rig.instrument.server.faults
    rig.nodes.hooks[2] = lambda: faults.once.add("drop")
    outcome = rig.run()
    assert (outcome.code, outcome.captured) == (0, 4)


def test_an_instrument_that_stays_away_ends_the_run_and_resume_goes_on(rig: Bench) -> None:
    away = False

    def go_away() -> None:
        nonlocal away
        away = True
        raise InstrumentError("It is away.")

    def opener(resource: str, dialect: str = "auto", *, timeout_s: float = 3.0) -> Instrument:
        if away:
            raise InstrumentError(f"{resource} cannot be opened.")
        return open_instrument(resource, dialect, timeout_s=timeout_s)

    rig.nodes.hooks[3] = go_away
    experiment = rig.experiment(
        crowd=replace(rig.experiment().crowd, processes=0), subscribers=(2,), shots=4
    )
    outcome = run_experiment(
        experiment,
        rig.folder,
        say=rig.told,
        connect=lambda _: rig.nodes,
        opener=opener,
    )
    assert outcome.code == 1
    assert "cannot be opened" in outcome.sentence
    assert outcomes(rig) == [CAPTURED] * 2
    rig.nodes.hooks.clear()
    again = rig.run(experiment, resume=True)
    assert (again.code, again.captured) == (0, 4)
    assert len(load_run(rig.folder).record["sessions"]) == 2


def test_a_broker_that_comes_back_has_everybody_brought_up_again(rig: Bench) -> None:
    def away() -> None:
        rig.nodes.broker_away = 2
        rig.nodes.connections += 1
        rig.nodes.order.clear()

    rig.nodes.hooks[2] = away
    outcome = rig.run()
    assert (outcome.code, outcome.captured) == (0, 4)
    assert any("Trying again" in note for note in rig.told.notes)
    for shot in load_run(rig.folder).shots():
        assert shot.skew_fs == pytest.approx(EACH_NS * (shot.subscribers - 1) * 10**6, abs=2e9)


def test_a_client_that_subscribed_anew_by_itself_is_brought_up_again(rig: Bench) -> None:
    def blip() -> None:
        rig.nodes.connects["client:first"] = 2
        rig.nodes.order.remove("client:first")
        rig.nodes.order.append("client:first")

    rig.nodes.hooks[2] = blip
    outcome = rig.run(rig.experiment(subscribers=(5,), shots=3))
    assert (outcome.code, outcome.captured, rig.nodes.fired) == (0, 3, 4)
    for shot in load_run(rig.folder).shots():
        assert shot.skew_fs == pytest.approx(4 * EACH_NS * 10**6, abs=2e9)


def test_a_broker_that_stays_away_ends_the_run(rig: Bench) -> None:
    rig.nodes.hooks[2] = lambda: setattr(rig.nodes, "broker_away", 10_000)
    outcome = rig.run()
    assert outcome.code == 1
    assert "broker is away" in outcome.sentence
    assert outcomes(rig) == [CAPTURED] * 2  # the second one came through before
    rig.nodes.broker_away = 0
    rig.nodes.hooks.clear()
    assert rig.run(resume=True).captured == 4


def test_a_node_that_never_answered_ends_the_run_before_it_begins(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_subscribers, "_ASK_AGAIN_S", 0.1)
    rig.nodes.silent = {"client:first"}
    outcome = rig.run()
    assert (outcome.code, outcome.sentence) == (1, "client:first did not answer to info.")
    assert not rig.folder.exists()
    # what the sentence of a real node says is the limit that was set, not what was left of it
    assert rig.nodes.asked_s == pytest.approx(rig.experiment().timeouts.broker_s)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_between_shots_and_resume_goes_on(
    rig: Bench, number: signal.Signals
) -> None:
    rig.nodes.hooks[3] = lambda: os.kill(os.getpid(), number)
    outcome = rig.run()
    assert (outcome.code, outcome.captured) == (130, 2)
    assert "interrupted" in outcome.sentence
    assert not load_run(rig.folder).damaged
    assert rig.nodes.closed
    rig.nodes.hooks.clear()
    again = rig.run(resume=True)
    assert (again.code, again.captured) == (0, 4)
    assert [shot.number for shot in load_run(rig.folder).shots()] == [1, 2, 3, 4]


def test_a_signal_while_a_file_is_written_waits_for_it(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = run_loop.write_shot

    def interrupted(*args: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(run_loop, "write_shot", interrupted)
    assert rig.run().code == 130
    assert outcomes(rig) == [CAPTURED]


def test_a_full_disk_ends_the_run_and_leaves_it_readable(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, calls = os.fsync, 0

    def full(file: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    outcome = rig.run()
    assert outcome.code == 1
    assert "No space left on device" in outcome.sentence
    assert "Make room" in outcome.sentence
    run = load_run(rig.folder)
    assert [shot.outcome for shot in run.shots()] == [CAPTURED]
    assert not run.damaged
    assert not list(rig.folder.rglob("*.part"))
    monkeypatch.setattr(os, "fsync", sync)
    assert rig.run(resume=True).captured == 4


def test_a_disk_that_is_really_full_leaves_the_run_readable(rig: Bench) -> None:
    rig.folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(rig.folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount")
    try:
        outcome = rig.run(rig.experiment(shots=100))
        assert outcome.code == 1
        assert "No space left on device" in outcome.sentence
        run = load_run(rig.folder)
        assert 0 < len(list(run.shots())) == outcome.captured < 200
        assert not run.damaged
        assert not list(rig.folder.rglob("*.part"))
    finally:
        subprocess.run(["umount", str(rig.folder)], check=True)


def test_a_channel_that_somebody_switches_off_is_switched_on_again(rig: Bench) -> None:
    rig.nodes.hooks[2] = lambda: setattr(rig.instrument.model.inputs[3], "on", False)
    outcome = rig.run(rig.experiment(subscribers=(2,), shots=3))
    assert outcome.captured >= 2
    assert outcome.captured + outcome.missed == 3
    last = list(load_run(rig.folder).shots())[-1]
    assert (last.number, last.outcome) == (3, CAPTURED)


def test_a_trigger_on_the_wrong_input_is_named(rig: Bench) -> None:
    rig.nodes.hooks[2] = lambda: setattr(rig.instrument.model, "trigger_channel", 3)
    rig.run(rig.experiment(subscribers=(2,), shots=2))
    _, second = load_run(rig.folder).shots()
    assert second.outcome == MISSED
    assert "scope was triggered by something other than the edge of pub" in second.reason


def test_a_run_that_stops_while_subscribers_come_up_leaves_no_client_without_time(
    rig: Bench,
) -> None:
    rig.nodes.refuses["crowd:local1", "leave"] = "It is busy."
    assert rig.run().code == 1
    assert set(rig.nodes.order) == {"client:first", "client:last"}


def test_an_answer_that_is_no_json_ends_no_run(rig: Bench) -> None:
    def odd(node: str, last: int) -> dict[str, Any]:
        return {"edges": [{"level": float("nan"), "name": "\ud800"}]}

    rig.nodes._edges = odd  # type: ignore[method-assign]
    assert rig.run().captured == 4
    shot = next(load_run(rig.folder).shots())
    assert shot.nodes["client:first"]["edges"][0]["level"] is None


# -- folders and locks -------------------------------------------------------------------------


def test_a_folder_with_a_run_is_not_begun_again(rig: Bench) -> None:
    rig.run()
    with pytest.raises(RunFolderError, match="--resume"):
        rig.run()


def test_resume_refuses_another_experiment_and_names_the_key(rig: Bench) -> None:
    rig.run()
    with pytest.raises(RunFolderError, match=r"shots is now 3 but was 2"):
        rig.run(rig.experiment(shots=3), resume=True)


def test_resume_takes_other_timeouts_and_another_title(rig: Bench) -> None:
    rig.nodes.hooks[3] = lambda: os.kill(os.getpid(), signal.SIGINT)
    rig.run()
    timeouts = replace(rig.experiment().timeouts, misses=9)
    assert rig.run(rig.experiment(timeouts=timeouts, title="new"), resume=True).captured == 4


def test_resume_on_another_instrument_is_noted(rig: Bench) -> None:
    rig.nodes.hooks[3] = lambda: os.kill(os.getpid(), signal.SIGINT)
    rig.run()
    text = (rig.folder / "run.json").read_text()
    (rig.folder / "run.json").write_text(text.replace('"description": "', '"description": "Old '))
    assert rig.run(resume=True).code == 0
    assert any("was Old" in note for note in rig.told.notes)


def test_resume_of_a_newer_version_is_refused(rig: Bench) -> None:
    rig.run()
    record = json.loads((rig.folder / "run.json").read_text())
    (rig.folder / "run.json").write_text(json.dumps(record | {"version": 99}))
    with pytest.raises(RunFolderError, match="written by a newer mqtick"):
        rig.run(resume=True)


def test_resume_of_a_complete_run_does_nothing(rig: Bench) -> None:
    rig.run()
    fired = rig.nodes.fired
    rig.nodes.broker_away = 10_000
    outcome = rig.run(resume=True)
    assert (outcome.code, outcome.captured, rig.nodes.fired) == (0, 4, fired)


def test_resume_of_what_is_no_run_is_refused(rig: Bench) -> None:
    with pytest.raises(RunFolderError, match="is not a run folder"):
        rig.run(resume=True)


def test_a_damaged_shot_is_taken_again(rig: Bench) -> None:
    rig.run()
    damaged = rig.folder / "shots" / "000002.npz"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    assert rig.run(resume=True).captured == 4
    assert outcomes(rig) == [CAPTURED] * 4


def test_two_runners_on_one_instrument_are_refused(rig: Bench) -> None:
    resource = rig.instrument.resource
    with lock(lock_of(resource), "it"):
        outcome = rig.run()
    assert outcome.code == 1
    assert "in use by another mqtick-lab run" in outcome.sentence
    assert str(os.getpid()) in outcome.sentence
    lock_of(resource).unlink()


def test_two_runners_in_one_folder_are_refused(rig: Bench) -> None:
    rig.folder.mkdir()
    with lock(rig.folder / ".lock", "it"):
        assert "in use by another" in rig.run().sentence
        assert (rig.folder / ".lock").exists()


def test_the_summary_of_a_run_says_it_is_simulated(rig: Bench) -> None:
    rig.run()
    summary = summarise(load_run(rig.folder))
    assert summary.simulated
    assert summary.as_text().startswith("SIMULATED: a test")
    assert [row.subscribers for row in summary.rows if row.quantity == "skew"] == [2, 5]
    json.dumps(summary.as_json())


def test_a_crowd_that_lost_members_is_brought_up_again(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_subscribers, "_CROWD_EVERY_S", 0.0)
    fire, lost = rig.nodes._fire, []

    def fire_and_lose(node: str, after_ms: int) -> dict[str, Any]:
        if not lost:
            lost.append(rig.nodes.order.pop(rig.nodes.order.index("crowd:local1")))
        return fire(node, after_ms)

    monkeypatch.setattr(rig.nodes, "_fire", fire_and_lose)
    outcome = rig.run(rig.experiment(subscribers=(5,)))
    assert (outcome.code, outcome.captured, len(lost)) == (0, 2, 1)
    assert rig.nodes.order.count("crowd:local1") == 3


def test_a_server_that_cannot_fire_just_then_costs_one_shot(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fire, refused = rig.nodes._fire, []

    def fire_later(node: str, after_ms: int) -> dict[str, Any]:
        if not refused:
            refused.append(node)
            raise NodeError("server:0 did not fire: its clock was set.")
        return fire(node, after_ms)

    monkeypatch.setattr(rig.nodes, "_fire", fire_later)
    outcome = rig.run(rig.experiment(subscribers=(2,)))
    assert (outcome.code, outcome.captured, outcome.missed) == (0, 1, 1)


def test_two_runners_at_one_bench_are_told(rig: Bench) -> None:
    experiment = rig.experiment()
    with lock(lock_of(f"{experiment.broker} {experiment.prefix}"), "The bench"):
        outcome = rig.run(experiment)
    assert outcome.code == 1
    assert "The bench at mqtt://localhost is in use by another mqtick-lab run" in outcome.sentence
