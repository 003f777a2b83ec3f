"""Configuration of the time server: /etc/mqtick/timeserver.toml."""

from __future__ import annotations

from dataclasses import dataclass

from mqtick.service.settings.program import ConnectionSettings, PinKeys, RealtimeKeys
from mqtick.service.settings.schema import key, table


@dataclass(frozen=True, slots=True)
class Settings(ConnectionSettings):
    """What the time server does."""

    number: int = key(
        0, "Number of this server on its broker; every server has its own.", minimum=0, maximum=255
    )
    interval_s: float = key(
        1.0,
        "Time between two time messages, which leave at whole multiples of it.",
        minimum=0.01,
        maximum=64.0,
    )
    formats: tuple[str, ...] = key(
        ("precise",),
        "Formats to publish and to answer in. Only precise has tags and can say unsynchronised; "
        "the others are for nodes by other authors.",
        choices=("precise", "1451.1.6", "draft-2021"),
    )
    name: str = key(
        "",
        "Logical name LOCATION/NAME of this server in the 1451.1.6 format; empty: mqtick/HOSTNAME.",
    )
    draft_location: str = key("location", "First topic level of the draft-2021 format.")
    trust_system_clock: bool = key(
        False,
        "Publish this host's clock as synchronised without asking chronyd: for a host whose clock "
        "is the fleet's reference by definition.",
    )
    trusted_stratum: int = key(
        1, "Stratum published with trust_system_clock.", minimum=1, maximum=15
    )
    trusted_root_distance_us: float = key(
        0.0, "Root distance published with trust_system_clock.", minimum=0.0, maximum=1e9
    )
    chronyd_interval_s: float = key(
        4.0, "Time between two queries to chronyd.", minimum=0.5, maximum=60.0
    )
    chronyd_host: str = key(
        "", "Address, or path of the command socket, of the chronyd to ask; empty: this host's."
    )
    chronyd_port: int = key(
        323, "UDP port of that chronyd's command socket.", minimum=1, maximum=65535
    )
    echo: bool = key(True, "Offer the private echo, which brackets each client's reply.")
    residence: bool = key(
        True,
        "Speak version 2, with the time that each message spent in the broker, while the broker "
        "says that. Off for a fleet with clients that know version 1 only.",
    )
    client_requests_per_s: float = key(
        4.0, "Requests answered per client, on average.", minimum=0.01, maximum=1000.0
    )
    client_burst: int = key(
        40, "Requests answered per client in one burst.", minimum=1, maximum=10000
    )
    total_requests_per_s: float = key(
        1000.0, "Requests answered for all clients together.", minimum=1.0, maximum=100000.0
    )
    pulse: str = key(
        "after",
        "When the pin is driven: right after the time message was sent (the published method), "
        "or just before it.",
        choices=("after", "before"),
    )
    state_folder: str = key(
        "", "Folder of status.json; empty: $RUNTIME_DIRECTORY or /run/mqtick-timeserver."
    )
    metrics_listen: str = key(
        "", "ADDRESS:PORT of the Prometheus metrics, for example 127.0.0.1:9752; empty for none."
    )
    experiments: bool = key(
        False,
        "Obey the commands of an experiment's runner (mqtick-lab) on a topic of its own: for a "
        "bench, not for a fleet (see docs/protocol.md).",
    )
    virtual_clock: str = key(
        "",
        "For tests: serve a wrong clock, as offset_s=0.005,frequency_ppm=20; empty for the host's.",
    )
    pin: PinKeys = table(PinKeys, "A pin driven with each time message.")
    pps: PinKeys = table(PinKeys, "A pin driven at each whole second of the clock.")
    realtime: RealtimeKeys = table(RealtimeKeys, "How the process is kept from being held up.")
