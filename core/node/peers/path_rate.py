"""Measure the rate of a path: a burst of at most 2 MB in 0.2 s over a link of its own. A lower bound."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from core.errors import LinkError, MaclusterError, ProtocolError
from core.link.control_link import ControlLink
from core.node.base.message_table import MessageDecoder
from core.node.base.node_message import to_frame
from core.node.peers.link_probe import Extent, LinkProbing
from core.node.peers.messages import LinkProbe, Probed

BURST: Final = Extent(round_trips=3, frames=40, sending_s=0.2, limit_s=1.0)
_DECODER: Final = MessageDecoder(LinkProbe, Probed)


async def measure_rate(link: ControlLink) -> int:
    """Bytes per second over `link`, which is closed then. Raises LinkLost, LinkTimeout."""
    probing = LinkProbing(link.peer_name, lambda probe: _sent(link, probe), extent=BURST)
    reading = asyncio.create_task(_read(link, probing))
    try:
        figures = await probing.run()
    finally:
        link.close()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return round(figures.bytes / figures.seconds)


async def answer_burst(link: ControlLink) -> None:
    """The other end's part: answer the burst within its limits, then close `link`."""
    with suppress(MaclusterError, TimeoutError):
        try:
            async with asyncio.timeout(BURST.limit_s):
                for _ in range(BURST.round_trips + BURST.frames):
                    match _DECODER.decode(*await link.recv()):
                        case LinkProbe(number=number):
                            await link.send(*to_frame(Probed(number=number)))
                        case other:
                            raise ProtocolError(f"{type(other).__name__} does not belong to a rate measurement.")
                await link.recv()  # until the other end closes it: the replies are in flight
        finally:
            link.close()


async def _sent(link: ControlLink, probe: LinkProbe) -> bool:
    with suppress(LinkError):
        await link.send(*to_frame(probe))
        return True
    return False


async def _read(link: ControlLink, probing: LinkProbing) -> None:
    try:
        while True:
            match _DECODER.decode(*await link.recv()):
                case Probed(number=number):
                    probing.handle_reply(number)
    except MaclusterError:
        probing.lost()
