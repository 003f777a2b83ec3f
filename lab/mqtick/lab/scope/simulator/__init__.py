"""Simulated oscilloscopes: real edges in, the octets of an instrument out."""

from __future__ import annotations

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
from mqtick.lab.scope.simulator.siglent import SiglentFront
from mqtick.lab.scope.simulator.siglent_wf import SiglentWfFront
from mqtick.lab.scope.simulator.tektronix import TektronixMsoFront
from mqtick.lab.scope.simulator.tektronix_dpo import TektronixDpoFront
from mqtick.lab.scope.simulator.tektronix_tds import TektronixTbsFront, TektronixTdsFront

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

FRONTS: dict[str, type[Front]] = {
    front.name: front
    for front in (
        KeysightFront,
        RigolDs1000zFront,
        RigolMso5000Front,
        RigolDhoFront,
        SiglentFront,
        SiglentWfFront,
        TektronixMsoFront,
        TektronixDpoFront,
        TektronixTdsFront,
        TektronixTbsFront,
    )
}
