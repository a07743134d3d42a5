"""`macluster trust`: shows how far each Mac is trusted and why, and changes it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from core.errors import UsageError
from core.events import TrustChanged
from core.requests.trust import ForkChoice, RecoveryPhrase, RecoveryWords, Rename, Target, TrustedMac, TrustView
from core.text import clean_text
from core.trust.name_matching import pick
from tui.cli.asking import agreed, can_ask
from tui.cli.launch import home_of
from tui.cli.output import print_facts, print_progress, prints_facts, table
from tui.cli.status import trust_line
from tui.client import NodeClient
from tui.state.format import age, fingerprint
from tui.state.trust_actions import TrustAction, why_not

KEEP_THEM: Final = "Write down these 24 words and keep them elsewhere. They are shown once and replace older ones."
MIN_HASH: Final = 8

_T = TypeVar("_T")


def add_options(trust: argparse.ArgumentParser) -> None:
    sub = trust.add_subparsers(dest="action", metavar="ACTION", required=True)
    prints_facts(sub.add_parser("list", help="list every Mac with its level, its role and what it sees"), show_all)
    for name, text, run in (
        ("show", "show one Mac in detail", show_one),
        ("revoke", "revoke a Mac for good; every member closes its links", revoke),
        ("promote", "make a Mac an admin", partial(_turn, NodeClient.promote)),
        ("demote", "make an admin an ordinary member", partial(_turn, NodeClient.demote)),
        ("rename", "give a Mac another name", rename),
    ):
        command = sub.add_parser(name, help=text)
        command.add_argument("mac", metavar="MAC", help="its name, or the start of its id")
        if name == "rename":
            command.add_argument("name", metavar="NAME")
        if name == "revoke":
            can_ask(command)
        prints_facts(command, run)
    key = sub.add_parser("key", help="show where this Mac's key is stored, or move it")
    key.add_argument("place", choices=("file", "keychain"), nargs="?", help="move it there (default: show where it is)")
    prints_facts(key, keep_key)
    turn = sub.add_parser("rotate", help="give this Mac a new key")
    recovery = sub.add_parser("recover", help="make this Mac an admin with the 24 words")
    recovery.add_argument("--new", action="store_true", help="create new words instead; they replace older ones")
    recovery.add_argument("--lost", metavar="MAC", action="append", default=[], help="also revoke this lost Mac")
    decide = sub.add_parser("resolve", help="choose one history of the roster after a fork")
    kept = "the history to keep (default: show them)"
    decide.add_argument("keep", metavar="ours|theirs|HASH", nargs="?", default="", help=kept)
    for command, run in ((turn, rotate), (recovery, recover), (decide, resolve)):
        can_ask(command)
        prints_facts(command, run)


async def show_all(args: argparse.Namespace) -> int:
    return await _print_after(args, NodeClient.trust)


async def show_one(args: argparse.Namespace) -> None:
    view = await _asked(args, NodeClient.trust)
    wanted = pick(args.mac, [(m.device_id, m.name) for m in view.macs])
    mac = next(m for m in view.macs if m.device_id == wanted)
    print_facts(args, mac, mac_lines(mac))


async def keep_key(args: argparse.Namespace) -> None:
    """Move this Mac's key, or show where it is; needs no node."""
    from core.node.base.last_run import KEYCHAIN_ASKS
    from core.trust.key_storage import key_place, move_key

    def on_wait(is_waiting: bool) -> None:
        if is_waiting:
            print_progress(KEYCHAIN_ASKS.what)

    folder = home_of(args).identity
    moved = move_key(folder, args.place, on_wait) if args.place else False
    place = key_place(folder)
    names = {"keychain": "this Mac's keychain", "file": f"a file that only this account can read ({folder}/passphrase)"}
    reported = f"The passphrase of this Mac's key is stored in {names[place]}."
    print_facts(args, {"key": place, "moved": moved}, [reported])


async def revoke(args: argparse.Namespace) -> int:
    await _allowed(args, "revoke", args.mac)
    if not await agreed(args, f"This revokes {args.mac} for good; its key can't return."):
        return 1
    return await _print_after(args, lambda client: client.revoke(Target(mac=args.mac)))


async def _turn(turn: Callable[[NodeClient, Target], Awaitable[TrustView]], args: argparse.Namespace) -> int:
    return await _print_after(args, lambda client: turn(client, Target(mac=args.mac)))


async def rename(args: argparse.Namespace) -> int:
    return await _print_after(args, lambda client: client.rename(Rename(mac=args.mac, name=args.name)))


async def rotate(args: argparse.Namespace) -> int:
    await _allowed(args, "rotate")
    if not await agreed(args, "This gives this Mac a new key and revokes the old one."):
        return 1
    return await _print_after(args, NodeClient.rotate)


async def recover(args: argparse.Namespace) -> int:
    if args.new and args.lost:
        what = "--lost revokes a Mac with the old words, --new makes new ones."
        raise UsageError(what, "Run them one after the other.")
    await _allowed(args, "words" if args.new else "recover")
    what = "This replaces the current recovery words." if args.new else "This uses up the 24 words."
    if not await agreed(args, what):
        return 1
    if args.new:
        words = await _asked(args, NodeClient.new_recovery)
    else:
        phrase = RecoveryPhrase(words=await asyncio.to_thread(_typed_words), lost=tuple(args.lost))
        words = await _asked(args, lambda client: client.recover(phrase))
    print_facts(args, words, word_lines(words))
    return 0


async def resolve(args: argparse.Namespace) -> int:
    view = await _asked(args, NodeClient.trust)
    if view.fork is None:
        raise UsageError("The roster has not forked: there is nothing to resolve.")
    if not args.keep:
        reported = {"fork": view.fork, "epoch": view.fork_epoch, "notes": view.fork_notes}
        print_facts(args, reported, fork_lines(view))
        return 1
    keep = _side(args.keep, view.fork)
    if not await agreed(args, f"This Mac will keep {keep[:8]} and refuse every other history."):
        return 1
    return await _print_after(args, lambda client: client.resolve_fork(ForkChoice(keep=keep)))


def trust_lines(view: TrustView) -> list[str]:
    rows = [
        (m.name + (" (this Mac)" if m.is_self else ""), m.device_id[:8], m.level, m.role, m.sees or "–")
        for m in view.macs
    ]
    lines = table(("Mac", "id", "level", "role", "sees"), rows, left=(0, 1, 2, 3, 4))
    reasons = [(m, m.reason or m.update) for m in view.macs]
    lines += [clean_text(f"{m.name} ({m.device_id[:8]}): {reason}") for m, reason in reasons if reason]
    lines.append(trust_line(TrustChanged(level=view.level, weakest=view.weakest), None))
    if view.epoch:
        since, role = f"received {age(view.roster_age_s)} ago", "an admin" if view.is_admin else "not an admin"
        lines.append(f"Roster: epoch {view.epoch}, {view.roster_hash[:8]}, {since}; this Mac is {role}.")
        lines.append("Recovery words: " + ("exist." if view.has_recovery else "none yet."))
    lines.append(f"Key: stored in {view.key_storage}.")
    return lines + (fork_lines(view) if view.fork else [])


def mac_lines(mac: TrustedMac) -> list[str]:
    rows = [
        ("Mac", mac.name + (" (this Mac)" if mac.is_self else "")),
        ("id", mac.device_id),
        ("level", mac.level),
        ("why", mac.reason),
        ("version", mac.update),
        ("role", mac.role),
        ("since epoch", str(mac.added_epoch or "")),
        ("sees", mac.sees),
        ("key (SHA-256)", fingerprint(mac.fingerprint)),
    ]
    return [clean_text(f"{name:<14} {text}") for name, text in rows if text]


def word_lines(words: RecoveryWords) -> list[str]:
    numbered = [f"{n:>2} {word:<8}" for n, word in enumerate(words.words.split(), 1)]
    return [KEEP_THEM, *(" ".join(numbered[at : at + 6]).rstrip() for at in range(0, len(numbered), 6))]


def fork_lines(view: TrustView) -> list[str]:
    assert view.fork
    count, names = len(view.fork), ("ours", "theirs") if len(view.fork) == 2 else ("ours", *view.fork[1:])
    how = "ours` or `theirs`" if count == 2 else "ours` or a hash"
    what = f"The roster has {count} histories from epoch {view.fork_epoch} on."
    lines = [f"{what} No Mac is trusted until you choose one."]
    for name, side, note in zip(names, view.fork, view.fork_notes, strict=True):
        lines += [f"  {name:<6} {side}" if name != side else f"  {side}", clean_text(f"         {note}")]
    advice = f"Find out who made each change, then choose the same on every Mac: `macluster trust resolve {how}."
    return [*lines, advice]


def _side(typed: str, fork: tuple[str, ...]) -> str:
    named = {"ours": fork[0]} | ({"theirs": fork[1]} if len(fork) == 2 else {})
    sides = [side for side in fork if len(typed) >= MIN_HASH and side.startswith(typed.lower())]
    if typed not in named and len(sides) != 1:
        raise UsageError(f"{clean_text(typed)!r} is not one of the histories.", "`macluster trust resolve` shows them.")
    return named.get(typed) or sides[0]


def _typed_words() -> str:
    """Read the words from a terminal or a pipe, never from the command line, which other users can read."""
    if sys.stdin.isatty():
        print("The 24 words: ", end="", file=sys.stderr, flush=True)
    words: Sequence[str] = ()
    while len(words) < 24 and (line := sys.stdin.readline()):
        words = [*words, *line.split()]
    return " ".join(words)


async def _allowed(args: argparse.Namespace, action: TrustAction, mac: str = "") -> None:
    """Raise UsageError before a confirmation that the node would then refuse."""
    view = await _asked(args, NodeClient.trust)
    in_roster = [(m.device_id, m.name) for m in view.macs if m.role in ("admin", "member")]
    wanted = pick(mac, in_roster) if mac else ""
    if why := why_not(view, next((m for m in view.macs if m.device_id == wanted), None), action):
        raise UsageError(why)


async def _asked(args: argparse.Namespace, ask: Callable[[NodeClient], Awaitable[_T]]) -> _T:
    async with NodeClient(home_of(args)) as client:
        return await ask(client)


async def _print_after(args: argparse.Namespace, ask: Callable[[NodeClient], Awaitable[TrustView]]) -> int:
    view = await _asked(args, ask)
    print_facts(args, view, trust_lines(view))
    return 0
