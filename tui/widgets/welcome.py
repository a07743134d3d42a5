"""First steps for users without another Mac or a model."""

from __future__ import annotations

from textual.content import Content

from core.events import Peer
from tui.control.keymap import WELCOME
from tui.state.format import DIM, GOOD, WARN, age, fit, gigabytes_short
from tui.state.state import UiState, strangers
from tui.widgets.pane import Drawing, Pane

MACS_SHOWN = 3


class Welcome(Pane):
    """The first steps, in place of the panes."""

    HELP = """Three steps to your first answer. Macs on the same network find each other once macluster runs on both. \
You pair them by typing six digits on both.

One Mac is enough to start: Ctrl+O shows the models that fit it."""

    ACTIONS = WELCOME

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._since = 0.0

    def draw(self, state: UiState, width: int) -> Drawing:
        self._since = self._since or state.ticked_at
        return Drawing("Welcome", welcome_content(state, width, state.ticked_at - self._since), "Esc: dashboard")


def is_first_run(state: UiState) -> bool:
    others = [p for p in state.snapshot.peers if not p.is_self]
    return is_before_first_answer(state) and not others


def is_before_first_answer(state: UiState) -> bool:
    """Whether the first steps still apply: nothing is loaded, was asked, or went wrong."""
    knows_itself = any(p.is_self for p in state.snapshot.peers)
    loaded = state.snapshot.plan or state.snapshot.elsewhere
    return state.attached and knows_itself and not (loaded or state.turns or state.problem)


def welcome_content(state: UiState, width: int, looked_s: float) -> Content:
    """This Mac, the found Macs, and the steps, in `width` cells."""
    peers = state.snapshot.peers
    own = next((p for p in peers if p.is_self), None)
    paired = [p for p in peers if not p.is_self and p not in strangers(state) and p.trust != "blocked"]
    found = sum(not p.is_self for p in peers)
    lines = [
        _own(own, width),
        Content(""),
        Content(f"Looking for other Macs…  {found} found in {age(max(0.0, looked_s))}"),
        *(_found(peer, width) for peer in strangers(state)[:MACS_SHOWN]),
        Content(""),
        _step(1, "Run  macluster  on another Mac on this network", is_done=found > 0),
        _step(2, "It appears here. Press p, then type six digits on both Macs", is_done=bool(paired)),
        *(Content.assemble(("     ● ", GOOD), f"paired with {fit(p.name, 32).rstrip()}") for p in paired[:MACS_SHOWN]),
        _step(3, "Press Ctrl+O to choose a model", is_done=False),
    ]
    if not paired:
        alone = Content.styled("You can also start alone: Ctrl+O shows models for one Mac.", DIM)
        lines += [Content(""), *(_nothing_found() if not found else ()), alone]
    return Content("\n").join(lines)


def _own(own: Peer | None, width: int) -> Content:
    if own is None:
        return Content("This Mac is starting.")
    ready = "This Mac is ready:  "
    facts = f" · {own.chip} · {gigabytes_short(own.memory_bytes)} GB · id {own.short_id}"
    return Content.assemble(ready, (fit(own.name, width - len(ready + facts)).rstrip(), "bold"), facts)


def _found(peer: Peer, width: int) -> Content:
    more = f" {peer.short_id}  {peer.address}  press p"
    return Content.assemble(("  ○ ", WARN), fit(peer.name, min(24, width - 4 - len(more))), (more, DIM))


def _step(number: int, text: str, *, is_done: bool) -> Content:
    if is_done:
        return Content.assemble(("✓ ", GOOD), (f"{number}  {text}", DIM))
    return Content.assemble("  ", (str(number), "bold $accent"), f"  {text}")


def _nothing_found() -> tuple[Content, ...]:
    key = "bold $accent"
    return (
        Content("Nothing found?"),
        Content.assemble("  ", ("a", key), "  add by address        ", ("r", key), "  scan again"),
        Content.assemble("  ", ("c", key), "  check: firewall · Local Network permission · same subnet"),
    )
