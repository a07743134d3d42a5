"""For whom something is done, as far down as it is done: the name of the key by which another program asked."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

CLIENT: Final[ContextVar[str]] = ContextVar("CLIENT", default="")  # "": nobody's but this Mac's own
