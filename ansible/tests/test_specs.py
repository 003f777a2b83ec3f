"""What the collection says about itself: every variable described, every secret kept, no copies."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from scripts import collection_readme

COLLECTION = Path(__file__).parent.parent
PROJECT = COLLECTION.parent
FILTERS = COLLECTION / "plugins/filter"
ROLES = sorted(path.name for path in (COLLECTION / "roles").iterdir() if path.is_dir())
SECRET = re.compile(
    r"\b(fleet_keys|fleet_passwords|fleet_secret_keys|fleet_secret_passwords|\w+_password|\w+_private_key)\b"
)


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def specs_of(role: str) -> dict[str, Any]:
    specs: dict[str, Any] = read(COLLECTION / "roles" / role / "meta/argument_specs.yml")
    return specs["argument_specs"]["main"]


def options() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every described variable: its role, its name, its description."""
    for role in ROLES:
        for name, option in specs_of(role).get("options", {}).items():
            yield role, name, option


class Task(NamedTuple):
    file: str
    fields: dict[str, Any]

    @property
    def module(self) -> str:
        """The one key with a dot in it: `ansible-lint` wants names in full."""
        (name,) = (key for key in self.fields if "." in key)
        return name


def tasks_in(file: Path, entries: list[dict[str, Any]]) -> Iterator[Task]:
    for entry in entries:
        if "block" in entry:
            for part in ("block", "rescue", "always"):
                yield from tasks_in(file, entry.get(part, []))
        else:
            yield Task(str(file.relative_to(COLLECTION)), entry)


def tasks() -> list[Task]:
    """Every task and handler of every role and playbook."""
    found: list[Task] = []
    for folder in ("tasks", "handlers"):
        for file in sorted((COLLECTION / "roles").glob(f"*/{folder}/**/*.yml")):
            found += tasks_in(file, read(file) or [])
    for file in sorted((COLLECTION / "playbooks").rglob("*.yml")):
        for play in read(file):
            for part in ("pre_tasks", "tasks", "post_tasks", "handlers"):
                found += tasks_in(file, play.get(part, []))
            if "hosts" not in play and "ansible.builtin.import_playbook" not in play:
                found += tasks_in(file, [play])  # a file of tasks
    return found


# ---- roles and their variables ------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_every_role_has_its_parts(role: str) -> None:
    folder = COLLECTION / "roles" / role
    parts = ("meta/main.yml", "meta/argument_specs.yml", "tasks/remove.yml")
    assert [part for part in parts if not (folder / part).is_file()] == []
    specs = specs_of(role)
    assert specs["short_description"].strip()


@pytest.mark.parametrize("role", ROLES)
def test_the_defaults_are_those_that_are_described(role: str) -> None:
    file = COLLECTION / "roles" / role / "defaults/main.yml"
    defaults = (read(file) or {}) if file.exists() else {}
    described = {
        name: option["default"]
        for name, option in specs_of(role).get("options", {}).items()
        if "default" in option
    }
    assert described == defaults


def test_every_variable_is_described() -> None:
    last = {
        name: str(option["description"]).rstrip("\n'\"] ")[-1:] for _, name, option in options()
    }
    assert [name for name, letter in last.items() if letter != "."] == []
    assert len(last) > 20


# ---- tasks --------------------------------------------------------------------------------------


def hides_its_result(module: str) -> bool:
    """Whether it is a plugin of ours that does it itself, so that its errors can be read."""
    file = COLLECTION / "plugins/action" / f"{module.rpartition('.')[2]}.py"
    is_ours = module.startswith("mqtick.fleet.") and file.exists()
    return is_ours and '"_ansible_no_log": True' in file.read_text()


def test_a_task_that_handles_a_secret_logs_nothing() -> None:
    seen, wrong = 0, []
    for task in tasks():
        if task.module == "ansible.builtin.assert":
            continue  # it shows the expression, not the value
        handled = [task.fields.get(key) for key in (task.module, "vars", "loop", "environment")]
        if SECRET.search(str(handled)):
            seen += 1
            if task.fields.get("no_log") is not True and not hides_its_result(task.module):
                wrong.append((task.file, task.fields.get("name")))
    assert wrong == []
    assert seen > 3


def test_a_variable_that_is_a_secret_is_marked() -> None:
    named = {name: option for _, name, option in options() if SECRET.fullmatch(name)}
    assert {"fleet_keys", "fleet_passwords"} <= named.keys()
    assert [name for name, option in named.items() if option.get("no_log") is not True] == []


@pytest.mark.parametrize(
    ("name", "module", "function"),
    [
        *re.findall(r'"(\w+)": (\w+)\.(\w+),', (FILTERS / "secrets.py").read_text()),
        ("upgrade_batches", "rollout", "batches"),
        ("upgrade_worse", "rollout", "worse"),
    ],
)
def test_a_filter_is_documented_with_its_parameters(name: str, module: str, function: str) -> None:
    documented = read(FILTERS / f"{name}.yml")["DOCUMENTATION"]
    home = importlib.import_module(
        f"ansible_collections.mqtick.fleet.plugins.module_utils.{module}"
    )
    _, *others = inspect.signature(getattr(home, function)).parameters
    assert documented["name"] == name
    assert set(documented["options"]) == {"_input", *others}


# ---- one source for everything ------------------------------------------------------------------


def test_unit_files_are_the_projects_own() -> None:
    units = sorted((COLLECTION / "roles").glob("*/files/**/mqtick-*.service"))
    assert {unit.name for unit in units} >= {"mqtick-client.service", "mqtick-timeserver.service"}
    copied = [unit.name for unit in units if not unit.is_symlink() or not unit.is_file()]
    assert copied == []
    assert {unit.resolve().parent.name for unit in units} == {"systemd"}


def test_the_readme_has_the_variables_of_the_specs() -> None:
    readme = (COLLECTION / "README.md").read_text(encoding="utf-8")
    written = collection_readme.readme_with_variables(readme)
    assert written == readme, "run scripts/collection_readme.py"
    assert set(collection_readme.ROLES) == set(ROLES)


def test_the_collection_has_the_version_of_the_project() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    assert read(COLLECTION / "galaxy.yml")["version"] == project["project"]["version"]


# ---- examples -----------------------------------------------------------------------------------


def variables_in(group: dict[str, Any]) -> Iterator[str]:
    yield from group.get("vars") or {}
    for host in (group.get("hosts") or {}).values():
        yield from host or {}
    for child in (group.get("children") or {}).values():
        yield from variables_in(child or {})


def test_every_variable_of_the_examples_exists() -> None:
    known = {name for _, name, _ in options()}
    used = set(variables_in(read(COLLECTION / "examples/inventory.yml")["all"]))
    used |= set(read(COLLECTION / "examples/vault.yml"))
    assert {"timeserver_number", "fleet_keys"} <= used  # it has looked
    assert sorted(name for name in used - known if not name.startswith("ansible_")) == []
