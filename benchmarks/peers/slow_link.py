"""Passes connections on to a port of this machine; each piece that a client sends arrives some time later.

python slow_link.py PORT TO_PORT MILLISECONDS
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

PIECE = 1 << 18


async def serve(to: int, delay: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", to, limit=PIECE)
    await asyncio.gather(passed_on(reader, back, delay), passed_on(there, writer, 0))


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    try:
        while data := await reader.read(PIECE):
            await asyncio.sleep(delay)  # a client that waits for an answer sends nothing meanwhile
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main(port: int, to: int, milliseconds: float) -> None:
    async with await asyncio.start_server(partial(serve, to, milliseconds / 1000), "127.0.0.1", port) as server:
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
