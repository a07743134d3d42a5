"""`macluster` without a command: opens the screen. Imports only what the first frame needs."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core.errors import UsageError
from core.settings import Home, default_home
from tui.client import NodeClient, is_listening
from tui.own_node import OwnNode

if TYPE_CHECKING:
    from tui.control.preferences import Preferences


def parser() -> argparse.ArgumentParser:
    """The options before any command."""
    usage = "macluster [-h] [--home HOME] [--plain] [--slow-link] [COMMAND ...]"
    top = argparse.ArgumentParser(prog="macluster", usage=usage, add_help=False, allow_abbrev=False)
    top.add_argument("--home", type=Path, default=default_home().root, help="state folder (default ~/.macluster)")
    add_appearance_options(top, default=False)
    top.set_defaults(run=open_tui, command=None)
    return top


def add_appearance_options(command: argparse.ArgumentParser, *, default: object) -> None:
    plain = "draw the screen in ASCII without animation, for screen readers and old terminals"
    command.add_argument("--plain", action="store_true", default=default, help=plain)
    slow = "draw five times a second, without animation"
    command.add_argument("--slow-link", action="store_true", default=default, help=slow)


async def open_tui(args: argparse.Namespace) -> int:
    """Open the terminal UI; start a node for its lifetime if none runs."""
    gc.disable()  # until the first frame: `MaclusterApp.on_seen`
    from tui.app import MaclusterApp

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The terminal UI needs a terminal.", "Use `macluster status`, `load` and `run` instead.")
    home = home_of(args)
    preferences = preferences_of(args)
    node = OwnNode(home, node_options(preferences))
    if not await is_listening(home):
        node.start()
    try:
        async with NodeClient(home) as client:
            app = MaclusterApp(client, folder=home.root, preferences=preferences, node=node)
            await app.run_async()
    finally:
        await node.close()
    return app.return_code or 0


def home_of(args: argparse.Namespace) -> Home:
    return Home(args.home.expanduser().absolute())


def preferences_of(args: argparse.Namespace) -> Preferences:
    from tui.control.preferences import config_file, read

    found = read(config_file(), home_of(args).theme)
    slow_link = found.slow_link or args.slow_link
    return msgspec.structs.replace(found, plain=found.plain or args.plain, slow_link=slow_link)


def node_options(preferences: Preferences) -> list[str]:
    """Options from config.toml for a node that is started here."""
    said = {
        "--no-spare-worker": not preferences.spare_worker,
        "--no-wired-memory": not preferences.wired_memory,
        "--no-relay": not preferences.relay,
        "--serve": preferences.serve,
        "--allow-load": preferences.allow_load,
    }
    awake = [] if preferences.awake == "loaded" else ["--awake", preferences.awake]
    return [option for option, is_wanted in said.items() if is_wanted] + awake
