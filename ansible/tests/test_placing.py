"""A file that is placed is the earlier one or the new one at every moment, and whole."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.placing import (
    RefusedError,
    replace_file,
)

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
