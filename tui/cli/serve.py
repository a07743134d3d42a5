"""`macluster serve`: runs this Mac's node with the API for other programs, and manages API keys."""

from __future__ import annotations

import argparse
import time

import msgspec

from core.events import Snapshot
from core.node.options import add_api_options
from core.text import clean_text
from core.trust.api_keys import ApiKeys
from core.trust.private_files import private_folder
from tui.cli.launch import home_of
from tui.cli.output import print_progress, to_json
from tui.cli.watch import ATTACH_S, Watch
from tui.client import is_listening
from tui.state.snippets import SNIPPETS, text_of


def add_options(command: argparse.ArgumentParser) -> None:
    add_api_options(command, "--host", "--port")
    keys = command.add_mutually_exclusive_group()
    keys.add_argument("--new-key", metavar="NAME", help="create a key and show it once")
    keys.add_argument("--revoke-key", metavar="NAME", help="revoke a key: programs that use it are refused")
    keys.add_argument("--keys", action="store_true", help="list the names of the keys")
    paste = "print the lines to paste for this program: %(choices)s"
    keys.add_argument("--snippets", choices=SNIPPETS, metavar="CLIENT", help=paste)
    command.add_argument("--json", action="store_true", help="print one JSON value")
    command.set_defaults(run=keys_or_paste)


def is_to_serve(args: argparse.Namespace) -> bool:
    return not args.keys and args.new_key is None and args.revoke_key is None and args.snippets is None


async def keys_or_paste(args: argparse.Namespace) -> int:
    return await _paste(args) if args.snippets else _keys(args)


async def _paste(args: argparse.Namespace) -> int:
    now, home = Snapshot(), home_of(args)
    if await is_listening(home):
        async with Watch(home) as watch:
            await watch.attached(ATTACH_S)
            now = watch.now
    snippet, text = SNIPPETS[args.snippets], text_of(args.snippets, now)
    if args.json:
        print(to_json({"client": args.snippets, "where": snippet.where, "text": text}))
        return 0
    print_progress(f"# {snippet.where}")
    print(clean_text(text))
    return 0


def _keys(args: argparse.Namespace) -> int:
    home = home_of(args)
    private_folder(home.root)
    keys = ApiKeys(home.api_keys)
    if args.new_key is not None:
        made = keys.add(args.new_key, time.time())
        print(msgspec.json.encode({"name": args.new_key, "key": made}).decode() if args.json else made)
    elif args.revoke_key is not None:
        keys.revoke(args.revoke_key)
        print("{}" if args.json else f"Revoked {args.revoke_key}.")
    else:
        names = [key.name for key in keys.all()]
        print(msgspec.json.encode(names).decode() if args.json else "\n".join(names) or "There are no keys yet.")
    return 0
