"""Many simulated clients in one process, as cheap as possible, because they are not measured.

    python -m bench.crowd PORT COUNT RESULT

Each has its own connection, subscribes as a client does, and asks server 0: bursts of four every
16 s, at its own times. SIGTERM ends it; RESULT then says how many requests were sent and how many
replies came.
"""

from __future__ import annotations

import heapq
import json
import random
import secrets
import select
import signal
import sys
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


class Member:
    """One client."""

    def __init__(self, port: int, number: int) -> None:
        name = f"m{number}"
        topics = (_TREE.all_times(), f"mqtick/f/+/{name}", _TREE.reply(0, name))
        self.socket = connected(port, f"crowd-{name}", *topics)
        self.socket.setblocking(False)
        self._topic = _TREE.request(0, name)
        self._sequence = secrets.randbelow(2**31)
        self.left = 0

    def ask(self) -> None:
        """Send one request."""
        self._sequence += 1
        request = Request(0, self._sequence, secrets.token_bytes(8), wants_echo=True)
        payload = _NO_KEYS.sign(request.body(), self._topic)
        self.socket.send(encode_publish(self._topic.encode(), payload, None))


class Crowd:
    """All clients, in one epoll."""

    def __init__(self, port: int, count: int) -> None:
        self._settings = Settings()
        self._epoll = select.epoll()
        self.asked = self.answered = 0
        self.running = True
        self._members: dict[int, Member] = {}
        self._plan: list[tuple[float, int]] = []
        start_s = time.monotonic() + 1.0
        for number in range(count):
            member = Member(port, number)
            fd = member.socket.fileno()
            self._members[fd] = member
            self._epoll.register(fd, select.EPOLLIN)
            heapq.heappush(self._plan, (start_s + random.uniform(0, self._interval_s()), fd))

    def _interval_s(self) -> float:
        return self._settings.exchange_interval_s * random.uniform(0.8, 1.2)

    def run(self) -> None:
        """Ask and take answers until told to end."""
        while self.running:
            now_s = time.monotonic()
            while self._plan[0][0] <= now_s:
                _, fd = heapq.heappop(self._plan)
                self._ask(fd, now_s)
            for fd, _ in self._epoll.poll(max(0.0, min(0.2, self._plan[0][0] - now_s))):
                self.answered += self._members[fd].socket.recv(65536).count(_REPLY)

    def _ask(self, fd: int, now_s: float) -> None:
        member = self._members[fd]
        member.left = (member.left or self._settings.exchange_burst) - 1
        member.ask()
        self.asked += 1
        spacing_s = self._settings.exchange_spacing_ms / 1e3
        again_s = now_s + (spacing_s if member.left else self._interval_s())
        heapq.heappush(self._plan, (again_s, fd))


def main() -> None:
    """Run until SIGTERM."""
    port, count, result = sys.argv[1:]
    crowd = Crowd(int(port), int(count))
    signal.signal(signal.SIGTERM, lambda *_: setattr(crowd, "running", False))
    crowd.run()
    Path(result).write_text(json.dumps({"asked": crowd.asked, "answered": crowd.answered}))


if __name__ == "__main__":
    main()
