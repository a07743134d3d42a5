"""Messages of other Macs: decode them, and call the handler for their type from a room's table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from core.errors import NotUnderstood, ProtocolError
from core.link.frames import FrameType
from core.node.base.node_message import COMMON, BinaryMessage, NodeMessage
from core.rates import Rate
from core.text import clean_line
from core.version import program_version

TEXT_LIMIT: Final = 500

_M = TypeVar("_M", bound=NodeMessage)
Handler = Callable[[str, Any], Awaitable[None] | None]


class MessageRow(NamedTuple):
    """One type of message in a room's table."""

    kind: type[NodeMessage]
    handle: Handler  # takes the sender's device id and the message; the link waits for it
    while_forked: bool = True  # False: dropped while the roster is forked, as its members may be wrong


def receives(
    kind: type[_M], handle: Callable[[str, _M], Awaitable[None] | None], *, while_forked: bool = True
) -> MessageRow:
    return MessageRow(kind, handle, while_forked)


class MessageDecoder:
    """Decodes messages of the given types, by one rule for other versions of macluster: unknown fields are ignored;
    an unknown frame or message, and one with an unknown word in place of a known one, is NotUnderstood. What no
    version sends is another ProtocolError.
    """

    def __init__(self, *kinds: type[NodeMessage]) -> None:
        self._kinds: dict[FrameType, list[type[NodeMessage]]] = {}
        self._decoders: dict[FrameType, Callable[[bytes], NodeMessage]] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: type[NodeMessage]) -> None:
        kinds = self._kinds.setdefault(kind.FRAME, [])
        assert kind not in kinds, f"{kind.__name__} is in the table already"
        assert kind.__struct_config__.tag, f"{kind.__name__} doesn't write out its tag"
        assert all(other.RATE == kind.RATE for other in kinds), f"{kind.__name__} has another rate than its frame type"
        kinds.append(kind)
        self._decoders[kind.FRAME] = _decoder(kinds)

    def decode(self, frame: FrameType, body: bytes) -> NodeMessage:
        if decode := self._decoders.get(frame):
            return decode(body)
        message = f"control frame 0x{frame:02x}"
        raise NotUnderstood(f"Version {program_version()} of macluster has no {message}.", message=message)

    def rate(self, frame: FrameType) -> Rate:
        kinds = self._kinds.get(frame)
        return kinds[0].RATE if kinds else COMMON


class MessageTable(MessageDecoder):
    """All types of message that this node accepts, each with its handler."""

    def __init__(self, is_forked: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self._is_forked = is_forked
        self._rows: dict[type[NodeMessage], MessageRow] = {}

    @property
    def kinds(self) -> frozenset[type[NodeMessage]]:
        return frozenset(self._rows)

    def add_rows(self, rows: Iterable[MessageRow]) -> None:
        for row in rows:
            self.add(row.kind)
            self._rows[row.kind] = row

    async def handle(self, device_id: str, message: NodeMessage) -> None:
        row = self._rows[type(message)]
        if (row.while_forked or not self._is_forked()) and (work := row.handle(device_id, message)):
            await work


def _decoder(kinds: list[type[NodeMessage]]) -> Callable[[bytes], NodeMessage]:
    first, *others = kinds
    if issubclass(first, BinaryMessage):
        assert not others, f"{first.__name__} isn't alone in its frame type"
        return first.from_body
    union: Any = first
    for kind in others:
        union = union | kind
    return partial(read_clean, kind=union, name=f"control frame 0x{first.FRAME:02x}")


def read_clean(body: bytes, kind: Any, name: str) -> Any:
    """A value of type `kind` from the JSON of another Mac, its texts cleaned. Raises NotUnderstood, ProtocolError."""
    said: Any = None
    try:
        said = _clean(msgspec.json.decode(body))
        return msgspec.convert(said, kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError) and str(error).startswith(
            "Invalid "
        ):  # a tag, or an enum's value
            message = f"{name} {said.get('type', '')}".rstrip()
            what = f"Version {program_version()} of macluster can't read a {message}: {error}."
            raise NotUnderstood(what, message=message) from error
        raise ProtocolError(f"A {name} does not decode.") from error


def _clean(value: Any) -> Any:
    """Remove control characters and line ends from each text of another Mac: the one place where they come in."""
    match value:
        case str():
            return clean_line(value)[:TEXT_LIMIT]
        case list():
            return [_clean(v) for v in value]
        case dict():
            return {_clean(k): _clean(v) for k, v in value.items()}
        case _:
            return value
