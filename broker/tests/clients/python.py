"""paho-mqtt as `broker/tests/test_broker_clients.py` wants it: see README.md beside it."""

from __future__ import annotations

import sys
import threading
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt import client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def say(*words: object) -> None:
    """Tell the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def connected(client: mqtt.Client, _: object, flags: Any, reason: Any, __: object) -> None:
    """The broker answered."""
    if reason.is_failure:
        say("refused")
        client.disconnect()
    else:
        say("connected", int(flags.session_present))


def main() -> None:
    """Do as the lines of the standard input say."""
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    url, clean = urlsplit(given["url"]), given["clean"] == "1"
    five = given["version"] == "5"
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        given["id"],
        None if five else clean,
        protocol=mqtt.MQTTv5 if five else mqtt.MQTTv311,
        transport="websockets" if url.scheme in ("ws", "wss") else "tcp",
    )
    if "ca" in given:
        client.tls_set(given["ca"])
    if "user" in given:
        client.username_pw_set(given["user"], given["password"])
    if "will" in given:
        client.will_set(given["will"], "gone", 1)
    published = threading.Event()
    client.on_publish = lambda *_: published.set()
    client.on_connect = connected
    client.on_subscribe = lambda *_: say("subscribed")
    client.on_message = lambda _, __, one: say(
        "message", one.topic, one.qos, int(one.retain), one.payload.hex()
    )
    options: dict[str, Any] = {}
    if five:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 0 if clean else 3600
        options = {"clean_start": clean, "properties": properties}
    client.connect(url.hostname or "", url.port or 0, **options)
    client.loop_start()
    for line in sys.stdin:
        word, *rest = line.rstrip("\n").split(" ")
        if word == "subscribe":
            client.subscribe(rest[0], int(rest[1]))
        elif word == "publish":
            topic, qos, retain, payload = rest
            # What publish() returns cannot be waited for where it has to connect again first.
            published.clear()
            client.publish(topic, bytes.fromhex(payload), int(qos), retain == "1")
            published.wait()
            say("published")
        else:
            client.disconnect()
            client.loop_stop()
            return


if __name__ == "__main__":
    main()
