"""What the tests of logic analysers have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mqtick.lab.logic.analyser import LogicAnalyser
from mqtick.lab.scope.settings import ChannelSettings, ScopeSettings, Trigger

# What sigrok-cli 0.7.2 prints of a clone of the Saleae Logic, from other people's notes.
FX2LAFW = """Driver functions:
    Logic analyzer
Scan options:
    conn
fx2lafw:conn=1.30 - Saleae Logic [S/N: Saleae Logic] with 8 channels: D0 D1 D2 D3 D4 D5 D6 D7
Channel groups:
    Logic: channels D0 D1 D2 D3 D4 D5 D6 D7
Supported configuration options across all channel groups:
    continuous: on, off
    limit_samples: 0 (current)
    conn: 1.30 (current)
    samplerate - supported samplerates:
      20 kHz (current)
      25 kHz
      1 MHz
      12 MHz
      16 MHz
      24 MHz
      48 MHz
    Supported triggers: 0 1 r f e
    captureratio: 0 (current)
"""
OLDER = """fx2lafw:conn=2.31 - Saleae Logic with 8 channels: 0 1 2 3 4 5 6 7
Supported driver options:
    conn
Supported configuration options:
    Supported triggers: 0 1 
    samplerate - supported samplerates:
      20 kHz
      24 MHz
"""  # noqa: W291


def usual(*channels: int, trigger: int = 1, slope: str = "rising", **more: object) -> ScopeSettings:
    options: dict[str, object] = {"span_s": 1e-3, "points": 1000, "before": 0.2} | more
    return ScopeSettings(
        tuple(ChannelSettings(number) for number in channels),
        Trigger(trigger, slope=slope),
        **options,  # type: ignore[arg-type]
    )


@contextmanager
def analyser(
    resource: str, wanted: ScopeSettings, program: str = "sigrok-cli"
) -> Iterator[LogicAnalyser]:
    device = LogicAnalyser(resource, program=program)
    try:
        device.set_up(wanted)
        yield device
    finally:
        device.close()
