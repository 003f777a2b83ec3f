"""A simulated Tektronix MSO of the 5 series.

Sources: programmer manual 077-1305 (MSO 4/5/6), as in tm_devices' commands.
"""

from __future__ import annotations

import math

from mqtick.lab.scope.contributed.tektronix.front_data import TektronixData
from mqtick.lab.scope.settings import State
from mqtick.lab.scope.simulator.front import boolean, flag
from mqtick.lab.scope.simulator.model import Model, Physics

_STATES = {
    State.STOPPED: "SAVE",
    State.PREPARING: "ARMED",
    State.ARMED: "READY",
    State.TRIGGERED: "TRIGGER",
}
_SLOPES = {"RIS": "rising", "FAL": "falling", "EIT": "either"}
_NO_EVENT = '0,"No events to report - queue empty"'
_PENDING = '1,"No events to report - new events pending *ESR?"'
_RATES = (1, 2, 2.5, 4, 5, 10)
_REAL = "{:.4E}".format


class TektronixFront(TektronixData):
    """MSO54: 12 bits in words."""

    name = "tektronix"
    identity = "TEKTRONIX,MSO54,SIMULATED,CF:91.1CT FV:2.0.3.950"
    physics = Physics(
        bits=12, divisions=10.0, max_rate_hz=5e9, depths=(1000, 100_000, 1_000_000, 10_000_000)
    )

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._header, self._readable, self._single = True, False, False
        self._rate_hz, self._length, self._position = 1e6, 10_000, 50.0
        self.files: dict[str, bytes] = {}
        self._add_events()
        self._add_acquisition()
        self._add_inputs()
        self._add_time()
        self._fit()

    # -- events and files ----------------------------------------------------------------------

    def _add_events(self) -> None:
        on = self.scpi.on
        self.keep("HEADer", self, "_header", boolean, flag)
        on("VERBose?", lambda _: "1")
        on("BUSY?", lambda _: flag(self.model.poll() is not State.STOPPED))
        on("*ESR?", lambda _: self._status())
        on("ALLEv?", lambda _: self._all_events())
        on("FILESystem:READFile", lambda text: self.files[text.strip('"')])
        on("FILESystem:DELEte", lambda text: self.files.pop(text.strip('"')) and None)
        on("SAVe:IMAGe", lambda text: self.files.update({text.strip('"'): self.screen()}))
        self.ignore("VERBose", "*OPC", "SAVe:IMAGe:FILEFormat")

    def _status(self) -> str:
        self._readable = True
        return "32" if self.scpi.errors else "0"

    def _all_events(self) -> str:
        if not self.scpi.errors:
            return _NO_EVENT
        if not self._readable:
            return _PENDING
        self._readable = False
        # Tektronix's codes have no sign, unlike SCPI's.
        events = [error.removeprefix("-") for error in self.scpi.errors]
        self.scpi.errors.clear()
        return ",".join(events)

    # -- acquisition ---------------------------------------------------------------------------

    def _add_acquisition(self) -> None:
        on, model, head = self.scpi.on, self.model, "TRIGger:A:"
        on("ACQuire:STATE", self._run)
        on("ACQuire:STATE?", lambda _: flag(model.poll() is not State.STOPPED))
        self.keep("ACQuire:STOPAfter", self, "_single", lambda t: t.upper()[:3] == "SEQ", _stop)
        on("ACQuire:NUMACq?", lambda _: str(len(model.frames)))
        on("TRIGger:STATE?", lambda _: _STATES[model.poll()])
        self.keep(f"{head}EDGE:SOUrce", model, "trigger_channel", self.channel, "CH{}".format)
        self.keep(f"{head}EDGE:SLOpe", model, "trigger_slope", lambda t: _SLOPES[t.upper()[:3]])
        self.keep(f"{head}LEVel", model, "trigger_level_v", float, _REAL)
        on(f"{head}LEVel:CH<n>", lambda _, text: setattr(model, "trigger_level_v", float(text)))
        self.ignore("ACQuire:MODe", f"{head}TYPe", f"{head}MODe", f"{head}EDGE:COUPling")

    def _run(self, text: str) -> None:
        if text.upper() == "STOP" or (text.upper() != "RUN" and not boolean(text)):
            self.model.stop()
        else:
            self.model.start(single=self._single)

    def _add_inputs(self) -> None:
        on = self.scpi.on
        self.keep_input("CH<n>:COUPling", "coupling", str.upper, str)
        self.keep_input("CH<n>:SCAle", "volts_per_division", float, _REAL)
        self.keep_input("CH<n>:OFFSet", "offset_v", float, _REAL)
        on("CH<n>:POSition", lambda _, text: _zero(text))
        on("CH<n>:POSition?", lambda *_: "0.0E+0")
        on("CH<n>:DESKew", lambda _, text: _zero(text))
        on("CH<n>:PRObe:GAIN?", lambda *_: "100.0000E-3")
        self.keep_input(
            "CH<n>:PROBEFunc:EXTAtten",
            "probe",
            lambda text: 10 * float(text),
            lambda probe: _REAL(probe / 10),
        )

    # -- time base -----------------------------------------------------------------------------

    def _add_time(self) -> None:
        on = self.scpi.on
        on("HORizontal:MODE?", lambda _: "MANUAL")
        for head in ("HORizontal:MODE", "HORizontal"):
            on(f"{head}:SAMPLERate", self._set_rate)
            on(f"{head}:SAMPLERate?", lambda _: _REAL(self._rate_hz))
            on(f"{head}:RECOrdlength", self._set_length)
            on(f"{head}:RECOrdlength?", lambda _: str(self._length))
            on(f"{head}:SCAle?", lambda _: _REAL(self.model.span_s / 10))
        on("HORizontal:POSition", self._set_position)
        on("HORizontal:POSition?", lambda _: f"{self._position:.4f}")
        self.ignore("HORizontal:MODE", "HORizontal:DELay:MODe", "HORizontal:FASTframe:STATE")
        on("HORizontal:FASTframe:STATE?", lambda _: "0")

    def _set_rate(self, text: str) -> None:
        wanted = min(float(text), self.model.physics.max_rate_hz)
        if wanted <= 0:
            raise ValueError
        decade = 10.0 ** math.floor(math.log10(wanted) + 1e-9)
        self._rate_hz = next(step * decade for step in _RATES if step * decade >= wanted * 0.999999)
        self._fit()

    def _set_length(self, text: str) -> None:
        self._length = min(max(int(float(text)), 100), max(self.model.physics.depths))
        self._fit()

    def _set_position(self, text: str) -> None:
        self._position = min(max(float(text), 0.0), 100.0)
        self._fit()

    def _fit(self) -> None:
        model = self.model
        model.depth, model.span_s = self._length, self._length / self._rate_hz
        model.before = self._position / 100


def _stop(single: bool) -> str:
    return "SEQUENCE" if single else "RUNSTOP"


def _zero(text: str) -> None:
    if float(text) != 0:  # another value is not simulated
        raise ValueError
