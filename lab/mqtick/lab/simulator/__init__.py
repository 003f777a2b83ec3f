"""Simulated oscilloscopes: real edges in, the octets of an instrument out."""

from __future__ import annotations

from mqtick.lab.simulator.faults import KINDS, Faults
from mqtick.lab.simulator.feed import EdgeFeed
from mqtick.lab.simulator.front import Front
from mqtick.lab.simulator.keysight import KeysightFront
from mqtick.lab.simulator.model import Model, Physics
from mqtick.lab.simulator.rigol_series import RigolDhoFront, RigolDs1000zFront, RigolMso5000Front
from mqtick.lab.simulator.server import InstrumentServer
from mqtick.lab.simulator.siglent import SiglentFront
from mqtick.lab.simulator.siglent_wf import SiglentWfFront
from mqtick.lab.simulator.tektronix import TektronixMsoFront
from mqtick.lab.simulator.tektronix_dpo import TektronixDpoFront
from mqtick.lab.simulator.tektronix_tds import TektronixTbsFront, TektronixTdsFront

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
