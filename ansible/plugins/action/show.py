"""Action `mqtick.fleet.show`: text on the terminal exactly as it is, and into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

DOCUMENTATION = r"""
name: show
short_description: Print text as it is, or write it to a file of the control machine
description:
  - Neither quotes nor escapes as a debug task does. Colours come only on a terminal.
  - Connects to no host.
options:
  text:
    description: What to print. Not with O(lines).
    type: str
  lines:
    description: What to print, each with C(text) and C(level) (good, bad, warning or plain).
    type: list
    elements: dict
  file:
    description: Write O(text) to this file of the control machine instead of printing it.
    type: path
author:
  - The mqtick authors
"""

EXAMPLES = r"""
- name: Say what was found
  mqtick.fleet.show:
    text: "{{ summary }}"
"""

COLOURS = {"good": "green", "bad": "red", "warning": "yellow"}


class ActionModule(ActionBase):
    """What Ansible looks for."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("text", "lines", "file"))
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Print, or write."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = self._task.args
        if args.get("file"):
            path = Path(str(args["file"])).expanduser()
            try:
                path.write_text(str(args.get("text") or ""), encoding="utf-8")
            except OSError as error:
                raise AnsibleActionFail(
                    f"{path} cannot be written: {error.strerror}. Name a file in a folder that is "
                    "there and yours."
                ) from None
            return {**result, "changed": False}
        lines = args.get("lines") or [{"text": str(args.get("text") or "")}]
        for line in lines:
            Display().display(str(line["text"]), color=COLOURS.get(line.get("level", "plain")))
        return {**result, "changed": False}
