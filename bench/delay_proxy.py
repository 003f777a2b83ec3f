"""Proxies between clients and broker that delay each direction by its own constant.

    python -m bench.delay_proxy BROKER_PORT COUNT PORTS_FILE

Each proxy draws its two delays, 0 to 2 ms, from its number; the listening ports go to the file.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

_LONGEST_S = 0.002


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Pass octets on, each chunk `delay_s` after it came, in order."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                break
            writer.write(data)
        writer.close()

    task = asyncio.create_task(deliver())
    try:
        while data := await reader.read(65536):
            queue.put_nowait((loop.time() + delay_s, data))
    except OSError:
        pass
    queue.put_nowait((loop.time(), b""))
    await task


async def _serve(broker_port: int, count: int, ports_file: Path) -> None:
    servers = []
    for number in range(count):
        chance = random.Random(number)
        up_s, down_s = chance.uniform(0, _LONGEST_S), chance.uniform(0, _LONGEST_S)

        async def accept(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            up_s: float = up_s,
            down_s: float = down_s,
        ) -> None:
            to_broker = await asyncio.open_connection("127.0.0.1", broker_port)
            await asyncio.gather(
                _carry(reader, to_broker[1], up_s), _carry(to_broker[0], writer, down_s)
            )

        servers.append(await asyncio.start_server(accept, "127.0.0.1", 0))
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    ports_file.write_text(json.dumps(ports))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
