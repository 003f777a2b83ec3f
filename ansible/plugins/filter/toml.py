"""Filter `mqtick.fleet.toml`: a dictionary as the text of a TOML file."""

from __future__ import annotations

from ansible.errors import AnsibleFilterError
from ansible_collections.mqtick.fleet.plugins.module_utils.toml import dumps

DOCUMENTATION = r"""
name: toml
short_description: Write a dictionary as TOML
description:
  - Dictionaries in it become tables.
options:
  _input:
    description: The settings.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Write the client's configuration
  ansible.builtin.copy:
    content: "{{ {'broker': 'mqtt://broker.lan', 'chrony': {'port': 323}} | mqtick.fleet.toml }}"
    dest: /etc/mqtick/client.toml
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The text of the file.
  type: str
"""


def toml(settings: dict[str, object]) -> str:
    """Write settings as TOML, or say which of them cannot be."""
    try:
        return dumps(settings)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, object]:
        """Name the filter."""
        return {"toml": toml}
