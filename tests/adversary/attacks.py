"""What whoever runs the broker can do, as moves that a scenario combines.

A move is active from `start_s` for `length_s`, and meets messages of some topics on their way to
some connections, each with a probability. `amount_ns` is how much of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hostile_broker import UNKNOWN_NS, Delivery, Message, Trailer
from play import FLEET, NAME, Conditions, Play
from virtual_time import MS, SECOND, HostClock

from mqtick.mqtt.stamps import StampSource
from mqtick.protocol import text1451
from mqtick.protocol.auth import Keyring
from mqtick.protocol.precise import Leap, Time
from mqtick.protocol.topics import TopicTree

_TREE = TopicTree()
_REMEMBERED = 64
_OTHER_TOPICS = ("r", "f", "t", "q", "c", "l")


class Move(NamedTuple):
    """One thing that is done to the messages."""

    kind: str
    start_s: float = 0.0
    length_s: float = 1e6
    topics: str = "qrf"
    """Letters of the topics: t time, q request, r reply, f follow-up, c and l loops, o order."""
    roles: tuple[str, ...] = ("client", "server", "first", "last")
    """Who does not receive what was sent."""
    share: float = 1.0
    amount_ns: int = 0


@dataclass(frozen=True)
class Forged:
    """What a broadcast made with the broadcast key says."""

    error_ns: int = 0
    root_distance_ns: int = 0
    leap: Leap = Leap.NONE
    generation: int = 0
    sequence: int = 0
    number: int = 0
    correction_ns: int | None = 0


class Adversary:
    """Plays the moves; knows every message that passed, and the broadcast key where given."""

    def __init__(self, play: Play, moves: Sequence[Move], *, broadcast_key: bool = False) -> None:
        self._play, self._world = play, play.world
        self._chance = play.world.random
        self._keys = Keyring(fleet=(FLEET,)).broadcast() if broadcast_key else None
        self._seen: deque[Message] = deque(maxlen=_REMEMBERED)
        self._asked: dict[bytes, Delivery] = {}
        self._early_ns: dict[bytes, int] = {}
        self._ahead_ns = self._world.now_ns
        self._trailers: deque[Trailer] = deque(maxlen=_REMEMBERED)
        self._sequence = 0
        self._moves = [move for move in moves if move.kind in _CHANGES]
        self.done = 0
        """How often something was done."""
        for move in moves:
            if move.kind not in _CHANGES:
                self._later(move.start_s * SECOND, move)

    # -- messages that pass ------------------------------------------------------------------------

    def seen(self, message: Message) -> None:
        self._seen.append(message)

    def change(self, deliveries: Sequence[Delivery]) -> Iterable[Delivery]:
        now_s = self._world.elapsed_ns / SECOND
        for move in self._moves:
            if deliveries and move.start_s <= now_s < move.start_s + move.length_s:
                letter = _letter(deliveries[0].topic)
                if letter in move.topics:
                    deliveries = [
                        changed for one in deliveries for changed in self._changed(move, one)
                    ]
        return deliveries

    def _changed(self, move: Move, delivery: Delivery) -> list[Delivery]:
        if delivery.role not in move.roles or self._chance.random() >= move.share:
            return [delivery]
        self.done += 1
        return _CHANGES[move.kind](self, move, delivery)

    def _delay(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Always as long."""
        return [delivery._replace(due_ns=delivery.due_ns + move.amount_ns)]

    def _bend(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Ever longer, so that a line through the middles says another frequency."""
        since_s = self._world.elapsed_ns / SECOND - move.start_s
        late_ns = min(round(move.amount_ns * since_s / 10), 3 * SECOND)
        return [delivery._replace(due_ns=delivery.due_ns + late_ns)]

    def _sway(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Long for a while, then not at all, and so on."""
        is_long = self._world.elapsed_ns // (7 * SECOND) % 2
        return [delivery._replace(due_ns=delivery.due_ns + is_long * move.amount_ns)]

    def _reorder(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """At most so long: the next one may be there sooner."""
        late_ns = self._chance.randrange(move.amount_ns + 1)
        return [delivery._replace(due_ns=delivery.due_ns + late_ns)]

    def _drop(self, _move: Move, _delivery: Delivery) -> list[Delivery]:
        return []

    def _duplicate(self, move: Move, delivery: Delivery) -> list[Delivery]:
        return [delivery, delivery._replace(due_ns=delivery.due_ns + move.amount_ns)]

    def _flip(self, _move: Move, delivery: Delivery) -> list[Delivery]:
        payload = bytearray(delivery.payload)
        if payload:
            payload[self._chance.randrange(len(payload))] ^= 1 << self._chance.randrange(8)
        return [delivery._replace(payload=bytes(payload))]

    def _splice(self, _move: Move, delivery: Delivery) -> list[Delivery]:
        """Put a part of this message, and the rest of an older one, together."""
        like = [one for one in self._seen if len(one.payload) == len(delivery.payload)]
        if not like:
            return [delivery]
        old = self._chance.choice(like).payload
        cut = self._chance.choice((0, 1, 2, 6, len(old) - 8))
        payload = delivery.payload[:cut] + old[cut:]
        return [delivery._replace(payload=payload)]

    def _swap(self, _move: Move, delivery: Delivery) -> list[Delivery]:
        """Deliver an older one of the same topic instead."""
        like = [one.payload for one in self._seen if one.topic == delivery.topic]
        return [delivery._replace(payload=self._chance.choice(like or [delivery.payload]))]

    def _written(self, delivery: Delivery, write: Callable[[Trailer], Trailer]) -> list[Delivery]:
        """Write into the trailer, if there is one."""
        trailer = Trailer.of(delivery.payload)
        if trailer is None:
            return [delivery]
        self._trailers.append(trailer)
        return [delivery._replace(payload=write(trailer).into(delivery.payload))]

    def _residence(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """State another residence, of any source; also where the broker states none."""
        chance = self._chance
        lie_ns = chance.choice((chance.randrange(move.amount_ns + 1), move.amount_ns, 2**48 - 1))
        return self._written(
            delivery,
            lambda it: it._replace(
                residence_ns=min(lie_ns, it.residence_ns + lie_ns),
                source=chance.choice((0, 1, 2, 3, 3, 255)),
            ),
        )

    def _more_residence(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """State so much more than there was, with the best of sources."""
        return self._written(
            delivery,
            lambda it: it._replace(residence_ns=it.residence_ns + move.amount_ns, source=3),
        )

    def _correction(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Say that the copy before was so much off."""
        lie_ns = self._chance.choice((move.amount_ns, -move.amount_ns, UNKNOWN_NS, 2**31 - 1))
        lie_ns = min(max(lie_ns, UNKNOWN_NS), 2**31 - 1)
        return self._written(delivery, lambda it: it._replace(correction_ns=lie_ns))

    def _copy(self, _move: Move, delivery: Delivery) -> list[Delivery]:
        """Count otherwise, so that a correction seems to be of another copy."""
        copy = self._chance.choice((0, 1, 2, 3, 2**24 - 1, self._chance.randrange(2**24)))
        return self._written(delivery, lambda it: it._replace(copy=copy))

    def _other_trailer(self, _move: Move, delivery: Delivery) -> list[Delivery]:
        """Deliver it with the trailer of another message."""
        others = list(self._trailers)
        return self._written(delivery, lambda it: self._chance.choice(others or [it]))

    def _unfill(self, _move: Move, delivery: Delivery) -> list[Delivery]:
        """Say nothing any more."""
        return self._written(delivery, lambda _it: Trailer())

    def _unstated(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Nobody's attack: it waits in another broker too, which does not say how long."""
        late = delivery._replace(due_ns=delivery.due_ns + move.amount_ns)
        return self._written(late, lambda _it: Trailer(correction_ns=UNKNOWN_NS))

    def _restated(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """The same, but a bridge empties the trailer: the next broker states its own share only."""
        late = delivery._replace(due_ns=delivery.due_ns + move.amount_ns)
        return self._written(late, lambda it: it._replace(correction_ns=UNKNOWN_NS, source=3))

    def _other_correction(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Have a request answered twice, and give the client the first reply with the last's end.

        The request is delayed. Once it is answered, the server's window is closed and the request
        sent again: the second reply states when it was written and leaves much later, which its
        follow-up or echo says.
        """
        letter, sequence = _letter(delivery.topic), delivery.payload[2:6]
        if letter == "q":
            self._asked[sequence] = delivery
            return [delivery._replace(due_ns=delivery.due_ns + move.amount_ns)]
        if letter == "f" or sequence not in self._asked:
            return [delivery]
        if delivery.role == "client":
            asked = self._asked.pop(sequence)
            self._play.broker.lines["server"].tcp.window_ns = self._world.now_ns + move.amount_ns
            self._deliver("server", asked.topic, asked.payload)
            return [delivery]
        return []

    def _early_reply(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Have the end of a reply come before it, as a segment out of order.

        It is sent when the request comes, which waits `amount_ns`. A trailer is outside the tag, so
        its octets are known; the last octet of a tag is guessed.
        """
        if _letter(delivery.topic) == "q" and delivery.role == "server":
            self._send_ahead("client", delivery.due_ns)
            return [delivery._replace(due_ns=delivery.due_ns + move.amount_ns)]
        return [delivery]

    def _early_request(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Have the end of the next request come right after this one, `amount_ns` later at most.

        Its reply waits for as long as that was too early, so that no delay seems to be negative.
        """
        letter, sequence = _letter(delivery.topic), delivery.payload[2:6]
        if letter == "q" and delivery.role == "server":
            self._early_ns[sequence] = delivery.due_ns - self._ahead_ns + MS
            self._ahead_ns = delivery.due_ns + self._chance.randrange(move.amount_ns + 1)
            self._send_ahead("server", self._ahead_ns)
        elif letter == "r" and delivery.role == "client":
            return [
                delivery._replace(due_ns=delivery.due_ns + self._early_ns.pop(sequence, 0)),
            ]
        return [delivery]

    def _send_ahead(self, role: str, due_ns: int) -> None:
        line = self._play.broker.lines.get(role)
        came_ns = due_ns + self._play.broker.least_link_ns
        if line is not None:
            self._world.call_at(due_ns, lambda: line.tcp.send_ahead(came_ns))

    def _late_tail(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Take all but the end of what they send, which leaves `amount_ns` later.

        What comes back to them waits for as long, so that no delay seems to be negative.
        """
        small = self._chance.random() < 0.7
        for role in {"client", "server"} & set(move.roles):
            line = self._play.broker.lines.get(role)
            if line is not None:
                line.tcp.hold_tails(move.amount_ns, self._world.now_ns + SECOND, small=small)
        waits = "r" if "client" in move.roles else "q"
        late_ns = move.amount_ns + MS if _letter(delivery.topic) == waits else 0
        return [delivery._replace(due_ns=delivery.due_ns + late_ns)]

    def _retopic(self, _move: Move, delivery: Delivery) -> list[Delivery]:
        """Deliver it as what it is not, from whom it is not, or to whom it is not."""
        letter, number = self._chance.choice(_OTHER_TOPICS), self._chance.choice("0017")
        name = self._chance.choice(("", f"/{NAME}", f"/{NAME}", "/other"))
        role = self._chance.choice(("client", "server", delivery.role))
        return [delivery._replace(topic=f"mqtick/{letter}/{number}{name}", role=role)]

    # -- clocks ------------------------------------------------------------------------------------

    def _set(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Step a clock of those who receive it, at any moment about its arrival."""
        self._host(delivery).set(self._signed(move.amount_ns), self._about(delivery))
        return [delivery]

    def _set_and_back(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Step that clock and, as soon or a little later, step it back."""
        host, by_ns, at_ns = (
            self._host(delivery),
            self._signed(move.amount_ns),
            self._about(delivery),
        )
        host.set(by_ns, at_ns)
        host.set(-by_ns, at_ns + self._chance.choice((0, 1, self._chance.randrange(2 * MS))))
        return [delivery]

    def _sleep(self, move: Move, delivery: Delivery) -> list[Delivery]:
        """Nobody's attack: somebody closes the lid of the client."""
        self._play.client_clock.sleep(move.amount_ns, self._about(delivery))
        return [delivery]

    def _host(self, delivery: Delivery) -> HostClock:
        return self._play.broker.lines[delivery.role].host

    def _about(self, delivery: Delivery) -> int:
        """An instant between now and some time after it is read."""
        chance, link_ns = self._chance, self._play.broker.least_link_ns
        until_ns = delivery.due_ns - self._world.now_ns + chance.choice((2 * link_ns, 10 * MS))
        return self._world.now_ns + 1 + chance.randrange(until_ns + 1)

    def _signed(self, amount_ns: int) -> int:
        return self._chance.choice((-1, 1)) * amount_ns

    # -- what is done without a message ------------------------------------------------------------

    def _later(self, after_ns: float, move: Move) -> None:
        self._world.call_later(round(after_ns), lambda: self._act(move))

    def _act(self, move: Move) -> None:
        end_ns = (move.start_s + move.length_s) * SECOND
        if self._world.elapsed_ns >= end_ns:
            return
        self.done += 1
        _ACTS[move.kind](self, move)
        steady = move.kind == "ramp"
        pause_s = 1.0 if steady else self._chance.uniform(0.2, 2.0) / max(move.share, 0.05)
        self._later(pause_s * SECOND, move)

    def _replay(self, move: Move) -> None:
        """Say again what was said, to whom it was said."""
        if not self._seen:
            return
        message = self._chance.choice(self._seen)
        for role in ("server",) if _letter(message.topic) == "q" else move.roles:
            self._deliver(role, message.topic, message.payload)

    def _ask_again(self, _move: Move) -> None:
        """Replay the last request to the server."""
        requests = [one for one in self._seen if _letter(one.topic) == "q"]
        if requests:
            self._deliver("server", requests[-1].topic, requests[-1].payload)

    def _window(self, move: Move) -> None:
        """Take no octets from them for a while: what they send leaves later than they say."""
        for role in move.roles:
            line = self._play.broker.lines.get(role)
            if line is not None:
                line.tcp.window_ns = self._world.now_ns + move.amount_ns

    def _cut(self, move: Move) -> None:
        for role in move.roles:
            self._play.broker.lines[role].drop("cut")

    def _restart(self, _move: Move) -> None:
        """Nobody's attack: the server starts anew, at the worst moment."""
        server = self._play.server
        generation = (server.generation + 17) % 256  # never the last one, as of its program
        self._play.truth.begins(generation)
        server.generation = generation
        server.broadcast.forget_previous()
        server.broadcast.sequence = 0

    def _forge(self, move: Move) -> None:
        """A broadcast with a right tag that says what suits us."""
        chance, sign = self._chance, self._chance.choice((-1, -1, 1))
        server = self._play.server
        own = chance.random() < 0.9
        self.say_time(
            Forged(
                error_ns=sign * chance.randrange(move.amount_ns + 1),
                root_distance_ns=chance.choice((0, 0, 10**9)),
                leap=chance.choice(list(Leap)),
                generation=server.generation if own else chance.randrange(256),
                sequence=server.broadcast.sequence + chance.choice((0, 1, 1, 1, 2, 2**31 - 1)),
                number=chance.choice((0, 0, 0, 0, 1)),
                correction_ns=chance.choice((0, None, -(2**31) + 1, 2**31 - 1, -MS, MS)),
            )
        )

    def _ramp(self, move: Move) -> None:
        """Broadcasts that come ever earlier, or later, by `amount_ns` each second."""
        server = self._play.server
        since_s = self._world.elapsed_ns / SECOND - move.start_s
        self._sequence += 1
        self.say_time(
            Forged(
                error_ns=round(move.amount_ns * since_s) - MS,
                generation=server.generation,
                sequence=server.broadcast.sequence + 1000 + self._sequence,
            )
        )

    def say_time(self, forged: Forged) -> None:
        """Publish a time message of our own making, to the server too, whose number it has."""
        topic = _TREE.time(forged.number)
        message = Time(
            forged.number,
            forged.sequence % 2**32,
            max(self._play.server_clock.time_ns() + forged.error_ns, 0),
            forged.correction_ns,
            forged.root_distance_ns,
            1,
            forged.leap,
            StampSource.KERNEL,
            forged.generation,
        )
        keys = Keyring().broadcast() if self._keys is None else self._keys
        for role in ("client", "server"):
            self._deliver(role, topic, keys.sign(message.body(), topic))

    def _foreign(self, move: Move) -> None:
        """Answer in formats that carry no tags."""
        lie_ns = self._play.server_clock.time_ns() + move.amount_ns
        self._deliver("client", text1451.SYN_TOPIC, text1451.encode_time(lie_ns))

    def _status(self, _move: Move) -> None:
        """Name servers that are not there."""
        topic = _TREE.status(self._chance.randrange(256))
        self._deliver("client", topic, b'{"state": "synchronised"}')

    def _deliver(self, role: str, topic: str, payload: bytes) -> None:
        line = self._play.broker.lines.get(role)
        if line is not None and line.connected:
            line.deliver(topic, payload, self._world.now_ns)


def _letter(topic: str) -> str:
    head, _, rest = topic.partition("/")
    return rest[:1] if head == "mqtick" else "-"


_Change = Callable[[Adversary, Move, Delivery], list[Delivery]]
_CHANGES: dict[str, _Change] = {
    "delay": Adversary._delay,
    "bend": Adversary._bend,
    "sway": Adversary._sway,
    "reorder": Adversary._reorder,
    "drop": Adversary._drop,
    "duplicate": Adversary._duplicate,
    "flip": Adversary._flip,
    "splice": Adversary._splice,
    "swap": Adversary._swap,
    "retopic": Adversary._retopic,
    "other-correction": Adversary._other_correction,
    "early-reply": Adversary._early_reply,
    "early-request": Adversary._early_request,
    "late-tail": Adversary._late_tail,
    "residence": Adversary._residence,
    "more-residence": Adversary._more_residence,
    "correction": Adversary._correction,
    "copy": Adversary._copy,
    "other-trailer": Adversary._other_trailer,
    "unfill": Adversary._unfill,
    "unstated": Adversary._unstated,
    "restated": Adversary._restated,
    "set": Adversary._set,
    "set-and-back": Adversary._set_and_back,
    "sleep": Adversary._sleep,
}
_ACTS: dict[str, Callable[[Adversary, Move], None]] = {
    "replay": Adversary._replay,
    "ask-again": Adversary._ask_again,
    "window": Adversary._window,
    "cut": Adversary._cut,
    "restart": Adversary._restart,
    "forge": Adversary._forge,
    "ramp": Adversary._ramp,
    "foreign": Adversary._foreign,
    "status": Adversary._status,
}
KINDS = (*_CHANGES, *_ACTS)


def attacked(conditions: Conditions, moves: Sequence[Move], *, broadcast_key: bool = False) -> Play:
    """Play a scenario to its end, and return what came of it."""
    play = Play(conditions)
    play.broker.attack = Adversary(play, moves, broadcast_key=broadcast_key)
    with play.running():
        play.run()
    return play
