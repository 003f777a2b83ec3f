"""Parquet in and out, and frames of polars: where pyarrow and polars are there, and where not."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.tests.foreign_clocks import PYTHON
from analysis.tests.report_samples import clock_result, skew_result
from mqtick.analysis import clock_frame, load, skew_frame
from mqtick.analysis.cli import main
from mqtick.analysis.readers.registry import open_capture
from mqtick.analysis.report.tables import tables_of
from mqtick.recording.capture import CaptureError
from mqtick.recording.waveform import Waveform

INTERVAL_S = 1e-7


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find pyarrow and polars in the environment of other people's software."""
    (found,) = [*PYTHON.parents[1].glob("lib/python*/site-packages"), None][:1]
    if found is None or not (found / "pyarrow").exists():
        if os.environ.get("MQTICK_DRIVERS") == "required":
            pytest.fail("pyarrow is not installed; `make setup-drivers` does it.")
        pytest.skip("pyarrow is not installed; `make setup-drivers` does it.")
    monkeypatch.setattr(sys, "path", [*sys.path, str(found)])


def pulses() -> dict[str, Any]:
    at = np.arange(4000) * INTERVAL_S - 1e-4
    return {
        "time [s]": at,
        "publisher [mV]": np.where(at >= 0, 3300.0, 0.0),
        "first": np.where(at >= 1e-4, 3.3, 0.0),
        "last": at >= 1.5e-4,
        "who": ["nobody"] * at.size,
    }


def written(path: Path, columns: dict[str, Any]) -> Path:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.table(columns), path)
    return path


pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("foreign")
def test_a_capture_in_parquet_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", pulses())
    run = load(path, kind="skew")
    assert run.shots[0].latency_fs == pytest.approx(100 * 10**9, abs=10**8)
    assert run.shots[0].skew_fs == pytest.approx(50 * 10**9, abs=10**8)
    assert any("Column 'who' is of type string and was left out" in note for note in run.notes)


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]", "int64"])
def test_times_may_be_instants_durations_or_whole_numbers(tmp_path: Path, kind: str) -> None:
    columns = pulses()
    ticks = np.round(columns.pop("time [s]") * 1e9).astype(np.int64)
    begun_ns = 1_795_208_084 * 10**9 if kind == "datetime64[ns]" else 0
    columns = {"t_ns": (ticks + begun_ns).astype(kind), **columns}
    (capture,) = open_capture(written(tmp_path / "a.parquet", columns)).read()
    first = capture.signals["first"]
    assert isinstance(first, Waveform)
    assert first.interval_fs == 10**8
    assert first.volts().max() == pytest.approx(3.3, abs=1e-3)


@pytest.mark.usefixtures("foreign")
def test_units_at_the_end_of_names_count_and_doubtful_ones_are_refused(tmp_path: Path) -> None:
    columns = pulses()
    columns["publisher mV"] = columns.pop("publisher [mV]")
    opened = open_capture(written(tmp_path / "a.parquet", columns | {"age [s]": columns["first"]}))
    (capture,) = opened.read()
    publisher = capture.signals["publisher mV"]
    assert isinstance(publisher, Waveform)
    assert publisher.volts().max() == pytest.approx(3.3, abs=1e-3)
    assert "'age [s]' has times and no volts; it was left out." in opened.notes
    columns["mV_publisher"] = columns.pop("publisher mV")
    with pytest.raises(CaptureError, match="'mV_publisher' is not certain"):
        list(open_capture(written(tmp_path / "b.parquet", columns)).read())


@pytest.mark.usefixtures("foreign")
def test_seconds_since_1970_are_as_even_as_a_float_can_say(tmp_path: Path) -> None:
    columns = pulses()
    columns["time [s]"] = 1_795_208_084 + np.arange(4000) * 1e-5
    (capture,) = open_capture(written(tmp_path / "a.parquet", columns)).read()
    first = capture.signals["first"]
    assert isinstance(first, Waveform)
    assert first.interval_fs == 10**10


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda octets: octets[:2000], "cannot be read as Parquet"),
        (lambda octets: octets[:4] + bytes(100), "cannot be read as Parquet"),
        (lambda octets: octets[:-100] + bytes(92) + octets[-8:], "cannot be read as Parquet"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    path = written(tmp_path / "a.parquet", pulses())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CaptureError, match=said):
        list(open_capture(path).read())


@pytest.mark.usefixtures("foreign")
def test_a_file_without_a_time_says_what_it_has(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"first": [0.0, 1.0], "last": [0.0, 1.0]})
    with pytest.raises(CaptureError, match="no column is a time with a unit; there is 'first'"):
        list(open_capture(path).read())


@pytest.mark.usefixtures("foreign")
def test_uneven_times_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", {"time [s]": [0.0, 1.0, 5.0, 5.5], "a": [0.0] * 4})
    with pytest.raises(CaptureError, match="the times advance by"):
        list(open_capture(path).read())


@pytest.mark.usefixtures("foreign")
def test_tables_are_the_same_in_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    from mqtick.analysis.report.parquet import parquet_of  # noqa: PLC0415

    for result in (skew_result(), clock_result()):
        for text in tables_of([result]).values():
            table = pq.read_table(io.BytesIO(parquet_of(text)))
            lines = text.splitlines()
            assert table.column_names == lines[0].split(",")
            assert table.num_rows == len(lines) - 1
            assert "null" not in {str(field.type) for field in table.schema}


@pytest.mark.usefixtures("foreign")
def test_frames_of_polars_are_those_of_pandas() -> None:
    for measurement, frame in (
        (skew_result().measurement, skew_frame),
        (clock_result().measurement, clock_frame),
    ):
        ours, theirs = frame(measurement), frame(measurement, "polars")
        assert theirs.columns == list(ours.columns)
        for name in ours.columns:
            one, other = ours[name].to_numpy(), theirs[name].to_pandas().to_numpy()
            if ours[name].dtype.kind == "f":
                assert np.array_equal(one, other, equal_nan=True)
            else:
                assert list(ours[name].astype(str)) == list(theirs[name].to_pandas().astype(str))
        assert str(theirs.schema["started"]) == "Datetime(time_unit='ns', time_zone='UTC')"


# ---- where they are missing

MISSING = "import sys; sys.modules['pyarrow'] = sys.modules['polars'] = None;"


def said_by(program: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", MISSING + program, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2)
    return done.stderr


def test_without_pyarrow_a_sentence_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(100))
    (tmp_path / "a.csv").write_text("time [s],offset [us]\n1,2\n2,3\n")
    run = "from mqtick.analysis.cli import main; sys.exit(main(sys.argv[1:]))"
    said = said_by(run, str(tmp_path / "a.parquet"))
    assert "for which pyarrow is needed: pip install 'mqtick[parquet]'" in said
    words = [str(tmp_path / "a.csv"), "--tables", "parquet", "--out", str(tmp_path / "o")]
    assert "--tables parquet needs pyarrow" in said_by(run, *words)


def test_without_polars_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"pip install 'mqtick\[polars\]'"):
        skew_frame(skew_result().measurement, "polars")
    with pytest.raises(ValueError, match="of pandas and polars, but not of 'vaex'"):
        skew_frame(skew_result().measurement, "vaex")


@pytest.mark.usefixtures("foreign")
def test_the_command_writes_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time [s],offset [us]\n1,2\n2,3\n")
    words = [str(tmp_path / "a.csv"), "--tables", "parquet", "--tables-only", "--no-limits"]
    assert main([*words, "--quiet", "--out", str(tmp_path / "o")]) == 0
    assert (tmp_path / "o/tables/statistics.parquet").exists()
