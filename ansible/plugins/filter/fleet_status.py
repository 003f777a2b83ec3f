"""Filters of the playbook `status`: from what hosts said to a table, as text, JSON and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.mqtick.fleet.plugins.module_utils import table as fleet
from ansible_collections.mqtick.fleet.plugins.module_utils.page import page_of
from ansible_collections.mqtick.fleet.plugins.module_utils.table_text import Line, table_lines

DOCUMENTATION = r"""
name: fleet_status
short_description: Judge what the hosts of a fleet said about their time
description:
  - Takes C(hostvars), in which C(fleet_look) is the result of M(mqtick.fleet.look).
  - The rows are sorted, the worst first.
options:
  _input:
    description: The variables of all hosts.
    type: dict
    required: true
  groups:
    description: The groups of the inventory.
    type: dict
    required: true
  hosts:
    description: The hosts that were asked.
    type: list
    elements: str
    required: true
  given_up:
    description: Hosts that were not asked any more, so that an earlier answer means nothing.
    type: list
    elements: str
    default: []
  limit_us:
    description: A host whose clock may be off by more microseconds is marked.
    type: float
    required: true
  rows:
    description: Most rows of the text; 0 is all. Those that are not good always stand there.
    type: int
    required: true
  at:
    description: When the hosts were asked; stands in the table as it is.
    type: str
    default: ""
  certificate:
    description: How many C(days) the broker's certificate lasts, and from which number of days
      (C(renew_days)) on it is time for a new one. Empty when nobody knows.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Judge the fleet
  ansible.builtin.set_fact:
    status: >-
      {{ hostvars
         | mqtick.fleet.fleet_status(groups, ansible_play_hosts_all, limit_us=1000, rows=40) }}
  run_once: true
"""

RETURN = r"""
_value:
  description: C(table) for programs, C(lines) for a terminal and C(page) as HTML.
  type: dict
"""


def fleet_status(
    hostvars: Mapping[str, Any],
    groups: Mapping[str, Sequence[str]],
    hosts: Sequence[str],
    *,
    limit_us: float,
    rows: int,
    given_up: Sequence[str] = (),
    at: str = "",
    certificate: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the table in its three forms."""
    table = fleet.fleet_table(hostvars, groups, hosts, float(limit_us), given_up)
    if certificate:
        known = fleet.Certificate(int(certificate["days"]), int(certificate["renew_days"]))
        table = replace(table, certificate=known)
    lines: list[Line] = table_lines(table, int(rows))
    return {"table": {"at": at, **table.as_json()}, "lines": lines, "page": page_of(table, at)}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, object]:
        """Name the filter."""
        return {"fleet_status": fleet_status}
