"""Action of `mqtick.fleet.packages`: for a host without Internet, brings the packages along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.mqtick.fleet.plugins.module_utils import debian, wheelhouse_index

MODULE = "mqtick.fleet.packages"


class ActionModule(ActionBase):
    """What Ansible looks for."""

    TRANSFERS_FILES = True
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Run the module, after the files that it needs were copied to the host."""
        super().run(tmp, task_vars)
        try:
            return self._run(dict(self._task.args), task_vars)
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _run(self, options: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        if not options.get("wheelhouse"):
            return self._module(options, task_vars)
        listed = self._module(options | {"state": "listed"}, task_vars)
        if listed.get("failed"):
            return listed
        restores = options.get("state") == "restored"
        wanted = listed["to_restore"] if restores else options.get("names") or []
        installed = debian.installed_packages(listed["listing"])
        missing = [name for name in wanted if name not in installed]
        if not missing:
            return self._module(options, task_vars)
        folder, target = Path(options["wheelhouse"]), options["target"]
        try:
            debs = {deb["file"]: deb for deb in wheelhouse_index.debs(folder, target)}
            index = wheelhouse_index.packages_file(debs.values())
            asked = {"state": "listed", "names": missing, "index": index}
            chosen = self._module(options | asked, task_vars)
            if chosen.get("failed"):
                return chosen
            files = [wheelhouse_index.deb_path(folder, target, debs[f]) for f in chosen["needed"]]
        except wheelhouse_index.WheelhouseError as error:
            raise AnsibleActionFail(str(error)) from None
        if self._task.check_mode:
            return self._module(options, task_vars)
        there_folder = self._connection._shell.tmpdir
        there = [
            self._transfer_file(
                str(path), self._connection._shell.join_path(there_folder, path.name)
            )
            for path in files
        ]
        self._fixup_perms2([there_folder, *there])
        return self._module(options | {"files": there}, task_vars)

    def _module(self, options: dict[str, Any], task_vars: dict[str, Any] | None) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(
            module_name=MODULE, module_args=options, task_vars=task_vars
        )
        return result
