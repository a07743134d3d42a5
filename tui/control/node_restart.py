"""Restarts the node from the screen; asks first if something ends with it."""

from __future__ import annotations

from core.requests.restart import RestartOrder, RestartReport
from tui.control.app_interface import AppInterface
from tui.state.seat import stopped_words


def effect(found: RestartReport) -> str:
    """Effects of a restart, in words; "" for none."""
    lines = ["It restarts when the answer has ended."] if found.is_answering else []
    if found.led_by:
        lines.append(stopped_words(found))
    elif found.model:
        lines.append(f"{found.model} is unloaded; load it again afterwards (Ctrl+O).")
    return " ".join(lines)


async def restart(app: AppInterface) -> None:
    """Restart the node when no answer is being written."""
    text = effect(await app.client.restart(RestartOrder()))
    if text and not await app.choose("Restart macluster's service?", text, ("Cancel", "Restart")):
        return
    await app.client.restart_when_quiet()
