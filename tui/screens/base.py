"""Base classes of screens: redrawing, and the size of the terminal; screens by name for the action `open`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from textual.app import ComposeResult
from textual.content import Content
from textual.events import Resize
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from core.errors import MaclusterError
from core.requests.plans import LoadRequest, PlanPreview
from tui.control.actions import KeyOwner
from tui.control.app_interface import AppInterface
from tui.control.chat_controller import ChatController
from tui.control.conversation_archive import ConversationArchive
from tui.control.model_catalog import ModelCatalog
from tui.control.model_controller import ModelController
from tui.state.load_options import as_preview
from tui.state.state import UiState, cleaned, of_used
from tui.widgets.key_bar import KeyBar
from tui.widgets.text_view import TextView

if TYPE_CHECKING:
    from tui.screens.dialogs import AskScreen

# absolute paths: a subclass of the app may be in another folder
STYLES: Final = Path(__file__).parent

WIDE: Final = (100, 30)
LEAST: Final = (60, 16)

_T = TypeVar("_T")
_Box = TypeVar("_Box", bound=Widget)


class Sources(AppInterface, Protocol):
    """The app, with its parts that screens use."""

    catalog: ModelCatalog
    models: ModelController
    chat: ChatController
    conversations: ConversationArchive


@runtime_checkable
class Follower(Protocol):
    """A screen that is redrawn after every event."""

    def show(self, state: UiState) -> None:
        """Draw the state."""


@runtime_checkable
class Interruptible(Protocol):
    """A screen that may have started something with another Mac."""

    async def break_off(self) -> None:
        """Stop it before the app ends."""


class TooSmall(Static):
    """The message on a terminal that is too small for any layout."""

    def __init__(self) -> None:
        super().__init__(id="too-small", markup=False)

    def show(self, width: int, height: int) -> None:
        self.update(Content(f"This terminal is {width}x{height}. macluster needs at least {LEAST[0]}x{LEAST[1]}."))


class SizedScreen(KeyOwner, Screen[None]):
    """A screen with the class `wide`, `narrow` or `small`; a small one shows only `TooSmall`."""

    def __init__(self) -> None:
        super().__init__()
        self.add_class(self._layout(*self.app.size))  # usually right already, unless the terminal is being resized

    def on_resize(self, event: Resize) -> None:
        layout = self._layout(event.size.width, event.size.height)
        for name in ("wide", "narrow", "small"):
            self.set_class(layout == name, name)
        self.query_one(TooSmall).show(event.size.width, event.size.height)
        self.call_after_refresh(self.laid_out)

    def _layout(self, width: int, height: int) -> str:
        layout = layout_for(width, height)
        return "narrow" if layout == "wide" and self.app.has_class("plain") else layout

    def laid_out(self) -> None:
        """Called when the widgets have their new sizes."""


class NodeScreen(SizedScreen):
    """A screen above the dashboard: a title, its parts, and the keys. Its style sheet has the name of its file."""

    VERTICAL_BREAKPOINTS = [(0, "low"), (22, "high")]  # noqa: RUF012 - as Textual declares it

    def __init_subclass__(cls, **options: Any) -> None:
        cls.CSS_PATH = f"{cls.__module__.rpartition('.')[2]}.tcss"
        super().__init_subclass__(**options)

    def __init__(self, sources: Sources) -> None:
        super().__init__()
        self._sources, self._client, self._state = sources, sources.client, sources.state
        self._title = TextView(id="title")

    def compose(self) -> ComposeResult:
        yield self._title
        yield from self.parts()
        yield KeyBar()
        yield TooSmall()

    def parts(self) -> ComposeResult:
        raise NotImplementedError

    def show(self, state: UiState) -> None:
        self._state = state
        self.redraw()

    def laid_out(self) -> None:
        self.redraw()

    def show_choices(self) -> None:
        """Draw what is new in the catalog of models."""

    def redraw(self) -> None:
        """Draw, as soon as the widgets have sizes."""
        if self._title.size.width > 0:
            self._draw(self._title.size.width)

    def _draw(self, width: int) -> None:
        """Draw the title in `width` cells, and the parts."""
        raise NotImplementedError

    async def action_back(self) -> None:
        self.dismiss()

    def action_leave(self) -> None:
        self.dismiss()

    def ask(self, title: str, effect: str, answers: tuple[str, ...], then: Callable[[int], object]) -> None:
        """Ask for a choice, and call `then` with the number of the answer unless it is the first one."""
        from tui.screens.dialogs import ChoiceScreen

        def answered(answer: int | None) -> None:
            if answer:
                then(answer)

        self.app.push_screen(ChoiceScreen(title, Content(effect), answers), answered)

    def ask_line(self, screen: AskScreen, then: Callable[[str], object]) -> None:
        """Ask for a line, and call `then` with it unless the user cancels."""

        def typed(line: str | None) -> None:
            if line is not None:
                then(line)

        self.app.push_screen(screen, typed)

    def do(self, work: Awaitable[object]) -> None:
        self.run_worker(self.answer_of(work), exit_on_error=False)

    async def planned(self, request: LoadRequest) -> PlanPreview:
        """Preview loading this; if the node can't, the preview has the problem."""
        try:
            return cleaned(await self._client.plan(of_used(self._state, as_preview(request))))
        except MaclusterError as error:
            return PlanPreview(problem=cleaned(error.problem))

    async def answer_of(self, work: Awaitable[_T]) -> _T | None:
        """The node's answer; None if it fails, which is reported."""
        try:
            return await work
        except MaclusterError as error:
            self._sources.show_problem(error.problem)
            return None


def titled(box: _Box, title: str) -> _Box:
    """`box` as a pane with this title."""
    box.add_class("pane")
    box.border_title = Content(title)
    return box


def make_screen(app: Sources, name: str, **details: object) -> Screen[Any]:
    """The screen of that name: `tui/screens/hop.py` has the class HopScreen. `details` are for that one alone.

    It is imported now, since all imports would delay the first frame.
    """
    kind = getattr(import_module(f"tui.screens.{name}"), _class_of(name))
    screen: Screen[Any] = kind(app, **details)
    return screen


def is_open(screen: Screen[Any], name: str) -> bool:
    return type(screen).__name__ == _class_of(name)


def _class_of(name: str) -> str:
    return f"{name.title()}Screen"


def layout_for(width: int, height: int) -> str:
    if width < LEAST[0] or height < LEAST[1]:
        return "small"
    return "wide" if width >= WIDE[0] and height >= WIDE[1] else "narrow"
