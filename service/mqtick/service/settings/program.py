"""The configuration keys that every mqtick program shares: broker, pins, real-time settings."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.service.settings.schema import key


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker's address, and our account there."""

    broker: str = key(
        "mqtt://localhost",
        "Address of the MQTT broker: mqtt://HOST[:PORT], mqtts://, ws://HOST/PATH, wss://, "
        "mqtt+udp://HOST[:PORT] or unix:///PATH. A user name may precede the host, a password "
        "never.",
    )
    mqtt_version: str = key(
        "5", "Version of MQTT to speak; over UDP it is 3.1.1.", choices=("5", "3.1.1")
    )
    username: str = key("", "User name at the broker; empty for none.")
    password_file: str = key("", "File with the password, in its first line; empty for none.")
    ca_file: str = key(
        "", "Certificate authorities (PEM) for mqtts:// and wss://; empty for the system's."
    )
    certificate_file: str = key("", "Our own certificate (PEM), if the broker asks for one.")
    certificate_key_file: str = key("", "The private key (PEM) of our own certificate.")
    client_id: str = key(
        "",
        "MQTT client identifier, for a broker that binds it to the account; further connections "
        "of a program add -first, -doctor and the like. Empty: one that nobody can guess.",
    )
    keepalive_s: int = key(
        15, "A broker that is silent for this long is considered lost.", minimum=2, maximum=3600
    )
    connect_timeout_s: float = key(
        5.0, "Longest wait for the broker's answer to a connection.", minimum=0.1, maximum=60.0
    )
    timestamps: str = key(
        "auto",
        "Who stamps messages: the kernel where it can (auto), or this program (user).",
        choices=("auto", "user"),
    )


@dataclass(frozen=True, slots=True)
class ConnectionSettings(BrokerSettings):
    """The broker's address, our account there, and the topics of time messages."""

    prefix: str = key("mqtick", "First level of the topics of the precise format.")
    keys_file: str = key(
        "",
        "File with the keys that authenticate time messages (see docs/protocol.md); empty: "
        "messages carry no tag and anyone who may publish can set the time.",
    )


@dataclass(frozen=True, slots=True)
class PinKeys:
    """One output pin; the keys are those of `mqtick.pins.PinSettings`, which explains them."""

    backend: str = key(
        "none", "none, or the back end: gpiod, gpiomem, pigpio, memory (see pins/README.md)."
    )
    line: int = key(17, "GPIO number on the chip (BCM number on a Pi).", minimum=0)
    mode: str = key(
        "toggle", "Each edge flips the line, or makes a pulse.", choices=("toggle", "pulse")
    )
    width_us: int = key(100, "Length of a pulse.", minimum=1, maximum=500_000)
    active_low: bool = key(False, "The line rests high.")
    chip_label: str = key("", "gpiod: label or path of the chip; empty: the Pi's header.")
    device: str = key("", "gpiomem: file of the registers; empty: the board's.")
    host: str = key("localhost", "pigpio: where the daemon runs.")
    port: int = key(8888, "pigpio: TCP port of the daemon.", minimum=1, maximum=65535)
    timeout_ms: int = key(100, "pigpio: longest wait for an answer.", minimum=1, maximum=10_000)
    sink: str = key("", "memory: Unix datagram socket, or fd:N, that receives each edge.")
    ring_edges: int = key(4096, "memory: edges kept.", minimum=1, maximum=1_000_000)


@dataclass(frozen=True, slots=True)
class RealtimeKeys:
    """Settings against delays of the process; each is tried, and reported if it fails."""

    lock_memory: bool = key(True, "Keep all memory resident (needs LimitMEMLOCK).")
    quiet_garbage_collector: bool = key(
        True, "Collect garbage in idle time only, never between an arrival and its pin."
    )
    cpus: tuple[int, ...] = key((), "CPUs to run on; empty for all.")
    expect_fifo: bool = key(
        False, "Report it if the process does not run under SCHED_FIFO (the unit file sets it)."
    )
