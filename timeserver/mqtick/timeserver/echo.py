"""The private echo: two connections of the server that bracket each client's reply.

The broker delivers to exact subscriptions in the order in which they were made, then to `+`, then
to `#` (Mosquitto). So the first echo subscribes to a client's very topic before the client does,
and the last echo subscribes to `#` below the server's reply topics.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from mqtick.protocol.broker import Broker
from mqtick.protocol.frames import Arrival
from mqtick.protocol.loop import Loop
from mqtick.protocol.mqtt import Connection
from mqtick.protocol.topics import TopicTree

__all__ = ["EchoPair"]

_IDLE_NS = 1_800_000_000_000


class EchoPair:
    """Keeps the two connections and, for each client, the first echo's subscription.

    `placement` changes (modulo 4) whenever the first echo subscribed anew, so that clients know
    that they must place themselves behind it again.
    """

    def __init__(
        self,
        loop: Loop,
        broker: Broker,
        client_id: str,
        number: int,
        tree: TopicTree,
        on_echo: Callable[[Arrival, bool], None],
        *,
        limit: int = 4096,
    ) -> None:
        self._number, self._tree, self._limit = number, tree, limit
        self._clients: OrderedDict[str, tuple[bool, int]] = OrderedDict()
        self.placement = 0
        self._last_ready = False
        self.first = Connection(
            loop,
            broker,
            f"{client_id}-first",
            on_publish=lambda arrival: on_echo(arrival, False),
            on_up=self._first_up,
        )
        self.last = Connection(
            loop,
            broker,
            f"{client_id}-last",
            on_publish=lambda arrival: on_echo(arrival, True),
            on_up=self._last_up,
            on_down=lambda _reason: self._set_last(False),
        )

    def start(self) -> None:
        """Connect both."""
        self.first.start()
        self.last.start()

    def _set_last(self, ready: bool) -> None:
        self._last_ready = ready

    def _last_up(self) -> None:
        self.last.subscribe([self._tree.all_replies(self._number)], self._set_last)

    def _first_up(self) -> None:
        self.placement = (self.placement + 1) % 4
        clients = list(self._clients)
        self._clients.clear()
        for client in clients:
            self.ready(client)

    @property
    def clients(self) -> int:
        """How many clients have an echo."""
        return sum(granted for granted, _ in self._clients.values())

    def ready(self, client: str) -> bool:
        """Whether this client's replies are bracketed now; if not, see to it for the next time."""
        now_ns = time.monotonic_ns()
        known = self._clients.get(client)
        if known is not None:
            self._clients[client] = (known[0], now_ns)
            self._clients.move_to_end(client)
            return known[0] and self._last_ready and self.first.connected
        self._forget_idle(now_ns)
        if self.first.connected and len(self._clients) < self._limit:
            self._clients[client] = (False, now_ns)
            self.first.subscribe(
                [self._tree.reply(self._number, client)],
                lambda granted: self._granted(client, granted),
            )
        return False

    def _granted(self, client: str, granted: bool) -> None:
        if granted and client in self._clients:
            self._clients[client] = (True, time.monotonic_ns())

    def _forget_idle(self, now_ns: int) -> None:
        while self._clients:
            client, (_, asked_ns) = next(iter(self._clients.items()))
            if now_ns - asked_ns < _IDLE_NS:
                return
            del self._clients[client]
            self.first.unsubscribe([self._tree.reply(self._number, client)])

    def close(self) -> None:
        """Disconnect both."""
        self.first.close()
        self.last.close()
