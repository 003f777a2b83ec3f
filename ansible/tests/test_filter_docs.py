"""What ansible-doc says of the filters of the playbook `upgrade`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.mqtick.fleet.plugins.module_utils.rollout import batches, worse

FILTERS = Path(__file__).parents[1] / "plugins" / "filter"


@pytest.mark.parametrize(
    ("name", "function"), [("upgrade_batches", batches), ("upgrade_worse", worse)]
)
def test_a_filter_of_upgrade_is_documented_with_its_parameters(
    name: str, function: Callable[..., object]
) -> None:
    documented = yaml.safe_load((FILTERS / f"{name}.yml").read_text())["DOCUMENTATION"]
    _, *others = inspect.signature(function).parameters
    assert documented["name"] == name
    assert set(documented["options"]) == {"_input", *others}
    assert f'"{name}": {name}' in (FILTERS / "upgrade.py").read_text()
