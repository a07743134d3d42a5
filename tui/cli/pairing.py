"""Pairing on the command line: `macluster pair`. It needs no terminal; the digits are read from standard input."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec

from core.address import parse_place
from core.errors import MaclusterError, PairingError, UsageError
from core.events import PairingChanged, Snapshot
from core.pairing_code import format_code, parse_code
from core.requests.trust import Digits, PairingOffer, PairWith
from core.settings import Home
from core.text import clean_text
from core.trust.name_matching import pick
from tui.cli.launch import home_of
from tui.cli.watch import Watch, watching
from tui.state.format import fingerprint_short

PAIRING_S: Final = 300.0

Report = Callable[[PairingChanged, Snapshot], None]


async def pair(args: argparse.Namespace) -> None:
    await pair_with(home_of(args), args.mac, to_json if args.json else say)


async def pair_with(home: Home, target: str, report: Report) -> None:
    """Pair with `target`: a found Mac's name or id, HOST:PORT, or "" for any. Raises PairingError, UsageError."""
    async with watching(home) as watch:
        mark = len(watch.seen)
        await _begin(watch, target)
        try:
            await _Conversation(watch, mark, report).hold()
        except asyncio.CancelledError:
            with suppress(MaclusterError):
                await watch.client.stop_pairing()
            raise


def _begin(watch: Watch, target: str) -> Coroutine[Any, Any, object]:
    if not target:
        return watch.client.open_pairing()
    try:
        host, port = parse_place(target)
    except UsageError:
        others = [(p.device_id, p.name) for p in watch.now.peers if not p.is_self]
        return watch.client.pair_with(PairWith(device_id=pick(target, others)))
    return watch.client.offer_pairing(PairingOffer(host=host, port=port))


class _Conversation:
    """The exchange between the node's pairing steps and the user's digits."""

    def __init__(self, watch: Watch, mark: int, report: Report) -> None:
        self._watch, self._report = watch, report
        self._reported = mark
        self._typing: asyncio.Future[str | None] | None = None

    async def hold(self) -> None:
        """Run until both are paired; raises PairingError and UsageError."""
        while True:
            await self._watch.until(self._has_news, PAIRING_S, "Pairing")
            if self._typing and self._typing.done():
                self._typing = await self._hand_in(self._typing.result())
            steps, self._reported = self._steps(), len(self._watch.seen)
            for step in steps:
                self._report(step, self._watch.now)
                if step.state == "paired":
                    return
                if step.state in ("failed", "stopped"):
                    problem = step.problem or PairingError("The pairing was stopped on this Mac.").problem
                    raise PairingError(problem.what, problem.fix)
                if step.state == "compare":
                    self._typing = _line()

    def _has_news(self, _: Watch) -> bool:
        return bool(self._steps()) or (self._typing is not None and self._typing.done())

    def _steps(self) -> list[PairingChanged]:
        return [e for e in self._watch.seen[self._reported :] if isinstance(e, PairingChanged)]

    async def _hand_in(self, line: str | None) -> asyncio.Future[str | None] | None:
        if line is None:
            await self._watch.client.stop_pairing()
            what = "Standard input ended before the six digits."
            raise UsageError(what, "Write the six digits of the other Mac on a line of their own.")
        code = parse_code(line)
        if code is None:
            print("Six digits, please: ", end="", file=sys.stderr, flush=True)
            return _line()
        with suppress(UsageError):  # the pairing just ended: the next event says how
            await self._watch.client.type_digits(Digits(digits=code))
        return None


def _line() -> asyncio.Future[str | None]:
    """Read a line of standard input, None at its end, in a thread that stopping may abandon."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def put(text: str | None) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        got = b""
        while not got.endswith(b"\n") and (byte := os.read(0, 1)):
            got += byte
        with suppress(RuntimeError):  # the loop is closed: the line is no longer needed
            loop.call_soon_threadsafe(put, got.decode(errors="replace").strip() if got else None)

    threading.Thread(target=read, daemon=True).start()
    return line


def say(step: PairingChanged, now: Snapshot) -> None:
    print(clean_text(_sentence(step, now)), end="" if step.state == "compare" else "\n", flush=True)


def _sentence(step: PairingChanged, now: Snapshot) -> str:
    me = next((p.name for p in now.peers if p.is_self), "this Mac")
    other = step.peer or "the other Mac"
    match step.state:
        case "waiting" if step.address:
            left = max(0, round(step.closes_at - time.time()))
            return (
                f"Waiting for {other} for {left} s. There: `macluster pair {me}`, or p in the dashboard.\n"
                f"If that Mac doesn't find this one: `macluster pair {step.address}` there."
            )
        case "waiting":
            return f"Looking for {other} …"
        case "compare":
            key = f"key SHA-256 {fingerprint_short(step.fingerprint)}"
            return (
                f"{other} ({step.device_id[:8]}) at {step.address}, {key}\n\n"
                f"    {me} shows   {format_code(step.digits)}\n\n"
                f"Type the six digits that {other} shows: "
            )
        case "paired":
            return f"\nPaired with {other}."
        case _:
            return ""


def to_json(step: PairingChanged, now: Snapshot) -> None:
    print(msgspec.json.encode(step).decode(), file=sys.stdout, flush=True)
