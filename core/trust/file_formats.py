"""Formats of this Mac's files. A file of a newer format is not read, replaced or removed: a newer macluster wrote it.

A JSON file is `{"format": 1, "content": ...}` in every version; other files begin with three letters and the format.
`core.settings.Home` has the newest formats. A JSON file of an older format is read by its migrations, and copied to
the folder `before-X.Y.Z` next to it before it is replaced, so that the macluster of before can be used again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from core.errors import MaclusterError, TrustError
from core.settings import Home, HomeFile
from core.trust.private_files import MAX_PRIVATE_FILE, ErrorClass, open_private, private_folder, write_private
from core.version import RELEASE

_HEAD_BYTES: Final = 32
_FORMAT: Final = re.compile(rb'(?:\{"format": ?|Format: )(\d{1,9})|MC[A-Z](\d)')

_T = TypeVar("_T")


class _Envelope(msgspec.Struct, frozen=True):
    format: int
    content: msgspec.Raw


_envelope = msgspec.json.Decoder(_Envelope)


class JsonFile(Generic[_T]):
    """Reads and writes a JSON file of at most `limit` bytes; `cure` says what to do if the file `{path}` is damaged.
    `migrations`: what makes the content of format 1, 2 ... one of the next format.
    """

    def __init__(
        self,
        file: HomeFile,
        kind: Any,
        error: ErrorClass = TrustError,
        cure: str = "Put it back from a backup.",
        limit: int = MAX_PRIVATE_FILE,
        migrations: tuple[Callable[[bytes], bytes], ...] = (),
    ) -> None:
        assert file.format == len(migrations) + 1, f"{file.name} of format {file.format} is not read in all before"
        self.file, self.kind, self._migrations = file, kind, migrations
        self._content: msgspec.json.Decoder[_T] = msgspec.json.Decoder(kind)
        self._error, self._cure, self._limit = error, cure, limit

    def read(self, path: Path) -> _T:
        """Read the content. Raises `error` if the file is missing, not private, newer or damaged."""
        with open_private(path, self._error) as file:
            data = file.read(self._limit)
        check_format(path, format_of(data), self.file.format, self._error)
        try:
            found = _envelope.decode(data)
            content = bytes(found.content)
            for migrate in self._migrations[max(found.format, 1) - 1 :]:
                content = migrate(content)
            return self._content.decode(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self.damaged(path) from error

    def try_to_read(self, path: Path) -> _T | None:
        """The content; None if it can't be read."""
        try:
            return self.read(path)
        except self._error:
            return None

    def write(self, path: Path, content: _T) -> None:
        """Write the file atomically. Raises `error`, also if a newer one is there."""
        check_not_newer(path, self.file.format, self._error)
        self._keep_older(path)
        write_private(path, msgspec.json.encode({"format": self.file.format, "content": content}), self._error)

    def _keep_older(self, path: Path) -> None:
        kept = path.parent / f"before-{RELEASE}" / path.name
        if 0 < format_of(first_bytes(path)) < self.file.format and not kept.exists():
            private_folder(kept.parent, self._error)
            with open_private(path, self._error) as file:
                write_private(kept, file.read(self._limit), self._error)

    def try_to_write(self, path: Path, content: _T) -> None:
        """Write a file that can be done without, as on a full disk."""
        with suppress(self._error):
            self.write(path, content)

    def remove(self, path: Path) -> None:
        """Remove the file unless it is newer. Raises OSError."""
        if not self.is_newer(path):
            path.unlink(missing_ok=True)

    def damaged(self, path: Path) -> MaclusterError:
        return self._error(f"{path} is damaged.", self._cure.format(path=path))

    def is_newer(self, path: Path) -> bool:
        return format_of(first_bytes(path)) > self.file.format


def check_format(file: Path | str, found: int, known: int, error: ErrorClass) -> None:
    """Raise `error` if the format `found` in a file is newer than the newest known one."""
    if found > known:
        what = f"{file} has format {found}; this version of macluster reads formats up to {known}."
        raise error(what, "A newer macluster wrote it: use that one.")


def check_not_newer(path: Path, known: int, error: ErrorClass) -> None:
    """Raise `error` if the file `path` is there and newer."""
    check_format(path, format_of(first_bytes(path)), known, error)


def format_of(data: bytes) -> int:
    """The format that a file begins with; 0 if it names none."""
    found = _FORMAT.match(data)
    return int(found[1] or found[2]) if found else 0


def newer_files(home: Home) -> list[str]:
    """Names of the JSON files, token logs and rosters in `home` that are newer; others say it where they are used."""
    files = [(home.root / file.name, file.format) for file in vars(Home).values() if isinstance(file, HomeFile)]
    files += [(path, Home.tokens.format) for path in home.tokens.glob("*.mct")]
    files += [(path, Home.rosters.format) for path in home.rosters.glob("*.roster")]
    return [path.name for path, known in files if format_of(first_bytes(path)) > known]


def first_bytes(path: Path) -> bytes:
    """The first bytes of a file; none if it is missing or not private."""
    with suppress(TrustError), open_private(path, TrustError) as file:
        return file.read(_HEAD_BYTES)
    return b""
