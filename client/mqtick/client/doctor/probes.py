"""The doctor's own messages at the broker: how promptly they are delivered, which are forbidden.

At QoS 0 a message that the access list refuses vanishes silently. So the doctor sees what may be
published by what comes back. It uses topics of a server number that no server has, and a payload
that no program takes for one of its own.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.link import Link, reach
from mqtick.mqtt.loop import Loop
from mqtick.mqtt.pairs import DELAYED_ACK_NS, Pairs, find_hold
from mqtick.protocol.topics import TopicTree
from mqtick.service.broker_checks import check_hold
from mqtick.service.check import Check, ok, warn

_MS = 1_000_000
_PAIRS = 8
_SETTLE_S = 0.3
# Half of the time for which a receiver delays its TCP acknowledgement. A longer delay of every
# message has another cause. Good brokers take 0.1 ms, a wireless link a few milliseconds.
_SLOW_NS = DELAYED_ACK_NS // 2


@dataclass(slots=True)
class Probes:
    """Which of the doctor's own messages came back, and how fast."""

    sent: int = 0
    """How many pairs were sent, on the one topic that a client both writes and reads."""
    unsent: str = ""
    """Why none was sent: the error of the second connection, which sends them; else empty."""
    pairs_ns: list[tuple[int, int]] = field(default_factory=list)
    """Delays of both messages of each pair that came back."""
    loop_topic: str = ""
    time_topic: str = ""
    """Where a time server would publish its time."""
    others_topics: tuple[str, ...] = ()
    """Topics of another client: its requests, and the replies to it."""
    let_through: frozenset[str] = frozenset()
    """The forbidden topics on which a message came back."""


class Prober:
    """Sends and recognises the doctor's messages on a connection that is up."""

    def __init__(self, loop: Loop, connection: Connection, tree: TopicTree, name: str) -> None:
        self.found = Probes(loop_topic=tree.client_loop(name))
        self._loop, self._connection, self._tree, self._name = loop, connection, tree, name
        self._pairs: Pairs | None = None
        self._heard_on: set[str] = set()
        self._forbidden: tuple[str, ...] = ()

    def takes(self, arrival: Arrival) -> bool:
        """Note one of our own messages; False for any other message."""
        if self._pairs is not None and self._pairs.takes(arrival):
            return True
        if arrival.topic not in self._forbidden or arrival.payload:
            return False
        self._heard_on.add(arrival.topic)
        return True

    def measure(self) -> None:
        """Send pairs to ourselves over a second connection (see `Pairs`)."""
        connection, found = self._connection, self.found
        sender = Connection(
            self._loop,
            connection.broker.part("pairs"),
            f"mqtick-{self._name}",
            on_publish=lambda _arrival: None,
            on_up=lambda: None,
            check_dates=connection.check_dates,
            quiet=True,
        )
        reach(self._loop, [sender])
        self._pairs = pairs = Pairs(sender, connection, found.loop_topic)
        found.unsent = "" if sender.connected else Link.of(sender).error
        for _ in range(_PAIRS if sender.connected else 0):
            pairs.send()
        self._loop.turn_for(_SETTLE_S if pairs.sent else 0)
        found.sent, found.pairs_ns = pairs.sent, pairs.delays_ns()
        sender.close()

    def trespass(self, numbers: Iterable[int]) -> None:
        """Try what a client must not do; `numbers`: the servers that are present.

        A broker may close the connection at once, so this comes last.
        """
        used = frozenset(numbers)
        free = next(number for number in range(255, -1, -1) if number not in used)
        other = secrets.token_hex(8)
        tree, found = self._tree, self.found
        found.time_topic = tree.time(free)
        found.others_topics = (tree.request(free, other), tree.reply(free, other))
        topics = self._forbidden = (found.time_topic, *found.others_topics)
        for topic in topics:
            self._connection.subscribe([topic])
        self._loop.turn_for(_SETTLE_S)
        for topic in topics:
            self._connection.publish(topic, b"")  # as what clears a retained message: no trace
        self._loop.turn_for(_SETTLE_S)
        found.let_through = frozenset(self._heard_on.intersection(topics))


def check_promptness(probes: Probes) -> Iterator[Check]:
    """Check that the broker forwards each message at once."""
    if probes.unsent:
        yield warn(
            "promptness",
            f"not measured, a second connection fails: {probes.unsent}",
            "a second connection",
            "does the broker limit the connections of an account, or has it too many "
            "(Mosquitto: max_connections)? time servers need several too",
        )
    if not probes.sent:
        return
    if not probes.pairs_ns:
        yield warn(
            "messages to itself",
            f"none of {2 * probes.sent} came back on {probes.loop_topic}",
            "all",
            "access list: the client reads and writes this topic; without it there is no echo, "
            "and the bounds are wider",
        )
        return
    first_ns = statistics.median(first for first, _ in probes.pairs_ns)
    value = f"{first_ns / _MS:.2f} ms to the broker and back"
    if first_ns > _SLOW_NS:
        remedy = "a slow network; or a bridge, a proxy or a timer on the way: mqtick-lab doctor"
        yield warn("promptness", value, f"at most {_SLOW_NS // _MS} ms", remedy)
        return
    # Only a warning: our own programs acknowledge at once, so the broker does not delay for them.
    held = check_hold("promptness", find_hold(probes.pairs_ns), "WARN")
    yield replace(held, value=f"{value}, {held.value}")


def check_access(
    probes: Probes, *, hears_time: bool, has_keys: bool, has_accounts: bool, account: str
) -> list[Check]:
    """Check that the access list keeps a client from publishing as a server or another client."""
    if not probes.time_topic:
        return []
    who = f"the account '{account}'" if account else "anyone who connects, without an account,"
    if probes.time_topic in probes.let_through:
        worth = (
            "keys protect this client: it refuses such messages, but has to look at each"
            if has_keys
            else "without keys (keys_file) nothing else protects the clocks"
        )
        remedy = (
            "let only the time servers' accounts write these topics, each its own number "
            "(docs/protocol.md, section 3)"
            if has_accounts
            else "over UDP there are no accounts: let the broker accept your subnets only"
        )
        return [
            warn(
                "access list",
                f"{who} may publish time for every clock: a message on {probes.time_topic} "
                "came through",
                "refused",
                f"{remedy}; {worth}",
            )
        ]
    if probes.let_through:
        return [_others(who, sorted(probes.let_through))]
    # A client that receives no time messages would not receive its own either. Nor does it find out
    # what it may write and not read: requests in the name of another client, for instance.
    kept_from = "publishing time, and from both writing and reading what is another client's"
    return [ok("access list", f"keeps this account from {kept_from}")] if hears_time else []


def _others(who: str, topics: Sequence[str]) -> Check:
    return warn(
        "access list",
        f"{who} may write and read what is another client's: {', '.join(topics)}",
        "refused",
        "end the topics q, r and f of a client with its user name (Mosquitto: pattern ... %u; "
        "docs/protocol.md, section 3)",
    )
