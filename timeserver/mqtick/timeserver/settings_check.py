"""Checks settings together, each of which is valid alone: conflicts, and open doors."""

from __future__ import annotations

from collections.abc import Iterator

from mqtick.mqtt.broker import Broker, broker_from
from mqtick.protocol.auth import load_key_file
from mqtick.protocol.clocks import VirtualClockSettings
from mqtick.protocol.draft2021 import DraftTopics
from mqtick.protocol.text1451 import check_lns
from mqtick.protocol.topics import TopicTree
from mqtick.service.program import check_metrics_listen
from mqtick.timeserver.config import Settings

NO_KEYS = (
    "there are no keys (keys_file): anyone who may publish on the broker's time topics can set "
    "every client's clock; docs/threat-model.md says what the access list must forbid"
)


def check_settings(settings: Settings) -> None:
    """Raise ValueError or OSError for settings that would fail later."""
    _check_udp(settings, broker_from(settings))
    check_metrics_listen(settings.metrics_listen)
    if not settings.formats:
        raise ValueError("formats is empty, so nothing would be served; precise is the usual one.")
    TopicTree(settings.prefix).request(settings.number, "x")
    if settings.keys_file:
        load_key_file(settings.keys_file).server()
    if settings.virtual_clock:
        VirtualClockSettings.from_text(settings.virtual_clock)
    if "1451.1.6" in settings.formats and settings.name:
        check_lns(settings.name)
    DraftTopics(settings.draft_location)


def _check_udp(settings: Settings, broker: Broker) -> None:
    """Raise ValueError if MQTT over UDP cannot carry the messages of these settings."""
    if broker.scheme == "mqtt+udp" and "draft-2021" in settings.formats:
        raise ValueError(
            "formats has draft-2021, whose time is in user properties of MQTT 5, but MQTT over UDP "
            "is MQTT 3.1.1: leave draft-2021 out, or name a broker by mqtt://."
        )
    if not broker.dialect:
        return
    if settings.formats != ("precise",):
        raise ValueError(
            f"formats is {', '.join(settings.formats)}, but the board of the published dialect "
            'carries 32 octets, which only precise has: set formats to ["precise"].'
        )
    if settings.echo or settings.experiments:
        key = "echo" if settings.echo else "experiments"
        why = {
            "echo": "it subscribes for each client, and that board forgets no subscription",
            "experiments": "its messages are longer than the 32 octets that the board carries",
        }[key]
        raise ValueError(
            f"{key} is true, but does not work with the published dialect: {why}. Set {key} to "
            "false."
        )


def open_doors(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each way in which clients could take forged time for ours."""
    if not settings.keys_file:
        yield NO_KEYS
    unsigned = [name for name in settings.formats if name != "precise"]
    if unsigned:
        yield (
            f"formats has {', '.join(unsigned)}, whose messages carry no tags, even with keys: "
            "anyone who may publish on their topics can set the clocks that follow them"
        )
