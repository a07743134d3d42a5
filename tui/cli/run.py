"""`macluster run`: prints one answer, continues one, or runs a conversation."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from core.errors import UsageError
from core.requests.answers import ChatRequest, Message, UnfinishedAnswer
from core.requests.conversations import ChatOptions, SessionName
from tui.cli.answer_options import asks_for_more, request_of
from tui.cli.answering import answer
from tui.cli.conversation import Answerer, Conversation
from tui.cli.launch import home_of
from tui.cli.load import is_loaded, load_model
from tui.cli.output import print_progress
from tui.cli.remote_api import RemoteApi
from tui.cli.typed_lines import Keyboard, Pipe
from tui.cli.watch import Watch, watching


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
    conversation = Conversation(args.model, options, said, is_unkept=args.keep_nothing)
    if not is_person:
        await conversation.run(Pipe(), _answerer(args))
        return
    with Keyboard(None if args.keep_nothing else home_of(args).typed) as keyboard:
        print_progress(f"{Path(args.model).name}: /help lists the commands, Ctrl+D ends.")
        await conversation.run(keyboard, _answerer(args))


class _OwnNode:
    """Answers from this Mac's node; loads the model again if it was unloaded."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    async def answer(self, asked: ChatRequest, on_text: Callable[[str], None]) -> str:
        async with watching(home_of(self._args)) as watch:
            await _load(watch, self._args)
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


async def _load(watch: Watch, args: argparse.Namespace) -> None:
    if not await is_loaded(watch, args):
        await load_model(watch, args)


async def _continue(args: argparse.Namespace) -> None:
    if args.session or args.keep_nothing or asks_for_more(args):
        raise UsageError(
            "A continued answer keeps its settings.", "Use --continue without --session and answer options."
        )
    async with watching(home_of(args)) as watch:
        found = [one for one in await watch.client.unfinished() if one.request_id.startswith(args.go_on)]
        if not found:
            which = f" with an id that starts with {args.go_on!r}" if args.go_on else ""
            raise UsageError(
                f"There is no unfinished answer{which}.", "`macluster status --json` lists unfinished answers."
            )
        await _load(watch, args)
        await answer(watch, _of_model(found, watch), as_json=args.json, hops=False)


def _of_model(found: Sequence[UnfinishedAnswer], watch: Watch) -> UnfinishedAnswer:
    """The newest answer of the loaded model, else the newest: the node then names the model to load."""
    loaded = watch.now.plan
    return next((one for one in found if loaded and one.model == loaded.model), found[0])
