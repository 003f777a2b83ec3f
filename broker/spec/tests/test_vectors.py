"""The vectors agree with the documents, with the reference, and with an encoder of others."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from broker.rtl.sim.conversations import COUNTED, address, agree, conversations, settings_of
from broker.rtl.sim.golden import NOT_STATED, REFUSALS, REFUSED_FILTERS, Golden, Sent
from broker.rtl.sim.siphash import siphash

SPEC = Path(__file__).parents[1]
TEXT = (SPEC / "mqtt-udp.md").read_text()
ALL = list(conversations())
ids = [f"{file}: {conversation['name']}" for file, conversation in ALL]


@pytest.mark.parametrize("conversation", [one for _, one in ALL], ids=ids)
def test_the_reference_says_what_the_vectors_expect(conversation: dict[str, Any]) -> None:
    broker = Golden(settings_of(conversation))
    broker.departure = lambda arrival: arrival + (800 << 16)
    for number, step in enumerate(conversation["steps"]):
        sent = broker.datagram(step["at_ns"], *address(step["from"]), bytes.fromhex(step["send"]))
        assert agree(step["expect"], sent), (number, step, sent)
    counted = {name: broker.counters[name] for name in COUNTED if broker.counters[name]}
    assert counted == conversation["counters"]


def test_each_refusal_and_each_counter_has_a_vector() -> None:
    counted = {name for _, conversation in ALL for name in conversation["counters"]}
    # No vector fills tables: their size and their hash are the broker's own.
    assert counted == {*COUNTED} - {"table"}


def test_the_refusals_of_the_document_are_those_of_the_reference() -> None:
    section = TEXT.split("\n## 7. ")[1].split("\n## 8. ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == REFUSALS
    refused = section.split("Refused filters are counted too")[1].split("Also counted")[0]
    names = [name for name in re.findall(r"`(\w+)`", refused) if name != "$"]
    assert tuple(names) == REFUSED_FILTERS


def test_the_settings_of_the_vectors_are_in_the_document() -> None:
    listed = {*re.findall(r"`(\w+)`", TEXT.split("`settings` may have")[1])}
    used = {name for _, conversation in ALL for name in conversation["settings"]}
    assert used == listed


def test_the_challenge_is_drawn_as_it_is_sent() -> None:
    drawing = TEXT.split("octet by octet: 18 octets.")[1].split("```")[1]
    rows = re.findall(r"^ *\d+ \|(.*)\|$", drawing, re.MULTILINE)
    octets = b""
    for cell in re.findall(r"[^ |]+", "".join(rows)):
        if cell != "token":
            octets += bytes.fromhex(cell) if re.fullmatch("[0-9]{2}", cell) else cell.encode()
    sent = bytes.fromhex(_conversation("proof", "the token")["steps"][0]["expect"][0]["send"])
    assert sent[:-8] == octets
    assert len(sent) == 18


def test_the_residence_trailer_is_drawn_as_it_is_sent() -> None:
    text = (SPEC / "residence.md").read_text()
    fields = re.findall(r"^\| ([0-9-]+) \| (\w+) \|", text, re.MULTILINE)
    assert fields == [
        ("0-7", "residence"), ("8-11", "correction"), ("12-14", "copy"), ("15", "source"),
    ]  # fmt: skip
    drawing = text.split("## The trailer")[1].split("```")[1]
    widths = {
        name: round((len(cell) + 1) / 11)  # an octet is drawn eleven characters wide
        for name in dict(fields).values()
        for cell in re.findall(rf"\|( +{name} +)(?=\|)", drawing)
    }
    assert widths == {"residence": 8, "correction": 4, "copy": 3, "source": 1}


def test_the_trailer_that_is_not_stated_is_drawn_as_it_is_sent() -> None:
    drawn = re.search(r"^([0-9a-f ]+) not stated$", (SPEC / "residence.md").read_text(), re.M)
    assert drawn is not None
    step = _conversation("residence", "another broker did not state it")["steps"][5]
    assert bytes.fromhex(drawn[1]) == bytes.fromhex(step["send"])[-16:] == NOT_STATED
    assert step["expect"][0]["send"] == step["send"]
    assert any(NOT_STATED), "or the next broker would take it for fresh"


def test_siphash_is_that_of_its_authors() -> None:
    """Appendix A of the paper; octets 0 to 15 are the key, 0 to 14 the message."""
    assert siphash(bytes(range(16)), bytes(range(15))) == (0xA129CA6149BE45E5).to_bytes(8, "little")


def test_the_plain_packets_are_those_that_paho_encodes() -> None:
    """Each datagram here is sent in a vector that accepts it."""
    accepted = {step["send"] for _, one in ALL for step in one["steps"] if step["expect"]}
    encoded = Counter[str]()
    for kind, datagram in _by_paho():
        assert datagram.hex() in accepted, (kind, datagram.hex())
        encoded[kind] += 1
    assert len(encoded) == 6 - 1  # nothing comes back for a DISCONNECT


def _by_paho() -> list[tuple[str, bytes]]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="", protocol=paho.MQTTv311)
    packets: list[tuple[str, bytes]] = []

    def encode(kind: str, encoder: str, *arguments: Any, **named: Any) -> None:
        client._out_packet.clear()
        getattr(client, encoder)(*arguments, **named)
        packets.append((kind, bytes(client._out_packet[-1]["packet"])))

    client._sock = _Nowhere()  # type: ignore[assignment]
    encode("CONNECT", "_send_connect", 60)
    encode("PUBLISH", "_send_publish", 0, b"t", b"hello")
    encode("PUBLISH", "_send_publish", 0, b"t", b"1", retain=True)
    encode("PINGREQ", "_send_pingreq")
    client._last_mid = 1
    encode("UNSUBSCRIBE", "_send_unsubscribe", False, [b"a", b"nowhere", b"c"])
    client._last_mid = 257
    filters = [(b"a", 0), (b"b", 1), (b"a+", 0), (b"c", 2)]
    encode("SUBSCRIBE", "_send_subscribe", False, filters)
    return packets


class _Nowhere:
    """A socket that takes nothing, so that packets stay in paho's queue."""

    def send(self, _: bytes) -> int:
        raise BlockingIOError

    def close(self) -> None:
        pass

    def fileno(self) -> int:
        return -1


def test_the_vectors_are_read_strictly() -> None:
    """The comparison itself can fail: a lost, a changed and an exchanged datagram are seen."""
    one, two = Sent("10.0.0.2", 1, b"\x01\x02"), Sent("10.0.0.3", 2, b"\x03")
    expect = json.loads(
        '[{"to": "10.0.0.2:1", "send": "01.."}, {"to": "10.0.0.3:2", "send": "03"}]'
    )
    assert agree(expect, [one, two])
    assert agree(expect, [one._replace(octets=b"\x01\xff"), two])
    assert not agree(expect, [two, one])
    assert not agree(expect, [one])
    assert not agree(expect, [one, two, two])
    assert not agree(expect, [one._replace(octets=b"\x02\x02"), two])
    assert not agree(expect, [one._replace(port=2), two])
    apart = [{"any_order": [[expect[0]], [expect[1]]]}]
    assert agree(apart, [two, one])
    assert not agree(apart, [two, two])
    runs = [{"any_order": [expect, [expect[1]]]}]
    assert agree(runs, [two, one, two])
    assert not agree(runs, [two, two, one])


def _conversation(file: str, name: str) -> dict[str, Any]:
    return next(one for its, one in ALL if its == file and one["name"] == name)
