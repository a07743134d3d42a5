"""The keys of the API for other programs, as they are asked for and given out."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core.requests.body import Body

KeyName = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"\A[^\x00-\x1f]*\Z")]


class ApiKeyName(Body, frozen=True, kw_only=True):
    """Which key."""

    name: KeyName


class NewApiKey(ApiKeyName, frozen=True, kw_only=True):
    """A key that was made. This is the one time that it is told."""

    key: str
