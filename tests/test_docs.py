"""The documents: every command, link and configuration key that they name exists."""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock
from urllib.parse import unquote

import pytest

from mqtick.client.config import Settings as ClientSettings
from mqtick.service.settings.schema import Key, describe, problem_with
from mqtick.timeserver.config import Settings as ServerSettings

ROOT = Path(__file__).parent.parent
ROOMS = (
    "protocol",
    "mqtt",
    "pins",
    "service",
    "timeserver",
    "client",
    "recording",
    "analysis",
    "lab",
)
FOLDERS = ("ansible", "bench", "bench/results", "demo", "tests", "broker/rtl", "broker/spec")
FOLDERS += ("broker/rtl/boards/colorlight_5a_75b", "broker/conformance", "broker/bpf")
FOLDERS += ("broker/server", "broker/server/join", "broker/server/load")
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(file for room in (*ROOMS, *FOLDERS) for file in (ROOT / room).glob("*.md")),
    ]
)
# Written for those who run the programs: an identifier with a unit in it is a configuration key.
FOR_USERS = ("README.md", "docs/operations.md", "docs/accuracy.md", "docs/threat-model.md")
FOR_USERS += ("client/README.md", "timeserver/README.md")

FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)
MODULES = {
    "mqtick-client": "mqtick.client.cli",
    "mqtick-timeserver": "mqtick.timeserver.cli",
    "mqtick-lab": "mqtick.lab.cli",
    "mqtick-report": "mqtick.analysis.cli",
}
HELPS = {
    "mqtick-broker": "broker/src/program.rs",
    "mqtick-join": "join/src/program/arguments.rs",
    "mqtick-load": "load/src/settings/help.rs",
    "mqtick-accelerate": "accelerate/src/options.rs",
}
"""The programs in Rust, and the source below broker/server that has what --help prints."""
DEFAULTS = {"mqtick-report": "report"}
"""The command that may be left out, where it is not run."""
PROGRAM = re.compile(rf"(?:^|[\s=/(;&|])({'|'.join([*MODULES, *HELPS])}|make)(?=\s|$)")
KEY = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*(?:\.[a-z][a-z0-9_]*)?")
ASSIGNMENT = re.compile(rf"({KEY.pattern}) = (.+)")
UNIT = re.compile(r"_(s|ms|us|ppm|ppb)$")
FILE = re.compile(r"\.(conf|service|toml|md|py|d)$")


class Found(NamedTuple):
    """Something that a document says, and where."""

    document: str
    text: str


def fences(text: str) -> list[tuple[str, str]]:
    """Every block of code: its language, its content."""
    return [(match[1], match[2]) for match in FENCE.finditer(text)]


def spans(text: str) -> list[str]:
    """Every inline code, outside of blocks."""
    return SPAN.findall(FENCE.sub("", text))


def documents() -> Iterator[tuple[str, str]]:
    for path in DOCUMENTS:
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


# ---- commands -----------------------------------------------------------------------------------


def commands() -> Iterator[Found]:
    """Everything that calls one of our programs or make, up to the end of the simple command."""
    for name, text in documents():
        blocks = [
            line for _, block in fences(text) for line in block.replace("\\\n", " ").splitlines()
        ]
        inline = [span for span in spans(text) if PROGRAM.match(span.removeprefix("sudo "))]
        for line in [*blocks, *inline]:
            if line.lstrip().startswith("#"):
                continue
            if found := PROGRAM.search(line):
                simple = re.split(r"\s[|&;>#]|[;)]", line[found.start(1) :])[0]
                yield Found(name, simple.strip())


def words_of(command: str) -> list[str]:
    # A word in square brackets may be left out: what is in it still has to exist.
    return [word.strip("[]") for word in shlex.split(command) if word.strip("[]. ")]


@functools.cache
def help_of(program: str, *command: str, flag: str = "--help") -> str:
    """What --help says."""
    said = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "200"}),
        contextlib.redirect_stdout(said),
        pytest.raises(SystemExit, match="0"),
    ):
        importlib.import_module(MODULES[program]).main([*command, flag])
    return said.getvalue()


def subcommands_of(program: str, *command: str) -> set[str]:
    return set(re.findall(r"^    ([a-z][a-z-]+)\s", help_of(program, *command), re.MULTILINE))


def flags_of(program: str, *command: str) -> set[str]:
    said = help_of(program, *command)
    if "--help-settings" in said:
        said += help_of(program, *command, flag="--help-settings")
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", said))


def faults_of(program: str, words: list[str]) -> list[str]:
    """What --help does not know."""
    known = subcommands_of(program)
    default = DEFAULTS.get(program, "run")
    assert default in known
    command = words[0] if words and not words[0].startswith("-") else default
    if program == "mqtick-report" and command not in known:
        command = default  # it is a path
    if command not in known:
        return [f"there is no command {command}"]
    flags = flags_of(program, command)
    if words[:1] != [command]:
        flags |= {"--version", "--help"}
    if words[1:] and words[1] in subcommands_of(program, command):  # `scope identify`
        flags |= flags_of(program, command, words[1])
    given = [word.partition("=")[0] for word in words if word.startswith("-")]
    return [f"{command} has no flag {flag}" for flag in given if flag not in flags]


def test_every_command_of_our_programs_is_one_that_help_knows() -> None:
    seen: set[str] = set()
    wrong = []
    for name, command in commands():
        program, *words = words_of(command)
        if program not in MODULES:
            continue
        seen.add(words[0] if words else "")
        wrong += [(name, command, fault) for fault in faults_of(program, words)]
    assert wrong == []
    assert {"status", "wait", "doctor"} <= seen  # it has looked


def test_every_command_of_our_programs_in_rust_is_one_that_help_knows() -> None:
    helps = {}
    for program, source in HELPS.items():
        text = (ROOT / "broker/server" / source).read_text()
        found = re.search(r'const (?:HELP|USAGE): &str = "(.*?)(?<!\\)";', text, re.DOTALL)
        assert found, source
        helps[program] = {"--help", *re.findall(r"(?<![\w-])-{0,2}[a-z][\w-]*", found[1])}
    seen, wrong = set(), []
    for name, command in commands():
        program, *words = words_of(command)
        if program not in HELPS:
            continue
        said = [word.partition("=")[0] for word in words if word.startswith("-")]
        if words and re.fullmatch("[a-z]+", words[0]):
            said.append(words[0])
        seen |= {program, *said}
        wrong += [(name, command, word) for word in said if word not in helps[program]]
    assert wrong == []
    assert {*HELPS, "limit", "--only", "--neighbour"} <= seen  # it has looked


def test_every_flag_that_stands_alone_belongs_to_one_of_our_programs() -> None:
    known = {
        flag
        for program in MODULES
        for command in subcommands_of(program)
        for flag in flags_of(program, command)
    }
    alone = {
        (name, span.split()[0].partition("=")[0])
        for name, text in documents()
        if name in FOR_USERS
        for span in spans(text)
        if re.match(r"--[a-z]", span)
    }
    assert sorted(pair for pair in alone if pair[1] not in known) == []


def test_every_make_command_names_targets_and_values_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    rules = re.findall(r"^([a-z][\w% -]*):(?!=)", makefile, re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    benchmarks = {path.stem.replace("_", "-") for path in (ROOT / "bench").glob("[a-z]*.py")}
    targets |= {f"bench-{name}" for name in ("NAME", *benchmarks)} | {"NAME"}
    seen, wrong = set(), []
    for name, command in commands():
        program, *words = words_of(command)
        if program != "make":
            continue
        for word in words:
            value, is_value, _ = word.partition("=")
            exists = word in targets
            if is_value:
                exists = re.search(rf"\b{value}\b", makefile) is not None
            seen.add(word)
            if not exists:
                wrong.append((name, command, word))
    assert wrong == []
    assert {"test", "install-client"} <= seen  # it has looked


# ---- links --------------------------------------------------------------------------------------


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def test_every_relative_link_leads_somewhere() -> None:
    broken, seen = [], 0
    for name, text in documents():
        for link in LINK.findall(FENCE.sub("", text)):
            if re.match(r"[a-z]+:", link):
                continue
            seen += 1
            path, _, anchor = unquote(link).partition("#")
            target = (ROOT / name).parent / path if path else ROOT / name
            if not target.exists() or (anchor and anchor not in anchors_of(target.read_text())):
                broken.append((name, link))
    assert broken == []
    assert seen > 10


# ---- configuration ------------------------------------------------------------------------------


def keys() -> dict[str, list[Key]]:
    """Every key of both programs, by path and by name alone."""
    found: dict[str, list[Key]] = {}
    for settings in (ClientSettings, ServerSettings):
        for key in describe(settings).all_keys():
            for name in {key.path, key.name}:
                found.setdefault(name, []).append(key)
    return found


def test_every_key_that_a_document_names_exists() -> None:
    known, seen, wrong = keys(), set(), []
    tables = {path.partition(".")[0] for path in known if "." in path}
    for name, text in documents():
        for span in spans(text) if name in FOR_USERS else []:
            is_dotted = "." in span and not FILE.search(span) and span.split(".")[0] in tables
            if KEY.fullmatch(span) and (UNIT.search(span) or is_dotted):
                seen.add(span)
                if span not in known:
                    wrong.append((name, span))
    assert wrong == []
    assert "estimator.holdover_after_s" in seen  # it has looked


def test_every_value_that_a_document_gives_to_a_key_is_allowed() -> None:
    known, seen, wrong = keys(), set(), []
    for name, text in documents():
        for span in spans(text) if name in FOR_USERS else []:
            if not (assignment := ASSIGNMENT.fullmatch(span)):
                continue
            key = assignment[1]
            try:
                value = tomllib.loads(f"value = {assignment[2]}")["value"]
            except tomllib.TOMLDecodeError:
                continue  # a formula
            seen.add(key)
            if all(problem_with(one, value) for one in known.get(key, [])):
                wrong.append((name, span))
    assert wrong == []
    assert "trust_system_clock" in seen  # it has looked


def values_in(table: dict[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from values_in(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def test_every_example_of_a_configuration_is_one_that_a_program_takes() -> None:
    known, wrong = keys(), []
    for name, text in documents():
        for language, block in fences(text):
            if language == "toml" and name in FOR_USERS:
                for path, value in values_in(tomllib.loads(block)):
                    if all(problem_with(one, value) for one in known.get(path, [])):
                        wrong.append((name, path))
    assert wrong == []


HOP = re.compile(r"^\| .+ \| `(\S+)/(mqtick/\S+)\.py` \| `(\S+)` \|$", re.MULTILINE)


def test_every_hop_through_the_broker_is_in_the_code() -> None:
    text = (ROOT / "docs/how-it-fits.md").read_text()
    hops = re.findall(r"^\| .+ \| `(broker/\S+)` \| `(\S+)` \|$", text, re.MULTILINE)
    assert len(hops) > 25
    for file, name in hops:
        *of, function = name.split("::")
        what = r"(?s:\bimpl\b[^{]*\b%s\b.*\bfn %s\()" if of else r"^(?:\S.* )?(?:int|long) %s\("
        code = (ROOT / file).read_text()
        assert re.search(what % (*of, function), code, re.MULTILINE), (file, name)


def test_every_hop_of_the_two_ways_of_data_is_in_the_code() -> None:
    hops = HOP.findall((ROOT / "docs/how-it-fits.md").read_text())
    assert len(hops) > 25
    for room, file, name in hops:
        found = importlib.import_module(file.replace("/", "."))
        assert found.__file__ == str(ROOT / room / f"{file}.py")
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found), (file, name)


def test_every_room_is_told_of() -> None:
    rooms = re.findall(r"^\| \[(\w+)\]", (ROOT / "docs/how-it-fits.md").read_text(), re.MULTILINE)
    assert sorted(rooms) == sorted(ROOMS)
