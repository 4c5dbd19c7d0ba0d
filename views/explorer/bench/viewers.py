"""Looks at an explorer's page as so many browsers would: each has the live connection, and asks once a second for
the new columns of a series. Prints what it got when it is ended.

usage: viewers.py URL COUNT      a COUNT of 0 only keeps a processor busy
"""

import asyncio
import base64
import json
import os
import signal
import struct
import sys
from urllib.parse import urlparse

while sys.argv[2] == "0":
    pass
url, count = urlparse(sys.argv[1]), int(sys.argv[2])
token = url.fragment.split("=", 1)[1]
got = {"viewers": 0, "notices": 0, "columns": 0}


async def fetch(path):
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(
        f"GET /api/v1{path} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Connection: close\r\n\r\n".encode()
    )
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:100]
    return answer


async def live():
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /api/v1/live HTTP/1.1\r\nHost: {url.netloc}\r\nOrigin: http://{url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 101"), answer
    first = json.dumps({"token": token}).encode()
    writer.write(bytes([0x81, 0x80 | len(first), 0, 0, 0, 0]) + first)
    got["viewers"] += 1
    while True:
        size = (await reader.readexactly(2))[1] & 127
        if size == 126:
            size = struct.unpack(">H", await reader.readexactly(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", await reader.readexactly(8))[0]
        await reader.readexactly(size)
        got["notices"] += 1


async def columns(number):
    """What came to one series since the last time, as a page with a panel asks."""
    await asyncio.sleep(number % 100 / 100)
    since = 0
    while True:
        answer = (await fetch(f"/runs/r0/columns?ids={number % 60}&since={since}")).split(b"\r\n\r\n", 1)[1]
        got["columns"] += len(answer)
        if struct.unpack_from("<I", answer, 12)[0] > 0:  # series
            since = struct.unpack_from("<Q", answer, 20)[0]
        await asyncio.sleep(1)


async def main():
    tasks = [asyncio.ensure_future(task) for i in range(count) for task in (live(), columns(i))]
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [task.cancel() for task in tasks])
    results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = {repr(result) for result in results if not isinstance(result, asyncio.CancelledError)}
    print(got, *failures, file=sys.stderr)


asyncio.run(main())
