"""Publish wrong time with a client's own account, as somebody could who got into one client.

Takes the next time message, makes it ten milliseconds later and sends it on. Prints what the broker
answers: Success, or why it refused.
"""

import dataclasses
import ssl
import sys
import time
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from mqtick.protocol.precise import TAG_OCTETS, Time

settings = tomllib.loads(Path("/etc/mqtick/client.toml").read_text())
broker = urlsplit(settings["broker"])
topic = f"{settings['prefix']}/t/0"
answers: list[str] = []


def on_message(client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
    """Send a later one after it."""
    client.unsubscribe(topic)
    said = Time.decode(message.payload)
    wrong = dataclasses.replace(
        said, sequence=said.sequence + 1, transmit_ns=said.transmit_ns + 10_000_000
    )
    client.publish(topic, wrong.body() + message.payload[-TAG_OCTETS:], qos=1)


client = paho.Client(CallbackAPIVersion.VERSION2, client_id="rogue", protocol=paho.MQTTv5)
client.username_pw_set(settings["username"], Path(settings["password_file"]).read_text().strip())
client.tls_set(settings["ca_file"], tls_version=ssl.PROTOCOL_TLS_CLIENT)
client.on_message = on_message
client.on_publish = lambda _client, _data, _number, reason, _properties: answers.append(str(reason))
client.connect(broker.hostname or "", broker.port or 8883)
client.subscribe(topic)
end = time.monotonic() + 10
while not answers and time.monotonic() < end:
    client.loop(0.1)
client.disconnect()
print(answers[0] if answers else "no answer")
sys.exit(not answers)
