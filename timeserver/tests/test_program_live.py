"""mqtick-timeserver as a program: its beginning, its end, and several of them on one broker."""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from server_rig import PlainNode, Program

from demo.local_broker import Mosquitto, free_port, running
from mqtick.mqtt.stamps import StampSource
from mqtick.protocol.auth import Keyring
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.precise import Leap, Request, Time
from mqtick.service import StatusFile
from mqtick.timeserver import Settings, cli
from mqtick.timeserver.settings_check import open_doors

pytestmark = pytest.mark.needs("mosquitto")

SYN, REQUEST = "_1451.1.6/BRSU/SYN", "_1451.1.6/RRS/REQ"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with running(Mosquitto(tmp_path)) as made:
        yield made


def states(node: PlainNode, number: int = 0) -> list[str]:
    return [json.loads(one.payload)["state"] for one in node.on(f"mqtick/s/{number}")]


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_it_says_goodbye_or_its_last_will_does(
    broker: Mosquitto, tmp_path: Path, killed: bool
) -> None:
    with (
        PlainNode(broker.port, "mqtick/#") as node,
        Program(broker.url, tmp_path / "a", "--interval-s", "0.2") as server,
    ):
        node.until(lambda: states(node))
        if killed:
            server.process.kill()
        else:
            assert server.terminate() == 0
        node.until(lambda: states(node)[-1] == "gone")
    with PlainNode(broker.port, "mqtick/s/0") as late:
        late.until(lambda: states(late) == ["gone"])


def test_a_new_run_never_begins_with_the_generation_of_the_run_before(tmp_path: Path) -> None:
    settings = Settings(state_folder=str(tmp_path))
    assert cli._generation_after(settings) is None  # by chance: nothing is known
    file = StatusFile(tmp_path / "status.json", cli.PROGRAM)
    for last in (0, 40, 250):
        file.write({"generation": last})
        begun = {((cli._generation_after(settings) or 0) - last) % 256 for _ in range(3000)}
        assert (min(begun), max(begun), len(begun) > 200) == (16, 255, True)
    for nothing in ("40", True, None, 1.5):  # somebody else has written there
        file.write({"generation": nothing})
        assert cli._generation_after(settings) is None


@pytest.mark.slow
def test_started_again_it_tells_another_generation(broker: Mosquitto, tmp_path: Path) -> None:
    status = tmp_path / "a/status.json"
    heard = []
    for _ in range(2):
        with (
            PlainNode(broker.port, "mqtick/t/0") as node,
            Program(broker.url, tmp_path / "a", "--interval-s", "0.2") as server,
        ):
            node.until(lambda: node.on("mqtick/t/0"))
            heard.append(Time.decode(node.on("mqtick/t/0")[0].payload).generation)
            wait_for(status.exists)
            server.process.kill()
            server.process.wait()
    assert (heard[1] - heard[0]) % 256 >= 16


def test_terminated_before_it_was_ever_connected_it_ends_well(tmp_path: Path) -> None:
    url = f"mqtt://127.0.0.1:{free_port()}"
    with Program(url, tmp_path / "a") as server:
        wait_for(lambda: "cannot connect" in server.said)
        assert server.terminate() == 0
        assert f"cannot connect to {url}: [Errno 111] Connection refused; trying again" in (
            server.said
        )


def wait_for(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s} s"
        time.sleep(0.02)


@pytest.mark.slow
def test_hung_up_on_it_signs_with_the_keys_that_the_file_holds_now(
    broker: Mosquitto, tmp_path: Path
) -> None:
    keys, rings = tmp_path / "keys", (Keyring((b"1" * 32,)), Keyring((b"2" * 32, b"1" * 32)))
    keys.touch(mode=0o600)
    keys.write_text(server_key_file(rings[0]))
    flags = ("--keys-file", str(keys), "--interval-s", "0.2")
    with (
        PlainNode(broker.port, "mqtick/t/0") as node,
        Program(broker.url, tmp_path / "a", *flags) as server,
    ):

        def signed_by(ring: Keyring) -> bool:
            return any(accepts(ring, one.payload) for one in node.on("mqtick/t/0")[-1:])

        node.until(lambda: signed_by(rings[0]))
        keys.write_text(server_key_file(rings[1]))
        server.process.send_signal(signal.SIGHUP)
        node.until(lambda: not signed_by(rings[0]) and signed_by(rings[1]))
        assert server.terminate() == 0
    sequences = [Time.decode(one.payload).sequence for one in node.on("mqtick/t/0")]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def server_key_file(ring: Keyring) -> str:
    return "".join(f"fleet {key.hex()}\n" for key in ring.fleet)


def accepts(ring: Keyring, payload: bytes) -> bool:
    try:
        ring.broadcast().verify(payload, "mqtick/t/0")
    except DecodeError:
        return False
    return True


# -- systemd, metrics, status ----------------------------------------------------------------------


@pytest.mark.slow
def test_systemd_is_told_that_it_is_ready_alive_and_ending(
    broker: Mosquitto, tmp_path: Path
) -> None:
    path = str(tmp_path / "notify")
    said = ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(5)
        environ = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"}
        with Program(broker.url, tmp_path / "a", environ=environ) as server:
            while said.count("WATCHDOG=1") < 3:
                said += systemd.recv(4096).decode() + "\n"
            assert server.terminate() == 0
            with contextlib.suppress(BlockingIOError):
                systemd.setblocking(False)
                while True:
                    said += systemd.recv(4096).decode() + "\n"
    lines = said.splitlines()
    assert lines.count("READY=1") == 1
    assert any(line.startswith("STATUS=synchronised, ") for line in lines)
    assert "STOPPING=1" in lines[lines.index("WATCHDOG=1") :]


@pytest.mark.slow
def test_metrics_and_status_can_be_read(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port, folder = free_port(), tmp_path / "a"
    flags = ("--interval-s", "0.2", "--metrics-listen", f"127.0.0.1:{port}")
    with Program(broker.url, folder, *flags) as server:
        ask = ["status", "--state-folder", str(folder)]
        wait_for((folder / "status.json").exists)
        wait_for(lambda: json.loads((folder / "status.json").read_text())["status"]["done"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            metrics = answer.read().decode()
        assert cli.main(ask) == 0
        lines = capsys.readouterr().out.splitlines()
        assert cli.main([*ask, "--json"]) == 0
        values = json.loads(capsys.readouterr().out)
        server.terminate()
    assert "mqtick_timeserver_synchronised 1" in metrics
    assert 'mqtick_timeserver_done_total{what="times"}' in metrics
    assert "mqtick_timeserver_conflicts_total 0" in metrics
    version = importlib.metadata.version("mqtick")
    assert f'mqtick_timeserver_info{{version="{version}"}} 1' in metrics
    assert (
        lines[0] == "state             synchronised: the system clock is trusted by configuration."
    )
    assert f"broker            {broker.url}, connected" in lines
    promise = "not known yet"
    if values["rate_change_ppb"] is not None:
        promise = "by 750 ppb at most"
    assert f"served clock      0.0 us behind the system clock, changes its rate {promise}" in lines
    assert "mqtick_timeserver_lag_seconds 0" in metrics
    assert values["state"] == "synchronised"
    assert values["done"]["times"] >= 1
    assert values["pid"] == server.process.pid


def test_the_status_of_a_server_that_does_not_run_any_more_says_so(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a"
    with Program(broker.url, folder) as server:
        wait_for((folder / "status.json").exists)
        server.terminate()
    file = folder / "status.json"
    content = json.loads(file.read_text())
    content["written_boottime_ns"] -= 60 * 10**9
    file.write_text(json.dumps(content))
    assert cli.main(["status", "--state-folder", str(folder)]) == 3
    assert "s old: mqtick-timeserver is not running" in capsys.readouterr().out
    file.unlink()
    assert cli.main(["status", "--state-folder", str(folder)]) == 3
    assert "there is no status: mqtick-timeserver is not running" in capsys.readouterr().err


BOARD = "mqtt+udp://host?dialect=published"
WRONG: list[tuple[list[str], str]] = [
    (["--number", "3", "--prefix", "a/b/c/d/e/f/g/h/i/j/k/l/m"], "is not a topic prefix"),
    (["--broker", "mqtt://user:secret@host"], "put it in a file"),
    (["--broker", "http://host"], "use one of mqtt://"),
    (["--keys-file", "/nowhere/keys"], "/nowhere/keys"),
    (["--prefix", "a/+"], "is not a topic prefix"),
    (["--formats", ""], "formats is empty, so nothing would be served"),
    (
        ["--metrics-listen", "127.0.0.1:80x"],
        "metrics_listen: '127.0.0.1:80x' is not an address",
    ),
    (["--name", "hall/#", "--formats", "1451.1.6"], "wildcard"),
    (["--virtual-clock", "offset=1"], "says nothing about a virtual clock"),
    (["--broker", "mqtt+udp://[::1]"], "MQTT over UDP is IPv4 only"),
    (["--broker", "mqtt+udp://host", "--username", "x"], "where there are no accounts"),
    (["--broker", "mqtt+udp://host", "--formats", "draft-2021"], "MQTT over UDP is MQTT 3.1.1"),
    (["--broker", BOARD], "echo is true, but does not work with the published dialect"),
    (["--broker", BOARD, "--no-echo", "--experiments"], "experiments is true, but does not"),
    (["--broker", BOARD, "--no-echo", "--formats", "1451.1.6"], "which only precise has"),
    (["--broker", "mqtts://host", "--ca-file", "/etc/hostname"], "TLS cannot be set up"),
]
# The files of TLS, which come last, are read at the start only.
ASKED = [([], *row) for row in WRONG] + [(["--check-config"], *row) for row in WRONG[:-1]]


@pytest.mark.parametrize(("asked", "flags", "sentence"), ASKED)
def test_a_start_and_the_check_of_the_configuration_refuse_the_same_with_a_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    sentence: str,
    asked: list[str],
) -> None:
    try:
        code: object = cli.main([*asked, *flags, "--state-folder", str(tmp_path)])
    except SystemExit as ended:  # a flag that is refused when it is read
        code = ended.code
    assert code in (1, 2)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert sentence in said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", [["status", "--json"], ["--help-settings"]])
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path, words: list[str]) -> None:
    StatusFile(tmp_path / "status.json", "mqtick-timeserver").write({"state": "synchronised"})
    folder = ["--state-folder", str(tmp_path)] if words[0] == "status" else []
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "mqtick.timeserver.cli", *words, *folder],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 0)


# -- open doors ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_unless_asked_for_more_only_the_format_that_can_be_signed_is_served(
    broker: Mosquitto, tmp_path: Path
) -> None:
    with (
        PlainNode(broker.port, "#") as node,
        Program(broker.url, tmp_path / "a", "--interval-s", "0.1") as server,
    ):
        wait_for(lambda: states(node))  # settled: it would lead
        heard = len(node.on("mqtick/t/0"))
        node.until(lambda: len(node.on("mqtick/t/0")) > heard + 3)
        assert {one.topic.partition("/")[0] for one in node.messages} == {"mqtick"}
        assert "there are no keys (keys_file)" in server.said
        assert "carry no tags, even with keys" not in server.said


def test_a_server_with_keys_says_nothing_of_open_doors_but_of_formats_without_tags(
    tmp_path: Path,
) -> None:
    keyed = Settings(keys_file="/etc/mqtick/keys")
    assert list(open_doors(keyed)) == []
    (said,) = open_doors(replace(keyed, formats=("precise", "1451.1.6")))
    assert said.startswith("formats has 1451.1.6, whose messages carry no tags, even with keys")


# -- several servers -------------------------------------------------------------------------------


def look(server: Program) -> Any:
    """Return its status, {} before the first."""
    file = server.folder / "status.json"
    return json.loads(file.read_text())["status"] if file.exists() else {}


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no keys"])
def test_of_two_servers_with_the_same_number_the_second_stands_by_until_the_first_has_left(
    broker: Mosquitto, tmp_path: Path, capsys: pytest.CaptureFixture[str], keyed: bool
) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text(server_key_file(Keyring((b"1" * 32,))))
    flags = ["--interval-s", "0.2", "--number", "4", *(["--keys-file", str(keys)] * keyed)]
    with (
        PlainNode(broker.port, "mqtick/#") as node,
        Program(broker.url, tmp_path / "first", *flags) as first,
    ):
        node.until(lambda: states(node, 4))
        generations = {Time.decode(one.payload).generation for one in node.on("mqtick/t/4")}
        with Program(broker.url, tmp_path / "second", *flags) as second:
            wait_for(lambda: look(second).get("state") == "standing by")
            wait_for(lambda: "stands by for this one" in look(first)["same_number"])
            assert cli.main(["status", "--state-folder", str(second.folder)]) == 3
            said = capsys.readouterr().out
            assert "standing by: another time server with the number 4 has served longer" in said
            assert "give it a number of its own with --number" in said
            heard = len(node.on("mqtick/t/4"))
            node.until(lambda: len(node.on("mqtick/t/4")) > heard + 30, 15)  # 3 timeouts
            last = [Time.decode(one.payload).generation for one in node.on("mqtick/t/4")[heard:]]
            assert set(last) == generations
            assert set(states(node, 4)) == {"synchronised"}
            assert (first.process.poll(), second.process.poll()) == (None, None)
            first.terminate()
            wait_for(lambda: look(second)["state"] == "synchronised")
            node.until(lambda: states(node, 4)[-2:] == ["gone", "synchronised"])
            node.until(lambda: Time.decode(node.on("mqtick/t/4")[-1].payload).sequence < 10)
            assert second.said.count("stands by, publishes and answers nothing") == 1


@pytest.mark.slow
def test_of_two_servers_with_the_same_number_that_start_together_one_serves(
    broker: Mosquitto, tmp_path: Path
) -> None:
    flags = ("--interval-s", "0.2")
    with (
        PlainNode(broker.port, "mqtick/t/0") as node,
        Program(broker.url, tmp_path / "first", *flags) as first,
        Program(broker.url, tmp_path / "second", *flags) as second,
    ):

        def found() -> list[str]:
            return sorted(str(look(one).get("state")) for one in (first, second))

        wait_for(lambda: found() == ["standing by", "synchronised"])
        heard = len(node.messages)
        node.until(lambda: len(node.messages) > heard + 30, 15)
        generations = {Time.decode(one.payload).generation for one in node.messages[heard:]}
        assert len(generations) == 1
        assert found() == ["standing by", "synchronised"]


@pytest.mark.slow
def test_a_forger_with_the_key_of_the_broadcast_does_not_stop_a_server_that_connects(
    broker: Mosquitto, tmp_path: Path
) -> None:
    keys, ring = tmp_path / "keys", Keyring((b"1" * 32,))
    keys.touch(mode=0o600)
    keys.write_text(server_key_file(ring))
    flags = ("--interval-s", "0.2", "--keys-file", str(keys))
    end = threading.Event()

    def forge() -> None:
        for sequence in itertools.count(1_000_000):
            stated_ns = time.time_ns()
            body = Time(0, sequence, stated_ns, 0, 0, 1, Leap.NONE, StampSource.KERNEL, 7).body()
            node.say("mqtick/t/0", ring.broadcast().sign(body, "mqtick/t/0"))
            if end.wait(0.1):
                return

    with PlainNode(broker.port, "mqtick/t/0", "mqtick/r/0/c") as node:
        forger = threading.Thread(target=forge)
        forger.start()
        try:
            with Program(broker.url, tmp_path / "a", *flags) as server:

                def served() -> int:
                    messages = [Time.decode(one.payload) for one in node.on("mqtick/t/0")]
                    return sum(message.sequence < 1_000_000 for message in messages)

                node.until(lambda: served() > 35, 20)  # 3.5 timeouts of 2 s
                topic = "mqtick/q/0/c"
                node.say(topic, ring.client("c").sign(Request(0, 1, bytes(8), False).body(), topic))
                node.until(lambda: node.on("mqtick/r/0/c"))
                wait_for(lambda: "no server answers for them" in look(server)["same_number"])
                assert look(server)["state"] == "synchronised"
                assert look(server)["conflicts"] > 50
                assert server.said.count("no server answers for them") == 1
                assert server.process.poll() is None
        finally:
            end.set()
            forger.join()


def leader(node: PlainNode) -> str:
    """Ask who serves the topics without a number."""
    answers = "_1451.1.6/RRS/PTTEST/app0/RES"
    before = len(node.on(answers))
    node.say(REQUEST, f"PTTEST/app0,{time.time():.6f}")
    end = time.monotonic() + 0.3
    while time.monotonic() < end and len(node.on(answers)) == before:
        time.sleep(0.01)
    time.sleep(0.05)
    named = [one.payload.decode().rpartition(",")[2] for one in node.on(answers)[before:]]
    return " ".join(named)


@pytest.mark.slow
def test_only_the_lowest_number_alive_uses_the_topics_without_a_number(
    broker: Mosquitto, tmp_path: Path
) -> None:
    both = ("--interval-s", "0.2", "--formats", "precise,1451.1.6")
    three = (*both, "--number", "3", "--name", "hall/three")
    eight = (*both, "--number", "8", "--name", "hall/eight")
    with (
        PlainNode(broker.port, "mqtick/#", "_1451.1.6/#") as node,
        Program(broker.url, tmp_path / "eight", *eight) as second,
    ):
        wait_for(lambda: leader(node) == "hall/eight")
        with Program(broker.url, tmp_path / "three", *three) as first:
            wait_for(lambda: leader(node) == "hall/three")
            before = len(node.on(SYN)), len(node.on("mqtick/t/3")), len(node.on("mqtick/t/8"))
            time.sleep(2)
            after = len(node.on(SYN)), len(node.on("mqtick/t/3")), len(node.on("mqtick/t/8"))
            syns, threes, eights = (b - a for a, b in zip(before, after, strict=True))
            assert abs(syns - threes) <= 1  # one of each round, not two
            assert eights >= threes - 1  # the other goes on in the precise format
            first.process.kill()
            killed = time.monotonic()
            wait_for(lambda: leader(node) == "hall/eight")
            assert time.monotonic() - killed < 4
        with Program(broker.url, tmp_path / "three", *three):
            wait_for(lambda: leader(node) == "hall/three")
        assert second.process.poll() is None
