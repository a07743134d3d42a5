"""Everything of a conversation except its messages, and its saved form."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

import msgspec
from msgspec import Struct

from core.events import Value
from core.requests.conversations import ChatOptions, Conversation, KeptTurn
from core.sampling_options import Sampling, option_fields
from core.text import Clean, clean_text
from tui.state.answer_format import WORDS
from tui.state.branches import Turns, by_number
from tui.state.turns import INTERRUPTED, Turn

TITLE_LIMIT: Final = 60
NO_TITLE: Final = "New conversation"
# fields of a message
_SAVED_AS_IT_IS: Final = ("role", "at", "request_id", "prompt_tokens", "tokens", "last_at", "ttft_s", "is_valid")

# preset names and their sampling
PRESETS: Final[dict[str, Sampling]] = {
    "exact (greedy)": Sampling(),
    "balanced": Sampling(temperature=0.7, top_p=0.9),
    "creative": Sampling(temperature=1.0, top_p=0.95, min_p=0.05),
}


class Chat(Value, frozen=True, kw_only=True):
    """The conversation without its messages."""

    id: str = ""  # "" before the first question
    title: Clean = Clean("")  # without one, the first question is the title
    model: str = ""  # model of the last answer
    created_at: float = 0.0
    options: ChatOptions = ChatOptions()
    is_unkept: bool = False  # saving is off
    draft: Clean = Clean("")  # text that was typed and not sent


def title_of(chat: Chat, turns: tuple[Turn, ...]) -> str:
    asked = next((turn.text for turn in turns if turn.role == "user"), chat.draft)
    words = chat.title or " ".join(asked.split())
    if not words:
        return NO_TITLE
    return words if len(words) <= TITLE_LIMIT else words[: TITLE_LIMIT - 1].rstrip() + "…"


def kept(
    chat: Chat, shown: Turns, now: float, others: Turns = (), stored: Turns = (), since: float = 0.0
) -> Conversation:
    """Everything to save, including versions that aren't shown; without the first messages if they are `stored`."""
    turns = by_number((*shown, *others))
    keep = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(stored, turns, strict=False)))
    places = {turn.number: place for place, turn in enumerate(turns)}
    return Conversation(
        id=chat.id,
        title=title_of(chat, turns),
        model=chat.model,
        created_at=chat.created_at,
        changed_at=now,
        options=chat.options,
        turns=tuple(_kept_turn(turn, places[turn.number] - places.get(turn.parent, -1)) for turn in turns[keep:]),
        newer=len(turns) - 1 - places[shown[-1].number] if shown else len(turns),
        draft=chat.draft,
        keep=keep,
        since=since,
    )


def reopened(conversation: Conversation, first_number: int) -> tuple[Chat, tuple[Turn, ...], tuple[Turn, ...]]:
    """The chat, its shown messages and the others, numbered from `first_number`."""
    chat = Chat(
        id=conversation.id,
        title=_line(conversation.title) if conversation.turns else Clean(""),  # a draft never has one
        model=_line(conversation.model),
        created_at=conversation.created_at,
        options=conversation.options,
        draft=clean_text(conversation.draft),
    )
    turns, path = conversation.turns, conversation.path
    parents = [place - one.back for place, one in enumerate(turns)]
    every = [
        _turn(one, first_number + place, first_number + parent if parent >= 0 else 0)
        for place, (one, parent) in enumerate(zip(turns, parents, strict=True))
    ]
    is_shown = set(path)
    others = tuple(turn for place, turn in enumerate(every) if place not in is_shown)
    return chat, tuple(every[place] for place in path), others


def reseeded(options: ChatOptions) -> ChatOptions:
    """With another seed if one is set and it matters, so that the answer differs."""
    sampling = options.sampling
    if sampling.seed is None or sampling.temperature == 0:
        return options
    seed = (sampling.seed + 1) % (1 << 63)
    return msgspec.structs.replace(options, sampling=msgspec.structs.replace(sampling, seed=seed))


def option_words(options: ChatOptions, *, is_short: bool = True) -> list[str]:
    """Options that differ from the defaults: "temp 0.7" (or "temperature 0.7"), "seed 4", "schema", "system prompt"."""
    pairs: tuple[tuple[Struct, Struct], ...] = ((options.sampling, Sampling()), (options, ChatOptions()))
    words = [word for now, default in pairs for word in _number_words(now, default, is_short=is_short)]
    words += [WORDS[options.constraint.kind]] if options.constraint else []
    words += [f"stop {len(options.stop)}"] if options.stop else []
    return words + (["system prompt"] if options.system else [])


def _number_words(now: Struct, plain: Struct, *, is_short: bool) -> list[str]:
    return [
        f"{(is_short and option.short) or option.label.lower()} {getattr(now, name)}"
        for name, kind, option in option_fields(type(plain))
        if option.label and kind in (int, float) and getattr(now, name) != getattr(plain, name)
    ]


def _kept_turn(turn: Turn, back: int) -> KeptTurn:
    same = {field: getattr(turn, field) for field in _SAVED_AS_IT_IS}
    why = turn.why if turn.done else INTERRUPTED
    return KeptTurn(text=turn.text, tokens_per_s=turn.rate, why=why, back=back, **same)


def _turn(one: KeptTurn, number: int, parent: int) -> Turn:
    same = {field: getattr(one, field) for field in _SAVED_AS_IT_IS}
    rate, why = one.tokens_per_s, _line(one.why)
    text = clean_text(one.text)
    return Turn(number=number, parent=parent, text=text, earlier=one.tokens, tokens_per_s=rate, why=why, **same)


def _line(text: str) -> Clean:
    return Clean(" ".join(clean_text(text).split()))
