"""The experiment file: the measurement, its instruments, and the pins that they are wired to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mqtick.service.settings.load import render
from mqtick.service.settings.program import BrokerSettings
from mqtick.service.settings.schema import key, table, tables


@dataclass(frozen=True, slots=True)
class InstrumentKeys:
    """One oscilloscope or logic analyser."""

    resource: str = key(
        "",
        "VISA resource name, as TCPIP::192.168.1.5::5025::SOCKET; or sigrok:DRIVER for a logic "
        "analyser.",
    )
    dialect: str = key("auto", "Family of the instrument; auto: by what it says it is.")
    span_us: float = key(
        2000.0, "Time from the first to the last sample.", minimum=0.1, maximum=10_000_000.0
    )
    before: float = key(0.1, "Share of the record before the trigger.", minimum=0.0, maximum=0.95)
    points: int = key(
        100_000,
        "Samples per channel; the instrument takes the nearest number that it has.",
        minimum=100,
        maximum=10_000_000,
    )
    trigger: str = key("", "Name of the channel that triggers.")
    trigger_level_v: float = key(1.65, "Trigger level in V.", minimum=-50.0, maximum=50.0)
    trigger_slope: str = key(
        "rising",
        "Direction of the edge that triggers; either where the pin toggles, rising for pulses.",
        choices=("rising", "falling", "either"),
    )


@dataclass(frozen=True, slots=True)
class ChannelKeys:
    """One input of an instrument, and the pin that it is wired to."""

    instrument: str = key("", "Name of the instrument.")
    input: int = key(1, "Number of the input, as on the instrument.", minimum=0, maximum=64)
    node: str = key("", 'Whose pin it is: "server:NUMBER" or "client:NAME".')
    pin: str = key(
        "arrival",
        "Which of its pins: time (server), arrival (client) or pps (both).",
        choices=("time", "arrival", "pps"),
    )
    cable_delay_ns: float = key(
        0.0,
        "Delay of cable and probe, which the analysis subtracts (raw data keep it).",
        minimum=-1e6,
        maximum=1e6,
    )
    volts_per_division: float = key(1.0, "Vertical scale in V.", minimum=1e-3, maximum=100.0)
    offset_v: float = key(
        1.65, "Voltage in the middle of the screen in V.", minimum=-50.0, maximum=50.0
    )
    probe: float = key(10.0, "Attenuation of the probe.", minimum=0.01, maximum=10_000.0)
    deskew_ns: float = key(
        0.0,
        "Delay that the instrument itself subtracts; do not give it as cable_delay_ns too.",
        minimum=-1000.0,
        maximum=1000.0,
    )


@dataclass(frozen=True, slots=True)
class OrderKeys:
    """The roles of channels: latency is first minus publisher, skew is last minus first."""

    publisher: str = key("", "Channel of the server's pin; for kind clock, the reference.")
    first: str = key("", "Channel of the client that subscribes first.")
    last: str = key("", "Channel of the client that subscribes last.")


@dataclass(frozen=True, slots=True)
class CrowdKeys:
    """The source of the unmeasured subscribers."""

    processes: int = key(
        2, "Crowd processes that the runner starts on this host.", minimum=0, maximum=64
    )
    nodes: tuple[str, ...] = key((), 'Crowd processes that run elsewhere, as "crowd:NAME".')


@dataclass(frozen=True, slots=True)
class TimeoutKeys:
    """How long the runner waits, and when it gives up."""

    arm_s: float = key(5.0, "For an instrument to be armed.", minimum=0.1, maximum=600.0)
    trigger_s: float = key(
        5.0, "For the trigger; then the shot is recorded as missed.", minimum=0.01, maximum=3600.0
    )
    subscribe_s: float = key(10.0, "For one node to subscribe.", minimum=0.1, maximum=600.0)
    instrument_s: float = key(3.0, "For one answer of an instrument.", minimum=0.1, maximum=600.0)
    broker_s: float = key(
        5.0, "For the broker, and for a node's answer.", minimum=0.1, maximum=600.0
    )
    misses: int = key(
        5, "Missed shots in a row after which the run stops.", minimum=1, maximum=100_000
    )
    give_up_s: float = key(
        60.0,
        "How long to retry an instrument or broker that is gone.",
        minimum=0.0,
        maximum=86_400.0,
    )


@dataclass(frozen=True, slots=True)
class Experiment(BrokerSettings):
    """An experiment."""

    title: str = key("", "What this is, for people who read the result.")
    kind: str = key(
        "skew",
        "latency (from publisher to subscriber), skew (first to last subscriber) or clock "
        "(pps pins against the publisher's).",
        choices=("latency", "skew", "clock"),
    )
    subscribers: tuple[int, ...] = key(
        (2, 10, 50, 100), "Numbers of subscribers (N); clock has none.", minimum=1, maximum=100_000
    )
    shots: int = key(20, "Shots of each N, over all rounds together.", minimum=1, maximum=1_000_000)
    rounds: int = key(
        2,
        "How often all N are measured, in a new random order each time, so that drift is not "
        "mistaken for an effect of N.",
        minimum=1,
        maximum=10_000,
    )
    interval_s: float = key(
        1.0,
        "The time server's interval (fire = schedule), or the time between shots (request).",
        minimum=0.001,
        maximum=3600.0,
    )
    seed: int = key(1, "Seed of the order of N.", minimum=0)
    fire: str = key(
        "schedule",
        "schedule: each shot waits for the server's next message; request: asks for one.",
        choices=("schedule", "request"),
    )
    prefix: str = key("mqtick", "First level of the topics, the same as on the nodes.")
    instrument: Mapping[str, InstrumentKeys] = tables(InstrumentKeys, "Instruments.")
    channel: Mapping[str, ChannelKeys] = tables(
        ChannelKeys, "Inputs of the instruments, and what they are wired to."
    )
    order: OrderKeys = table(
        OrderKeys,
        "Which channel plays which part: latency is first minus publisher, skew last minus first.",
    )
    crowd: CrowdKeys = table(CrowdKeys, "Where the unmeasured subscribers come from.")
    timeouts: TimeoutKeys = table(TimeoutKeys, "How long to wait, and when the run stops.")

    def channels_of(self, instrument: str) -> dict[str, ChannelKeys]:
        """Return the channels of an instrument, by name."""
        return {
            name: channel
            for name, channel in self.channel.items()
            if channel.instrument == instrument
        }

    def measured(self) -> dict[str, str]:
        """Return the channels that have a role: role ("publisher", "first", "last") to name."""
        parts = {part.name: getattr(self.order, part.name) for part in fields(self.order)}
        return {part: name for part, name in parts.items() if name}

    def crowd_nodes(self) -> tuple[str, ...]:
        """Return the addresses of all crowd processes, those of this host first."""
        local = tuple(f"crowd:local{number}" for number in range(1, self.crowd.processes + 1))
        return local + self.crowd.nodes


def flat(settings: object, path: str = "") -> dict[str, Any]:
    """Return settings by dotted key path, for JSON and for comparing two of them."""
    found: dict[str, Any] = {}
    inner = (
        settings.items()
        if isinstance(settings, Mapping)
        else ((field.name, getattr(settings, field.name)) for field in fields(settings))  # type: ignore[arg-type]
    )
    for name, value in inner:
        here = f"{path}{name}"
        if isinstance(value, Mapping) or hasattr(value, "__dataclass_fields__"):
            found |= flat(value, f"{here}.")
        else:
            found[here] = list(value) if isinstance(value, tuple) else value
    return found


def example() -> str:
    """Return an experiment file to start from: every key, explained, with a usual wiring."""
    resource = "TCPIP::192.168.1.5::5025::SOCKET"
    wiring = {"publisher": "server:0", "near": "client:pi1", "far": "client:pi2"}
    return render(
        Experiment(
            title="Skew between the first and the last of N subscribers",
            instrument={"scope": InstrumentKeys(resource=resource, trigger="publisher")},
            channel={
                name: ChannelKeys(
                    instrument="scope",
                    input=number,
                    node=node,
                    pin="time" if node.startswith("server") else "arrival",
                )
                for number, (name, node) in enumerate(wiring.items(), start=1)
            },
            order=OrderKeys(publisher="publisher", first="near", last="far"),
        )
    )
