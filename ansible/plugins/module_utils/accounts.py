"""Who in the inventory has which account at the broker, and what it may do there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

EXPERIMENTER = "mqtick-lab"
"""The account of whoever runs experiments."""
_NAME_OCTETS = 16
_OTHERS = re.compile(r"[^A-Za-z0-9_.-]")
_ADDRESS = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_RESERVED = re.compile(r"mqtick-lab|mqtick-server-[0-9]+")
DRAFT_LOCATION = "location"
"""Unless a program is set to another one."""
_NO_LOCATION = re.compile(r"[\s+#\x00-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,16}")


class InventoryError(ValueError):
    """An inventory that cannot work."""


def client_name(host: str) -> str:
    """Return the name of a client from that of its host: legal in a topic, at most 16 octets."""
    name = host if _ADDRESS.fullmatch(host) else host.partition(".")[0]
    return _OTHERS.sub("-", name)[:_NAME_OCTETS]


def server_account(number: object) -> str:
    """Return the account of the time server with this number."""
    return f"mqtick-server-{number}"


def fleet_accounts(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]]
) -> dict[str, list[Any]]:
    """Return `clients` (names) and `servers` (numbers) of the whole inventory, sorted.

    And `draft_locations`: first topic levels of the draft-2021 format that they are set to.
    """
    servers: dict[int, str] = {}
    for host in groups.get("mqtick_timeservers", ()):
        number = _server_number(host, hostvars[host].get("timeserver_number"))
        if number in servers:
            raise InventoryError(
                f"timeserver_number is {number} for both '{servers[number]}' and '{host}': clients "
                "could not tell them apart. Give each time server a number of its own, 0 to 255."
            )
        servers[number] = host
    clients: dict[str, str] = {}
    reserved = {EXPERIMENTER, *map(server_account, servers)}
    for host in groups.get("mqtick_clients", ()):
        given = hostvars[host].get("client_name")
        name = client_name(host) if given is None else str(given)
        if not _NAME.fullmatch(name):
            raise InventoryError(
                f"client_name of '{host}' is '{name}', which has {len(name)} characters or one "
                "that is not of A-Z a-z 0-9 _ . -; 1 to 16 are possible. Choose another one."
            )
        if name in clients or name in reserved:
            other = f"'{clients[name]}'" if name in clients else "an account of the fleet itself"
            raise InventoryError(
                f"'{host}' and {other} would both be '{name}' on the broker (a host's name is cut "
                "to 16 characters). Set client_name for one of them in the inventory."
            )
        clients[name] = host
    return {
        "clients": sorted(clients),
        "servers": sorted(servers),
        "draft_locations": sorted(_draft_locations(hostvars, groups)),
    }


def _draft_locations(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]]
) -> set[str]:
    found = set()
    for role in ("timeserver", "client"):
        for host in groups.get(f"mqtick_{role}s", ()):
            settings = hostvars[host].get(f"{role}_settings") or {}
            if not isinstance(settings, Mapping):
                raise InventoryError(
                    f"{role}_settings of '{host}' is no mapping. Write each setting on a "
                    "line of its own below it, as 'name: value'."
                )
            location = str(settings.get("draft_location", DRAFT_LOCATION))
            if not location or _NO_LOCATION.search(location):
                raise InventoryError(
                    f"draft_location in {role}_settings of '{host}' is '{location}', but the "
                    "broker's access list can only hold a word without spaces, + and #. Choose "
                    "another one."
                )
            found.add(location)
    return found


def _server_number(host: str, value: object) -> int:
    text = str(value)
    if value is None or not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > 255:
        found = "is not set" if value is None else f"is '{text}'"
        raise InventoryError(
            f"timeserver_number of '{host}' {found}; give each time server a whole number of its "
            "own from 0 to 255 in the inventory."
        )
    return int(text)


def account_names(accounts: Mapping[str, list[Any]], experiments: bool = False) -> list[str]:
    """Return the names of all accounts that the broker needs."""
    extra = [EXPERIMENTER] if experiments else []
    return [*map(server_account, accounts["servers"]), *accounts["clients"], *extra]


_SERVER = (
    "write P/t/N",
    "write P/s/N",
    "read P/q/N/+",
    "readwrite P/l/N",
    "readwrite P/o/N/+",
    "readwrite P/r/N/+",
    "write P/f/N/+",
)
_EVERYBODY = (
    "read P/t/+",
    "read P/s/+",
    "write P/s/c/%u",
    "readwrite P/c/%u",
    "write P/q/+/%u",
    "read P/r/+/%u",
    "read P/f/+/%u",
)
_EXPERIMENTS_SERVER = ("read P/x/s/N", "write P/y/s/N")
_EXPERIMENTS_EVERYBODY = (
    "read P/x/c/%u",
    "write P/y/c/%u",
    "read P/x/w/%u",
    "write P/y/w/%u",
)
_EXPERIMENTER = (
    "write P/x/+/+",
    "read P/y/+/+",
    "read P/x/w/+",
    "write P/y/w/+",
    "readwrite P/d/#",
)
_FORMATS_SERVER = {
    "1451.1.6": (
        "write _1451.1.6/BRSU/SYN",
        "read _1451.1.6/RRS/REQ",
        "write _1451.1.6/RRS/#",
    ),
    "draft-2021": (
        "write L/TIME/SYN",
        "read L/TIME/SRQ",
        "write L/TIME/SRS",
    ),
}
_OTHER_SIDE = {"read": "write", "write": "read"}


def _for_everybody(rights: Iterable[str]) -> list[str]:
    """Return what everybody else may do with the topics of a format: the other side of it."""
    words = (right.split(" ", 1) for right in rights)
    return [f"{_OTHER_SIDE[access]} {topic}" for access, topic in words]


def access_list(
    accounts: Mapping[str, list[Any]],
    prefix: str,
    formats: Iterable[str] = ("precise",),
    experiments: bool = False,
    own: Mapping[str, list[str]] | None = None,
) -> str:
    """Return Mosquitto's `acl_file`: docs/protocol.md, section 3, narrowed to this fleet.

    `own`: accounts of the user's own and their lines (`read TOPIC`, `topic` is left out).
    """
    foreign = [name for name in formats if name != "precise"]
    unknown = [name for name in foreign if name not in _FORMATS_SERVER]
    if unknown:
        raise InventoryError(
            f"fleet_formats has '{unknown[0]}'; precise, 1451.1.6 and draft-2021 are known."
        )

    for name in own or {}:
        if name in accounts["clients"] or _RESERVED.fullmatch(name):
            raise InventoryError(
                f"broker_accounts has '{name}', which is the account of one of the fleet's own "
                "programs; the two would share their rights. Choose another name."
            )

    locations = accounts.get("draft_locations") or [DRAFT_LOCATION]

    def filled(rights: Iterable[str], number: object = "") -> list[str]:
        lines = []
        for right in rights:
            access, topic = right.split(" ", 1)
            levels = topic.split("/")
            for location in locations if "L" in levels else [""]:
                parts = {"P": prefix, "L": location, "N": str(number)}
                words = (parts.get(level, level) for level in levels)
                lines.append(f"{access} {'/'.join(words)}")
        return lines

    lines: list[str] = []
    for number in accounts["servers"]:
        rights = [*_SERVER, *(_EXPERIMENTS_SERVER if experiments else ())]
        for name in foreign:
            rights += _FORMATS_SERVER[name]
        lines += ["", f"user {server_account(number)}"]
        lines += [f"topic {right}" for right in filled(rights, number)]
    if experiments:
        lines += ["", f"user {EXPERIMENTER}"]
        lines += [f"topic {right}" for right in filled(_EXPERIMENTER)]
    for name, rights in sorted((own or {}).items()):
        lines += ["", f"user {name}", *(f"topic {right}" for right in rights)]
    everybody = [*_EVERYBODY, *(_EXPERIMENTS_EVERYBODY if experiments else ())]
    for name in foreign:
        everybody += _for_everybody(_FORMATS_SERVER[name])
    lines += ["", *(f"pattern {right}" for right in filled(everybody))]
    return "\n".join(lines).lstrip("\n") + "\n"
