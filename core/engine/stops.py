"""Stop texts: an answer ends before the first one, regardless of token boundaries."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Passes text on up to the first occurrence of one of `texts`: the one that ends first, then the one that starts
    first, which is `found` then. A possible start of one is held back.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._held = ""
        self._stopped = False
        self.found = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """The text to show now, and whether a stop text ended the answer: nothing shows after that."""
        if self._stopped:
            return "", True
        text, self._held = self._held + text, ""
        found = [(start + len(stop), start, stop) for stop in self._texts if (start := text.find(stop)) >= 0]
        if found:
            _, start, self.found = min(found)
            self._stopped = True
            return text[:start], True
        shown = len(text) - self._beginning(text)
        self._held = text[shown:]
        return text[:shown], False

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        longest = max((len(stop) - 1 for stop in self._texts), default=0)
        lengths = range(min(longest, len(text)), 0, -1)
        return next((n for n in lengths if any(stop.startswith(text[-n:]) for stop in self._texts)), 0)
