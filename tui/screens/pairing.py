"""The pairing dialog: choose a Mac, wait for its user, type the digits of its screen."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable
from contextlib import suppress

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Digits as BigDigits
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from core.address import parse_place
from core.errors import MaclusterError, Problem, UsageError
from core.events import PairingChanged, Peer
from core.pairing_code import CODE_DIGITS, format_code, parse_code
from core.requests.trust import Digits, PairingOffer, PairWith
from tui.control.actions import KeyOwner, keys_of
from tui.control.keymap import PAIRING
from tui.screens.base import Sources
from tui.state.format import BAD, DIM, GOOD, TRUST_MARKS, WARN, fingerprint_rows, fingerprint_short, fit
from tui.state.state import UiState, cleaned, strangers
from tui.widgets.cursor_list import CursorList
from tui.widgets.text_view import TextView

ANYBODY = "· another Mac: show this Mac's address and wait"
_GLYPHS = {"waiting": ("◌", WARN), "compare": ("◍", WARN), "paired": ("◆", GOOD)}


class PairingInput(Input):
    """An input that leaves keys it doesn't take to the dialog."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        is_taken = not self.restrict or re.fullmatch(self.restrict, character or "") is not None
        return is_taken and super().check_consume_key(key, character)


class PairingScreen(KeyOwner, ModalScreen[None]):
    """A window over the dashboard. Only the person here can open it, never another Mac."""

    TITLE = "Pairing"
    CSS_PATH = "pairing.tcss"
    AUTO_FOCUS = ""
    ACTIONS = PAIRING

    HELP = """Pairing adds another Mac to this cluster. Start it on both Macs, then type on each the six digits \
that the other one shows.

If the digits differ, someone may be between the two Macs: stop. Nothing is saved until the right digits were typed on \
both. If the Macs don't find each other, type the address that the other one shows."""

    def __init__(self, sources: Sources, chosen: Peer | None = None, *, offer: PairingOffer | None = None) -> None:
        super().__init__()
        self._client, self._state = sources.client, sources.state
        self._chosen, self._offer = chosen, offer
        self._whole_key = False
        self._step: PairingChanged | None = None
        self._earlier: PairingChanged | None = None
        self._problem: Problem | None = None
        self._is_typed = False
        self._listed: tuple[Peer, ...] | None = None
        self._say = TextView()
        self._macs = CursorList(id="strangers", markup=False)
        self._digits = BigDigits(id="digits")
        self._label = Static(markup=False)
        # one input for digits and address: hiding a focused one would take the focus from the other
        self._line = PairingInput(compact=True)
        self._asked = Horizontal(self._label, self._line, id="asked")
        self._about = TextView(id="about")
        self._end = TextView(id="end")
        self._box = Vertical(id="pairing")

    def compose(self) -> ComposeResult:
        with self._box:
            yield from (self._say, self._macs, self._digits, self._asked, self._about, self._end)

    def on_mount(self) -> None:
        now = self._state.snapshot.pairing
        if now is not None and _is_open(now):
            self._step = now
        elif self._chosen is not None:
            self._begin(self._chosen)
        if self._offer is not None and (self._step is None or self._step.state == "waiting"):
            self._offer_at(self._offer)
        self._draw()

    def show(self, state: UiState) -> None:
        self._state = state
        new, old = state.snapshot.pairing, self._step
        is_open = any(step is not None and _is_open(step) for step in (new, old))
        # ignore the end of an earlier pairing
        if new is not None and new not in (old, self._earlier) and is_open:
            if new.state != "compare" or old is None or old.digits != new.digits:
                self._is_typed = False
                self._line.value = ""
            self._step, self._problem = new, new.problem
        self._draw()

    def _begin(self, chosen: Peer | None) -> None:
        self._chosen, self._problem, self._step = chosen, None, PairingChanged(state="waiting")
        self._earlier = self._state.snapshot.pairing
        self._is_typed = False
        if chosen is None:
            self._call(self._client.open_pairing())
        else:
            self._call(self._client.pair_with(PairWith(device_id=chosen.device_id)))

    def _offer_at(self, offer: PairingOffer) -> None:
        self._offer, self._problem = offer, None
        if self._step is None:
            self._step, self._earlier = PairingChanged(state="waiting"), self._state.snapshot.pairing
        self._line.value = ""
        self._call(self._client.offer_pairing(offer))

    def _call(self, call: Awaitable[object]) -> None:
        self.run_worker(self._run(call), group="pairing", exit_on_error=False)

    async def _run(self, call: Awaitable[object]) -> None:
        try:
            await call
        except MaclusterError as error:
            self._problem = cleaned(error.problem)
            self._step = PairingChanged(state="failed", problem=self._problem)
            self._draw()

    def _draw(self) -> None:
        if not self._box.is_mounted:
            return
        step = self._step
        state = step.state if step else "choose"
        name = (step.peer if step else "") or (self._chosen.name if self._chosen else "") or "another Mac"
        me = next((p.name for p in self._state.snapshot.peers if p.is_self), "this Mac")
        self._box.border_title = Content(f"Pair with {name}")
        ended = () if step is None or _is_open(step) else ("again", "done") if state != "paired" else ("done",)
        self._box.border_subtitle = Content(keys_of(PAIRING, *ended, "stop", "help"))
        self._box.set_class(state == "paired", "ended-well")
        self._box.set_class(state in ("failed", "stopped"), "ended-badly")
        self._say.draw(instruction_content(step, me, name, time.time(), is_typed=self._is_typed))
        self._digits.display = state == "compare"
        self._macs.display = state == "choose"
        self._ask_for(state, name)
        if step is not None and state == "compare":
            self._digits.update(format_code(step.digits))
        for part, content in (
            (self._about, about_content(step, self._state, whole=self._whole_key)),
            (self._end, end_content(step, self._problem, attached=self._state.attached)),
        ):
            part.display = bool(content.plain)
            part.draw(content)
        self._list()
        self._place_focus(state)

    def _ask_for(self, state: str, name: str) -> None:
        wants_digits = state == "compare"
        self._line.restrict, self._line.max_length = (r"[0-9 ]*", CODE_DIGITS + 1) if wants_digits else (None, 0)
        self._line.placeholder = "six digits" if wants_digits else "Other Mac's address (only if it isn't listed)"
        self._line.disabled = self._is_typed
        self._label.update(f"{fit(name, 24).rstrip()} shows  " if wants_digits else "address  ")
        self._asked.display = state in ("compare", "waiting")

    def _list(self) -> None:
        found = strangers(self._state)
        if self._macs.display and found != self._listed:
            at = self._macs.highlighted or 0
            self._listed = found
            self._macs.clear_options()
            self._macs.add_options([Option(stranger_content(p)) for p in found] + [Option(ANYBODY)])
            self._macs.highlighted = min(at, len(found))

    def _place_focus(self, state: str) -> None:
        wanted = {"choose": self._macs, "compare": self._line, "waiting": self._line}.get(state)
        if self.focused is not wanted and not (wanted is not None and wanted.disabled):
            self.set_focus(wanted)

    def on_descendant_blur(self) -> None:
        self._draw()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        found = self._listed or ()
        self._begin(found[event.option_index] if event.option_index < len(found) else None)
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        state = self._step.state if self._step else ""
        if state == "compare" and (code := parse_code(event.value)):
            self._is_typed = True
            self._call(self._client.type_digits(Digits(digits=code)))
        elif state == "waiting":
            with suppress(UsageError):
                host, port = parse_place(event.value)
                self._offer_at(PairingOffer(host=host, port=port))
        self._draw()

    def action_again(self) -> None:
        if self._step is None or _is_open(self._step):
            return
        if self._offer is not None:
            self._step = None
            self._offer_at(self._offer)
        else:
            self._begin(self._chosen)
        self._draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "fingerprint" or (self._step is not None and self._step.state == "compare")

    def action_fingerprint(self) -> None:
        self._whole_key = not self._whole_key
        self._draw()

    def action_done(self) -> None:
        if self._step is not None and not _is_open(self._step):
            self.dismiss()

    async def action_stop(self) -> None:
        await self.break_off()
        self.dismiss()

    async def break_off(self) -> None:
        if self._step is not None and _is_open(self._step):
            with suppress(MaclusterError):  # a node that ended has closed its window
                await self._client.stop_pairing()
            self.notify("Pairing stopped. Nothing was saved.", markup=False)


def _is_open(step: PairingChanged) -> bool:
    return step.state in ("waiting", "compare")


def stranger_content(peer: Peer) -> Content:
    mark = TRUST_MARKS[peer.trust]
    more = f"  {fit(mark.word, 9)}{fit(peer.address, 17).rstrip()}"
    return Content.assemble((mark.glyph + " ", mark.style), fit(peer.name, 24), f" {peer.short_id}", (more, DIM))


def instruction_content(step: PairingChanged | None, me: str, name: str, now: float, *, is_typed: bool) -> Content:
    """The current instruction. `me` is this Mac, `name` the other one; `now` in seconds since the epoch."""
    if step is None:
        return Content("Which Mac? Start pairing on that Mac too.")
    glyph, style = _GLYPHS.get(step.state, ("✗", BAD))
    mark = Content.styled(f"{glyph} {step.state}", style)
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
