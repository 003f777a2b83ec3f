"""Writes `broker/spec/acceleration.json`: `python -m broker.bpf.vectors`.

The frames are made here, what becomes of them is the model's; the C code, in user space and in the
kernel, is held against the file.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from broker.bpf.model import UDP, Plane, checksum, ones_sum

FILE = Path(__file__).parents[1] / "spec" / "acceleration.json"
MACS = {"broker": "020000000001", "publisher": "020000000002", "subscriber": "020000000003"}

ARRIVAL_NS = 1_790_000_000_000_000_000
NOW_NS = ARRIVAL_NS + 12_345
PRECISE = bytes([0x21, *range(16)])


def hops(vlan: int, other: int) -> list[dict[str, Any]]:
    """Return three, the last of them to `other`."""
    return [
        {
            "interface": 2,
            "destination": to,
            "source": MACS["broker"],
            "ttl": ttl,
            "up": up,
            "vlan": to_vlan,
        }
        for to, ttl, up, to_vlan in (
            (MACS["subscriber"], 64, True, vlan),
            ("0200000000aa", 64, False, vlan),
            ("0200000000bb", 63, True, other),
        )
    ]


def udp_frame(
    source: str,
    destination: str,
    message: bytes,
    *,
    ports: tuple[int, int] = (5000, 1883),
    tag: bytes = b"",
    ip: bytes | None = None,
    summed: bool = True,
    padding: int = 0,
) -> bytes:
    """Return a frame from the publisher to the broker; `ip` replaces octets 1, 4 to 8 of IPv4."""
    a, b = ip_address(source).packed, ip_address(destination).packed
    udp = ports[0].to_bytes(2, "big") + ports[1].to_bytes(2, "big")
    udp += (8 + len(message)).to_bytes(2, "big")
    total = checksum(a + b + bytes([0, UDP]) + udp[4:6] + udp + bytes(2) + message)
    udp += (total if total != bytes(2) else b"\xff\xff") if summed else bytes(2)
    udp += message
    if len(a) == 4:
        tos, middle = (0, bytes.fromhex("1234400040")) if ip is None else (ip[0], ip[1:])
        head = bytes([0x45, tos]) + (20 + len(udp)).to_bytes(2, "big") + middle + bytes([UDP])
        head += checksum(head + a + b) + a + b
        kind = b"\x08\x00"
    else:
        head = b"\x60\x12\x34\x56" + len(udp).to_bytes(2, "big") + bytes([UDP, 61]) + a + b
        kind = b"\x86\xdd"
    macs = bytes.fromhex(MACS["broker"] + MACS["publisher"])
    return macs + tag + kind + head + udp + bytes(padding)


def sn_publish(topic: str, payload: bytes, flags: int = 0, message_id: int = 0) -> bytes:
    """Return an MQTT-SN PUBLISH."""
    body = bytes([0x0C, flags]) + bytes.fromhex(topic) + message_id.to_bytes(2, "big") + payload
    if len(body) + 1 < 256:
        return bytes([len(body) + 1]) + body
    return b"\x01" + (len(body) + 3).to_bytes(2, "big") + body


def udp_publish(name: bytes, payload: bytes, first: int = 0x30) -> bytes:
    """Return an mqtt-udp PUBLISH."""
    body = len(name).to_bytes(2, "big") + name + payload
    length = len(body)
    remaining = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([first]) + remaining + body


V4, V6 = ("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")


def unfinished(frame: bytes) -> bytes:
    """Return the frame with the sum of the pseudo-header in the field of the UDP checksum."""
    udp = 34 if frame[12:14] == b"\x08\x00" else 54
    addresses = frame[udp - (8 if udp == 34 else 32) : udp]
    total = ones_sum(addresses + bytes([0, UDP]) + frame[udp + 4 : udp + 6])
    return frame[: udp + 6] + total.to_bytes(2, "big") + frame[udp + 8 :]


def both(source: str, destination: str) -> bytes:
    """Return a message whose checksum is the sum of the pseudo-header."""
    empty = udp_frame(source, destination, sn_publish("0007", bytes(3)))
    udp = 34 if empty[12:14] == b"\x08\x00" else 54
    pseudo, field = (int.from_bytes(frame[udp + 6 : udp + 8], "big")
                     for frame in (unfinished(empty), empty))  # fmt: skip
    # What is added to the message is taken from the field.
    return sn_publish("0007", b"\0" + ((field - pseudo) % 0xFFFF).to_bytes(2, "big"))


def shorter(frame: bytes) -> bytes:
    """Return a frame whose UDP length leaves an octet of the IP datagram over."""
    udp = 34 if frame[12:14] == b"\x08\x00" else 54
    length = int.from_bytes(frame[udp + 4 : udp + 6], "big") - 1
    return frame[: udp + 4] + length.to_bytes(2, "big") + frame[udp + 6 :]


def tables(six: bool, vlan: int = 0, other: int | None = None) -> dict[str, Any]:
    """Return brokers, hops and rules; the third hop is in another VLAN, if that is said."""

    def at(n: int, port: int) -> str:
        return f"[fd00::{n:x}]:{port}" if six else f"10.0.0.{n}:{port}"

    def sn(n: int, topic: str, kind: str = "registered", hop: int = 0) -> dict[str, Any]:
        return {"address": at(n, 6000 + n), "kind": kind, "topic": topic, "hop": hop}

    def rule(
        publisher: str | None, kind: str, topic: str, *who: dict[str, Any], **more: Any
    ) -> Any:
        return {
            "broker": int(kind == "name"),
            "publisher": publisher,
            "kind": kind,
            "topic": topic,
            "subscribers": list(who),
            **more,
        }

    me = at(2, 5000)
    return {
        "brokers": [
            {"address": at(1, 1883), "vlan": vlan, "protocol": "mqtt-sn"},
            {"address": at(1, 1884), "vlan": vlan, "protocol": "mqtt-udp"},
        ],
        "hops": hops(vlan, vlan if other is None else other),
        "rules": [
            rule(me, "registered", "0007", sn(3, "0001"), sn(4, "ffee"), sn(5, "6162", "short", 2)),
            rule(None, "predefined", "0007", sn(3, "0007", "predefined")),
            rule(me, "predefined", "0007", flags=["pass"]),
            rule(None, "short", "6162", sn(3, "6162", "short"), sn(4, "0009", "registered", 1)),
            rule(me, "registered", "0008", sn(3, "0002"), flags=["broker"]),
            rule(me, "registered", "0009", sn(3, "0003"), flags=["broker", "mark"]),
            rule(me, "registered", "000a", sn(3, "0004"), sn(4, "0004"), flags=["residence"]),
            rule(me, "registered", "000b", sn(3, "0004"), flags=["residence", "broker"]),
            rule(me, "registered", "000c", sn(3, "0004"), closed=True),
            rule(me, "registered", "000d"),
            rule(me, "registered", "000e", sn(5, "0005", hop=2), flags=["broker", "mark"]),
            rule(None, "name", b"mqtick/time".hex(), sn(3, "", "name"), sn(4, "", "name"),
                 flags=["residence"]),
            rule(None, "name", (b"x" * 64).hex(), sn(3, "", "name")),
            rule(me, "name", b"hall/1".hex(), sn(3, "", "name"), sn(4, "", "name")),
            rule(me, "name", b"hall/2".hex(), sn(4, "", "name"), flags=["broker", "mark"]),
            rule(me, "name", b"hall/3".hex(), sn(4, "", "name"), sn(5, "", "name", 2),
                 flags=["broker", "mark", "residence"]),
            rule(me, "name", b"hall/4".hex(), sn(3, "", "name"), closed=True),
            rule(at(2, 5001), "name", b"hall/1".hex(), sn(5, "", "name")),
        ],
    }  # fmt: skip


def case(
    name: str, used: dict[str, Any], frame: bytes, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return one vector."""
    times = {"arrival_ns": ARRIVAL_NS, "now_ns": NOW_NS}
    return {"name": name, **used, "settings": settings or {}, **times, "frame": frame.hex()}


def cases() -> list[dict[str, Any]]:  # noqa: PLR0915 - a list
    """Return all vectors."""
    made: list[dict[str, Any]] = []
    for six in (False, True):
        a, b = V6 if six else V4
        of = "IPv6" if six else "IPv4"

        def add(name: str, message: bytes | None, frame: bytes | None = None, vlan: int = 0,
                settings: dict[str, Any] | None = None, *, six: bool = six, of: str = of,
                a: str = a, b: str = b, another: int | None = None,
                **how: Any) -> None:  # fmt: skip
            if frame is None:
                assert message is not None
                frame = udp_frame(a, b, message, **how)
            made.append(case(f"{name}, {of}", tables(six, vlan, another), frame, settings))

        other = (5001, 1883)
        udp = (5000, 1884)
        good = sn_publish("0007", b"hello")
        add("three subscribers with ids of their own", good)
        add("an odd number of octets, and padding", sn_publish("0007", b"hell"), padding=7)
        add("no payload", sn_publish("0007", b""))
        add("three octets of length", sn_publish("0007", bytes(range(250))))
        add("the longest message", sn_publish("0007", bytes(1440)))
        add("a VLAN tag", good, vlan=5, tag=bytes.fromhex("81002005"))
        add("a VLAN tag with a priority", good, vlan=5, tag=bytes.fromhex("8100a005"))
        add("a priority alone", good, tag=bytes.fromhex("8100a000"))
        add("a subscriber without a tag", good, vlan=5, another=0, tag=bytes.fromhex("8100a005"))
        add("a subscriber in another VLAN", good, vlan=5, another=6,
            tag=bytes.fromhex("8100a005"))  # fmt: skip
        add("a subscriber in a VLAN", good, another=6)
        add("a subscriber in another VLAN, and the broker too", sn_publish("000e", b"x"), vlan=5,
            another=6, tag=bytes.fromhex("81002005"))  # fmt: skip
        add("another VLAN", good, vlan=6, tag=bytes.fromhex("81002005"))
        add("two VLAN tags", good, tag=bytes.fromhex("8100000581000006"))
        add("another client's id", good, ports=other)
        add("a predefined id of anybody", sn_publish("0007", b"x", 1), ports=other)
        add("a rule to pass hides the one for anybody", sn_publish("0007", b"x", 1))
        add("a short name, and a hop that is down", sn_publish(b"ab".hex(), b"x", 2))
        add("the broker too", sn_publish("0008", b"x"))
        add("the broker too, marked", sn_publish("0009", b"xy"))
        add("a closed rule", sn_publish("000c", b"x"))
        add("a rule without subscribers", sn_publish("000d", b"x"))
        add("packets that are not taken into account yet", good, settings={"waiting": True})
        add("a dead controller", good, settings={"stale": True})
        add("no rule", sn_publish("00ff", b"x"))
        add("QoS 1", sn_publish("0007", b"x", 0x20, 1))
        add("QoS -1", sn_publish("0007", b"x", 0x61))
        add("retained", sn_publish("0007", b"x", 0x10))
        add("DUP", sn_publish("0007", b"x", 0x80))
        add("the mark of a switch", sn_publish("0007", b"x", 0x08))
        add("the mark of a switch, and QoS 1, without a rule", sn_publish("00ff", b"xy", 0x28, 1))
        add("the mark of a switch, in three octets of length",
            sn_publish("0007", bytes(range(250)), 0x08))  # fmt: skip
        add("a message id", sn_publish("0007", b"x", 0, 1))
        add("kind 3", sn_publish("0007", b"x", 3))
        add("a length that is too large", bytes([len(good) + 1]) + good[1:])
        add("a length that is too small", good + b"x")
        add(
            "three octets of length where one would do",
            b"\x01\x00" + bytes([len(good) + 2]) + good[1:],
        )
        add("a truncated PUBLISH", b"\x06" + good[1:6])
        add("a PUBLISH, and a SUBSCRIBE behind it", good + b"\x08\x12\x00\x00\x01a/b")
        add("a SUBSCRIBE that is shorter than it says", b"\x09\x12\x00\x00\x01a/b")
        add("PINGREQ of a client that sleeps", b"\x04\x16me")
        add("longer than what is read", sn_publish("0007", bytes(1600)))
        add("padded to more than what is read", good, padding=1500)
        add("to all hosts of the network", None, b"\xff" * 6 + udp_frame(a, b, good)[6:])
        add("a subscription to all hosts of the network", None,
            b"\xff" * 6 + udp_frame(a, b, b"\x08\x12\x00\x00\x01a/b")[6:])  # fmt: skip
        add("a checksum that the card is to finish", None, unfinished(udp_frame(a, b, good)))
        add(
            "a checksum that may be unfinished, and may be whole",
            None,
            unfinished(udp_frame(a, b, both(a, b))),
        )
        add("a UDP length below the IP length", None, shorter(udp_frame(a, b, good + b"\x00")))
        add("a port of a service", good, ports=(1023, 1883))
        add("another port", good, ports=(5000, 1885))
        add("a wrong checksum", None, udp_frame(a, b, good)[:-1] + b"\x00")
        add("no checksum", good, summed=False)
        for name, old in (
            ("zeros", bytes(16)),
            ("of another broker", (1 << 20).to_bytes(8, "big") + bytes(7) + b"\x03"),
            ("of a program", (1 << 20).to_bytes(8, "big") + bytes(7) + b"\x01"),
            ("not stated", bytes(8) + b"\x80" + bytes(7)),
            ("that would not fit", b"\xff" * 8 + bytes(7) + b"\x03"),
        ):
            add(f"a trailer {name}", sn_publish("000a", PRECISE + old))
            add(f"a trailer {name}, at an odd place", sn_publish("000a", PRECISE + b"x" + old))
        add("a trailer, while the clock is slewed", sn_publish("000a", PRECISE + bytes(16)),
            settings={"slewed": True})  # fmt: skip
        add("a trailer, and the broker too", sn_publish("000b", PRECISE + bytes(16)))
        add("too short for a trailer", sn_publish("000a", b"\x20" + bytes(15)))
        add("too long for a trailer", sn_publish("000a", b"\x20" + bytes(64)))
        add("not of version 2", sn_publish("000a", b"\x10" + bytes(40)))
        add("mqtt-udp", udp_publish(b"mqtick/time", b"hello"), ports=udp)
        add("mqtt-udp, a trailer", udp_publish(b"mqtick/time", PRECISE + bytes(16)), ports=udp)
        add("mqtt-udp, a name of 64", udp_publish(b"x" * 64, b"y" * 600), ports=udp)
        add("mqtt-udp, a longer name", udp_publish(b"x" * 65, b"y"), ports=udp)
        add("mqtt-udp, a name that begins like one", udp_publish(b"x" * 63, b"xy"), ports=udp)
        add("mqtt-udp, retained", udp_publish(b"mqtick/time", b"hello", 0x31), ports=udp)
        add("mqtt-udp, QoS 1", udp_publish(b"mqtick/time", b"hello", 0x32), ports=udp)
        add("mqtt-udp, octets after the packet", udp_publish(b"mqtick/time", b"") + b"x", ports=udp)
        add("mqtt-udp, more octets of length than needed",
            b"\x30\x8d\x00\x00\x0bmqtick/time", ports=udp)  # fmt: skip
        add("mqtt-udp, no name", b"\x30\x02\x00\x00", ports=udp)
        add("mqtt-udp, two subscribers", udp_publish(b"hall/1", b"hello"), ports=udp)
        add("mqtt-udp, another publisher's rule", udp_publish(b"hall/1", b"x"), ports=(5001, 1884))
        add(
            "mqtt-udp, a publisher without a rule", udp_publish(b"hall/1", b"x"), ports=(5002, 1884)
        )
        add("mqtt-udp, the longest message", udp_publish(b"hall/1", bytes(1461)), ports=udp)
        add("mqtt-udp, longer than that", udp_publish(b"hall/1", bytes(1462)), ports=udp)
        add("mqtt-udp, longer than what is read", udp_publish(b"hall/1", bytes(1600)), ports=udp)
        add("mqtt-udp, no payload", udp_publish(b"hall/1", b""), ports=udp)
        add(
            "mqtt-udp, a name that differs in its last octet",
            udp_publish(b"hall/0", b"x"),
            ports=udp,
        )
        add("mqtt-udp, a name that differs in a zero behind it",
            udp_publish(b"hall/1\0", b"x"), ports=udp)  # fmt: skip
        add("mqtt-udp, the beginning of a name", udp_publish(b"hall/", b"1"), ports=udp)
        add("mqtt-udp, marked", udp_publish(b"hall/2", b"xy"), ports=udp)
        add("mqtt-udp, marked, without a checksum", udp_publish(b"hall/2", b"x"), ports=udp,
            summed=False)  # fmt: skip
        add("mqtt-udp, marked, two octets of length", udp_publish(b"hall/2", bytes(300)), ports=udp)
        add("mqtt-udp, marked, a trailer", udp_publish(b"hall/3", PRECISE + bytes(16)), ports=udp)
        add("mqtt-udp, a closed rule", udp_publish(b"hall/4", b"x"), ports=udp)
        for first in (0x38, 0x39, 0x3A, 0x3C, 0x3E):
            marked = udp_publish(b"hall/2", b"x", first)
            add(f"mqtt-udp, the mark of a switch in {first:02x}", marked, ports=udp)
        add("mqtt-udp, the mark of a switch, without a rule", udp_publish(b"none", b"xy", 0x38),
            ports=udp)  # fmt: skip
        add("mqtt-udp, QoS 3", udp_publish(b"hall/1", b"x", 0x36), ports=udp)
        add("mqtt-udp, a name longer than the packet", b"\x30\x04\x00\x06ha", ports=udp)
        add("mqtt-udp, half a length of a name", b"\x30\x01\x00", ports=udp)
        add("mqtt-udp, a PUBLISH without more", b"\x30\x00", ports=udp)
        add("mqtt-udp, one octet", b"\x30", ports=udp)
        add("mqtt-udp, shorter than it says", udp_publish(b"hall/1", b"xy")[:-1], ports=udp)
        add("mqtt-udp, a length of three octets", b"\x30\x88\x80\x00\x00\x06hall/1", ports=udp)
        add("mqtt-udp, a subscriber in another VLAN", udp_publish(b"hall/1", b"x"), ports=udp,
            vlan=5, another=6, tag=bytes.fromhex("81002005"))  # fmt: skip
        add("mqtt-udp, a checksum that the card is to finish", None,
            unfinished(udp_frame(a, b, udp_publish(b"hall/2", b"x"), ports=udp)))  # fmt: skip
        add("mqtt-udp, a wrong checksum", None,
            udp_frame(a, b, udp_publish(b"hall/1", b"x"), ports=udp)[:-1] + b"\0")  # fmt: skip
        add("mqtt-udp, packets that are not taken into account yet", udp_publish(b"hall/1", b"x"),
            ports=udp, settings={"waiting": True})  # fmt: skip
        for name, message in (
            ("CONNECT", b"\x08\x04\x04\x01\x00\x3cme"),
            ("SUBSCRIBE", b"\x08\x12\x00\x00\x01a/b"),
            ("SUBSCRIBE with three octets of length", b"\x01\x00\x0a\x12\x00\x00\x01a/b"),
            ("PINGREQ", b"\x02\x16"),
            ("a message without a type", b"\x02"),
            ("a type that nobody knows", b"\x02\x77"),
        ):
            add(name, message)
        add("PUBACK", b"\x07\x0d\x00\x07\x00\x01\x00")
        add("PUBACK that refuses", b"\x07\x0d\x00\x07\x00\x01\x02")
        add("mqtt-udp, SUBSCRIBE", bytes.fromhex("820600010001") + b"a\x00", ports=udp)
        add("mqtt-udp, PUBREL", bytes.fromhex("62020001"), ports=udp)
        add("mqtt-udp, PINGREQ", b"\xc0\x00", ports=udp)
        add("mqtt-udp, DISCONNECT", b"\xe0\x00", ports=udp)
        add("mqtt-udp, a proof", udp_publish(b"$proof", bytes(8)), ports=udp)
        add("mqtt-udp, a proof, retained", udp_publish(b"$proof", bytes(8), 0x31), ports=udp)
        add("mqtt-udp, a name of the broker's, cut", b"\x30\x03\x00\x06$", ports=udp)
        for name, message in (
            ("a challenge", udp_publish(b"$proof", bytes(8))),
            ("CONNACK that accepts", bytes.fromhex("20020000")),
            ("SUBACK", bytes.fromhex("9003000100")),
            ("UNSUBACK", bytes.fromhex("b0020001")),
            ("PUBLISH", udp_publish(b"hall/1", b"x")),
        ):
            frame = udp_frame(b, a, message, ports=(1884, 5000))
            add(f"mqtt-udp, {name} of the broker", None, frame)
        add(
            "SUBACK of the broker",
            None,
            udp_frame(b, a, bytes.fromhex("0813000007000100"), ports=(1883, 5000)),
        )
        add(
            "REGACK of the broker",
            None,
            udp_frame(b, a, bytes.fromhex("070b0007000100"), ports=(1883, 5000)),
        )
        add("PUBLISH of the broker", None, udp_frame(b, a, good, ports=(1883, 5000)))
        add("nobody's broker", None, udp_frame(a, b.replace("1", "9"), good))
        add(
            "a frame that ends in the UDP header",
            None,
            udp_frame(a, b, good)[: 14 + (40 if six else 20) + 7],
        )

    def four(name: str, frame: bytes) -> None:
        made.append(case(name, tables(six=False), frame))

    good = sn_publish("0007", b"hello")
    plain = udp_frame(*V4, good)
    four(
        "other TOS, identification and TTL", udp_frame(*V4, good, ip=bytes.fromhex("b8ffff000009"))
    )
    four("the first fragment", udp_frame(*V4, good, ip=bytes.fromhex("000001200040")))
    four("the last fragment", udp_frame(*V4, good, ip=bytes.fromhex("000001000540")))
    options = (
        b"\x46" + plain[15:16] + (len(plain) - 10).to_bytes(2, "big") + plain[18:24] + bytes(2)
    )
    options += plain[26:34] + b"\x01\x01\x01\x00"
    four("IP options", plain[:14] + options[:10] + checksum(options) + options[12:] + plain[34:])
    four("a wrong IP checksum", plain[:24] + b"\x00\x00" + plain[26:])
    four("a total length beyond the frame", plain[:16] + b"\x00\xff" + plain[18:])
    four("a UDP length below the IP length", plain[:38] + b"\x00\x0a" + plain[40:])
    for source in ("127.0.0.1", "0.0.0.0", "224.0.0.1", "10.0.0.1"):
        four(f"from {source}", udp_frame(source, V4[1], sn_publish(b"ab".hex(), b"x", 2)))
    four("ARP", bytes.fromhex("ffffffffffff" + MACS["publisher"] + "0806") + bytes(46))
    four("TCP", plain[:23] + b"\x06" + plain[24:])
    for header, name in (
        (0, "hop-by-hop options"),
        (44, "a fragment"),
        (60, "destination options"),
    ):
        frame = udp_frame(*V6, good)
        frame = frame[:20] + bytes([header]) + frame[21:54] + bytes([UDP, *bytes(7)]) + frame[54:]
        made.append(case(f"{name}, IPv6", tables(six=True), frame))
    return made


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the model says becomes of a vector's frame."""
    plane = Plane(case["brokers"], case["rules"], case["hops"], case.get("settings", {}))
    frame = bytes.fromhex(case["frame"])
    got = plane.arrives(frame, case["arrival_ns"], case["now_ns"])
    return {
        "verdict": got.verdict,
        "original": got.original.hex() if got.original else None,
        "copies": [{"interface": interface, "frame": copy.hex()} for interface, copy in got.copies],
        "counters": dict(got.counters),
        "closed": sorted(got.closed),
        "event": got.event,
    }


def vectors() -> list[dict[str, Any]]:
    """Return the vectors of the file, each with its tables and its name."""
    read = json.loads(FILE.read_text())
    return [{**one, **read["tables"][one["tables"]]} for one in read["vectors"]]


def written() -> str:
    """Return what is to stand in the file."""
    all_tables: dict[str, str] = {}
    lines = []
    for one in cases():
        used = json.dumps({name: one.pop(name) for name in ("brokers", "hops", "rules")})
        name = all_tables.setdefault(used, f"tables {len(all_tables) + 1}")
        expect = outcome({**one, **json.loads(used)})
        one["expect"] = {key: value for key, value in expect.items() if value}
        if not one["settings"]:
            del one["settings"]
        lines.append(json.dumps({"name": one.pop("name"), "tables": name, **one}))
    named = ",\n".join(f'"{name}": {used}' for used, name in all_tables.items())
    return f'{{"tables": {{\n{named}\n}},\n"vectors": [\n' + ",\n".join(lines) + "\n]}\n"


if __name__ == "__main__":
    FILE.write_text(written())
