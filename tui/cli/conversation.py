"""`macluster run MODEL` without a prompt: a conversation in the terminal, or over a pipe, where each line is a turn."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from core.errors import MaclusterError, UsageError
from core.requests.answers import ChatRequest, Message
from core.requests.conversations import ChatOptions
from core.text import Clean, clean_text
from tui.cli.output import table
from tui.cli.typed_lines import Lines
from tui.state.chats import Chat, kept
from tui.state.conversation import refused, request_of, sent, stopped
from tui.state.export import path_from, text_for, write
from tui.state.sampling import TYPED, texts_of, with_option
from tui.state.state import UiState, with_answer
from tui.state.turns import said_before

HELP: Final = """\
/help              this
/set               show the settings of answers
/set KEY VALUE     change a setting; without a value, reset it
/save FILE         save the conversation as Markdown, or as JSON if the name ends in .json
/quit              end (Ctrl+D)
A line that ends in \\ continues in the next one; a line that starts with a space is not a command.
Ctrl+C stops the answer."""
TOO_SHORT: Final = "Stopped at the token limit; /set max_tokens N allows more."


class Answerer(Protocol):
    """Answers a request: this Mac's node or a remote API."""

    async def answer(self, asked: ChatRequest, on_text: Callable[[str], None]) -> str:
        """Print the answer as it streams, pass its text to `on_text`, return why it ended; raises MaclusterError."""


class Conversation:
    """A conversation with `model`, with `options`, after the messages `said`. An unkept one is not stored."""

    def __init__(
        self, model: str, options: ChatOptions, said: Sequence[Message] = (), *, is_unkept: bool = False
    ) -> None:
        now = time.time()
        system = next((one.content for one in said if one.role == "system"), options.system)
        chat = Chat(
            id=secrets.token_hex(16),
            model=model,
            created_at=now,
            options=replace(options, system=system),
            is_unkept=is_unkept,
        )
        turns = said_before(said, 1, now)
        self._state = UiState(chat=chat, turns=turns, next_number=len(turns) + 1)

    async def run(self, lines: Lines, answerer: Answerer) -> None:
        """Run to its end. Errors are printed at a terminal; in a pipe they raise MaclusterError."""
        while (line := lines.read()) is not None and line.strip() != "/quit":
            try:
                if line.startswith("/"):
                    print(self.command(line))
                elif line.strip():
                    await self._ask(line, lines, answerer)
            except MaclusterError as error:
                if not lines.is_person:
                    raise
                print(clean_text(str(error)), file=sys.stderr)

    def command(self, line: str) -> str:
        """Run a line that starts with "/" and return its output; raises UsageError and NodeError."""
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if name == "/help":
            return HELP
        if name == "/set":
            return self._set(*rest.split(None, 1))
        if name == "/save":
            return self._save(rest)
        raise UsageError(f"There is no command {name}.", "/help lists the commands.")

    def _set(self, name: str = "", text: str = "") -> str:
        chat = self._state.chat
        if name:
            chat = replace(chat, options=with_option(chat.options, name, text))
            self._state = replace(self._state, chat=chat)
        now = texts_of(chat.options, TYPED)
        chosen = [field for field in TYPED if not name or field.name == name.replace("-", "_")]
        rows = [(field.name, now[field.name] or "–", field.option.hint or field.option.help) for field in chosen]
        return "\n".join(table(rows[0], rows[1:], left=(0, 1, 2)))

    def _save(self, typed: str) -> str:
        if not typed:
            raise UsageError("/save needs a file name.", "For example: /save chat.md")
        path = path_from(typed)
        if not write(path, text_for(path, kept(self._state.chat, self._state.turns, time.time()))):
            raise UsageError(f"{path} exists already.", "Choose another name.")
        return f"Saved as {path}."

    async def _ask(self, question: str, lines: Lines, answerer: Answerer) -> None:
        self._state = sent(self._state, question, time.time())
        pieces: list[str] = []
        reasons: list[str] = []

        async def ask() -> None:
            reasons.append(await answerer.answer(request_of(self._state), pieces.append))

        try:
            is_whole = await lines.attend(ask())
        except MaclusterError as error:
            self._state = refused(self._with_text(pieces), error.problem)
            raise
        shown = self._with_text(pieces)
        self._state = with_answer(shown, done=True) if is_whole else stopped(shown)
        if lines.is_person and reasons == ["length"]:
            print(TOO_SHORT, file=sys.stderr)

    def _with_text(self, pieces: list[str]) -> UiState:
        return with_answer(self._state, text=Clean(clean_text("".join(pieces))))
