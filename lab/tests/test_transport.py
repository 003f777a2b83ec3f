"""The way to an instrument: sockets that misbehave, message-based connections, names of no use."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import pyvisa
from pyvisa.constants import InterfaceType, StatusCode
from pyvisa.errors import VisaIOError
from scope_rig import simulated, usual

from mqtick.lab.scope import transport as transport_module
from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.conversation import Block, InstrumentError, Pause, Query, Write
from mqtick.lab.scope.oscilloscope import Oscilloscope
from mqtick.lab.scope.simulator.keysight import KeysightFront
from mqtick.lab.scope.transport import VisaTransport

QUICK_S = 0.2
WHOLE = definite_block(bytes(range(200)))


@contextlib.contextmanager
def host(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A host that does what it is told with each connection, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        serve(connection)

        threading.Thread(target=run, daemon=True).start()
        yield f"TCPIP::127.0.0.1::{listener.getsockname()[1]}::SOCKET"
        listener.shutdown(socket.SHUT_RDWR)


def answering(*answers: bytes) -> Callable[[socket.socket], None]:
    """Send one of the answers for each line, then nothing more, but keep the connection."""

    def serve(connection: socket.socket) -> None:
        left = list(answers)
        while data := connection.recv(4096):
            for _ in range(data.count(b"\n")):
                if left:
                    connection.sendall(left.pop(0))

    return serve


def opened(resource: str) -> VisaTransport:
    return VisaTransport(resource, timeout_s=QUICK_S)


@pytest.mark.parametrize(
    "name",
    [
        "TCPIP::127.0.0.1::1::SOCKET",  # nobody listens
        "TCPIP::no.such.host.invalid::5025::SOCKET",
        "TCPIP::127.0.0.1::INSTR",
        "the oscilloscope",
        "",
    ],
)
def test_what_cannot_be_opened_is_a_sentence_that_shows_a_right_name(name: str) -> None:
    with pytest.raises(InstrumentError, match=r"cannot be opened \(.+\).*::SOCKET\."):
        opened(name)


def test_a_back_end_that_does_not_exist_is_a_sentence() -> None:
    with pytest.raises(InstrumentError, match="cannot be opened"):
        VisaTransport("TCPIP::127.0.0.1::1::SOCKET", backend="@nothing")


def test_commands_are_not_held_back_until_the_one_before_is_acknowledged() -> None:
    with simulated(KeysightFront) as instrument:
        scope = Oscilloscope.open(instrument.resource)
        took_s = []
        for _ in range(5):
            began_s = time.perf_counter()
            scope.set_up(usual())  # dozens of writes
            took_s.append(time.perf_counter() - began_s)
        scope.close()
    assert min(took_s) < 0.03  # the least that delayed acknowledgements cost is 40 ms


def test_a_host_that_says_nothing_is_a_sentence_in_time() -> None:
    with host(answering()) as resource:
        began_s = time.monotonic()
        with pytest.raises(InstrumentError, match=r"did not answer '\*IDN\?' in full within 0.2 s"):
            Oscilloscope.open(resource, timeout_s=QUICK_S)
        assert time.monotonic() - began_s < 1.0


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\n", "names no manufacturer"),
        (b"\xff\xfe\x00\x01\n", "not text"),
        (b"\n", "names no manufacturer"),
        (b"A,\x07\n", "names no manufacturer"),
        (b"ACME,Toaster,1,1\n", "No dialect is known for ACME Toaster"),
    ],
)
def test_what_is_no_oscilloscope_is_a_sentence(answer: bytes, sentence: str) -> None:
    with host(answering(answer)) as resource, pytest.raises(InstrumentError, match=sentence):
        Oscilloscope.open(resource, timeout_s=QUICK_S)


@pytest.mark.parametrize("piece", [b"x", b"x" * 50_000])
def test_a_line_that_never_ends_is_given_up(piece: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(100)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(piece)
                time.sleep(0.01)

    with host(serve) as resource:
        began_s = time.monotonic()
        transport = VisaTransport(resource, timeout_s=QUICK_S)
        with pytest.raises(InstrumentError, match="did not answer 'A\\?' in full"):
            transport.play(Query("A?"))
        transport.close()
        assert time.monotonic() - began_s < 1.0


def test_a_connection_that_is_closed_is_noticed_at_once() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"half an ans")

    with host(serve) as resource:
        began_s = time.monotonic()
        transport = VisaTransport(resource, timeout_s=5.0)
        with pytest.raises(InstrumentError, match=r"connection to .* was lost at 'A\?'"):
            transport.play(Query("A?"))
        transport.close()
        assert time.monotonic() - began_s < 1.0


def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one() -> None:
    given_up = threading.Event()

    def serve(connection: socket.socket) -> None:
        while data := connection.recv(100):
            if data == b"SLOW?\n":
                given_up.wait()
                connection.sendall(b"stale\n")
            else:
                connection.sendall(b"fresh\n")

    with host(serve) as resource:
        transport = VisaTransport(resource, timeout_s=0.8)  # the next one is answered within it
        with pytest.raises(InstrumentError, match="SLOW"):
            transport.play(Query("SLOW?"))
        given_up.set()
        assert transport.play(Query("NEXT?")) == "fresh"
        assert transport.reopened == 1
        transport.close()


@pytest.mark.parametrize("ends", [b"", b"\n", b"\n\n", b"\r\n"])
def test_however_a_block_ends_the_next_answer_is_whole(ends: bytes) -> None:
    with host(answering(definite_block(b"\n" * 5000) + ends, b"7\n")) as resource:
        transport = opened(resource)
        assert transport.play(Block("DATA?")) == b"\n" * 5000
        transport.play(Write(":SOUR 2"))
        transport.play(Pause(0.0))
        # the host counts lines: the write above used up the second answer's turn
        assert str(transport.play(Query("NEXT?"))).strip() == "7"
        transport.close()


def test_another_back_end_reads_the_same_without_our_short_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport_module, "mended", lambda _resource: None)
    payload = b"\n\x00#" * 100_000
    with host(answering(definite_block(payload) + b"\n\n", b"7\n")) as resource:
        transport = opened(resource)
        assert transport.play(Block("DATA?")) == payload
        assert transport.play(Query("NEXT?")) == "7"
        transport.close()


def test_a_short_block_is_a_sentence_and_the_next_answer_is_right() -> None:
    first = iter([b"#9000001000too short", b"5\n"])

    def serve(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(next(first))
        connection.recv(100)

    with host(serve) as resource:
        transport = opened(resource)
        with pytest.raises(InstrumentError, match=r"did not answer 'DATA\?' in full"):
            transport.play(Block("DATA?"))
        assert transport.play(Query("NEXT?")) == "5"
        transport.close()


class MessageResource(pyvisa.resources.MessageBasedResource):
    """Stands for VXI-11, HiSLIP or USBTMC: each read gives one message."""

    interface_type = InterfaceType.usb
    resource_class = "INSTR"
    timeout = 0
    write_termination = ""
    session = 0
    visalib: Any = None

    def __init__(self, messages: list[bytes]) -> None:
        self.messages = messages
        self.cleared = 0

    def write(self, command: str) -> None:
        self.command = command

    def read_raw(self, size: int | None = None) -> bytes:
        if not self.messages:
            raise VisaIOError(StatusCode.error_timeout)
        return self.messages.pop(0)

    def read(self) -> str:
        return self.read_raw().decode()

    def clear(self) -> None:
        self.cleared += 1

    def close(self) -> None:
        pass

    def __del__(self) -> None:
        pass


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> MessageResource:
    resource = MessageResource([])

    class Manager:
        def __init__(self, backend: str) -> None:
            pass

        def open_resource(self, name: str, **_: object) -> MessageResource:
            return resource

    monkeypatch.setattr(transport_module.pyvisa, "ResourceManager", Manager)
    return resource


@pytest.mark.parametrize(
    ("answers", "octets"),
    [
        ([definite_block(b"\n#\n") + b"\n"], b"\n#\n"),
        ([WHOLE[:5], WHOLE[5:100], WHOLE[100:] + b"\n"], bytes(range(200))),
        ([b"#0abc\n"], b"abc"),  # without a length
    ],
)
def test_a_block_ends_where_it_or_its_message_says_so(
    messages: MessageResource, answers: list[bytes], octets: bytes
) -> None:
    transport = opened("USB0::1::2::3::INSTR")
    messages.messages = [*answers, b"next\n"]
    assert transport.play(Block("DATA?")) == octets
    assert transport.play(Query("NEXT?")) == "next\n"


def test_a_short_message_is_a_sentence_and_the_device_is_cleared(messages: MessageResource) -> None:
    transport = opened("USB0::1::2::3::INSTR")
    messages.messages = [b"#3100only this"]
    with pytest.raises(InstrumentError, match=r"did not answer 'DATA\?' in full"):
        transport.play(Block("DATA?"))
    messages.messages = [b"fresh"]
    assert transport.play(Query("NEXT?")) == "fresh"
    assert messages.cleared == 1


@pytest.mark.parametrize("error", [RuntimeError("dropped by server"), EOFError()])
def test_whatever_a_back_end_raises_is_a_sentence(
    messages: MessageResource, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_self: MessageResource) -> str:
        raise error

    monkeypatch.setattr(MessageResource, "read", fail)
    transport = opened("TCPIP::1.2.3.4::hislip0::INSTR")
    with pytest.raises(InstrumentError, match=r"failed at '\*IDN\?'"):
        transport.play(Query("*IDN?"))
