"""The fleet's secrets on the control machine: keys of the time, passwords of the broker's accounts.

They lie in one folder that only its owner can open, in files that are replaced as a whole: whoever
reads one sees the old or the new text, never half of it. Messages hold no secret.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.mqtick.fleet.plugins.module_utils.placing import (
    alone_in,
    write_whole,
)

KEYS_FILE = "fleet.keys"
PASSWORDS_FILE = "passwords"
_KEY_OCTETS = 32
_NEW = "# new"
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){16,64}")
_ACCOUNT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PASSWORD = re.compile(r"[!-~]{1,128}")
"""Printable ASCII without a space: it stands on a line behind a name."""


class SecretsError(ValueError):
    """Secrets that cannot be used; the message holds none of them."""


@dataclass(frozen=True)
class FleetKeys:
    """The fleet's keys, the one that signs first; `new` is the one that a rotation brings in."""

    keys: tuple[str, ...]
    new: str = ""

    @property
    def stage(self) -> str:
        """How far a rotation is: `settled`, `introduced` (new second) or `promoted` (new first)."""
        if len(self.keys) == 1:
            return "settled"
        return "promoted" if self.keys[0] == self.new else "introduced"

    def advance(self) -> FleetKeys:
        """Return the keys of the next stage. Every host has to have the present ones before."""
        if self.stage == "settled":
            new = make_key()
            return FleetKeys((*self.keys, new), new)
        if self.stage == "introduced":
            return FleetKeys((self.new, self.keys[0]), self.new)
        return FleetKeys((self.new,))

    def to_text(self) -> str:
        """Return the lines of the file, in the format of a time server's key file."""
        marks = (f"  {_NEW}" if len(self.keys) > 1 and key == self.new else "" for key in self.keys)
        return "".join(f"fleet {key}{mark}\n" for key, mark in zip(self.keys, marks, strict=True))

    @classmethod
    def from_text(cls, text: str, path: object) -> FleetKeys:
        """Read what `to_text` wrote; `path` is for the message."""
        keys, new = [], []
        for number, line in enumerate(text.splitlines(), 1):
            content, _, comment = line.partition("#")
            words = content.split()
            if not words:
                continue
            if len(words) != 2 or words[0] != "fleet" or not _HEX.fullmatch(words[1]):
                raise SecretsError(
                    f"{path}: line {number} is not `fleet` and 32 to 128 hexadecimal digits. "
                    f"{_REMEDY}"
                )
            keys.append(words[1].lower())
            if comment.strip() == "new":
                new.append(keys[-1])
        if not keys:
            raise SecretsError(f"{path}: there is no key in it. {_REMEDY}")
        if len(keys) > 2 or len(set(keys)) < len(keys) or len(new) != len(keys) - 1:
            raise SecretsError(
                f"{path}: it has to hold one key, or two different ones during a rotation with "
                f"`{_NEW}` behind the one that comes; it holds {len(keys)}, of which {len(new)} "
                f"are marked so. {_REMEDY}"
            )
        return cls(tuple(keys), *new)


_REMEDY = (
    "Nothing was changed. Put the file back from a backup. If there is none: remove it, and the "
    "next run of site makes a new one; until it has reached all hosts, they refuse each other's "
    "messages."
)


def make_key() -> str:
    """Return a new fleet key, in hexadecimal digits."""
    return secrets.token_hex(_KEY_OCTETS)


def given_keys(keys: Iterable[object]) -> tuple[str, ...]:
    """Check keys that stand in a variable; the first one signs."""
    found = tuple(str(key).strip().lower() for key in keys)
    bad = [str(number) for number, key in enumerate(found, 1) if not _HEX.fullmatch(key)]
    if bad:
        raise SecretsError(
            f"fleet_keys: entry {', '.join(bad)} is not 32 to 128 hexadecimal digits (16 to 64 "
            "octets). `openssl rand -hex 32` makes a good one; keep it in a vault."
        )
    weak = [str(number) for number, key in enumerate(found, 1) if len(set(key)) < 4]
    if weak:
        raise SecretsError(
            f"fleet_keys: entry {', '.join(weak)} is not random, so anybody may know it. `openssl "
            "rand -hex 32` makes a good one; keep it in a vault."
        )
    if len(found) > 2 or len(set(found)) < len(found):
        raise SecretsError(
            f"fleet_keys has {len(found)} entries, {len(set(found))} of them different; one key is "
            "normal, two different ones are a rotation."
        )
    return found


def refuse_inventory(folder: str, sources: Iterable[str]) -> None:
    """Refuse a folder of secrets that Ansible would read as a part of the inventory.

    It reads every file below an inventory that is a folder, and shows the lines that it does not
    understand; only what begins with a dot is left out.
    """
    path = Path(os.path.abspath(folder))
    for source in map(Path, map(os.path.abspath, sources)):
        if not source.is_dir() or source not in (path, *path.parents):
            continue
        if not any(part.startswith(".") for part in path.relative_to(source).parts):
            raise SecretsError(
                f"The secrets would lie in {path}, but {source} is a folder that Ansible reads as "
                "the inventory, every file in it, and it would show them in its warnings. Nothing "
                f"was changed there. Set fleet_secrets to {source.parent / 'secrets'}, or give "
                "the file of the inventory instead of the folder."
            )


def server_key_file(keys: Iterable[str]) -> str:
    """Return the text of a time server's key file."""
    return "".join(f"fleet {key}\n" for key in keys)


def client_key_file(keys: Iterable[str], name: str) -> str:
    """Return the text of a client's key file: what docs/protocol.md, section 5, derives for it."""
    fleet = [bytes.fromhex(key) for key in keys]
    purposes = (("broadcast", "mqtick broadcast"), ("client", f"mqtick client {name}"))
    return "".join(
        f"{purpose} {hmac.digest(key, text.encode(), 'sha256').hex()}\n"
        for purpose, text in purposes
        for key in fleet
    )


def key_names(keys: Iterable[str]) -> list[str]:
    """Return how a program's status names these keys: enough to compare, nothing to sign with."""
    broadcast = (hmac.digest(bytes.fromhex(key), b"mqtick broadcast", "sha256") for key in keys)
    return [hmac.digest(key, b"mqtick key name", "sha256")[:4].hex() for key in broadcast]


def read_passwords(text: str, path: object) -> dict[str, str]:
    """Read lines of an account and its password."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 2:
            raise SecretsError(
                f"{path}: line {number} is not an account and its password with a space in "
                "between. Nothing was changed. Correct the line, or remove it: that account then "
                "gets a new password."
            )
        if words[0] in found:
            raise SecretsError(
                f"{path}: line {number} gives the account '{words[0]}' a second password. Nothing "
                "was changed. Remove one of the two lines."
            )
        found[words[0]] = check_password(*words)
    return found


def check_password(account: str, password: str) -> str:
    """Refuse what a broker's password file or a program's cannot hold."""
    if not _ACCOUNT.fullmatch(account):
        raise SecretsError(
            f"The account '{account}' has a name that is not 1 to 64 of A-Z a-z 0-9 _ . -; rename "
            "it."
        )
    if not _PASSWORD.fullmatch(password):
        raise SecretsError(
            f"The password of '{account}' has {len(password)} characters or one that is not "
            "printable ASCII; 1 to 128 characters from ! to ~ are possible. Choose another one."
        )
    return password


class SecretsFolder:
    """The folder of the secrets. `dry`: make up what is missing, write nothing."""

    def __init__(self, path: str | os.PathLike[str], *, dry: bool = False) -> None:
        self._path, self._dry = Path(path), dry
        self.changed = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep out a second run, which would make other secrets at the same time."""
        if not self._path.is_dir():
            self.changed = True
            if self._dry:
                yield
                return
        with contextlib.ExitStack() as stack:
            self._enter(stack)
            yield

    def _enter(self, stack: contextlib.ExitStack) -> None:
        with _sentences(self._path):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.stat().st_mode & 0o077:
                raise SecretsError(
                    f"{self._path} is open to other users of this machine (mode "
                    f"{self._path.stat().st_mode & 0o777:04o}). Look who may have read the "
                    f"secrets, then `chmod 0700 {self._path}`."
                )
            stack.enter_context(alone_in(self._path))

    def keys(self) -> FleetKeys:
        """Return the fleet's keys; one is made if there is none."""
        text = self._read(KEYS_FILE)
        if text is not None:
            return FleetKeys.from_text(text, self._path / KEYS_FILE)
        made = FleetKeys((make_key(),))
        self.write_keys(made)
        return made

    def write_keys(self, keys: FleetKeys) -> None:
        """Replace the file of the keys."""
        self._write(KEYS_FILE, keys.to_text())

    def passwords(self, accounts: Iterable[str]) -> dict[str, str]:
        """Return the accounts' passwords; one is made for each that has none. Others are kept."""
        known = read_passwords(self._read(PASSWORDS_FILE) or "", self._path / PASSWORDS_FILE)
        wanted = list(accounts)
        made = {name: secrets.token_urlsafe(24) for name in wanted if name not in known}
        for name, password in made.items():
            check_password(name, password)
        if made:
            known |= made
            lines = (f"{name} {password}\n" for name, password in sorted(known.items()))
            self._write(PASSWORDS_FILE, "".join(lines))
        return {name: known[name] for name in wanted}

    def _read(self, name: str) -> str | None:
        path = self._path / name
        with _sentences(path):
            try:
                octets = path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            return octets.decode("ascii")
        except UnicodeDecodeError:
            raise SecretsError(
                f"{path} is not ASCII text, so it is damaged. Nothing was changed. Put it back "
                "from a backup."
            ) from None

    def _write(self, name: str, text: str) -> None:
        self.changed = True
        if self._dry:
            return
        with _sentences(self._path / name):
            write_whole(self._path / name, text.encode("ascii"))


@contextlib.contextmanager
def _sentences(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SecretsError(
            f"{path}: {error.strerror}. The secrets of the fleet (fleet_secrets) have to be "
            "readable and writable by whoever runs the playbook; nothing was changed there."
        ) from None
