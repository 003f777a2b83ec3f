"""A simulated Tektronix DPO of the 7000 series.

Sources: programmer manual 077-0010 (MSO/DPO5000, 7000, 70000), as in tm_devices' commands; QCoDeS
(DPO7200xx).
"""

from __future__ import annotations

from collections.abc import Callable

from mqtick.lab.scope.simulator.model import Frame, Model, Physics
from mqtick.lab.scope.simulator.tektronix import TektronixMsoFront

__all__ = ["TektronixDpoFront"]


class TektronixDpoFront(TektronixMsoFront):
    """8 bits; the instants of the frames are asked for by channel, and have a month in letters."""

    name = "tektronix-dpo"
    identity = "TEKTRONIX,DPO7054C,SIMULATED,CF:91.1CT FV:10.8.3 Build 3"
    physics = Physics(
        bits=8, divisions=10.24, max_rate_hz=5e9, depths=(1000, 100_000, 1_000_000, 10_000_000)
    )

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.width = 1
        self._file = ""
        on, head = self.scpi.on, "HORizontal:FASTframe"
        on(f"{head}:TIMEStamp:ALL:CH<n>?", lambda _, text: self._range(self.stamp, text))
        on(f"{head}:XZEro:ALL:CH<n>?", lambda _, text: self._range(self.zero, text))
        on("HORizontal:MAIn:DELay:MODe", lambda _: None)
        on("HORizontal:MAIn:UNIts?", lambda _: '"s"')
        on("EXPort:FORMat", lambda _: None)
        on("EXPort:FILEName", lambda text: setattr(self, "_file", text.strip('"')))
        on("EXPort", lambda _: self.files.update({self._file: self.screen()}))
        # Asked for before there is a record.
        on("WFMOutpre:XUNit?", lambda _: '"s"')
        on("WFMOutpre:YUNit?", lambda _: '"V"')

    def _range(self, value: Callable[[Frame], str], text: str) -> str:
        first, last = map(int, text.split(","))
        return ",".join(self.each(value).split(",")[first - 1 : last])

    def stamp(self, frame: Frame) -> str:
        """Write the instant of a record: 20 NOV 2026 14:15:16.123 456 789 012."""
        wall, rest = self.instant(frame)
        groups = f"{rest:012d}"
        pieces = " ".join(groups[at : at + 3] for at in range(0, 12, 3))
        return f"{wall:%d %b %Y %H:%M:%S}.{pieces}".upper()
