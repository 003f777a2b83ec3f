"""A simulated instrument on a TCP socket."""

from __future__ import annotations

import asyncio
import contextlib

from mqtick.lab.simulator.faults import Faults
from mqtick.lab.simulator.front import Front

__all__ = ["InstrumentServer"]

_LONGEST_LINE = 1 << 16


class InstrumentServer:
    """Serves one front to any number of connections, one line at a time, as an instrument does."""

    def __init__(self, front: Front, faults: Faults | None = None) -> None:
        self.front = front
        self.faults = faults or Faults()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._lock = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; `port` then says where. OSError when that cannot be."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_LONGEST_LINE)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
            while line := await reader.readline():
                if not await self._answer(line.decode("latin-1").strip(), writer):
                    break
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, line: str, writer: asyncio.StreamWriter) -> bool:
        async with self._lock:
            if self.faults.happens("no-trigger"):
                self.front.model.never_triggers = True
            outcome = self.faults.apply(line, self.front.answer(line))
        if outcome.delay_s:
            await asyncio.sleep(outcome.delay_s)
        writer.write(outcome.data)
        await writer.drain()
        if outcome.drop:
            writer.transport.abort()
        return not outcome.drop

    async def stop(self) -> None:
        """Stop listening, and cut every connection."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
