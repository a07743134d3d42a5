"""Context variable: name of the API key that a request came with."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

CLIENT: Final[ContextVar[str]] = ContextVar("CLIENT", default="")  # "": a command of this Mac
