from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.client.chrony import (
    ChronySock,
    Layout,
    Outcome,
    Verify,
    encode_sample,
    layout_for,
)
from mqtick.client.chrony_lines import DELAYS_NS, refclock_lines, refid_for, socket_path
from mqtick.service import ChronyVersion, Source

S = 1_000_000_000


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: the name of a socket has 108 octets."""
    name = tempfile.mkdtemp()
    yield Path(name)
    shutil.rmtree(name)


@pytest.fixture
def chronyd_end(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(folder / "s"))
        end.settimeout(2)
        yield end


@pytest.mark.skipif(sys.byteorder == "big", reason="the captured sample is little endian")
def test_a_sample_is_the_one_that_gpsd_sent() -> None:
    # A sample captured from gpsd, in the tests of ntpd-rs (ntpd/src/daemon/sock_source.rs), where
    # it is read as offset 318975.704798661 s.
    captured = bytes.fromhex(
        "7f88f56600000000 2181040000000000 7dbdb6d1fe771341 00000000 00000000 00000000 4b434f53"
    )
    tv_s, tv_us = 0x66F5887F, 0x048121
    sample = encode_sample(tv_s * S + tv_us * 1000 + 999, 318_975_704_798_661)
    assert sample == captured


def test_a_sample_is_laid_out_as_a_c_compiler_lays_it_out(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler; install it with: apt install gcc")
    source = tmp_path / "sample.c"
    source.write_text(
        "#include <stdio.h>\n#include <sys/time.h>\n"
        "struct sock_sample { struct timeval tv; double offset; int pulse; int leap; int _pad;"
        " int magic; };\n"
        "int main(void) { struct sock_sample s = {{1795201930, 427168}, -0.0015, 0, 2, 0,"
        " 0x534f434b}; return fwrite(&s, sizeof s, 1, stdout) != 1; }\n"
    )
    subprocess.run([compiler, "-o", tmp_path / "sample", source], check=True)
    theirs = subprocess.run([tmp_path / "sample"], check=True, capture_output=True).stdout
    layout = Layout.TIME64 if len(theirs) == 40 else Layout.TIME32
    assert encode_sample(1_795_201_930_427_168_752, -1_500_000, 2, layout) == theirs


def test_the_sizes_and_places_are_those_of_both_builds() -> None:
    # x86-64 and arm64: 40, offset at 16, magic at 36; armhf before 64-bit time_t: 32, 8, 28.
    for layout, size, offset_at, magic_at in (
        (Layout.TIME64, 40, 16, 36),
        (Layout.TIME32, 32, 8, 28),
    ):
        sample = encode_sample(5 * S, 250_000_000, 1, layout)
        assert len(sample) == layout.size == size
        assert struct.unpack_from("=d", sample, offset_at) == (0.25,)
        assert struct.unpack_from("=i", sample, magic_at) == (0x534F434B,)


@pytest.mark.parametrize(
    ("version", "long_size", "layout"),
    [
        ((4, 3), 8, Layout.TIME64),  # bookworm on arm64
        ((4, 3), 4, Layout.TIME32),  # bookworm on armhf
        ((4, 4), 4, Layout.TIME64),  # takes both
        ((4, 6, 1), 4, Layout.TIME64),  # trixie on armhf has 64-bit time_t
        ((4, 8), 8, Layout.TIME64),
        ((3, 4), 8, Layout.TIME64),
    ],
)
def test_the_layout_follows_the_build_of_chronyd(
    version: tuple[int, ...], long_size: int, layout: Layout
) -> None:
    assert layout_for(ChronyVersion(*version), long_size) is layout


@given(
    st.integers(0, 2**31 * S - 1),
    st.integers(-(2**62), 2**62),
    st.sampled_from([0, 1, 2]),
    st.sampled_from(Layout),
)
def test_a_sample_says_what_it_was_given(
    realtime_ns: int, offset_ns: int, leap: int, layout: Layout
) -> None:
    seconds, microseconds, offset, pulse, said_leap, padding, magic = struct.unpack(
        layout.value, encode_sample(realtime_ns, offset_ns, leap, layout)
    )
    assert 0 <= realtime_ns - (seconds * S + microseconds * 1000) < 1000
    assert offset == pytest.approx(offset_ns / 1e9, rel=1e-15, abs=0)
    assert (offset > 0) == (offset_ns > 0), "positive: the local clock is behind"
    assert (pulse, said_leap, padding, magic) == (0, leap, 0, 0x534F434B)


@pytest.mark.parametrize(
    ("realtime_ns", "offset_ns", "leap", "layout", "said"),
    [
        (0, 0, 3, Layout.TIME64, "leap is 3, but only 0, 1 and 2 can be sent"),
        (0, 0, -1, Layout.TIME64, "leap is -1"),
        (-1, 0, 0, Layout.TIME64, "does not fit 40 octets"),
        (2**31 * S, 0, 0, Layout.TIME32, "does not fit 32 octets"),
        (2**63 * S, 0, 0, Layout.TIME64, "does not fit 40 octets"),
        (0, 2**63, 0, Layout.TIME64, "does not fit 40 octets"),
    ],
)
def test_what_chronyd_would_drop_is_not_made(
    realtime_ns: int, offset_ns: int, leap: int, layout: Layout, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        encode_sample(realtime_ns, offset_ns, leap, layout)


def test_a_sample_is_one_datagram(folder: Path, chronyd_end: socket.socket) -> None:
    sock = ChronySock(folder / "s")
    assert sock.send(5 * S, -7, 1) is Outcome.SENT
    assert chronyd_end.recv(100) == encode_sample(5 * S, -7, 1)
    assert sock.counts[Outcome.SENT] == 1
    sock.close()
    assert sock.send(6 * S, 0) is Outcome.SENT, "it opens its socket again"
    sock.close()


@pytest.mark.parametrize(
    ("path", "outcome", "said"),
    [
        ("/nowhere/s", Outcome.MISSING, "/nowhere/s is missing: chronyd is not running"),
        ("/dev/null/x", Outcome.MISSING, "/dev/null/x is missing"),
        ("/" + "long" * 50, Outcome.FAILED, "cannot be used ("),
        ("\ud800", Outcome.FAILED, "cannot be used ("),
    ],
)
def test_a_path_without_a_socket_is_counted_and_explained_and_never_raises(
    path: str, outcome: Outcome, said: str
) -> None:
    sock = ChronySock(path)
    assert sock.send(0, 0) is outcome
    assert sock.counts[outcome] == 1
    assert said in sock.explain(outcome)
    assert all(path in sock.explain(each) for each in Outcome)
    sock.close()


def test_a_stale_socket_is_refused_and_a_new_one_works_without_attention(folder: Path) -> None:
    sock = ChronySock(folder / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as first:
        first.bind(str(folder / "s"))
        assert sock.send(0, 0) is Outcome.SENT
    assert sock.send(0, 0) is Outcome.REFUSED
    assert "chronyd has ended and left it behind" in sock.explain(Outcome.REFUSED)
    (folder / "s").unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as second:
        second.bind(str(folder / "s"))
        assert sock.send(0, 0) is Outcome.SENT
    assert (sock.counts[Outcome.SENT], sock.counts[Outcome.REFUSED]) == (2, 1)
    sock.close()


def test_a_full_queue_drops_the_sample_and_does_not_block(
    folder: Path, chronyd_end: socket.socket
) -> None:
    sock = ChronySock(folder / "s")
    outcomes = [sock.send(0, 0) for _ in range(1000)]  # nobody reads
    assert outcomes[0] is Outcome.SENT
    assert outcomes[-1] is Outcome.QUEUE_FULL
    chronyd_end.recv(100)
    assert sock.send(0, 0) is Outcome.SENT, "and goes on when there is room"
    sock.close()


def test_a_socket_of_others_is_no_permission(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(folder / "s"))
        os.chmod(folder / "s", 0o000)
        folder.chmod(0o755)
        if os.geteuid() != 0:
            assert ChronySock(folder / "s").send(0, 0) is Outcome.NO_PERMISSION
            return
        # Root may write everywhere; so an ordinary user tries.
        program = (
            "import os\nfrom mqtick.client.chrony import ChronySock\n"
            "os.setgid(65534); os.setuid(65534)\n"
            f"sock = ChronySock('{folder}/s')\noutcome = sock.send(0, 0)\n"
            "print(outcome, sock.explain(outcome))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    assert done.stdout.startswith(f"no-permission the socket {folder}/s may not be written")


def test_names_of_sockets_are_those_that_apparmor_allows() -> None:
    for server in range(256):
        folder, _, name = socket_path(server).rpartition("/")
        assert folder == "/run"
        assert name.startswith("chrony.")
        assert name.endswith(".sock")


def test_every_reference_clock_has_its_own_refid_of_at_most_four_characters() -> None:
    refids = [refid_for(server, delay_ns) for delay_ns in DELAYS_NS for server in range(256)]
    assert [refids[n] for n in (0, 9, 10, 99, 100, 255, 256, 1023)] == [
        *("MQT0", "MQT9", "MQ10", "MQ99", "M100", "M255", "NQT0", "P255")
    ]
    assert len(set(refids)) == len(refids)
    assert {len(refid) for refid in refids} == {4}
    with pytest.raises(ValueError, match="server number 256 is not from 0 to 255"):
        refid_for(256)


@pytest.mark.parametrize(
    ("version", "filter_"), [((4, 3), "filter 1 "), ((4, 6, 1), "filter 1 "), ((4, 7), "")]
)
def test_each_server_has_a_line_for_each_delay_and_old_chrony_needs_filter_1(
    version: tuple[int, ...], filter_: str
) -> None:
    assert refclock_lines(ChronyVersion(*version), [0, 12]) == tuple(
        f"refclock SOCK /run/chrony.mqtick{socket}.sock refid {refid} poll 2 {filter_}"
        f"precision 0.00001 delay {delay} stratum 1"
        for socket, refid, delay in (
            *(("0", "MQT0", "0.002"), ("0.20ms", "NQT0", "0.02")),
            *(("0.100ms", "OQT0", "0.1"), ("0.1000ms", "PQT0", "1")),
            *(("12", "MQ12", "0.002"), ("12.20ms", "NQ12", "0.02")),
            *(("12.100ms", "OQ12", "0.1"), ("12.1000ms", "PQ12", "1")),
        )
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"poll": 11}, "poll is 11"),
        ({"stratum": 16}, "stratum is 16"),
    ],
)
def test_a_line_that_would_stop_chronyd_is_not_made(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        refclock_lines(ChronyVersion(4, 3), [0], **changed)  # type: ignore[arg-type]


NEVER = Source("#", "?", "MQT0", 0, 2, 0, None, 0, 0, 0)
GOOD = replace(NEVER, state="*", reach=0o377, last_rx_s=2)


def verify(seconds: int = 0) -> Verify:
    """After a sample in each of these seconds."""
    check = Verify(ChronySock("/run/x.sock"), "MQT0")
    for second in range(seconds):
        check.note(Outcome.SENT, second * S)
    return check


def test_the_first_samples_need_patience_and_then_arrive() -> None:
    check = verify(10)
    assert check.check([NEVER], 9 * S).state == "waiting"
    verdict = check.check([GOOD], 10 * S)
    assert verdict.state == "arriving"
    assert verdict.sentence == (
        "chronyd takes the samples of MQT0: reach 377 (octal), last 2 s ago; "
        "selected: the clock follows it"
    )


def test_samples_that_never_arrive_are_lost_after_two_polls() -> None:
    check = verify(60)
    verdict = check.check([NEVER], 60 * S)
    assert verdict.state == "lost"
    assert (
        "has accepted them for 60 s, but reach is 0 (octal) and the last one was received never"
        in verdict.sentence
    )
    assert "(40 octets are sent)" in verdict.sentence
    assert "more than 8 s ago" in verdict.sentence, "2 ** (poll + 1)"
    assert "without 'filter 1'" in verdict.sentence


def test_samples_that_stop_arriving_are_lost() -> None:
    check = verify()
    states = []
    for second in range(60):
        check.note(Outcome.SENT, second * S)
        # chronyd got its last one at second 10.
        source = replace(GOOD, last_rx_s=max(0, second - 10))
        states.append(check.check([source], second * S).state)
    assert set(states[:20]) == {"arriving"}
    assert states[59] == "lost"


@pytest.mark.parametrize("interval", [1, 16, 64])
@pytest.mark.parametrize("poll", [-2, 0, 2, 4])
@pytest.mark.parametrize("age_polls", [0.0, 1.9])  # from two polls on chronyd refuses a sample
def test_rare_samples_that_arrive_are_never_called_lost(
    interval: int, poll: int, age_polls: float
) -> None:
    check = verify()
    source = replace(GOOD, poll=poll)
    received_ns: int | None = None
    for tenth in range(5000):
        now_ns = tenth * S // 10
        if tenth % (interval * 10) == 0:
            check.note(Outcome.SENT, now_ns)
            sample_ns = now_ns - int(age_polls * 2**poll * S)
        # chronyd takes what was sent at the end of each poll.
        if now_ns % int(2**poll * S) == 0:
            received_ns = sample_ns
        age_s = None if received_ns is None else (now_ns - received_ns) // S
        verdict = check.check([replace(source, last_rx_s=age_s)], now_ns)
        assert verdict.state in {"waiting", "arriving"}, verdict.sentence


@pytest.mark.parametrize("per_second", [1, 10, 1000])
def test_many_samples_that_do_not_arrive_are_noticed(per_second: int) -> None:
    check = verify()
    for step in range(100 * per_second):
        check.note(Outcome.SENT, step * S // per_second)
    verdict = check.check([replace(NEVER, poll=4)], 100 * S)
    assert verdict.state == "lost"
    assert "has accepted them for 100 s" in verdict.sentence


def test_a_restart_of_chronyd_is_given_time() -> None:
    check = verify(30)
    assert check.check([GOOD], 30 * S).state == "arriving"
    for second in range(30, 45):  # chronyd restarts at second 44
        check.note(Outcome.SENT, second * S)
    assert check.check([NEVER], 45 * S).state == "waiting"
    for second in range(45, 90):
        check.note(Outcome.SENT, second * S)
    assert check.check([NEVER], 90 * S).state == "lost"


def test_samples_that_cannot_be_sent_are_explained_by_their_outcome() -> None:
    check = verify()
    assert check.check([NEVER], 0).state == "idle"
    check.note(Outcome.SENT, 0)
    check.note(Outcome.NO_PERMISSION, S)
    verdict = check.check([GOOD], 2 * S)
    assert (verdict.state, "may not be written" in verdict.sentence) == ("lost", True)


def test_a_chronyd_without_that_refclock_is_said() -> None:
    verdict = verify(1).check([replace(GOOD, name="GPS")], S)
    assert verdict.state == "lost"
    assert "chronyd has no reference clock MQT0" in verdict.sentence
