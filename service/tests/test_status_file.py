from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.status_file import MAXIMUM_SIZE, StatusError, StatusFile, read_status

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json", "mqtick-client")
    assert file.write({"offset_ns": -1500, "servers": [0, 1], "name": "ü"}) is None
    status = read_status(tmp_path / "status.json")
    assert status.values == {"offset_ns": -1500, "servers": [0, 1], "name": "ü"}
    assert (status.program, status.pid) == ("mqtick-client", os.getpid())
    assert 0 <= status.age_ns < 10**10


@given(st.dictionaries(st.text(), SCALARS | st.text() | st.lists(SCALARS), max_size=5))
def test_any_json_comes_back(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    assert StatusFile(path, "p").write(values) is None
    assert read_status(path).values == values


def test_a_write_leaves_one_file_that_everybody_may_read(tmp_path: Path) -> None:
    old = os.umask(0o077)  # as a hardened unit has it
    try:
        StatusFile(tmp_path / "s.json", "p").write({})
    finally:
        os.umask(old)
    assert os.listdir(tmp_path) == ["s.json"]
    assert stat.S_IMODE((tmp_path / "s.json").stat().st_mode) == 0o644


def test_a_reader_never_sees_half_a_status(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "s.json", "p")
    file.write({"text": "0" * 100_000})
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for digit in "01":
                file.write({"text": digit * 100_000})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            assert len(set(read_status(tmp_path / "s.json").values["text"])) == 1
    finally:
        stop.set()
        writer.join()


def test_a_missing_folder_is_made_and_one_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "no" / "s.json", "p")
    for _ in range(2):
        assert file.write({}) is None
        assert read_status(tmp_path / "no" / "s.json").program == "p"
        shutil.rmtree(tmp_path / "no")


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "no").touch()
    assert StatusFile(tmp_path / "no" / "s.json", "p").write({}) == (
        f"the status could not be written to {tmp_path}/no/s.json: Not a directory; "
        "the status command shows an old one or none"
    )


INSIDE_ITSELF: list[object] = []
INSIDE_ITSELF.append(INSIDE_ITSELF)


@pytest.mark.parametrize(
    "values",
    [
        *({"a": float("nan")}, {"a": object()}, {"a": "x" * MAXIMUM_SIZE}, {"a": 1 << 200_000}),
        {"a": INSIDE_ITSELF},
    ],
)
def test_what_cannot_be_written_leaves_the_old_status(
    tmp_path: Path, values: dict[str, object]
) -> None:
    file = StatusFile(tmp_path / "s.json", "p")
    file.write({"good": 1})
    assert "could not be written" in str(file.write(values))
    assert read_status(tmp_path / "s.json").values == {"good": 1}
    assert os.listdir(tmp_path) == ["s.json"]


def test_a_leftover_of_a_crash_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".s.json.{os.getpid()}.new").symlink_to(victim)
    assert StatusFile(tmp_path / "s.json", "p").write({"a": 1}) is None
    assert victim.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == ["s.json", "victim"]


def test_a_file_that_may_not_grow_leaves_the_old_status(tmp_path: Path) -> None:
    program = (
        "import resource\nfrom mqtick.service import StatusFile\n"
        "file = StatusFile('s.json', 'p')\nassert file.write({'good': 1}) is None\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "print(file.write({'text': 'x' * 5000}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "could not be written to s.json: File too large" in done.stdout
    assert read_status(tmp_path / "s.json").values == {"good": 1}
    assert os.listdir(tmp_path) == ["s.json"]


GOOD = {"version": 1, "program": "p", "pid": 1, "written_boottime_ns": 0, "status": {}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"1" * 5000, "is not JSON"),
        (b"[]", "is JSON, but not a status"),
        (b"{}", "has version 'None', but this program reads version 1; restart the service"),
        (json.dumps({**GOOD, "version": 2}).encode(), "has version '2'"),
        (json.dumps({**GOOD, "version": True}).encode(), "has version 'True'"),
        (json.dumps({**GOOD, "status": []}).encode(), "its member status is missing or wrong"),
        (json.dumps({**GOOD, "pid": True}).encode(), "its member pid is missing or wrong"),
        (json.dumps({**GOOD, "written_boottime_ns": 1 << 80}).encode(), "before the last boot"),
        (b" " * (MAXIMUM_SIZE + 1), "is larger than 1048576 octets"),
    ],
)
def test_what_is_no_status_is_refused_with_a_sentence(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(StatusError) as caught:
        read_status(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_no_status_and_no_file_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(StatusError, match="there is no status: the program is not running"):
        read_status(tmp_path / "s.json")
    with pytest.raises(StatusError, match="cannot be read: Is a directory"):
        read_status(tmp_path)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_status_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(content)
    with pytest.raises(StatusError):
        read_status(path)


def test_the_age_does_not_follow_the_clock(tmp_path: Path) -> None:
    then = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - 40 * 10**9
    (tmp_path / "s.json").write_text(json.dumps({**GOOD, "written_boottime_ns": then}))
    if then < 0:
        pytest.skip("this machine started less than 40 seconds ago")
    assert 40 * 10**9 <= read_status(tmp_path / "s.json").age_ns < 60 * 10**9
