"""What decoders of other authors, scapy's and tshark's, read in what we send."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

BROKERS = {1883: "mqttsn", 1884: "mqtt"}
"""Ports of brokers, and what tshark calls their protocol."""


def tshark(packets: list[Any], folder: Path, *fields: str) -> list[list[str]]:
    """Return these fields of each of scapy's packets, as tshark reads them, checksums too."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (make setup-test); scapy has read it all")
    utils = pytest.importorskip("scapy.utils")
    capture = folder / "sent.pcap"
    utils.wrpcap(str(capture), packets)
    settings = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    settings += ["-d", "udp.port==1883,mqttsn", "-d", "tcp.port==1884,mqtt", "-T", "fields"]
    for field in fields:
        settings += ["-e", field]
    read = subprocess.run(
        [program, "-n", "-r", str(capture), *settings], capture_output=True, text=True, check=True
    )
    return [line.split("\t") for line in read.stdout.splitlines()]


def others_read(frames: list[tuple[bytes, str]], folder: Path) -> None:
    """Each frame from a broker is read whole; its UDP sum is "good", "none" or "unfinished"."""
    layers, sn = pytest.importorskip("scapy.layers.l2"), pytest.importorskip("scapy.contrib.mqttsn")
    mqtt = pytest.importorskip("scapy.contrib.mqtt")
    inet = pytest.importorskip("scapy.layers.inet")
    sent, messages = [layers.Ether(frame) for frame, _ in frames], []
    for packet in sent:
        udp = packet[inet.UDP]
        octets = bytes(udp.payload)[: udp.len - 8]
        messages.append((BROKERS[udp.sport], octets))
        if udp.sport == 1883:
            found = sn.MQTTSN(octets)
            assert found.len == len(octets)
            assert isinstance(found.payload, sn.MQTTSNPublish)
        else:
            found = mqtt.MQTT(octets)
            assert isinstance(found.payload, mqtt.MQTTPublish)
            assert 2 + found.payload.length + len(found.payload.value) == found.len
        assert not found.haslayer("Raw"), found.summary()
    states = {"good": "1", "none": "3", "unfinished": "0"}
    fields = ("ip.checksum.status", "udp.checksum.status", "mqttsn.msg.type", "mqttsn.msg.len")
    for line, packet, (kind, octets), (_, checksum) in zip(
        tshark(sent, folder, *fields, "_ws.malformed"), sent, messages, frames, strict=True
    ):
        assert line[0] == ("1" if inet.IP in packet else "")
        assert line[1] == states[checksum], packet.summary()
        assert line[4] == ""
        assert line[2:4] == (["0x0c", str(len(octets))] if kind == "mqttsn" else ["", ""])
    # tshark reads MQTT in TCP only.
    in_tcp, at = [], 1
    over_udp = [octets for kind, octets in messages if kind == "mqtt"]
    for octets in over_udp:
        in_tcp.append(inet.IP() / inet.TCP(sport=1884, dport=5000, flags="PA", seq=at) / octets)
        at += len(octets)
    for line, octets in zip(
        tshark(in_tcp, folder, "mqtt.msgtype", "mqtt.len", "mqtt.topic", "_ws.malformed"),
        over_udp,
        strict=True,
    ):
        topic = octets[4 if octets[1] < 128 else 5 :][: octets[3 if octets[1] < 128 else 4]]
        head = 2 if octets[1] < 128 else 3
        assert line == ["3", str(len(octets) - head), topic.decode(), ""]
