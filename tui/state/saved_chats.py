"""One list of saved conversations and of sessions, which are saved by name with the Macs' caches. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from core.errors import Problem
from core.events import Value
from core.requests.conversations import Conversation, ConversationInfo, SavedSession
from core.text import Clean, clean_text
from tui.state.chats import NO_TITLE
from tui.state.format import moment

# fields of a conversation and of a session
_OF_BOTH = ("model", "tokens", "size_bytes", "problem")


class SavedChat(Value, frozen=True, kw_only=True):
    """A conversation or a session in the list."""

    id: str  # a conversation's id, or a session's name
    title: str
    model: str
    tokens: int
    size_bytes: int
    at: float  # last change, seconds since the epoch
    begun: str = ""  # when it began, in words, if another one has the same title
    is_session: bool = False
    messages: int = 0  # 0 for sessions
    has_draft: bool = False
    ending: str = ""
    problem: Problem | None = None

    @property
    def label(self) -> str:
        return f"{self.begun} · {self.title}" if self.begun else self.title

    @property
    def key(self) -> str:
        return f"session {self.id}" if self.is_session else self.id


class PreviewMessage(Value, frozen=True, kw_only=True):
    """A message in the preview."""

    role: str
    text: Clean
    is_shown: bool = True


def saved_chats(
    infos: Iterable[ConversationInfo], sessions: Iterable[SavedSession], wanted: str
) -> tuple[SavedChat, ...]:
    """Conversations and sessions, newest first. `infos` match `wanted`; sessions match by name, model or messages."""
    found = list(infos)
    often = Counter(info.title for info in found)
    rows = [_of_info(info, is_double=often[info.title] > 1) for info in found]
    rows += [_of_session(one) for one in sessions if _holds(one, wanted.casefold())]
    return tuple(sorted(rows, key=lambda row: row.at, reverse=True))


def _holds(session: SavedSession, text: str) -> bool:
    said = (message.content for message in session.messages)
    return any(text in part.casefold() for part in (session.name, session.model, *said))


def preview_messages(conversation: Conversation, wanted: str) -> tuple[PreviewMessage, ...]:
    """The shown messages, then messages of other versions that contain `wanted`."""
    path = set(conversation.path)
    shown = [_said(conversation.turns[at].role, conversation.turns[at].text) for at in conversation.path]
    other_versions = [
        PreviewMessage(role=turn.role, text=clean_text(turn.text), is_shown=False)
        for at, turn in enumerate(conversation.turns)
        if wanted and at not in path and wanted.casefold() in turn.text.casefold()
    ]
    return (*shown, *other_versions)


def session_messages(session: SavedSession) -> tuple[PreviewMessage, ...]:
    return tuple(_said(message.role, message.content) for message in session.messages)


def _said(role: str, text: str) -> PreviewMessage:
    return PreviewMessage(role=role, text=clean_text(text))


def _of_info(info: ConversationInfo, *, is_double: bool) -> SavedChat:
    return SavedChat(
        id=info.id,
        title=info.title or NO_TITLE,
        begun=moment(info.created_at) if is_double and info.title else "",
        at=info.changed_at,
        **{field: getattr(info, field) for field in (*_OF_BOTH, "messages", "has_draft", "ending")},
    )


def _of_session(session: SavedSession) -> SavedChat:
    return SavedChat(
        id=session.name,
        title=session.name,
        at=session.created_at,
        is_session=True,
        **{field: getattr(session, field) for field in _OF_BOTH},
    )
