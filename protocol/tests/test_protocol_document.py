"""docs/protocol.md says what the code does: drawings, tables, examples, access list, refusals."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mqtick.protocol.auth import Keyring, derive_broadcast_key, derive_client_key
from mqtick.protocol.precise import VERSIONS, Claim, Echo, FollowUp, Loop, Reply, Request, Time
from mqtick.protocol.topics import TopicTree, acl

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "protocol.md").read_text()
MODULES = [
    ROOT / "protocol" / "mqtick" / "protocol" / f"{name}.py"
    for name in (*("text1451", "draft2021", "precise", "precise_fields", "topics", "auth"),)
]
KINDS = (Time, Request, Reply, FollowUp, Echo, Claim, Loop)
LAYOUTS = [(kind, version) for kind in KINDS for version in kind.LAYOUTS]

Layout = list[list[Any]]


def vectors(name: str) -> Any:
    return json.loads((Path(__file__).parent / "vectors" / f"{name}.json").read_text())


PRECISE, TEXT, DRAFT = (vectors(name) for name in ("precise", "text1451", "draft2021"))


def cell(text: str, width: int) -> str:
    return text.center(width) if len(text) <= width else text[:width]


def draw_octets(layout: Layout) -> str:
    """Draw fields in rows of eight octets; `...` is where a field goes on in the next row."""
    octets = [(name, i) for name, size in layout for i in range(size)]
    out = ["   " + "".join(f"     {i}     " for i in range(min(8, len(octets)))).rstrip()]
    line = ""
    for start in range(0, len(octets), 8):
        row, cells = octets[start : start + 8], []
        while row:
            size = sum(1 for name, _ in row if name == row[0][0])
            cells.append((row[0][0] if row[0][1] == 0 else "...", 11 * size - 1))
            row = row[size:]
        line_below = "   +" + "".join("-" * width + "+" for _, width in cells)
        out.append(merge(line, line_below) if line else line_below)
        line = line_below
        out.append(f"{start:2} |" + "".join(cell(text, width) + "|" for text, width in cells))
    return "\n".join([*out, line])


def merge(above: str, below: str) -> str:
    """Join the line under one row with the line over the next."""
    length = max(len(above), len(below))
    pairs = zip(above.ljust(length), below.ljust(length), strict=True)
    return "".join("+" if "+" in pair else max(pair, key="-".__eq__) for pair in pairs)


def draw_bits(layout: Layout) -> str:
    """Draw the bits of one octet, the highest first."""
    line = "   +" + "".join("-" * (8 * size - 1) + "+" for _, size in layout)
    row = "   |" + "".join(cell(name, 8 * size - 1) + "|" for name, size in layout)
    numbers = "   " + "".join(f"    {bit}   " for bit in range(7, -1, -1)).rstrip()
    return "\n".join([numbers, line, row, line])


def hex_blocks() -> list[tuple[str, str]]:
    """Return name and octets of each hexadecimal example; `;` begins a comment."""
    found = re.findall(r"^```hex (\S+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    return [
        (name, " ".join(" ".join(line.partition(";")[0] for line in text.splitlines()).split()))
        for name, text in found
    ]


def expected_hex() -> dict[str, str]:
    """Return every vector that the document may show, by name."""
    keys = {
        f"{name}-key": bytes.fromhex(PRECISE["keys"][name]).hex(" ")
        for name in ("fleet", "broadcast", "client", "server")
    }
    messages = {message["name"]: message["hex"] for message in PRECISE["messages"]}
    authenticated = {f"{m['name']}-authenticated": m["authenticated"] for m in PRECISE["messages"]}
    trailers = {trailer["name"]: trailer["hex"] for trailer in PRECISE["trailers"]}
    return keys | messages | authenticated | trailers


@pytest.mark.parametrize(("name", "octets"), hex_blocks())
def test_a_hexadecimal_example_is_the_vector_of_its_name(name: str, octets: str) -> None:
    assert octets == expected_hex()[name]


def test_every_vector_of_a_message_is_worked_in_the_document() -> None:
    shown = {name for name, _ in hex_blocks()}
    assert {message["name"] for message in PRECISE["messages"]} <= shown
    assert {
        "fleet-key",
        "broadcast-key",
        "client-key",
        "server-key",
        "reply-authenticated",
    } <= shown


def layout_of(kind: type[Time], version: int) -> Layout:
    return list(PRECISE["layouts"][kind.__name__ + (" 2" if version == 2 else "")])


def places(layout: Layout) -> list[tuple[str, str]]:
    """Octets and name of each field, as a table has them."""
    at, found = 0, []
    for name, size in layout:
        found.append((str(at) if size == 1 else f"{at}-{at + size - 1}", name))
        at += size
    return found


def table_rows(title: str) -> list[tuple[str, str]]:
    """Octets and name of the rows of the table below a title."""
    section = re.split(rf"^{title}$", DOCUMENT, flags=re.MULTILINE)[1]
    section = re.split(r"^##", section, flags=re.MULTILINE)[0]
    return re.findall(r"^\| ([0-9-]+) \| (\w+) \|", section, re.MULTILINE)


@pytest.mark.parametrize(("kind", "version"), LAYOUTS, ids=str)
def test_a_message_is_drawn_as_it_is_laid_out(kind: type[Time], version: int) -> None:
    layout = layout_of(kind, version)
    assert sum(size for _, size in layout) == kind.LAYOUTS[version].length
    assert f"\n{draw_octets(layout)}\n" in DOCUMENT


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_table_of_a_message_names_each_field_at_its_octets(kind: type[Time]) -> None:
    expected = places(layout_of(kind, min(kind.LAYOUTS)))
    assert table_rows(rf"### 4\.\d .*kind {kind.KIND}") == expected


@pytest.mark.parametrize("kind", KINDS[:-1], ids=lambda kind: kind.__name__)
def test_the_table_of_version_2_names_what_it_adds_at_its_octets(kind: type[Time]) -> None:
    one, two = layout_of(kind, 1), layout_of(kind, 2)
    assert two[: len(one) - 1] == one[:-1], "the same, and more"
    name = re.sub(r"(?<=[a-z])U", "-u", kind.__name__)
    assert table_rows(f"#### {name} in version 2") == places(two)[len(one) - 1 :]


@pytest.mark.parametrize("layout", PRECISE["bits"].values(), ids=PRECISE["bits"].keys())
def test_the_bits_of_an_octet_are_drawn_as_they_are_laid_out(layout: Layout) -> None:
    assert sum(size for _, size in layout) == 8
    assert f"\n{draw_bits(layout)}\n" in DOCUMENT


def test_the_root_distances_are_those_of_the_vectors() -> None:
    rows = re.findall(r"^\| (\d+) \| `([0-9a-f]{2} [0-9a-f]{2})` \| (\d+)", DOCUMENT, re.MULTILINE)
    assert rows == [(str(v["ns"]), v["field"], str(v["back_ns"])) for v in PRECISE["root_distance"]]


def test_the_access_list_is_the_one_that_is_generated() -> None:
    assert f"```acl\n{acl(TopicTree(), 'mqtick-server')}```" in DOCUMENT


def test_the_lines_for_experiments_are_those_that_are_generated_beside_the_others() -> None:
    shown = DOCUMENT.split("```acl experiments\n")[1].split("```")[0].splitlines()
    without, with_lab = (
        acl(TopicTree(), "mqtick-server", user).splitlines() for user in ("", "mqtick-lab")
    )
    assert {*filter(None, shown)} - {"user mqtick-server"} == {*with_lab} - {*without}


@pytest.mark.parametrize("name", ["text-time", "text-request", "text-reply"])
def test_a_text_example_is_the_vector_of_its_name(name: str) -> None:
    found = {v["name"]: v["payload"] for kind in ("time", "request", "reply") for v in TEXT[kind]}
    assert f"```text {name}\n{found[name]}\n```" in DOCUMENT


@pytest.mark.parametrize("kind", ["syn", "srq", "srs"])
def test_a_draft_example_is_the_vector_of_its_name(kind: str) -> None:
    vector = DRAFT[kind][0]
    lines = "\n".join(f"{name} = {value}" for name, value in vector["properties"])
    assert f"```text {vector['name']}\n{lines}\n```" in DOCUMENT


def test_every_reason_of_a_refusal_is_in_the_table_and_no_other() -> None:
    reasons: set[str] = set()
    for module in MODULES:
        reasons |= set(re.findall(r'DecodeError\(\s*"([a-z0-9-]+)"', module.read_text()))
    section = DOCUMENT.split("## 7. What to refuse")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE)) == reasons


def test_the_document_is_of_the_versions_that_are_written() -> None:
    assert all(f"version {version}" in DOCUMENT for version in VERSIONS)


def fenced(language: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


@pytest.mark.needs("openssl")
def test_the_shell_commands_make_the_keys_of_a_client() -> None:
    made = subprocess.run(
        ["sh", "-eu", "-c", fenced("sh")], capture_output=True, text=True, check=True
    ).stdout
    fleet, ring = bytes.fromhex(PRECISE["keys"]["fleet"]), Keyring.from_text(made)
    assert ring.broadcast().keys == (derive_broadcast_key(fleet),)
    assert ring.client("kitchen-1").keys == (derive_client_key(fleet, "kitchen-1"),)


C_MAIN = """
int main(void)
{
    uint8_t m[24], none[4] = {0x80, 0, 0, 0};
    for (int i = 0; i < 24; i++) { unsigned octet; scanf("%x", &octet); m[i] = octet; }
    printf("%lld %ld %llu", (long long)instant_ns(m + 6), (long)correction_ns(m + 16),
           (unsigned long long)root_distance_ns(m + 20));
    printf(" %d %d%d%d%d %d%d", correction_ns(none) == INT32_MIN, is_newer(0, UINT32_MAX),
           is_newer(UINT32_MAX, 0), is_newer(0x80000000u, 0), is_newer(7, 7),
           same_tag(m, m), same_tag(m, m + 8));
}
"""


@pytest.mark.needs("cc")
def test_the_lines_of_c_read_a_message(tmp_path: Path) -> None:
    source, program = tmp_path / "example.c", tmp_path / "example"
    source.write_text("#include <stdint.h>\n#include <stdio.h>\n" + fenced("c") + C_MAIN)
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Werror", "-Wno-unused-result", source, "-o", program],
        check=True,
    )
    message = PRECISE["messages"][0]
    said = subprocess.run(
        [program], input=message["hex"], capture_output=True, text=True, check=True
    ).stdout
    fields = message["fields"]
    numbers = [fields[f] for f in ("transmit_ns", "previous_correction_ns", "root_distance_ns")]
    assert said == f"{' '.join(map(str, numbers))} 1 1000 10"
