"""Commands of a conversation: ask, stop, retry, edit, continue. `tui.state.conversation` has the state changes."""

from __future__ import annotations

import secrets
import time

from msgspec.structs import replace

from core.errors import MaclusterError, UsageError
from core.requests.answers import AnswerId, Message, UnfinishedAnswer
from core.requests.conversations import ChatOptions, ConversationId
from tui.control.app_interface import AppInterface
from tui.control.conversation_archive import ConversationArchive
from tui.control.slash_commands import OptionTyped
from tui.state import branches, conversation, state
from tui.state.chats import option_words
from tui.state.recovery import held
from tui.state.sampling import with_option
from tui.state.seat import unasked_words
from tui.state.state import UiState

NO_MODEL = "No model is ready. Ctrl+O loads one."
LOADING = "The model is still loading. Press Enter again when it is ready."
WRITING = "An answer is being written. Esc stops it."


class ChatController:
    """Changes the conversation in the state of `app`, and reports what isn't possible now."""

    def __init__(self, app: AppInterface, conversations: ConversationArchive) -> None:
        self._app = app
        self._conversations = conversations
        self._typed, self._has_offered = "", False

    def keep_draft(self, *, at_once: bool = False) -> None:
        """Store what is typed with the conversation, once typing pauses; called twice a second."""
        app = self._app
        typed, self._typed = self._typed, app.prompt.text
        if app.state.editing or app.state.chat.draft == self._typed or not (at_once or typed == self._typed):
            return
        new = conversation.drafted(app.state, self._typed, secrets.token_hex(16), time.time())
        if new != app.state:
            app.set_state(new)

    def send(self, text: str) -> None:
        """Ask the question, or report why that isn't possible now."""
        app = self._app
        if recovery := held(app.state.snapshot):
            app.notify(f"You can't ask right now. {recovery.text}")
        elif app.state.answer is not None:
            app.notify(WRITING)
        elif app.state.snapshot.plan_status == "loading":
            app.notify(LOADING)
        elif app.state.snapshot.chat_status != "ready":
            app.notify(unasked_words(app.state.snapshot) or NO_MODEL)
        else:
            if number := app.state.editing:
                app.state = conversation.cut(app.state, number)
            now = time.time()
            self._send(conversation.sent(app.state, text, now), now)
            app.prompt.taken()

    def again(self) -> None:
        app, now = self._app, time.time()
        again = conversation.retried(app.state, now)
        if again is app.state:
            app.notify("There is no question to ask again.")
        elif app.state.snapshot.chat_status != "ready":
            app.notify(unasked_words(app.state.snapshot) or NO_MODEL)
        else:
            self._send(again, now)

    def branch(self, number: int, step: int) -> int:
        """Show the version `step` further at message `number` (0: the last with versions). Return that number, or 0."""
        app = self._app
        at = branches.crossing(app.state.turns, app.state.others, number)
        versions = branches.siblings(app.state.turns, app.state.others, at)
        if app.state.answer is not None:
            app.notify(WRITING)
        elif not at:
            app.notify("There are no other versions here. Ctrl+R asks again, e edits a question.")
        elif not 0 <= (place := versions.index(at) + step) < len(versions):
            app.notify(f"This is the {'first' if step < 0 else 'last'} of {len(versions)} versions.")
        else:
            app.set_state(conversation.branched(app.state, at, step))
            return versions[place]
        return 0

    def edit(self, number: int) -> None:
        """Put that question into the prompt; nothing changes until it is sent."""
        turn = next((turn for turn in self._app.state.turns if turn.number == number), None)
        if self._app.state.answer is not None:
            self._app.notify(WRITING)
        elif turn is not None:
            self._app.prompt.lend(turn.text)
            self._app.set_state(replace(self._app.state, editing=number))

    def give_up_edit(self) -> None:
        self._app.prompt.give_back()
        self._app.set_state(replace(self._app.state, editing=0))

    def stop(self) -> bool:
        """Stop the answer; what is written stays. False if none is being written."""
        answer = self._app.state.answer
        if answer is None:
            return False
        if answer.request_id:
            self._app.in_background(self._app.client.cancel, answer.request_id)
        else:
            self._app.set_state(conversation.stopped(self._app.state))
        return True

    async def begin(self) -> bool:
        """Start an empty conversation and stop a running answer. False if the person stays."""
        if not await self._may_leave():
            return False
        self.leave()
        # with the typed text
        self._app.set_state(conversation.drafted(self._app.state, "", "", 0.0))
        self._app.set_state(conversation.cleared(self._app.state))
        self._app.prompt.focus()
        return True

    async def open(self, wanted: ConversationId) -> bool:
        """Open a saved conversation. False if the person stays. Raises the node's error."""
        if wanted.id == self._app.state.chat.id:
            return True
        if not await self._may_leave():
            return False
        found = await self._conversations.read(wanted)
        self.leave()
        self.keep_draft(at_once=True)
        self._show(conversation.opened(self._app.state, found), found.changed_at)
        return True

    async def _may_leave(self) -> bool:
        if not self._app.state.chat.is_unkept or not self._app.state.turns:
            return True
        effect = "This chat isn't saved. If you leave it, it is gone."
        return await self._app.choose("Leave an unsaved chat?", effect, ("Stay", "Leave")) == 1

    def open_last(self) -> None:
        if last := self._app.state.last:
            self._app.in_background(self.open, ConversationId(id=last.id))

    async def delete(self, wanted: ConversationId) -> None:
        """Delete a saved conversation; clears the chat if it is open. Raises the node's error."""
        if wanted.id == self._app.state.chat.id:
            self.stop()
            self._app.set_state(conversation.cleared(self._app.state))
        if (last := self._app.state.last) and last.id == wanted.id:
            self._app.set_state(replace(self._app.state, last=None))
        await self._conversations.delete(wanted)

    def leave(self) -> None:
        self.stop()
        if self._app.state.editing:
            self.give_up_edit()
        self._app.set_state(conversation.stopped(self._app.state))

    def ask_with(self, options: ChatOptions) -> None:
        self._app.set_state(conversation.asked_with(self._app.state, options))

    def set_option(self, typed: OptionTyped) -> None:
        """Set an option from the prompt; a wrong one stays in the prompt."""
        app = self._app
        try:
            options = with_option(app.state.chat.options, typed.name, typed.value)
        except UsageError as error:
            app.show_problem(error.problem)
            return
        self.ask_with(options)
        app.prompt.taken()
        app.notify(f"Set: {' · '.join(option_words(options, is_short=False)) or 'defaults'} (F6 shows all settings)")

    def go_on(self) -> None:
        app = self._app
        if kept := conversation.interrupted(app.state):
            app.in_background(self._going_on, kept, group="go on", exclusive=True)

    def show(self, said: tuple[Message, ...]) -> None:
        self.leave()
        self._app.set_state(conversation.taken_up(self._app.state, said, time.time()))

    def find_unfinished(self) -> None:
        self._app.in_background(self._offer, group="unfinished", exclusive=True)

    def _send(self, asked: UiState, now: float) -> None:
        app = self._app
        app.set_state(conversation.begun(asked, secrets.token_hex(16), now))
        app.in_background(self._chat, app.state.next_number, group="chat")

    async def _chat(self, number: int) -> None:
        app = self._app
        try:
            reply = await app.client.chat(conversation.request_of(app.state))
            if app.state.answer is None or app.state.next_number != number:
                # stopped or cleared before the node had answered
                await app.client.cancel(reply.request_id)
                return
        except MaclusterError as error:
            if app.state.next_number == number:
                app.set_state(conversation.refused(app.state, error.problem))
            return
        app.set_state(conversation.accepted(app.state, reply.request_id, reply.prompt_tokens, time.time()))

    async def _going_on(self, kept: UnfinishedAnswer) -> None:
        app = self._app
        try:
            reply = await app.client.go_on(AnswerId(request_id=kept.request_id))
        except MaclusterError as error:
            app.set_state(state.failed(app.state, error.problem))
            return
        now = time.time()
        again = conversation.begun(conversation.continued(app.state, kept, now), secrets.token_hex(16), now)
        app.set_state(conversation.accepted(again, reply.request_id, reply.prompt_tokens, now))

    async def _offer(self) -> None:
        app = self._app
        unfinished = await app.client.unfinished()
        cut_off = None if app.state.turns else await self._conversations.holding(unfinished[:1])
        if cut_off is not None and not app.state.turns:
            known = conversation.offered(app.state, unfinished, time.time())
            self._show(conversation.opened(known, cut_off), cut_off.changed_at)
        else:
            app.set_state(conversation.offered(app.state, unfinished, time.time()))
        if not self._has_offered and not app.state.turns:
            self._has_offered = True
            await self._offer_last()

    async def _offer_last(self) -> None:
        app = self._app
        last = await self._conversations.newest()
        if last is None or app.state.turns:
            return
        if last.has_draft and not app.prompt.text:
            await self.open(ConversationId(id=last.id))
        else:
            app.set_state(replace(app.state, last=last))

    def _show(self, opened: UiState, changed_at: float) -> None:
        self._conversations.knows(opened, changed_at)
        if not self._app.state.chat.is_unkept or not self._app.prompt.text:
            self._app.prompt.put(opened.chat.draft)
        self._app.set_state(replace(opened, last=None))
