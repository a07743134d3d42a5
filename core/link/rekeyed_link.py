"""A lasting connection of two nodes over successive control links: a new link replaces one whose key is worn, and every
frame still arrives once and in order.

RESUME is the last frame of a link, in both directions: the dialler of the next link sends it first, the other end
answers. Only a holder of the old keys can seal it, so a restarted Mac is never mistaken for a renewal.
"""

from __future__ import annotations

from core.errors import ProtocolError
from core.link.control_link import ControlLink
from core.link.frames import FrameType


class RekeyedLink:
    """Sends over `link`, the newest; `recv` first empties the older one. `dialled`: this Mac renews the link."""

    def __init__(self, link: ControlLink, *, dialled: bool) -> None:
        self.link, self.dialled = link, dialled
        self._source = link
        self._aside: RekeyedLink | None = None

    @property
    def is_renewing(self) -> bool:
        """Whether this Mac switched to a new link and the other end has not answered yet."""
        return self._source is not self.link

    async def recv(self) -> tuple[FrameType, bytes]:
        """Receive the next frame; for one task. Raises LinkLost, ProtocolError, SealError or RosterError."""
        while True:
            kind, body = await self._source.recv()
            if kind is not FrameType.RESUME:
                return kind, body
            self._go_over(body)

    def renew(self, link: ControlLink) -> None:
        """Switch to `link`, which this Mac dialled. Raises LinkLost or SealError if the old one has ended."""
        self.link.succeed(link)
        self.link = link

    def set_aside(self, line: RekeyedLink) -> None:
        """Keep a later connection of the same two nodes, unread; only the newest is kept."""
        self.drop_aside()
        self._aside = line

    def take_aside(self) -> RekeyedLink | None:
        line, self._aside = self._aside, None
        return None if line is None or line.link.is_closed else line

    def drop_aside(self) -> None:
        if line := self.take_aside():
            line.close()

    def close(self) -> None:
        self.drop_aside()
        self._source.close()
        self.link.close()

    def _go_over(self, body: bytes) -> None:
        """Handle RESUME: the answer to ours, or the other end switches to the link that it dialled."""
        if not self.is_renewing:
            if self.dialled or self._aside is None or self._aside.dialled:
                raise ProtocolError(f"{self.link.peer_name} switches to a link that it did not dial.")
            link, self._aside = self._aside.link, None
            self.renew(link)
        if body:
            raise ProtocolError(f"{self.link.peer_name} sent a RESUME of {len(body)} bytes.")
        self._source.close()
        self._source = self.link
