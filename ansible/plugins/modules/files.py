#!/usr/bin/python
"""Module `mqtick.fleet.files`: several files in one visit, each whole or untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqtick.fleet.plugins.module_utils.placing import RefusedError, replace_file

DOCUMENTATION = r"""
module: files
short_description: Place several files at once
description:
  - Places files one after the other, in one visit.
  - M(ansible.builtin.copy) needs two visits for each file.
  - A file is complete, with its owner and mode, before it takes the place of an earlier one.
  - Folders that are missing are made, for everybody to read.
options:
  files:
    description: The files, in the order in which they are placed.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Where it is to stand.
        type: path
        required: true
      content:
        description: All of its text.
        type: str
        required: true
      owner:
        description: User who owns it.
        type: str
        default: root
      group:
        description: Group that owns it.
        type: str
        default: root
      mode:
        description: Its permissions, in octal digits.
        type: str
        default: "0644"
      validate:
        description:
          - A command that must end well before the file is placed. C(%s) stands for the file.
          - If it does not, what was there before stays, and so do the files after this one.
        type: str
        default: ""
attributes:
  check_mode:
    support: full
    description: Nothing is validated, because what a command looks for may not be there yet.
  diff_mode:
    support: full
author:
  - The mqtick authors
"""

EXAMPLES = r"""
- name: Place what the client reads
  mqtick.fleet.files:
    files:
      - path: /etc/mqtick/client.ca.pem
        content: "{{ fleet_secret_ca }}"
      - path: /etc/mqtick/client.toml
        content: "{{ settings | mqtick.fleet.toml }}"
        validate: /opt/mqtick/bin/mqtick-client run --config %s --check-config
"""

RETURN = r"""
placed:
  description: Paths of the files that were not as they should be.
  type: list
  elements: str
  returned: always
"""

FILE = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "required": True},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": "root"},
    "mode": {"type": "str", "default": "0644"},
    "validate": {"type": "str", "default": ""},
}


class Quiet(AnsibleModule):
    """A module that tells the host's log which files it was asked for, and not what is in them."""

    def _log_invocation(self) -> None:
        paths = " ".join(str(file["path"]) for file in self.params["files"])
        self.log(f"Invoked with {paths}", log_args={"paths": paths})


def place(module: AnsibleModule, file: dict[str, Any]) -> dict[str, str] | None:
    """Let a file be as it should be; return what changed, as a diff."""
    path = Path(file["path"])
    octets = file["content"].encode()
    before = path.read_bytes() if path.is_file() else None
    attributes = {key: file[key] for key in ("path", "owner", "group", "mode")}
    if before == octets:
        # In a dry run the group may not be there yet; a file that is has one.
        arguments = module.load_file_common_arguments(attributes)
        if not module.set_fs_attributes_if_different(arguments, changed=False):
            return None
    elif not module.check_mode:

        def finish(draft: str) -> None:
            arguments = module.load_file_common_arguments({**attributes, "path": draft})
            module.set_fs_attributes_if_different(arguments, changed=False)

        replace_file(path, octets, file["validate"], finish)
    return {
        "before_header": str(path),
        "after_header": str(path),
        "before": (before or b"").decode("utf-8", "replace"),
        "after": file["content"],
    }


def main() -> None:
    """Run as a module."""
    module = Quiet(
        argument_spec={
            "files": {"type": "list", "elements": "dict", "required": True, "options": FILE}
        },
        supports_check_mode=True,
    )
    placed: list[str] = []
    diffs: list[dict[str, str]] = []
    for file in module.params["files"]:
        try:
            diff = place(module, file)
        except (OSError, RefusedError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            module.fail_json(
                msg=f"The new {file['path']} was not put in place, and what was there before stays "
                f"in force: {reason}",
                placed=placed,
            )
        if diff:
            placed.append(file["path"])
            diffs.append(diff)
    module.exit_json(changed=bool(placed), placed=placed, diff=diffs)


if __name__ == "__main__":
    main()
