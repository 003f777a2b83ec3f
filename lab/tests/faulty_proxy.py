"""A proxy in front of a broker that has, on demand, the faults which the doctor is to name."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from types import TracebackType

_PUBLISH = 0x30


class Fault:
    """Passes every packet on at once; a fault overrides one of the two directions.

    `to_broker` and `to_client` take a packet and say how to go on: `send` writes packets now,
    and may be kept and called later.
    """

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin whatever runs beside the connections."""

    def to_broker(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        send(packet)

    def to_client(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        send(packet)


class Steps(Fault):
    """Some messages wait for one or two timers of 40 ms, as delayed acknowledgements make them."""

    def __init__(self) -> None:
        self._chance = random.Random(40)
        self._queue: asyncio.Queue[tuple[float, Callable[[bytes], None], bytes]] = asyncio.Queue()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        async def work() -> None:
            # In order, as TCP would: nothing overtakes what waits.
            while True:
                due_s, send, packet = await self._queue.get()
                if due_s > loop.time():
                    await asyncio.sleep(due_s - loop.time())
                send(packet)

        self._task = loop.create_task(work())

    def to_broker(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        late_s = self._chance.choice((0.0,) * 6 + (0.040,) * 3 + (0.080,))
        if packet[0] & 0xF7 != _PUBLISH:
            late_s = 0.0
        self._queue.put_nowait((asyncio.get_running_loop().time() + late_s, send, packet))


class Flush(Fault):
    """Writes what has come every `period_s`, and never in between."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._waiting: list[tuple[Callable[[bytes], None], bytes]] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        async def beat() -> None:
            due_s = loop.time()
            while True:
                due_s += self._period_s
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                waiting, self._waiting = self._waiting, []
                for send, packet in waiting:
                    send(packet)

        self._task = loop.create_task(beat())

    def to_client(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        if packet[0] & 0xF6 == _PUBLISH:
            self._waiting.append((send, packet))
        else:
            send(packet)


class Swap(Fault):
    """Now and then a message is overtaken by the next one."""

    def __init__(self) -> None:
        self._chance = random.Random(5)
        self._kept: bytes = b""

    def to_broker(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        if packet[0] & 0xF7 != _PUBLISH:
            send(packet)
            return
        kept, self._kept = self._kept, b""
        if kept:
            send(packet)
            send(kept)
        elif self._chance.random() < 0.2:
            self._kept = packet
            asyncio.get_running_loop().call_later(0.002, self._release, packet, send)
        else:
            send(packet)

    def _release(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        if self._kept is packet:
            self._kept = b""
            send(packet)


class Shuffle(Fault):
    """Serves the subscribers in another order each time."""

    def __init__(self) -> None:
        self._chance = random.Random(6)
        self._waiting: list[tuple[Callable[[bytes], None], bytes]] = []

    def to_client(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        if packet[0] & 0xF6 != _PUBLISH:
            send(packet)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_later(0.001, self._release)
        self._waiting.append((send, packet))

    def _release(self) -> None:
        # By subscriber, so that the messages of each one stay in order.
        by_subscriber: dict[Callable[[bytes], None], list[bytes]] = {}
        for send, packet in self._waiting:
            by_subscriber.setdefault(send, []).append(packet)
        self._waiting.clear()
        everyone = list(by_subscriber.items())
        self._chance.shuffle(everyone)
        for send, packets in everyone:
            send(b"".join(packets))


class Drop(Fault):
    """Loses one message in five."""

    def __init__(self) -> None:
        self._chance = random.Random(7)

    def to_broker(self, packet: bytes, send: Callable[[bytes], None]) -> None:
        if packet[0] & 0xF7 != _PUBLISH or self._chance.random() > 0.2:
            send(packet)


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
        self._fault.start(self._loop)
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

        async def carry_up() -> None:
            await _packets(from_client, lambda packet: self._fault.to_broker(packet, up))
            to_broker.close()

        async def carry_down() -> None:
            await _packets(from_broker, lambda packet: self._fault.to_client(packet, down))
            to_client.close()

        await asyncio.gather(carry_up(), carry_down())

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
