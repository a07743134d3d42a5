"""All curves of the bench."""

from __future__ import annotations

from typing import Final

from tests.benches.growth import conversations, kept_answers, question_bytes, reopening
from tests.benches.growth.curve import Curve

MANY: Final = (100, 1000, 10_000)

CURVES: Final = {
    "kept_answers": Curve(
        "finished answers: the question for others", "ms", (10, 100, 1000), kept_answers.measure, 1.0
    ),
    "list": Curve("conversations: a list of all", "ms", MANY, conversations.listed, 1.1),
    "search": Curve("conversations: a search, one in a hundred found", "ms", MANY, conversations.searched, 1.1),
    "first_screen": Curve("conversations: what the first screen asks", "ms", MANY, conversations.first_screen, 1.1),
    "question_bytes": Curve(
        "messages: bytes written for a question over its own", "times", (20, 200, 2000), question_bytes.measure, 0.1
    ),
    "reopening": Curve("messages: a conversation shown again", "ms", (1000, 10_000, 100_000), reopening.measure, 1.2),
}
