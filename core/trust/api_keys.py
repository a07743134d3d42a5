"""API keys: each is shown once, and only its hash is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Annotated, Final

import msgspec

from core.errors import UsageError
from core.numbers import Moment
from core.requests.api import KeyName
from core.settings import Home
from core.trust.file_formats import JsonFile

PREFIX: Final = "mck-"
MOST: Final = 64
HINT: Final = 4  # of 43 characters

_Hash = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A stored API key."""

    name: KeyName
    sha256: _Hash  # of the key, hex
    made: Moment  # seconds since the epoch
    hint: Annotated[str, msgspec.Meta(max_length=HINT)] = ""  # last characters of a key made here


_FILE: Final = JsonFile[tuple[ApiKey, ...]](
    Home.api_keys, Annotated[tuple[ApiKey, ...], msgspec.Meta(max_length=MOST)], cure="Delete it, and make new keys."
)


class ApiKeys:
    """API keys in a file, read each time because a command may have changed it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> tuple[ApiKey, ...]:
        return _FILE.read(self._path) if self._path.exists() else ()

    def add(self, name: str, now: float, key: str = "") -> str:
        """Store a new or a given key, and return it; it can't be shown again. Raises UsageError."""
        kept = self.all()
        if any(each.name == name for each in kept):
            raise UsageError(f"There is a key {name!r} already.", "Choose another name, or revoke that one first.")
        if len(kept) >= MOST:
            raise UsageError(f"There are {MOST} keys already.", "Revoke one first.")
        made = key or PREFIX + secrets.token_urlsafe(32)
        hint = "" if key else made[-HINT:]
        try:
            fresh = msgspec.convert({"name": name, "sha256": _hash(made), "made": now, "hint": hint}, ApiKey)
        except msgspec.ValidationError as error:
            raise UsageError(f"{name!r} cannot be the name of a key.", "Use up to 64 letters.") from error
        _FILE.write(self._path, (*kept, fresh))
        return made

    def revoke(self, name: str) -> None:
        kept = self.all()
        left = tuple(each for each in kept if each.name != name)
        if left == kept:
            raise UsageError(f"There is no key {name!r}.", "`macluster serve --keys` lists them.")
        _FILE.write(self._path, left)

    def owner(self, key: str) -> str | None:
        """Name of the key, or None; takes the same time for every key."""
        hashed, found = _hash(key), None
        for each in self.all():
            if hmac.compare_digest(each.sha256, hashed):
                found = each.name
        return found


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
