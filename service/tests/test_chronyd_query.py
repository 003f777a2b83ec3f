from __future__ import annotations

import time
from pathlib import Path

import pytest

from mqtick.service import chronyd
from mqtick.service.chronyd import ChronydError


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str, name: str = "chronyc"
) -> None:
    """Put a program in the place of chronyc that says and does what chronyc would."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(chronyd, "_PATH", f"{folder}:/bin:/usr/bin")


def refusal(**arguments: object) -> ChronydError:
    with pytest.raises(ChronydError) as caught:
        chronyd.tracking(**arguments)  # type: ignore[arg-type]
    return caught.value


def test_chronyc_is_asked_for_csv_without_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, 'echo "$@"; echo "$LC_ALL"')
    assert chronyd.query("tracking") == "-c -n tracking\nC"
    assert chronyd.query("sources", host="/run/x.sock", port=3230).startswith(
        "-c -n -h /run/x.sock -p 3230 sources"
    )


def test_arguments_do_not_pass_through_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, 'echo "$4"')
    assert chronyd.query("x", host="$(id); a b") == "$(id); a b"


def test_chrony_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chronyd, "_PATH", str(tmp_path))
    error = refusal()
    assert error.reason == "not-installed"
    assert str(error) == "chronyc is not installed; install it with: apt install chrony"
    with pytest.raises(ChronydError, match="chronyc is not installed"):
        chronyd.version()


@pytest.mark.parametrize(
    ("said", "reason", "sentence"),
    [
        ("506 Cannot talk to daemon", "not-running", "see: systemctl status chrony"),
        ("Could not open connection to daemon", "not-running", "its socket is closed to this user"),
        ("501 Not authorised", "permission", "run it as root or _chrony: chronyc -c -n tracking"),
        ("Unrecognized command", "failed", "chronyc -c -n tracking failed: Unrecognized command"),
        ("", "failed", "failed: no reason given"),
    ],
)
def test_what_chronyc_says_becomes_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, reason: str, sentence: str
) -> None:
    install(tmp_path, monkeypatch, f"echo '{said}' >&2; exit 1")
    error = refusal()
    assert error.reason == reason
    assert sentence in str(error)


def test_a_chronyc_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "exec sleep 20")
    began = time.monotonic()
    error = refusal(timeout_s=0.2)
    assert error.reason == "time-out"
    assert "did not answer within 0.2 s" in str(error)
    assert time.monotonic() - began < 5


def test_a_chronyc_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "")
    (tmp_path / "chronyc").write_bytes(b"\x7fELF nonsense")
    assert refusal().reason == "failed"


def test_a_host_with_a_null_character_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "")
    assert refusal(host="a\0b").reason == "failed"


def test_nonsense_from_chronyc_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, r"printf '\377\0,,,\n'")
    assert refusal().reason == "not-understood"


def test_the_version_is_that_of_chronyd_before_that_of_chronyc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "echo 'chronyc (chrony) version 4.6.1 (+X)'")
    monkeypatch.setattr(chronyd, "_PATH", str(tmp_path))
    assert chronyd.version() == (4, 6, 1)
    install(tmp_path, monkeypatch, "echo 'chronyd (chrony) version 4.3 (+X)'", name="chronyd")
    assert chronyd.version() == (4, 3, 0)
