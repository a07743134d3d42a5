"""Words in the prompt that are commands and no questions: "/model" opens the picker."""

from __future__ import annotations

from typing import Final

SLASH_COMMANDS: Final = {
    "/help": "help",
    "/model": "open('models')",
    "/system": "open('sampling')",
    "/temp": "open('sampling')",
    "/save": "keep",
    "/new": "new_chat",
    "/quit": "quit",
}
