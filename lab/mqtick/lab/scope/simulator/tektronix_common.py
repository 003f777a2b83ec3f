"""What the simulated Tektronix oscilloscopes have in common.

Sources: as the dialects' (tektronix_common); the form of the answers from drivers by other authors.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mqtick.analysis.signals.waveform import Codes
from mqtick.lab.scope.block import definite_block
from mqtick.lab.scope.setup import State
from mqtick.lab.scope.simulator.front import Front, boolean
from mqtick.lab.scope.simulator.model import Frame, Model

__all__ = ["TektronixFront"]

_STATES = {
    State.STOPPED: "SAVE",
    State.PREPARING: "ARMED",
    State.ARMED: "READY",
    State.TRIGGERED: "TRIGGER",
}
_SLOPES = {"RIS": "rising", "FAL": "falling", "EIT": "either"}
_ENCODINGS = {
    "RI": (True, False),
    "RP": (False, False),
    "SRI": (True, True),
    "SRP": (False, True),
}
"""Whether signed, whether the low octet comes first."""
_NO_EVENT = '0,"No events to report - queue empty"'
_PENDING = '1,"No events to report - new events pending *ESR?"'


class TektronixFront(Front):
    """Acquisition, inputs, events and CURVe?; a subclass has the time base and the preamble."""

    trigger: ClassVar[str]
    """The head of the trigger's commands."""
    either: ClassVar[bool] = True
    preambles: ClassVar[tuple[str, ...]]
    """The heads of the preamble's queries."""
    order: ClassVar[str]
    """The fields of the preamble, in the order in which the instrument gives them."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._header, self._readable = True, False
        self._single = False
        self.source, self.width = 1, 1
        self.binary, self.signed, self.low_first = True, True, False
        self.first, self.last = 1, 1_000_000_000
        self.files: dict[str, bytes] = {}
        self._add_events()
        self._add_acquisition()
        self._add_inputs()
        self._add_data()

    # -- events --------------------------------------------------------------------------------

    def _add_events(self) -> None:
        on = self.scpi.on
        on("HEADer", lambda text: setattr(self, "_header", boolean(text)))
        on("HEADer?", lambda _: str(int(self._header)))
        on("VERBose", lambda _: None)
        on("VERBose?", lambda _: "1")
        on("BUSY?", lambda _: str(int(self.model.poll() is not State.STOPPED)))
        on("*ESR?", lambda _: self._status())
        on("ALLEv?", lambda _: self._all_events())
        on("*OPC", lambda _: None)

    def _status(self) -> str:
        self._readable = True
        return "32" if self.scpi.errors else "0"

    def _all_events(self) -> str:
        if not self.scpi.errors:
            return _NO_EVENT
        if not self._readable:
            return _PENDING
        self._readable = False
        # The codes are without the sign that SCPI gives them.
        events = [error.removeprefix("-") for error in self.scpi.errors]
        self.scpi.errors.clear()
        return ",".join(events)

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model, head = self.scpi.on, self.model, self.trigger
        on("ACQuire:STATE", self._run)
        on("ACQuire:STATE?", lambda _: str(int(model.poll() is not State.STOPPED)))
        on("ACQuire:STOPAfter", self._set_stop_after)
        on("ACQuire:STOPAfter?", lambda _: "SEQUENCE" if self._single else "RUNSTOP")
        on("ACQuire:MODe", lambda _: None)
        on("ACQuire:NUMACq?", lambda _: str(len(model.frames)))
        on("TRIGger", lambda _: model.force())  # TRIGger FORCe
        on("TRIGger:STATE?", lambda _: _STATES[model.poll()])
        on(f"{head}:TYPe", lambda _: None)
        on(f"{head}:MODe", lambda _: None)
        on(f"{head}:EDGE:SOUrce", self._set_trigger_source)
        on(f"{head}:EDGE:SOUrce?", lambda _: f"CH{model.trigger_channel}")
        on(f"{head}:EDGE:COUPling", lambda _: None)
        on(f"{head}:EDGE:SLOpe", self._set_slope)
        on(f"{head}:LEVel", self._set_level)
        on(f"{head}:LEVel?", lambda _: f"{model.trigger_level_v:.4E}")
        on(f"{head}:LEVel:CH<n>", lambda _, text: self._set_level(text))

    def _run(self, text: str) -> None:
        if text.upper() == "STOP" or (text.upper() != "RUN" and not boolean(text)):
            self.model.stop()
        else:
            self.model.start(single=self._single)

    def _set_stop_after(self, text: str) -> None:
        self._single = text.upper().startswith("SEQ")

    def _set_trigger_source(self, text: str) -> None:
        self.model.trigger_channel = self.channel(text)

    def _set_slope(self, text: str) -> None:
        slope = _SLOPES[text.upper()[:3]]
        if slope == "either" and not self.either:
            raise ValueError
        self.model.trigger_slope = slope

    def _set_level(self, text: str) -> None:
        self.model.trigger_level_v = float(text)

    def channel(self, text: str) -> int:
        """Read CH<x>."""
        number = int(text.upper().removeprefix("CH"))
        if number not in self.model.inputs:
            raise ValueError
        return number

    # -- inputs --------------------------------------------------------------------------------

    def _add_inputs(self) -> None:
        on, inputs = self.scpi.on, self.model.inputs
        on("SELect:CH<n>", lambda n, text: setattr(inputs[n], "on", boolean(text)))
        on("SELect:CH<n>?", lambda n, _: str(int(inputs[n].on)))
        on("SELect?", lambda _: ";".join([str(int(one.on)) for one in inputs.values()] + ["0"] * 4))
        on("CH<n>:COUPling", lambda n, text: setattr(inputs[n], "coupling", text.upper()))
        on("CH<n>:COUPling?", lambda n, _: inputs[n].coupling)
        on("CH<n>:SCAle", lambda n, text: setattr(inputs[n], "volts_per_division", float(text)))
        on("CH<n>:SCAle?", lambda n, _: f"{inputs[n].volts_per_division:.4E}")

    # -- data ----------------------------------------------------------------------------------

    def _add_data(self) -> None:
        on = self.scpi.on
        on("DATa:SOUrce", lambda text: setattr(self, "source", self.channel(text)))
        on("DATa:SOUrce?", lambda _: f"CH{self.source}")
        on("DATa:SOUrce:AVAILable?", lambda _: ",".join(self._shown()))
        on("DATa:ENCdg", self._set_encoding)
        on("DATa:ENCdg?", lambda _: self._encoding_name())
        on("DATa:WIDth", self._set_width)
        on("DATa:WIDth?", lambda _: str(self.width))
        on("DATa:STARt", lambda text: setattr(self, "first", max(int(text), 1)))
        on("DATa:STARt?", lambda _: str(self.first))
        on("DATa:STOP", lambda text: setattr(self, "last", int(float(text))))
        on("DATa:STOP?", lambda _: str(self.last))
        on("CURVe?", lambda _: self.curve())
        for head in self.preambles:
            on(f"{head}?", lambda _: ";".join(self.fields(self.frame()).values()))
            for name in self.order.split(";"):
                on(f"{head}:{name}?", lambda _, name=name: self.fields(self.frame())[name])
            on(f"{head}:BYT_Nr", self._set_width)
            on(f"{head}:BYT_Or", lambda text: setattr(self, "low_first", text.upper() == "LSB"))
            on(f"{head}:BN_Fmt", lambda text: setattr(self, "signed", text.upper() == "RI"))
            on(f"{head}:ENCdg", lambda text: setattr(self, "binary", text.upper()[:3] == "BIN"))
        on("FILESystem:READFile", lambda text: self.files[text.strip('"')])
        on("FILESystem:DELEte", lambda text: self.files.pop(text.strip('"')) and None)
        on("SAVe:IMAGe", lambda text: self.files.update({text.strip('"'): self.screen()}))
        on("SAVe:IMAGe:FILEFormat", lambda _: None)

    def _shown(self) -> list[str]:
        return [f"CH{number}" for number, one in self.model.inputs.items() if one.on]

    def _set_width(self, text: str) -> None:
        if int(text) not in (1, 2):
            raise ValueError
        self.width = int(text)

    def _set_encoding(self, text: str) -> None:
        upper = text.upper()
        self.binary = not upper.startswith("ASC")
        if self.binary:
            self.signed, self.low_first = _ENCODINGS[upper[: 3 if upper[0] == "S" else 2]]

    def _encoding_name(self) -> str:
        if not self.binary:
            return "ASCII"
        names = {kind: name for name, kind in _ENCODINGS.items()}
        return names[self.signed, self.low_first] + "BINARY"

    def frame(self) -> Frame:
        """Return the record that is to be read; ValueError (an event) if there is none."""
        self.model.poll()
        if not self.model.frames or not self.model.inputs[self.source].on:
            raise ValueError
        return self.model.frames[-1]

    def frames(self) -> list[Frame]:
        """Return the records that CURVe? sends."""
        return [self.frame()]

    def points(self, frame: Frame) -> int:
        """Return how many points of a record are sent."""
        return max(min(self.last, frame.points) - self.first + 1, 0)

    def levels(self, frame: Frame) -> Codes:
        """Return what is sent of a record: signed, 0 in the middle of the screen."""
        codes = self.model.codes(self.source, frame)[self.first - 1 :][: self.points(frame)]
        levels = codes.astype(np.int32) - self.model.middle_code
        return levels << self.shift if self.shift >= 0 else levels >> -self.shift

    @property
    def shift(self) -> int:
        """By how many bits the converter's codes are shifted, so that they fill what is sent."""
        return 8 * self.width - self.model.physics.bits

    def volts_per_level(self) -> float:
        """Return YMUlt."""
        return self.model.volts_per_code(self.source) / 2.0**self.shift

    def curve(self) -> str | bytes:
        """Return the records, `;` between them."""
        frames = self.frames()
        if not self.binary:
            return ";".join(",".join(map(str, self.levels(frame))) for frame in frames)
        kind = ("<" if self.low_first else ">") + ("i" if self.signed else "u") + str(self.width)
        return b";".join(
            self.block((self.levels(frame) + self.middle).astype(kind).tobytes())
            for frame in frames
        )

    @property
    def middle(self) -> int:
        """The code that is sent for the middle of the screen."""
        return 0 if self.signed or not self.binary else 1 << (8 * self.width - 1)

    def block(self, data: bytes) -> bytes:
        """Write a block with no more digits than it needs."""
        return definite_block(data, len(str(len(data))))

    def head(self, frame: Frame) -> dict[str, str]:
        """Return what every preamble has."""
        return {
            "BYT_Nr": str(self.width),
            "BIT_Nr": str(8 * self.width),
            "ENCdg": "BINARY" if self.binary else "ASCII",
            "BN_Fmt": "RI" if self.signed else "RP",
            "BYT_Or": "LSB" if self.low_first else "MSB",
            "NR_Pt": str(self.points(frame)),
            "WFID": f'"Ch{self.source}, {self.model.inputs[self.source].coupling} coupling, '
            f'{self.points(frame)} points, Sample mode"',
            "PT_Fmt": "Y",
            "XUNit": '"s"',
            "YUNit": '"V"',
            "XINcr": f"{frame.interval_s:.4E}",
        }

    def fields(self, frame: Frame) -> dict[str, str]:
        """Return the preamble, in the order of the instrument."""
        every = self.head(frame) | self.scales(frame)
        return {name: every[name] for name in self.order.split(";")}

    def scales(self, frame: Frame) -> dict[str, str]:
        """Return the fields of the preamble that place the points."""
        raise NotImplementedError
