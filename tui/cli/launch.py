"""The screen: `macluster` without a command. It imports what the first frame needs and nothing else."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core.errors import UsageError
from core.settings import Home, default_home
from core.trust.files import private_folder
from tui.client import NodeClient, is_listening

if TYPE_CHECKING:
    from tui.control.preferences import Preferences


def parser() -> argparse.ArgumentParser:
    """The options that stand before any command."""
    usage = "macluster [-h] [--home HOME] [--plain] [--slow-link] [COMMAND ...]"
    top = argparse.ArgumentParser(prog="macluster", usage=usage, add_help=False, allow_abbrev=False)
    top.add_argument("--home", type=Path, default=default_home().root, help="state folder (default %(default)s)")
    add_appearance_options(top, default=False)
    top.set_defaults(run=open_tui, command=None)
    return top


def add_appearance_options(command: argparse.ArgumentParser, *, default: object) -> None:
    """How the screen is drawn."""
    plain = "the screen in ASCII, without animation: for screen readers and old terminals"
    command.add_argument("--plain", action="store_true", default=default, help=plain)
    slow = "draw five times a second, without animation"
    command.add_argument("--slow-link", action="store_true", default=default, help=slow)


async def open_tui(args: argparse.Namespace) -> int:
    """The terminal UI over this Mac's node; starts one for as long as the UI lives if none runs."""
    gc.disable()  # until the first frame: `tune_gc`
    from tui.app import MaclusterApp

    _check_terminal()
    home = home_of(args)
    preferences = preferences_of(args)
    node = None if await is_listening(home) else _start_node(home, *node_options(preferences))
    try:
        async with NodeClient(home) as client:
            app = MaclusterApp(client, folder=home.root, preferences=preferences, ends_node=node is not None)
            await app.run_async()
    finally:
        if node and node.stdin:
            node.stdin.close()
            await asyncio.to_thread(node.wait)
    return app.return_code or 0


def home_of(args: argparse.Namespace) -> Home:
    """The folder that the command is about."""
    return Home(args.home.expanduser().absolute())


def _check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The terminal UI needs a terminal.", "Use `macluster status`, `load` and `run` instead.")


def preferences_of(args: argparse.Namespace) -> Preferences:
    """What the person's file says, and what this command says besides."""
    from tui.control.preferences import config_file, memory_in, read

    found = read(config_file(), memory_in(home_of(args).root))
    slow_link = found.slow_link or args.slow_link
    return msgspec.structs.replace(found, plain=found.plain or args.plain, slow_link=slow_link)


def node_options(preferences: Preferences) -> list[str]:
    """What the person's file asks of a node that is started here."""
    said = {
        "--no-spare-worker": not preferences.spare_worker,
        "--no-wired-memory": not preferences.wired_memory,
        "--no-relay": not preferences.relay,
        "--serve": preferences.serve,
    }
    awake = [] if preferences.awake == "loaded" else ["--awake", preferences.awake]
    return [option for option, is_wanted in said.items() if is_wanted] + awake


def _start_node(home: Home, *options: str) -> subprocess.Popen[bytes]:
    """A node that ends when this process does: it watches the pipe to its standard input. What it complains of is kept,
    and what the last one that did complained of.
    """
    private_folder(home.root)
    with suppress(FileNotFoundError):
        if home.complaints.stat().st_size:
            home.complaints.replace(home.complaints.with_suffix(".stderr.1"))
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(home.complaints, flags, 0o600), "wb") as complaints:
        return subprocess.Popen(
            [sys.executable, "-m", "core.node", "--home", str(home.root), "--until-eof", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
