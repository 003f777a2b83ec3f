"""Checks the client's settings before they are used."""

from __future__ import annotations

from mqtick.client.config import Settings
from mqtick.mqtt.broker import parse_broker_url
from mqtick.protocol.auth import Keyring
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.topics import TopicTree

UNSIGNED = ("1451.1.6", "draft-2021")
"""The formats whose messages carry no tags."""


def check_settings(settings: Settings, keyring: Keyring, name: str) -> TopicTree:
    """Return the topic tree; ValueError for settings that would fail later."""
    tree = TopicTree(settings.prefix)
    tree.request(255, name)
    keyring.broadcast()
    keyring.client(name)
    DraftTopics(settings.draft_location)
    if settings.format in UNSIGNED and not may_follow_unsigned(settings, keyring):
        raise ValueError(
            f"format is {settings.format}, whose messages carry no tags, but there are keys: "
            "anybody could set this clock. Use format = precise, or set follow_unsigned = true."
        )
    if settings.format == "draft-2021" and settings.mqtt_version != "5":
        raise ValueError(
            "format is draft-2021, whose time is in user properties, but mqtt_version is "
            f"{settings.mqtt_version}, which has none; set mqtt_version to 5."
        )
    _check_udp(settings)
    steers_host = settings.discipline != "none" and settings.chrony.socket.startswith("/run/")
    if settings.virtual_clock and steers_host:
        raise ValueError(
            "virtual_clock and discipline are both set: chronyd would make the host's clock as "
            "wrong as the virtual one; leave one of them out, or name the socket of a chronyd "
            "that runs with -x."
        )
    return tree


def _check_udp(settings: Settings) -> None:
    """Raise ValueError if MQTT over UDP cannot carry the messages of the format."""
    broker = parse_broker_url(settings.broker)
    if broker.scheme == "mqtt+udp" and settings.format == "draft-2021":
        raise ValueError(
            "format is draft-2021, whose time is in user properties of MQTT 5, but MQTT over UDP "
            "is MQTT 3.1.1: choose another format, or name a broker by mqtt://."
        )
    if broker.dialect and (settings.format != "precise" or settings.experiments):
        raise ValueError(
            f"format is {settings.format} and experiments is {str(settings.experiments).lower()}, "
            "but the board of the published dialect carries 32 octets, which only precise has: set "
            "format to precise and experiments to false."
        )


def may_follow_unsigned(settings: Settings, keyring: Keyring) -> bool:
    """Whether formats without tags may be followed: with keys, only if the settings allow it."""
    return settings.follow_unsigned or not keyring.broadcast().keys
