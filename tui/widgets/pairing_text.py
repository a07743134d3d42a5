"""Text of the pairing dialog. Pure."""

from __future__ import annotations

from textual.content import Content

from core.errors import Problem
from core.events import PairingChanged, Peer
from core.pairing_code import format_code
from tui.state.format import BAD, DIM, GOOD, TRUST_MARKS, WARN, fingerprint_rows, fingerprint_short, fit
from tui.state.state import UiState

ANYBODY = "· another Mac: show this Mac's address and wait"
_KINDS = {
    "waiting": ("◌", "waiting", WARN),
    "compare": ("◍", "compare", WARN),
    "paired": ("◆", "paired", GOOD),
    "failed": ("✗", "failed", BAD),
    "stopped": ("✗", "stopped", BAD),
}


def stranger_content(peer: Peer) -> Content:
    mark = TRUST_MARKS[peer.trust]
    more = f"  {fit(mark.word, 9)}{fit(peer.address, 17).rstrip()}"
    return Content.assemble((mark.glyph + " ", mark.style), fit(peer.name, 24), f" {peer.short_id}", (more, DIM))


def instruction_content(step: PairingChanged | None, me: str, name: str, now: float, *, is_typed: bool) -> Content:
    """The current instruction. `me` is this Mac, `name` the other one; `now` in seconds since the epoch."""
    if step is None:
        return Content("Which Mac? Start pairing on that Mac too.")
    glyph, word, style = _KINDS[step.state]
    mark = Content.styled(f"{glyph} {word}", style)
    if step.closes_at and step.state in ("waiting", "compare"):
        left = max(0, round(step.closes_at - now))
        mark += Content.styled(f" · {left // 60}:{left % 60:02d} left", DIM)
    shows = Content.assemble(f"{me} (this Mac) shows  ", (format_code(step.digits), "bold"))
    match step.state:
        case "waiting":
            return mark + f"\n\nOn {name}, press p and choose {me}."
        case "compare" if is_typed:
            return mark + f"\n\nNow type these digits on {name}:\n" + shows
        case "compare":
            return mark + "\n\nType the digits shown on the other Mac.\n" + shows
        case "paired":
            return mark + f"\n\n{step.peer} is now one of your Macs."
        case _:
            return mark


def about_content(step: PairingChanged | None, state: UiState, *, whole: bool = False) -> Content:
    """The other Mac and its fingerprint, or this Mac's address."""
    if step is None:
        return Content("")
    if step.state == "waiting" and step.address:
        return Content.styled(f"This Mac's address (type it there):  {step.address}", DIM)
    if step.state != "compare":
        return Content("")
    peer = next((p for p in state.snapshot.peers if p.device_id == step.device_id), None)
    chip = f"   {peer.chip}" if peer is not None and peer.chip else ""
    return Content.assemble(
        f"{fit(step.peer, 24).rstrip()}   {step.device_id[:8]}   {step.address}{chip}\n",
        ("key SHA-256  ", DIM),
        fingerprint_rows(step.fingerprint) if whole else fingerprint_short(step.fingerprint),
        ("" if whole else "  (f: all)", DIM),
    )


def end_content(step: PairingChanged | None, problem: Problem | None, *, attached: bool) -> Content:
    """A warning, or how pairing ended."""
    if not attached:
        return Content.styled("✗ macluster's service stopped, and pairing with it.", BAD)
    if problem is not None:
        return Content.assemble((problem.what, "bold"), ("\n→ " + problem.fix if problem.fix else "", WARN))
    match step.state if step else "":
        case "waiting":
            return Content("Esc: cancel; nothing is saved.")
        case "compare":
            return Content("Different digits? Someone may be in between: press Esc.\nNothing has been shared yet.")
        case "paired":
            return Content("It joins the next model you load.")
        case _:
            return Content("")
