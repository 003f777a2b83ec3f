"""Families of other packages: used like ours, and a sentence where they cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from package_rig import provide
from scope_rig import Answering, usual

from mqtick.lab.cli import main
from mqtick.lab.scope.conversation import InstrumentError, Query
from mqtick.lab.scope.dialects import DIALECTS, Identity, dialect_for
from mqtick.lab.scope.oscilloscope import Oscilloscope

ACME = Identity("ACME", "Scope 1", "", "")
GOOD = """\
import re
from mqtick.lab.scope.dialects.keysight import Keysight

class Acme(Keysight):
    name = "acme"
    title = "ACME Scope"
    pattern = re.compile("ACME ")
"""


def test_a_family_of_another_package_is_used_like_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provide(monkeypatch, tmp_path, GOOD)
    assert dialect_for(ACME).title == "ACME Scope"
    assert dialect_for(Identity("KEYSIGHT", "", "", ""), "acme").name == "acme"
    with pytest.raises(SystemExit, match="0"):
        main(["scope", "identify", "--help"])
    assert "siglent, siglent-wf, tektronix" in capsys.readouterr().out.replace("acme, ", "")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import nothing_like_that", "No module named 'nothing_like_that'"),
        ("acme = 1", "has no attribute 'Acme'"),
        ("Acme = 1", "not a subclass of mqtick.lab.scope.dialects.base.Dialect"),
        (GOOD.replace("keysight import Keysight", "base import Dialect as Keysight"), "define arm"),
        (GOOD.replace('re.compile("ACME ")', '"ACME"'), "its pattern is 'ACME', not Pattern"),
        (GOOD.replace('"acme"', '"ACME"'), "its name is 'ACME'"),
    ],
)
def test_an_entry_point_that_cannot_be_used_is_a_sentence_and_stops_no_other_family(
    source: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    provide(monkeypatch, tmp_path, source)
    for name in ("acme", "auto"):
        with pytest.raises(InstrumentError, match=r"cannot be used:.*Repair or remove") as caught:
            dialect_for(ACME, name)
        assert sentence in str(caught.value)
    assert dialect_for(Identity("TEKTRONIX", "MSO54", "", "")).name == "tektronix"


def test_two_packages_with_one_name_are_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    provide(monkeypatch, tmp_path, GOOD, "tektronix = acme:Acme\nkeysight = acme:Acme")
    with pytest.raises(InstrumentError, match="Two packages provide a family called 'tektronix'"):
        dialect_for(ACME, "tektronix")
    assert dialect_for(Identity("KEYSIGHT TECHNOLOGIES", "DSO-X 3034A", "", "")).name == "keysight"
    assert list(DIALECTS).count("keysight") == 1


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("def __init__(self, identity): raise KeyError('model')", "cannot be used with ACME"),
        ("def set_up(self, settings): {}[1]; yield", r"The dialect failed \(KeyError: 1\)"),
        ("def set_up(self, settings): yield ':RUN'", "':RUN', which is no step"),
        ("def set_up(self, settings): return None", r"The dialect failed \(AttributeError"),
    ],
)
def test_a_dialect_that_misbehaves_is_a_sentence(
    method: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("mqtick.lab.scope.oscilloscope._READ_AGAIN_S", 0.0)
    provide(monkeypatch, tmp_path, f"{GOOD}    {method}\n")
    acme = Answering(lambda step: "ACME,Scope 1,,1" if step == Query("*IDN?") else "0")
    with pytest.raises(InstrumentError, match=sentence):
        Oscilloscope(acme).set_up(usual())


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("Acme = 1", "not a subclass of mqtick.lab.scope.simulator.front.Front"),
        (
            "from mqtick.lab.scope.simulator import Front\nclass Acme(Front):\n"
            "    name, identity = 'acme', 'ACME,Scope 1,SIMULATED,1'\n"
            "    def __init__(self, model): raise OverflowError('too much')\n",
            "cannot be simulated (OverflowError: too much)",
        ),
    ],
)
def test_a_simulated_family_that_misbehaves_is_a_sentence(
    source: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    provide(monkeypatch, tmp_path, source, group="mqtick.simulated_oscilloscopes")
    assert main(["simulate", "--family", "acme"]) in (1, 2)
    assert sentence in capsys.readouterr().err
