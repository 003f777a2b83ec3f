"""Keys and passwords of the fleet, as they lie on the control machine."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from ansible_collections.mqtick.fleet.plugins.module_utils.secrets import (
    FleetKeys,
    SecretsError,
    SecretsFolder,
    check_password,
    client_key_file,
    given_keys,
    key_names,
    refuse_inventory,
    server_key_file,
)

from mqtick.protocol.auth import Keyring

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"


def vector(name: str) -> str:
    found = re.search(rf"```hex {name}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found
    return "".join(found.group(1).split())


FLEET = vector("fleet-key")
OTHER = "ab" * 32


# -- key files -------------------------------------------------------------------------------------


def test_a_clients_keys_are_those_of_the_protocol_document() -> None:
    assert client_key_file([FLEET], "kitchen-1") == (
        f"broadcast {vector('broadcast-key')}\nclient {vector('client-key')}\n"
    )


def test_openssl_derives_the_same_key() -> None:
    command = ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{OTHER}", "-r"]
    made = subprocess.run(command, input=b"mqtick client pi7", capture_output=True, check=True)
    assert f"client {made.stdout.split()[0].decode()}\n" in client_key_file([OTHER], "pi7")


def test_programs_read_the_files_and_understand_each_other() -> None:
    server = Keyring.from_text(server_key_file([FLEET, OTHER]))
    client = Keyring.from_text(client_key_file([OTHER, FLEET], "pi7"))
    signed = server.broadcast().sign(b"time", "mqtick/t/0")
    client.broadcast().verify(signed, "mqtick/t/0")
    assert signed == Keyring.from_text(server_key_file([FLEET])).broadcast().sign(
        b"time", "mqtick/t/0"
    )
    assert key_names([FLEET, OTHER]) == server.broadcast().names
    assert key_names([OTHER, FLEET]) == client.broadcast().names


# -- rotation --------------------------------------------------------------------------------------


def test_a_rotation_ends_with_the_new_key_alone_and_neighbours_always_verify_each_other() -> None:
    keys = FleetKeys((FLEET,))
    stages = [keys]
    for _ in range(3):
        keys = FleetKeys.from_text(keys.advance().to_text(), "fleet.keys")
        stages.append(keys)
    assert [each.stage for each in stages] == ["settled", "introduced", "promoted", "settled"]
    assert stages[-1].keys[0] not in stages[0].keys
    for one, after in itertools.pairwise(stages):
        assert one.keys[0] in after.keys
        assert after.keys[0] in one.keys


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no key"),
        ("fleet 12\n", "line 1"),
        (f"fleet {FLEET} {OTHER}\n", "line 1"),
        (f"fleet {FLEET}\nfleet {OTHER}\n", "# new"),
        (f"fleet {FLEET}  # new\n", "# new"),
        (f"fleet {FLEET}\nfleet {FLEET}  # new\n", "different"),
    ],
)
def test_a_damaged_key_file_is_a_sentence_and_is_not_overwritten(
    tmp_path: Path, text: str, says: str
) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o700)
    (folder / "fleet.keys").write_text(text)
    with (
        pytest.raises(SecretsError, match=says) as error,
        SecretsFolder(folder).locked(),
    ):
        SecretsFolder(folder).keys()
    assert FLEET not in str(error.value)
    assert (folder / "fleet.keys").read_text() == text


def test_given_keys_are_checked_without_being_shown() -> None:
    assert given_keys([FLEET.upper()]) == (FLEET,)
    for bad in (["secret"], ["0" * 64], [FLEET, FLEET], [FLEET, OTHER, "cd" * 32]):
        with pytest.raises(SecretsError) as error:
            given_keys(bad)
        assert not any(key in str(error.value) for key in bad)


# -- the folder ------------------------------------------------------------------------------------


def make(path: Path, accounts: list[str]) -> tuple[tuple[str, ...], dict[str, str], bool]:
    folder = SecretsFolder(path)
    with folder.locked():
        return folder.keys().keys, folder.passwords(accounts), folder.changed


def test_secrets_are_made_once_and_only_the_owner_can_read_them(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    keys, passwords, changed = make(path, ["pi7", "pi8"])
    assert changed
    assert len(keys[0]) == 64
    assert len(set(passwords.values())) == 2
    assert make(path, ["pi8"]) == (keys, {"pi8": passwords["pi8"]}, False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.iterdir()} == {0o600}
    assert sorted(os.listdir(path)) == ["fleet.keys", "passwords"]


def test_a_new_account_leaves_the_passwords_of_the_others(tmp_path: Path) -> None:
    first = make(tmp_path / "secrets", ["pi7"])[1]
    second = make(tmp_path / "secrets", ["pi7", "pi8"])[1]
    assert second["pi7"] == first["pi7"]


def test_a_dry_run_makes_them_up_and_writes_nothing(tmp_path: Path) -> None:
    folder = SecretsFolder(tmp_path / "secrets", dry=True)
    with folder.locked():
        assert folder.keys().stage == "settled"
        assert folder.passwords(["pi7"])["pi7"]
    assert folder.changed
    assert os.listdir(tmp_path) == []


def _make_and_put(path: Path, queue: multiprocessing.Queue[object]) -> None:
    queue.put(make(path, ["pi7"])[:2])


def test_two_runs_at_once_find_the_same_secrets(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    runs = [
        context.Process(target=_make_and_put, args=(tmp_path / "secrets", queue)) for _ in range(4)
    ]
    for run in runs:
        run.start()
    found = [queue.get(timeout=10) for _ in runs]
    for run in runs:
        run.join(timeout=10)
    assert all(each == found[0] for each in found)


def test_a_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o755)
    with pytest.raises(SecretsError, match="chmod 0700"):
        make(folder, [])


@pytest.mark.parametrize("below", ["secrets", "site/secrets"])
def test_a_folder_that_ansible_reads_as_the_inventory_is_refused(
    tmp_path: Path, below: str
) -> None:
    with pytest.raises(SecretsError, match=f"Set fleet_secrets to {tmp_path.parent}/secrets"):
        refuse_inventory(str(tmp_path / below), [str(tmp_path)])
    file = tmp_path / "inventory.yml"
    file.touch()
    refuse_inventory(str(tmp_path / below), [str(file), "h1,"])
    refuse_inventory(str(tmp_path / f".{below}"), [str(tmp_path)])
    refuse_inventory(str(tmp_path.parent / "elsewhere"), [str(tmp_path)])


@pytest.mark.parametrize("line", ["pi7\n", "pi7 a b\n", "pi7 a\npi7 b\n", "pi 7\x07 x\n"])
def test_a_damaged_password_file_is_a_sentence(tmp_path: Path, line: str) -> None:
    make(tmp_path / "secrets", [])
    (tmp_path / "secrets" / "passwords").write_text(line)
    with pytest.raises(SecretsError):
        make(tmp_path / "secrets", ["pi8"])
    assert (tmp_path / "secrets" / "passwords").read_text() == line


@pytest.mark.parametrize(
    ("account", "password"), [("a b", "x"), ("pi7", "a b"), ("pi7", "ü"), ("pi7", "")]
)
def test_what_no_password_file_can_hold_is_refused(account: str, password: str) -> None:
    with pytest.raises(SecretsError) as error:
        check_password(account, password)
    assert not password or f"'{password}'" not in str(error.value)
