"""A measurement as DataFrames: units in the columns' names, one row a shot, NaN where missed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mqtick.analysis import clock_frame, edges_frame, latency_frame, pairs_frame, skew_frame
from mqtick.analysis.measurement import CAPTURED, MISSED, Measurement, Shot, TimeErrors
from mqtick.recording.edges import Edge

US = 10**9
BEGUN_NS = 1_790_000_000 * 10**9


@pytest.fixture(scope="module")
def measurement() -> Measurement:
    marks = {
        "publisher": Edge(0, True, US // 10),
        "first": Edge(50 * US, True, US // 5, found=2),
        "last": Edge(80 * US, False, US // 5, "fitted", 2.5, clipped=True),
    }
    shots = [
        Shot(1, 2, CAPTURED, "", BEGUN_NS, marks, 50 * US, 30 * US, source="a.csv"),
        Shot(2, 100, MISSED, "Clipped.", None, marks),
        Shot(3, 100, CAPTURED, "", BEGUN_NS + 10**9, marks, 50 * US, -30 * US),
    ]
    errors = TimeErrors(
        "pi", np.array([0.0, 1.0]), np.array([1500.0, -500.0]), None, None, BEGUN_NS
    )
    return Measurement(
        "t",
        "skew",
        nodes=("publisher", "first", "last"),
        reference="publisher",
        first="first",
        last="last",
        shots=shots,
        time_errors=[errors],
    )


def test_skew_is_one_row_a_shot(measurement: Measurement) -> None:
    frame = skew_frame(measurement)
    assert frame["skew_us"].tolist() == pytest.approx([30, np.nan, -30], nan_ok=True)
    assert frame["uncertainty_us"].tolist() == pytest.approx([0.4, np.nan, 0.4], nan_ok=True)
    assert frame["subscribers"].tolist() == [2, 100, 100]
    assert frame["outcome"].tolist() == [CAPTURED, MISSED, CAPTURED]
    assert frame["reason"].tolist() == ["", "Clipped.", ""]
    assert str(frame["started"][0]) == "2026-09-21 14:13:20+00:00"
    assert frame["started"].isna().tolist() == [False, True, False]


def test_latency_has_the_publishers_and_the_first_ones_uncertainty(
    measurement: Measurement,
) -> None:
    frame = latency_frame(measurement)
    assert frame["latency_us"].mean() == pytest.approx(50)
    assert frame["uncertainty_us"][0] == pytest.approx(0.3)


def test_frames_are_grouped_as_usual(measurement: Measurement) -> None:
    assert skew_frame(measurement).groupby("subscribers")["skew_us"].mean()[100] == pytest.approx(
        -30
    )


def test_clock_is_one_row_a_time_error(measurement: Measurement) -> None:
    frame = clock_frame(measurement)
    assert frame["node"].tolist() == ["pi", "pi"]
    assert frame["time_error_us"].tolist() == [1.5, -0.5]
    assert frame["lower_us"].isna().all()
    assert str(frame["started"][1]) == "2026-09-21 14:13:21+00:00"


def test_edges_are_one_row_an_edge(measurement: Measurement) -> None:
    frame = edges_frame(measurement)
    assert len(frame) == 9
    last = frame[frame["node"] == "last"].iloc[0]
    assert (last["instant_us"], last["direction"], last["clipped"]) == (80, "falling", True)
    assert frame["found"].max() == 2
    assert (last["quality"], last["samples_in_rise"]) == ("fitted", 2.5)


def test_pairs_are_one_column_each(measurement: Measurement) -> None:
    frame = pairs_frame(measurement)
    names = ["first-publisher_us", "last-publisher_us", "last-first_us"]
    assert list(frame.columns)[-3:] == names
    assert frame["last-first_us"].tolist() == pytest.approx([30, np.nan, 30], nan_ok=True)


def test_an_empty_measurement_has_empty_frames() -> None:
    nothing = Measurement("", "skew")
    frames = [
        of(nothing) for of in (skew_frame, latency_frame, clock_frame, edges_frame, pairs_frame)
    ]
    assert [len(frame) for frame in frames] == [0] * 5
    assert "skew_us" in frames[0]
    assert "instant_us" in frames[3]


def test_who_only_reads_does_not_wait_for_what_takes_long_to_import() -> None:
    program = (
        "import sys\n"
        "import mqtick.analysis\n"
        "assert not {'pandas', 'matplotlib', 'scipy.special', 'h5py'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
