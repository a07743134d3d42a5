"""Where another Mac is, as a person types it."""

from __future__ import annotations

from typing import NamedTuple


class TypedPlace(NamedTuple):
    """A host, without the brackets of an IPv6 address, and a port."""

    host: str
    port: int


def typed_place(text: str) -> TypedPlace | None:
    """HOST:PORT; None where it is not that."""
    host, _, port = "".join(text.split()).rpartition(":")
    if host and port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535:
        return TypedPlace(host.strip("[]"), int(port))
    return None
