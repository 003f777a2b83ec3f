"""Filters of the playbook `upgrade`: who goes together, and whether the time became worse."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.mqtick.fleet.plugins.module_utils import rollout


def upgrade_batches(table: dict[str, Any], size: str | int) -> list[list[str]]:
    """Return the batches of a table of `fleet_status`."""
    try:
        return rollout.batches(table["hosts"], size)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


def upgrade_worse(
    after: dict[str, Any],
    first: dict[str, Any],
    before: dict[str, Any],
    batch: list[str],
    **limits: float | str,
) -> list[str]:
    """Return in sentences what is worse in the table `after` than in the tables before it."""
    numbers = {name: float(value) for name, value in limits.items()}
    return rollout.worse(after["hosts"], first["hosts"], before["hosts"], batch, **numbers)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, object]:
        """Name the filters."""
        return {"upgrade_batches": upgrade_batches, "upgrade_worse": upgrade_worse}
