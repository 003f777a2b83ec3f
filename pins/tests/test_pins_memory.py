"""The memory back end keeps its edges and shows them to others, and never waits for anybody."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.pins import (
    RECORD_OCTETS,
    MemoryLine,
    PinError,
    PinRecord,
    PinSettings,
    decode_record,
    encode_record,
    open_output,
)

records = st.builds(
    PinRecord,
    time_ns=st.integers(0, 2**64 - 1),
    line=st.integers(0, 2**16 - 1),
    level=st.booleans(),
)


def test_a_record_is_the_octets_that_are_drawn_in_the_module() -> None:
    record = PinRecord(time_ns=0x0102030405060708, line=0x1122, level=True)
    assert encode_record(record).hex() == "010203040506070811220100"


@given(records)
def test_a_record_survives_its_octets(record: PinRecord) -> None:
    data = encode_record(record)
    assert len(data) == RECORD_OCTETS == 12
    assert decode_record(data) == record


@given(st.binary(max_size=40) | st.binary(min_size=12, max_size=12))
def test_octets_are_either_a_record_or_refused(data: bytes) -> None:
    if len(data) == RECORD_OCTETS and data[10] <= 1 and data[11] == 0:
        assert encode_record(decode_record(data)) == data
    else:
        with pytest.raises(ValueError, match="A pin record"):
            decode_record(data)


def test_edges_are_recorded_within_their_brackets() -> None:
    with open_output(PinSettings(backend="memory", line=7)) as output:
        assert isinstance(output.line, MemoryLine)
        edges = [output.fire() for _ in range(3)]
        kept = output.line.records()
    assert [(record.line, record.level) for record in kept] == [(7, True), (7, False), (7, True)]
    for edge, record in zip(edges, kept, strict=True):
        assert edge.before_ns <= record.time_ns <= edge.after_ns


def test_writing_the_level_it_has_is_no_edge() -> None:
    line = MemoryLine(PinSettings(active_low=True))
    line.set(True)
    assert line.records() == []
    line.set(False)
    line.set(False)
    assert [record.level for record in line.records()] == [False]


def test_a_full_ring_keeps_the_newest_and_counts_the_rest() -> None:
    line = MemoryLine(PinSettings(ring_edges=3), now=iter(range(100)).__next__)
    for edge in range(10):
        line.set(edge % 2 == 0)
    assert [record.time_ns for record in line.records()] == [7, 8, 9]
    assert line.overflow == 7


def test_another_process_reads_edges_from_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "scope")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(path)
        line = MemoryLine(PinSettings(line=3, sink=path))
        line.set(True)
        line.set(False)
        assert [decode_record(reader.recv(64)) for _ in range(2)] == line.records()
        line.close()
    assert line.lost == 0


def test_a_reader_may_come_late_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "scope"
    line = MemoryLine(PinSettings(sink=str(path)))
    line.set(True)
    assert line.lost == 1
    for expected in (False, True):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
            reader.bind(str(path))
            line.set(expected)
            assert decode_record(reader.recv(64)).level is expected
        path.unlink()
    line.close()
    assert line.lost == 1


def test_a_reader_that_does_not_read_costs_records_but_no_time(tmp_path: Path) -> None:
    path = str(tmp_path / "scope")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(path)
        line = MemoryLine(PinSettings(sink=path))
        for edge in range(5000):
            line.set(edge % 2 == 0)  # would wait for ever if it waited
        line.close()
        reader.setblocking(False)
        for _ in range(5000 - line.lost):
            reader.recv(64)
        with pytest.raises(BlockingIOError):
            reader.recv(64)
    assert line.lost > 0


def test_a_pipe_that_is_full_costs_records_but_no_time() -> None:
    reading, writing = os.pipe()
    try:
        line = MemoryLine(PinSettings(sink=f"fd:{writing}"))
        for edge in range(20_000):
            line.set(edge % 2 == 0)
        line.close()
        os.set_blocking(reading, False)
        data = b""
        while len(data) < (20_000 - line.lost) * RECORD_OCTETS:
            data += os.read(reading, 1 << 16)
        assert line.lost > 0
        assert decode_record(data[:RECORD_OCTETS]).level is True
        assert os.fstat(writing)  # still open: it belongs to whoever opened it
    finally:
        os.close(reading)
        os.close(writing)


def test_a_pipe_whose_reader_has_gone_costs_records_only() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    line = MemoryLine(PinSettings(sink=f"fd:{writing}"))
    line.set(True)
    os.close(writing)
    assert line.lost == 1


@pytest.mark.parametrize("sink", ["fd:", "fd:x", "fd:-1", "fd:9999", f"fd:{2**70}"])
def test_a_descriptor_of_no_use_is_refused(sink: str) -> None:
    with pytest.raises(PinError, match="not the number of an open pipe or socket"):
        MemoryLine(PinSettings(sink=sink))


def test_an_ordinary_file_is_refused_because_a_disk_makes_wait(tmp_path: Path) -> None:
    with (
        (tmp_path / "file").open("wb") as file,
        pytest.raises(PinError, match="not the number of an open pipe or socket"),
    ):
        MemoryLine(PinSettings(sink=f"fd:{file.fileno()}"))


@pytest.mark.parametrize("sink", ["/tmp/" + "x" * 200, "a\0b"])
def test_a_path_that_no_socket_can_have_is_refused(sink: str) -> None:
    with pytest.raises(PinError, match="at most 107"):
        MemoryLine(PinSettings(sink=sink))
