"""Many simulated clients in one process, as cheap as possible, because they are not measured.

    python -m bench.crowd PORT COUNT RESULT [--closed-loop] [--no-echo]

Each has its own connection, subscribes as a client does, and asks server 0: bursts of four
every 16 s, at its own times, or, in a closed loop, again as soon as it was answered. SIGTERM
ends it; RESULT then says how many requests were sent and how many replies came.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import secrets
import select
import signal
import time
from pathlib import Path

from bench.harness import connected
from mqtick.client.config import Settings
from mqtick.mqtt.packets import encode_publish
from mqtick.protocol.auth import Keys
from mqtick.protocol.precise import Request
from mqtick.protocol.topics import TopicTree

_TREE, _NO_KEYS = TopicTree(), Keys()
_REPLY = b"mqtick/r/0/"
_PATIENCE_S = 1.0


class Member:
    """One client."""

    def __init__(self, port: int, number: int, *, wants_echo: bool) -> None:
        name = f"m{number}"
        topics = (_TREE.all_times(), f"mqtick/f/+/{name}", _TREE.reply(0, name))
        self.socket = connected(port, f"crowd-{name}", *topics)
        self.socket.setblocking(False)
        self._topic = _TREE.request(0, name)
        self._wants_echo = wants_echo
        self._sequence = secrets.randbelow(2**31)
        self.left = 0
        self.asked_s = 0.0

    def ask(self) -> None:
        """Send one request."""
        self._sequence += 1
        request = Request(0, self._sequence, secrets.token_bytes(8), self._wants_echo)
        payload = _NO_KEYS.sign(request.body(), self._topic)
        self.socket.send(encode_publish(self._topic.encode(), payload, None))


class Crowd:
    """All clients, in one epoll."""

    def __init__(self, port: int, count: int, *, closed_loop: bool, wants_echo: bool) -> None:
        self._settings = Settings()
        self._closed_loop = closed_loop
        self._epoll = select.epoll()
        self.asked = self.answered = 0
        self.running = True
        self._members: dict[int, Member] = {}
        self._plan: list[tuple[float, int]] = []
        start_s = time.monotonic() + 1.0
        for number in range(count):
            member = Member(port, number, wants_echo=wants_echo)
            fd = member.socket.fileno()
            self._members[fd] = member
            self._epoll.register(fd, select.EPOLLIN)
            wait_s = 0.01 * number if closed_loop else random.uniform(0, self._interval_s())
            heapq.heappush(self._plan, (start_s + wait_s, fd))

    def _interval_s(self) -> float:
        return self._settings.exchange_interval_s * random.uniform(0.8, 1.2)

    def run(self) -> None:
        """Ask and take answers until told to end."""
        while self.running:
            now_s = time.monotonic()
            while self._plan and self._plan[0][0] <= now_s:
                _, fd = heapq.heappop(self._plan)
                self._due(fd, now_s)
            wait_s = min(0.2, self._plan[0][0] - now_s) if self._plan else 0.2
            for fd, _ in self._epoll.poll(max(wait_s, 0.0)):
                answers = self._members[fd].socket.recv(65536).count(_REPLY)
                self.answered += answers
                if answers and self._closed_loop:
                    self._ask(self._members[fd], time.monotonic())

    def _due(self, fd: int, now_s: float) -> None:
        member = self._members[fd]
        if self._closed_loop:
            if now_s - member.asked_s >= _PATIENCE_S:  # the first request, or the last was lost
                self._ask(member, now_s)
            heapq.heappush(self._plan, (now_s + _PATIENCE_S, fd))
            return
        member.left = (member.left or self._settings.exchange_burst) - 1
        self._ask(member, now_s)
        spacing_s = self._settings.exchange_spacing_ms / 1e3
        again_s = now_s + (spacing_s if member.left else self._interval_s())
        heapq.heappush(self._plan, (again_s, fd))

    def _ask(self, member: Member, now_s: float) -> None:
        member.asked_s = now_s
        member.ask()
        self.asked += 1


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("result", type=Path)
    parser.add_argument("--closed-loop", action="store_true")
    parser.add_argument("--no-echo", action="store_true")
    args = parser.parse_args()
    crowd = Crowd(args.port, args.count, closed_loop=args.closed_loop, wants_echo=not args.no_echo)
    signal.signal(signal.SIGTERM, lambda *_: setattr(crowd, "running", False))
    crowd.run()
    args.result.write_text(json.dumps({"asked": crowd.asked, "answered": crowd.answered}))


if __name__ == "__main__":
    main()
