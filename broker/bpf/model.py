"""The rules of `broker/spec/acceleration.md` in plain Python: what becomes of one frame."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

KINDS = ("registered", "predefined", "short", "name")
NOT_STATED = bytes(8) + b"\x80" + bytes(7)
UDP = 17
MARK, QOS_3 = 8, 6
MAX_MQTT_UDP = 1472
MAX_FRAME = 1536
Endpoint = tuple[bytes, int, int]


class RefusedError(Exception):
    """No host takes the frame, or it concerns nobody; the argument is the counter's name."""


class UnreadError(Exception):
    """The broker may take the frame for anything."""

    def __init__(self, reason: str, counter: str) -> None:
        super().__init__(reason)
        self.reason, self.counter = reason, counter


def endpoint(text: str, vlan: int = 0) -> Endpoint:
    """Return address, port and VLAN of `10.0.0.1:1883` or `[fd00::1]:1883`."""
    host, _, port = text.rpartition(":")
    return ip_address(host.strip("[]")).packed, int(port), vlan


def ones_sum(octets: bytes) -> int:
    """Return the one's complement sum of 16-bit words (RFC 1071)."""
    octets += bytes(len(octets) % 2)
    total = sum(int.from_bytes(octets[at : at + 2], "big") for at in range(0, len(octets), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(octets: bytes) -> bytes:
    """Return what makes the sum of the octets right."""
    return (0xFFFF - ones_sum(octets)).to_bytes(2, "big")


@dataclass
class Frame:
    """A frame in parts."""

    octets: bytes
    tag: bytes
    vlan: int
    six: bool
    source: bytes = b""
    destination: bytes = b""
    ports: tuple[int, int] = (0, 0)
    message: bytes = b""
    padding: bytes = b""
    unfinished: bool = False

    @property
    def ip(self) -> bytes:
        """From the IP header on."""
        return self.octets[14 + len(self.tag) :]


@dataclass
class Outcome:
    """What becomes of a frame."""

    verdict: str = "pass"
    original: bytes | None = None
    copies: list[tuple[int, bytes]] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    event: dict[str, Any] | None = None
    closed: list[int] = field(default_factory=list)


@dataclass
class Plane:
    """A data plane: the tables, as in the vectors."""

    brokers: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    hops: list[dict[str, Any]]
    settings: dict[str, Any] = field(default_factory=dict)

    def arrives(self, octets: bytes, arrival_ns: int = 0, now_ns: int = 0) -> Outcome:
        """Say what becomes of a frame that arrives."""
        self.outcome = Outcome()
        frame = self._ethernet(octets)
        if frame is None or not self._is_udp(frame):
            return self.outcome
        number, from_broker = self._broker(frame)
        if number is None:
            return self.outcome
        try:
            self._check(frame)
            protocol = self.brokers[number]["protocol"]
            what = (
                self._sn(frame, from_broker)
                if protocol == "mqtt-sn"
                else self._udp(frame, from_broker)
            )
            if what == "publish" and not from_broker:
                self._publish(frame, number, arrival_ns, now_ns)
            elif what in ("raises", "message"):
                self._report(frame, "message", from_broker, raises=what == "raises")
        except RefusedError as reason:
            if not from_broker:
                self.outcome.counters[str(reason)] += 1
        except UnreadError as unread:
            self.outcome.counters[unread.counter] += 1
            self._report(frame, unread.reason, from_broker, raises=True)
            if not from_broker:
                self._close_rules_of(frame)
        return self.outcome

    def _ethernet(self, octets: bytes) -> Frame | None:
        tag, vlan = b"", 0
        if octets[12:14] == b"\x81\x00":
            tag, vlan = octets[12:16], int.from_bytes(octets[14:16], "big") & 0xFFF
        kind = octets[12 + len(tag) : 14 + len(tag)]
        six = kind == b"\x86\xdd"
        frame = Frame(octets, tag, vlan, six)
        if kind not in (b"\x08\x00", b"\x86\xdd") or len(frame.ip) < (40 if six else 20):
            return None
        ip = frame.ip
        frame.source, frame.destination = (ip[8:24], ip[24:40]) if six else (ip[12:16], ip[16:20])
        return frame if ip[0] >> 4 == (6 if six else 4) else None

    def _is_udp(self, frame: Frame) -> bool:
        ip, head = frame.ip, 40 if frame.six else 20
        if frame.six:
            reason = {44: "fragment", 0: "header", 43: "header", 51: "header", 60: "header"}
            unread = reason.get(ip[6])
        else:
            if ip[9] != UDP:
                return False
            cut = int.from_bytes(ip[6:8], "big") & 0x3FFF
            unread = "fragment" if cut else None if ip[0] == 0x45 else "header"
        if unread is not None:
            number, from_broker = self._broker(frame, ports=False)
            if number is not None:
                self.outcome.counters[unread] += 1
                self._report(frame, unread, from_broker, raises=True)
                if not from_broker:
                    self._close_rules_of(frame)
            return False
        if (frame.six and ip[6] != UDP) or len(ip) < head + 8:
            return False
        udp = ip[head:]
        frame.ports = int.from_bytes(udp[:2], "big"), int.from_bytes(udp[2:4], "big")
        return True

    def _broker(self, frame: Frame, *, ports: bool = True) -> tuple[int | None, bool]:
        to = (frame.destination, frame.ports[1], frame.vlan)
        by = (frame.source, frame.ports[0], frame.vlan)
        for from_broker, found in ((False, to), (True, by)):
            for number, broker in enumerate(self.brokers):
                one = endpoint(broker["address"], broker.get("vlan", 0))
                if one == found or (not ports and (one[0], one[2]) == (found[0], found[2])):
                    return number, from_broker
        return None, False

    def _check(self, frame: Frame) -> None:
        ip, head = frame.ip, 40 if frame.six else 20
        total = int.from_bytes(ip[4:6], "big") + 40 if frame.six else int.from_bytes(ip[2:4], "big")
        length = int.from_bytes(ip[head + 4 : head + 6], "big")
        no_message = length <= 8 and not (frame.six and length == 0)
        if total > len(ip) or not head + max(length, 8) <= total or no_message:
            raise RefusedError("length")
        if total != head + length or 14 + len(ip) > MAX_FRAME:
            raise UnreadError("header", "length")
        udp, frame.padding = ip[head:total], ip[total:]
        frame.message = udp[8:]
        pseudo = frame.source + frame.destination + bytes([0, UDP]) + ip[head + 4 : head + 6]
        if not frame.six and ones_sum(ip[:20]) != 0xFFFF:
            raise RefusedError("checksum")
        is_whole = ones_sum(pseudo + udp) == 0xFFFF
        frame.unfinished = int.from_bytes(udp[6:8], "big") == ones_sum(pseudo)
        self.hindrance = "checksum" if is_whole and frame.unfinished else ""
        if udp[6:8] == bytes(2):
            if frame.six:
                raise RefusedError("checksum")
            self.hindrance = ""
        elif not frame.unfinished and not is_whole:
            raise RefusedError("checksum")

    def _report(self, frame: Frame, reason: str, from_broker: bool, *, raises: bool) -> None:
        has_message = reason in ("message", "no_rule")
        at = len(frame.octets) - len(frame.tag) - len(frame.padding) - len(frame.message)
        self.outcome.counters["events"] += 1
        self.outcome.event = {
            "reason": reason,
            "from_broker": from_broker,
            "raises": raises,
            "message": at if has_message else 0,
        }

    def _close_rules_of(self, frame: Frame) -> None:
        def bucket(address: bytes) -> int:
            octets = address if len(address) == 16 else b"\xff\xff" + address
            return functools.reduce(operator.xor, octets)

        for at, rule in enumerate(self.rules):
            by = rule["publisher"]
            if by is None or bucket(endpoint(by)[0]) == bucket(frame.source):
                self.outcome.closed.append(at)

    def _sn(self, frame: Frame, from_broker: bool) -> str:
        message = frame.message + bytes(8)
        at = 3 if message[0] == 1 else 1
        length = int.from_bytes(message[1:3], "big") if at == 3 else message[0]
        if length != len(frame.message) or length <= at:
            raise UnreadError("message", "length")
        kind = message[at]
        refused = kind == 0x0D and length == at + 6 and message[at + 5] != 0
        if 0x0C <= kind <= 0x10 and not refused:
            return "publish" if kind == 0x0C else "other"
        of_one = (0x05, 0x0A, 0x0B, 0x13) if from_broker else (0x04, 0x12, 0x14, 0xFE)
        wakes = kind == 0x16 and not from_broker and length > at + 1
        return "raises" if kind == 0x18 or kind in of_one or wakes else "message"

    def _udp(self, frame: Frame, from_broker: bool) -> str:
        message = frame.message + bytes(8)
        remaining, at = message[1], 2
        if remaining & 0x80:
            remaining, at = remaining & 0x7F | message[2] << 7, 3
        is_whole = len(frame.message) == at + remaining <= MAX_MQTT_UDP
        if not is_whole or (at == 3 and not 0 < message[2] < 128):
            raise UnreadError("message", "length")
        kind = message[0] >> 4
        if 3 <= kind <= 7:
            return "publish" if kind == 3 else "other"
        return "raises" if message[0] == 0xE0 and not from_broker else "message"

    def _topic(self, frame: Frame, protocol: str) -> tuple[str, bytes, int]:
        """Return kind, id or name, and where the payload begins."""
        message = frame.message
        hindrance = ""
        if protocol == "mqtt-sn":
            at = 3 if message[0] == 1 else 1
            if len(message) < at + 6:
                raise RefusedError("length")
            topic = KINDS[message[at + 1] & 3], message[at + 2 : at + 4], at + 6
            if at == 3 and len(message) < 256:
                hindrance = "length"
            elif message[at + 1] > 2 or message[at + 4 : at + 6] != bytes(2):
                hindrance = "qos"
        else:
            at = 3 if message[1] & 0x80 else 2
            name = int.from_bytes((message + bytes(8))[at : at + 2], "big")
            if not 0 < name <= 64 or len(message) < at + 2 + name:
                raise RefusedError("length")
            topic = "name", message[at + 2 : at + 2 + name], at + 2 + name
            if topic[1].startswith(b"$"):
                raise RefusedError("no_rule")
            if message[0] != 0x30:
                hindrance = "qos"
        self.hindrance = hindrance or self.hindrance
        if not self.hindrance and not self._source_is_good(frame):
            self.hindrance = "source"
        return topic

    @staticmethod
    def _source_is_good(frame: Frame) -> bool:
        if frame.ports[0] < 1024 or frame.source == frame.destination:
            return False
        if frame.six:
            six = IPv6Address(frame.source)
            mapped = six.ipv4_mapped is not None
            return not (six.is_multicast or six.is_unspecified or six.is_loopback or mapped)
        first = frame.source[0]
        return first not in (0, 127) and first < IPv4Address("224.0.0.0").packed[0]

    def _rule(self, frame: Frame, number: int, kind: str, topic: bytes) -> dict[str, Any] | None:
        publisher = frame.source, frame.ports[0], 0
        for wanted in (publisher, None):
            for rule in self.rules:
                by = endpoint(rule["publisher"]) if rule["publisher"] else None
                same = (rule["broker"], rule["kind"], bytes.fromhex(rule["topic"]))
                if by == wanted and same == (number, kind, topic):
                    return rule
        return None

    def _publish(self, frame: Frame, number: int, arrival_ns: int, now_ns: int) -> None:
        counters = self.outcome.counters
        protocol = self.brokers[number]["protocol"]
        kind, topic, payload = self._topic(frame, protocol)
        rule = self._rule(frame, number, kind, topic)
        is_sn = protocol == "mqtt-sn"
        at = payload - 5 if is_sn else 0
        octet = frame.message[at]
        qos = octet >> 5 & 3 if is_sn else octet >> 1 & 3
        if octet & MARK:
            self._goes_on(frame, at, octet & ~MARK if is_sn else octet | QOS_3)
        if rule is None:
            counters[self.hindrance or "no_rule"] += 1
            if not self.hindrance or qos in (1, 2):
                self._report(frame, "no_rule", from_broker=False, raises=False)
            return
        flags = rule.get("flags", [])
        if frame.octets[0] & 1:
            self.hindrance = self.hindrance or "source"
        hindrances = {
            "disabled": "pass" in flags,
            "waiting": self.settings.get("waiting", False),
            "closed": rule.get("closed", False),
            "stale": self.settings.get("stale", False),
        }
        if hindered := self.hindrance or next(
            (name for name, is_so in hindrances.items() if is_so), ""
        ):
            counters[hindered] += 1
            self.outcome.closed.append(self.rules.index(rule))
            if qos in (1, 2):
                self._report(frame, "no_rule", from_broker=False, raises=False)
            return
        stamps = (0, 0) if self.settings.get("slewed") else (arrival_ns, now_ns)
        self._copy(frame, rule, payload, stamps)
        counters["hits"] += 1
        if "broker" in flags:
            counters["to_broker"] += 1
            if "mark" in flags:
                self._goes_on(frame, at, octet | MARK)
        else:
            self.outcome.verdict = "drop"

    def _goes_on(self, frame: Frame, at: int, octet: int) -> None:
        """Have the original go on with this octet in its message."""
        if octet == frame.message[at]:
            return
        message = frame.message[:at] + bytes([octet]) + frame.message[at + 1 :]
        self.outcome.original = self._with(frame, frame.octets, message, len(frame.tag))

    def _copy(
        self, frame: Frame, rule: dict[str, Any], payload: int, times_ns: tuple[int, int]
    ) -> None:
        broker = self.brokers[rule["broker"]]
        address, port, _ = endpoint(broker["address"])
        for one in rule["subscribers"]:
            hop = self.hops[one["hop"]]
            if not hop["up"]:
                self.outcome.counters["unreachable"] += 1
                continue
            to, to_port, _ = endpoint(one["address"])
            message = frame.message
            if rule["kind"] != "name":
                flags = bytes([KINDS.index(one["kind"])]) + bytes.fromhex(one["topic"])
                message = message[: payload - 5] + flags + message[payload - 2 :]
            message = self._trailer(message, payload, rule, times_ns)
            tag, vlan = frame.tag, hop.get("vlan", 0)
            if vlan != frame.vlan:
                priority = frame.tag[2] >> 4 << 12 if frame.tag else 0
                tag = b"\x81\x00" + (priority | vlan).to_bytes(2, "big") if vlan else b""
            head = bytes.fromhex(hop["destination"] + hop["source"]) + tag
            head += b"\x86\xdd" if frame.six else b"\x08\x00"
            if frame.six:
                head += (
                    b"\x60\x00\x00\x00" + frame.ip[4:6] + bytes([UDP, hop["ttl"]]) + address + to
                )
            else:
                ip = b"\x45\x00" + frame.ip[2:4] + b"\x00\x00\x40\x00" + bytes([hop["ttl"], UDP])
                head += ip + checksum(ip + address + to) + address + to
            head += port.to_bytes(2, "big") + to_port.to_bytes(2, "big")
            ports_end = 4 + (40 if frame.six else 20)
            copy = self._with(frame, head + frame.ip[ports_end:], message, len(tag))
            self.outcome.copies.append((hop["interface"], copy))
            self.outcome.counters["copies"] += 1

    @staticmethod
    def _trailer(
        message: bytes, payload: int, rule: dict[str, Any], times_ns: tuple[int, int]
    ) -> bytes:
        content = message[payload:]
        due = 17 <= len(content) <= 64 and content[0] >> 4 == 2
        if "residence" not in rule.get("flags", []) or not due:
            return message
        old = message[-16:]
        arrival_ns, now_ns = times_ns
        spent_ns = now_ns - arrival_ns
        total = int.from_bytes(old[:8], "big") + (spent_ns - spent_ns // 512 << 16)
        source = 2 if old == bytes(16) else min(2, old[15])
        good = old == bytes(16) or 1 <= old[15] <= 3
        stamped = arrival_ns and now_ns and 0 <= spent_ns < 100_000_000
        if not good or not stamped or total >> 64:
            return message[:-16] + NOT_STATED
        return message[:-16] + total.to_bytes(8, "big") + NOT_STATED[8:15] + bytes([source])

    @staticmethod
    def _with(frame: Frame, octets: bytes, message: bytes, tag: int) -> bytes:
        """Return the frame with this message, and the UDP checksum that it needs."""
        start = 14 + tag + (40 if frame.six else 20)
        length = octets[start + 4 : start + 6]
        addresses = octets[start - (32 if frame.six else 8) : start]
        udp = octets[start : start + 6] + bytes(2) + message
        pseudo = addresses + bytes([0, UDP]) + length
        total = checksum(pseudo + udp)
        if octets[start + 6 : start + 8] == bytes(2):
            total = bytes(2)
        elif frame.unfinished:
            total = ones_sum(pseudo).to_bytes(2, "big")
        elif total == bytes(2):
            total = b"\xff\xff"
        return octets[: start + 6] + total + message + frame.padding
