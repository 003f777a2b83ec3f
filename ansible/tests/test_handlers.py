"""What a service still has to be told when a run fails is told, or made good by the next run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

COLLECTION = Path(__file__).parent.parent
ROLES = sorted(path.parent.parent for path in COLLECTION.glob("roles/*/handlers/main.yml"))


def used(tasks: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Name the roles that tasks call, and which tasks of them; {{ }} as it stands there."""
    for task in tasks:
        for kind in ("include_role", "import_role"):
            if called := task.get(f"ansible.builtin.{kind}"):
                yield called["name"], called.get("tasks_from", "main")
        yield from used(task.get("block", []))


def notifies(role: str, tasks: str) -> bool:
    """Whether tasks of a role may leave something to a handler."""
    folders = [path for path in ROLES if "{{" in role or role == f"mqtick.fleet.{path.name}"]
    name = "*" if "{{" in tasks or tasks == "main" else tasks
    return any(
        "notify:" in file.read_text()
        for folder in folders
        for file in folder.glob(f"tasks/{name}.yml")
    )


PLAYS = [
    pytest.param(play, id=f"{file.stem}: {play['name']}")
    for file in sorted(COLLECTION.glob("playbooks/*.yml"))
    for play in yaml.safe_load(file.read_text())
    if any(
        notifies(*call)
        for call in (
            *((role["role"], "main") for role in play.get("roles", [])),
            *used(play.get("tasks", [])),
        )
    )
]


def test_there_are_such_plays() -> None:
    assert len(PLAYS) >= 6


@pytest.mark.parametrize("play", PLAYS)
def test_handlers_run_although_a_later_task_fails(play: dict[str, Any]) -> None:
    assert play.get("force_handlers") is True


def test_pigpiod_has_its_drop_in_before_it_can_be_started_by_its_package() -> None:
    tasks = yaml.safe_load((COLLECTION / "roles/gpio/tasks/pigpiod.yml").read_text())
    names = [task["name"] for task in tasks]
    assert names.index("Bind pigpiod to localhost") < names.index("Install pigpiod")
    restart = tasks[-1]
    assert restart["ansible.builtin.include_role"]["tasks_from"] == "restart"
    assert restart["vars"]["fleet_service_reads"] == ["{{ gpio_pigpiod_drop_in }}"]
