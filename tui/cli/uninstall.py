"""`macluster uninstall`: takes away what macluster made on this Mac, and says what it leaves."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

from core.errors import IdentityError, NodeError, UsageError
from core.settings import Home, hub_cache
from core.text import clean_text
from tui.cli import service
from tui.cli.asking import agreed, can_ask
from tui.cli.launch import home_of
from tui.cli.output import gigabytes, print_facts
from tui.client import is_listening
from tui.control.crash import TRACE
from tui.control.preferences import config_file, memory_in

# what is put beside a file while it is written anew, and what an older one is kept as
BESIDE = (".tmp", ".new", ".1")


def add_options(
    command: argparse.ArgumentParser, fact: Callable[[argparse.ArgumentParser, service.Command], None]
) -> None:
    """`fact` adds `--json`, and says what runs it."""
    can_ask(command)
    fact(command, uninstall)


async def uninstall(args: argparse.Namespace) -> int:
    """The service and the state folder, when that is agreed. Raises NodeError while somebody's node runs there."""
    home = home_of(args)
    made, leaves, is_service = made_in(home), left(home), service.current().is_installed
    if not is_service and await is_listening(home):
        raise NodeError("The node of this Mac runs.", "End it, and the screen that started it; then try again.")
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
        leaves.insert(0, f"In {home.root}, what macluster did not make: {names}.")
    lines = [f"{home.root} is removed." if made else "There was nothing to remove.", "What is left:"]
    print_facts(args, {"removed": [str(path) for path in made], "left": leaves}, [*lines, *(f"- {e}" for e in leaves)])
    return 0


def made_in(home: Home) -> list[Path]:
    """What macluster made in its state folder, by the names that it gives. Raises UsageError where it is none."""
    if not home.root.is_dir():
        return []
    if any(home.root.iterdir()) and not home.identity.exists() and not home.lock.exists():
        cure = "Name one with --home; nothing was removed."
        raise UsageError(f"{home.root} is not a state folder of macluster.", cure)
    own = {getattr(home, name).name for name, kind in vars(Home).items() if isinstance(kind, property)}
    own |= {memory_in(home.root).name, TRACE}
    return sorted(path for path in home.root.iterdir() if path.name in own or _stem(path.name) in own)


def warning(home: Home, made: list[Path]) -> str:
    """What goes with it, for who decides."""
    models = sum(file.stat().st_size for file in home.models.rglob("*") if file.is_file() and not file.is_symlink())
    lost = "the key of this Mac (it must be paired again), its roster, its conversations"
    kept = f", and {gigabytes(models)} of models" if models and home.models in made else ""
    return f"{home.root} is removed: {lost}{kept}. This cannot be undone."


def left(home: Home) -> list[str]:
    """What stays, and how each of it goes; to be asked before anything goes."""
    from core.trust.key_storage import key_place

    lines = []
    try:
        if key_place(home.identity) == "keychain":
            lines.append("The item in the keychain: `security delete-generic-password -s macluster`.")
    except IdentityError:
        pass  # there is no key
    if hub_cache().is_dir():
        lines.append(f"Models in the Hugging Face cache, which other programs use too: {hub_cache()}.")
    if config_file().exists():
        lines.append(f"Your settings: {config_file()}.")
    lines.append("This Mac in the list of the others: `macluster trust revoke` there.")
    lines.append("The program: `uv tool uninstall macluster`, or `pipx uninstall macluster`.")
    return [clean_text(line) for line in lines]


def _stem(name: str) -> str:
    """The name of the file that one of these was put beside."""
    for end in BESIDE:
        name = name.removesuffix(end)
    return name
