"""The conversation of two nodes over one control link after the other: a new link takes the place of one whose key is
worn, and every frame still comes once and in order.

RESUME is the last frame of a link, both ways: who dialled the next one says it first, the other end answers. Only who
holds the keys of the old link can seal it, so a Mac that was started anew is never taken for one that renews.
"""

from __future__ import annotations

from core.errors import ProtocolError
from core.link.control_link import ControlLink
from core.link.frames import FrameType


class RekeyedLink:
    """Send over `link`, which is the newest; read with `recv`, which empties the older one first. `dialled`: whether
    this Mac dialled, and so is the one who renews.
    """

    def __init__(self, link: ControlLink, *, dialled: bool) -> None:
        self.link, self.dialled = link, dialled
        self._source = link
        self._aside: RekeyedLink | None = None

    @property
    def is_renewing(self) -> bool:
        """Whether this Mac has gone over to a new link and the other end has not answered yet."""
        return self._source is not self.link

    async def recv(self) -> tuple[FrameType, bytes]:
        """The next frame, for one task. Raises LinkLost, ProtocolError, SealError or RosterError."""
        while True:
            kind, body = await self._source.recv()
            if kind is not FrameType.RESUME:
                return kind, body
            self._go_over(body)

    def renew(self, link: ControlLink) -> None:
        """Go over to `link`, which this Mac dialled for it. Raises LinkLost or SealError if the old one has ended."""
        self.link.succeed(link)
        self.link = link

    def set_aside(self, line: RekeyedLink) -> None:
        """Keep a later one of the same two nodes, unread: the newest only."""
        self.drop_aside()
        self._aside = line

    def take_aside(self) -> RekeyedLink | None:
        """What was set aside, if it still stands, for who keeps it when this line has ended."""
        line, self._aside = self._aside, None
        return None if line is None or line.link.is_closed else line

    def drop_aside(self) -> None:
        """Close what was set aside."""
        if line := self.take_aside():
            line.close()

    def close(self) -> None:
        """End every link of it."""
        self.drop_aside()
        self._source.close()
        self.link.close()

    def _go_over(self, body: bytes) -> None:
        """RESUME came: the answer to ours, or the other end goes over to the link that it has dialled."""
        if not self.is_renewing:
            if self.dialled or self._aside is None or self._aside.dialled:
                raise ProtocolError(f"{self.link.peer_name} switches to a link that it did not dial.")
            link, self._aside = self._aside.link, None
            self.renew(link)
        if body:
            raise ProtocolError(f"{self.link.peer_name} sent a RESUME of {len(body)} bytes.")
        self._source.close()
        self._source = self.link
