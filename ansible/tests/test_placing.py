"""A file that is placed is the earlier one or the new one at every moment, and whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.placing import (
    RefusedError,
    replace_file,
)
from playbook import ANSIBLE

TAKES = f"{sys.executable} -c 'import sys; open(sys.argv[1])' %s"
REFUSES = f"{sys.executable} -c 'import sys; sys.exit(\"line 1: no such key\")' %s"


def as_it_is(draft: str) -> None:
    """Leave the draft's owner and mode."""


def test_a_file_is_placed_with_the_folders_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "etc/mqtick/client.toml"
    mask = os.umask(0o077)
    try:
        replace_file(path, b"name = 'pi'\n", TAKES, lambda draft: os.chmod(draft, 0o640))
    finally:
        os.umask(mask)
    assert path.read_bytes() == b"name = 'pi'\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_nobody_reads_a_secret_before_it_has_its_owner(tmp_path: Path) -> None:
    modes = []
    mask = os.umask(0)
    try:
        replace_file(
            tmp_path / "keys", b"0", "", lambda draft: modes.append(os.stat(draft).st_mode)
        )
    finally:
        os.umask(mask)
    assert [oct(mode & 0o777) for mode in modes] == ["0o600"]


def no_owner(draft: str) -> None:
    raise OSError(1, "Operation not permitted")


@pytest.mark.parametrize(
    ("command", "finish", "sentence"),
    [
        (REFUSES, as_it_is, "no such key"),
        ("/nowhere/mqtick-client --config %s", as_it_is, "No such file"),
        (TAKES, no_owner, "not permitted"),
    ],
)
def test_what_is_refused_leaves_the_earlier_file_and_no_other(
    command: str, finish: object, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "client.toml"
    path.write_text("earlier")
    with pytest.raises((RefusedError, OSError), match=sentence):
        replace_file(path, b"new", command, finish)  # type: ignore[arg-type]
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "client.toml").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "client.toml", b"new", "", as_it_is)
    assert [path.name for path in tmp_path.iterdir()] == ["client.toml"]


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("theirs")
    link.symlink_to(target)
    replace_file(link, b"ours", "", as_it_is)
    assert target.read_text() == "theirs"
    assert link.read_bytes() == b"ours"
    assert not link.is_symlink()


def test_a_draft_that_a_killed_run_has_left_goes_with_the_next(tmp_path: Path) -> None:
    left: list[str] = []
    replace_file(tmp_path / "keys", b"0", "", left.append)
    old = Path(left[0])
    old.write_text("secret")
    old.chmod(0o400)
    replace_file(tmp_path / "keys", b"1", "", as_it_is)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("keys", b"1")]


def test_two_runs_at_a_time_place_one_file_after_the_other(tmp_path: Path) -> None:
    path, done = tmp_path / "keys", threading.Event()

    def second() -> None:
        replace_file(path, b"second", "", as_it_is)
        done.set()

    other = threading.Thread(target=second)

    def finish(draft: str) -> None:
        other.start()
        assert not done.wait(0.2)
        assert Path(draft).read_bytes() == b"first"

    replace_file(path, b"first", "", finish)
    other.join(5)
    assert path.read_bytes() == b"second"


LOGS = """
import json, sys
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.mqtick.fleet.plugins.modules import files
AnsibleModule.log = lambda self, message, log_args=None: print(message, log_args, file=sys.stderr)
with patch_module_args(json.loads(sys.argv[1])):
    files.main()
"""


@pytest.mark.skipif(
    not (ANSIBLE / "bin/python").exists(), reason="there is no .venv-ansible: make setup-ansible"
)
def test_the_hosts_log_has_the_paths_and_not_what_is_in_the_files(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    owner = {"owner": str(os.getuid()), "group": str(os.getgid())}
    arguments = {"files": [{"path": str(path), "content": "name = 'pi'\n", **owner}]}
    done = subprocess.run(
        [ANSIBLE / "bin/python", "-c", LOGS, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": str(ANSIBLE / "collections")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["placed"] == [str(path)]
    assert path.read_text() == "name = 'pi'\n"
    assert f"Invoked with {path}" in done.stderr
    assert "name =" not in done.stderr
