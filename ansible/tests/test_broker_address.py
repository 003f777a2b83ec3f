"""The playbooks and the programs agree on what a broker's address looks like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from mqtick.mqtt.broker import BrokerError, parse_broker_url

TASKS = Path(__file__).parent.parent / "roles/fleet/tasks/variables.yml"
GOOD = [
    "mqtt://broker.lan",
    "mqtts://broker.lan:8883",
    "mqtt://[2001:db8::7]:1883",
    "wss://broker.lan/time",
    "unix:///run/broker.sock",
    "mqtt+udp://broker.lan",
    "mqtt+udp://192.0.2.7:1884",
    "mqtt+udp://192.0.2.7?dialect=published&port=4000",
]
BAD = [
    "http://broker.lan",
    "mqtt+udp://",
    "mqtt+udp://pi@broker.lan",
    "mqtt+udp://[2001:db8::7]",
    "mqtt+udp://broker.lan/time",
    "mqtt+udp://broker.lan?dialect=other",
    "mqtt+tcp://broker.lan",
]


@pytest.fixture
def pattern() -> str:
    """What the playbook matches an address with, any of it, as Jinja reads it."""
    (task,) = (
        one
        for one in yaml.safe_load(TASKS.read_text(encoding="utf-8"))
        if one["name"] == "Check the address of the broker"
    )
    found = re.findall(r"match\('(.*?)'\)", task["ansible.builtin.assert"]["that"])
    return "|".join(found).replace("\\\\", "\\")


@pytest.mark.parametrize("address", GOOD)
def test_an_address_that_the_programs_take_is_taken(pattern: str, address: str) -> None:
    assert parse_broker_url(address)
    assert re.match(pattern, address)


@pytest.mark.parametrize("address", BAD)
def test_an_address_that_the_programs_refuse_is_refused(pattern: str, address: str) -> None:
    with pytest.raises(BrokerError):
        parse_broker_url(address)
    assert not re.match(pattern, address)
