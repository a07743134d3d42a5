"""`python -m tests.chaos.flapping DEVICE_ID HOST PORT`: announces and removes a Mac once a second, from another host's
Bonjour, until standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

from zeroconf import IPVersion
from zeroconf.asyncio import AsyncZeroconf

from tests.support.nodes import advertise

HALF_S = 0.5


async def flap(device_id: str, host: str, port: int) -> None:
    """Announce for half a second, remove for half a second."""
    zeroconf = AsyncZeroconf(interfaces=[host], ip_version=IPVersion.V4Only)
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.buffer.read))
    try:
        while not ended.done():
            info = await advertise(zeroconf, device_id, "mini", port, host=host)
            await asyncio.wait([ended], timeout=HALF_S)
            await zeroconf.async_unregister_service(info)
            await asyncio.wait([ended], timeout=HALF_S)
    finally:
        await zeroconf.async_close()


if __name__ == "__main__":
    asyncio.run(flap(sys.argv[1], sys.argv[2], int(sys.argv[3])))
