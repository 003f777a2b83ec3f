"""Pairs of command and reply that several tests of the Tektronix dialects need."""

from __future__ import annotations

from mqtick.lab.scope.dialects import Dialect, Identity, dialect_for
from mqtick.lab.scope.dialects.tektronix import Tektronix
from mqtick.lab.scope.dialects.tektronix_tds import TektronixTds

FIELDS = ("NR_Pt", "XINcr", "PT_Off", "XZEro", "YMUlt", "YOFf", "YZEro", "BYT_Nr", "BN_Fmt")
FIELDS += ("BYT_Or",)
# The example of WFMOutpre? in 077-1149 (TBS2000): 100 mV and 4 us a division, 10,000 points.
MANUAL = "1;4;4.0000E-9;0;-20.0000E-6;15.6250E-6;6.4000E+3;0.0000;2;RI;MSB"
MSO = "1;4;3.2000E-9;2;1.2500E-10;2.0E-4;0.0E+0;1.65;2;RI;LSB"


def dialect(identity: str) -> Dialect:
    return dialect_for(Identity.parse(identity))


def mso(model: str = "MSO54") -> Tektronix:
    found = dialect(f"TEKTRONIX,{model},C012345,CF:91.1CT FV:1.30")
    assert isinstance(found, Tektronix)
    return found


def tds(model: str = "TBS1102C") -> TektronixTds:
    found = dialect(f"TEKTRONIX,{model},C012345,CF:91.1CT FV:v1.10")
    assert isinstance(found, TektronixTds)
    return found


def select(channel: int, width: int, last: int, head: str, reply: str) -> list[tuple[str, object]]:
    asked = ";".join([f":SELect:CH{channel}?", *(f":{head}:{name}?" for name in FIELDS)])
    return [
        ("HEADer 0", None),
        (f"DATa:SOUrce CH{channel}", None),
        ("DATa:ENCdg SRIbinary", None),
        (f"DATa:WIDth {width}", None),
        ("DATa:STARt 1", None),
        (f"DATa:STOP {last}", None),
        (asked, reply),
    ]
