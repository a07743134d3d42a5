"""`macluster run`: how an answer can be asked for, and what is printed while it comes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf, isfinite
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from core.errors import MaclusterError, UsageError, error_from
from core.events import Recovery, RequestDone, TokenEvent
from core.requests import AnswerId, ChatRequest, Message, SessionName, UnfinishedAnswer
from core.sampling_options import option_fields
from core.text import clean_text
from tui.cli.answer import answer_facts, done_line, hop_lines, recovery_line
from tui.cli.launch import home_of
from tui.cli.load import is_loaded, load_model
from tui.cli.output import Facts, to_json
from tui.cli.watch import ATTACH_S, Watch
from tui.client import check

PLAIN: Final = ChatRequest(messages=(), max_tokens=200)  # what is asked without an option
ANSWER_S: Final = 3600.0
CANCEL_S: Final = 2.0

_Struct = TypeVar("_Struct", bound=Struct)


def add_options(command: argparse.ArgumentParser) -> None:
    """How tokens are chosen, and where the answer ends."""
    command.add_argument("--ignore-chat-template", action="store_true", help="send the prompt as it is")
    _add(command.add_argument_group("where the answer ends"), PLAIN)
    _add(command.add_argument_group("how each token is chosen"), PLAIN.sampling)


def request_of(prompt: str, args: argparse.Namespace) -> ChatRequest:
    """Raises UsageError for what cannot be asked."""
    if args.logprobs is not None and not args.json:
        raise UsageError("Logprobs are shown in JSON only.", "Add --json.")
    request = replace(
        _asked(PLAIN, args),
        messages=(Message(role="user", content=prompt),),
        sampling=_asked(PLAIN.sampling, args),
        raw=args.ignore_chat_template,
    )
    check(request)
    return request


def asks_for_more(args: argparse.Namespace) -> bool:
    """Whether an option of `add_options` was given, or has another value than without a word."""
    plain = argparse.ArgumentParser()
    add_options(plain)
    return any(getattr(args, name) != value for name, value in vars(plain.parse_args([])).items())


async def answer(
    watch: Watch,
    asked: ChatRequest | UnfinishedAnswer,
    *,
    as_json: bool,
    hops: bool = True,
    more: Facts | None = None,
) -> None:
    """Ask, or go on, and print the answer as it comes and where its time went, or all as JSON with `more` facts. Who
    interrupts it cancels it, and gets what there is. Raises what the node refuses, and what ended the answer.
    """
    begun = asked.text if isinstance(asked, UnfinishedAnswer) else ""
    printed = _Answer(len(watch.seen), begun, as_it_comes=not as_json)
    asking = asyncio.create_task(
        watch.client.chat(asked)
        if isinstance(asked, ChatRequest)
        else watch.client.go_on(AnswerId(request_id=asked.request_id))
    )
    try:
        printed.begin((await asyncio.shield(asking)).request_id)
        async with _attended(watch, printed.request_id):
            await _until_done(watch, printed)
    except asyncio.CancelledError:
        with contextlib.suppress(MaclusterError, TimeoutError):  # a node that is gone has stopped, too
            printed.begin((await asyncio.wait_for(asking, CANCEL_S)).request_id)
            await watch.client.cancel(printed.request_id)
            await watch.until(printed.is_done, CANCEL_S, "Cancelling")
            printed.print_end(watch, more or {}, hops=False)
        raise
    printed.print_end(watch, more or {}, hops=hops)
    if printed.done and printed.done.problem:
        raise error_from(printed.done.problem)


@asynccontextmanager
async def _attended(watch: Watch, request_id: str) -> AsyncIterator[None]:
    """However this process ends inside, the answer is not written for nobody."""
    attending = asyncio.create_task(watch.client.attend(request_id))
    try:
        yield
    finally:
        attending.cancel()
        await asyncio.gather(attending, return_exceptions=True)


async def _until_done(watch: Watch, printed: _Answer) -> None:
    """An answer has an hour, in which the time does not count that it waits for a Mac."""

    def waits(watch: Watch) -> bool:
        return watch.now.recovery is not None and watch.now.recovery.state == "wait"

    while not printed.is_done(watch):
        await watch.until(lambda w: printed.is_done(w) or waits(w), ANSWER_S, "The answer")
        await watch.until(lambda w: printed.is_done(w) or not waits(w), inf, "Waiting")


class _Answer:
    """What came of `request_id` since event `mark`; the text `begun` was there before."""

    def __init__(self, mark: int, begun: str, *, as_it_comes: bool) -> None:
        self.request_id = ""
        self.done: RequestDone | None = None
        self._mark, self._begun, self._as_it_comes = mark, begun, as_it_comes
        self._tokens: list[TokenEvent] = []
        self._recoveries: list[Recovery] = []
        self._at_margin = True

    def begin(self, request_id: str) -> None:
        """The node has taken it."""
        if not self.request_id:
            self.request_id = request_id
            self._show(self._begun)

    def is_done(self, watch: Watch) -> bool:
        """Whether its end is there; prints what is new."""
        fresh, self._mark = watch.seen[self._mark :], len(watch.seen)
        for event in fresh:
            match event:
                case TokenEvent(request_id=self.request_id):
                    self._tokens.append(event)
                    self._show(event.text)
                case RequestDone(request_id=self.request_id):
                    self.done = event
                    self._show(event.text)
                case Recovery(requests=requests) if not requests or self.request_id in requests:
                    self._report(event)
                case _:
                    pass
        return self.done is not None

    def _show(self, text: str) -> None:
        if self._as_it_comes and text:
            print(clean_text(text), end="", flush=True)
            self._at_margin = text.endswith("\n")

    def _report(self, event: Recovery) -> None:
        """One line each time that there is something else to say; on a terminal it leaves the answer's line."""
        if self._recoveries and self._recoveries[-1].text == event.text:
            return
        self._recoveries.append(event)
        if not self._as_it_comes:
            return
        if not self._at_margin and sys.stdout.isatty() and sys.stderr.isatty():
            print(file=sys.stderr)
            self._at_margin = True
        is_dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        line = recovery_line(event)
        print(f"\x1b[2m{line}\x1b[0m" if is_dim else line, file=sys.stderr, flush=True)

    def print_end(self, watch: Watch, more: Facts, *, hops: bool) -> None:
        """What is told when nothing more comes."""
        assert self.done is not None
        if not self._as_it_comes:
            facts = answer_facts(watch.now, self._tokens, self.done, before=self._begun, recoveries=self._recoveries)
            print(to_json(facts | more))
            return
        print("\n")
        if hops and watch.now.hops:
            print("\n".join(hop_lines(watch.now.hops, {p.device_id: p.name for p in watch.now.peers})))
        if hops:
            print(done_line(self.done))


def _add(group: argparse._ArgumentGroup, plain: Struct) -> None:
    """An option for each field that people can set here."""
    for name, kind, option in option_fields(type(plain)):
        if option.help:
            flag, usual, (read, metavar) = f"--{name.replace('_', '-')}", getattr(plain, name), _TYPED[kind]
            often: dict[str, Any] = {"action": "append", "default": []} if kind in (dict, tuple) else {"default": usual}
            group.add_argument(flag, type=read, metavar=metavar, help=option.help, **often)


def _asked(plain: _Struct, args: argparse.Namespace) -> _Struct:
    """`plain` with what its options say."""
    changes = {}
    for name, kind, option in option_fields(type(plain)):
        if option.help:
            value = getattr(args, name)
            changes[name] = kind(value) if isinstance(value, list) else value
    return replace(plain, **changes)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    if not token.isascii() or not token.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a token id and a number, such as 42=-5")
    return int(token), _number(value)


# how a value of each kind is typed
_TYPED: Final[dict[type, tuple[Callable[[str], Any], str]]] = {
    float: (_number, "X"),
    int: (int, "N"),
    tuple: (str, "TEXT"),
    dict: (_bias, "ID=VALUE"),
}


async def run(args: argparse.Namespace) -> int:
    """One answer, or the rest of one; loads the model first if it is not loaded."""
    if args.go_on is not None:
        return await _continue(args)
    prompt = await asyncio.to_thread(sys.stdin.read) if args.prompt == "-" else args.prompt
    request = request_of(prompt, args)
    async with Watch(home_of(args)) as watch:
        await watch.attached(ATTACH_S)
        if args.session:
            said = (await watch.client.session(SessionName(name=args.session))).messages
            request = msgspec.structs.replace(request, messages=(*said, *request.messages))
        if not await is_loaded(watch, args):
            await load_model(watch, args)
        await answer(watch, request, as_json=args.json, hops=False)
    return 0


async def _continue(args: argparse.Namespace) -> int:
    """What is written of an answer that was cut off, then the rest of it."""
    if args.session or asks_for_more(args):
        raise UsageError("A continued answer keeps its settings.", "Give --continue without a session or options.")
    async with Watch(home_of(args)) as watch:
        await watch.attached(ATTACH_S)
        found = [one for one in await watch.client.unfinished() if one.request_id.startswith(args.go_on)]
        if not found:
            which = f" with an id that begins with {args.go_on!r}" if args.go_on else ""
            raise UsageError(f"No answer{which} is unfinished.", "`macluster status --json` lists those that are.")
        if not await is_loaded(watch, args):
            await load_model(watch, args)
        await answer(watch, _of_model(found, watch), as_json=args.json, hops=False)
    return 0


def _of_model(found: Sequence[UnfinishedAnswer], watch: Watch) -> UnfinishedAnswer:
    """The newest that goes on with what is loaded, else one for which the node says what to load."""
    loaded = watch.now.plan
    return next((one for one in found if loaded and one.model == loaded.model), found[0])
