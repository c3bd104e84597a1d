"""Many listeners of the event stream in one process, as cheap as can be: every byte is counted and thrown away.

``python listeners.py HOST PORT JOB RANKS COUNT`` with the token in REKINDLE_TOKEN. Says "connected" when every stream
has begun, and at SIGTERM how many bytes each has brought; a stream that ends before that is an error.
"""

import asyncio
import json
import os
import signal
import sys


async def listen(host: str, port: int, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    token = os.environ["REKINDLE_TOKEN"]
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(f"{path}: {head.decode()}")
    return reader, writer


async def count(reader: asyncio.StreamReader, received: list[int], place: int) -> None:
    while data := await reader.read(1 << 16):
        received[place] += len(data)
    sys.exit("a stream has ended")


async def main(host: str, port: str, job: str, ranks: str, number: str) -> None:
    paths = [f"/api/v1/events?job={job}&log={each % int(ranks)}:stdout" for each in range(int(number))]
    streams = [await listen(host, int(port), path) for path in paths]
    print("connected", flush=True)
    received = [0] * len(streams)
    tasks = [asyncio.create_task(count(reader, received, place)) for place, (reader, _) in enumerate(streams)]
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    await over.wait()
    for task in tasks:
        task.cancel()
    print(json.dumps(received), flush=True)


asyncio.run(main(*sys.argv[1:]))
