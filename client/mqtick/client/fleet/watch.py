"""`mqtick-client fleet`: the clients of a fleet, as they publish themselves on the broker."""

from __future__ import annotations

import importlib.resources
import json
import sys
import time
from collections import Counter
from collections.abc import Callable

from mqtick.client.config import Settings
from mqtick.client.fleet.clients import Client, Fleet, table
from mqtick.mqtt.broker import broker_from
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.link import reach
from mqtick.mqtt.loop import Loop
from mqtick.protocol.errors import DecodeError
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import TopicTree
from mqtick.service.commandline import Exit, fail
from mqtick.service.page_server import PageError, PageServer

_QUIET_S, _LONGEST_S = 1.0, 10.0
_EMPTY = (
    "no client publishes its status: set publish_status = true in their client.toml, and let this "
    "account read {topic}"
)


def judge(clients: list[Client], within_ns: int) -> Exit:
    """Return the exit code for a fleet: NOT_SYNCHRONISED is worse than LIMIT_NOT_MET."""
    if not clients or any(each.state != "synchronised" for each in clients):
        return Exit.NOT_SYNCHRONISED
    if all(each.is_within(within_ns) for each in clients):
        return Exit.GOOD
    return Exit.LIMIT_NOT_MET


class _Watcher:
    """One connection that hears every client's status."""

    def __init__(self, settings: Settings, within_ns: int) -> None:
        self.loop, self.fleet, self.tree = Loop(), Fleet(), TopicTree(settings.prefix)
        self.refused: Counter[str] = Counter()
        self.within_ns = within_ns
        self.heard_s = time.monotonic()
        self.page = b""
        self.connection = Connection(
            self.loop,
            broker_from(settings).part("fleet"),
            "mqtick-fleet",
            on_publish=self._on_publish,
            on_up=self._on_up,
        )

    def _on_up(self) -> None:
        self.heard_s = time.monotonic()
        self.connection.subscribe_retained(self.tree.all_client_statuses())

    def _on_publish(self, arrival: Arrival) -> None:
        try:
            name = self.tree.parse_client_status(arrival.topic)
            wall_ns = time.time_ns() if arrival.retain else None
            self.fleet.note(name, arrival.payload, time.monotonic_ns(), wall_ns)
        except DecodeError as error:
            self.refused[error.reason] += 1
        if arrival.retain:
            self.heard_s = time.monotonic()

    def until_all_came(self) -> None:
        """Wait until no further retained status comes, but not for ever."""
        end_s = time.monotonic() + _LONGEST_S
        while time.monotonic() < min(self.heard_s + _QUIET_S, end_s):
            self.loop.turn(0.05)

    def lines(self) -> list[str]:
        """Return the table and what is to be said about it."""
        clients = self.fleet.clients(time.monotonic_ns())
        good = sum(
            each.state == "synchronised" and each.is_within(self.within_ns) for each in clients
        )
        lines = list(table(clients)) if clients else [self.empty()]
        lines.append(f"{good} of {len(clients)} within {self.within_ns / 1000:g} us")
        if not self.connection.connected:
            lines.append(f"not connected: {self.connection.last_error}")
        if self.refused:
            lines.append(f"{sum(self.refused.values())} messages that are no status were refused")
        return lines

    def empty(self) -> str:
        """Say why there may be nobody."""
        return _EMPTY.format(topic=self.tree.all_client_statuses())

    def as_json(self, *, history: bool = False) -> str:
        """Return the fleet as JSON."""
        now_ns = time.monotonic_ns()
        return json.dumps(
            {
                "broker": self.connection.address,
                "connected": self.connection.connected,
                "within_ns": self.within_ns,
                "refused": dict(self.refused),
                "clients": self.fleet.as_json(now_ns, history=history),
            },
            indent=None if history else 1,
        )

    def renew_page(self) -> None:
        """Write anew what the page asks for; the thread that serves it reads nothing else."""
        began_ns = time.monotonic_ns()
        self.page = self.as_json(history=True).encode()
        took_ns = time.monotonic_ns() - began_ns
        self.loop.call_later(max(NS_PER_S, 20 * took_ns), self.renew_page)


def watch(settings: Settings, within_ns: int, *, repeat: bool, as_json: bool, http: str) -> Exit:
    """Print the fleet, once, every second, or serve it as a page; returns the exit code."""
    watcher = _Watcher(settings, within_ns)
    loop, connection = watcher.loop, watcher.connection
    try:
        reach(loop, [connection])
        if not connection.connected:
            return fail(connection.last_error or f"{connection.address} does not answer")
        watcher.until_all_came()
        if http:
            return _serve(watcher, http)
        show: Callable[[], str] = watcher.as_json if as_json else lambda: "\n".join(watcher.lines())
        if repeat:
            _repeat(watcher, show, clears=sys.stdout.isatty() and not as_json)
        else:
            print(show())
        clients = watcher.fleet.clients(time.monotonic_ns())
        if not clients and as_json:
            fail(watcher.empty())
        return judge(clients, within_ns)
    finally:
        connection.close()
        loop.close()


def _repeat(watcher: _Watcher, show: Callable[[], str], *, clears: bool) -> None:
    def again() -> None:
        print(("\033[H\033[2J" if clears else "") + show(), flush=True)
        watcher.loop.call_later(NS_PER_S, again)

    watcher.loop.stop_on_signals()
    again()
    watcher.loop.run()


def _serve(watcher: _Watcher, address: str) -> Exit:
    page = importlib.resources.files(__package__).joinpath("page.html").read_bytes()
    server = PageServer(
        address,
        {
            "/": lambda: ("text/html; charset=utf-8", page),
            "/fleet.json": lambda: ("application/json", watcher.page),
        },
        "the page",
    )
    watcher.renew_page()
    watcher.loop.stop_on_signals()
    try:
        server.start()
    except PageError as error:
        return fail(str(error))
    print(f"http://{server.address}/ shows the fleet; end with Ctrl-C", flush=True)
    watcher.loop.run()
    server.stop()
    return Exit.GOOD
