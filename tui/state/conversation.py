"""State changes of the conversation after actions of the user."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from core.errors import Problem
from core.requests.answers import ChatRequest, Message, UnfinishedAnswer
from core.requests.conversations import ChatOptions, Conversation
from core.text import Clean, clean_text
from tui.state.branches import forked, turned
from tui.state.chats import Chat, reopened, reseeded
from tui.state.state import UiState, answer_event, cleaned, with_answer
from tui.state.turns import INTERRUPTED, Turn, gone_on, said_before

_change = msgspec.structs.replace


def begun(state: UiState, chat_id: str, now: float) -> UiState:
    chat = state.chat if state.chat.id else _change(state.chat, id=chat_id, created_at=now)
    return _change(state, chat=_change(chat, model=state.snapshot.chat_model or chat.model))


def sent(state: UiState, text: str, now: float) -> UiState:
    number, parent = state.next_number, state.turns[-1].number if state.turns else 0
    asked = Turn(number=number, parent=parent, role="user", text=clean_text(text), at=now)
    chat = state.chat if state.editing else _change(state.chat, draft=Clean(""))
    state = _change(state, turns=(*state.turns, asked), next_number=number + 1, editing=0, chat=chat)
    return _awaiting(state, now)


def drafted(state: UiState, text: str, chat_id: str, now: float) -> UiState:
    draft = clean_text(text) if text.strip() else Clean("")
    chat = state.chat if state.chat.id or not draft else _change(state.chat, id=chat_id, created_at=now)
    return _change(state, chat=_change(chat, draft=draft))


def accepted(state: UiState, request_id: str, prompt_tokens: int, now: float) -> UiState:
    """Store the request id, and catch up on events that came before it."""
    if state.answer is None:
        return state
    early = tuple(e for e in state.early if e.request_id == request_id)
    state = with_answer(state, request_id=request_id, prompt_tokens=prompt_tokens)
    state = _change(state, early=())
    for event in early:
        state = answer_event(state, event, now)
    return state


def refused(state: UiState, problem: Problem) -> UiState:
    problem = cleaned(problem)
    return _change(with_answer(state, done=True, why=problem.what), problem=problem, early=())


def stopped(state: UiState) -> UiState:
    return _change(with_answer(state, done=True, why="stopped by you"), early=())


def cut(state: UiState, number: int) -> UiState:
    """Continue before message `number`; it and what follows become another version."""
    turns, others = forked(state.turns, state.others, number)
    return _change(state, turns=turns, others=others, problem=None)


def branched(state: UiState, number: int, step: int) -> UiState:
    turns, others = turned(state.turns, state.others, number, step)
    return _change(state, turns=turns, others=others, editing=0)


def retried(state: UiState, now: float) -> UiState:
    """Ask the last question again, with another seed if that matters. Unchanged without one, or during an answer."""
    asked = next((turn for turn in reversed(state.turns) if turn.role == "user"), None)
    if asked is None or state.answer is not None:
        return state
    after = next((turn.number for turn in state.turns if turn.parent == asked.number), state.next_number)
    state = cut(state, after)
    return _awaiting(_change(state, chat=_change(state.chat, options=reseeded(state.chat.options))), now)


def cleared(state: UiState) -> UiState:
    chat = Chat(options=state.chat.options)
    return _change(state, turns=(), others=(), chat=chat, problem=None, early=(), editing=0)


def opened(state: UiState, conversation: Conversation) -> UiState:
    """Show a saved conversation. If its last answer can be continued, with all its known text."""
    chat, turns, others = reopened(conversation, state.next_number)
    number = state.next_number + len(conversation.turns)
    state = _change(cleared(state), chat=chat, turns=turns, others=others, next_number=number)
    more = next((each for each in state.unfinished if turns and each.request_id == turns[-1].request_id), None)
    if more is None or not more.text.startswith(turns[-1].text):
        return state
    last = _change(turns[-1], text=Clean(more.text), tokens=more.tokens, why=turns[-1].why or INTERRUPTED)
    return _change(state, turns=(*turns[:-1], last))


def asked_with(state: UiState, options: ChatOptions) -> UiState:
    return _change(state, chat=_change(state.chat, options=options))


def called(state: UiState, title: str) -> UiState:
    return _change(state, chat=_change(state.chat, title=cleaned(Clean(title))))


def unkept(state: UiState, on: bool) -> UiState:
    return _change(state, chat=_change(state.chat, is_unkept=on))


def taken_up(state: UiState, messages: tuple[Message, ...], now: float) -> UiState:
    system = next((m.content for m in messages if m.role == "system"), "")
    options = _change(state.chat.options, system=system)
    turns = said_before(messages, state.next_number, now)
    number = state.next_number + len(turns)
    return _change(asked_with(cleared(state), options), turns=turns, next_number=number)


def offered(state: UiState, unfinished: Iterable[UnfinishedAnswer], now: float) -> UiState:
    clean = tuple(_change(cleaned(each), messages=each.messages, text=clean_text(each.text)) for each in unfinished)
    state = _change(state, unfinished=clean)
    return _with_unfinished(state, clean[0], now) if clean and not state.turns else state


def interrupted(state: UiState) -> UnfinishedAnswer | None:
    """The answer to continue: the last one on screen if possible, else the newest."""
    if state.answer is not None or not state.unfinished:
        return None
    last = state.turns[-1].request_id if state.turns else ""
    return next((each for each in state.unfinished if each.request_id == last), state.unfinished[0])


def continued(state: UiState, kept: UnfinishedAnswer, now: float) -> UiState:
    """Continue that answer: on screen if it is the last one there, else in its own conversation. `accepted` follows."""
    if not state.turns or state.turns[-1].request_id != kept.request_id:
        state = _with_unfinished(state, kept, now)
    others = tuple(each for each in state.unfinished if each.request_id != kept.request_id)
    return _change(state, turns=(*state.turns[:-1], gone_on(state.turns[-1], kept)), unfinished=others, problem=None)


def messages(state: UiState) -> tuple[Message, ...]:
    """The messages for the model, without questions that have an empty answer: roles must alternate."""
    system = state.chat.options.system
    said: list[Message] = [Message(role="system", content=system)] if system else []
    for turn in state.turns:
        if turn.role == "user" and said and said[-1].role == "user":
            said.pop()
        if turn.text:
            said.append(Message(role=turn.role, content=turn.text))
    return tuple(said)


def request_of(state: UiState) -> ChatRequest:
    options = state.chat.options
    return ChatRequest(
        messages=messages(state), stop=options.stop, keep=not state.chat.is_unkept, **options.answer_options
    )


def _awaiting(state: UiState, now: float) -> UiState:
    number = state.next_number
    answer = Turn(number=number, parent=state.turns[-1].number, role="assistant", text=Clean(""), at=now, done=False)
    return _change(state, turns=(*state.turns, answer), next_number=number + 1, problem=None, early=())


def _with_unfinished(state: UiState, kept: UnfinishedAnswer, now: float) -> UiState:
    """Show the conversation of that answer, with the text written so far."""
    state = _change(taken_up(state, kept.messages, now), early=state.early)
    answer = Turn(
        number=state.next_number,
        parent=state.turns[-1].number if state.turns else 0,
        role="assistant",
        text=Clean(kept.text),
        at=kept.at,
        request_id=kept.request_id,
        tokens=kept.tokens,
        why=INTERRUPTED,
    )
    return _change(state, turns=(*state.turns, answer), next_number=answer.number + 1)
