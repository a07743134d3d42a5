"""Local Network permission of macOS (TN3179): which app to allow, and where.

macOS checks the app that the user started. Terminal, SSH sessions and system services need no permission.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# TERM_PROGRAM, and what System Settings calls it
_TERMINALS: Final = {
    "iTerm.app": "iTerm2",
    "ghostty": "Ghostty",
    "WezTerm": "WezTerm",
    "WarpTerminal": "Warp",
    "vscode": "Visual Studio Code",
    "zed": "Zed",
    "Hyper": "Hyper",
    "Tabby": "Tabby",
    "rio": "Rio",
}
_PLACE: Final = "System Settings > Privacy & Security > Local Network"
_EXEMPT: Final = "needs no Local Network permission, so a firewall or VPN blocks it. Turn that off for a moment."


def advice(environment: Mapping[str, str]) -> str:
    """The user's next step if macOS blocks sending, for a program with this environment."""
    program = environment.get("TERM_PROGRAM", "")
    if environment.get("TMUX") or program == "tmux":
        return f"Allow tmux in {_PLACE}, then start macluster again; or start it outside of tmux, in Terminal."
    if environment.get("SSH_CONNECTION"):
        return f"A program over SSH {_EXEMPT}"
    if program == "Apple_Terminal":
        return f"Terminal {_EXEMPT}"
    return f"Allow {_TERMINALS.get(program, 'this terminal')} in {_PLACE}, then start macluster again."
