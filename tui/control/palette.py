"""The command palette: recent commands first, search also by other names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from textual.app import SystemCommand
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from tui.control.keymap import EVERYTHING
from tui.state.format import DIM

RECENT: Final = 5
# names of actions in other programs, by action id
ALSO_CALLED: Final = {
    "mc.split-undo": "back take back",
    "mc.chat-branch-before": "undo back take back earlier version",
    "mc.chat-branch-next": "redo later version",
    "mc.retry": "regenerate again",
    "mc.conversations": "history sessions chats search earlier",
    "mc.last": "resume history continue",
    "mc.keep": "session keep memory",
    "mc.sampling": "temperature system prompt top-p seed settings json schema",
    "mc.theme": "dark light colours colors appearance",
    "mc.chat-continue": "wait resume",
    "mc.recovery-choose": "wait",
    "mc.stop": "cancel abort wait",
    "mc.new": "clear reset",
    "mc.keep-nothing": "incognito secret private off the record temporary",
    "mc.unload-any": "free memory eject",
    "mc.quit": "exit close",
    "mc.pair": "add join connect",
    "mc.hops": "network latency speed",
    "mc.api": "server openai endpoint",
    "mc.ring": "tensor pipeline parallelism",
    "mc.trust": "security privacy encryption",
    "mc.check": "doctor diagnose",
    "mc.models": "load download",
}
_names: defaultdict[str, str] = defaultdict(str)  # by title: these names and the footer's words, each after a blank
for _action in EVERYTHING:
    _names[_action.title] += f" {_action.word.casefold()} {ALSO_CALLED.get(_action.id, '')}"


class Recent:
    """The commands chosen last from the palette, most recent first."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    def chosen(self, title: str) -> None:
        self.titles = [title, *(other for other in self.titles if other != title)][:RECENT]

    def first(self, commands: Iterable[SystemCommand]) -> list[SystemCommand]:
        rank = {title: place for place, title in enumerate(self.titles)}
        return sorted(commands, key=lambda command: rank.get(command.title, RECENT))


class Commands(Provider):
    """The palette's commands; the app has a `recent`."""

    async def discover(self) -> Hits:
        for each in self._all():
            if each.discover or each.title in self._recent.titles:
                yield DiscoveryHit(_line(Content(each.title), each), self._run(each), text=each.title, help=_why(each))

    async def search(self, query: str) -> Hits:
        """Matches in the title first, then other names, then single letters."""
        matcher, text = self.matcher(query), query.casefold()
        for each in self._all():
            likeness = matcher.match(each.title)
            holds, is_called = text in each.title.casefold(), f" {text}" in _names[each.title]
            if not likeness and not is_called:
                continue
            name = matcher.highlight(each.title) if holds or not is_called else Content(each.title)
            score = (2 if holds else 1 if is_called else 0) + likeness / (1 + likeness)
            yield Hit(score, _line(name, each), self._run(each), text=each.title, help=_why(each))

    @property
    def _recent(self) -> Recent:
        recent: Recent = self.app.recent  # type: ignore[attr-defined]
        return recent

    def _all(self) -> Iterator[SystemCommand]:
        yield from self._recent.first(self.app.get_system_commands(self.screen))

    def _run(self, command: SystemCommand) -> Any:
        return partial(self._choose, command)

    async def _choose(self, command: SystemCommand) -> None:
        self._recent.chosen(command.title)
        done: Any = command.callback()
        if done is not None:
            await done


def _line(name: Content, command: SystemCommand) -> Content:
    first = command.help.partition("\n")[0]
    return Content.assemble(name, (f"  {first.removeprefix('Key: ')}", DIM)) if first.startswith("Key: ") else name


def _why(command: SystemCommand) -> str | None:
    first, _, why = command.help.partition("\n")
    return (why or None) if first == "No key" or first.startswith("Key: ") else command.help
