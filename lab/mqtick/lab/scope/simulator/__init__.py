"""Simulated oscilloscopes: real edges in, the octets of an instrument out."""

from __future__ import annotations

from typing import Final

from mqtick.lab.scope.families import Families
from mqtick.lab.scope.simulator.faults import KINDS, Faults
from mqtick.lab.scope.simulator.feed import EdgeFeed
from mqtick.lab.scope.simulator.front import Front
from mqtick.lab.scope.simulator.keysight import KeysightFront
from mqtick.lab.scope.simulator.model import Model, Physics
from mqtick.lab.scope.simulator.rigol_series import (
    RigolDhoFront,
    RigolDs1000zFront,
    RigolMso5000Front,
)
from mqtick.lab.scope.simulator.server import InstrumentServer

__all__ = [
    "FRONTS",
    "KINDS",
    "EdgeFeed",
    "Faults",
    "Front",
    "InstrumentServer",
    "Model",
    "Physics",
]

FRONTS: Final[Families[Front]] = Families(
    "mqtick.simulated_oscilloscopes",
    Front,
    (KeysightFront, RigolDs1000zFront, RigolMso5000Front, RigolDhoFront),
    {"identity": str},
)
