"""`macluster session`: saved conversations, which continue on any split of their model."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from core.requests.conversations import SavedSession, SessionName
from core.text import clean_text
from tui.cli.launch import home_of
from tui.cli.output import print_facts, prints_facts, table
from tui.client import NodeClient
from tui.state.format import count, gigabytes, moment


def add_options(session: argparse.ArgumentParser) -> None:
    sub = session.add_subparsers(dest="action", metavar="ACTION", required=True)
    prints_facts(sub.add_parser("list", help="list the saved conversations"), show_all)
    for name, text, run in (
        ("save", "save the latest conversation; an existing one of that name is replaced", save),
        ("load", "load a conversation onto the Macs, on any split of its model, and print it", load),
        ("delete", "delete a conversation and its key", delete),
    ):
        command = sub.add_parser(name, help=text)
        command.add_argument("name", metavar="NAME")
        prints_facts(command, run)


async def show_all(args: argparse.Namespace) -> None:
    async with NodeClient(home_of(args)) as client:
        found = await client.sessions()
    print_facts(args, found, session_lines(found))


async def save(args: argparse.Namespace) -> None:
    async with NodeClient(home_of(args)) as client:
        kept = await _unless_stopped(client, client.save_session(SessionName(name=args.name)))
    print_facts(args, kept, [f"Saved {args.name}: {kept.tokens} tokens of {kept.model}."])


async def load(args: argparse.Namespace) -> None:
    async with NodeClient(home_of(args)) as client:
        kept = await _unless_stopped(client, client.load_session(SessionName(name=args.name)))
    how = f"Loaded {args.name}: {kept.tokens} tokens. Continue: `macluster run {kept.model} --session {args.name}`."
    said = [f"[{message.role}]\n{message.content}\n" for message in kept.messages]
    print_facts(args, kept, [clean_text("\n".join([*said, how]))])


async def _unless_stopped(client: NodeClient, call: Coroutine[Any, Any, SavedSession]) -> SavedSession:
    try:
        return await call
    except asyncio.CancelledError:
        await client.stop_session()
        raise


async def delete(args: argparse.Namespace) -> None:
    async with NodeClient(home_of(args)) as client:
        await client.delete_session(SessionName(name=args.name))
    print_facts(args, {"deleted": args.name}, [f"Deleted {args.name}."])


def session_lines(found: Sequence[SavedSession]) -> list[str]:
    if not found:
        return ["No conversation is saved on this Mac yet."]
    rows = [
        (each.name, each.model, count(each.tokens), gigabytes(each.size_bytes), moment(each.created_at))
        for each in found
        if each.problem is None
    ]
    lines = table(("session", "model", "tokens", "GB", "saved"), rows, left=(0, 1, 4)) if rows else []
    return lines + [clean_text(f"{each.name}: {each.problem.what}") for each in found if each.problem]
