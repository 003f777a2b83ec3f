"""The rules of `broker/spec/acceleration.md` in plain Python: what becomes of one frame."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

KINDS = ("registered", "predefined", "short", "name")
NOT_STATED = bytes(8) + b"\x80" + bytes(7)
UDP = 17
Endpoint = tuple[bytes, int, int]


class RefusedError(Exception):
    """The frame is not one to copy; the argument is the counter's name."""


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
        except RefusedError as reason:
            if not from_broker:
                self.outcome.counters[str(reason)] += 1
            return self.outcome
        protocol = self.brokers[number]["protocol"]
        what = self._sn(frame) if protocol == "mqtt-sn" else self._udp(frame)
        if what == "publish" and not from_broker:
            self._publish(frame, number, arrival_ns, now_ns)
        elif what == "message":
            at = len(frame.octets) - len(frame.padding) - len(frame.message)
            self._report("message", from_broker, at)
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
                self._report(unread, from_broker, 0)
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
        udp_length = int.from_bytes(ip[head + 4 : head + 6], "big")
        if len(frame.octets) > 1536 or total > len(ip) or total != head + udp_length:
            raise RefusedError("length")
        if udp_length <= 8:
            raise RefusedError("length")
        udp, frame.padding = ip[head:total], ip[total:]
        frame.message = udp[8:]
        pseudo = frame.source + frame.destination + bytes([0, UDP]) + ip[head + 4 : head + 6]
        if not frame.six and ones_sum(ip[:20]) != 0xFFFF:
            raise RefusedError("checksum")
        unsummed = udp[6:8] == bytes(2) and not frame.six
        unfinished = int.from_bytes(udp[6:8], "big") == ones_sum(pseudo)
        if not (unsummed or unfinished) and (
            udp[6:8] == bytes(2) or ones_sum(pseudo + udp) != 0xFFFF
        ):
            raise RefusedError("checksum")

    def _report(self, reason: str, from_broker: bool, at: int) -> None:
        self.outcome.counters["events"] += 1
        self.outcome.event = {"reason": reason, "from_broker": from_broker, "message": at}

    def _sn(self, frame: Frame) -> str:
        message = frame.message
        at = 3 if message[0] == 1 else 1
        kind = message[at] if len(message) > at else 0
        return "publish" if kind == 0x0C else "other" if 0x0C < kind <= 0x10 else "message"

    def _udp(self, frame: Frame) -> str:
        kind = frame.message[0] >> 4
        return "publish" if kind == 3 else "other" if 4 <= kind <= 7 else "message"

    def _topic(self, frame: Frame, protocol: str) -> tuple[str, bytes, int]:
        """Return kind, id or name, and where the payload begins."""
        message = frame.message
        if protocol == "mqtt-sn":
            at = 3 if message[0] == 1 else 1
            length = int.from_bytes(message[1:3], "big") if at == 3 else message[0]
            if length != len(message) or length < at + 6 or (at == 3 and length < 256):
                raise RefusedError("length")
            topic = KINDS[message[at + 1] & 3], message[at + 2 : at + 4], at + 6
            good = message[at + 1] <= 2 and message[at + 4 : at + 6] == bytes(2)
        else:
            message += bytes(8)
            remaining, at = message[1], 2
            if remaining & 0x80:
                remaining, at = remaining & 0x7F | message[2] << 7, 3
                if not 0 < message[2] < 128:
                    raise RefusedError("length")
            name = int.from_bytes(message[at : at + 2], "big")
            if len(frame.message) != at + remaining or not 0 < name <= 64 or remaining < 2 + name:
                raise RefusedError("length")
            topic = "name", message[at + 2 : at + 2 + name], at + 2 + name
            good = message[0] == 0x30
        if not good:
            self.hindrance = "qos"
        elif not self._source_is_good(frame):
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
        self.hindrance = ""
        try:
            kind, topic, payload = self._topic(frame, self.brokers[number]["protocol"])
        except RefusedError as reason:
            counters[str(reason)] += 1
            return
        rule = self._rule(frame, number, kind, topic)
        if rule is None:
            counters[self.hindrance or "no_rule"] += 1
            if not self.hindrance:
                at = len(frame.octets) - len(frame.padding) - len(frame.message)
                self._report("no_rule", False, at)
            return
        flags = rule.get("flags", [])
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
            return
        self._copy(frame, rule, payload, (arrival_ns, now_ns))
        counters["hits"] += 1
        if "broker" in flags:
            counters["to_broker"] += 1
            if "mark" in flags and kind != "name":
                at = payload - 5
                marked = bytes([frame.message[at] | 8])
                message = frame.message[:at] + marked + frame.message[at + 1 :]
                self.outcome.original = self._with(frame, frame.octets, message)
        else:
            self.outcome.verdict = "drop"

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
            head = bytes.fromhex(hop["destination"] + hop["source"]) + frame.tag
            head += b"\x86\xdd" if frame.six else b"\x08\x00"
            if frame.six:
                head += (
                    b"\x60\x00\x00\x00" + frame.ip[4:6] + bytes([UDP, hop["ttl"]]) + address + to
                )
            else:
                ip = b"\x45\x00" + frame.ip[2:4] + b"\x00\x00\x40\x00" + bytes([hop["ttl"], UDP])
                head += ip + checksum(ip + address + to) + address + to
            head += port.to_bytes(2, "big") + to_port.to_bytes(2, "big")
            ports_end = 4 + len(frame.octets) - len(frame.ip) + (40 if frame.six else 20)
            copy = self._with(frame, head + frame.octets[ports_end:], message)
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
        total = int.from_bytes(old[:8], "big") + (now_ns - arrival_ns << 16)
        source = 2 if old == bytes(16) else min(2, old[15])
        good = old == bytes(16) or 1 <= old[15] <= 3
        stamped = arrival_ns and now_ns and 0 <= now_ns - arrival_ns < 100_000_000
        if not good or not stamped or total >> 64:
            return message[:-16] + NOT_STATED
        return message[:-16] + total.to_bytes(8, "big") + NOT_STATED[8:15] + bytes([source])

    @staticmethod
    def _with(frame: Frame, octets: bytes, message: bytes) -> bytes:
        """Return the frame with this message, and the UDP checksum that it needs."""
        start = len(frame.octets) - len(frame.ip) + (40 if frame.six else 20)
        length = octets[start + 4 : start + 6]
        addresses = octets[start - (32 if frame.six else 8) : start]
        udp = octets[start : start + 6] + bytes(2) + message
        total = checksum(addresses + bytes([0, UDP]) + length + udp)
        if octets[start + 6 : start + 8] == bytes(2):
            total = bytes(2)
        elif total == bytes(2):
            total = b"\xff\xff"
        return octets[: start + 6] + total + message + frame.padding
