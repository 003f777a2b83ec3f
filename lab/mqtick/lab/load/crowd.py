"""A crowd: one process that holds up to several hundred subscribers of the time topic.

They load the broker like that many clients, and cost as little as possible at the instant of a
broadcast (docs/operations.md says how much).
"""

from __future__ import annotations

import logging
import random
import resource
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from mqtick.lab.load.member import BaseMember, ConnectTarget, Member, State
from mqtick.lab.load.udp_member import UdpMember
from mqtick.mqtt.broker import Broker, BrokerError, refuse_dialect
from mqtick.mqtt.connection import Connection
from mqtick.mqtt.frames import Arrival
from mqtick.mqtt.loop import Loop, Timer
from mqtick.mqtt.tls import client_context
from mqtick.protocol.experiments import (
    Answer,
    Command,
    CommandError,
    Commands,
    about_host,
    number_in,
)
from mqtick.protocol.time_types import NS_PER_S
from mqtick.protocol.topics import TopicTree

_log = logging.getLogger(__name__)
# Connections made at the same time: Mosquitto's queue of waiting connections holds 100.
_BUNCH = 64
_JOIN_NS, _JOIN_EACH_NS = 10 * NS_PER_S, 20_000_000
_LEAVE_NS = 2 * NS_PER_S
# Time between two reads of all buffers; in a test, each buffer held 900 time messages.
_READ_EVERY_S = (3.0, 5.0)
# Without commands for this long, the members leave: a runner that died cannot release them.
_FORGOTTEN_S = 900.0
# Buffers are read in portions with pauses, so that a broadcast meanwhile soon gets the processor.
_PORTION, _PAUSE_NS = 16, 10_000_000
# Files that the process has open besides its connections.
_SPARE_FILES = 64


def make_room(members: int) -> None:
    """Raise the soft limit of open files for that many members; OSError if it is impossible."""
    needed = members + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OSError(
            f"{members} connections need {needed} open files, but this process may have at most "
            f"{hard}, so no connection is made: raise the hard limit (`ulimit -Hn`, or "
            "LimitNOFILE= in a unit), or share the members among more processes."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class Crowd:
    """Executes `info`, `join`, `leave` and `count` on the command topic of `crowd:NAME`.

    `most`: the largest allowed number of members. BrokerError if the broker is reached by WebSocket
    or a Unix socket, OSError if that many files cannot be opened.
    """

    def __init__(
        self, loop: Loop, broker: Broker, name: str, *, prefix: str = "mqtick", most: int = 600
    ) -> None:
        if broker.scheme not in ("mqtt", "mqtts", "mqtt+udp"):
            raise BrokerError(
                "the members of a crowd speak plain MQTT over TCP, TLS or UDP, not "
                f"{broker.scheme}://: give this process an mqtt:// or mqtts:// address of the same "
                "broker"
            )
        refuse_dialect(broker, "a crowd")
        make_room(most)
        self.loop, self.broker, self.node = loop, broker, f"crowd:{name}"
        self.tree = TopicTree(prefix)
        self._most = most
        self._refusals: Counter[str] = Counter()
        self._kind = UdpMember if broker.scheme == "mqtt+udp" else Member
        self._members: list[BaseMember] = []
        self._to_make = 0
        self._target: ConnectTarget | None = None
        self._then: Callable[[], None] | None = None
        self._limit: Timer | None = None
        self._reading: Timer | None = None
        self._identity = f"crowd-{name}-{secrets.token_hex(3)}"
        self.connection = Connection(
            loop, broker, self._identity, on_publish=self._on_publish, on_up=self._on_up
        )
        self._context = None
        if broker.scheme == "mqtts":
            self._context = client_context(
                ca_file=broker.ca_file,
                certificate_file=broker.certificate_file,
                key_file=broker.key_file,
            )
        self._commands = Commands(
            self.tree.command(self.node),
            self.tree.answer(self.node),
            self.connection.publish_unstamped,
            self._refuse,
            {"info": self._info, "join": self._join, "leave": self._leave, "count": self._count},
        )
        self._about = about_host()

    def start(self) -> None:
        """Connect, and wait for commands."""
        self.connection.start()

    def close(self) -> None:
        """Disconnect all members, and the connection for commands."""
        for member in self._members:
            member.leave()
            member.close()
        self.connection.close()

    def _refuse(self, reason: str) -> None:
        self._refusals[reason] += 1

    def _on_up(self) -> None:
        self.connection.subscribe([self._commands.topic], self._subscribed)

    def _subscribed(self, granted: bool) -> None:
        if granted:
            _log.info("%s waits for commands on %s", self.node, self.connection.address)
        else:
            _log.error(
                "%s refused the subscription to %s: %s",
                self.connection.address,
                self._commands.topic,
                self.connection.broker.refusal_remedy,
            )

    def _on_publish(self, arrival: Arrival) -> None:
        self._commands.on_command(arrival.payload, retained=arrival.retain)

    # -- commands ------------------------------------------------------------------------------

    def _info(self, _command: Command) -> Answer:
        return {
            "node": self.node,
            **self._about,
            "simulated": False,  # the connections are real, and there are no pins
            "pins": {},
            "chrony": None,
            "settings": {"broker": self.connection.address, "most_members": self._most},
            "members": self._in(State.UP),
            "refused": dict(self._refusals),
        }

    def _in(self, state: State) -> int:
        return sum(member.state is state for member in self._members)

    def _must_be_idle(self) -> None:
        if self._then is not None:
            raise CommandError(
                "The members are joining or leaving right now: wait for that answer."
            )

    def _join(self, command: Command) -> None:
        """Replace all members by new ones; answer once all have succeeded or failed."""
        self._must_be_idle()
        count = number_in(command, "count", 1, self._most, 0)
        try:
            make_room(count)
            target = self._find_target()
        except OSError as error:
            raise CommandError(str(error)) from None

        def begin() -> None:
            self._target, self._to_make, self._members = target, count, []
            limit_ns = _JOIN_NS + count * _JOIN_EACH_NS
            self._wait_for(lambda: self._joined(command["id"]), limit_ns)
            self._make_more()

        self._let_go(begin)

    def _find_target(self) -> ConnectTarget:
        """Find out at which of its addresses the broker listens."""
        broker = self.broker
        family, address = self._find_address()
        return ConnectTarget(
            family,
            address,
            broker.host,
            self.tree.all_times(),
            broker.username,
            broker.password,
            self._context,
        )

    def _find_address(self) -> tuple[int, Any]:
        host, port = self.broker.host, self.broker.port
        if self._kind is UdpMember:
            found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_DGRAM)
            return socket.AF_INET, found[0][4]
        with socket.create_connection((host, port), 2.0) as probe:
            return probe.family, probe.getpeername()

    def _joined(self, identity: str) -> None:
        granted, refused = self._in(State.UP), self._in(State.REFUSED)
        answer: dict[str, Any] = {"members": granted, "granted": granted, "refused": refused}
        if problems := [member.problem for member in self._members if member.problem]:
            answer |= {
                "failed": len(self._members) - granted - refused,
                "problem": Counter(problems).most_common(1)[0][0],
            }
        self._read_later()
        self._commands.answer(identity, answer)

    def _leave(self, command: Command) -> None:
        """Let all members leave, including those that are joining."""
        self._then, self._to_make = None, 0
        if self._limit is not None:
            self._limit.cancel()
        for member in self._members:
            if member.state is State.CONNECTING:
                member.give_up("its runner told it to leave")
        self._let_go(lambda: self._commands.answer(command["id"], {}))

    def _count(self, _command: Command) -> Answer:
        self._must_be_idle()
        self._read_all()
        counts = [member.messages for member in self._members if member.state is State.UP]
        return {
            "members": len(counts),
            "messages": sum(member.messages for member in self._members),
            "least": min(counts, default=0),
            "most": max(counts, default=0),
            "lost": self._in(State.LOST),
        }

    # -- members -------------------------------------------------------------------------------

    def _make_more(self) -> None:
        assert self._target is not None
        while self._to_make and self._in(State.CONNECTING) < _BUNCH:
            self._to_make -= 1
            identity = f"{self._identity}-{self._to_make}"
            try:
                member = self._kind(self.loop, self._target, identity, self._changed)
            except OSError as error:  # other programs may use the files, or the memory
                _log.error("%s has no room for more members: %s", self.node, error)
                self._to_make = 0
                self.loop.call_soon_threadsafe(self._go_on_if_settled)
                return
            self._members.append(member)

    def _changed(self, member: BaseMember) -> None:
        if self._then is None:
            if member.state is State.LOST:
                _log.warning("a member of %s was lost: %s", self.node, member.problem)
        elif self._to_make:
            self._make_more()
        else:
            self._go_on_if_settled()

    def _go_on_if_settled(self) -> None:
        if not self._in(State.CONNECTING) and not self._in(State.LEAVING):
            self._go_on()

    def _wait_for(self, then: Callable[[], None], limit_ns: int) -> None:
        self._then = then
        self._limit = self.loop.call_later(limit_ns, self._give_up)

    def _give_up(self) -> None:
        """Continue without the members that have no answer."""
        self._to_make = 0
        for member in self._members:
            if member.state is State.CONNECTING:
                member.give_up("the broker did not answer in time")
            elif member.state is State.LEAVING:
                member.close()

    def _go_on(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        then, self._then = self._then, None
        if then is not None:
            then()

    def _let_go(self, then: Callable[[], None]) -> None:
        """Let all members leave, and wait until the broker has closed their connections."""
        if self._reading is not None:
            self._reading.cancel()
        self._wait_for(then, _LEAVE_NS)
        for member in self._members:
            if member.state is State.UP:
                member.leave()
        if self._then is then and not self._in(State.LEAVING):
            self._go_on()

    def _read_later(self) -> None:
        """Plan a read at a random time: at a fixed phase it could meet every broadcast."""
        if self._reading is not None:
            self._reading.cancel()
        wait_ns = int(random.uniform(*_READ_EVERY_S) * NS_PER_S)
        self._reading = self.loop.call_later(wait_ns, self._read_some)

    def _read_some(self, place: int = 0) -> None:
        if time.monotonic() - self._commands.heard_s > _FORGOTTEN_S and self._then is None:
            _log.warning("%s was forgotten: its members leave", self.node)
            self._let_go(lambda: None)
            return
        for member in self._members[place : place + _PORTION]:
            member.count()
        place += _PORTION
        if place < len(self._members):
            self._reading = self.loop.call_later(_PAUSE_NS, lambda: self._read_some(place))
        else:
            self._read_later()

    def _read_all(self) -> None:
        for member in self._members:
            member.count()
        self._read_later()


def run(broker: Broker, name: str, *, prefix: str, most: int) -> None:
    """Run a crowd until a signal comes."""
    loop = Loop()
    loop.stop_on_signals()
    crowd = Crowd(loop, broker, name, prefix=prefix, most=most)
    crowd.start()
    try:
        loop.run()
    finally:
        crowd.close()
        loop.close()
