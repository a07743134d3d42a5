"""The conversation as the person leads it: asks, stops, asks again, goes on. What follows from it is in `tui.state`."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING

from core.requests import AnswerId, ChatRequest, UnfinishedAnswer
from tui import keeping, state
from tui.bridge import FAILURES, problem_of
from tui.recovery import held

if TYPE_CHECKING:
    from tui.app import MaclusterApp

NO_MODEL = "No model is ready. Ctrl+O loads one."


class Talk:
    """Reads and sets the state of `app`, and tells its person what cannot be now."""

    def __init__(self, app: MaclusterApp) -> None:
        self._app = app

    def send(self, text: str) -> bool:
        """Ask `text`; False where that cannot be now, and why is told."""
        app = self._app
        if recovery := held(app.state.snapshot):
            app.note_down(f"Nothing can be asked now. {recovery.text}")
        elif app.state.answer is not None:
            app.note_down("An answer is being written. Esc stops it.")
        elif app.state.snapshot.plan_status != "ready":
            app.note_down(NO_MODEL)
        else:
            self._ask(text)
            return True
        return False

    def again(self) -> None:
        """Ask the last question again."""
        app = self._app
        kept, question = state.retried(app.state)
        if not question:
            app.note_down("There is no finished question to ask again.")
        elif app.state.snapshot.plan_status != "ready":
            app.note_down(NO_MODEL)
        else:
            app.state = kept
            self._ask(question)

    def stop(self) -> None:
        """Stop the answer; what is written stays."""
        answer = self._app.state.answer
        if answer is not None and answer.request_id:
            self._app.command(self._app.client.cancel(answer.request_id))
        elif answer is not None:
            self._app.set_state(state.stopped(self._app.state))

    def clear(self) -> None:
        """Forget the conversation; a running answer is stopped."""
        self.stop()
        self._app.set_state(state.cleared(self._app.state))

    def go_on(self) -> None:
        """Continue the answer that was interrupted."""
        app = self._app
        kept = state.interrupted(app.state)
        if kept is None:
            app.note_down("No answer of this Mac was interrupted.")
        elif app.state.snapshot.plan_status != "ready":
            app.note_down(f"It was written with {kept.model}. Ctrl+O loads that; then it can be continued.")
        else:
            self._run(partial(self._going_on, kept), "go on")

    async def keep(self) -> None:
        """Keep the conversation under a name."""
        await keeping.keep(self._app, self._app.client)

    async def take_up(self) -> None:
        """Go on with a conversation that was kept; a running answer is stopped."""
        if kept := await keeping.take_up(self._app, self._app.client):
            self.stop()
            self._app.set_state(state.taken_up(self._app.state, kept.messages, time.time()))

    def find_unfinished(self) -> None:
        """Ask the node for answers that can be continued."""
        self._run(self._offer, "unfinished")

    def _ask(self, text: str) -> None:
        app = self._app
        app.set_state(state.sent(app.state, text, time.time()))
        number = app.state.next_number
        app.run_worker(self._chat(number), group="chat", exit_on_error=False)

    async def _chat(self, number: int) -> None:
        app = self._app
        try:
            reply = await app.client.chat(ChatRequest(messages=state.conversation(app.state)))
            if app.state.answer is None or app.state.next_number != number:
                # stopped or cleared before the node had answered
                await app.client.cancel(reply.request_id)
                return
        except FAILURES as error:
            if app.state.next_number == number:
                app.set_state(state.refused(app.state, problem_of(error)))
            return
        app.set_state(state.accepted(app.state, reply.request_id, reply.prompt_tokens, time.time()))

    async def _going_on(self, kept: UnfinishedAnswer) -> None:
        app = self._app
        try:
            reply = await app.client.go_on(AnswerId(request_id=kept.request_id))
        except FAILURES as error:
            app.set_state(state.failed(app.state, problem_of(error)))
            return
        now = time.time()
        again = state.continued(app.state, kept, now)
        app.set_state(state.accepted(again, reply.request_id, reply.prompt_tokens, now))
        app.refresh_bindings()

    async def _offer(self) -> None:
        app = self._app
        try:
            unfinished = await app.client.unfinished()
        except FAILURES as error:
            app.tell(problem_of(error))
            return
        app.set_state(state.offered(app.state, unfinished, time.time()))
        app.refresh_bindings()

    def _run(self, work: Callable[[], Coroutine[None, None, None]], group: str) -> None:
        # made when it begins: one that is replaced before that leaves nothing behind
        self._app.run_worker(work, group=group, exclusive=True, exit_on_error=False)  # type: ignore[arg-type]
