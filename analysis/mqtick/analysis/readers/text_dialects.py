"""The makers' text files: what tells each apart, and where its head says what its rows are.

What is not said here is found in all of them alike (`text_head`): the interval, the number of
rows, the units and the model in lines of a key and its values, and the names in a line above the
rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Table:
    """Rows without a line of names, and where the head above them says what they are.

    A key is one of the head's lines, a group of `head`, or a cell of its group `names`, which then
    has the names of the columns; below it the group `units` has a value for each.

    Attributes:
        head: what it is recognised by; the rows begin where it ends.
        start, interval: keys of the time base in s. Without `start` the rows have times.
        start_unless_said: the start where its key is missing.
        time: the column of times, from 0, if the rows have them.
        index: the column that numbers the samples, None where there is none.
        first: the column of the first channel; None: as many cells as there are channels tell it.
        names, units: keys of the channels' names and of their units.
        single: whether there is one channel, and other cells of the rows are none.
        channel: which of the names are channels; its first group is the name.
        unnamed: what channels are called whose names are not said, "" where they have to be.
        unit: of the channels where the head does not say it.
        blocks: the key of how many blocks of rows the file has, "" where it has one.
        several: what is wrong with a file of several blocks or time bases; {} is how many.
    """

    head: re.Pattern[str]
    start: str = ""
    interval: str = ""
    start_unless_said: str = ""
    time: int = 0
    index: int | None = None
    first: int | None = 1
    names: tuple[str, ...] = ("Source",)
    units: str = "Vertical Units"
    single: bool = False
    channel: re.Pattern[str] = re.compile("(.*)")
    unnamed: str = ""
    unit: str = "V"
    blocks: str = ""
    several: str = "has two channels of one name; rename one of them."


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the text files of a maker begin, and what they leave unsaid.

    Attributes:
        name, tested: as Format has them.
        maker: as it stands before the model, "" where anybody may have written the file.
        signature: what is found in the head, maybe with a group `model`.
        model: the keys of the model.
        triggered: whether time 0 is the trigger; None: where it lies within the record.
        keys_as_rows: whether a key and its values stand apart as the cells of the rows do, and not
            by commas.
        name_in_file_name: what names the only channel where its column is called after a quantity.
        tables: the forms that have no line of names.
    """

    name: str
    maker: str
    signature: re.Pattern[str]
    tested: str = ""
    model: tuple[str, ...] = ("Model Number", "Model")
    triggered: bool | None = True
    keys_as_rows: bool = False
    name_in_file_name: re.Pattern[str] | None = None
    tables: tuple[Table, ...] = ()


_RIGOL_CHANNEL: Final = re.compile(
    r"(CH ?[1-8]|MATH[1-4]?|D ?\d{1,2}(?:-D ?\d{1,2})?|REF\d*)(?: *[(\[].*[)\]]|(?<=\d) *V)?$", re.I
)
_TDS: Final = r"Record Length(?:,[^,\n]*){2}(?:, *[-+.\deE]+ *){2}(?:,|$)"  # TDS1000, TDS2000

DIALECTS: Final = (
    Dialect(
        "Rigol CSV",
        "Rigol",
        re.compile(
            r"\A(?:sep=.*\n)?(?:"
            r".*t0\s*=.*tInc\s*="  # MSO5000, DHO
            r"|(?:.*\n)?.*Number of Data points"  # converted from .wfm
            r"|X?,(?:CH ?\d|MATH|REF|D ?\d).*\n(?:Second|Sequence),"
            r"|X,(?:CH ?\d|MATH|REF|D ?\d) *\(.*\n *[-+.\d])",
            re.I,
        ),
        tested="DS1042C, DS1052E, DS1054Z, DS1074Z, DS1102D, DS1102E, DS1204B, DS2000, DS2072A, "
        "DS4024",
        tables=(
            Table(
                re.compile(
                    r"\A(?:sep=.*\n)?(?P<names>.*?)t0\s*=\s*(?P<t0>[-+.\deE]+)"
                    r".*?tInc\s*=\s*(?P<tInc>[-+.\deE]+).*\n",
                    re.I,
                ),
                start="t0",
                interval="tInc",
                first=0,
                channel=_RIGOL_CHANNEL,
            ),
            Table(
                re.compile(r"\A(?:(?i:sep)=.*\n)?(?P<names>X,.*)\n(?P<units>Sequence,.*)\n"),
                start="Start",
                interval="Increment",
                index=0,
                first=0,
                channel=_RIGOL_CHANNEL,
            ),
        ),
    ),
    Dialect(
        "Siglent CSV",
        "Siglent",
        re.compile(r"\ARecord Length,(?:Analog|Digital)\s*:|^Source,.*\nSecond,", re.M),
        tested="the first rows of SDS1202X-E, SDS1104X-E",
        triggered=None,
    ),
    Dialect(
        "Keysight InfiniiVision CSV",
        "Keysight",
        re.compile(r"\Ax-axis,", re.I),
        tested="an InfiniiVision (model not noted)",
    ),
    Dialect(
        "Keysight Infiniium CSV",
        "Keysight",
        re.compile(r"\A(?:.*\bChannel.*\n)?Revision:[\s\S]*^XInc:[\s\S]*^XOrg:", re.M),
        tested="the first rows of an N8900A",
        model=("Frame",),
        tables=(
            Table(
                re.compile(r"^(?:Data:|Time Tags).*\n", re.M),
                start="XOrg",
                interval="XInc",
                first=None,
                names=("Source", ""),
                unnamed="{}",
                several="has {} segments side by side, which are read from binary files only: save "
                "it as .bin.",
            ),
        ),
    ),
    Dialect(
        "Tektronix CSV",
        "Tektronix",
        re.compile(rf"\A{_TDS}|\AModel,[\s\S]*^Sample Interval,[\s\S]*^TIME,", re.M),
        tested="tm_data_types 0.5.0",
        # The head of a TDS stands in the left columns of the first rows.
        tables=(
            Table(
                re.compile(rf"\A(?={_TDS})", re.M),
                interval="Sample Interval",
                time=3,
                first=4,
                single=True,
                unnamed="CH{}",
            ),
        ),
    ),
    Dialect(
        "LeCroy CSV",
        "LeCroy",
        re.compile(r"\ALECROY(?P<model>[^,; \n]*)[,; ][^,; \n]*[,; ]Waveform"),
        tested="the first rows of an HDO9404",
        keys_as_rows=True,
        name_in_file_name=re.compile(r"[CFMZ]\d{1,2}(?!\d)", re.I),
    ),
    Dialect(
        "Rohde & Schwarz CSV",
        "Rohde & Schwarz",
        re.compile(r"\Ain s,"),
        tested="an RTB2000 or alike (model not noted)",
    ),
    Dialect(
        "GW Instek CSV",
        "GW Instek",
        re.compile(r"\AFormat,.*\nMemory Length,"),
        tables=(Table(re.compile(r"^Waveform Data.*\n", re.M), single=True, unnamed="CH{}"),),
    ),
    Dialect(
        "Hantek CSV",
        "Hantek",
        re.compile(r"\A#timebase=\d+\(ps\)", re.I),
        tables=(Table(re.compile(r"^(?= *[-+.\d])", re.M), unnamed="CH{}", unit="mV"),),
    ),
    Dialect(
        "Yokogawa CSV",
        "Yokogawa",
        re.compile(r'\A"?Header Size"?,\d+'),
        model=("Model Name",),
        tables=(
            Table(
                re.compile(r"^(?=,)", re.M),
                start="HOffset",
                interval="HResolution",
                start_unless_said="0",
                names=("TraceName",),
                units="VUnit",
                blocks="BlockNumber",
                several="holds several blocks of a history, or channels of several rates; save "
                "each in a file of its own.",
            ),
        ),
    ),
    Dialect(
        "OWON CSV",
        "OWON",
        re.compile(r"\AChannel *:,CH\d[\s\S]*^Time interval *:", re.M),
        triggered=False,
    ),
    Dialect(
        "UNI-T CSV",
        "UNI-T",
        re.compile(r"\A(?:Stop|Run|Auto),[\s\S]*^Sample Interval,", re.M | re.I),
        triggered=False,
    ),
    Dialect(
        "Vivado ILA CSV",
        "",
        re.compile(r"\A(?:[#;].*\n)*Sample in Buffer,Sample in Window,"),
        triggered=False,
    ),
    Dialect(
        "Saleae Logic CSV",
        "Saleae",
        # Channels that were given names: then nine decimals tell it from a file made by hand.
        re.compile(r"\ATime ?\[s\],(?:(?:.*,)?Channel |.*\n-?\d+\.\d{9}(?:,[01])+$)", re.M),
        tested="a Logic 2 export",
        triggered=False,
    ),
)
PLAIN: Final = Dialect("CSV with named columns", "", re.compile(""), tested="numpy", triggered=None)
