#!/usr/bin/python
"""Module `mqtick.fleet.look`: what a host says about its time, in one visit."""

from __future__ import annotations

import subprocess
import threading
from glob import glob
from tempfile import TemporaryFile
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: look
short_description: See how a host's time is
description:
  - Asks the services of mqtick, systemd and chronyd, all at once, and changes nothing.
  - Never fails for what they say. The filter P(mqtick.fleet.fleet_status#filter) judges it.
options:
  roles:
    description: Whether the host should be a client, a time server, or both.
    type: list
    elements: str
    choices: [client, timeserver]
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author:
  - The mqtick authors
"""

EXAMPLES = r"""
- name: See how the time of a client is
  mqtick.fleet.look:
    roles: [client]
  register: fleet_look
"""

RETURN = r"""
seen:
  description: By question, C(code), C(out) and C(err) of the program that was asked.
  type: dict
  returned: always
version:
  description: Version of mqtick that is installed; empty without.
  type: str
  returned: always
"""

TIMEOUT_S = 10
LIMIT = 1 << 18
"""Octets of one answer; a status has about 10,000."""
PROPERTIES = "LoadState,ActiveState,SubState,Result,ExecMainStatus,NRestarts"


class Question(threading.Thread):
    """One program that is run beside the others; what it says is cut, and so is its time."""

    def __init__(self, *command: str) -> None:
        super().__init__(daemon=True)
        self.command = command
        self.answer: dict[str, Any] = {"code": -1, "out": "", "err": ""}
        self.start()

    def run(self) -> None:
        """Ask."""
        # Errors go to a file: whoever fills a pipe that nobody reads waits for ever.
        with TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    self.command,
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
            except OSError as error:
                self.answer["err"] = f"{self.command[0]}: {error.strerror}"
                return
            end = threading.Timer(TIMEOUT_S, process.kill)
            end.start()
            with process:
                out = process.stdout.read(LIMIT + 1) if process.stdout else b""
                if len(out) > LIMIT:
                    process.kill()
            errors.seek(0)
            err = errors.read(LIMIT)
        if not end.is_alive():
            err = f"{self.command[0]} did not answer within {TIMEOUT_S} s".encode()
        end.cancel()
        texts = [octets[:LIMIT].decode("utf-8", "replace") for octets in (out, err)]
        self.answer = {"code": process.returncode, "out": texts[0], "err": texts[1]}


def look(roles: list[str]) -> dict[str, Any]:
    """Ask all questions at once; return the answers by name."""
    questions = {
        "tracking": Question("chronyc", "-c", "-n", "tracking"),
        "sources": Question("chronyc", "-c", "-n", "sources"),
    }
    for role in roles:
        service = f"mqtick-{role}"
        questions |= {
            f"{role} status": Question(f"/opt/mqtick/bin/{service}", "status", "--json"),
            f"{role} unit": Question("systemctl", "show", f"--property={PROPERTIES}", service),
            f"{role} journal": Question(
                "journalctl",
                "--quiet",
                "--no-pager",
                "--output=cat",
                "--lines=3",
                f"--unit={service}",
            ),
        }
    for question in questions.values():
        question.join()
    return {name: question.answer for name, question in questions.items()}


def version() -> str:
    """Return the version that is installed; of the programs, not of what runs."""
    found = glob("/opt/mqtick/lib/python3*/site-packages/mqtick-*.dist-info")
    return found[0].rsplit("/mqtick-", 1)[1].removesuffix(".dist-info") if found else ""


def main() -> None:
    """Run as a module."""
    module = AnsibleModule(
        argument_spec={
            "roles": {
                "type": "list",
                "elements": "str",
                "choices": ["client", "timeserver"],
                "required": True,
            }
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, seen=look(module.params["roles"]), version=version())


if __name__ == "__main__":
    main()
