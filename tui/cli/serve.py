"""`macluster serve`: this Mac's node for other programs, and the keys that they need."""

from __future__ import annotations

import argparse
import time

import msgspec

from core.node.options import add_api_options
from core.trust.api_keys import ApiKeys
from core.trust.files import private_folder
from tui.cli.launch import home_of


def add_options(command: argparse.ArgumentParser) -> None:
    """The options of `macluster serve`."""
    add_api_options(command, "--host", "--port")
    keys = command.add_mutually_exclusive_group()
    keys.add_argument("--new-key", metavar="NAME", help="make a key, and show it once")
    keys.add_argument("--revoke-key", metavar="NAME", help="whoever has that key is refused from now on")
    keys.add_argument("--keys", action="store_true", help="the names of the keys")
    command.add_argument("--json", action="store_true", help="print one JSON value")
    command.set_defaults(run=keys_of)


def is_about_keys(args: argparse.Namespace) -> bool:
    """Else it is to serve."""
    return bool(args.keys or args.new_key is not None or args.revoke_key is not None)


async def keys_of(args: argparse.Namespace) -> int:
    """Make, list and revoke keys; a node that runs follows at once."""
    home = home_of(args)
    private_folder(home.root)
    keys = ApiKeys(home.api_keys)
    if args.new_key is not None:
        made = keys.add(args.new_key, time.time())
        print(msgspec.json.encode({"name": args.new_key, "key": made}).decode() if args.json else made)
    elif args.revoke_key is not None:
        keys.revoke(args.revoke_key)
        print("{}" if args.json else f"{args.revoke_key} is revoked.")
    else:
        names = [key.name for key in keys.all()]
        print(msgspec.json.encode(names).decode() if args.json else "\n".join(names) or "There is no key yet.")
    return 0
