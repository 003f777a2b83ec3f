#!/usr/bin/env python3
"""A model of the exchange, searched in full: a client, a server, and whoever runs the broker.

Symbolic, as Dolev and Yao have it ("On the security of public key protocols", 1983): a tag is a
term that only who holds its key can make; whoever runs the broker knows every message that left a
host, delivers what he likes to whom he likes when he likes, and says when a host's octets leave.
As he owns the other end of each connection, he also moves the stamps of octets that nobody needs.
Time passes in whole ticks, and both clocks are right: the true offset is 0. README.md says what is
modelled and what is not.

    .venv/bin/python docs/security/exchange_model.py [--large]
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = ["CONFIGURATIONS", "Configuration", "Finding", "search"]


@dataclass(frozen=True)
class Configuration:
    """The protocol, as it is unless something is switched back to what it was or might be."""

    name: str = "the protocol"
    keys: bool = True
    context: str = "reply"
    """What binds a follow-up: the tag of the `reply`, or the `nonce` of the request."""
    answers_once: bool = True
    """Whether the server remembers which nonces it answered (until it starts again)."""
    may_restart: bool = True
    broadcast_key_known: bool = True
    """Whether a client was broken into that held it."""
    clips_broadcasts: bool = True
    """Whether a broadcast moves the estimate only inside the interval."""
    waits_for_exchange: bool = True
    """Whether a broadcast before the first exchange is refused."""
    moved: frozenset[str] = frozenset()
    """Which stamps count although whoever owns the other end of the connection can move them:
    T1, T3 (that of the follow-up) made late, T2, T4 made early."""
    broadcasts: bool = True
    checks_dates_at: str = "exchange"
    """When the dates of the broker's certificate are checked: at the end of an `exchange`, however
    it ends, or when a `follow-up` came."""
    requests: int = 1
    replies: int = 2
    ticks: int = 3


# -- terms -----------------------------------------------------------------------------------------

Body = tuple[object, ...]


class Tag(NamedTuple):
    """What HMAC makes; nobody makes it without the key, or finds another message for it."""

    key: str
    topic: str
    context: object
    body: Body


class Message(NamedTuple):
    """Octets on the wire."""

    body: Body
    tag: Tag | None


CLIENT, BROADCAST = "client key", "broadcast key"


def _signed(key: str, topic: str, body: Body, context: object = None) -> Message:
    return Message(body, Tag(key, topic, context, body))


# -- states ----------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A request of the client: when it left, the reply that was accepted, and what came of it."""

    left: int
    reply: Message | None = None
    came: int = 0
    interval: tuple[int, int] | None = None
    refused: bool = False
    """Its delay was negative, which none can be: it counts for nothing."""


class Answer(NamedTuple):
    """A reply of the server: written, and, once its window was open, gone."""

    message: Message
    left: int | None = None
    followed: bool = False


class State(NamedTuple):
    """Everything that tells one situation from another."""

    now: int = 0
    asked: tuple[Asked, ...] = ()
    answers: tuple[Answer, ...] = ()
    answered: frozenset[int] = frozenset()
    restarted: bool = False
    known: frozenset[Message] = frozenset()
    estimate: int | None = None
    """By how much the client's estimate is wrong; None while it has none."""
    dates_checked: bool = False


class Finding(NamedTuple):
    """A claim that does not hold, and the steps to there; or no claim, and how much was seen."""

    claim: str
    steps: tuple[str, ...]
    states: int


# -- what can happen next --------------------------------------------------------------------------


def _steps(state: State, given: Configuration) -> Iterator[tuple[str, State]]:
    if state.now < given.ticks:
        yield "a tick passes", state._replace(now=state.now + 1)
    yield from _client_asks(state, given)
    yield from _server_takes(state, given)
    yield from _window_opens(state, given)
    yield from _client_takes(state, given)
    yield from _client_gives_up(state, given)
    yield from _broadcast(state, given)
    if given.may_restart and not state.restarted:
        forgotten = state._replace(restarted=True, answered=frozenset())
        yield "the server starts again", forgotten


def _client_asks(state: State, given: Configuration) -> Iterator[tuple[str, State]]:
    nonce = len(state.asked)
    if nonce < given.requests:
        request = _signed(CLIENT, "q", ("request", nonce))
        asked = (*state.asked, Asked(state.now))
        yield (
            f"the client asks: nonce {nonce}, at {state.now}",
            state._replace(asked=asked, known=state.known | {request}),
        )


def _server_takes(state: State, given: Configuration) -> Iterator[tuple[str, State]]:
    """Any message that is known may come to the server as a request."""
    if len(state.answers) >= given.replies:
        return
    for message in state.known:
        if not _verified(message, given, CLIENT, "q") or message.body[0] != "request":
            continue
        nonce = message.body[1]
        assert isinstance(nonce, int)
        if given.answers_once and nonce in state.answered:
            continue
        # The server answers at once; the window decides when the answer leaves.
        for received in _came("T2", 0, state, given):
            body = ("reply", nonce, received, state.now, len(state.answers))
            answer = Answer(_signed(CLIENT, "r", body, nonce))
            yield (
                f"the server takes nonce {nonce} and writes reply {len(state.answers)}: "
                f"T2 = {received}, T3 = {state.now}",
                state._replace(answers=(*state.answers, answer), answered=state.answered | {nonce}),
            )


def _came(stamp: str, since: int, state: State, given: Configuration) -> Iterable[int]:
    """The stamps of what has come now; of its last octets, if those came first."""
    return range(since if stamp in given.moved else state.now, state.now + 1)


def _left(stamp: str, left: int, state: State, given: Configuration) -> Iterable[int]:
    """The stamps of what could be read when it left; of its last octets, if those left later."""
    return range(left, (state.now if stamp in given.moved else left) + 1)


def _window_opens(state: State, given: Configuration) -> Iterator[tuple[str, State]]:
    """Let a reply leave now, or the follow-up of one that left: then the broker knows it."""
    for index, answer in enumerate(state.answers):
        body = answer.message.body
        if answer.left is None:
            gone = answer._replace(left=state.now)
            yield (
                f"reply {index} leaves at {state.now}",
                _with_answer(state, index, gone, answer.message),
            )
        elif not answer.followed:
            context = answer.message.tag if given.context == "reply" else body[1]
            stated = _integer(body[3])
            # 0: no stamp of the kernel counts.
            corrections = {0, *(at - stated for at in _left("T3", answer.left, state, given))}
            for correction in sorted(corrections):
                end = _signed(CLIENT, "f", ("follow-up", body[1], correction), context)
                yield (
                    f"the follow-up of reply {index} says + {correction}",
                    _with_answer(state, index, answer._replace(followed=True), end),
                )


def _with_answer(state: State, index: int, answer: Answer, message: Message) -> State:
    answers = (*state.answers[:index], answer, *state.answers[index + 1 :])
    return state._replace(answers=answers, known=state.known | {message})


def _client_takes(state: State, given: Configuration) -> Iterator[tuple[str, State]]:
    """Any message that is known, or that can be made, may come to the client on any topic."""
    for nonce, asked in enumerate(state.asked):
        if asked.interval is not None or asked.refused:
            continue
        for message in _available(state, given, nonce):
            kind = message.body[0]
            if message.body[1] != nonce:
                continue
            if asked.reply is None and kind == "reply":
                if not _verified(message, given, CLIENT, "r", nonce):
                    continue
                for came in _came("T4", asked.left, state, given):
                    took = asked._replace(reply=message, came=came)
                    yield (
                        f"the client takes {_named(message)}: T4 = {came}",
                        state._replace(asked=_with(state.asked, nonce, took)),
                    )
            elif asked.reply is not None and kind == "follow-up":
                context = asked.reply.tag if given.context == "reply" else nonce
                if _verified(message, given, CLIENT, "f", context):
                    correction = _integer(message.body[2])
                    step = f"the client takes a follow-up with + {correction}"
                    yield from _completed(step, state, given, nonce, correction)


def _available(state: State, given: Configuration, nonce: int) -> Iterator[Message]:
    yield from state.known
    if not given.keys:
        for sent in range(given.ticks + 1):
            yield Message(("reply", nonce, sent, sent, 0), None)
            yield Message(("follow-up", nonce, sent), None)


def _client_gives_up(state: State, given: Configuration) -> Iterator[tuple[str, State]]:
    """No follow-up came: the exchange counts with what its reply stated."""
    for nonce, asked in enumerate(state.asked):
        if asked.reply is not None and asked.interval is None and not asked.refused:
            step = f"the client waits no longer for the end of nonce {nonce}"
            yield from _completed(step, state, given, nonce, None)


def _completed(
    step: str, state: State, given: Configuration, nonce: int, correction: int | None
) -> Iterator[tuple[str, State]]:
    """An exchange is complete, with a follow-up or (no correction) without one."""
    asked = state.asked[nonce]
    assert asked.reply is not None
    received, sent = _integer(asked.reply.body[2]), _integer(asked.reply.body[3])
    checked = state.dates_checked or correction is not None or given.checks_dates_at == "exchange"
    for left in _left("T1", asked.left, state, given):
        lower, upper = sent + (correction or 0) - asked.came, received - left
        if upper < lower:
            refused = asked._replace(refused=True)
            yield step, state._replace(asked=_with(state.asked, nonce, refused))
            continue
        took = asked._replace(interval=(lower, upper))
        after = state._replace(asked=_with(state.asked, nonce, took), dates_checked=checked)
        estimate = _into(_interval(after), (lower + upper) // 2)
        yield f"{step}: T1 = {left}", after._replace(estimate=estimate)


def _broadcast(state: State, given: Configuration) -> Iterator[tuple[str, State]]:
    """A broadcast that anybody made who has the key: as far off as he likes."""
    if not given.broadcasts or (given.keys and not given.broadcast_key_known):
        return
    interval = _interval(state)
    if interval is None and given.keys and given.waits_for_exchange:
        return
    for error in (-given.ticks - 1, given.ticks + 1):
        moved = _into(interval, error) if given.clips_broadcasts else error
        if moved != state.estimate:
            yield f"the client believes a broadcast: {moved:+d}", state._replace(estimate=moved)


def _interval(state: State) -> tuple[int, int] | None:
    """What all exchanges have in common."""
    found = [asked.interval for asked in state.asked if asked.interval is not None]
    return (max(low for low, _ in found), min(high for _, high in found)) if found else None


def _into(interval: tuple[int, int] | None, offset: int) -> int:
    return offset if interval is None else min(max(offset, interval[0]), interval[1])


def _verified(
    message: Message, given: Configuration, key: str, topic: str, context: object = None
) -> bool:
    return not given.keys or message.tag == Tag(key, topic, context, message.body)


def _with(asked: tuple[Asked, ...], nonce: int, one: Asked) -> tuple[Asked, ...]:
    return (*asked[:nonce], one, *asked[nonce + 1 :])


def _named(message: Message) -> str:
    return f"reply {message.body[4]}" if message.tag is not None else "a reply of the broker's own"


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value


# -- what is claimed -------------------------------------------------------------------------------

INTERVAL = "the interval of an exchange holds the truth"
AGREEMENT = "an exchange ends with the correction of its own reply, or with none"
ESTIMATE = "the estimate stays inside the interval of the exchanges"
BOOT = "nothing is believed before an exchange"
DATES = "whoever knows the time has checked the certificate's dates"


def _broken(state: State, given: Configuration) -> str:
    """Return the first claim that does not hold here."""
    for asked in state.asked:
        if asked.interval is None or asked.reply is None:
            continue
        lower, upper = asked.interval
        if not lower <= 0 <= upper:
            return INTERVAL
        if asked.reply.tag is not None and not _has_own_end(state, asked):
            return AGREEMENT
    interval = _interval(state)
    if state.estimate is None:
        return ""
    if interval is None:
        return BOOT
    if not interval[0] <= state.estimate <= interval[1]:
        return ESTIMATE
    return "" if state.dates_checked else DATES


def _has_own_end(state: State, asked: Asked) -> bool:
    """Whether the reply left after it was written and before it came, as the interval has it."""
    assert asked.interval is not None
    assert asked.reply is not None
    answer = next(one for one in state.answers if one.message == asked.reply)
    assert answer.left is not None
    stated = _integer(asked.reply.body[3])
    return asked.interval[0] in (stated - asked.came, answer.left - asked.came)


# -- the search ------------------------------------------------------------------------------------


def search(given: Configuration, wanted: str = "") -> Finding:
    """Look at every state that can be reached; the first broken claim is one of the nearest.

    `wanted`: go on until this claim is broken.
    """
    start = State()
    before: dict[State, tuple[State, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if (claim := _broken(state, given)) and wanted in ("", claim):
            return Finding(claim, _trace(before, state), len(before))
        for step, after in _steps(state, given):
            if after not in before:
                before[after] = state, step
                queue.append(after)
    return Finding("", (), len(before))


def _trace(before: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    steps = []
    while (came := before[state]) is not None:
        state, step = came
        steps.append(step)
    return tuple(reversed(steps))


PROTOCOL = Configuration()
CONFIGURATIONS = (
    (PROTOCOL, ""),
    (
        replace(PROTOCOL, name="a nonce may be answered again", answers_once=False),
        "",
    ),
    (
        replace(PROTOCOL, name="a follow-up is bound to the nonce", context="nonce"),
        INTERVAL,
    ),
    (
        replace(
            PROTOCOL,
            name="a follow-up is bound to the nonce, and no server starts again",
            context="nonce",
            may_restart=False,
        ),
        "",
    ),
    (
        replace(
            PROTOCOL,
            name="both, as it was",
            context="nonce",
            answers_once=False,
            may_restart=False,
        ),
        INTERVAL,
    ),
    (
        replace(PROTOCOL, name="broadcasts are not kept inside", clips_broadcasts=False),
        ESTIMATE,
    ),
    (
        replace(
            PROTOCOL,
            name="broadcasts are not kept inside, nobody was broken into",
            clips_broadcasts=False,
            broadcast_key_known=False,
        ),
        "",
    ),
    (
        replace(PROTOCOL, name="broadcasts count before an exchange", waits_for_exchange=False),
        BOOT,
    ),
    (
        replace(PROTOCOL, name="dates are checked with a follow-up", checks_dates_at="follow-up"),
        DATES,
    ),
    *(
        (replace(PROTOCOL, name=f"{stamp} {how} counts", moved=frozenset({stamp})), INTERVAL)
        for stamp, how in (
            ("T1", "of octets that leave after the tag"),
            ("T2", "of octets that come before the tag"),
            ("T3", "of octets that leave after the tag, or again,"),
            ("T4", "of octets that come before the tag"),
        )
    ),
    (replace(PROTOCOL, name="no keys", keys=False), BOOT),
    (replace(PROTOCOL, name="no keys, no broadcasts", keys=False, broadcasts=False), INTERVAL),
)
"""Each with the claim that falls, or none."""


def main() -> int:
    """Print what each configuration comes to; 0 when all is as expected."""
    parser = argparse.ArgumentParser(description="Search the model of the exchange.")
    parser.add_argument("--large", action="store_true", help="two requests, three replies")
    large = parser.parse_args().large
    good = True
    for configuration, expected in CONFIGURATIONS:
        given = replace(configuration, requests=2, replies=3) if large else configuration
        found = search(given, expected)
        good &= found.claim == expected
        holds = f"every claim holds in {found.states} states"
        print(f"{given.name}: {f'FALLS: {found.claim}' if found.claim else holds}")
        for number, step in enumerate(found.steps, 1):
            print(f"    {number}. {step}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
