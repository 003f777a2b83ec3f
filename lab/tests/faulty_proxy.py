"""A proxy in front of a broker that has, on demand, the faults which the doctor is to name."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from types import TracebackType

Send = Callable[[bytes], None]
_PUBLISH, _TYPE_AND_QUALITY = 0x30, 0xF6


def _is_message(packet: bytes) -> bool:
    return packet[0] & _TYPE_AND_QUALITY == _PUBLISH


class Fault:
    """Passes every packet on at once; a fault overrides what happens to messages.

    `send` writes packets now, and may be kept and called later.
    """

    def __init__(self) -> None:
        self.chance = random.Random(5)

    def to_broker(self, message: bytes, send: Send) -> None:
        send(message)

    def to_client(self, message: bytes, send: Send) -> None:
        send(message)


class Steps(Fault):
    """Some messages wait for one or two timers of 40 ms, as delayed acknowledgements make them."""

    _due_s = 0.0

    def to_broker(self, message: bytes, send: Send) -> None:
        loop = asyncio.get_running_loop()
        late_s = self.chance.choice((0.0,) * 6 + (0.040,) * 3 + (0.080,))
        # In order, as TCP would: nothing overtakes what waits.
        self._due_s = max(self._due_s + 1e-6, loop.time() + late_s)
        loop.call_at(self._due_s, send, message)


class Flush(Fault):
    """Writes what has come every `period_s`, and never in between."""

    def __init__(self, period_s: float) -> None:
        super().__init__()
        self._period_s = period_s
        self._waiting: dict[Send, list[bytes]] = {}

    def to_client(self, message: bytes, send: Send) -> None:
        if not self._waiting:
            loop = asyncio.get_running_loop()
            loop.call_at((loop.time() // self._period_s + 1) * self._period_s, self._release)
        self._waiting.setdefault(send, []).append(message)

    def order(self, subscribers: list[Send]) -> list[Send]:
        return subscribers

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for send in self.order(list(waiting)):
            send(b"".join(waiting[send]))


class Shuffle(Flush):
    """Serves the subscribers in another order each time; each one's messages stay in order."""

    def __init__(self) -> None:
        super().__init__(0.001)

    def order(self, subscribers: list[Send]) -> list[Send]:
        return self.chance.sample(subscribers, len(subscribers))


class Swap(Fault):
    """Now and then a message is overtaken by the next one."""

    _kept = b""

    def to_broker(self, message: bytes, send: Send) -> None:
        kept, self._kept = self._kept, b""
        if kept or self.chance.random() > 0.2:
            send(message + kept)
        else:
            self._kept = message
            asyncio.get_running_loop().call_later(0.002, self._release, message, send)

    def _release(self, message: bytes, send: Send) -> None:
        if self._kept is message:
            self._kept = b""
            send(message)


class Drop(Fault):
    """Loses one message in five."""

    def to_broker(self, message: bytes, send: Send) -> None:
        if self.chance.random() > 0.2:
            send(message)


async def _packets(reader: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    """Cut a stream into MQTT packets (MQTT 5.0, 2.1)."""
    try:
        while head := await reader.readexactly(1):
            length, shift = 0, 0
            while True:
                digit = await reader.readexactly(1)
                head += digit
                length |= (digit[0] & 0x7F) << shift
                shift += 7
                if digit[0] < 0x80:
                    break
            take(head + await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError):
        pass


class Proxy:
    """Runs in a thread of its own while the `with` block lasts."""

    def __init__(self, broker_port: int, fault: Fault) -> None:
        self._broker_port, self._fault = broker_port, fault
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt://127.0.0.1:{self.port}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_forever()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        self._ready.set()

    async def _accept(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._broker_port)

        def up(data: bytes) -> None:
            to_broker.write(data)

        def down(data: bytes) -> None:
            if not to_client.is_closing():
                to_client.write(data)

        async def carry(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            send: Send,
            fault: Callable[[bytes, Send], None],
        ) -> None:
            await _packets(reader, lambda one: fault(one, send) if _is_message(one) else send(one))
            writer.close()

        await asyncio.gather(
            carry(from_client, to_broker, up, self._fault.to_broker),
            carry(from_broker, to_client, down, self._fault.to_client),
        )

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(5)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
