"""Configuration of the client: /etc/mqtick/client.toml."""

from __future__ import annotations

import hashlib
import re
import socket
from dataclasses import dataclass, replace

from mqtick.client.estimator_settings import EstimatorSettings
from mqtick.service.settings.program import ConnectionSettings, PinKeys, RealtimeKeys
from mqtick.service.settings.schema import key, table

# At most 2 MB a day. Single exchanges, to have them often: on a long link the frequency is unknown
# for hours, and then the interval grows by `frequency_limit_ppm` between two of them.
_LOW_INTERVAL_S, _LOW_BURST, _LOW_KEEPALIVE_S = 48.0, 1, 90


@dataclass(frozen=True, slots=True)
class ChronyKeys:
    """Settings of the connection to chronyd."""

    socket: str = key(
        "/run/chrony.mqtick{server}.sock",
        "Socket of chronyd's SOCK reference clock; {server} stands for the server's number.",
    )
    check_interval_s: float = key(
        32.0,
        "Time between two checks that chronyd really takes the samples; 0 for none.",
        minimum=0.0,
        maximum=3600.0,
    )
    host: str = key(
        "", "Address, or path of the command socket, of the chronyd to check; empty: this host's."
    )
    port: int = key(323, "UDP port of that chronyd's command socket.", minimum=1, maximum=65535)


@dataclass(frozen=True, slots=True)
class Settings(ConnectionSettings):
    """What the client does."""

    name: str = key(
        "",
        "Name of this client in topics: 1 to 16 of A-Z a-z 0-9 _ . -; empty: the host's; a longer "
        "one is its first 9 characters and a hash.",
    )
    format: str = key(
        "auto",
        "Format to follow: auto follows precise, and the others only if no precise time is heard.",
        choices=("auto", "precise", "1451.1.6", "draft-2021"),
    )
    follow_unsigned: bool = key(
        False,
        "Follow formats without tags even if there are keys: anyone who may publish on the "
        "broker can then set this clock.",
    )
    server_name: str = key(
        "", "Logical name of the 1451.1.6 server to ask, for its replies; empty: any."
    )
    draft_location: str = key("location", "First topic level of the draft-2021 format.")
    draft_utc_offset_s: int = key(
        0,
        "How far the draft-2021 server's local time is ahead of UTC; its messages do not say.",
        minimum=-50400,
        maximum=50400,
    )
    discipline: str = key(
        "none",
        "Who disciplines the clock with the measurements: chrony, or nobody.",
        choices=("none", "chrony"),
    )
    traffic: str = key(
        "normal",
        "How much is sent and received. low is for a link that is paid by the octet: it hears no "
        "broadcasts and has an exchange every 48 s.",
        choices=("normal", "low"),
    )
    exchange_interval_s: float = key(
        16.0, "Time between two bursts of two-way exchanges.", minimum=0.1, maximum=3600.0
    )
    exchange_burst: int = key(4, "Exchanges in one burst.", minimum=1, maximum=32)
    exchange_spacing_ms: float = key(
        60.0, "Time between two exchanges of a burst.", minimum=1.0, maximum=10000.0
    )
    start_burst: int = key(12, "Exchanges of the first burst.", minimum=1, maximum=40)
    fast: bool = key(
        False, "Ask at once after connecting instead of after a random part of a second."
    )
    server_timeout_s: float = key(
        8.0, "A server that is not heard for this long is not asked any more.", minimum=1.0
    )
    time_tolerance_s: float = key(
        3600.0,
        "A time message that differs by more than this from what is known is refused. Without "
        "keys, a server's first time that differs by more than this from this host's clock is "
        "believed only once confirm_samples samples agree over confirm_s.",
        minimum=0.001,
        maximum=1e9,
    )
    time_messages_per_s: float = key(
        200.0,
        "Time messages of one server above this rate are ignored and counted.",
        minimum=1.0,
        maximum=1e5,
    )
    state_folder: str = key(
        "", "Folder of status.json; empty: $RUNTIME_DIRECTORY or /run/mqtick-client."
    )
    publish_status: bool = key(
        False,
        "Publish, retained, how good this clock is, every 10 s (a minute with traffic = low) and "
        "when its state changes, for `mqtick-client fleet` and dashboards.",
    )
    sample_log: str = key("", "File to which every sample is appended as JSON; empty for none.")
    metrics_listen: str = key(
        "", "ADDRESS:PORT of the Prometheus metrics, for example 127.0.0.1:9753; empty for none."
    )
    experiments: bool = key(
        False,
        "Obey the commands of an experiment's runner (mqtick-lab) on a topic of its own: for a "
        "bench, not for a fleet (see docs/protocol.md).",
    )
    virtual_clock: str = key(
        "",
        "For tests: a wrong clock, as offset_s=0.003,frequency_ppm=40,wander_ppb=1,seed=7; "
        "empty for the host's.",
    )
    estimator: EstimatorSettings = table(
        EstimatorSettings, "How offsets are measured, selected, averaged and bounded."
    )
    chrony: ChronyKeys = table(ChronyKeys, "How selected samples reach chronyd.")
    pin: PinKeys = table(PinKeys, "A pin driven on arrival of each time message.")
    pps: PinKeys = table(PinKeys, "A pin driven at each whole second of the disciplined clock.")
    realtime: RealtimeKeys = table(RealtimeKeys, "How the process is kept from being held up.")


def in_effect(settings: Settings) -> Settings:
    """Return the settings as `traffic` changes them."""
    if settings.traffic == "normal":
        return settings
    interval_s = max(settings.exchange_interval_s, _LOW_INTERVAL_S)
    return replace(
        settings,
        exchange_interval_s=interval_s,
        exchange_burst=min(settings.exchange_burst, _LOW_BURST),
        keepalive_s=max(settings.keepalive_s, _LOW_KEEPALIVE_S),
        estimator=replace(
            settings.estimator,
            # Both need messages of their own, and a long link has little to gain by them.
            use_echo=False,
            use_residence=False,
            holdover_after_s=max(settings.estimator.holdover_after_s, 3 * interval_s),
        ),
    )


def check_together(settings: Settings) -> None:
    """Find values that are valid alone but make no sense together; ValueError."""
    estimator = settings.estimator
    if settings.traffic == "low":
        uses = {
            "format": settings.format in ("1451.1.6", "draft-2021"),
            "pin.backend": settings.pin.backend != "none",
            "experiments": settings.experiments,
            "estimator.use_two_way": not estimator.use_two_way,
        }
        if wrong := [name for name, needs in uses.items() if needs]:
            raise ValueError(
                f"traffic is low, so no broadcast is heard, but {wrong[0]} needs them: leave one "
                "of the two out."
            )
    if settings.keys_file and not estimator.use_two_way:
        raise ValueError(
            "keys_file is set and estimator.use_two_way is false: with keys nothing is believed "
            "before an exchange, so this client would never be synchronised; leave one out."
        )
    if estimator.prefer_better_s >= estimator.holdover_after_s:
        raise ValueError(
            f"estimator.prefer_better_s is {estimator.prefer_better_s:g}, not below "
            f"estimator.holdover_after_s ({estimator.holdover_after_s:g}): when exchanges end, "
            "the client would be in holdover before it uses broadcasts; leave 10 s between "
            "them."
        )


def client_name(settings: Settings) -> str:
    """Return the configured name, or the host's; a long one is cut, and told apart by a hash."""
    host = socket.gethostname()
    if settings.name or re.fullmatch(r"[A-Za-z0-9_.-]{1,16}", host):
        return settings.name or host
    short = re.sub(r"[^A-Za-z0-9_.-]", "-", host)[:9] or "client"
    return f"{short}-{hashlib.sha256(host.encode()).hexdigest()[:6]}"
