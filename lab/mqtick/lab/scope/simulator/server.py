"""A simulated instrument on a TCP socket."""

from __future__ import annotations

import asyncio
from typing import Final

from mqtick.lab.scope.simulator.faults import Faults
from mqtick.lab.scope.simulator.front import Front

_LONGEST_LINE: Final = 1 << 16
_CONNECTIONS: Final = 32
_PATIENCE_S: Final = 30.0


class InstrumentServer:
    """Serves one front to several connections, one line at a time, like an instrument.

    A connection cannot disturb others: it is cut after a line of more than 64 KiB, or if it reads
    no answer for 30 s. If there are too many connections, new ones are refused.
    """

    def __init__(self, front: Front, faults: Faults | None = None) -> None:
        self.front = front
        self.faults = faults or Faults()
        self.port = 0
        self.refused = 0
        """Connections that were cut: too many at once, a line too long, answers not read."""
        self._server: asyncio.Server | None = None
        self._lock = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        front.model.fails_to_trigger = lambda: self.faults.happens("no-trigger")

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; `port` then says where. OSError if that is not possible."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_LONGEST_LINE)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > _CONNECTIONS:
                self.refused += 1
                return
            while line := await reader.readline():
                if not await self._answer(line.decode("latin-1").strip(), writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass  # the other end has closed, or the server stops
        except (ValueError, TimeoutError):  # the line is too long; the answer is not read
            self.refused += 1
        finally:
            self._connections.discard(task)
            if task.cancelling():
                writer.transport.abort()
            else:
                writer.close()

    async def _answer(self, line: str, writer: asyncio.StreamWriter) -> bool:
        async with self._lock:
            outcome = self.faults.apply(line, self.front.answer(line))
        if outcome.delay_s:
            await asyncio.sleep(outcome.delay_s)
        writer.write(outcome.data)
        async with asyncio.timeout(_PATIENCE_S):
            await writer.drain()
        return not outcome.drop

    async def stop(self) -> None:
        """Stop listening, and cut every connection."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
