"""Commands of an experiment's runner to a running program, and its answers, over MQTT.

A command is a JSON object `{"id": "8 hex digits", "do": "...", ...}`; the answer repeats the id and
says `"ok": true` and what was asked for, or `"ok": false` and an `error` sentence. Programs listen
only where their configuration says `experiments = true` (docs/protocol.md, section 10).
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

MAX_COMMAND_OCTETS: Final = 1024
MAX_ANSWER_OCTETS: Final = 60_000
_WHOLE_OCTETS: Final = 1200
"""A longer answer comes in parts, so that each fits a datagram of MQTT over UDP."""
_PIECE: Final = 600
"""Characters of a part; as a JSON string it may become twice as long."""
_ID: Final = re.compile(r"[0-9a-f]{8}")
_PER_SECOND: Final = 50.0
_BURST: Final = 100.0

Command = Mapping[str, Any]
Answer = dict[str, Any]


class CommandError(Exception):
    """A command that cannot be executed; the sentence goes to its sender."""


def number_in(command: Command, name: str, low: int, high: int, default: int) -> int:
    """Return a whole number of a command; CommandError if it is not one or out of its limits."""
    value = command.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise CommandError(
            f"{name} is {str(value)[:40]!r}; it must be a whole number from {low} to {high}."
        )
    return value


def split(identity: str, payload: bytes) -> list[bytes]:
    """Return the messages that carry an answer: itself, or its parts."""
    if len(payload) <= _WHOLE_OCTETS:
        return [payload]
    text = payload.decode()
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    return [
        json.dumps({"id": identity, "part": part, "parts": len(pieces), "text": piece}).encode()
        for part, piece in enumerate(pieces)
    ]


class Parts:
    """Joins the parts that `split` has made of one answer; they may come in any order."""

    def __init__(self) -> None:
        self._pieces: dict[int, str] = {}

    def add(self, message: Answer) -> Answer | None:
        """Take a message; return the answer once it is whole. Invalid parts are ignored."""
        if "part" not in message:
            return message
        part, count, text = (message.get(name) for name in ("part", "parts", "text"))
        if not (isinstance(part, int) and isinstance(count, int) and isinstance(text, str)):
            return None
        if not 0 <= part < count <= MAX_ANSWER_OCTETS // _PIECE + 1 or len(text) > _PIECE:
            return None
        self._pieces[part] = text
        try:
            answer = json.loads("".join(self._pieces[each] for each in range(count)))
        except (KeyError, ValueError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None


def about_host() -> Answer:
    """Return a description of this program and its host for the record of a measurement."""
    system = os.uname()
    return {
        "software": f"mqtick {importlib.metadata.version('mqtick')}",
        "host": system.nodename,
        "kernel": f"{system.sysname} {system.release}",
        "python": platform.python_version(),
        "machine": f"{_model()} ({system.machine})",
    }


def _model() -> str:
    """Return the name of the board, or of the processor if there is no board name."""
    try:
        return Path("/proc/device-tree/model").read_text().strip("\0 \n")
    except OSError:
        pass
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else "unknown"


class Commands:
    """Reads commands, and sends answers with `publish(topic, payload)`.

    `handlers` maps names of commands to functions; each gets the command and returns the answer, or
    None if it calls `answer(id, ...)` itself later. Anything else is counted with `refuse(reason)`
    and ignored, so that the sender costs no more than the time to read it.
    """

    def __init__(
        self,
        command_topic: str,
        answer_topic: str,
        publish: Callable[[str, bytes], object],
        refuse: Callable[[str], None],
        handlers: Mapping[str, Callable[[Command], Answer | None]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.topic = command_topic
        self._answer_topic, self._publish, self._refuse = answer_topic, publish, refuse
        self._handlers, self._now_s = handlers, now_s
        self._allowance, self._allowed_s = _BURST, now_s()
        self.heard_s = now_s()
        """When the last valid command came, in seconds of the monotonic clock."""

    def on_command(self, payload: bytes, *, retained: bool) -> None:
        """Execute a command, or count the reason for refusing it; raises nothing."""
        if retained:  # it would be executed again at every connect
            self._refuse("command-retained")
            return
        if not self._may_have_another():
            self._refuse("command-rate")
            return
        command = _read(payload)
        if command is None:
            self._refuse("command")
            return
        handler = self._handlers.get(command["do"])
        if handler is None:
            self._refuse("command-unknown")
            known = ", ".join(sorted(self._handlers))
            self.fail(command["id"], f"{command['do'][:40]!r} is not a command here: use {known}.")
            return
        self.heard_s = self._now_s()
        try:
            answer = handler(command)
        except CommandError as error:
            self._refuse("command-refused")
            self.fail(command["id"], str(error))
            return
        if answer is not None:
            self.answer(command["id"], answer)

    def answer(self, identity: str, answer: Answer) -> None:
        """Answer that a command was executed."""
        payload = json.dumps({"id": identity, "ok": True, **answer}, default=str).encode()
        if len(payload) > MAX_ANSWER_OCTETS:
            self.fail(identity, f"The answer has {len(payload)} octets, too many; ask for less.")
            return
        for message in split(identity, payload):
            self._publish(self._answer_topic, message)

    def fail(self, identity: str, sentence: str) -> None:
        """Answer that a command was not executed, and why."""
        payload = json.dumps({"id": identity, "ok": False, "error": sentence}).encode()
        self._publish(self._answer_topic, payload)

    def _may_have_another(self) -> bool:
        now_s = self._now_s()
        gained = (now_s - self._allowed_s) * _PER_SECOND
        self._allowance, self._allowed_s = min(_BURST, self._allowance + gained), now_s
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True


def _read(payload: bytes) -> dict[str, Any] | None:
    """Return the command in a payload, which has an identity and a name; None: invalid."""
    if len(payload) > MAX_COMMAND_OCTETS:
        return None
    try:
        command = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(command, dict):
        return None
    identity, what = command.get("id"), command.get("do")
    if not isinstance(identity, str) or not _ID.fullmatch(identity) or not isinstance(what, str):
        return None
    return command
