"""`macluster run`: prints one answer, continues one, or runs a conversation, over a terminal or a pipe."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec.structs import replace

from core.errors import MaclusterError, UsageError
from core.requests.answers import ChatRequest, Message, UnfinishedAnswer
from core.requests.conversations import ChatOptions, SessionName
from core.text import Clean, clean_text
from tui.cli.answer_options import asks_for_more, request_of
from tui.cli.answering import answer
from tui.cli.launch import home_of
from tui.cli.load import is_loaded, load_model
from tui.cli.output import print_progress, table
from tui.cli.remote_api import RemoteApi
from tui.cli.typed_lines import Keyboard, Lines, Pipe
from tui.cli.watch import Watch, watching
from tui.state import conversation
from tui.state.chats import Chat, kept
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
        whole = replace(options, system=system)
        chat = Chat(id=secrets.token_hex(16), model=model, created_at=now, options=whole, is_unkept=is_unkept)
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
        self._state = conversation.sent(self._state, question, time.time())
        pieces: list[str] = []
        reasons: list[str] = []

        async def ask() -> None:
            reasons.append(await answerer.answer(conversation.request_of(self._state), pieces.append))

        try:
            is_whole = await lines.attend(ask())
        except MaclusterError as error:
            self._state = conversation.refused(self._with_text(pieces), error.problem)
            raise
        shown = self._with_text(pieces)
        self._state = with_answer(shown, done=True) if is_whole else conversation.stopped(shown)
        if lines.is_person and reasons == ["length"]:
            print(TOO_SHORT, file=sys.stderr)

    def _with_text(self, pieces: list[str]) -> UiState:
        return with_answer(self._state, text=Clean(clean_text("".join(pieces))))


async def run(args: argparse.Namespace) -> None:
    """Print one answer, continue one, or run a conversation; loads the model first if needed."""
    if args.url:
        _check_remote(args)
    if args.go_on is not None:
        return await _continue(args)
    if args.prompt is None:
        return await _converse(args)
    prompt = await asyncio.to_thread(sys.stdin.read) if args.prompt == "-" else args.prompt
    request = replace(request_of(prompt, args), keep=not args.keep_nothing)
    if args.url:
        await _answerer(args).answer(request, lambda _: None)
        return
    async with watching(home_of(args)) as watch:
        request = replace(request, messages=(*await _said(watch, args), *request.messages))
        await _load(watch, args)
        await answer(watch, request, as_json=args.json, hops=False)


async def _converse(args: argparse.Namespace) -> None:
    if args.json or args.ignore_chat_template:
        raise UsageError("A conversation needs the chat template.", "Add a prompt (-p).")
    asked, is_person = request_of("", args), sys.stdin.isatty() and sys.stdout.isatty()
    said: tuple[Message, ...] = ()
    options = ChatOptions(stop=asked.stop, **asked.answer_options)
    if not args.url:
        async with watching(home_of(args)) as watch:
            said = await _said(watch, args)
            if is_person and not await is_loaded(watch, args):
                print_progress(f"Loading {Path(args.model).name} …")
            await _load(watch, args)
    talk = Conversation(args.model, options, said, is_unkept=args.keep_nothing)
    if not is_person:
        await talk.run(Pipe(), _answerer(args))
        return
    with Keyboard(None if args.keep_nothing else home_of(args).typed) as keyboard:
        print_progress(f"{Path(args.model).name}: /help lists the commands, Ctrl+D ends.")
        await talk.run(keyboard, _answerer(args))


class _OwnNode:
    """Answers from this Mac's node; loads the model again if it was unloaded."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    async def answer(self, asked: ChatRequest, on_text: Callable[[str], None]) -> str:
        async with watching(home_of(self._args)) as watch:
            await _load(watch, self._args, is_first=False)
            return (await answer(watch, asked, as_json=False, hops=False, on_text=on_text)).finish_reason


def _answerer(args: argparse.Namespace) -> Answerer:
    return RemoteApi(args.url, args.key or "", args.model, args.certificate) if args.url else _OwnNode(args)


def _check_remote(args: argparse.Namespace) -> None:
    """Raise UsageError for options that only this Mac's node supports."""
    for flag, is_given in (
        ("--continue", args.go_on is not None),
        ("--session", bool(args.session)),
        ("--json", args.json),
        ("--ignore-chat-template", args.ignore_chat_template),
        ("--min-tokens", args.min_tokens > 0),
        ("--regex", args.regex is not None),
        ("--grammar", args.grammar is not None),
    ):
        if is_given:
            raise UsageError(f"{flag} works only with this Mac's node.", "Remove it, or remove --url.")


async def _said(watch: Watch, args: argparse.Namespace) -> tuple[Message, ...]:
    return (await watch.client.session(SessionName(name=args.session))).messages if args.session else ()


async def _load(watch: Watch, args: argparse.Namespace, *, is_first: bool = True) -> None:
    """Load the model unless a Mac answers with it; say which one reads what is asked."""
    if not await is_loaded(watch, args):
        await load_model(watch, args)
    elif is_first and (host := watch.now.host):
        print_progress(f"{host.led_by} answers: it sees these words.")


async def _continue(args: argparse.Namespace) -> None:
    if args.session or args.keep_nothing or asks_for_more(args):
        fix = "Use --continue without --session and answer options."
        raise UsageError("A continued answer keeps its settings.", fix)
    async with watching(home_of(args)) as watch:
        found = [one for one in await watch.client.unfinished() if one.request_id.startswith(args.go_on)]
        if not found:
            which = f" with an id that starts with {args.go_on!r}" if args.go_on else ""
            fix = "`macluster status --json` lists unfinished answers."
            raise UsageError(f"There is no unfinished answer{which}.", fix)
        await _load(watch, args)
        await answer(watch, _of_model(found, watch), as_json=args.json, hops=False)


def _of_model(found: Sequence[UnfinishedAnswer], watch: Watch) -> UnfinishedAnswer:
    """The newest answer of the loaded model, else the newest: the node then names the model to load."""
    loaded = watch.now.plan
    return next((one for one in found if loaded and one.model == loaded.model), found[0])
