"""The conversations of `broker/spec/vectors`, and whether a broker keeps to them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import chain, permutations
from pathlib import Path
from typing import Any

from broker.rtl.sim.golden import REFUSALS, REFUSED_FILTERS, AnyOrder, Sent, Settings

FOLDER = Path(__file__).parents[2] / "spec" / "vectors"
COUNTED = (*REFUSALS, *REFUSED_FILTERS, "pool")


def conversations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each conversation, as section 12 describes it, with the name of its file."""
    for path in sorted(FOLDER.glob("*.json")):
        for conversation in json.loads(path.read_text()):
            yield path.stem, conversation


def settings_of(conversation: dict[str, Any]) -> Settings:
    """Return a conversation's settings as the reference wants them."""
    given = dict(conversation["settings"])
    given["secret"] = bytes.fromhex(given["secret"])
    for nets in ("publishers", "subscribers"):
        if nets in given:
            given[nets] = tuple(IPv4Network(net) for net in given[nets])
    return Settings(**given)


def address(text: str) -> tuple[str, int]:
    """Split `10.0.0.2:5000`."""
    ip, _, port = text.partition(":")
    return ip, int(port)


def as_vector(sent: list[Sent | AnyOrder]) -> list[Any]:
    """Write what the reference sends as `expect` has it."""
    return [
        {"any_order": [as_vector([*run]) for run in item.runs]}
        if isinstance(item, AnyOrder)
        else {"to": f"{item.ip}:{item.port}", "send": item.octets.hex()}
        for item in sent
    ]


def agree(expect: list[Any], sent: list[Sent]) -> bool:
    """Tell whether these datagrams, in this order, are what is expected."""
    if not expect:
        return not sent
    first, rest = expect[0], expect[1:]
    if "any_order" not in first:
        return bool(sent) and _is(first, sent[0]) and agree(rest, sent[1:])
    runs = first["any_order"]
    if all(len(run) == 1 for run in runs):
        # Without this, many runs of one datagram each would take for ever.
        left = [run[0] for run in runs]
        for one in sent[: len(left)]:
            found = next((wanted for wanted in left if _is(wanted, one)), None)
            if found is None:
                return False
            left.remove(found)
        return not left and agree(rest, sent[len(runs) :])
    return any(agree([*chain.from_iterable(order), *rest], sent) for order in permutations(runs))


def _is(wanted: dict[str, str], sent: Sent) -> bool:
    octets = sent.octets.hex()
    return (
        wanted["to"] == f"{sent.ip}:{sent.port}"
        and len(wanted["send"]) == len(octets)
        and all(one in (".", other) for one, other in zip(wanted["send"], octets, strict=True))
    )
