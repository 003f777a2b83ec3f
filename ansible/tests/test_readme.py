"""The README keeps its word: what it quotes is said, what it shows is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from ansible_collections.mqtick.fleet.plugins.module_utils import secrets

COLLECTION = Path(__file__).parent.parent
README = (COLLECTION / "README.md").read_text(encoding="utf-8")
OF_OTHERS = {"UNREACHABLE", "Permission denied (publickey)", "Missing sudo password"}
"""What Ansible, ssh and sudo say."""


def on_one_line(*folders: str) -> str:
    """All that stands in files of the collection: sentences are wrapped there."""
    files = [
        file
        for folder in folders
        for file in sorted((COLLECTION / folder).rglob("*"))
        if file.suffix in (".yml", ".py", ".j2")
    ]
    return re.sub(r'[\s"]+', " ", " ".join(file.read_text(encoding="utf-8") for file in files))


def first_column(heading: str) -> list[str]:
    """The first cell of each row of the table below a heading."""
    section = README.split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None
    return [row.split(" | ")[0].removeprefix("| ") for row in table[0].splitlines()[2:]]


def quoted_symptoms() -> list[str]:
    spans = re.findall(r"`([^`]+)`", " ".join(first_column("## Trouble by symptom")))
    return sorted(set(spans) - OF_OTHERS)


@pytest.mark.parametrize("symptom", quoted_symptoms())
def test_a_symptom_in_the_readme_is_what_somebody_reads(symptom: str) -> None:
    said = on_one_line("roles", "plugins")
    assert [part for part in symptom.split(" ... ") if part not in said] == []


def test_every_variable_of_the_playbooks_that_is_described_exists() -> None:
    described = [cell.strip("`") for cell in first_column("### Playbooks")]
    assert len(described) > 5
    playbooks = on_one_line("playbooks")
    assert [name for name in described if not re.search(rf"\b{name}\b", playbooks)] == []


def test_the_inventory_that_the_readme_shows_is_the_example() -> None:
    example = (COLLECTION / "examples/small/inventory.yml").read_text(encoding="utf-8")
    shown = "```yaml\n" + example.removeprefix("---\n") + "```"
    assert shown in README


def test_the_shortest_path_names_files_that_exist() -> None:
    named = re.findall(r"^cp (ansible/\S+) ", README, re.MULTILINE)
    assert named == ["ansible/examples/small/*"]
    assert all(list(COLLECTION.parent.glob(pattern)) for pattern in named)


def test_the_example_of_a_vault_is_refused_as_it_stands() -> None:
    vault = yaml.safe_load((COLLECTION / "examples/vault.yml").read_text(encoding="utf-8"))
    with pytest.raises(secrets.SecretsError, match="hexadecimal digits"):
        secrets.given_keys(vault["fleet_keys"])
    for account, password in vault["fleet_passwords"].items():
        with pytest.raises(secrets.SecretsError, match="printable ASCII"):
            secrets.check_password(account, password)
