"""Action `mqtick.fleet.wheelhouse`: choose a host's wheels, and check them before copying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.mqtick.fleet.plugins.module_utils.wheelhouse_index import (
    WheelhouseError,
    check_all,
    debs,
    wheels,
)

DOCUMENTATION = r"""
name: wheelhouse
short_description: Choose the wheels for a host from the wheelhouse
description:
  - Runs on the control machine and changes nothing.
  - A wheel that is missing, truncated or not the one that was put there stops here, and not on
    the host.
options:
  folder:
    description: The wheelhouse.
    type: path
    required: true
  target:
    description:
      - The kind of the host, such as V(bookworm-arm64).
      - Without it the whole wheelhouse is checked.
    type: str
  sets:
    description: Which programs, V(program) and any of V(gpiod), V(pigpio), V(lab), V(analysis).
    type: list
    elements: str
    default: [program]
  optional:
    description: Sets that are left out where the wheelhouse has none for this kind of host.
    type: list
    elements: str
    default: []
  packages:
    description: Whether Debian packages for this kind of host have to be there too.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Choose the wheels
  mqtick.fleet.wheelhouse:
    folder: wheelhouse
    target: bookworm-arm64
  register: chosen
"""

RETURN = r"""
pip:
  description: The path of the wheel of pip.
  returned: with O(target)
  type: str
files:
  description: The paths of the other wheels.
  returned: with O(target)
  type: list
stamp:
  description: File name and SHA-256 of each of them, which together say what is installed.
  returned: with O(target)
  type: dict
left_out:
  description: Why there is none, by the name of the set in O(optional).
  returned: with O(target)
  type: dict
"""


class ActionModule(ActionBase):
    """What Ansible looks for."""

    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("folder", "target", "sets", "optional", "packages"))

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Choose and check."""
        super().run(tmp, task_vars)
        options = self._task.args
        folder, target = Path(options["folder"]), options.get("target")
        try:
            if not target:
                check_all(folder)
                return {"changed": False}
            if options.get("packages"):
                debs(folder, target)
            found = wheels(
                folder, target, options.get("sets", ["program"]), options.get("optional", [])
            )
        except WheelhouseError as error:
            raise AnsibleActionFail(str(error)) from None
        return {"changed": False, **found}
