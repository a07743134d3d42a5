"""Saves conversations in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from core.errors import MaclusterError, Problem, UsageError
from core.requests.answers import UnfinishedAnswer
from core.requests.conversations import Conversation, ConversationId, ConversationInfo, SearchText
from tui.control.app_interface import AppInterface
from tui.state import chats, conversation, export, state
from tui.state.branches import Turns, by_number
from tui.state.state import UiState, cleaned

RETRY_S: Final = 5.0
SETTLE_S: Final = 1.0

# parts of a state; a change in them is saved
Mark = tuple[object, ...]


class ConversationArchive:
    """Saves the conversation after each question, answer and change, unless saving is off."""

    def __init__(self, app: AppInterface) -> None:
        self._app = app
        self._saved: Mark = ()
        self._waiting: dict[str, tuple[UiState, float] | None] = {}  # with the time; None: to be deleted
        # what the node has of the conversation on screen: its id, messages and time
        self._stored: tuple[str, Turns, float] = ("", (), 0.0)
        self._idle = asyncio.Event()
        self._idle.set()
        self._failed_at = 0.0
        self._reported: Problem | None = None

    def look(self, now: UiState) -> None:
        """Save what is new, and every few seconds what failed before. Waits while no node runs."""
        if now.chat.id and not now.chat.is_unkept and _mark(now) != self._saved:
            has_words = bool(now.turns or now.others or now.chat.draft)
            self._waiting[now.chat.id] = (now, time.time()) if has_words else None
        self._saved = _mark(now)
        if now.attached and self._waiting and self._idle.is_set() and time.monotonic() - self._failed_at > RETRY_S:
            self._idle.clear()
            self._app.in_background(self._save, group="archive")

    def knows(self, now: UiState, changed_at: float) -> None:
        """Remember that the node has what `now` shows; the last message may have grown since."""
        self._saved = _mark(now)
        self._stored = (now.chat.id, by_number((*now.turns[:-1], *now.others)), changed_at)

    async def settle(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), SETTLE_S)

    async def all(self, text: str = "") -> list[ConversationInfo]:
        client = self._app.client
        found = await (client.find_conversations(SearchText(text=text)) if text else client.conversations())
        return [_cleaned(each) for each in found]

    async def newest(self) -> ConversationInfo | None:
        """The newest one that can be read."""
        found = await self._app.client.conversations()
        return next((_cleaned(each) for each in found if each.problem is None), None)

    async def read(self, wanted: ConversationId) -> Conversation:
        await self.settle()
        return await self._app.client.conversation(wanted)

    async def holding(self, cut_off: Sequence[UnfinishedAnswer]) -> Conversation | None:
        wanted = {each.request_id for each in cut_off}
        for each in await self._app.client.conversations() if wanted else ():
            if each.last_request in wanted:
                return await self.read(ConversationId(id=each.id))
        return None

    async def rename(self, wanted: ConversationId, title: str) -> None:
        said = await self.read(wanted)
        change = {"title": title, "keep": len(said.turns), "since": said.changed_at, "turns": ()}
        await self._app.client.keep_conversation(msgspec.structs.replace(said, **change))
        if wanted.id == self._app.state.chat.id:
            self._app.set_state(conversation.called(self._app.state, title))

    async def delete(self, wanted: ConversationId) -> None:
        await self.settle()
        self._waiting.pop(wanted.id, None)
        await self._app.client.delete_conversation(wanted)

    async def export(self, wanted: ConversationId | None = None) -> None:
        """Export one, by default the one on screen, to a file that the person names."""
        now = self._app.state
        if wanted is not None and wanted.id != now.chat.id:
            await self._export(await self.read(wanted))
        elif now.turns:
            await self._export(chats.kept(now.chat, now.turns, time.time(), now.others))
        else:
            self._app.notify("There is nothing to export yet.")

    async def _export(self, chosen: Conversation) -> None:
        """Raises NodeError, UsageError."""
        words = (
            "Saved as Markdown, or as JSON if the name ends in .json. "
            "The file is not encrypted; only your account can read it."
        )
        proposed = str(export.default_path(chosen.title))
        typed = await self._app.ask("Export the conversation", words, proposed, export.path_from)
        if not typed:
            return
        path = export.path_from(typed)
        text = export.text_for(path, chosen)
        done = await asyncio.to_thread(export.write, path, text)
        if not done:
            effect = f"{path} already exists. Its content would be lost."
            if await self._app.choose("Replace the file?", effect, ("Cancel", "Replace")) == 1:
                done = await asyncio.to_thread(export.write, path, text, replace=True)
        if done:
            self._app.notify(f"Exported to {path}.")

    async def switch_keeping(self) -> None:
        """Turn saving off and delete the saved copy, or turn saving on."""
        now = self._app.state
        if now.chat.is_unkept:
            self._app.set_state(conversation.unkept(now, False))
            self._app.notify("This chat is saved from now on.")
        elif await self._may_forget():
            await self.settle()
            self._waiting.pop(now.chat.id, None)
            self._app.set_state(conversation.unkept(self._app.state, True))
            if now.chat.id:
                await self._app.client.delete_conversation(ConversationId(id=now.chat.id))
            self._app.notify("This chat is no longer saved. It is gone when you leave it.")

    async def _may_forget(self) -> bool:
        if not self._app.state.chat.id:
            return True
        effect = "The saved copy on this Mac will be deleted. The chat stays on screen until you leave it."
        answers = ("Keep saving", "Delete and stop saving")
        return await self._app.choose("Turn off saving for this chat?", effect, answers) == 1

    async def _save(self) -> None:
        try:
            while self._waiting:
                name, wanted = next(iter(self._waiting.items()))
                if wanted is None:
                    with suppress(UsageError):  # it was never saved
                        await self._app.client.delete_conversation(ConversationId(id=name))
                else:
                    await self._keep(*wanted)
                self._can_save()
                if self._waiting.get(name) is wanted:
                    del self._waiting[name]
                elif name not in self._waiting and wanted is not None:  # saving was turned off meanwhile
                    await self._app.client.delete_conversation(ConversationId(id=name))
        except MaclusterError as error:
            is_first, self._failed_at = not self._failed_at, time.monotonic()
            if is_first:
                self._reported = cleaned(_unsaved(error.problem))
                self._app.set_state(state.failed(self._app.state, self._reported))
        finally:
            self._idle.set()

    async def _keep(self, now: UiState, at: float) -> None:
        """Save what is new; all of it, if that isn't known or the saved one was changed elsewhere."""
        keep, (name, *known) = self._app.client.keep_conversation, self._stored
        try:
            await keep(chats.kept(now.chat, now.turns, at, now.others, *(known if name == now.chat.id else ())))
        except UsageError:
            await keep(chats.kept(now.chat, now.turns, at, now.others))
        if now.chat.id == self._app.state.chat.id:
            self._stored = (now.chat.id, by_number((*now.turns, *now.others)), at)

    def _can_save(self) -> None:
        self._failed_at = 0.0
        if self._reported is not None and self._app.state.problem == self._reported:
            self._app.set_state(state.failed(self._app.state, None))
        self._reported = None


def _cleaned(info: ConversationInfo) -> ConversationInfo:
    """A list needs single lines, but an ending keeps its own."""
    return msgspec.structs.replace(cleaned(info), ending=cleaned(info.ending, lines=True))


def _unsaved(why: Problem) -> Problem:
    cure = "macluster retries every few seconds. Don't close this window."
    return Problem(kind=why.kind, what=f"This chat isn't saved. {why.what}", fix=f"{why.fix} {cure}".strip())


def _mark(now: UiState) -> Mark:
    last = now.turns[-1] if now.turns else None
    return now.chat, last and (last.number, last.request_id, last.done)
