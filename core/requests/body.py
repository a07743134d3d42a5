"""Base types of all command bodies."""

from __future__ import annotations

from typing import Annotated

import msgspec

Name = Annotated[str, msgspec.Meta(max_length=256, pattern=r"\A[^\0]*\Z")]
PathName = Annotated[str, msgspec.Meta(max_length=4096, pattern=r"\A[^\0]*\Z")]
Duration = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of command bodies; unknown fields are refused."""


class Done(Body, frozen=True, kw_only=True):
    """Response to a command without a result."""
