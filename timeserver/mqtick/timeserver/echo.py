"""The private echo: two connections of the server that bracket each client's reply.

The broker delivers to exact subscriptions in the order in which they were made, then to `+`, then
to `#` (Mosquitto). So the first echo subscribes to a client's exact topic before the client does,
and the last echo subscribes to `#` below the server's reply topics.

The first delivery of a message takes the broker longest, because it wakes a sleeping processor: 10
to 20 us on a virtual machine. So a third connection, the warmer, is served before the first echo,
and its arrivals are ignored. The delays from first echo to client and to last echo are then small
and similar. All three connections run in a thread of their own, because the server's main thread is
still awake from sending the reply, so that a delivery to it would not wake a processor.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from mqtick.mqtt.broker import Broker
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop
from mqtick.protocol.topics import MAX_TOPIC_OCTETS, TopicTree

# The longest message of the precise format (version 2).
_LONGEST = 64

# Six times the longest pause of our clients between two requests (an hour). If the first echo
# unsubscribed for a client that is still there, and subscribed again later, it would be behind that
# client, and the client would not know.
_IDLE_NS = 6 * 3_600_000_000_000
_PROBE = ""


class EchoPair:
    """Keeps the connections and, for each client, the first echo's subscription.

    The main thread calls `ready`, `hear` and `close`. `on_echo(arrival, last)` is called in it, and
    `on_placed(topic)`, once the first echo has subscribed for the order probe. Everything else
    happens in the echoes' thread. Echoes are handed over when the main thread calls `hear`, because
    each wake-up of one thread by the other costs both.

    `placement` changes (modulo 4) whenever the first echo has subscribed again. It tells clients
    that they must subscribe again, too, to be behind it.
    """

    def __init__(
        self,
        main: Loop,
        broker: Broker,
        name: str,
        number: int,
        tree: TopicTree,
        on_echo: Callable[[Arrival, bool], None],
        on_placed: Callable[[str], None],
        *,
        limit: int = 4096,
    ) -> None:
        self._main, self._on_echo, self._on_placed = main, on_echo, on_placed
        self._number, self._tree, self._limit = number, tree, limit
        self._clients: OrderedDict[str, tuple[bool, int]] = OrderedDict()
        # Bounded, because without the last echo the arrivals at the first one are not taken.
        self._arrived: deque[tuple[Arrival, bool]] = deque(maxlen=4096)
        self.placement = 0
        self._turn, self._probe_topic = 0, ""
        self._at_once = False
        self._last_ready = False
        self._loop = Loop()
        self._thread = threading.Thread(target=self._loop.run, name="echo", daemon=True)
        self.warmer = Connection(
            self._loop,
            broker.part("warm"),
            f"{name}-warm",
            on_publish=lambda _arrival: None,
            on_up=self._place_all,
            quiet=True,
        )
        self.first = Connection(
            self._loop,
            broker.part("first"),
            f"{name}-first",
            on_publish=lambda arrival: self._echo_arrived(arrival, last=False),
            on_up=self._place_all,
            quiet=True,
        )
        self.last = Connection(
            self._loop,
            broker.part("last"),
            f"{name}-last",
            on_publish=lambda arrival: self._echo_arrived(arrival, last=True),
            on_up=self._last_up,
            on_down=lambda _reason: self._set_last(False),
            quiet=True,
        )

    def start(self) -> None:
        """Connect."""
        for connection in (self.warmer, self.first, self.last):
            self._loop.call_soon_threadsafe(connection.start)
        self._thread.start()

    # -- in the main thread ------------------------------------------------------------------

    @property
    def clients(self) -> int:
        """How many clients have an echo."""
        known = list(self._clients.items())
        return sum(granted for client, (granted, _) in known if client != _PROBE)

    def ready(self, client: str) -> bool:
        """Whether this client's replies are bracketed now; if not, subscribe for the next time."""
        known = self._clients.get(client)
        now_ns = time.monotonic_ns()
        if known is None or now_ns - known[1] > _IDLE_NS // 2:
            self._loop.call_soon_threadsafe(lambda: self._want(client, now_ns))
        return known is not None and known[0] and self._last_ready and self.first.connected

    def hear(self, at_once: bool) -> None:
        """Call `on_echo` for all arrivals; `at_once`: from now on, also without calls of `hear`."""
        self._at_once = at_once  # set first, so that no arrival is missed between the two lines
        self._deliver()

    def _deliver(self) -> None:
        while self._arrived:
            self._on_echo(*self._arrived.popleft())

    def close(self) -> None:
        """Disconnect and end the thread."""

        def close() -> None:
            for connection in (self.warmer, self.first, self.last):
                connection.close()
            self._loop.stop()

        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(close)
            self._thread.join(5)

    # -- in the echoes' thread ---------------------------------------------------------------

    def _echo_arrived(self, arrival: Arrival, *, last: bool) -> None:
        """Keep an arrival; hand all over if `hear(True)` was called, or if it is the order probe.

        A reply is complete with the last echo. A probe is handed over from both echoes, because its
        order is what it tests. Of a message that is too long for either, as much is kept as shows
        that: thousands may wait here, of up to 256 KiB each.
        """
        arrival = arrival._replace(
            topic=arrival.topic[: MAX_TOPIC_OCTETS + 1],
            payload=arrival.payload[: _LONGEST + 1],
            properties=b"",
        )
        self._arrived.append((arrival, last))
        if (last and self._at_once) or arrival.topic == self._probe_topic:
            self._main.call_soon_threadsafe(self._deliver)

    def _set_last(self, ready: bool) -> None:
        self._last_ready = ready
        if ready:  # probes before this had no last echo: start anew
            self._place_probe()

    def _last_up(self) -> None:
        tree, number = self._tree, self._number
        self.last.subscribe([tree.all_replies(number), tree.all_orders(number)], self._set_last)

    def _topic(self, client: str) -> str:
        """Return the reply topic of a client; for `_PROBE`, the topic of the order probe."""
        if client == _PROBE:
            return self._probe_topic
        return self._tree.reply(self._number, client)

    def _place_all(self) -> None:
        """Subscribe again for all clients: the warmer or the first echo lost its place."""
        self.placement = (self.placement + 1) % 4
        clients = list(self._clients.items())
        self.first.unsubscribe([self._topic(client) for client in self._clients])
        self._clients.clear()
        self._place_probe()
        for client, (_, asked_ns) in clients:
            self._want(client, asked_ns)

    def _place_probe(self) -> None:
        """Subscribe for the probe on a topic that is new to the broker.

        Topics of clients are subscribed to later than the last echo's `#`, and some brokers (amqtt)
        deliver in that order. A new topic tests for this.
        """
        self._forget(_PROBE)
        self._turn += 1
        self._probe_topic = self._tree.order(self._number, self._turn)
        self._want(_PROBE, time.monotonic_ns())

    def _want(self, client: str, now_ns: int) -> None:
        """Note that a client asked, and subscribe to its reply topic if that is not done yet."""
        known = self._clients.get(client)
        if known is not None:
            self._clients[client] = (known[0], now_ns)
            self._clients.move_to_end(client)
            return
        self._forget_idle(now_ns)
        ready = self.warmer.connected and self.first.connected
        if ready and len(self._clients) < self._limit:
            self._clients[client] = (False, now_ns)
            topics = [self._topic(client)]

            def follow(_granted: bool) -> None:
                if topics == [self._topic(client)]:  # the probe may have a newer topic by now
                    self.first.subscribe(topics, lambda granted: self._answered(client, granted))

            self.warmer.subscribe(topics, follow)

    def _answered(self, client: str, granted: bool) -> None:
        if granted and client in self._clients:
            self._clients[client] = (True, time.monotonic_ns())
            if client == _PROBE:
                topic = self._topic(_PROBE)
                self._main.call_soon_threadsafe(lambda: self._on_placed(topic))
        elif not granted and client == _PROBE:  # a client has taken the last free subscription
            with_echo = (one for one, (there, _) in self._clients.items() if there)
            if (other := next(with_echo, None)) is not None:
                self._forget(other)
                self._clients.pop(_PROBE, None)
                self._want(_PROBE, time.monotonic_ns())
        elif not granted:  # the entry stays, so that it is not tried again at each request
            self._unsubscribe(client)

    def _forget_idle(self, now_ns: int) -> None:
        for client, (_, asked_ns) in list(self._clients.items()):
            if client == _PROBE:
                continue
            if now_ns - asked_ns < _IDLE_NS:
                return
            self._forget(client)

    def _forget(self, client: str) -> None:
        self._clients.pop(client, None)
        self._unsubscribe(client)

    def _unsubscribe(self, client: str) -> None:
        for connection in (self.warmer, self.first):
            connection.unsubscribe([self._topic(client)])


class NoEcho:
    """Used instead of an `EchoPair` if no echo is offered."""

    placement = clients = 0

    def start(self) -> None:
        """Do nothing."""

    def ready(self, client: str) -> bool:
        """Return False: no client's replies are bracketed."""
        return False

    def hear(self, at_once: bool) -> None:
        """Do nothing: there are no arrivals."""

    def close(self) -> None:
        """Do nothing: no connection is open."""
