"""`macluster serve`: runs this Mac's node with the API for other programs, and manages API keys."""

from __future__ import annotations

import argparse
import time

from core.events import Snapshot
from core.node.options import add_api_options
from core.text import clean_text
from core.trust.api_keys import ApiKeys
from core.trust.private_files import private_folder
from tui.cli.launch import home_of
from tui.cli.output import print_facts, print_progress, prints_facts
from tui.cli.watch import watching
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
    prints_facts(command, keys_or_paste)


def is_to_serve(args: argparse.Namespace) -> bool:
    return not args.keys and args.new_key is None and args.revoke_key is None and args.snippets is None


async def keys_or_paste(args: argparse.Namespace) -> None:
    if args.snippets:
        await _paste(args)
        return
    home = home_of(args)
    private_folder(home.root)
    keys = ApiKeys(home.api_keys)
    if args.new_key is not None:
        made = keys.add(args.new_key, time.time())
        print_facts(args, {"name": args.new_key, "key": made}, [made])
    elif args.revoke_key is not None:
        keys.revoke(args.revoke_key)
        print_facts(args, {}, [f"Revoked {args.revoke_key}."])
    else:
        names = [key.name for key in keys.all()]
        print_facts(args, names, names or ["There are no keys yet."])


async def _paste(args: argparse.Namespace) -> None:
    now, home = Snapshot(), home_of(args)
    if await is_listening(home):
        async with watching(home) as watch:
            now = watch.now
    snippet, text = SNIPPETS[args.snippets], text_of(args.snippets, now)
    if not args.json:
        print_progress(f"# {snippet.where}")
    print_facts(args, {"client": args.snippets, "where": snippet.where, "text": text}, [clean_text(text)])
