"""`mqtick.fleet.secrets`: the fleet's keys and passwords; made, and kept on the control machine."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.mqtick.fleet.plugins.module_utils.secrets import (
    FleetKeys,
    SecretsError,
    SecretsFolder,
    check_password,
    given_keys,
    key_names,
    refuse_inventory,
)

DOCUMENTATION = r"""
name: secrets
short_description: The fleet's keys and passwords; made, and kept on the control machine
description:
  - What is missing is made; in check mode it is made up and not kept. Connects to no host.
  - Its result is never shown.
options:
  folder:
    description: Where they are kept. Only its owner may read it.
    type: path
    required: true
  accounts:
    description: Accounts at the broker that need a password.
    type: list
    elements: str
  with_keys:
    description: Whether the fleet has keys.
    type: bool
    default: true
  keys:
    description: Keys in hexadecimal instead of those of the folder. The first one signs.
    type: list
    elements: str
  passwords:
    description: Passwords by account instead of those of the folder.
    type: dict
  advance_from:
    description: "Stage of a rotation: settled, introduced or promoted. The present one is left."
    type: str
author:
  - The mqtick authors
"""

EXAMPLES = r"""
- name: Get keys and passwords, or make them
  mqtick.fleet.secrets:
    folder: "{{ fleet_secrets }}"
    accounts: [mqtick-server-0, pi-a]
  register: found
"""

RETURN = r"""
keys:
  description: Keys in hexadecimal; the first one signs.
  type: list
  returned: always
key_names:
  description: How the programs' status names these keys.
  type: list
  returned: always
stage:
  description: settled, introduced, promoted, or given when they stand in a variable.
  type: str
  returned: always
passwords:
  description: By account.
  type: dict
  returned: always
"""


class ActionModule(ActionBase):
    """Runs on the control machine; connects to no host.

    `advance_from`: a rotation's stage; if it is the present one, the keys of the next one come.
    """

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(
        ("folder", "accounts", "with_keys", "keys", "passwords", "advance_from")
    )

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return keys, their names and stage, and passwords; nothing of it is shown."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        folder = SecretsFolder(self._task.args["folder"], dry=self._task.check_mode)
        try:
            refuse_inventory(
                self._task.args["folder"], (task_vars or {}).get("ansible_inventory_sources") or ()
            )
            self._fill(result, folder)
        except SecretsError as error:
            raise AnsibleActionFail(str(error)) from None
        return {**result, "changed": folder.changed, "_ansible_no_log": True}

    def _fill(self, result: dict[str, Any], folder: SecretsFolder) -> None:
        args = self._task.args
        keys = given_keys(args.get("keys") or [])
        passwords = {
            str(name): check_password(str(name), str(password))
            for name, password in (args.get("passwords") or {}).items()
        }
        accounts = [str(name) for name in args.get("accounts") or []]
        wants_keys = boolean(args.get("with_keys", True))
        missing = [name for name in accounts if name not in passwords]
        found = FleetKeys(keys)
        if missing or (wants_keys and not keys):
            with folder.locked():
                if wants_keys and not keys:
                    found = folder.keys()
                    if found.stage == args.get("advance_from"):
                        found = found.advance()
                        folder.write_keys(found)
                passwords |= folder.passwords(missing)
        result["keys"] = list(found.keys) if wants_keys else []
        result["key_names"] = key_names(result["keys"])
        result["stage"] = "given" if keys else found.stage if wants_keys else "settled"
        result["passwords"] = {name: passwords[name] for name in accounts}
