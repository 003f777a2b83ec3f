"""MQTT 5 properties of a PUBLISH (MQTT 5.0, 3.3.2.3), by way of paho-mqtt."""

from __future__ import annotations

from collections.abc import Sequence

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties, VariableByteIntegers


def decode_properties(encoded: bytes) -> Properties:
    """Decode MQTT 5 PUBLISH properties (without their length); ValueError when malformed."""
    properties = Properties(PacketTypes.PUBLISH)
    if encoded:
        try:
            properties.unpack(VariableByteIntegers.encode(len(encoded)) + encoded)
        except Exception as error:  # paho raises many types on malformed octets
            raise ValueError(f"malformed MQTT 5 properties: {error}") from error
    return properties


def encode_properties(
    user: Sequence[tuple[str, str]] = (),
    *,
    response_topic: str | None = None,
    correlation_data: bytes | None = None,
) -> bytes:
    """Encode MQTT 5 PUBLISH properties, without their length."""
    properties = Properties(PacketTypes.PUBLISH)
    if user:
        properties.UserProperty = list(user)
    if response_topic is not None:
        properties.ResponseTopic = response_topic
    if correlation_data is not None:
        properties.CorrelationData = correlation_data
    packed = bytes(properties.pack())
    return packed[VariableByteIntegers.decode(packed)[1] :]
