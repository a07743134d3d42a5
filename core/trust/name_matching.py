"""Find the Mac that a user named."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from core.errors import UsageError
from core.text import clean_text

MIN_ID: Final = 4


def pick(typed: str, macs: Iterable[tuple[str, str]]) -> str:
    """The device id, of `macs` (device id, name), meant by `typed`: an id, its first characters (at least 4) or a name
    in any case. Raises UsageError if none or several match, so that no Mac can pass for another by its name.
    """
    known = list(macs)
    wanted = typed.strip()
    by_id = [i for i, _ in known if len(wanted) >= MIN_ID and i.startswith(wanted.lower())]
    by_name = [i for i, name in known if wanted and name.casefold() == wanted.casefold()]
    meant = set(by_id) | set(by_name)
    if len(meant) == 1:
        return meant.pop()
    listed = ", ".join(f"{name} ({i[:8]})" for i, name in known if i in meant or not meant)
    what = f"{clean_text(typed)!r} could be several Macs." if meant else f"No Mac is called {clean_text(typed)!r}."
    raise UsageError(what, f"Name one of these by its name or its id: {listed}.")
