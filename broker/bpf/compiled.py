"""The data plane's C code, built for user space (`user/user.c`), behind the vectors' words."""

from __future__ import annotations

import ctypes
import struct
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from broker.bpf.model import KINDS, endpoint

# In the order of `enum counter`.
COUNTERS = (
    *("fragment", "header", "length", "checksum", "qos", "source", "no_rule", "disabled"),
    *("closed", "waiting", "stale", "hits", "copies", "unreachable", "refused", "to_broker"),
    *("events", "events_lost", "kept_back"),
)
REASONS = ("message", "fragment", "header", "no_rule")
ALIVE, DEAD = 2**63, 0
DROP = 2
MAX_FRAME = 1536


def mapped(text: str) -> bytes:
    """Return the 16 octets of an address."""
    packed = ip_address(text).packed
    return packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed


def place(text: str, vlan: int = 0) -> bytes:
    """Return `struct endpoint`."""
    host, port, _ = endpoint(text)
    return struct.pack("!16sH", mapped(str(ip_address(host))), port) + struct.pack("=H", vlan)


class Library:
    """The library, as a data plane."""

    def __init__(self, path: Path) -> None:
        self._c = ctypes.CDLL(str(path))
        for counted in (self._c.mqtick_counter, self._c.mqtick_slow, self._c.mqtick_unread):
            counted.restype = ctypes.c_uint64

    def _set(self, name: str, key: bytes, value: bytes) -> None:
        assert self._c.mqtick_set(name.encode(), key, value) == 0

    def load(self, case: dict[str, Any]) -> None:
        """Write a vector's tables."""
        self._c.mqtick_reset()
        number = struct.Struct("=I").pack
        for at, broker in enumerate(case["brokers"]):
            value = bytes([at, 1 if broker["protocol"] == "mqtt-sn" else 2, 0, 0])
            vlan = broker.get("vlan", 0)
            self._set("brokers", place(broker["address"], vlan), value)
        for at, broker in reversed([*enumerate(case["brokers"])]):
            any_port = place(broker["address"], broker.get("vlan", 0))
            self._set("brokers", any_port[:16] + bytes(2) + any_port[18:], bytes([at, 0, 0, 0]))
        for at, hop in enumerate(case["hops"]):
            macs = bytes.fromhex(hop["destination"] + hop["source"])
            ttl, up, vlan = hop["ttl"], hop["up"], hop.get("vlan", 0)
            value = struct.pack("=I12sBBH", hop["interface"], macs, ttl, up, vlan)
            self._set("hops", number(at), value)
        first = 0
        self._rules = case["rules"]
        for at, rule in enumerate(case["rules"]):
            for place_of, one in enumerate(rule["subscribers"], first):
                value = place(one["address"])[:18] + bytes.fromhex(one["topic"] or "0000")
                value += struct.pack("=HBx", one["hop"], KINDS.index(one["kind"]))
                self._set("subscribers", number(place_of), value)
            name = bytes.fromhex(rule["topic"])
            is_name = rule["kind"] == "name"
            key = place(rule["publisher"])[:18] if rule["publisher"] else bytes(18)
            key += bytes(2) if is_name else name
            key += bytes([rule["broker"], KINDS.index(rule["kind"]), len(name) * is_name, 0])
            key += name.ljust(64, b"\0") if is_name else bytes(64)
            flags = sum(
                bit
                for word, bit in (("broker", 1), ("mark", 2), ("residence", 4), ("pass", 8))
                if word in rule.get("flags", [])
            )
            opened = 2**64 - 1 if rule.get("closed") else 0
            count = len(rule["subscribers"])
            self._set("rules", key, struct.pack("=IIIIQ", first, count, at, flags, opened))
            first += count
        settings = case.get("settings", {})
        alive = DEAD if settings.get("stale") else ALIVE
        done = 1 if settings.get("waiting") else 0
        flags = 1 if settings.get("slewed") else 3
        ahead_ns = settings.get("ahead_ns", 0)  # no vector has it
        value = struct.pack("=QQQqII", alive, done, 0, ahead_ns, flags, 0)
        self._set("all_settings", number(0), value)

    def _slow(self) -> list[int]:
        """Return what each rule's `open` is compared with."""
        found = []
        for at, rule in enumerate(self._rules):
            by = place(rule["publisher"])[:16] if rule["publisher"] else None
            found.append(self._c.mqtick_slow(at) + self._c.mqtick_unread(by))
        return found

    def arrives(self, frame: bytes, arrival_ns: int, now_ns: int) -> dict[str, Any]:
        """Say what becomes of a frame, in the vectors' words."""
        before = [self._c.mqtick_counter(n) for n in range(len(COUNTERS))]
        slow = self._slow()
        octets = ctypes.create_string_buffer(frame, len(frame) + 4)
        out, length = ctypes.POINTER(ctypes.c_uint8)(), ctypes.c_uint32()
        left = ctypes.c_uint32(len(frame))
        verdict = self._c.mqtick_run(
            0, octets, ctypes.byref(left), ctypes.c_uint64(arrival_ns), ctypes.c_uint64(now_ns),
            ctypes.byref(out), ctypes.byref(length),
        )  # fmt: skip
        output = ctypes.string_at(out, length.value)
        original = octets.raw[: left.value]
        tag = 4 if original[12:14] == b"\x81\x00" else 0
        untagged = original[:12] + original[12 + tag :]
        copies: list[dict[str, Any]] = []
        event = None
        while output:
            what, size = struct.unpack_from("=II", output)
            octets_out, output = output[8 : 8 + size], output[8 + size :]
            if what != 2**32 - 1:
                copies.append({"interface": what, "frame": octets_out.hex()})
                continue
            assert octets_out[32:] == untagged[:MAX_FRAME]
            message = struct.unpack_from("=H", octets_out, 28)[0]
            event = {
                "reason": REASONS[octets_out[26]],
                "from_broker": bool(octets_out[27] & 2),
                "raises": bool(octets_out[27] & 8),
                "message": message,
            }
        after = [self._c.mqtick_counter(n) - old for n, old in enumerate(before)]
        changed = original != frame and verdict != DROP
        return {
            "verdict": "drop" if verdict == DROP else "pass",
            "original": original.hex() if changed else None,
            "closed": [
                n for n, (old, new) in enumerate(zip(slow, self._slow(), strict=True)) if new != old
            ],
            "copies": copies,
            "counters": {name: n for name, n in zip(COUNTERS, after, strict=True) if n},
            "event": event,
        }
