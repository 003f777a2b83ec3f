from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtick.service.settings.load import load
from mqtick.service.settings.schema import SchemaError, SettingsError, key, table


@dataclass(frozen=True, slots=True)
class Chrony:
    """How samples reach chrony."""

    poll: int = key(2, "Poll of the reference clock.", minimum=-6, maximum=10)
    delay_s: float = key(0.002, "Assumed round trip.", minimum=0.0, maximum=1.0)
    socket_folder: str = key("/run", "Folder of the sockets.")


@dataclass(frozen=True, slots=True)
class Example:
    """Settings of an example."""

    interval_s: float = key(1.0, "Between two messages.", minimum=0.1, maximum=3600)
    name: str = key("pi", "Name of the client.")
    stamping: str = key("auto", "Who stamps.", choices=("auto", "kernel", "user"))
    is_quiet: bool = key(False, "Whether to say less.")
    servers: tuple[int, ...] = key((0,), "Server numbers.", minimum=0, maximum=255)
    words: tuple[str, ...] = key((), "Words.")
    maximum_skew_ppm: float = key(100.0, "Largest skew.", minimum=0)
    chrony: Chrony = table(Chrony, "How samples reach chrony.")

    def __post_init__(self) -> None:
        if self.interval_s < self.chrony.delay_s:
            raise ValueError("interval_s must not be shorter than chrony.delay_s; make it longer")


def load_text(folder: Path, text: str | bytes) -> Example:
    file = folder / "example.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(Example, file)


def sentence(folder: Path, text: str | bytes) -> str:
    with pytest.raises(SettingsError) as caught:
        load_text(folder, text)
    said = str(caught.value)
    assert said.startswith(f"{folder}/example.toml: ")
    return said.removeprefix(f"{folder}/example.toml: ")


def test_without_a_file_there_are_the_defaults() -> None:
    assert load(Example, None) == Example()
    assert load(Example) == Example()


def test_a_file_sets_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    settings = load_text(
        tmp_path,
        'interval_s = 2\nservers = [3, 4]\nwords = ["a,b", "ü"]\n'
        "is_quiet = true\n[chrony]\npoll = -2\n",
    )
    assert settings == Example(
        interval_s=2.0,
        servers=(3, 4),
        words=("a,b", "ü"),
        is_quiet=True,
        chrony=Chrony(poll=-2),
    )
    assert type(settings.interval_s) is float


def test_settings_do_not_change_once_loaded() -> None:
    with pytest.raises(FrozenInstanceError):
        load(Example).interval_s = 2.0  # type: ignore[misc]


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("interval_s = 5.0\n[chrony]\npoll = 3\n")
    settings = load(Example, tmp_path / "a.toml", {"chrony.poll": 4, "servers": [7]})
    assert (settings.interval_s, settings.chrony.poll, settings.servers) == (5.0, 4, (7,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "interval_ms = 250",
            "unknown key interval_ms; did you mean interval_s?",
        ),
        ("interval = 1.0", "unknown key interval; did you mean interval_s?"),
        ("[chrony]\npol = 3", "unknown key pol in table [chrony]; did you mean poll?"),
        ("poll = 3", "unknown key poll; did you mean chrony.poll?"),
        ("delay_ms = 3", "unknown key delay_ms; did you mean chrony.delay_s?"),
        ("[chronie]\npoll = 3", "unknown key chronie; did you mean chrony?"),
        ("maximum_skew_ppb = 5.0", "did you mean maximum_skew_ppm?"),
        (
            "[chrony]\nqqqq = 3",
            "unknown key qqqq in table [chrony]; the keys there are: poll, delay_s, socket_folder",
        ),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_known_one_named(
    tmp_path: Path, text: str, said: str
) -> None:
    assert said in sentence(tmp_path, text)


def test_a_close_spelling_beats_an_unrelated_key_of_the_same_unit(tmp_path: Path) -> None:
    assert "did you mean interval_s?" in sentence(tmp_path, "intervall_s = 1.0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("interval_s = 'soon'", 'interval_s must be a number, not the string "soon"'),
        ("interval_s = true", "interval_s must be a number, not the boolean true"),
        ("interval_s = 2026-11-20", "interval_s must be a number, not the date 2026-11-20"),
        ("name = 5", "name must be a string, not the number 5"),
        ("name = []", "name must be a string, not an array"),
        ("is_quiet = 1", "is_quiet must be a boolean, not the number 1"),
        ("servers = 5", "servers must be an array of whole numbers, not the number 5"),
        ("servers = [1, 2.0]", "servers has an element 1 that must be a whole number, not"),
        ("chrony = 3", "chrony must be a table, not the number 3; write its keys below a line"),
        ("[chrony]\npoll = 2.0", "chrony.poll must be a whole number, not the number 2.0"),
        ("[chrony]\npoll.x = 2", "chrony.poll must be a whole number, not a table"),
        ("[name]\nx = 2", "name must be a string, not a table"),
    ],
)
def test_a_wrong_type_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert sentence(tmp_path, text).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[chrony]\npoll = 11",
            "chrony.poll is 11, but at most 10 is allowed; "
            "correct it, or remove it to use its default 2",
        ),
        ("interval_s = 0.05", "interval_s is 0.05, but at least 0.1 is needed"),
        ("interval_s = nan", "interval_s must be finite, not nan"),
        ("interval_s = -inf", "interval_s must be finite, not -inf"),
        ("interval_s = 1e999", "interval_s must be finite, not inf"),
        ("interval_s = 1" + "0" * 400, "interval_s must be finite, not an integer of hundreds"),
        ("servers = [0, 256]", "servers has an element 1 that is 256, but at most 255 is allowed"),
        ("stamping = 'none'", 'stamping is the string "none", but must be one of: auto, kernel'),
        ('name = "a\\u0000b"', "name must be text without null characters"),
        (
            'name = "mqtt://a:hunter2@host"',
            "name holds a password, which others could read: put it",
        ),
    ],
)
def test_a_value_out_of_range_is_refused_with_value_limit_and_default(
    tmp_path: Path, text: str, said: str
) -> None:
    assert sentence(tmp_path, text).startswith(said)


def test_limits_themselves_are_allowed(tmp_path: Path) -> None:
    settings = load_text(tmp_path, "interval_s = 3600\nservers = [0, 255]\n[chrony]\npoll = -6\n")
    assert (settings.interval_s, settings.servers, settings.chrony.poll) == (3600.0, (0, 255), -6)


def test_what_a_class_checks_across_keys_is_a_sentence_with_the_file(tmp_path: Path) -> None:
    said = sentence(tmp_path, "interval_s = 0.2\n[chrony]\ndelay_s = 0.5\n")
    assert said == "interval_s must not be shorter than chrony.delay_s; make it longer"


def test_bad_toml_is_refused_with_line_and_column(tmp_path: Path) -> None:
    assert re.search(r"is not TOML: .*line 2, column 6", sentence(tmp_path, 'name = "a"\nbad =='))
    assert "is not TOML" in sentence(tmp_path, "interval_s = 1\ninterval_s = 2\n")
    assert "is not TOML" in sentence(tmp_path, "interval_s = 1" + "0" * 5000)


def test_a_file_that_is_not_utf8_is_refused_with_octet_and_line(tmp_path: Path) -> None:
    said = sentence(tmp_path, b'is_quiet = true\nname = "M\xfcller"\n')
    assert said == "is not UTF-8 text: octet 0xfc in line 2; save the file as UTF-8"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert load_text(tmp_path, b'\xef\xbb\xbfname = "x"\n').name == "x"


def test_deep_nesting_and_large_files_are_refused(tmp_path: Path) -> None:
    assert "nested too deeply" in sentence(tmp_path, "words = " + "[" * 20_000)
    assert "larger than" in sentence(tmp_path, "#" * (1 << 20) + "\n")


def test_a_missing_file_a_folder_and_an_impossible_path_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothere\.toml: there is no such file; name another"):
        load(Example, tmp_path / "nothere.toml")
    with pytest.raises(SettingsError, match=r"cannot be read \(Is a directory\)"):
        load(Example, tmp_path)
    with pytest.raises(SettingsError, match="cannot be read"):
        load(Example, "a\0b")


def test_an_unreadable_file_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "secret.toml"
    file.write_text("")
    file.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(SettingsError, match=r"cannot be read \(Permission denied\)"):
            load(Example, file)
        return
    # Root reads everything; so an ordinary user tries, with the file already named by descriptor.
    program = (
        "import os, sys\nfrom mqtick.service.settings.load import load, SettingsError\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_settings_load import Example\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: load(Example, '/etc/shadow')\nexcept SettingsError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "/etc/shadow: cannot be read (Permission denied); check its mode" in done.stdout


def test_a_wrong_override_is_a_sentence() -> None:
    with pytest.raises(SettingsError, match=r"override: unknown key 'chrony\.pol'; did you mean c"):
        load(Example, None, {"chrony.pol": 3})
    with pytest.raises(SettingsError, match=r"override: chrony\.poll is 99, but at most 10"):
        load(Example, None, {"chrony.poll": 99})
    with pytest.raises(SettingsError, match="override: name must be text without"):
        load(Example, None, {"name": "\udcff"})


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_settings_error(
    tmp_path_factory: pytest.TempPathFactory, octets: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.toml"
    file.write_bytes(octets)
    try:
        outcome: object = load(Example, file)
    except SettingsError as error:
        outcome = str(error)
    assert isinstance(outcome, Example) or str(outcome).startswith(f"{file}: ")


@given(
    st.text(max_size=30).filter(lambda name: name not in {"name", "chrony"}),
    st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.lists(st.integers())),
)
def test_no_override_raises_anything_but_a_settings_error(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match="unknown key"):
        load(Example, None, {name: value})


def declared(hint: object, field: object) -> type:
    return dataclass(frozen=True)(
        type("Wrong", (), {"__annotations__": {"wrong": hint}, "wrong": field})
    )


@pytest.mark.parametrize(
    ("hint", "field", "said"),
    [
        (int, key(5, "Doc.", maximum=3), "its own default is 5, but at most 3"),
        (int, key(5, " "), "must be declared with key"),
        (int, 5, "must be declared with key"),
        (bytes, key(b"", "Doc."), "cannot be a key"),
        (str | None, key(None, "Doc."), "cannot be a key"),
        (float, key(float("inf"), "Doc."), "must be finite"),
    ],
)
def test_a_wrongly_declared_class_is_a_mistake_of_the_programmer(
    hint: object, field: object, said: str
) -> None:
    with pytest.raises(SchemaError, match=re.escape(said)):
        load(declared(hint, field))


@pytest.mark.parametrize("name", ["password", "broker_password", "fleet_key", "api_token", "keys"])
def test_a_secret_cannot_be_a_key_only_a_file_can(name: str) -> None:
    wrong = type("Wrong", (), {"__annotations__": {name: str}, name: key("", "Doc.")})
    with pytest.raises(SchemaError, match=f"a secret must not be a key; name a file, {name}_file"):
        load(dataclass(frozen=True)(wrong))
    right_name = f"{name}_file"
    right = type("R", (), {"__annotations__": {right_name: str}, right_name: key("", "Doc.")})
    assert getattr(load(dataclass(frozen=True)(right)), right_name) == ""
