#!/usr/bin/python
"""Module `mqtick.fleet.packages`: Debian packages, with a record of what was there before."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.mqtick.fleet.plugins.module_utils.debian import (
    LOCKED,
    QUERY,
    DebianError,
    files_needed,
    installed_packages,
    only_for_us,
    refusal,
    time_daemons,
    what_apt_would_do,
    with_transitional,
    words_of_apt,
)
from ansible_collections.mqtick.fleet.plugins.module_utils.record import Record

DOCUMENTATION = r"""
module: packages
short_description: Install Debian packages, and take them away again
description:
  - Installs packages from the host's apt sources or, where O(wheelhouse) is given, from the
    control machine.
  - Keeps in O(record) which packages came and which had to go, so that V(restored) brings back
    what was there before.
options:
  names:
    description: The packages. Those that are there already stay as they are.
    type: list
    elements: str
    default: []
  state:
    description:
      - V(present) installs, V(restored) takes away what was added and brings back what was removed.
      - V(listed) changes nothing.
    type: str
    choices: [present, restored, listed]
    default: present
  wheelhouse:
    description:
      - Folder on the control machine from which the packages come.
      - Empty for the host's own apt sources.
    type: str
    default: ""
  target:
    description: Which part of the wheelhouse is for this host, such as V(bookworm-arm64).
    type: str
    default: ""
  files:
    description: Packages that were copied to the host. The action sets it.
    type: list
    elements: path
    default: []
  index:
    description: What the wheelhouse has, as apt reads it. The action sets it.
    type: str
    default: ""
  record:
    description: Folder on the host that keeps what was there before.
    type: path
    default: /var/lib/mqtick-fleet
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author:
  - The mqtick authors
"""

EXAMPLES = r"""
- name: Install chrony
  mqtick.fleet.packages:
    names: [chrony]

- name: Install it on a host without Internet
  mqtick.fleet.packages:
    names: [chrony]
    wheelhouse: wheelhouse
    target: bookworm-arm64
"""

RETURN = r"""
added:
  description: Packages that were installed.
  returned: when O(state) is not V(listed)
  type: list
removed:
  description: Packages that were removed, because they exclude others or were no longer wanted.
  returned: when O(state) is not V(listed)
  type: list
needed:
  description: Files of O(index) that the host needs for O(names).
  returned: when O(state) is V(listed) and O(index) is given
  type: list
listing:
  description: What dpkg says about every package.
  returned: when O(state) is V(listed)
  type: str
"""

# apt's own user may not read the folder into which Ansible copies files.
APT = [
    "apt-get", "--quiet=2", "--yes", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0",
    "-o", "Dpkg::Options::=--force-confold", "-o", "APT::Sandbox::User=root",
]  # fmt: skip
# A new host brings itself up to date first; apt itself waits for one of its three locks only.
LOCK_S = 120
# Accounts that a package makes and leaves behind when it is purged.
ACCOUNTS = {
    "mosquitto": ("mosquitto",),
    "mqtick-broker": ("mqtick-broker", "mqtick-join"),
    "prometheus": ("prometheus",),
}
Plan = tuple[list[str], list[str]]
"""Which packages come, and which go."""


class Host:
    """The packages of this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.record = Record(Path(module.params["record"]))

    def run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program without questions, and again while another one installs packages."""
        # In the language whose words are looked for.
        settings = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
        settings |= environ
        end = time.monotonic() + LOCK_S
        while True:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                env=os.environ | settings,
            )  # fmt: skip
            is_locked = done.returncode != 0 and any(sign in done.stderr for sign in LOCKED)
            if not is_locked or time.monotonic() > end:
                return done
            time.sleep(3)

    def listing(self) -> str:
        """Return what dpkg knows."""
        done = self.run("dpkg-query", "--show", "--showformat", QUERY)
        if done.returncode != 0:
            self.module.fail_json(msg=f"dpkg-query fails: {done.stderr.strip()}")
        return done.stdout

    def names(self) -> set[str]:
        """Return which packages are installed."""
        return set(installed_packages(self.listing()))

    def finish_earlier_run(self) -> None:
        """Let dpkg end what an interrupted run has left, since apt refuses to work before."""
        if self.run("dpkg", "--audit").stdout.strip():
            done = self.run("dpkg", "--configure", "--pending", "--force-confold")
            if done.returncode != 0:
                self.fail("finish the packages that an interrupted run has left", done.stderr)
        if self.record.is_half_finished:
            self.record.end(self.names())

    def fail(self, what: str, words: str) -> None:
        """Stop with a sentence."""
        self.module.fail_json(msg=f"apt could not {what}: {words_of_apt(words)}")

    def plan(self, *arguments: str) -> tuple[subprocess.CompletedProcess[str], Plan]:
        """Return which packages apt would install and which it would remove."""
        done = self.run(*APT, "--simulate", "install", *arguments)
        return done, what_apt_would_do(done.stdout)

    def refuse(self, plan: Plan, may_go: set[str]) -> None:
        """Stop with a sentence if other packages would go."""
        restoring = self.module.params["state"] == "restored"
        if sentence := refusal(plan[1], may_go, restoring=restoring):
            self.module.fail_json(msg=sentence)

    def attempt(
        self, may_go: set[str], *arguments: str
    ) -> tuple[subprocess.CompletedProcess[str], Plan]:
        """Let apt do it, if it can, and record what came and what went by it."""
        done, plan = self.plan(*arguments)
        if done.returncode == 0:
            self.refuse(plan, may_go)
            self.record.begin(self.names(), *plan)
            done = self.run(*APT, "install", *arguments)
            self.record.end(self.names())
        return done, plan

    def install(self, what: str, may_go: set[str], *arguments: str) -> Plan:
        """Let apt do it, and return which packages came and which went."""
        done, plan = self.attempt(may_go, *arguments)
        words = ""
        if done.returncode != 0 and not self.module.params["files"]:
            # A new host has no package lists, and an old one may have lists of long ago.
            words = self.run(*APT, "update").stderr
            done, plan = self.attempt(may_go, *arguments)
        if done.returncode != 0:
            self.fail(what, words + done.stderr)
        return plan


def present(host: Host) -> dict[str, object]:
    """Install what is missing."""
    module = host.module
    wanted = module.params["names"]
    if not module.check_mode:
        host.finish_earlier_run()
    missing = [name for name in wanted if name not in host.names()]
    result: dict[str, object] = {"changed": bool(missing), "added": missing, "removed": []}
    if not missing:
        return result
    files = module.params["files"]
    installed = installed_packages(host.listing())
    may_go = with_transitional(time_daemons(installed), installed)
    if not module.check_mode:
        plan = host.install(f"install {', '.join(missing)}", may_go, *(files or missing))
        result["added"], result["removed"] = plan
        if libraries := [name for name in result["added"] if name not in wanted]:
            host.run("apt-mark", "auto", *libraries)
    elif not files:
        done, plan = host.plan(*missing)
        if done.returncode == 0:
            host.refuse(plan, may_go)
            result["added"], result["removed"] = plan
    return result


def restored(host: Host) -> dict[str, object]:
    """Take away what was added and bring back what was removed."""
    module = host.module
    if not module.check_mode:
        host.finish_earlier_run()
    installed = installed_packages(host.listing())
    unwanted = only_for_us(host.record.added, installed)
    back = sorted(host.record.removed - installed.keys())
    result = {"changed": bool(unwanted or back), "added": back, "removed": unwanted}
    if result["changed"] and not module.check_mode:
        what = (
            f"purge {', '.join(unwanted) or 'nothing'} and install {', '.join(back) or 'nothing'}"
        )
        arguments = ["--purge", "--allow-downgrades", *(module.params["files"] or back)]
        arguments += [f"{name}-" for name in unwanted]
        host.install(what, set(unwanted), *arguments)
        for name in unwanted:
            for account in ACCOUNTS.get(name, ()):
                host.run("userdel", account)
    return result


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "default": []},
            "state": {"choices": ["present", "restored", "listed"], "default": "present"},
            "wheelhouse": {"type": "str", "default": ""},
            "target": {"type": "str", "default": ""},
            "files": {"type": "list", "elements": "path", "default": []},
            # No secret, but long, and the host's log would have all of it.
            "index": {"type": "str", "default": "", "no_log": True},
            "record": {"type": "path", "default": "/var/lib/mqtick-fleet"},
        },
        supports_check_mode=True,
    )
    host = Host(module)
    if module.params["state"] == "listed":
        needed = []
        if index := module.params["index"]:
            try:
                needed = files_needed(module.params["names"], index, host.run)
            except DebianError as error:
                wanted = ", ".join(module.params["names"])
                module.fail_json(
                    msg=f"the wheelhouse has not all that {wanted} needs on this host: {error}. "
                    "Make it anew with 'make wheelhouse' in the checkout of mqtick."
                )
        to_restore = sorted(host.record.removed)
        module.exit_json(
            changed=False, listing=host.listing(), to_restore=to_restore, needed=needed
        )
    result = {"present": present, "restored": restored}[module.params["state"]](host)
    if result["changed"]:
        result["diff"] = {
            "before": "".join(f"{name}\n" for name in result["removed"]),
            "after": "".join(f"{name}\n" for name in result["added"]),
        }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
