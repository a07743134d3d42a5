"""`macluster uninstall`: removes what macluster created on this Mac, and lists what remains."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from core.errors import IdentityError, NodeError, UsageError
from core.models.files.layers_on_disk import size_text
from core.settings import Home, HomeFile, hub_cache
from core.text import clean_text
from tui.cli import service
from tui.cli.asking import agreed, can_ask
from tui.cli.launch import home_of
from tui.cli.output import print_facts, prints_facts
from tui.client import is_listening
from tui.control.crash import TRACE
from tui.control.preferences import config_file

# suffixes of files being rewritten, and of kept older versions
BESIDE = (".tmp", ".new", ".1")


def add_options(command: argparse.ArgumentParser) -> None:
    can_ask(command)
    prints_facts(command, uninstall)


async def uninstall(args: argparse.Namespace) -> int:
    """Remove the service and the state folder after a confirmation; raises NodeError while a node runs there."""
    home = home_of(args)
    made, leaves, is_service = made_in(home), left(home), service.current().is_installed
    if not is_service and await is_listening(home):
        raise NodeError("This Mac's node is running.", "Quit it and the screen that started it, then try again.")
    if (made or is_service) and not await agreed(args, warning(home, made)):
        return 1
    if is_service:
        service.remove(service.removal(home))
    for path in made:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    others = sorted(home.root.iterdir()) if home.root.is_dir() else []
    if home.root.is_dir() and not others:
        home.root.rmdir()
    if others:
        names = ", ".join(path.name for path in others[:5])
        leaves.insert(0, f"In {home.root}, files that macluster did not create: {names}.")
    lines = [f"Removed {home.root}." if made else "There was nothing to remove.", "What remains:"]
    print_facts(args, {"removed": [str(path) for path in made], "left": leaves}, [*lines, *(f"- {e}" for e in leaves)])
    return 0


def made_in(home: Home) -> list[Path]:
    """The files that macluster created in its state folder; raises UsageError for any other folder."""
    if not home.root.is_dir():
        return []
    if any(home.root.iterdir()) and not home.identity.exists() and not home.lock.exists():
        cure = "Name the state folder with --home. Nothing was removed."
        raise UsageError(f"{home.root} is not a macluster state folder.", cure)
    own = {file.name for file in vars(Home).values() if isinstance(file, HomeFile)}
    own |= {TRACE}
    return sorted(path for path in home.root.iterdir() if path.name in own or _stem(path.name) in own)


def warning(home: Home, made: list[Path]) -> str:
    models = sum(file.stat().st_size for file in home.models.rglob("*") if file.is_file() and not file.is_symlink())
    lost = "the key of this Mac (it must be paired again), its roster, its conversations"
    kept = f", and {size_text(models)} of models" if models and home.models in made else ""
    return f"This removes {home.root}: {lost}{kept}. It can't be undone."


def left(home: Home) -> list[str]:
    """Everything that remains, and how to remove it; call this before removing anything."""
    from core.trust.key_storage import key_names, key_place

    lines = []
    try:
        if key_place(home.identity) == "keychain":
            items = [f"`security delete-generic-password -s macluster -a {name}`" for name in key_names(home.identity)]
            lines.append(f"The key in the keychain: {', '.join(items)}.")
    except IdentityError:
        pass  # there is no key
    if hub_cache().is_dir():
        lines.append(f"Models in the Hugging Face cache, which other programs use too: {hub_cache()}.")
    if config_file().exists():
        lines.append(f"Your settings: {config_file()}.")
    lines.append("This Mac in the roster of the others: run `macluster trust revoke` there.")
    lines.append("The program: `uv tool uninstall macluster`, or `pipx uninstall macluster`.")
    return [clean_text(line) for line in lines]


def _stem(name: str) -> str:
    """The name of the file that a temporary or kept one belongs to."""
    for end in BESIDE:
        name = name.removesuffix(end)
    return name
