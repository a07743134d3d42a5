"""API keys for other programs: requests and responses."""

from __future__ import annotations

from typing import Annotated

import msgspec

from core.requests.body import Body

KeyName = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"\A[^\x00-\x1f]*\Z")]


class ApiKeyName(Body, frozen=True, kw_only=True):
    """Selects a key."""

    name: KeyName


class NewApiKey(ApiKeyName, frozen=True, kw_only=True):
    """A new key; it is never shown again."""

    key: str
