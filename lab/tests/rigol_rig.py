"""What the tests of the Rigol dialects share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mqtick.lab.scope.conversation import Conversation, Reply
from mqtick.lab.scope.dialects import Identity
from mqtick.lab.scope.dialects.rigol import Rigol
from mqtick.lab.scope.dialects.rigol_series import RigolDho, RigolDs1000z, RigolMso5000

T = TypeVar("T")


def identity(model: str) -> Identity:
    """What a model answers to *IDN?."""
    return Identity.parse(f"RIGOL TECHNOLOGIES,{model},X1,00.01")


DS1000Z, MSO5000, DHO = (
    RigolDs1000z(identity("DS1054Z")),
    RigolMso5000(identity("MSO5074")),
    RigolDho(identity("DHO924S")),
)
ALL: list[Rigol] = [DS1000Z, MSO5000, DHO]
DEPTH = ":ACQuire:MDEPth?"


def commands(
    conversation: Conversation[T], replies: Mapping[str, str | bytes] | None = None
) -> list[str]:
    """Play a conversation to its end, and return what was sent; the depth is what was set."""
    sent: list[str] = []
    depth = "AUTO"
    reply: Reply = None
    try:
        while True:
            command = getattr(conversation.send(reply), "command", "")
            sent += [command] if command else []
            if command.startswith(":ACQuire:MDEPth "):
                depth = command.split()[1]
            reply = {DEPTH: depth, **(replies or {})}.get(command, "1" if "?" in command else None)
    except StopIteration:
        return sent
